"""Findings on workers that are idle while few tasks run: one for long, or the last ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import hottest_lines, short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.cluster import unbalanced_workers
from dask_diag.analysis.findings.number_of_tasks import chunks_too_large
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    WORTH_GAINING,
    Finding,
    during,
    severity_of_share,
    where_of_tasks,
)
from dask_diag.analysis.findings.scheduling import serial_chain
from dask_diag.analysis.occupancy import Occupancy, TaskTimes
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.formatting import count, percent, seconds
from dask_diag.model.recording import Recording

FEWEST_SAMPLES = 10
"""With fewer, it is chance which line was sampled."""

Line = tuple[str, str, int]
"""The name of a function, its file, and the line."""


def hottest_line_of(recording: Recording, row: int) -> str:
    """What to add to the evidence of a finding on a task; nothing if it has too few samples.

    Parameters
    ----------
    recording : Recording
    row : int
        Of `Recording.tasks`; the task has stopped.
    """
    tasks, samples = recording.tasks, recording.samples
    function = tasks.function[row]
    of_function = samples.function.where(function)
    of_key = of_function & samples.key.where(tasks.key[row])
    # Another computation may have a task of the same key.
    of_task = of_key & (samples.stop > tasks.start[row]) & (samples.start < tasks.stop[row])
    lines, seconds, count = _lines_of(recording, of_task)
    if count < FEWEST_SAMPLES or not lines:
        return ""
    hottest, hottest_seconds = next(iter(lines.items()))
    name, file, line = hottest
    location = f" ({short_path(file)}:{line})" if file else ""
    text = f"; it spent {percent(hottest_seconds / seconds)} of its time in {name}{location}"
    lines, seconds, count = _lines_of(recording, of_function & ~of_key)
    if count < FEWEST_SAMPLES:
        return text
    others = percent(lines.get(hottest, 0.0) / seconds)
    return f"{text}, other tasks of {function} {others}"


def _lines_of(recording: Recording, mask: BoolArray) -> tuple[Mapping[Line, float], float, float]:
    """The seconds of each line in some samples, the hottest first; their sum; how many samples."""
    samples = recording.samples.rows(mask)
    table = hottest_lines(replace(recording, samples=samples), len(recording.frames))
    lines = {(row["name"], row["file"], row["line"]): row["wall"] for row in table.to_dicts()}
    return lines, float(samples.seconds.sum()), float(samples.count.sum())


WORTH_REPORTING = 0.15
"""Least share of the wall time that is reported."""
OUTLIER = 3.0
"""How many times the median of its function a straggler takes at least."""
FEWEST_OTHERS = 3
"""Other tasks of its function that a straggler is compared with at least."""
BESIDE = 0.5
"""Least share of a straggler's time in which another outlier ran, if both are stragglers."""
LOOKED_AT = 5
"""Outliers of a computation that are looked at, those first for which workers were idle longest."""
MOST_VISITED = 10_000
"""Tasks before an outlier that are looked at; of so many it is not known what it follows."""
NOT_READY = 0.5
"""Largest share of an uneven end whose tasks were not ready when it started."""


def straggler(analysis: Analysis) -> Finding | None:
    """Tasks far longer than others of their function, for which all other workers wait."""
    worst: _Stragglers | None = None
    lost = 0.0
    factors: dict[str, float] = {}
    for one in _stragglers(analysis):
        lost += one.saved
        for row in one.rows:
            factors[analysis.recording.tasks.key[row]] = one.took / (one.took - one.saved)
        if worst is None or one.saved > worst.saved:
            worst = one
    if worst is None or lost < WORTH_REPORTING * analysis.wall:
        return None
    row, *more = worst.rows
    tasks = analysis.recording.tasks
    gained = analysis.seconds_saved(speedup=factors)
    shown = lost / analysis.overlap if isnan(gained) else max(gained, 0.0)
    advice = "check that task's input; split it, or start it first"
    if more:
        advice = "check the input of these tasks; split them, or start them first"
    if gained < WORTH_GAINING * analysis.computing:
        which = "these tasks" if more else "that task"
        advice = f"no remedy is known: splitting {which} is not predicted to help"
    beside = f", {count(len(more))} more beside it at least half as long" if more else ""
    return Finding(
        "straggler",
        severity_of_share(shown / analysis.computing),
        shown,
        f"Task {tasks.key[row]} took {seconds(analysis.task_seconds[row])}{beside}, other tasks of "
        f"{tasks.function[row]} {seconds(worst.usual)} (median); other workers were idle until it "
        f"stopped{hottest_line_of(analysis.recording, row)}",
        advice,
        kind=AT_MOST if isnan(gained) else ABOUT,
        where=where_of_tasks(analysis.recording, np.isin(np.arange(len(tasks)), worst.rows)),
    )


