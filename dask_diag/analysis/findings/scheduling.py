"""Rules on computations as a whole, on tasks that are too small, and on the scheduler."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from math import ceil, floor, isnan, log10, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.built_by import SourceLine
from dask_diag.analysis.critical_path import CriticalPath
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.moving import disk_shuffle, overhead_in_transit
from dask_diag.analysis.findings.rule import (
    ESTIMATE,
    MOST_NAMED,
    NO_FIX,
    NO_GAIN,
    WORTH_GAINING,
    Diagnosis,
    Evidence,
    Gain,
    compute_together,
    evidence,
    lines_sampled,
    rule,
    seconds_sampled,
    severity_of,
    where_of_intervals,
    where_of_rows,
    where_of_tasks,
)
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.analysis.intervals import Intervals, StepFunction
from dask_diag.analysis.lines import graphs_made_by_task, samples_in_callbacks
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.phases import first_starts
from dask_diag.analysis.task_times import (
    own_dependencies,
)
from dask_diag.columns import BoolArray, FloatArray, IntArray, ratio
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.model.tables import Tasks

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
CHAIN_OF_WALL = 0.6
"""Least share of a computation's wall time that a serial chain takes."""
CHAIN_OF_EVEN_SHARE = 1.3
"""Factor by which a chain exceeds the work of one worker, were all work divided evenly."""
ONE_TASK_OF_CHAIN = 0.5
"""Largest share of the critical path that a single task has, if it is the chain that is slow."""


@rule("serial-chain", needs=("dependencies",))
def serial_chain(analysis: Analysis) -> Diagnosis | None:
    """Workers were idle since each task depended on the one before."""
    path = analysis.critical_path
    lost = chain = 0.0
    for computation in path.computations.to_dicts():
        workers, length = max(1, computation["workers"]), computation["length"]
        # All work, divided evenly; only what the chain takes beyond that is lost to it.
        ideal = max(computation["work"] / workers, 0.0)
        is_bound_by_chain = length >= CHAIN_OF_WALL * computation["wall"]
        if workers > 1 and is_bound_by_chain and length > CHAIN_OF_EVEN_SHARE * ideal:
            lost += length - ideal
            chain += length
    # However it is divided, the work needs its CPU seconds.
    most = analysis.computing - analysis.cpu_in_tasks / analysis.cpus_for_tasks
    lost = min(lost / analysis.overlap, most)
    share = lost / analysis.computing
    if share < WORTH_REPORTING or _is_mostly_one_task(analysis, path):
        return None
    number = len(analysis.computations)
    # Steps that need only the one before, as in time, combine nothing.
    inputs = np.bincount(own_dependencies(analysis.recording).task, minlength=len(analysis.tasks))
    return Diagnosis(
        severity_of(share),
        Gain(lost),
        evidence(
            "A chain of {tasks:count} dependent tasks"
            + " in {computations:count} computations" * (number > 1)
            + " took {chain:seconds} of {wall:seconds}{added_up}; more workers cannot help. "
            "Mostly in {functions}",
            tasks=len(path.tasks),
            computations=number,
            chain=chain,
            wall=analysis.wall,
            added_up=analysis.added_up,
            functions=analysis.named(path.functions["function"].tolist()[:MOST_NAMED]),
        ),
        compute_together(number)
        + "if the steps need not come one after another, combine results in a tree; or "
        * bool(np.median(inputs[path.tasks["task"]]) > 1)
        + "make its tasks faster",
        where_of_rows(analysis, path.tasks["task"]),
    )


def _is_mostly_one_task(analysis: Analysis, path: CriticalPath) -> bool:
    """Whether a single long task, and not a chain, is most of each critical path."""
    computations = analysis.tasks.computation
    longest = np.zeros(len(computations.values))
    np.maximum.at(longest, computations.codes[path.tasks["task"]], path.tasks["seconds"])
    return bool(longest.sum() > ONE_TASK_OF_CHAIN * path.length)


COMPETING = 0.1
"""Least share of the time, in which computations competed, that is reported."""
BUSY_CPUS = 0.5
"""Least share of the CPUs that their tasks used meanwhile: who sleeps does not compete."""


