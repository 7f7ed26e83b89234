"""The finding on graphs that take long to be made, optimized and put in order."""

from __future__ import annotations

from math import isnan

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    NOWHERE,
    WORTH_GAINING,
    Finding,
    during,
    lines_sampled,
    named,
    seconds_sampled,
    severity_of_share,
)
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.lines import (
    ProgramLine,
    graphs_made_before,
    late_samples,
    seconds_of_profilers,
)
from dask_diag.analysis.phases import not_of_graphs, phase_intervals
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import Activity, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

SLOW_START = 0.3
"""Least share of the recorded time that passes before the first computation."""
LONG_START = 0.5
"""Least seconds that pass before the first computation."""
LONG_READING = 0.3
"""The same of lines that do not import: they take longer with more data, imports do not."""
MOSTLY_IMPORTS = 0.5
"""Share of the sampled seconds from which on a slow start is said to be one of imports."""
MOSTLY_CLUSTER = 0.5
"""Share of the time from which on a slow start is said to be that of a cluster that starts."""
WORTH_REPORTING = 0.15
"""Least share of the time of computations that the start of processes takes."""
_DISTRIBUTED = "/distributed/"
"""In the paths of the files of distributed."""


def slow_start(analysis: Analysis) -> Finding | None:
    """Time before the first computation: imports, reading."""
    recording = analysis.recording
    table = phase_intervals(recording)
    before = table.rows(table["phase"].where("before"))
    is_before = recording.samples.root.where(Root.BEFORE)
    builds = graphs_made_before(recording)
    # Profilers that start are no part of the program, and graphs are another finding's.
    own = seconds_of_profilers(recording, is_before) + _until_sampled(recording, before)
    took = (
        float((before["stop"] - before["start"]).sum()) - own - seconds_sampled(recording, builds)
    )
    wall = recording.stop - recording.start - own
    if not len(recording.computations) or took < SLOW_START * wall:
        return None
    lines = lines_sampled(recording, is_before & ~builds)
    if took < LONG_START and sum(line.seconds - line.importing for line in lines) < LONG_READING:
        return None
    workers, joined_after = _workers_that_joined(recording, float(before["stop"].max()))
    joined = (
        f"; {counted(workers, 'worker')} of a cluster joined, the last one after "
        f"{seconds(joined_after)}"
    ) * (workers > 0)
    waits_for_cluster = workers > 0 and joined_after >= MOSTLY_CLUSTER * took
    return Finding(
        "slow-start",
        severity_of_share(took / wall),
        took if waits_for_cluster else took * _share_lost_at_start(analysis, lines),
        f"{seconds(took)} of {seconds(wall)} ({percent(took / wall)}) passed before the first "
        f"computation{joined}{named(lines)}",
        _at_start(lines, waits_for_cluster),
        kind=AT_MOST,
        where=during(before["start"], before["stop"]),
    )


def _until_sampled(recording: Recording, before: Table) -> float:
    """Seconds in which profilers started, on a busy machine up to a second: no stack was sampled.

    A call that keeps the GIL right after that delays the first sample, which represents its time.
    """
    samples = recording.samples.rows(recording.samples.root.where(Root.BEFORE))
    if not len(samples):
        return 0.0
    until = float(samples.start.min() - recording.start)
    not_sampled = float((before["stop"] - before["start"]).sum() - samples.seconds.sum())
    return max(0.0, min(until, not_sampled))


def _share_lost_at_start(analysis: Analysis, lines: list[ProgramLine]) -> float:
    """What share of a slow start can be gained: imports, and all but one worker's part of the rest.

    In tasks, the rest is divided among the workers. Where no lines were sampled it may be imports.
    """
    sampled = sum(line.seconds for line in lines)
    if not sampled:
        return 1.0
    computing = 1 - sum(line.importing for line in lines) / sampled
    most = int(analysis.recording.computations.workers.max(initial=1))
    return 1 - computing / max(most if most > 1 else analysis.cpus, 1)


