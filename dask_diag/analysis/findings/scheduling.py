"""Findings on workers without a task, as tasks are too small, too few, or uneven."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_diag.analysis.findings.facts import MOST_NAMED, Facts, in_words
from dask_diag.analysis.findings.finding import Finding, severity_of_share
from dask_diag.analysis.findings.hot_line import hottest_line_of
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.formatting import count, percent, seconds

__all__ = ["imbalance", "overlapping_computations", "serial_chain", "straggler", "tasks_too_small"]

WORTH_REPORTING = 0.15
"""The share of time from which on it is reported."""
GOAL = 0.05
"""The share of overhead that chunks should be chosen for."""
SHORT = 0.02
"""Seconds of a task below which it may be too small."""
FEWEST_TASKS = 50
"""Tasks that must have run for them to be too small."""
CHAIN_OF_WALL = 0.6
"""The share of a computation's wall time that a serial chain takes."""
CHAIN_OF_EVEN_SHARE = 1.3
"""How many times what each worker would have of evenly shared work such a chain takes."""
ONE_TASK_OF_CHAIN = 0.5
"""The share of the longest chains beyond which a single task is to blame, and not the chain."""
OUTLIER = 3.0
"""How many times the median of its function a straggler takes."""
FEWEST_OTHERS = 3
"""Other tasks of its function that a straggler needs to be compared with."""
NOT_READY = 0.5
"""The share of an uneven end beyond which its tasks must have been ready when it began."""
COMPETING = 0.1
"""The share of the time in which computations competed, from which on it is reported."""


def tasks_too_small(facts: Facts) -> Finding | None:
    """Overhead that is large beside what tasks do."""
    started = int((facts.seconds_of_tasks > 0).sum())
    overhead = facts.activities.get("overhead", 0.0)
    if started < FEWEST_TASKS or facts.in_tasks / started > SHORT:
        return None
    share = overhead / (overhead + facts.in_tasks)
    if share < WORTH_REPORTING:
        return None
    mean, cost = facts.in_tasks / started, overhead / started
    times = cost * (1 - GOAL) / GOAL / mean
    names = facts.top_functions(np.ones(len(facts.seconds_of_tasks)))
    return Finding(
        "tasks-too-small",
        severity_of_share(overhead / facts.available),
        overhead / facts.workers,
        f"{count(started)} tasks average {seconds(mean)} of work and {seconds(cost)} of overhead "
        f"({percent(share)}). Mostly: {in_words(names)}",
        f"make chunks about {_rounded(times)} times as large: overhead is below "
        f"{percent(GOAL)} for tasks of {seconds(mean * times)} or more",
    )


def _rounded(times: float) -> str:
    """A factor to two digits, upwards."""
    if times < 10:
        return count(np.ceil(times))
    size = 10.0 ** (np.floor(np.log10(times)) - 1)
    return count(np.ceil(times / size) * size)


def serial_chain(facts: Facts) -> Finding | None:
    """Workers that were idle since each task needed the one before."""
    if not len(facts.recording.tasks) or not len(facts.recording.dependencies):
        return None
    lost = chain = 0.0
    for computation in facts.critical_path.computations.to_dicts():
        workers = max(1, computation["workers"])
        ideal = max(computation["work"] / workers, 0.0)
        bound_by_chain = computation["length"] >= CHAIN_OF_WALL * computation["wall"]
        too_long = computation["length"] > CHAIN_OF_EVEN_SHARE * ideal
        if workers > 1 and bound_by_chain and too_long:
            lost += computation["length"] - ideal
            chain += computation["length"]
    share = lost / facts.wall if facts.wall else 0.0
    if share < WORTH_REPORTING or _one_task_is_most(facts):
        return None
    names = [str(name) for name in facts.critical_path.functions["function"].tolist()[:MOST_NAMED]]
    return Finding(
        "serial-chain",
        severity_of_share(share),
        lost,
        f"A serial chain of {count(len(facts.critical_path.tasks))} dependent tasks takes "
        f"{seconds(chain)} of {seconds(facts.wall)}; more workers cannot help. "
        f"Functions: {in_words(names)}",
        "split the chain into independent parts (combine results in a tree, not one after the "
        "other), or make its tasks faster",
    )


def _one_task_is_most(facts: Facts) -> bool:
    """Whether a single task is most of the longest chain: then it is too long, not the chain."""
    path = facts.critical_path
    return bool(len(path.tasks)) and path.tasks["seconds"].max() > ONE_TASK_OF_CHAIN * path.length


def straggler(facts: Facts) -> Finding | None:
    """One task far longer than its like, for which all workers wait at the end."""
    worst: tuple[float, int, float] | None = None
    lost = 0.0
    for occupancy, alone, last in _ends(facts):
        usual = _median_of_its_like(facts, last, occupancy)
        if facts.seconds_of_tasks[last] < OUTLIER * usual:
            continue
        without = alone * (occupancy.workers - 1) / occupancy.workers
        lost += without
        if worst is None or without > worst[0]:
            worst = (without, last, usual)
    if worst is None or lost < WORTH_REPORTING * facts.wall:
        return None
    _, row, usual = worst
    task = facts.recording.tasks.rows(slice(row, row + 1)).to_dicts()[0]
    return Finding(
        "straggler",
        severity_of_share(lost / facts.wall),
        lost,
        f"Task {task['key']} took {seconds(facts.seconds_of_tasks[row])}, other tasks of "
        f"{task['function']} {seconds(usual)} (median); other workers were idle until it stopped"
        f"{hottest_line_of(facts.recording, task)}",
        "check that task's input; split it, or start it first",
    )