@rule("overlapping-computations")
def overlapping_computations(analysis: Analysis) -> Diagnosis | None:
    """Computations ran at the same time and competed for the CPUs."""
    recording, computations = analysis.recording, analysis.computations
    # Those of a cluster share its threads: what another took of them is in `other`.
    computations = computations.filter(~computations.scheduler.eq("distributed"))
    if len(computations) < 2:
        return None
    ran = Intervals(computations.start, computations.stop)
    edges, running = StepFunction.of(ran)
    workers = StepFunction.of(ran, np.maximum(computations.workers, 1)).amounts
    is_competing = (running[:-1] > 1) & (workers[:-1] > analysis.cpus)
    lasted, span = float(np.diff(edges)[is_competing].sum()), float(edges[-1] - edges[0])
    if lasted < COMPETING * span:
        return None
    tasks = recording.tasks
    tasks = tasks.filter(tasks.computation.is_in(computations.computation.tolist()))
    if _cpu_during(tasks, edges, is_competing) < BUSY_CPUS * analysis.cpus * lasted:
        return None
    return Diagnosis(
        severity_of(lasted / span / 2),
        NO_GAIN,
        evidence(
            "Up to {computations:count} computations ran at once for {lasted:seconds}, with "
            "{workers:count} workers on {cpus:CPU}. They competed for the same CPUs, so each may "
            "have run slower than it would alone",
            computations=running.max(),
            lasted=lasted,
            workers=workers.max(),
            cpus=analysis.cpus,
        ),
        "compute them together with dask.compute(a, b), one after another, or with fewer workers "
        "each",
        where_of_intervals(edges[:-1][is_competing], edges[1:][is_competing]),
    )


def _cpu_during(tasks: Tasks, edges: FloatArray, chosen: BoolArray) -> float:
    """CPU seconds of tasks in the chosen intervals between edges, if CPU was used evenly."""
    meanwhile = StepFunction(edges, np.append(chosen, False))
    within = meanwhile.integral(tasks.stop) - meanwhile.integral(tasks.start)
    share = ratio(within, tasks.stop - tasks.start)
    return float(np.nansum(share * tasks.thread_cpu))


@rule("batched-tasks")
def batched_tasks(analysis: Analysis) -> Diagnosis | None:
    """Tasks waited in the batch of one process while other processes were idle."""
    gained = gain_of_single_tasks(analysis)
    if gained <= 0:
        return None
    batches = _all_batches(analysis)
    worst = max(batches, key=lambda batch: batch.waited)
    took = analysis.task_seconds[worst.rows]
    rows = np.concatenate([batch.rows for batch in batches])
    where = where_of_rows(analysis, rows)
    return Diagnosis(
        severity_of(gained / analysis.computing),
        Gain(gained, ESTIMATE),
        evidence(
            "{tasks:task} of {functions}, {mean:seconds} each, were sent to one process in one "
            "batch, while {idle:count} of {workers:count} processes were idle"
            + ". Tasks of {batches:count} batches waited so"
            * (len(batches) > 1),
            tasks=len(worst.rows),
            functions=where.functions,
            mean=took.mean(),
            idle=max(round(worst.idle), 1),
            workers=round(analysis.workers),
            batches=len(batches),
        ),
        "set chunksize=1, as an argument of compute or with dask.config.set: dask sends up to 6 "
        "tasks to a process at once",
        where,
    )


def gain_of_single_tasks(analysis: Analysis) -> float:
    """Seconds that ``chunksize=1`` is predicted to save; 0 if they are few, or no task waited."""
    if analysis.schedulers != {"processes"} or not _all_batches(analysis):
        return 0.0
    gained = analysis.seconds_saved(chunksize=1)
    # Tasks that run at the same time take a little longer, which is not simulated.
    return gained if gained >= WORTH_REPORTING * analysis.computing else 0.0


class _Batch(NamedTuple):
    """Tasks that a process got together, and how many processes were idle until the last began.

    `waited` are the seconds of these tasks in which a process was idle.
    """

    rows: IntArray
    idle: float
    waited: float


def _all_batches(analysis: Analysis) -> list[_Batch]:
    return [batch for one in analysis.large_occupancies for batch in _batches(analysis, one)]