def _at_start(lines: list[ProgramLine], waits_for_cluster: bool) -> str:
    """What to do about a slow start; a cluster may have taken the time until it was there."""
    sampled = sum(line.seconds for line in lines)
    importing = sum(line.importing for line in lines)
    starting = sum(line.seconds - line.importing for line in lines if _DISTRIBUTED in line.file)
    advice = (
        "read and prepare data in tasks (dask.dataframe.read_parquet, dask.array.from_array, "
        "dask.delayed), so that all workers take part in it"
    )
    if sampled and importing >= MOSTLY_IMPORTS * sampled:
        return "import less, or where it is needed; python -X importtime shows what takes long"
    if waits_for_cluster and (not sampled or starting >= MOSTLY_CLUSTER * sampled):
        advice = (
            "keep one cluster for several programs (dask scheduler, dask worker), to which each "
            "connects with Client(address)"
        )
    if not sampled:
        return f"record with SamplingProfiler to see the lines that take the time; {advice}"
    return advice


def _workers_that_joined(recording: Recording, until: float) -> tuple[int, float]:
    """How many workers of clusters joined in the recording, before a time, and the last's after."""
    workers = recording.workers
    joined = workers.joined[~workers.address.where("")]
    joined = joined[(joined > recording.start) & (joined <= until)]
    return len(joined), float(joined.max(initial=recording.start)) - recording.start


def pool_startup(analysis: Analysis) -> Finding | None:
    """Worker processes that take long to start, beside what they compute."""
    if "processes" not in analysis.schedulers:
        return None
    saved = analysis.seconds_saved(remove={Activity.STARTUP})
    waiting = sum(occupied.seconds(occupied.startup) for occupied in analysis.occupancies)
    # What is lost in computations at the same time is lost once.
    waited = min(waiting / analysis.workers / analysis.overlap, _seconds_starting(analysis))
    lost = waited if isnan(saved) else saved
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    computations, workers = analysis.recording.computations, analysis.recording.workers
    called = dict(
        zip(computations.computation.tolist(), call_times(computations).tolist(), strict=True)
    )
    starts = [
        (called[name], joined)
        for name, joined in zip(workers.computation.tolist(), workers.joined.tolist(), strict=True)
        if joined > called[name]
    ]
    return Finding(
        "pool-startup",
        severity_of_share(lost / analysis.computing),
        lost,
        f"{count(len(starts))} worker processes took {seconds(lost)} of "
        f"{seconds(analysis.computing)} to start; all tasks together ran for "
        f"{seconds(analysis.in_tasks)}",
        _instead_of_starting(analysis),
        kind=AT_MOST if isnan(saved) else ABOUT,
        where=during(*np.array(starts).T) if starts else NOWHERE,
    )


def _seconds_starting(analysis: Analysis) -> float:
    """Seconds in which any worker was free because its process started."""
    times = [occupied.when(occupied.startup) for occupied in analysis.occupancies]
    return Intervals.join(times).union().seconds


def _instead_of_starting(analysis: Analysis) -> str:
    # In threads, tasks that hold the GIL compute one after the other: that must be quicker, too.
    cpu = analysis.recording.tasks.thread_cpu
    in_turns = float(np.where(np.isnan(cpu), analysis.task_seconds, cpu).sum())
    saved = np.fmin(analysis.seconds_saved(scheduler="threads"), analysis.computing - in_turns)
    if saved >= WORTH_GAINING * analysis.computing:
        return "compute with scheduler='threads': tasks are too short to make up for the start"
    if len(analysis.recording.computations) > 1:
        return (
            "use one pool for all computations: "
            "dask.config.set(pool=concurrent.futures.ProcessPoolExecutor())"
        )
    return (
        "no remedy is known for one computation: its tasks would take longer in threads if they "
        "hold the GIL. More work in one computation makes up for the start"
    )


SLOW_PREPARATION = 0.25
"""Least share of the time of computations in which graphs were prepared."""
LONG_PREPARATION = 0.1
"""Least seconds in which graphs were prepared."""
LONGER_THAN_IMPORTS = 0.5
"""The same where stacks were not sampled: dask imports modules when it is first called."""
PREPARED_PER_TASK = 0.001
"""Seconds for each task that the first graph may take where stacks were not sampled."""
ONE_CAUSE = 0.4
"""Share of these seconds in some files of dask from which on the advice is about what they do: of
calls on large lists they had 54%, of thousands of calls 12%."""


