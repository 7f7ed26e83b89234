"""Rules on idle workers while few tasks run: a long task, the last tasks, or too few tasks."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import hottest_lines, numbered, short_path
from dask_diag.analysis.chunks import chunk_name
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.repeated import repeats
from dask_diag.analysis.findings.rule import (
    ESTIMATE,
    WORTH_GAINING,
    Diagnosis,
    Evidence,
    Gain,
    compute_together,
    evidence,
    rule,
    samples_of,
    seconds_sampled,
    severity_of,
    simulated,
    where_of_intervals,
    where_of_rows,
    where_of_tasks,
)
from dask_diag.analysis.lines import samples_below
from dask_diag.analysis.occupancy import Occupancy, TaskTimes
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

FEWEST_SAMPLES = 10
"""Samples; with fewer, chance decides which line was sampled."""

Line = tuple[str, str, int]
"""The name of a function, its file, and the line."""


def _hottest_line(recording: Recording, row: int) -> Evidence:
    """Sentence on the line in which a task spent most time; empty with too few samples."""
    tasks, samples = recording.tasks, recording.samples
    is_of_function = samples.function.eq(tasks.function[row])
    is_of_key = is_of_function & samples.key.eq(tasks.key[row])
    # Another computation may have a task of the same key.
    is_of_task = is_of_key & (samples.stop > tasks.start[row]) & (samples.start < tasks.stop[row])
    shares, number = _shares_of_lines(recording, is_of_task)
    if number < FEWEST_SAMPLES or not shares:
        return Evidence()
    line, share = next(iter(shares.items()))
    name, file, number_of_line = line
    shares, number = _shares_of_lines(recording, is_of_function & ~is_of_key)
    return evidence(
        ". It spent {in_line:share} of its time in {name}{location}"
        + ", other tasks of {function} {others_in_line:share}" * (number >= FEWEST_SAMPLES),
        in_line=share,
        name=name,
        location=f" ({numbered(short_path(file), number_of_line)})" if file else "",
        function=tasks.function[row],
        others_in_line=shares.get(line, 0.0),
    )


def _chunk(recording: Recording, row: int) -> str:
    """Sentence on the chunk of coffea that a task processed; empty without one."""
    rows = np.flatnonzero(recording.chunks.task == row)
    return f". It processed {chunk_name(recording, int(rows[0]))}" if len(rows) else ""


def _shares_of_lines(recording: Recording, chosen: BoolArray) -> tuple[Mapping[Line, float], float]:
    """Share of each line in the chosen samples, the hottest first, and the number of samples."""
    samples = recording.samples.filter(chosen)
    table = hottest_lines(replace(recording, samples=samples), len(recording.frames))
    total = float(samples.seconds.sum())
    shares = {
        (row["name"], row["file"], row["line"]): row["wall"] / total for row in table.to_dicts()
    }
    return shares, float(samples.count.sum())


WORTH_REPORTING = 0.15
"""Least share of the wall time that is reported."""
OUTLIER = 3.0
"""Least factor by which a straggler exceeds the median of its function."""
FEWEST_OTHERS = 3
"""Other tasks of its function that a straggler is compared with at least."""
BESIDE = 0.5
"""Least share of a straggler's time in which another outlier ran, if both are stragglers."""
LOOKED_AT = 5
"""Outliers of a computation that are looked at, those first for which workers were idle longest."""
MOST_VISITED = 10_000
"""Tasks before an outlier that are looked at; of so many it is not known what it follows."""


_JOINS = re.compile(r"merge|join|shuffle")
"""In the names of functions whose tasks have all rows of some keys."""


