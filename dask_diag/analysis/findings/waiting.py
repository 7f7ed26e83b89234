"""Findings on tasks that ran but did not compute: they waited for a lock, a processor, or data."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from dask_diag.analysis.findings.facts import MOST_NAMED, Facts, in_words
from dask_diag.analysis.findings.finding import Finding, severity_of_guess, severity_of_share
from dask_diag.analysis.metering import seconds_metered_without_cpu
from dask_diag.analysis.transfers import transfers_by_task
from dask_diag.analysis.waits import waits
from dask_diag.formatting import amount, percent, seconds, size

__all__ = ["FIND_OUT", "gil_bound", "io_bound", "serialization_bound"]

Array = np.ndarray[Any, Any]
WORTH_REPORTING = 0.15
"""The share of time from which on a wait is reported."""
AT_ONCE = 0.1
"""The share of time in which several tasks ran, from which on they may have hindered each other."""
BLOCKS_A_SECOND = 250.0
"""How often threads block, at least, that take turns with the lock: each looks every 5 ms."""
BLOCKS_A_TASK = 4.0
"""How often handing out a task and collecting its result may block."""
LEAST_OF_ONE_PROCESSOR = 0.6
MOST_OF_ONE_PROCESSOR = 1.25
"""How many processors' CPU time tasks have that take turns with the lock."""
MOSTLY_WAITING = 0.4
"""The share of the time in which workers had a task, from which on waits for I/O are reported."""
HARDLY_ANY_CPU = 0.15
"""The share of the tasks' time that all threads but the scheduler's may have computed, where what
tasks waited for was not measured: a busy machine leaves tasks that compute more than that."""
LARGE = 1e6
"""Bytes of a result or of inputs from which on it takes time to pass them between processes."""

FIND_OUT = "find out with Profiler(waits=True) (dask-diag run --waits) what they waited for"
MORE_WORKERS = 4
"""How many times the workers are advised for tasks that leave the processors free."""
WORTH_WINNING = 0.1
"""The share of time that they must be able to win."""


def gil_bound(facts: Facts) -> Finding | None:
    """Threads that take turns with the interpreter's lock."""
    if "threads" not in facts.schedulers or facts.share_at_once < AT_ONCE:
        return None
    explained = bool(facts.waits)
    lost = facts.waits.get("gil-wait", 0.0) if explained else _non_cpu_of_turns(facts)
    share = lost / facts.in_tasks
    if share < WORTH_REPORTING:
        return None
    where = f"{percent(share)} of their time, most of it in {in_words(_functions_that_wait(facts))}"
    advice = (
        "compute with scheduler='processes', or let these functions work on whole arrays with "
        "code that lets go of the lock, as NumPy does"
    )
    if explained:
        severity = severity_of_share(share)
        evidence = f"tasks waited {seconds(lost)} for the interpreter's lock (GIL): {where}"
    else:
        severity = severity_of_guess(share)
        evidence = (
            f"{amount(facts.at_once)} tasks at once had "
            f"{percent(facts.cpu_in_tasks / facts.busy_wall)} of one processor together, and none "
            f"for {where}; they took turns, as threads do for the interpreter's lock (GIL), but "
            "also for another lock or between short sleeps"
        )
        advice = f"{FIND_OUT}; if for the GIL, {advice}"
    return Finding("gil-bound", severity, lost / facts.at_once, evidence, advice)


def _non_cpu_of_turns(facts: Facts) -> float:
    """Non-CPU seconds, if it looks as if tasks shared one processor by taking turns."""
    tasks = facts.recording.tasks
    blocked = float(
        np.nansum(facts.recording.computations["voluntary_switches"])
    ) - BLOCKS_A_TASK * len(tasks)
    used = facts.cpu_in_tasks / facts.busy_wall
    one_processor = LEAST_OF_ONE_PROCESSOR <= used <= MOST_OF_ONE_PROCESSOR
    if facts.processors < 2 or not one_processor or blocked < BLOCKS_A_SECOND * facts.busy_wall:
        return 0.0
    return float(np.nansum(tasks["thread_noncpu"]))


def _functions_that_wait(facts: Facts) -> list[str]:
    if facts.waits:
        table = waits(facts.recording)
        chosen = table.rows(table["activity"].where("gil-wait"))
        return [str(name) for name in chosen["function"].tolist()[:MOST_NAMED]]
    return facts.top_functions(np.nan_to_num(facts.recording.tasks["thread_noncpu"]))


def io_bound(facts: Facts) -> Finding | None:
    """Tasks that mostly wait for files or the network, or for what is not known."""
    if not facts.in_tasks:
        return None
    metered = seconds_metered_without_cpu(facts.recording)
    in_metered = f"{seconds(metered)} of it in what they metered, without CPU time"
    known = True
    if facts.waits:
        lost = facts.waits.get("io-wait", 0.0) + metered
        what = f"for files or sockets{', ' + in_metered if metered else ''}"
    elif metered >= WORTH_REPORTING * facts.in_tasks:
        lost, what = metered, "in what they metered, without CPU time"
    else:
        lost, known = _non_cpu_of_tasks_without_any_cpu(facts), False
        what = "in I/O, in a sleep or for a lock, it is not known which"
    share = lost / max(facts.in_tasks, facts.occupied)
    if share < MOSTLY_WAITING:
        return None
    names = facts.top_functions(np.nan_to_num(facts.recording.tasks["thread_noncpu"]))
    won, advice = _more_at_once(facts, lost)
    return Finding(
        "io-bound",
        severity_of_share(share) if known else severity_of_guess(share),
        won,
        f"tasks {'waited' if known else 'were blocked'} {seconds(lost)} {what}: {percent(share)} "
        f"of their time, most of it in {in_words(names)}",
        advice if known else f"{FIND_OUT}; if for I/O, {advice}",
    )