def _batches(analysis: Analysis, occupancy: Occupancy) -> Iterator[_Batch]:
    """Batches of a computation in which a task waited for others while a process was idle."""
    rows, tasks = occupancy.tasks.rows, analysis.tasks
    start, stop, submitted, collected = (
        times[rows] for times in (tasks.start, tasks.stop, tasks.submitted, tasks.collected)
    )
    worker = tasks.worker.codes[rows]
    order = np.lexsort((start, worker))
    before, after = order[:-1], order[1:]
    # A batch is submitted before its first task starts; its results come back together.
    is_next = (worker[before] == worker[after]) & (submitted[after] <= start[before])
    is_next &= collected[before] >= stop[after]
    begins = np.flatnonzero(np.append(True, ~is_next)[: len(order)])
    sizes = np.diff(np.append(begins, len(order)))
    first, last = start[order[begins]], start[order[begins + sizes - 1]]
    idle = occupancy.seconds_during(occupancy.workers - occupancy.busy, first, last)
    waited = np.minimum(np.add.reduceat(start[order] - np.repeat(first, sizes), begins), idle)
    for n in np.flatnonzero((sizes > 1) & (waited > 0)).tolist():
        batch = rows[order[begins[n] : begins[n] + sizes[n]]]
        yield _Batch(batch, float(idle[n] / (last[n] - first[n])), float(waited[n]))


GOAL = 0.05
"""The share of overhead that the advised size of chunks results in."""
OF_LONGER_TASKS = 200e-6
"""Least seconds of overhead of a longer task: threads fall asleep meanwhile, and must be woken."""
SHORT = 0.02
"""Largest mean seconds of tasks that are too small."""
FEWEST_SMALL_TASKS = 100
"""Least number of tasks that are too small."""
FACTOR_KNOWN = 3
"""Least factor of chunks of which a small predicted gain counts; of less, twice as much must."""
CHUNKS_A_WORKER = 3
"""Chunks that the advised size leaves for each worker, at least."""


# The scheduler of a cluster waits for workers that write to disk, or pause; any scheduler waits for
# a collection of garbage.
@rule(
    "tasks-too-small",
    unless=("small-computations", "spilling", "memory-pressure", "garbage-collection"),
)
def tasks_too_small(analysis: Analysis) -> Diagnosis | None:
    """Overhead was large compared with the work of tasks."""
    started = int((analysis.task_seconds > 0).sum())
    # The scheduler was in the profilers' hooks for a part of it, or waited for a CPU.
    own = 1 - analysis.share_of_task_hooks
    overhead = analysis.spent(Activity.OVERHEAD) * own * _share_with_cpu(analysis)
    # What waits for large data that processes are sent waits for these.
    overhead = max(overhead - overhead_in_transit(analysis), 0.0)
    # All workers wait for callbacks, which are another finding's.
    overhead = max(overhead - _seconds_in_callbacks(analysis) * analysis.workers, 0.0)
    if started < FEWEST_SMALL_TASKS or analysis.in_tasks / started > SHORT:
        return None
    share = overhead / (overhead + analysis.in_tasks)
    if analysis.on_cluster and disk_shuffle(analysis) is not None:
        # Tasks wait while workers exchange what is shuffled.
        return None
    # If threads rather waited for data, larger tasks would move as much of them.
    if share < WORTH_REPORTING or overhead < analysis.spent(Activity.TRANSFER):
        return None
    mean, cost = analysis.in_tasks / started, overhead / started
    divides = dividing_step(analysis)
    saved, advice = _larger_chunks(analysis, mean, cost)
    if divides is not None:
        # Their number follows from how the step divides its input, not from the input's chunks.
        # One part for each result may leave too few for all workers.
        saved = float(np.fmax(saved, analysis.seconds_saved(merge_tasks=divides.parts)))
        advice = divides.advice
    has_started_tasks = bool((~np.isnan(analysis.tasks.seceded)).any())
    if advice.startswith(NO_FIX) and not has_started_tasks:
        # What is small and few in a row is not worth a finding: nothing can be changed.
        advice = _longer_steps(analysis)
        if not advice:
            return None
    gain = Gain(saved * own, ESTIMATE)
    if isnan(saved):
        saved = analysis.seconds_saved(remove={Activity.OVERHEAD}) * own
        gain = Gain(analysis.wall_of_workers(overhead) if isnan(saved) else saved)
    if has_started_tasks:
        directly = "call these functions directly in the tasks that start them as tasks"
        advice = directly if advice.startswith(NO_FIX) else f"{directly}; or {advice}"
    where = where_of_tasks(analysis, np.ones(len(analysis.task_seconds)))
    return Diagnosis(
        # Fewer tasks save time in which none runs, too.
        severity_of(max(overhead / analysis.available, gain.seconds / analysis.computing)),
        gain,
        evidence(
            "{tasks:count} tasks average {work:seconds} of work and {overhead:seconds} of "
            "scheduling overhead ({share:share}). Mostly in {functions}{divides}",
            divides="" if divides is None else divides.evidence,
            tasks=started,
            work=mean,
            overhead=cost,
            share=share,
            functions=where.functions,
        ),
        advice,
        where,
    )