@rule("straggler")
def straggler(analysis: Analysis) -> Diagnosis | None:
    """A task took far longer than others of its function while all other workers were idle."""
    groups = list(_stragglers(analysis))
    lost = sum(group.saved for group in groups)
    if not groups or lost < WORTH_REPORTING * analysis.wall:
        return None
    tasks = analysis.tasks
    speedup = {
        tasks.key[row]: group.took / (group.took - group.saved)
        for group in groups
        for row in group.rows
    }
    gain = simulated(analysis, lost / analysis.overlap, speedup=speedup)
    worst = max(groups, key=lambda group: group.saved)
    row, *more = worst.rows
    advice = "check this task's input; split the task, or start it first"
    if more:
        advice = "check the input of these tasks; split the tasks, or start them first"
    if (
        analysis.waits_of_tasks(Activity.SLEEP)[worst.rows].sum()
        > analysis.task_seconds[worst.rows].sum() / 2
    ):
        advice = (
            "find out why tasks slept: if calls were refused and tried again, fewer tasks at once "
            "may be refused less"
        )
    elif _has_rows_of_a_key(analysis, row):
        advice = (
            "look for a key that many rows have, such as a default: leave these rows out, or "
            "divide them by a second key"
        )
    if gain.certainty == ESTIMATE and gain.seconds < WORTH_GAINING * analysis.computing:
        which = "these tasks" if more else "this task"
        advice = f"no fix found: splitting {which} is not predicted to help"
    if analysis.on_cluster:
        # While one computation ends, tasks of the next ones could run.
        advice = compute_together(len(analysis.computations), on_cluster=True) + advice
    return Diagnosis(
        severity_of(gain.seconds / analysis.computing),
        gain,
        evidence(
            "Task {key} took {took:seconds}, the median task of {function} {median:seconds}; other "
            "workers were idle until it finished"
            + "{chunk}"
            + ". {more:other task} ran beside it for at least half of its time" * bool(more)
            + "{line}",
            key=tasks.key[row],
            took=analysis.task_seconds[row],
            more=len(more),
            function=analysis.named([tasks.function[row]]),
            median=worst.median,
            chunk=_chunk(analysis.recording, row),
            line=_hottest_line(analysis.recording, row),
        ),
        advice,
        where_of_rows(analysis, worst.rows),
    )


class _Stragglers(NamedTuple):
    """Outliers of a computation that ran at the same time.

    Attributes
    ----------
    rows : list of int
        Rows of the recording's tasks, the one with most idle time of workers first.
    took : float
        Seconds from the first start to the last end of the outliers.
    saved : float
        Seconds saved if the work done while workers were idle is divided among all workers.
    median : float
        Median seconds of other tasks of the function.
    """

    rows: list[int]
    took: float
    saved: float
    median: float


def _has_rows_of_a_key(analysis: Analysis, row: int) -> bool:
    """Whether a task has all rows of some keys: it joins or shuffles, or follows one that does."""
    functions = analysis.tasks.function
    joins = [name for name in functions.values if _JOINS.search(name)]
    is_join = functions.is_in(joins)
    return bool(is_join[row]) or _follows(_Dependencies.of(analysis.recording), row, is_join)


def _stragglers(analysis: Analysis) -> Iterator[_Stragglers]:
    """Outlier of each computation with most idle time of workers, and outliers at the same time.

    Those are of the same function and ran for half of the time or more. The outlier need not be the
    last task: steps that depend on it, as the last step of a sum, run afterwards. Computations with
    one worker have no outliers.
    """
    # Those that compile or load something are another finding's.
    of_first_calls = [row for call in analysis.first_calls for row in call.rows.tolist()]
    for occupancy in analysis.large_occupancies:
        tasks = occupancy.tasks
        medians = _median_of_others(analysis, tasks)
        is_known = ~np.isnan(tasks.worker_start) & ~np.isnan(tasks.worker_stop)
        took = analysis.task_seconds[tasks.rows]
        # Where clocks count in steps, tasks may take no time at all.
        is_known &= ~np.isin(tasks.rows, of_first_calls)
        slow = np.flatnonzero(is_known & (took > 0) & (took >= OUTLIER * medians))
        if occupancy.workers < 2 or not len(slow):
            continue
        start, stop = tasks.worker_start[slow], tasks.worker_stop[slow]
        rows, functions = tasks.rows[slow], analysis.tasks.function.codes[tasks.rows[slow]]
        idle_workers = occupancy.idle
        if _little_waits_behind(analysis, int(rows[took[slow].argmax()])):
            idle_workers = idle_workers + occupancy.free[Activity.OVERHEAD]
        idle = occupancy.seconds_during(idle_workers, start, stop)
        for one in np.argsort(-idle, kind="stable")[:LOOKED_AT].tolist():
            if _follows_its_own(analysis, int(rows[one])):
                continue
            at_once = np.minimum(stop, stop[one]) - np.maximum(start, start[one])
            is_beside = at_once >= BESIDE * (stop[one] - start[one])
            is_beside &= functions == functions[one]
            first, last = float(start[is_beside].min()), float(stop[is_beside].max())
            saved = float(occupancy.seconds_during(idle_workers, first, last)) / occupancy.workers
            is_beside[one] = False
            yield _Stragglers(
                [int(rows[one]), *rows[is_beside].tolist()],
                last - first,
                saved,
                float(medians[slow[one]]),
            )
            break