def _more_at_once(facts: Facts, waited: float) -> tuple[float, str]:
    """How many wall seconds more workers could win at most, NaN if none, and what to do."""
    workers = MORE_WORKERS * max(1, round(facts.workers))
    table = facts.critical_path.computations
    at_least = np.maximum(table["length"], table["work"] / workers)
    won = min(waited / facts.at_once, float(np.maximum(table["wall"] - at_least, 0.0).sum()))
    won = min(won, facts.wall - facts.cpu_in_tasks / facts.processors)
    less = "move less data: fewer columns, a compressed format, a nearer disk"
    if won < WORTH_WINNING * facts.wall:
        return float("nan"), f"{less}; more workers cannot help, as no more tasks can run at once"
    alone = facts.schedulers == {"synchronous"}
    in_threads = "scheduler='threads', " if alone else ""
    how = f"{in_threads}num_workers={workers}"
    return won, (
        f"run {'several' if alone else 'more'} tasks at once, as they leave the processors free: "
        f"{how} could win {seconds(won)} at most; or {less}"
    )


def _non_cpu_of_tasks_without_any_cpu(facts: Facts) -> float:
    """Non-CPU seconds, if tasks had hardly any CPU time: a busy machine leaves them more."""
    if facts.cpu_in_tasks + facts.cpu_outside > HARDLY_ANY_CPU * facts.in_tasks:
        return 0.0
    return float(np.nansum(facts.recording.tasks["thread_noncpu"]))


def serialization_bound(facts: Facts) -> Finding | None:
    """Time that goes into moving data between processes."""
    transfers = facts.recording.transfers
    if not len(transfers):
        return None
    pickling = sum(facts.activities.get(name, 0.0) for name in ("serialize", "deserialize"))
    pickling -= _seconds_of_imports(facts)
    moving = pickling + sum(_held_up_in_transit(facts))
    share = moving / facts.available if facts.available else 0.0
    if share < WORTH_REPORTING:
        return None
    took = transfers["stop"] - transfers["start"]
    moved = np.nan_to_num(transfers["bytes"])
    weights = np.bincount(transfers["task"], took, minlength=len(facts.recording.tasks))
    names = facts.top_functions(weights)
    return Finding(
        "serialization-bound",
        severity_of_share(share),
        moving / facts.workers,
        f"{seconds(moving)} of worker time ({percent(share)}) went into moving "
        f"{size(moved.sum() / 2)} of tasks, inputs and results between processes, "
        f"{seconds(pickling)} of it into pickling and rebuilding; most of it was for "
        f"{in_words(names)}",
        "compute with scheduler='threads' if these functions let go of the interpreter's lock; "
        "else load data in the tasks that use it, and return less",
    )


def _seconds_of_imports(facts: Facts) -> float:
    """Seconds in which workers rebuilt their first task, if it is small: they import modules."""
    transfers = facts.recording.transfers
    small = transfers["side"].where("worker") & transfers["activity"].where("deserialize")
    rows = transfers.rows(small & (transfers["bytes"] < LARGE))
    order = np.argsort(rows["start"], kind="stable")
    workers = facts.recording.tasks["worker"].codes[rows["task"][order]]
    _, first = np.unique(workers, return_index=True)
    return float((rows["stop"] - rows["start"])[order][first].sum())


def _held_up_in_transit(facts: Facts) -> Iterator[float]:
    """Worker-seconds of overhead, by computation, while large data was between processes."""
    moves = transfers_by_task(facts.recording)
    transfers = facts.recording.transfers
    largest = np.zeros(len(facts.recording.tasks))
    np.maximum.at(largest, transfers["task"], np.nan_to_num(transfers["bytes"]))
    sent, arrived = moves.scheduler["serialize"][1], moves.scheduler["deserialize"][0]
    for occupancy in facts.occupancies:
        rows = occupancy.tasks.rows[largest[occupancy.tasks.rows] >= LARGE]
        starts = np.concatenate([sent[rows], moves.closed[rows]])
        stops = np.concatenate([moves.opened[rows], arrived[rows]])
        known = ~np.isnan(starts) & ~np.isnan(stops)
        starts, stops = _merged(starts[known], stops[known])
        so_far = occupancy.seconds_until(occupancy.overhead, np.concatenate([starts, stops]))
        yield float(so_far[len(starts) :].sum() - so_far[: len(starts)].sum())


def _merged(starts: Array, stops: Array) -> tuple[Array, Array]:
    """The intervals that these cover together."""
    if not len(starts):
        return starts, stops
    order = np.argsort(starts)
    starts, reached = starts[order], np.maximum.accumulate(stops[order])
    begins = np.concatenate([[True], starts[1:] > reached[:-1]])
    ends = np.concatenate([begins[1:], [True]])
    return starts[begins], reached[ends]
