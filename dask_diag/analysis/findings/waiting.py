"""Findings on running tasks that waited for the GIL or for data."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import (
    AT_MOST,
    Finding,
    severity_of_guess,
    severity_of_share,
)
from dask_diag.analysis.findings.function_names import MOST_NAMED, in_words, top_functions
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.analysis.metering import seconds_metered_without_cpu
from dask_diag.analysis.transfers import TRANSFERS, Interval, transfer_times
from dask_diag.analysis.waits import waits
from dask_diag.columns import FloatArray
from dask_diag.formatting import amount, percent, seconds, size
from dask_diag.schema import Activity

__all__ = ["FIND_OUT", "gil_bound", "io_bound", "serialization_bound"]

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
BLOCKS_A_SECOND = 250.0
"""Least rate of voluntary switches per second if threads share the GIL (they switch every 5 ms)."""
BLOCKS_A_TASK = 4.0
"""Voluntary switches that submitting a task and collecting its result may take."""
LEAST_OF_ONE_CPU = 0.6
MOST_OF_ONE_CPU = 1.25
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


def gil_bound(analysis: Analysis) -> Finding | None:
    """Threads that wait for the GIL."""
    if "threads" not in analysis.schedulers or analysis.share_at_once < AT_ONCE:
        return None
    waited = analysis.seconds_waited
    lost = waited.get(Activity.GIL_WAIT, 0.0) if waited else _non_cpu_of_turns(analysis)
    share = lost / analysis.in_tasks
    if share < WORTH_REPORTING:
        return None
    names = f"Mostly: {in_words(_functions_that_wait(analysis))}"
    advice = (
        "compute with scheduler='processes', or use code that releases the GIL in these functions, "
        "as NumPy does on whole arrays"
    )
    if waited:
        severity = severity_of_share(share)
        evidence = f"Tasks waited {seconds(lost)} for the GIL ({percent(share)}). {names}"
    else:
        severity = severity_of_guess(share)
        evidence = (
            f"{amount(analysis.at_once)} concurrent tasks used only "
            f"{amount(analysis.cpu_in_tasks / analysis.busy_wall)} CPUs and were off-CPU "
            f"{percent(share)} of the time. This suggests GIL contention; another lock or short "
            f"sleeps look the same. {names}"
        )
        advice = f"{FIND_OUT}; if it is the GIL, {advice}"
    return Finding(
        "gil-bound",
        severity,
        lost / analysis.at_once,
        evidence,
        advice,
        kind=AT_MOST,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.GIL_WAIT)),
    )


def _non_cpu_of_turns(analysis: Analysis) -> float:
    """Non-CPU seconds, if tasks seem to have shared one CPU by taking turns."""
    tasks = analysis.recording.tasks
    blocked = float(
        np.nansum(analysis.recording.computations.voluntary_switches)
    ) - BLOCKS_A_TASK * len(tasks)
    # Threads that hand the GIL to each other use one CPU together, and block at each handover.
    used = analysis.cpu_in_tasks / analysis.busy_wall
    one_cpu = LEAST_OF_ONE_CPU <= used <= MOST_OF_ONE_CPU
    if analysis.cpus < 2 or not one_cpu or blocked < BLOCKS_A_SECOND * analysis.busy_wall:
        return 0.0
    return float(np.nansum(tasks["thread_noncpu"]))


def _functions_that_wait(analysis: Analysis) -> list[str]:
    if analysis.seconds_waited:
        table = waits(analysis.recording)
        names: list[str] = table["function"][table["activity"].where(Activity.GIL_WAIT)].tolist()
        return names[:MOST_NAMED]
    return top_functions(analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu))


def io_bound(analysis: Analysis) -> Finding | None:
    """Tasks that mostly wait for files or the network, or for an unknown reason."""
    if not analysis.in_tasks:
        return None
    metered = seconds_metered_without_cpu(analysis.recording)
    in_metered = f"{seconds(metered)} of it metered by tasks"
    is_known = True
    if analysis.seconds_waited:
        lost = analysis.seconds_waited.get(Activity.IO_WAIT, 0.0) + metered
        reason = f"for files or sockets{', ' + in_metered if metered else ''}"
    elif metered >= WORTH_REPORTING * analysis.in_tasks:
        lost, reason = metered, "without CPU time in metered code"
    else:
        lost, is_known = _non_cpu_of_tasks_without_any_cpu(analysis), False
        reason = "by I/O, a sleep or a lock (not known which)"
    share = lost / max(analysis.in_tasks, analysis.occupied)
    if share < MOSTLY_WAITING:
        return None
    names = top_functions(analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu))
    won, advice = _more_at_once(analysis, lost)
    return Finding(
        "io-bound",
        severity_of_share(share) if is_known else severity_of_guess(share),
        won,
        f"Tasks {'waited' if is_known else 'were blocked for'} {seconds(lost)} {reason}: "
        f"{percent(share)} of their time. Mostly: {in_words(names)}",
        advice if is_known else f"{FIND_OUT}; if it is I/O, {advice}",
        kind=AT_MOST,
        where=where_of_tasks(
            analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu)
        ),
    )


def _more_at_once(analysis: Analysis, waited: float) -> tuple[float, str]:
    """How many wall seconds more workers could save at most, NaN if none, and the advice."""
    workers = MORE_WORKERS * max(1, round(analysis.workers))
    table = analysis.critical_path.computations
    # Not even unlimited workers are faster than the critical path, or than the scheduler.
    serial = np.maximum(table["length"], table["scheduler_cpu"])
    at_least = np.maximum(serial, table["work"] / workers)
    won = min(waited / analysis.at_once, float(np.maximum(table["wall"] - at_least, 0.0).sum()))
    won = min(won, analysis.wall - analysis.cpu_in_tasks / analysis.cpus)
    less = "move less data (fewer columns, compression, faster storage)"
    if won < WORTH_WINNING * analysis.wall:
        return float("nan"), f"{less}; more workers cannot help: no more tasks can run at once"
    alone = analysis.schedulers == {"synchronous"}
    in_threads = "scheduler='threads', " if alone else ""
    how = f"{in_threads}num_workers={workers}"
    return won, (
        f"run {'several' if alone else 'more'} tasks at once, as CPUs are free: {how} could save "
        f"up to {seconds(won)}; or {less}"
    )


def _non_cpu_of_tasks_without_any_cpu(analysis: Analysis) -> float:
    """Non-CPU seconds, if tasks had hardly any CPU time: a busy machine leaves them more."""
    used = analysis.cpu_in_tasks + analysis.known_cpu_outside_tasks
    if used > HARDLY_ANY_CPU * analysis.in_tasks:
        return 0.0
    return float(np.nansum(analysis.recording.tasks.thread_noncpu))


def serialization_bound(analysis: Analysis) -> Finding | None:
    """Time spent moving data between processes."""
    transfers = analysis.recording.transfers
    if not len(transfers):
        return None
    pickling = sum(analysis.activities.get(name, 0.0) for name in TRANSFERS)
    # A new worker process imports modules as it unpickles its first task: once, not for each task.
    pickling -= _seconds_of_imports(analysis)
    moving = pickling + sum(_overhead_in_transit(analysis))
    share = moving / analysis.available
    if share < WORTH_REPORTING:
        return None
    took = transfers.stop - transfers.start
    moved = np.nan_to_num(transfers.bytes)
    seconds_of = np.zeros(len(analysis.recording.tasks))
    np.add.at(seconds_of, transfers.task, took)
    names = top_functions(analysis.recording, seconds_of)
    return Finding(
        "serialization-bound",
        severity_of_share(share),
        moving / analysis.workers,
        f"{seconds(moving)} of worker time ({percent(share)}) moved {size(moved.sum() / 2)} of "
        f"tasks, inputs and results between processes, {seconds(pickling)} of it in pickling and "
        f"unpickling. Mostly: {in_words(names)}",
        "compute with scheduler='threads' if these functions release the GIL; else load data in "
        "the tasks that use it, and return less",
        kind=AT_MOST,
        where=where_of_tasks(analysis.recording, seconds_of),
    )


def _seconds_of_imports(analysis: Analysis) -> float:
    """Seconds in which workers rebuilt their first task, if it is small: they import modules."""
    transfers = analysis.recording.transfers
    rebuilt = transfers.side.where("worker") & transfers.activity.where(Activity.DESERIALIZE)
    rows = transfers.rows(rebuilt & (transfers.bytes < LARGE))
    rows = rows.rows(np.argsort(rows.start, kind="stable"))
    workers = analysis.recording.tasks.worker.codes[rows.task]
    _, first = np.unique(workers, return_index=True)
    return float((rows.stop - rows.start)[first].sum())


def _overhead_in_transit(analysis: Analysis) -> Iterator[float]:
    """Worker-seconds of overhead, by computation, while large data was between processes."""
    times = transfer_times(analysis.recording)
    transfers = analysis.recording.transfers
    largest = np.zeros(len(analysis.recording.tasks))
    np.maximum.at(largest, transfers.task, np.nan_to_num(transfers.bytes))
    sent, arrived = times.scheduler[Activity.SERIALIZE][1], times.scheduler[Activity.DESERIALIZE][0]
    for occupancy in analysis.occupancies:
        rows = occupancy.tasks.rows[largest[occupancy.tasks.rows] >= LARGE]
        starts = np.concatenate([sent[rows], times.worker_stop[rows]])
        stops = np.concatenate([times.worker_start[rows], arrived[rows]])
        known = ~np.isnan(starts) & ~np.isnan(stops)
        # What is in transit for two tasks blocks a worker once.
        starts, stops = _merged(starts[known], stops[known])
        until_stop = occupancy.seconds_until(occupancy.overhead, stops)
        until_start = occupancy.seconds_until(occupancy.overhead, starts)
        yield float((until_stop - until_start).sum())


def _merged(starts: FloatArray, stops: FloatArray) -> Interval:
    """The intervals that these cover together, in order and without overlap."""
    if not len(starts):
        return starts, stops
    order = np.argsort(starts)
    starts, reached = starts[order], np.maximum.accumulate(stops[order])
    is_first = np.concatenate([[True], starts[1:] > reached[:-1]])
    is_last = np.concatenate([is_first[1:], [True]])
    return starts[is_first], reached[is_last]