def graph_preparation(analysis: Analysis) -> Finding | None:
    """Graphs that take long to be made, optimized and put in order."""
    recording, computations = analysis.recording, analysis.recording.computations
    if not len(computations):
        return None
    called, prepared = call_times(computations), prepared_times(computations)
    in_calls = recording.samples.root.where(Root.GRAPH)
    before = graphs_made_before(recording)
    took = _seconds_preparing(recording, is_sampled=bool(in_calls.any()))
    in_calls &= ~late_samples(recording)
    lines = lines_sampled(recording, in_calls)
    built = seconds_sampled(recording, before)
    if not lines:
        took -= _may_be_imports(recording)
    # Samples are not exact, and calls that computed on a cluster have no time of preparing there.
    took = max(took, 0.0)
    if took + built < (LONG_PREPARATION if lines or built else LONGER_THAN_IMPORTS):
        return None
    lost = built + float(np.fmin(took, analysis.seconds_saved(remove={Activity.GRAPH})))
    wall = built + analysis.called
    if lost < SLOW_PREPARATION * wall:
        return None
    # In calls that compute on a cluster, most of the time is that of waiting for it.
    lines = lines_sampled(recording, before if analysis.on_cluster else in_calls | before)
    # On a cluster the calls that made the others are not known.
    number = 1 if analysis.schedulers == {"distributed"} else len(computations)
    which = "first " * (number < len(computations))
    several = f" of {count(number)} computations" if number > 1 else ""
    together = (
        "compute results together, dask.compute(a, b), so that what they have in common is "
        "prepared once; "
        if number > 1
        else ""
    )
    return Finding(
        "graph-preparation",
        severity_of_share(lost / wall),
        lost,
        f"Making, optimizing and ordering the {which}graph{'s' * (number > 1)}{several} took "
        f"{seconds(took + built)} of {seconds(wall)} "
        f"({counted(len(recording.tasks), 'task')} ran)"
        f"{named([line for line in lines if not line.importing])}",
        f"{together}{_less_to_prepare(lines)}",
        kind=AT_MOST,
        where=during(
            np.append(called, recording.samples.start[before]),
            np.append(prepared, np.fmin(recording.samples.stop[before], called.min())),
        ),
    )


def _seconds_preparing(recording: Recording, is_sampled: bool) -> float:
    """Seconds in which any graph was prepared, without imports and profilers.

    A call may compute something else first, as ``set_index`` of dask.dataframe has its quantiles:
    all of that computation lies in the preparation of the other, and is no part of it.
    """
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    preparing = []
    for start, end in zip(called.tolist(), prepared.tolist(), strict=True):
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


def _less_to_prepare(lines: list[ProgramLine]) -> str:
    """What to do about graphs that take long to be made, by what dask did in that time."""
    total = sum(line.seconds for line in lines)

    def mostly(*starts: str) -> bool:
        files = [(short_path(line.file), line.seconds) for line in lines]
        return sum(took for file, took in files if file.startswith(starts)) > ONE_CAUSE * total

    if mostly("dask/hashing.py", "dask/tokenize.py"):
        return (
            "dask names tasks by hashing the data that they are given: make it a delayed object "
            "once, data = dask.delayed(data), or give it a name (from_array(..., name='...'))"
        )
    if mostly("dask/delayed.py"):
        return (
            "dask looks for delayed objects in all lists and dicts that it is given: make large "
            "ones in a task, or pass dask.delayed(data, traverse=False); else make fewer calls, "
            "each on several items"
        )
    if mostly("pandas/", "dask/dataframe/io/"):
        return (
            "dask looks at the data of a table to divide it, however few chunks there are: read it "
            "in tasks (dask.dataframe.read_parquet), or leave it in its order, "
            "from_pandas(..., sort=False)"
        )
    return (
        "make fewer and larger chunks; select data before other steps; keep what is used again "
        "with persist()"
    )


def _may_be_imports(recording: Recording) -> float:
    """Seconds of preparing the first graph that its size does not explain.

    dask imports modules when it is first called; only stacks distinguish these from graphs.
    """
    computations = recording.computations
    called = call_times(computations)
    first = int(called.argmin())
    tasks = int(recording.tasks.computation.where(computations.computation[first]).sum())
    took = float(prepared_times(computations)[first] - called[first])
    return max(0.0, took - PREPARED_PER_TASK * tasks)