IN_A_ROW = 10
"""Least number of tasks of a function that run one after the other, if they are to be joined."""


def _longer_steps(analysis: Analysis) -> str:
    """Advice where larger chunks do not help: to join tasks that run in a row; empty if few do."""
    parallel, path = analysis.chunks[0], analysis.critical_path.tasks
    *_, pair = distinct_pairs(path["computation"].codes, path["function"].codes)
    row = int(np.bincount(pair).max(initial=0))
    if row < IN_A_ROW:
        return ""
    return (
        f"do several successive steps in each task: at most {counted(parallel, 'task')} of a "
        f"function can run at once, and {count(row)} run one after the other"
    )


PARTS = 6
"""Least number of parts into which a step divides each result, on average; half as many tasks use
them. Parts that are joined again, as those of ``map_overlap``, become fewer with larger chunks."""
INPUTS = 1.5
"""Largest number of results that a task of such a step needs, on average."""
OF_TABLES = frozenset({"hashjoinp2p", "blockwisemerge", "p2pshuffle", "diskshuffle", "assign"})
"""Functions whose results are tables: what takes several columns of one does not divide it."""
MANY_PARTS = 0.15
"""Least share of all tasks that are of such a step."""


class _DividingStep(NamedTuple):
    """What is said of a step that divides results into small parts, so many of each."""

    parts: int
    evidence: Evidence
    advice: str


def dividing_step(analysis: Analysis) -> _DividingStep | None:
    """The step with most tasks that divides results, as a rechunk after ``groupby`` of xarray."""
    tasks, dependencies = analysis.tasks, analysis.recording.dependencies
    functions = tasks.function.codes
    of_function = functions[dependencies.task]
    number = len(tasks.function.values)
    # A step of the same function, such as a sum in stages, is not divided.
    is_other = of_function != functions[dependencies.depends_on]
    is_other &= ~tasks.function.is_in(OF_TABLES)[dependencies.depends_on]
    count_of = np.bincount(functions, minlength=number)
    needs = np.bincount(of_function, minlength=number)
    pairs = np.unique(np.stack([of_function, dependencies.depends_on])[:, is_other], axis=1)
    inputs = np.bincount(pairs[0], minlength=number)
    divides = (inputs > 0) & (count_of >= PARTS * inputs) & (needs <= INPUTS * count_of)
    divides &= count_of >= MANY_PARTS * len(tasks)
    of_needed = functions[dependencies.depends_on[is_other]]
    users = np.unique(np.stack([of_needed, dependencies.task[is_other]]), axis=1)
    divides &= np.bincount(users[0], minlength=number) >= PARTS / 2 * inputs
    if not divides.any():
        return None
    step = int(np.argmax(count_of * divides))
    name = tasks.function.values[step]
    return _DividingStep(
        round(count_of[step] / inputs[step]),
        evidence(
            ". {step} divides {results:result} into {parts:part}",
            step=name,
            results=inputs[step],
            parts=count_of[step],
        ),
        f"make fewer and larger parts in {name}: larger chunks of its input alone do not help. "
        "Choose chunks before and after the step that are more alike, or a step that does not "
        "divide (for groupby of xarray: flox, or sorted groups)",
    )


def _share_with_cpu(analysis: Analysis) -> float:
    """Share of the time in which tasks, and so the scheduler, had a CPU when needed.

    In the rest of the time other programs had the CPU.
    """
    if not analysis.has_waits or not analysis.cpu_in_tasks:
        return 1.0
    return analysis.cpu_in_tasks / (analysis.cpu_in_tasks + cpu_waits(analysis).others)


