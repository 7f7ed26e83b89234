"""Findings on running tasks that waited for the GIL or for data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.findings.facts import MOST_NAMED, Facts, in_words
from dask_diag.analysis.findings.finding import Finding, severity_of_guess, severity_of_share
from dask_diag.analysis.metering import seconds_metered_without_cpu
from dask_diag.analysis.transfers import transfers_by_task
from dask_diag.analysis.waits import waits
from dask_diag.columns import Array
from dask_diag.formatting import amount, percent, seconds, size

__all__ = ["FIND_OUT", "gil_bound", "io_bound", "serialization_bound"]

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
BLOCKS_A_SECOND = 250.0
"""Least rate of voluntary switches per second if threads share the GIL (they switch every 5 ms)."""
BLOCKS_A_TASK = 4.0
"""Voluntary switches that submitting a task and collecting its result may take."""
LEAST_OF_ONE_PROCESSOR = 0.6
MOST_OF_ONE_PROCESSOR = 1.25
"""How many CPUs tasks use if they share the GIL."""
MOSTLY_WAITING = 0.4
"""Least share of the time with tasks that is reported as waiting for I/O."""
HARDLY_ANY_CPU = 0.15
"""Without recorded waits: largest CPU time of all threads but the scheduler's, as a share of the
tasks' time. Tasks that compute get more than that even on a busy machine."""
LARGE = 1e6
"""Least bytes of a result or of inputs whose transfer between processes takes time."""

FIND_OUT = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits)"
MORE_WORKERS = 4
"""How many times the present workers are advised if tasks leave CPUs free."""
WORTH_WINNING = 0.1
"""Least share of the time that more workers can save."""


def gil_bound(facts: Facts) -> Finding | None:
    """Threads that wait for the GIL."""
    if "threads" not in facts.schedulers or facts.share_at_once < AT_ONCE:
        return None
    has_waits = bool(facts.waits)
    lost = facts.waits.get("gil-wait", 0.0) if has_waits else _non_cpu_of_turns(facts)
    share = lost / facts.in_tasks
    if share < WORTH_REPORTING:
        return None
    names = f"Mostly: {in_words(_functions_that_wait(facts))}"
    advice = (
        "compute with scheduler='processes', or use code that releases the GIL in these functions, "
        "as NumPy does on whole arrays"
    )
    if has_waits:
        severity = severity_of_share(share)
        evidence = f"Tasks waited {seconds(lost)} for the GIL ({percent(share)}). {names}"
    else:
        severity = severity_of_guess(share)
        evidence = (
            f"{amount(facts.at_once)} concurrent tasks used only "
            f"{amount(facts.cpu_in_tasks / facts.busy_wall)} CPUs and were off-CPU "
            f"{percent(share)} of the time. This suggests GIL contention; another lock or short "
            f"sleeps look the same. {names}"
        )
        advice = f"{FIND_OUT}; if it is the GIL, {advice}"
    return Finding("gil-bound", severity, lost / facts.at_once, evidence, advice)


def _non_cpu_of_turns(facts: Facts) -> float:
    """Non-CPU seconds, if tasks seem to have shared one CPU by taking turns."""
    tasks = facts.recording.tasks
    blocked = float(
        np.nansum(facts.recording.computations.voluntary_switches)
    ) - BLOCKS_A_TASK * len(tasks)
    used = facts.cpu_in_tasks / facts.busy_wall
    one_processor = LEAST_OF_ONE_PROCESSOR <= used <= MOST_OF_ONE_PROCESSOR
    if facts.cpus < 2 or not one_processor or blocked < BLOCKS_A_SECOND * facts.busy_wall:
        return 0.0
    return float(np.nansum(tasks["thread_noncpu"]))


def _functions_that_wait(facts: Facts) -> list[str]:
    if facts.waits:
        table = waits(facts.recording)
        chosen = table.rows(table["activity"].where("gil-wait"))
        return [str(name) for name in chosen["function"].tolist()[:MOST_NAMED]]
    return facts.top_functions(np.nan_to_num(facts.recording.tasks.thread_noncpu))