BEHIND = 0.1
"""Largest share of a straggler's time that tasks take which wait in its batch."""


def _little_waits_behind(analysis: Analysis, row: int) -> bool:
    """Whether tasks that wait in a task's batch are short: for these no other process is needed."""
    tasks = analysis.tasks
    is_behind = tasks.worker.eq(tasks.worker[row]) & (tasks.submitted <= tasks.start[row])
    is_behind &= (tasks.start >= tasks.stop[row]) & tasks.computation.eq(tasks.computation[row])
    behind = float(analysis.task_seconds[is_behind].sum())
    return 0 < behind <= BEHIND * float(analysis.task_seconds[row])


def _follows_its_own(analysis: Analysis, row: int) -> bool:
    """Whether a task depends on tasks of its own function, as in the steps of a decomposition.

    Such a task is a later step, which could not run earlier, and no straggler.
    """
    function = analysis.tasks.function.codes
    return _follows(_Dependencies.of(analysis.recording), row, function == function[row])


class _Dependencies(NamedTuple):
    """Pairs of a task and a task that it depends on, in the order of the first."""

    task: IntArray
    depends_on: IntArray

    @classmethod
    def of(cls, recording: Recording) -> _Dependencies:
        dependencies = recording.dependencies
        order = np.argsort(dependencies.task, kind="stable")
        return cls(dependencies.task[order], dependencies.depends_on[order])


def _follows(dependencies: _Dependencies, row: int, chosen: BoolArray) -> bool:
    """Whether a task depends on a chosen task, also through other tasks."""
    seen, to_visit = {row}, [row]
    while to_visit and len(seen) < MOST_VISITED:
        start, stop = np.searchsorted(dependencies.task, (visited := to_visit.pop(), visited + 1))
        before = dependencies.depends_on[start:stop]
        if chosen[before].any():
            return True
        new = set(before.tolist()) - seen
        seen |= new
        to_visit += new
    return False


def _median_of_others(analysis: Analysis, tasks: TaskTimes) -> FloatArray:
    """Median seconds of the other tasks of each task's function; infinite with few others.

    Right for tasks above the median only: leaving out any task above it gives the same median.
    Tasks below the median are no stragglers.
    """
    took = analysis.task_seconds[tasks.rows]
    functions = analysis.tasks.function.codes[tasks.rows]
    order = np.lexsort((took, functions))
    medians = np.full(len(took), np.inf)
    for rows in np.split(order, np.flatnonzero(np.diff(functions[order])) + 1):
        if len(rows) > FEWEST_OTHERS:
            medians[rows] = np.median(took[rows[:-1]])
    return medians


FEW = 5
"""Tasks per worker; of more it is not looked up whether one follows another through others."""
TINY = 0.01
"""Share of the longest task up to which a task is not counted."""
MOST_OF_WORK = 0.9
"""Share of a computation's work that is in fewer tasks than workers if chunks are too large."""