def _larger_chunks(analysis: Analysis, mean: float, cost: float) -> tuple[float, str]:
    """Seconds that larger chunks are predicted to save, NaN without a gain, and the advice."""
    parallel, workers = analysis.chunks
    # The factor f with cost / (cost + f * mean) = GOAL, as overhead is by task and not by size.
    wanted = _rounded(max(cost, OF_LONGER_TASKS) * (1 - GOAL) / GOAL / mean, ceil)
    most = _rounded(parallel / (CHUNKS_A_WORKER * workers), floor)
    if most < 2:
        return nan, (
            f"no fix found: at most {counted(parallel, 'task')} of a function can run at once in "
            "the computation with most task time; larger chunks would leave too few for "
            f"{counted(workers, 'worker')}"
        )
    factor = min(wanted, most)
    saved = analysis.seconds_saved(merge_tasks=factor)
    # A prediction of twice as large chunks is not better than that.
    least = WORTH_GAINING if factor >= FACTOR_KNOWN else 2 * WORTH_GAINING
    if saved < least * analysis.computing:
        return nan, (
            f"no fix found: chunks {count(factor)} times as large are not predicted to help"
        )
    # Graphs that are made outside of computations, task by task, are not simulated.
    recording = analysis.recording
    saved += seconds_sampled(recording, graphs_made_by_task(recording)) * (1 - 1 / factor)
    has_chunks = _has_chunks(analysis)
    reason = (
        f", so that tasks of {seconds(mean * factor)} keep overhead below {percent(GOAL)}"
        if wanted <= most
        else f", which leaves {count(parallel // factor)} at once for {counted(workers, 'worker')}"
    )
    if not has_chunks:
        return saved, f"have each task process a list of about {count(factor)} inputs{reason}"
    reads_text = bool({"read-csv", "file_to_blocks"} & {*analysis.tasks.function.values})
    return saved, (
        f"make chunks about {count(factor)} times as large{reason}{_line_with_chunks(analysis)}"
        + "; blocksize= does not join files: join small ones" * reads_text
    )


def _has_chunks(analysis: Analysis) -> bool:
    """Whether tasks are those of collections: their keys are tuples, those of futures are not."""
    keys = analysis.tasks.key
    some: list[str] = [keys[row] for row in np.linspace(0, len(keys) - 1, 100, dtype=int).tolist()]
    return 2 * sum(key.startswith("(") or not key for key in some) >= len(some)


_ARGUMENT = re.compile(r"\w*(?:chunk|partition|block)\w* ?=[^=]")
_SETS_CHUNKS = re.compile(r"chunk|partition|blocksize|from_(?:array|sequence|map)\b")


def _line_with_chunks(analysis: Analysis) -> str:
    """Clause on the line that says how large chunks are: the one with most tasks."""
    for row in analysis.lines.filter(np.argsort(-analysis.lines["tasks"])).to_dicts():
        place = SourceLine.of_row(row)
        found = _ARGUMENT.search(place.text) or _SETS_CHUNKS.search(place.text)
        if place.line and found:
            text = _argument(place.text[found.start() :])
            cut = text if len(text) <= 32 else f"{text:.31}…"
            return f"; {place.name} sets them: {cut}"
    return ""


def _argument(text: str) -> str:
    """The beginning of a line up to the end of its first argument or call."""
    depth = 0
    for position, character in enumerate(text):
        depth += (character in "([{") - (character in ")]}")
        if depth < 0 or (character == "," and not depth):
            return text[:position]
    return text


def _rounded(times: float, direction: Callable[[float], int]) -> int:
    """A factor to two digits."""
    size = 10.0 ** max(0, floor(log10(max(times, 1.0))) - 1)
    return int(direction(times / size) * size)


WAITED = 0.75
"""Least share of the workers' time, since the first task started, that they waited for the
scheduler."""
FEWEST_TASKS = 50
"""Least number of tasks."""
BUSY = 0.75
"""On a cluster: least share of the time in which the scheduler's thread used a CPU."""
WAITED_ON_CLUSTER = 0.3
"""On a cluster: least share of its threads' time that these were free while tasks were on their
way, or in the scheduler's queue."""


def _seconds_in_callbacks(analysis: Analysis) -> float:
    """Seconds in which a local scheduler was in callbacks of the program."""
    chosen = samples_in_callbacks(analysis.recording)
    return min(float(analysis.recording.samples.seconds[chosen].sum()), analysis.computing)


