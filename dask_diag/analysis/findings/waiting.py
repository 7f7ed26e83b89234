"""Findings on running tasks that waited for data."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import FIND_OUT, WORTH_GAINING, memory_not_recorded
from dask_diag.analysis.findings.children import seconds_of_children
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.finding import (
    ABOUT,
    AT_MOST,
    Finding,
    severity_of_guess,
    severity_of_share,
)
from dask_diag.analysis.findings.function_names import in_words, top_functions
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.analysis.transfers import (
    LARGE,
    TRANSFERS,
    Interval,
    transfer_times,
    transfers_of_tasks,
)
from dask_diag.columns import FloatArray
from dask_diag.formatting import percent, seconds, size
from dask_diag.schema import Activity

__all__ = ["io_bound", "serialization_bound"]

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
MOSTLY_WAITING = 0.4
"""Least share of the time with tasks that is reported as waiting for I/O."""
HARDLY_ANY_CPU = 0.15
"""Without recorded waits: largest CPU time of all threads but the scheduler's, as a share of the
tasks' time. Tasks that compute get more than that even on a busy machine."""
MORE_WORKERS = 4
"""How many times the present workers are advised if tasks leave CPUs free."""


def io_bound(analysis: Analysis) -> Finding | None:
    """Tasks that mostly wait for files or the network, or for an unknown reason."""
    if not analysis.in_tasks:
        return None
    is_known = bool(analysis.seconds_waited)
    if is_known:
        lost = analysis.seconds_waited.get(Activity.IO_WAIT, 0.0)
        # A program that the task started may compute meanwhile: for it, tasks may wait otherwise.
        for_programs = analysis.seconds_waited.get(Activity.CHILD_WAIT, 0.0)
        lost = max(0.0, lost - max(0.0, seconds_of_children(analysis) - for_programs))
        reason = "for files or sockets"
    else:
        lost = _non_cpu_of_tasks_without_any_cpu(analysis)
        reason = "by I/O, a sleep, a lock or another program (not known which)"
    share = lost / max(analysis.in_tasks, analysis.occupied)
    if share < MOSTLY_WAITING:
        return None
    names = top_functions(analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu))
    saved, advice = _more_at_once(analysis)
    return Finding(
        "io-bound",
        severity_of_share(share) if is_known else severity_of_guess(share),
        saved,
        f"Tasks {'waited' if is_known else 'were blocked for'} {seconds(lost)} {reason}: "
        f"{percent(share)} of their time. Mostly: {in_words(names)}",
        advice if is_known else f"{FIND_OUT}; if it is I/O, {advice}",
        kind=ABOUT if is_known else AT_MOST,
        where=where_of_tasks(
            analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu)
        ),
    )


def _more_at_once(analysis: Analysis) -> tuple[float, str]:
    """How many wall seconds more workers are predicted to save, NaN if none, and the advice."""
    less = "move less data (fewer columns, compression, faster storage)"
    headroom = analysis.memory_headroom
    times = int(min(MORE_WORKERS, headroom.times))
    if times < 2:
        return float("nan"), f"{less}; more tasks at once would not fit into memory"
    workers = times * max(1, round(analysis.workers))
    saved = _saved_by_threads(analysis, workers)
    alone = analysis.schedulers == {"synchronous"}
    in_threads = "" if analysis.schedulers == {"threads"} else "scheduler='threads', "
    how = f"{in_threads}num_workers={workers}"
    if analysis.on_cluster:
        how = f"{workers} threads in all, Client(n_workers=..., threads_per_worker=...)"
    if isnan(saved):
        unsure = "not simulated, so it may not help"
        return saved, f"{less}; or try {how}: {unsure}{memory_not_recorded(headroom)}"
    if saved < WORTH_GAINING * analysis.computing:
        return float("nan"), (
            f"{less}; more workers cannot help: no more tasks can run at once, or CPUs are busy"
        )
    return saved, (
        f"run {'several' if alone else 'more'} tasks at once, as CPUs are free: {how} could save "
        f"up to {seconds(saved)}; or {less}{memory_not_recorded(headroom)}"
    )