class _Stragglers(NamedTuple):
    """Outliers of one computation that ran at the same time.

    Attributes
    ----------
    rows : list of int
        Of the recording's tasks; first the one for which workers were idle longest.
    took : float
        Seconds from the start of the first of them to the end of the last one.
    saved : float
        Of these, what is saved if what they ran while workers were idle is divided among all.
    usual : float
        Median seconds of the other tasks of their function.
    """

    rows: list[int]
    took: float
    saved: float
    usual: float


def _stragglers(analysis: Analysis) -> Iterator[_Stragglers]:
    """Of each computation the outlier for which workers were idle longest, and those beside it.

    It need not be the last task: steps that depend on it, as the last one of a sum does, run after
    it. Computations with one worker have none.
    """
    for occupancy in analysis.occupancies:
        tasks = occupancy.tasks
        usual = _median_of_others(analysis, tasks)
        is_known = ~np.isnan(tasks.worker_start) & ~np.isnan(tasks.worker_stop)
        took = analysis.task_seconds[tasks.rows]
        # Where clocks count in steps, tasks may take no time at all.
        slow = np.flatnonzero(is_known & (took > 0) & (took >= OUTLIER * usual))
        if occupancy.workers < 2 or not len(slow):
            continue
        idle = _idle_during(occupancy, tasks.worker_start[slow], tasks.worker_stop[slow])
        for index in slow[np.argsort(-idle, kind="stable")[:LOOKED_AT]].tolist():
            if not _follows_its_own(analysis, int(tasks.rows[index])):
                yield _with_those_beside(analysis, occupancy, index, slow, float(usual[index]))
                break


def _with_those_beside(
    analysis: Analysis, occupancy: Occupancy, longest: int, slow: IntArray, usual: float
) -> _Stragglers:
    """The outlier, and others of its function for half of its time or more."""
    tasks = occupancy.tasks
    start, stop = tasks.worker_start[slow], tasks.worker_stop[slow]
    first, last = tasks.worker_start[longest], tasks.worker_stop[longest]
    at_once = np.minimum(stop, last) - np.maximum(start, first)
    functions = analysis.recording.tasks.function.codes[tasks.rows]
    is_beside = (at_once >= BESIDE * (last - first)) & (functions[slow] == functions[longest])
    is_beside &= slow != longest
    first, last = min([first, *start[is_beside]]), max([last, *stop[is_beside]])
    idle = _idle_during(occupancy, np.array([first]), np.array([last]))
    rows = tasks.rows[[longest, *slow[is_beside]]].tolist()
    return _Stragglers(rows, float(last - first), float(idle[0]) / occupancy.workers, usual)


def _idle_during(occupancy: Occupancy, start: FloatArray, stop: FloatArray) -> FloatArray:
    """Idle worker-seconds in each of these intervals."""
    until_stop = occupancy.seconds_until(occupancy.idle, stop)
    return until_stop - occupancy.seconds_until(occupancy.idle, start)


def _follows_its_own(analysis: Analysis, row: int) -> bool:
    """Whether a task depends on others of its function, as the second step of a decomposition does.

    It is another step then, which could not run beside them, and no straggler among them.
    """
    tasks, dependencies = analysis.recording.tasks, analysis.recording.dependencies
    order = np.argsort(dependencies.task, kind="stable")
    task, depends_on = dependencies.task[order], dependencies.depends_on[order]
    function, seen, to_visit = tasks.function.codes[row], {row}, [row]
    while to_visit and len(seen) < MOST_VISITED:
        start, stop = np.searchsorted(task, (visited := to_visit.pop(), visited + 1))
        before = depends_on[start:stop]
        if (tasks.function.codes[before] == function).any():
            return True
        new = set(before.tolist()) - seen
        seen |= new
        to_visit += new
    return False


def _median_of_others(analysis: Analysis, tasks: TaskTimes) -> FloatArray:
    """By task, the median seconds of its function's other tasks; infinite if these are few.

    It is right for tasks above their median, whichever it is: without any of them the middle of the
    sorted seconds is the same. Others are no stragglers.
    """
    took = analysis.task_seconds[tasks.rows]
    functions = analysis.recording.tasks.function.codes[tasks.rows]
    order = np.lexsort((took, functions))
    of_functions = np.split(order, np.flatnonzero(np.diff(functions[order])) + 1)
    usual = np.full(len(took), np.inf)
    for those in of_functions:
        if len(those) > FEWEST_OTHERS:
            usual[those] = np.median(took[those[:-1]])
    return usual