def _median_of_its_like(facts: Facts, row: int, occupancy: Occupancy) -> float:
    """The median of the seconds of its function's other tasks there; infinite if few."""
    functions = facts.recording.tasks.function.codes
    rows = occupancy.tasks.rows
    alike = rows[(functions[rows] == functions[row]) & (rows != row)]
    return (
        float(np.median(facts.seconds_of_tasks[alike])) if len(alike) >= FEWEST_OTHERS else np.inf
    )


def _ends(facts: Facts) -> Iterator[tuple[Occupancy, float, int]]:
    """Of each computation, how long its last task ran while workers were idle, and which one it is.

    Computes with one worker have no such end.
    """
    for occupancy in facts.occupancies:
        tasks = occupancy.tasks
        if occupancy.workers < 2 or not len(tasks.rows) or np.isnan(tasks.left).all():
            continue
        last = int(np.nanargmax(tasks.left))
        begun, left = float(tasks.taken[last]), float(tasks.left[last])
        idle = occupancy.seconds_until(occupancy.idle, np.array([begun, left]))
        alone = float(idle[1] - idle[0]) / (occupancy.workers - 1)
        yield occupancy, alone, int(tasks.rows[last])


def imbalance(facts: Facts) -> Finding | None:
    """Workers that ended early, since what was left could not be shared out evenly."""
    lost, shares = 0.0, (0.0, 0.0)
    for occupancy in facts.occupancies:
        idle, busy = _uneven_end(occupancy, facts)
        if idle / occupancy.workers > lost:
            shares = busy
        lost += idle / occupancy.workers
    if not facts.wall or lost < WORTH_REPORTING * facts.wall:
        return None
    if straggler(facts) is not None or serial_chain(facts) is not None:
        return None
    return Finding(
        "imbalance",
        severity_of_share(lost / facts.wall),
        lost,
        f"One worker ran tasks for {seconds(shares[1])}, another for {seconds(shares[0])} and was "
        "then idle",
        "make more and smaller tasks, several per worker, to balance them; with "
        "scheduler='processes' also set chunksize=1",
    )


def _uneven_end(occupancy: Occupancy, facts: Facts) -> tuple[float, tuple[float, float]]:
    """Free worker-seconds, beside busy ones, after the last moment in which all were busy.

    And the busy seconds of the least and of the most busy worker. A worker may be free though tasks
    wait: in a batch that another process took. It counts only if what ran in that end had been
    ready when it began, or before: else it is the chain of tasks that keeps workers idle.
    """
    tasks = occupancy.tasks
    if occupancy.workers < 2 or np.isnan(tasks.left).all():
        return 0.0, (0.0, 0.0)
    free = occupancy.workers - occupancy.busy
    full = np.flatnonzero(free == 0)
    while_others_work = np.where(occupancy.busy > 0, free, 0)
    end_begins = occupancy.times[full[-1] + 1] if len(full) else occupancy.times[0]
    late = (tasks.left > end_begins) & (tasks.ready > end_begins)
    in_end = tasks.left > end_begins
    seconds = np.where(in_end, tasks.left - np.maximum(tasks.taken, end_begins), 0.0)
    if seconds[late].sum() > NOT_READY * seconds.sum():
        return 0.0, (0.0, 0.0)
    so_far = occupancy.seconds_until(
        while_others_work, np.array([end_begins, np.nanmax(tasks.left)], dtype=float)
    )
    workers: Any = facts.recording.tasks.worker[tasks.rows]
    busy = np.bincount(workers.codes, np.nan_to_num(tasks.left - tasks.taken))
    present = np.zeros(occupancy.workers)
    ran = np.sort(busy[busy > 0])[::-1][: occupancy.workers]
    present[: len(ran)] = ran
    return float(so_far[1] - so_far[0]), (float(present.min()), float(present.max()))


def overlapping_computations(facts: Facts) -> Finding | None:
    """Computations that ran at the same time and competed for the CPUs."""
    computations = facts.recording.computations
    if len(computations) < 2:
        return None
    times = np.concatenate([computations["start"], computations["stop"]])
    order = np.argsort(times, kind="stable")
    one = np.ones(len(computations))
    workers = np.maximum(computations["workers"], 1)
    at_once = np.cumsum(np.concatenate([one, -one])[order])[:-1]
    wanted = np.cumsum(np.concatenate([workers, -workers])[order])[:-1]
    lasting = np.diff(times[order])
    competing = (at_once > 1) & (wanted > facts.cpus)
    lasted = float(lasting[competing].sum())
    span = float(times.max() - times.min())
    if lasted < COMPETING * span:
        return None
    return Finding(
        "overlapping-computations",
        severity_of_share(lasted / span / 2),
        float("nan"),
        f"Up to {int(at_once.max())} computations ran at once for {seconds(lasted)}, with "
        f"{int(wanted.max())} workers on {facts.cpus} CPUs. They slowed each other down: their "
        "tasks took longer than alone",
        "compute them together with dask.compute(a, b), or one after the other, or with fewer "
        "workers each",
    )
