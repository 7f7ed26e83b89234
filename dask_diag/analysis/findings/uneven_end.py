"""Findings on the end of a computation, when workers are idle while the last tasks run."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import WORTH_GAINING
from dask_diag.analysis.findings.between_workers import unbalanced_workers
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.hot_line import hottest_line_of
from dask_diag.analysis.findings.number_of_tasks import chunks_too_large
from dask_diag.analysis.findings.scheduling import serial_chain
from dask_diag.analysis.findings.where import during, where_of_tasks
from dask_diag.analysis.occupancy import Occupancy, TaskTimes
from dask_diag.columns import FloatArray, IntArray
from dask_diag.formatting import seconds

__all__ = ["imbalance", "straggler"]

WORTH_REPORTING = 0.15
"""Least share of the wall time that is reported."""
OUTLIER = 3.0
"""How many times the median of its function a straggler takes at least."""
FEWEST_OTHERS = 3
"""Other tasks of its function that a straggler is compared with at least."""
NOT_READY = 0.5
"""Largest share of an uneven end whose tasks were not ready when it started."""


def straggler(analysis: Analysis) -> Finding | None:
    """One task far longer than others of its function, for which all workers wait at the end."""
    worst: tuple[float, int, float] | None = None
    lost = 0.0
    factors: dict[str, float] = {}
    for occupancy, alone, row in _last_tasks(analysis):
        usual = _median_of_others(analysis, row, occupancy.tasks)
        if analysis.task_seconds[row] < OUTLIER * usual:
            continue
        # Divided among all workers, what it ran alone would have taken the time of one part.
        saved = alone * (occupancy.workers - 1) / occupancy.workers
        lost += saved
        took = float(analysis.task_seconds[row])
        factors[analysis.recording.tasks.key[row]] = took / (took - saved)
        if worst is None or saved > worst[0]:
            worst = (saved, row, usual)
    if worst is None or lost < WORTH_REPORTING * analysis.wall:
        return None
    _, row, usual = worst
    tasks = analysis.recording.tasks
    gained = analysis.seconds_saved(speedup=factors)
    shown = lost if isnan(gained) else max(gained, 0.0)
    advice = "check that task's input; split it, or start it first"
    if gained < WORTH_GAINING * analysis.wall:
        advice = "no remedy is known: splitting that task is not predicted to help"
    return Finding(
        "straggler",
        severity_of_share(shown / analysis.wall),
        shown,
        f"Task {tasks.key[row]} took {seconds(analysis.task_seconds[row])}, other tasks of "
        f"{tasks.function[row]} {seconds(usual)} (median); other workers were idle until it stopped"
        f"{hottest_line_of(analysis.recording, row)}",
        advice,
        kind=AT_MOST if isnan(gained) else ABOUT,
        where=where_of_tasks(analysis.recording, np.arange(len(tasks)) == row),
    )


def _median_of_others(analysis: Analysis, row: int, tasks: TaskTimes) -> float:
    """The median seconds of its function's other tasks in a computation; infinite if few."""
    functions = analysis.recording.tasks.function.codes
    others = tasks.rows[(functions[tasks.rows] == functions[row]) & (tasks.rows != row)]
    if len(others) < FEWEST_OTHERS:
        return float("inf")
    return float(np.median(analysis.task_seconds[others]))


def _last_tasks(analysis: Analysis) -> Iterator[tuple[Occupancy, float, int]]:
    """Of each computation, how long its last task ran while workers were idle, and its row.

    Computations with one worker have no such end.
    """
    for occupancy in analysis.occupancies:
        tasks = occupancy.tasks
        if occupancy.workers < 2 or np.isnan(tasks.worker_stop).all():
            continue
        last = int(np.nanargmax(tasks.worker_stop))
        bounds = np.array([tasks.worker_start[last], tasks.worker_stop[last]])
        alone = _between(occupancy, occupancy.idle, bounds) / (occupancy.workers - 1)
        yield occupancy, alone, int(tasks.rows[last])


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
    saved, kind, advice = _evener(analysis, lost)
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
    if saved >= WORTH_GAINING * analysis.wall:
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