@rule(
    "chunks-too-large",
    unless=("serial-chain", "batched-tasks", "serial-computations", "small-computations"),
    needs_start=True,
)
def chunks_too_large(analysis: Analysis) -> Diagnosis | None:
    """Fewer tasks than workers: some workers have nothing to run from the start."""
    recording = analysis.recording
    lost, most_workers, times = 0.0, 0, 1.0
    is_large, joins = np.zeros(len(analysis.task_seconds), bool), _joins(analysis)
    again = repeats(recording).is_repeat * analysis.task_seconds
    for occupancy in analysis.large_occupancies:
        rows = occupancy.tasks.rows
        # Work that need not be done again need not be divided.
        if again[rows].sum() > analysis.task_seconds[rows].sum() / 2:
            continue
        is_final = _puts_together(recording, rows)
        large = rows[_has_the_work(analysis, rows, is_final)]
        at_once = _number_at_once(recording, large, occupancy.workers)
        if not 0 < at_once < occupancy.workers:
            alone, idle = _alone(analysis, occupancy, joins[rows] & ~is_final)
            if len(alone):
                lost += idle
                is_large[alone] = True
                most_workers = max(most_workers, occupancy.workers)
            continue
        took = analysis.task_seconds[rows]
        work, final = float(took[~is_final].sum()), float(took[is_final].sum())
        cpu = float(np.nansum(recording.tasks.thread_cpu[rows[~is_final]]))
        # What puts the result together runs alone, after all others.
        ran = float(np.diff(occupancy.times)[occupancy.busy > 0].sum()) - final
        # More tasks than CPUs compute no faster.
        lost += max(ran - max(work / occupancy.workers, cpu / analysis.cpus_for_tasks), 0.0)
        is_large[large[analysis.task_seconds[large] > TINY * took.max()]] = True
        most_workers = max(most_workers, occupancy.workers)
        times = max(times, occupancy.workers / at_once)
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    where = where_of_tasks(analysis, is_large * analysis.task_seconds)
    longest = int(np.argmax(analysis.task_seconds * is_large))
    is_chunk = _is_of_one_chunk(recording, is_large)
    # Smaller chunks need no more memory at once, as these would together.
    has_memory = times <= analysis.memory_headroom.times
    return Diagnosis(
        severity_of(lost / analysis.wall),
        Gain(lost / analysis.overlap),
        evidence(
            (
                "{tasks:task} of {functions} ran alone in a computation with {workers:count} "
                "workers, which were idle meanwhile"
                if joins[longest]
                else "{tasks:task} of {functions} did at least {work:share} of the work of a "
                "computation with {workers:count} workers; the other workers were idle"
            )
            + ", because all chunks or groups are in one task" * is_chunk
            + ". The longest task took {longest:seconds}",
            tasks=is_large.sum(),
            functions=where.functions,
            work=MOST_OF_WORK,
            workers=most_workers,
            longest=analysis.task_seconds[longest],
        ),
        "do a part of this work in the tasks before, or combine results in several tasks: a tree, "
        "or split_every= and split_out= of collections"
        if joins[longest]
        else compute_together(len(recording.computations) * has_memory)
        + (
            "store the data in several files, or in a format that is read in parts, such as "
            "Parquet: a compressed file is read by one task"
            if _reads_compressed_files(recording, samples_of(analysis, where))
            else "divide this function into several: dask runs all that one calls in one task"
            if is_large.sum() == 1 and not (is_chunk or "from-delayed" in where.functions[0])
            else "make chunks smaller, for several tasks per worker; a dataframe needs more "
            "partitions (npartitions), a text file smaller blocks (blocksize)"
        ),
        where,
    )


COMPRESSED = 0.1
"""Least share of the sampled time of these tasks in which they read a compressed file."""


def _reads_compressed_files(recording: Recording, of_tasks: BoolArray) -> bool:
    """Whether tasks with these samples decompress files in the modules of Python for that."""
    files = ("gzip.py", "bz2.py", "lzma.py")
    reads = np.logical_or.reduce([samples_below(recording, file) for file in files])
    took = seconds_sampled(recording, of_tasks)
    return bool(took and seconds_sampled(recording, of_tasks & reads) >= COMPRESSED * took)