def io_bound(facts: Facts) -> Finding | None:
    """Tasks that mostly wait for files or the network, or for an unknown reason."""
    if not facts.in_tasks:
        return None
    metered = seconds_metered_without_cpu(facts.recording)
    in_metered = f"{seconds(metered)} of it metered by tasks"
    is_known = True
    if facts.waits:
        lost = facts.waits.get("io-wait", 0.0) + metered
        reason = f"for files or sockets{', ' + in_metered if metered else ''}"
    elif metered >= WORTH_REPORTING * facts.in_tasks:
        lost, reason = metered, "without CPU time in metered code"
    else:
        lost, is_known = _non_cpu_of_tasks_without_any_cpu(facts), False
        reason = "by I/O, a sleep or a lock (not known which)"
    share = lost / max(facts.in_tasks, facts.occupied)
    if share < MOSTLY_WAITING:
        return None
    names = facts.top_functions(np.nan_to_num(facts.recording.tasks.thread_noncpu))
    won, advice = _more_at_once(facts, lost)
    return Finding(
        "io-bound",
        severity_of_share(share) if is_known else severity_of_guess(share),
        won,
        f"Tasks {'waited' if is_known else 'were blocked for'} {seconds(lost)} {reason}: "
        f"{percent(share)} of their time. Mostly: {in_words(names)}",
        advice if is_known else f"{FIND_OUT}; if it is I/O, {advice}",
    )


def _more_at_once(facts: Facts, waited: float) -> tuple[float, str]:
    """How many wall seconds more workers could save at most, NaN if none, and the advice."""
    workers = MORE_WORKERS * max(1, round(facts.workers))
    table = facts.critical_path.computations
    at_least = np.maximum(table["length"], table["work"] / workers)
    won = min(waited / facts.at_once, float(np.maximum(table["wall"] - at_least, 0.0).sum()))
    won = min(won, facts.wall - facts.cpu_in_tasks / facts.cpus)
    less = "move less data (fewer columns, compression, faster storage)"
    if won < WORTH_WINNING * facts.wall:
        return float("nan"), f"{less}; more workers cannot help: no more tasks can run at once"
    alone = facts.schedulers == {"synchronous"}
    in_threads = "scheduler='threads', " if alone else ""
    how = f"{in_threads}num_workers={workers}"
    return won, (
        f"run {'several' if alone else 'more'} tasks at once, as CPUs are free: {how} could save "
        f"up to {seconds(won)}; or {less}"
    )


def _non_cpu_of_tasks_without_any_cpu(facts: Facts) -> float:
    """Non-CPU seconds, if tasks had hardly any CPU time: a busy machine leaves them more."""
    if facts.cpu_in_tasks + facts.cpu_outside > HARDLY_ANY_CPU * facts.in_tasks:
        return 0.0
    return float(np.nansum(facts.recording.tasks.thread_noncpu))


def serialization_bound(facts: Facts) -> Finding | None:
    """Time spent moving data between processes."""
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
        f"{seconds(moving)} of worker time ({percent(share)}) moved {size(moved.sum() / 2)} of "
        f"tasks, inputs and results between processes, {seconds(pickling)} of it in pickling and "
        f"unpickling. Mostly: {in_words(names)}",
        "compute with scheduler='threads' if these functions release the GIL; else load data in "
        "the tasks that use it, and return less",
    )


def _seconds_of_imports(facts: Facts) -> float:
    """Seconds in which workers rebuilt their first task, if it is small: they import modules."""
    transfers = facts.recording.transfers
    small = transfers["side"].where("worker") & transfers["activity"].where("deserialize")
    rows = transfers.rows(small & (transfers["bytes"] < LARGE))
    order = np.argsort(rows["start"], kind="stable")
    workers = facts.recording.tasks.worker.codes[rows["task"][order]]
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
