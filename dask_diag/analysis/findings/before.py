"""Rules on the time before tasks run: imports, worker processes that start, and graphs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from math import inf

import numpy as np

from dask_diag.analysis.built_by import seconds_building
from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.cluster import RETIRED
from dask_diag.analysis.findings.rule import (
    WORTH_GAINING,
    WORTH_NAMING,
    Diagnosis,
    Evidence,
    Gain,
    at_line,
    evidence,
    largest,
    largest_lines,
    line_clause,
    lines_sampled,
    rule,
    seconds_sampled,
    severity_of,
    simulated,
    where_of_intervals,
    where_of_rows,
    where_of_tasks,
)
from dask_diag.analysis.findings.scheduling import dividing_step, gain_of_single_tasks
from dask_diag.analysis.first_calls import COMPILERS
from dask_diag.analysis.groups import lookup, workers_of_clusters
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import (
    CLIENT,
    ProgramLine,
    graphs_made_before,
    graphs_made_between,
    late_samples,
    own_lines,
    packages_imported,
    packages_seen,
    samples_below,
    samples_in_files,
    samples_of_tasks,
    samples_of_writers,
    seconds_of_profilers,
)
from dask_diag.analysis.phases import not_of_graphs, times_of_phases
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.columns import BoolArray
from dask_diag.model.codes import Activity, Root
from dask_diag.model.recording import Recording

SLOW_START = 0.3
"""Least share of the recorded time that passes before the first computation."""
LONG_START = 0.5
"""Least seconds that pass before the first computation."""
LONG_READING = 0.3
"""The same of lines that do not import: they take longer with more data, imports do not."""
MOSTLY_IMPORTS = 0.5
"""Share of the sampled seconds from which on a slow start is said to be one of imports."""
LONG_CLUSTER = 5.0
"""The same if a cluster starts: a local one takes one to four seconds in any program."""
MOSTLY_CLUSTER = 0.5
"""Share of the time from which on a slow start is said to be that of a cluster that starts."""
WRITING = 0.25
"""Least share of the time of a function in calls that write files, if it makes what it writes."""
_DISTRIBUTED = "/distributed/"
"""In the paths of the files of distributed."""


@rule("slow-start", needs=("computations",), needs_start=True, needs_tasks=False)
def slow_start(analysis: Analysis) -> Diagnosis | None:
    """Much time passed before the first computation: imports, reading."""
    recording = analysis.recording
    before = times_of_phases(recording)["before"]
    passed = before.seconds
    is_before = recording.samples.root.eq(Root.BEFORE)
    in_time = is_before & ~late_samples(recording)
    builds = graphs_made_before(recording)
    # Profilers that start are no part of the program, and graphs are another finding's.
    own = seconds_of_profilers(recording, in_time) + _unsampled_start(recording, passed)
    needed, unused = _imports(recording, is_before)
    builds |= needed
    # Who writes files first does not wait for data; mostly it makes those that it then reads.
    builds |= samples_of_writers(recording, is_before, WRITING)
    took = passed - own - seconds_sampled(recording, builds)
    wall = recording.stop - recording.start - own
    if took < SLOW_START * wall:
        return None
    lines = lines_sampled(recording, is_before & ~builds)
    sampled = sum(line.seconds for line in lines)
    importing = sum(line.importing for line in lines)
    if took < LONG_START and sampled - importing < LONG_READING:
        return None
    joined = workers_of_clusters(recording).joined - recording.start
    joined = joined[(joined > 0) & (joined <= before.stop.max() - recording.start)]
    joined_after = float(joined.max(initial=0.0))
    is_waiting = joined_after > 0 and joined_after >= MOSTLY_CLUSTER * took
    if is_waiting and took < LONG_CLUSTER:
        return None
    return Diagnosis(
        severity_of(took / wall),
        Gain(took),
        evidence(
            "{took:seconds} of {wall:seconds} ({share:share}) passed before the first computation"
            + ". {workers:worker} of the cluster joined, the last one after {joined:seconds}"
            * (joined_after > 0)
            + ". No sampled computation used {unused}" * bool(unused)
            + "{lines}",
            unused=unused,
            took=took,
            wall=wall,
            share=took / wall,
            workers=len(joined),
            joined=joined_after,
            lines=line_clause(lines_sampled(recording, in_time & ~builds)),
        ),
        _advice_on_start(lines, sampled, importing, is_waiting),
        where_of_intervals(*before),
    )


_OF_DASK = frozenset({"cloudpickle", "dask", "distributed", "fsspec", "numpy", "pandas", "pyarrow"})
"""Libraries that dask imports itself."""
FEWEST_SAMPLES = 10
"""Samples after the start; with fewer it is not known which libraries computations use."""


def _imports(recording: Recording, is_before: BoolArray) -> tuple[BoolArray, Sequence[str]]:
    """Select samples of imports that computations need, and name the other libraries imported.

    To import what is used takes its time in any program.
    """
    samples, packages = recording.samples, packages_imported(recording)
    is_import = is_before & ~packages.eq("")
    if samples.count[~is_before & (samples.node >= 0)].sum() < FEWEST_SAMPLES:
        return is_import, ()
    used = _OF_DASK | packages_seen(recording, ~is_import)
    is_needed = is_import & packages.is_in(used)
    unused = largest(packages, samples.seconds * (is_import & ~is_needed), least=WORTH_NAMING)
    return is_needed, unused


def _unsampled_start(recording: Recording, passed: float) -> float:
    """Seconds in which profilers started, up to a second on a busy machine, without a sample.

    A call that keeps the GIL right afterwards delays the first sample, and the sample represents
    the time of the call.
    """
    samples = recording.samples.filter(recording.samples.root.eq(Root.BEFORE))
    if not len(samples):
        return 0.0
    until = float(samples.start.min() - recording.start)
    return max(0.0, min(until, passed - float(samples.seconds.sum())))


def _advice_on_start(
    lines: list[ProgramLine], sampled: float, importing: float, waits_for_cluster: bool
) -> str:
    """Advice on a slow start, which may be the start of a cluster."""
    starting = sum(line.seconds - line.importing for line in lines if _DISTRIBUTED in line.file)
    if sampled and importing >= MOSTLY_IMPORTS * sampled:
        return (
            "import fewer modules, or import them lazily; python -X importtime shows which are slow"
        )
    advice = (
        "read and prepare data in tasks (dask.dataframe.read_parquet, dask.array.from_array, "
        "dask.delayed), so that all workers share the work"
    )
    if waits_for_cluster and (not sampled or starting >= MOSTLY_CLUSTER * sampled):
        advice = (
            "keep one cluster running for several programs (dask scheduler, dask worker), and "
            "connect each program with Client(address)"
        )
    if not sampled:
        return f"record with SamplingProfiler to see which lines take the time; {advice}"
    return advice


WORTH_REPORTING = 0.15
"""Least share of the time in computations that the start of processes takes."""


@rule("pool-startup", needs_start=True)
def pool_startup(analysis: Analysis) -> Diagnosis | None:
    """Worker processes took long to start, compared with the computation; or all were missing."""
    if "processes" not in analysis.schedulers:
        return _workers_that_left(analysis) or _clusters_between(analysis)
    waiting = sum(occupied.seconds(occupied.startup) for occupied in analysis.occupancies)
    starting = [occupied.when(occupied.startup) for occupied in analysis.occupancies]
    # What is lost in computations at the same time is lost once.
    waited = min(analysis.wall_of_workers(waiting), Intervals.join(starting).union().seconds)
    gain = simulated(analysis, waited, remove={Activity.STARTUP})
    least = max(WORTH_REPORTING * analysis.computing, gain_of_single_tasks(analysis))
    advice, saved = _advice_on_pool(analysis)
    if saved < gain.seconds:
        gain = gain._replace(seconds=saved)
    if gain.seconds < least or not advice:
        return None
    computations, workers = analysis.computations, analysis.recording.workers
    called = lookup(computations.computation, call_times(computations))
    called_before = np.array([called[name] for name in workers.computation.tolist()])
    has_started = workers.joined > called_before
    return Diagnosis(
        severity_of(gain.seconds / analysis.computing),
        gain,
        evidence(
            "{processes:worker process} took {lost:seconds} of {computing:seconds} to "
            "start. All tasks together ran for {tasks:seconds}",
            processes=has_started.sum(),
            lost=gain.seconds,
            computing=analysis.computing,
            tasks=analysis.in_tasks,
        ),
        advice,
        where_of_intervals(called_before[has_started], workers.joined[has_started]),
    )


def _workers_that_left(analysis: Analysis) -> Diagnosis | None:
    """Workers of a cluster left between computations, which waited for new ones, as with adapt."""
    workers = analysis.recording.workers
    cluster_of = lookup(analysis.computations.computation, analysis.computations.cluster)
    is_gone, is_new = np.zeros((2, len(workers)), bool)
    lost, times = 0.0, list[Intervals]()
    for occupied in analysis.occupancies:
        is_there = workers.computation.eq(cluster_of.get(occupied.computation, ""))
        start, stop = occupied.times[0], occupied.times[-1]
        gone = is_there & workers.reason.eq(RETIRED) & (workers.left <= start)
        joined = is_there & (workers.joined > start) & (workers.joined < stop)
        if not (gone.any() and joined.any()):
            continue
        capacity, full = occupied.capacity, occupied.workers
        missing = np.minimum(full - capacity, workers.threads[gone].sum())
        missing[int(capacity.argmax()) :] = 0
        lost += occupied.seconds(missing) / full
        times.append(occupied.when(missing))
        is_gone |= gone
        is_new |= joined
    lost = min(lost, analysis.computing)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{left:worker} left the cluster between computations, and {joined:worker} joined in "
            "later ones, which waited {lost:seconds} of {computing:seconds} for them",
            left=is_gone.sum(),
            joined=is_new.sum(),
            lost=lost,
            computing=analysis.computing,
        ),
        "keep workers between computations: cluster.adapt(minimum=...), a longer interval= or "
        "wait_count= there, or a fixed number, cluster.scale(...); or compute results together, in "
        "one computation",
        where_of_intervals(*Intervals.join(times)),
    )


def _clusters_between(analysis: Analysis) -> Diagnosis | None:
    """Clusters started and closed between computations, or workers were restarted."""
    recording, client = analysis.recording, analysis.client_times
    # At the end a cluster closes in any program.
    again = client.clusters * (recording.samples.start < call_times(analysis.computations).max())
    lost, wall = float(again.sum()), recording.stop - recording.start
    if lost < WORTH_REPORTING * wall:
        return None
    chosen = again > 0
    are_restarted = again[samples_below(recording, CLIENT, "restart")].sum() > lost / 2
    clusters = set(analysis.computations.cluster.tolist()) - {""}
    if not are_restarted and len(clusters) < 2:
        # It started after a computation without one.
        return None
    return Diagnosis(
        severity_of(lost / wall),
        Gain(lost),
        evidence(
            ("Workers were restarted" if are_restarted else "Clusters started and closed")
            + " for {lost:seconds} of {wall:seconds} between computations{line}",
            lost=lost,
            wall=wall,
            line=at_line(analysis, again),
        ),
        "call client.restart() only where workers keep memory after futures are released: each "
        "worker starts Python and imports again"
        if are_restarted
        else "use one cluster and one client for all computations",
        where_of_intervals(recording.samples.start[chosen], recording.samples.stop[chosen]),
    )


def _advice_on_pool(analysis: Analysis) -> tuple[str, float]:
    """What saves the start of processes, and the most that it saves; empty if nothing is known."""
    # In threads, tasks that hold the GIL compute one after the other, and the threads that compute
    # for them are one: that must be quicker, too.
    cpu = analysis.tasks.thread_cpu
    in_turns = float(np.where(np.isnan(cpu), analysis.task_seconds, cpu).sum())
    in_turns += analysis.cpu_beside_tasks
    saved = np.fmin(analysis.seconds_saved(scheduler="threads"), analysis.computing - in_turns)
    if saved >= WORTH_GAINING * analysis.computing:
        return (
            "use scheduler='threads': the tasks are too short to amortize process start-up",
            float(saved),
        )
    if len(analysis.computations) > 1:
        return (
            "use one pool for all computations: "
            "dask.config.set(pool=concurrent.futures.ProcessPoolExecutor())",
            inf,
        )
    return "", 0.0


@rule("first-call", needs=("samples",), needs_start=True)
def first_call(analysis: Analysis) -> Diagnosis | None:
    """The first run of a function compiled, imported or loaded something; others waited for it.

    Or each run compiles.
    """
    recording, calls = analysis.recording, analysis.first_calls
    each_time = _compiling_in_each_run(analysis)
    if each_time is not None or not calls:
        return each_time
    # Processes compile at the same time.
    lost: dict[str, float] = {}
    for call in calls:
        lost[call.function] = max(lost.get(call.function, 0.0), call.lost)
    seconds = min(sum(lost.values()), analysis.computing)
    if seconds < WORTH_REPORTING * analysis.computing:
        return None
    worst = max(calls, key=lambda call: call.lost)
    processes = sum(call.function == worst.function for call in calls)
    rows = np.concatenate([call.rows for call in calls])
    lines = lines_sampled(recording, np.logical_or.reduce([call.elsewhere for call in calls]))
    return Diagnosis(
        severity_of(seconds / analysis.computing),
        Gain(seconds),
        evidence(
            "The first run of {function} took {first:seconds}, later runs {later:seconds} (median)"
            + " in each of {processes:process}" * (processes > 1)
            + ". {waited:other run} waited for it" * (len(worst.rows) > 1)
            + (
                " to give up a lock, which later runs do not wait for{lines}"
                if worst.is_locked
                else ". It passed where later runs spend no time{lines}"
            ),
            function=analysis.named([worst.function]),
            first=worst.took,
            later=worst.later,
            processes=processes,
            waited=len(worst.rows) - 1,
            lines=line_clause(lines),
        ),
        (
            "compute in threads, or in one pool for all computations, because each new process "
            "compiles, imports or loads anew"
            if "processes" in analysis.schedulers
            else "compile, import or load before the computation: call the function once on a "
            "little data"
        )
        + "; or keep compiled code (numba: cache=True)",
        where_of_rows(analysis, rows),
    )


COMPILING = 0.3
"""Least share of the sampled time of tasks, after the first of a function has ended, in which tasks
compile or import."""


def _compiling_in_each_run(analysis: Analysis) -> Diagnosis | None:
    """Tasks compile something after others of their function have run."""
    recording, tasks, samples = analysis.recording, analysis.tasks, analysis.recording.samples
    if not analysis.schedulers <= {"threads", "synchronous"}:
        # Each process has a first run.
        return None
    ended = np.full(len(tasks.function.values), inf)
    np.minimum.at(ended, tasks.function.codes, np.where(np.isnan(tasks.stop), inf, tasks.stop))
    first_end = dict(zip(tasks.function.values, ended.tolist(), strict=True))
    since = np.array([first_end.get(name, inf) for name in samples.function.values])
    is_later = samples_of_tasks(recording)
    is_later &= samples.start >= since[samples.function.codes]
    compiles = is_later & samples_in_files(recording, COMPILERS.search)
    took, total = (seconds_sampled(recording, chosen) for chosen in (compiles, is_later))
    if samples.count[compiles].sum() < FEWEST_SAMPLES or took < COMPILING * total:
        return None
    lost = min(analysis.wall_of_tasks(analysis.in_tasks * took / total), analysis.computing)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    functions = largest(samples.function, samples.seconds * compiles)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Tasks of {functions} compiled or imported in each run, not only in the first: "
            "{share:share} of their time{lines}",
            functions=analysis.named(functions),
            share=took / total,
            lines=line_clause(lines_sampled(recording, compiles)),
        ),
        "compile once: define the compiled function outside of the function of the task, or keep "
        "compiled code (numba: cache=True)",
        where_of_tasks(analysis, tasks.function.is_in(functions)),
    )


SLOW_PREPARATION = 0.25
"""Least share of the time in computations in which graphs were prepared."""
LONG_PREPARATION = 0.1
"""Least seconds in which graphs were prepared."""
LONGER_THAN_IMPORTS = 0.5
"""The same where stacks were not sampled: dask imports modules when it is first called."""
PREPARED_PER_TASK = 0.001
"""Seconds for each task that the first graph may take where stacks were not sampled."""
ONE_CAUSE = 0.4
"""Share of these seconds in some files of dask from which on the advice is about what they do: of
calls on large lists they had 54%, of thousands of calls 12%."""


# A graph that took long to make may compute in no time.
@rule(
    "graph-preparation",
    needs=("computations",),
    unless=("small-computations", "large-arguments"),
    needs_tasks=False,
)
def graph_preparation(analysis: Analysis) -> Diagnosis | None:
    """Graphs took long to be made, optimized and put in order."""
    recording, computations = analysis.recording, analysis.computations
    samples = recording.samples
    called, prepared = call_times(computations), prepared_times(computations)
    in_calls = samples.root.eq(Root.GRAPH)
    before, between = graphs_made_before(recording), graphs_made_between(recording)
    outside = before | between
    took = _seconds_preparing(recording, is_sampled=bool(in_calls.any()))
    in_calls &= ~late_samples(recording)
    is_sampled = bool(lines_sampled(recording, in_calls))
    built = seconds_sampled(recording, outside)
    if not is_sampled:
        took -= _import_seconds(recording)
    # Samples are not exact, and calls that computed on a cluster have no time of preparing there.
    took = max(took, 0.0)
    if took + built < (LONG_PREPARATION if is_sampled or built else LONGER_THAN_IMPORTS):
        return None
    lost = built + float(np.fmin(took, analysis.seconds_saved(remove={Activity.GRAPH})))
    # On a cluster, graphs are made while others are computed, and samples are not exact.
    wall = min(built + analysis.called, recording.stop - recording.start)
    lost = min(lost, wall)
    if lost < SLOW_PREPARATION * wall:
        return None
    # In calls that compute on a cluster, most of the time is that of waiting for it.
    making = outside if analysis.on_cluster else in_calls | outside
    lines, reason = lines_sampled(recording, making), _hashing(recording, making)
    # On a cluster the calls that made the others are not known.
    number = 1 if analysis.schedulers == {"distributed"} else len(computations)
    several = (
        "compute results together with dask.compute(a, b), so that their common part is prepared "
        "once; "
    ) * (number > 1)
    return Diagnosis(
        severity_of(lost / wall),
        Gain(lost),
        evidence(
            "Constructing, optimizing and ordering the "
            + "first " * (number < len(computations))
            + ("graphs of {graphs:count} computations" if number > 1 else "graph")
            + " took {took:seconds} of {wall:seconds}. In all, {tasks:task} ran{reason}{lines}",
            reason=reason,
            graphs=number,
            took=min(took + built, wall),
            wall=wall,
            tasks=len(recording.tasks),
            lines=line_clause([line for line in lines if not line.importing] * (not reason.text)),
        ),
        several + _advice_on_graphs(analysis, making, lines, is_hashing=bool(reason.text)),
        replace(
            where_of_intervals(
                np.concatenate([called, samples.start[before], samples.start[between]]),
                np.concatenate(
                    [prepared, np.fmin(samples.stop[before], called.min()), samples.stop[between]]
                ),
            ),
            lines=largest_lines(
                analysis, seconds_building(recording, analysis.built_by, in_calls | outside)
            ),
        ),
    )


_TOKENIZE = "dask/tokenize.py"
_HASHED = (
    ("normalize_array", "_normalize_pickle", "an array of objects"),
    ("normalize_dataframe", "", "a DataFrame"),
    ("normalize_array", "", "an array"),
    ("_normalize_pickle", "", "pickled objects, such as functions that refer to data"),
    ("", "", "data"),
)
"""What dask hashed, by functions of its file that call each other: the first that most is in."""


def _hashing(recording: Recording, chosen: BoolArray) -> Evidence:
    """Sentence on the hashing of data, if most of the chosen samples are of it."""
    hashed = chosen & samples_below(recording, _TOKENIZE)
    took, total = (seconds_sampled(recording, those) for those in (hashed, chosen))
    if took <= ONE_CAUSE * total:
        return Evidence()

    def is_most(*functions: str) -> bool:
        below = [samples_below(recording, _TOKENIZE, name) for name in functions if name]
        return seconds_sampled(recording, np.logical_and.reduce([hashed, *below])) > took / 2

    what = next(what for *functions, what in _HASHED if is_most(*functions))
    lines = own_lines(recording, recording.samples.seconds * hashed)
    return evidence(
        ". For {share:share} of the time dask hashed {what}" + ", passed in {line}" * bool(lines),
        share=took / total,
        what=what,
        line=str(lines[0]) if lines else "",
    )


def _seconds_preparing(recording: Recording, is_sampled: bool) -> float:
    """Seconds in which any graph was prepared, without imports and profilers.

    A call may compute something first, as ``set_index`` of dask.dataframe computes quantiles. Such
    a computation lies in the preparation of the call's own graph, and is not preparation itself.
    """
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    # Few graphs are made while another computation is called: only for these it is looked which.
    in_order = np.sort(called)
    alone = np.searchsorted(in_order, prepared, "right") - np.searchsorted(in_order, called) < 2
    is_whole = alone & (computations.stop > prepared)
    preparing = [Intervals(called[is_whole], prepared[is_whole])]
    for start, end in zip(called[~is_whole].tolist(), prepared[~is_whole].tolist(), strict=True):
        is_inside = (called >= start) & (computations.stop <= end)
        within = Intervals(called[is_inside], computations.stop[is_inside])
        preparing.append(within.gaps(start, end))
    of_all = Intervals.join(preparing).seconds
    # Threads are sampled one by one: of graphs that are prepared at once, each has its samples.
    others = (
        seconds_sampled(recording, not_of_graphs(recording))
        if is_sampled
        else float(np.nansum(computations.own_seconds))
    )
    share = 1 - others / of_all if of_all else 0.0
    return Intervals.join(preparing).union().seconds * share


_HASHED_ADVICE = (
    "wrap large data once, data = dask.delayed(data), or pass a name (from_array(..., name=False), "
    "map_blocks(..., name='a unique name')): dask names tasks by hashing the data that are passed "
    "to them or that their functions refer to, and pickles objects for it"
)
_CAUSES = (
    (("dask/hashing.py", "dask/tokenize.py"), _HASHED_ADVICE),
    (
        ("dask/delayed.py",),
        "create large lists and dicts in a task, or pass dask.delayed(data, traverse=False): dask "
        "searches lists and dicts for delayed objects; otherwise make fewer calls, each for "
        "several items",
    ),
    (
        ("pandas/", "dask/dataframe/io/"),
        "read the data in tasks (dask.dataframe.read_parquet), or pass from_pandas(..., "
        "sort=False): dask inspects a DataFrame to partition it, even into few partitions",
    ),
)
"""Starts of paths, and the advice if most of the time was spent in these files."""


_SAMPLE_RESULTS = (
    ("dask/array/utils.py", "compute_meta"),
    ("dask/array/core.py", "apply_infer_dtype"),
    ("dask/dataframe/utils.py", "_emulate"),
    ("dask/dataframe/core.py", "_emulate"),
    ("dask/dataframe/dask_expr/_expr.py", "emulate"),
)
"""Functions that call those of the user on a few made-up rows, to learn what they return."""


def _advice_on_graphs(
    analysis: Analysis, making: BoolArray, lines: list[ProgramLine], *, is_hashing: bool
) -> str:
    """Advice on graphs that take long to be made, by the files of dask that took the time."""
    recording = analysis.recording
    total = sum(line.seconds for line in lines)
    is_call = np.logical_or.reduce([samples_below(recording, *one) for one in _SAMPLE_RESULTS])
    if seconds_sampled(recording, making & is_call) > ONE_CAUSE * total:
        return (
            "say what the function returns (meta=, for arrays with dtype=): dask calls it with a "
            "few made-up rows to find that out"
        )
    submits = samples_below(recording, CLIENT, "submit") | samples_below(recording, CLIENT, "map")
    if seconds_sampled(recording, making & submits) > ONE_CAUSE * total:
        return (
            "send large data once, data = client.scatter(data, broadcast=True), and give the "
            "future to a plain function: a method takes its object along, and dask names each call "
            "by hashing all that it is given (unless pure=False). What earlier tasks returned need "
            "not come to the program: give their futures to the next ones"
        )
    if is_hashing:
        return _HASHED_ADVICE
    copied = making & samples_below(recording, "dask/array/core.py", "from_array")
    if (
        seconds_sampled(recording, copied & ~samples_below(recording, _TOKENIZE))
        > ONE_CAUSE * total
    ):
        return (
            "read or make the data in tasks (from_zarr, map_blocks, dask.delayed): from_array "
            "copies an array that the program has in memory"
        )
    for starts, advice in _CAUSES:
        took = sum(line.seconds for line in lines if short_path(line.file).startswith(starts))
        if took > ONE_CAUSE * total:
            return advice
    step = dividing_step(analysis)
    if step is not None:
        return step.advice
    return (
        "make fewer and larger chunks; select data before other steps; persist() what several "
        "computations use"
    )


def _import_seconds(recording: Recording) -> float:
    """Seconds of preparing the first graph beyond what its size explains.

    dask imports modules when first called; only stacks distinguish imports from graphs.
    """
    computations = recording.computations
    called = call_times(computations)
    first = int(called.argmin())
    tasks = int(recording.tasks.computation.eq(computations.computation[first]).sum())
    took = float(prepared_times(computations)[first] - called[first])
    return max(0.0, took - PREPARED_PER_TASK * tasks)