OF_CPU = 0.5
"""Least share of the time on a CPU of a task that runs alone: what waits is no work to divide."""


def _alone(analysis: Analysis, occupancy: Occupancy, joins: BoolArray) -> tuple[IntArray, float]:
    """The only tasks of their functions that join results while others wait, and seconds lost."""
    tasks = occupancy.tasks
    rows, functions = tasks.rows, analysis.tasks.function.codes[tasks.rows]
    took, cpu = analysis.task_seconds[rows], analysis.tasks.thread_cpu[rows]
    is_only = np.bincount(functions)[functions] == 1
    is_long = took >= WORTH_REPORTING * analysis.wall
    chosen = np.flatnonzero(is_only & is_long & joins & (cpu >= OF_CPU * took))
    if not len(chosen):
        return rows[:0], 0.0
    idle = occupancy.seconds_during(
        occupancy.idle, tasks.worker_start[chosen], tasks.worker_stop[chosen]
    )
    is_alone = idle >= (occupancy.workers - 1) * took[chosen] * OF_CPU
    return rows[chosen[is_alone]], float(idle[is_alone].sum()) / occupancy.workers


def _joins(analysis: Analysis) -> BoolArray:
    """Whether each task needs results of at least as many others as there are workers."""
    dependencies = analysis.recording.dependencies
    needed = np.bincount(dependencies.task, minlength=len(analysis.tasks))
    return np.asarray(needed >= max(FEWEST_OTHERS, analysis.workers))


def _is_of_one_chunk(recording: Recording, chosen: BoolArray) -> bool:
    """Whether a single task is chosen, and is of a collection.

    These have tuples as keys, or are fused steps with the names of several functions.
    """
    tasks = recording.tasks.filter(chosen)
    if len(tasks) != 1:
        return False
    return tasks.key.tolist()[0].startswith("(") or "-" in tasks.function.values[0]


def _number_at_once(recording: Recording, rows: IntArray, workers: int) -> int:
    """Number of the tasks of `rows` that might run at once: of the first level of the graph.

    If few, it is that of the second one, if larger: they may be an input that all others need.
    """
    dependencies, ordered = recording.dependencies, _Dependencies.of(recording)

    def level(chosen: BoolArray) -> BoolArray:
        """The chosen tasks that wait for none of these; of many only directly."""
        first = chosen.copy()
        first[dependencies.task[chosen[dependencies.depends_on]]] = False
        found = np.flatnonzero(first)
        if workers <= len(found) <= FEW * workers:
            first[[row for row in found.tolist() if _follows(ordered, row, chosen)]] = False
        return first

    chosen = np.zeros(len(recording.tasks), bool)
    chosen[rows] = True
    first = level(chosen)
    number = int(first.sum())
    return max(number, int(level(chosen & ~first).sum())) if 0 < number < workers else number


def _has_the_work(analysis: Analysis, rows: IntArray, is_final: BoolArray) -> BoolArray:
    """Mask of the tasks of the functions whose longest tasks have most of a computation's work."""
    took = analysis.task_seconds[rows] * ~is_final
    order = np.argsort(-took, kind="stable")
    before = np.cumsum(took[order]) - took[order]
    functions = analysis.tasks.function.codes[rows]
    return np.isin(functions, functions[order[before < MOST_OF_WORK * took.sum()]])


def _puts_together(recording: Recording, rows: IntArray) -> BoolArray:
    """Mask of tasks that dask adds to join all chunks: smaller chunks make no such task shorter."""
    functions: Categorical = recording.tasks.function[rows]
    is_last = np.ones(len(recording.tasks), bool)
    is_last[recording.dependencies.depends_on] = False
    is_joined = functions.eq("repartitiontofewer") & is_last[rows]
    finalized = [name for name in functions.values if name.startswith("finalize")]
    return functions.is_in(finalized) | is_joined