def _callbacks(analysis: Analysis) -> Diagnosis | None:
    """Callbacks of the program took long on the thread that hands out tasks."""
    lost, tasks = _seconds_in_callbacks(analysis), len(analysis.tasks)
    if lost < WORTH_REPORTING * analysis.computing or not tasks:
        return None
    samples, chosen = analysis.recording.samples, samples_in_callbacks(analysis.recording)
    line = lines_sampled(analysis.recording, chosen)[0]
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "The thread that hands out tasks spent {lost:seconds} of {computing:seconds} in "
            "callbacks of the program, {each:seconds} for each of {tasks:task}{line}. Workers wait "
            "meanwhile",
            lost=lost,
            computing=analysis.computing,
            each=lost / tasks,
            tasks=tasks,
            line=f", most of it at {line}",
        ),
        "do less for each task in the callback: only count, and write or draw what has changed at "
        "most once a second",
        where_of_intervals(samples.start[chosen], samples.stop[chosen]),
    )


@rule("scheduler-bound", unless=("small-computations",))
def scheduler_bound(analysis: Analysis) -> Diagnosis | None:
    """Workers mostly waited for the thread that hands out tasks."""
    if analysis.on_cluster:
        return _scheduler_of_a_cluster(analysis)
    callbacks = _callbacks(analysis)
    if callbacks is not None:
        return callbacks
    tasks = len(analysis.tasks)
    if tasks < FEWEST_TASKS or not analysis.schedulers & {"threads", "processes"}:
        return None
    if tasks_too_small(analysis) is not None:
        # The same seconds, and the same remedy.
        return None
    # The scheduler was in the profilers' hooks for a part of it.
    without_hooks = 1 - analysis.share_of_task_hooks
    waited = analysis.spent(Activity.OVERHEAD) * without_hooks / analysis.workers
    first, stop = first_starts(analysis.recording), analysis.computations.stop
    lasted = float((stop - first).sum())
    if lasted <= 0 or waited < WAITED * lasted:
        return None
    saved = analysis.seconds_saved(remove={Activity.OVERHEAD}) * without_hooks
    # More tasks than can be simulated cost the time that workers waited.
    lost = waited / analysis.overlap if isnan(saved) else saved
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{workers:mean} workers waited for the scheduler for {waited:share} of "
            "{lasted:seconds}{added_up}. Its one thread sent {tasks:count} tasks to workers, one "
            "every {each:seconds}",
            workers=analysis.workers,
            waited=min(waited / lasted, 1.0),
            lasted=lasted,
            added_up=analysis.added_up,
            tasks=tasks,
            each=lasted / tasks,
        ),
        "make fewer and larger tasks (larger chunks, fused steps); more workers cannot help",
        where_of_intervals(first, stop),
    )


def _scheduler_of_a_cluster(analysis: Analysis) -> Diagnosis | None:
    """Examine a scheduler in a thread or process of its own, whose CPU time was measured."""
    computations = analysis.computations
    computations = computations.filter(computations.scheduler.eq("distributed"))
    names = set(computations.computation.tolist())
    occupancies = [each for each in analysis.occupancies if each.computation in names]
    tasks = sum(len(each.tasks.rows) for each in occupancies)
    wall = sum(each.wall for each in occupancies)
    cpu = float(np.nansum(computations.cpu_scheduler))
    capacity = sum(each.worker_seconds for each in occupancies)
    overhead = sum(each.seconds(each.overhead) for each in occupancies)
    if tasks < FEWEST_TASKS or cpu < BUSY * wall or overhead < WAITED_ON_CLUSTER * capacity:
        return None
    threads = capacity / wall
    lost = overhead / threads
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    return Diagnosis(
        severity_of(lost / analysis.wall),
        Gain(lost),
        evidence(
            "The scheduler's thread used a CPU for {busy:share} of {wall:seconds}{added_up}: "
            "{each:seconds} for each of {tasks:count} tasks. The {threads:mean} worker threads "
            "were idle for {free:share} of the time while tasks were in flight",
            busy=min(cpu / wall, 1.0),
            wall=wall,
            added_up=analysis.added_up,
            each=cpu / tasks,
            tasks=tasks,
            threads=threads,
            free=overhead / capacity,
        ),
        "submit fewer and larger tasks (larger chunks; several items in each call of "
        "client.submit); more workers cannot help",
        where_of_intervals(computations.start, computations.stop),
    )