def imbalance(analysis: Analysis) -> Finding | None:
    """Workers that stopped early, since the remaining tasks could not be divided evenly."""
    lost, most, busy = 0.0, 0.0, (0.0, 0.0)
    ends: list[tuple[float, float]] = []
    computations = analysis.recording.computations
    in_batches = set(computations.computation[computations.scheduler.where("processes")])
    for occupancy in analysis.occupancies:
        idle, end = _idle_in_uneven_end(occupancy, occupancy.computation in in_batches)
        if idle:
            ends.append(end)
        if idle / occupancy.workers > most:
            most, busy = idle / occupancy.workers, _least_and_most_busy(analysis, occupancy)
        lost += idle / occupancy.workers
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    if any(rule(analysis) for rule in _MORE_SPECIFIC):
        return None
    saved, kind, advice = _evener(analysis, lost / analysis.overlap)
    return Finding(
        "imbalance",
        severity_of_share(lost / analysis.wall),
        saved,
        f"One worker ran tasks for {seconds(busy[1])}, another for {seconds(busy[0])} and was "
        "then idle",
        advice,
        kind=kind,
        where=during(*np.array(ends).T),
    )


def _evener(analysis: Analysis, lost: float) -> tuple[float, str, str]:
    """What would be gained, what sort of number that is, and the advice."""
    smaller = "make more and smaller tasks, several per worker, to balance them"
    if analysis.schedulers != {"processes"}:
        return lost, AT_MOST, smaller
    saved = analysis.seconds_saved(chunksize=1)
    if saved >= WORTH_GAINING * analysis.computing:
        return saved, ABOUT, f"set chunksize=1, predicted to save {seconds(saved)}; else {smaller}"
    return lost, AT_MOST, f"{smaller}; chunksize=1 alone is not predicted to help"


def _idle_in_uneven_end(
    occupancy: Occupancy, in_batches: bool
) -> tuple[float, tuple[float, float]]:
    """Free worker-seconds, beside busy ones, after the last moment in which all were busy; when.

    A process may be free though tasks wait: in a batch that another one took. Elsewhere it is
    overhead if a worker's next task is on the way, and no matter of how tasks are divided. The time
    counts only if the tasks that ran in it had been ready when it started, or before: else it is
    the chain of tasks that keeps workers idle.
    """
    tasks = occupancy.tasks
    if np.isnan(tasks.worker_stop).all():
        return 0.0, (0.0, 0.0)
    free = occupancy.workers - occupancy.busy if in_batches else occupancy.idle
    full = np.flatnonzero(free == 0)
    end_start = occupancy.times[full[-1] + 1] if len(full) else occupancy.times[0]
    in_end = tasks.worker_stop > end_start
    ran = np.where(in_end, tasks.worker_stop - np.maximum(tasks.worker_start, end_start), 0.0)
    if ran[in_end & (tasks.ready > end_start)].sum() > NOT_READY * ran.sum():
        return 0.0, (0.0, 0.0)
    # Where no task runs at all the scheduler is slow, and not the division of the work.
    beside_busy = np.where(occupancy.busy > 0, free, 0)
    end = np.array([end_start, np.nanmax(tasks.worker_stop)])
    return _between(occupancy, beside_busy, end), (float(end[0]), float(end[1]))


def _between(occupancy: Occupancy, workers: IntArray, bounds: FloatArray) -> float:
    """Worker-seconds of a step function between two moments."""
    until = occupancy.seconds_until(workers, bounds)
    return float(until[1] - until[0])


def _least_and_most_busy(analysis: Analysis, occupancy: Occupancy) -> tuple[float, float]:
    """The busy seconds of the least and of the most busy worker."""
    tasks = occupancy.tasks
    workers = analysis.recording.tasks.worker[tasks.rows]
    busy = np.bincount(workers.codes, np.nan_to_num(tasks.worker_stop - tasks.worker_start))
    used = np.sort(busy[busy > 0])[::-1][: occupancy.workers]
    # A worker that ran no task is in no row.
    least = used.min(initial=np.inf) if len(used) == occupancy.workers else 0.0
    return float(least), float(used.max(initial=0.0))


_MORE_SPECIFIC = (straggler, serial_chain, chunks_too_large, unbalanced_workers)
"""Findings that say why workers stopped early."""