NOT_READY = 0.5
"""Largest share of an uneven end whose tasks were not ready when it started."""


@rule(
    "imbalance",
    needs_start=True,
    unless=(
        *("straggler", "serial-chain", "batched-tasks", "chunks-too-large"),
        *("unbalanced-workers", "serial-computations", "large-results", "small-computations"),
    ),
)
def imbalance(analysis: Analysis) -> Diagnosis | None:
    """Workers stopped early, since the remaining tasks could not be divided evenly."""
    lost, most, busy = 0.0, 0.0, (0.0, 0.0)
    ends = []
    computations = analysis.computations
    in_batches = set(computations.computation[computations.scheduler.eq("processes")])
    waited = analysis.waits_of_tasks(Activity.CPU_WAIT) * analysis.has_waits
    for occupancy in analysis.large_occupancies:
        idle, *end = _uneven_end(occupancy, occupancy.computation in in_batches, waited)
        idle /= occupancy.workers
        if idle:
            ends.append(end)
        if idle > most:
            most, busy = idle, _least_and_most_busy(analysis, occupancy)
        lost += idle
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    return Diagnosis(
        severity_of(lost / analysis.wall),
        Gain(lost / analysis.overlap),
        evidence(
            "One worker ran tasks for {longest:seconds}, another for {shortest:seconds} and was "
            "then idle",
            longest=busy[1],
            shortest=busy[0],
        ),
        "make more and smaller tasks, several per worker",
        where_of_intervals(*np.reshape(ends, (-1, 2)).T),
    )


def _uneven_end(
    occupancy: Occupancy, in_batches: bool, waited: FloatArray
) -> tuple[float, float, float]:
    """Free worker-seconds after the last moment without a free worker; start and stop.

    Only seconds with a busy worker count. A process may be free while tasks wait in a batch of
    another process. Under threads and on clusters a worker is not free while the next task is on
    the way. The end counts only if the tasks in the end were ready before: otherwise the chain of
    tasks keeps workers idle. While tasks `waited` for CPUs, there was none for a free worker.
    """
    tasks = occupancy.tasks
    if np.isnan(tasks.worker_stop).all():
        return 0.0, 0.0, 0.0
    free = occupancy.workers - occupancy.busy if in_batches else occupancy.idle
    full = np.flatnonzero(free == 0)
    start = occupancy.times[full[-1] + 1] if len(full) else occupancy.times[0]
    is_in_end = tasks.worker_stop > start
    ran = np.where(is_in_end, tasks.worker_stop - np.maximum(tasks.worker_start, start), 0.0)
    if ran[is_in_end & (tasks.ready > start)].sum() > NOT_READY * ran.sum():
        return 0.0, 0.0, 0.0
    # Where no task runs at all the scheduler is slow, and not the division of the work.
    beside_busy = np.where(occupancy.busy > 0, free, 0)
    stop = np.nanmax(tasks.worker_stop)
    idle = float(occupancy.seconds_during(beside_busy, start, stop))
    took = tasks.worker_stop - tasks.worker_start
    in_end = np.divide(ran, took, out=np.zeros(len(ran)), where=is_in_end & (took > 0))
    idle -= float((waited[tasks.rows] * in_end).sum())
    return max(idle, 0.0), float(start), float(stop)


def _least_and_most_busy(analysis: Analysis, occupancy: Occupancy) -> tuple[float, float]:
    """Busy seconds of the least and of the most busy worker."""
    tasks = occupancy.tasks
    workers = analysis.tasks.worker[tasks.rows]
    busy = np.bincount(workers.codes, np.nan_to_num(tasks.worker_stop - tasks.worker_start))
    used = np.sort(busy[busy > 0])[::-1][: occupancy.workers]
    # A worker that ran no task is in no row.
    least = used.min(initial=np.inf) if len(used) == occupancy.workers else 0.0
    return float(least), float(used.max(initial=0.0))