def _saved_by_threads(analysis: Analysis, workers: int) -> float:
    """What so many threads are predicted to save, NaN if that is not known.

    More processes take longer to start, and tasks that wait need none of their own.
    """
    if "processes" not in analysis.schedulers:
        return analysis.seconds_saved(workers=workers)
    saved = analysis.seconds_saved(workers=workers, scheduler="threads")
    # In processes the tasks computed at once; in threads they may hold the GIL.
    return min(saved, analysis.computing - analysis.cpu_in_tasks)


def _non_cpu_of_tasks_without_any_cpu(analysis: Analysis) -> float:
    """Non-CPU seconds, if tasks had hardly any CPU time: a busy machine leaves them more."""
    used = analysis.cpu_in_tasks + analysis.known_cpu_outside_tasks + analysis.cpu_of_children
    if used > HARDLY_ANY_CPU * analysis.in_tasks:
        return 0.0
    # Nor is it I/O while other programs had the CPUs.
    waits = cpu_waits(analysis)
    return waits.waited - waits.others


def serialization_bound(analysis: Analysis) -> Finding | None:
    """Time spent moving data between processes."""
    transfers = analysis.recording.transfers
    transfers = transfers.rows(~transfers.activity.where(Activity.TRANSFER))
    if not len(transfers):
        return None
    pickling = sum(analysis.activities.get(name, 0.0) for name in TRANSFERS)
    # A new worker process imports modules as it unpickles its first task: once, not for each task.
    imports = _seconds_of_imports(analysis)
    pickling -= imports
    moving = pickling + sum(_overhead_in_transit(analysis))
    share = moving / analysis.available
    if share < WORTH_REPORTING:
        return None
    took = transfers.stop - transfers.start
    moved = np.nan_to_num(transfers.bytes)
    seconds_of = np.zeros(len(analysis.recording.tasks))
    np.add.at(seconds_of, transfers.task, took)
    names = top_functions(analysis.recording, seconds_of)
    saved = analysis.seconds_saved(remove={Activity.SERIALIZE, Activity.DESERIALIZE})
    saved -= imports / analysis.workers / analysis.overlap
    return Finding(
        "serialization-bound",
        severity_of_share(share),
        moving / analysis.workers / analysis.overlap if isnan(saved) else max(saved, 0.0),
        f"{seconds(moving)} of worker time ({percent(share)}) moved {size(moved.sum() / 2)} of "
        f"tasks, inputs and results between processes, {seconds(pickling)} of it in pickling and "
        f"unpickling. Mostly: {in_words(names)}",
        _without_moving(analysis),
        kind=AT_MOST if isnan(saved) else ABOUT,
        where=where_of_tasks(analysis.recording, seconds_of),
    )


def _without_moving(analysis: Analysis) -> str:
    """Threads, if they are predicted to help, and what else does."""
    saved = analysis.seconds_saved(scheduler="threads")
    # If the tasks hold the GIL, threads run one of them at a time.
    in_turns = analysis.computing - analysis.cpu_in_tasks
    least = WORTH_GAINING * analysis.computing
    less = "load data in the tasks that use it, and return less"
    if min(saved, in_turns) >= least:
        return (
            f"compute with scheduler='threads', predicted to save {seconds(saved)}, or "
            f"{seconds(in_turns)} if these functions hold the GIL; or {less}"
        )
    if saved < least:
        return f"{less}; scheduler='threads' is not predicted to help"
    return f"compute with scheduler='threads' if these functions release the GIL; else {less}"


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
    transfers = transfers_of_tasks(analysis.recording)
    largest = np.zeros(len(analysis.recording.tasks))
    np.maximum.at(largest, transfers.task, np.nan_to_num(transfers.bytes))
    sent, arrived = times.scheduler[Activity.SERIALIZE][1], times.scheduler[Activity.DESERIALIZE][0]
    for occupancy in analysis.occupancies:
        rows = occupancy.tasks.rows[largest[occupancy.tasks.rows] >= LARGE]
        starts = np.concatenate([sent[rows], times.worker_stop[rows]])
        stops = np.concatenate([times.worker_start[rows], arrived[rows]])
        is_known = ~np.isnan(starts) & ~np.isnan(stops)
        # What is in transit for two tasks blocks a worker once.
        starts, stops = _merged(starts[is_known], stops[is_known])
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
