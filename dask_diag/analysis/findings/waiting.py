"""Findings on running tasks that waited for data."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.cpu import ThreadGroup, cpus_of_others, cpus_sampled, seconds_beside
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    FIND_OUT,
    WORTH_GAINING,
    Finding,
    in_words,
    memory_not_recorded,
    severity_of_guess,
    severity_of_share,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.task_times import (
    LARGE,
    TRANSFERS,
    transfer_times,
    transfers_of_tasks,
)
from dask_diag.formatting import percent, seconds, size
from dask_diag.model.codes import Activity


def seconds_of_children(analysis: Analysis) -> float:
    """How long programs that tasks started computed, waits for CPUs that others had included.

    Tasks that wait for these programs wait no longer, if each uses one CPU.
    """
    others = cpus_of_others(analysis.recording)
    return seconds_beside(others, analysis.cpu_of_children, analysis.cpus)


def cpus_used(analysis: Analysis) -> float:
    """CPUs that tasks used, and the programs that they started, while any task ran."""
    if not analysis.busy_wall:
        return 0.0
    used = analysis.cpu_in_tasks + analysis.cpu_of_children * analysis.overlap
    # Of programs that tasks of worker processes start only samples know.
    return max(used / analysis.busy_wall, cpus_sampled(analysis.recording))


VARIABLES = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
    "openmp": "OMP_NUM_THREADS",
    "flexiblas": "FLEXIBLAS_NUM_THREADS",
    "arrow": "OMP_NUM_THREADS",
}
"""What limits the threads of a library; Arrow heeds OpenMP's."""
USUAL = ("openblas", "openmp", "mkl")
"""Libraries to limit where it is not known which ones are loaded."""


class CpuWaits(NamedTuple):
    """Seconds that tasks waited for CPUs, and what part of them was waited for each competitor.

    Attributes
    ----------
    waited : float
        Seconds of ``cpu-wait``; all non-CPU seconds if waits were not recorded.
    pools, others : float
        Those that native pools, and other programs, had the CPUs: no more than they used, for each
        of the tasks that share a CPU. They are divided in proportion to the CPU that each
        competitor used, the tasks among themselves, the scheduler, Python threads, programs that
        tasks start and the profilers included.
    """

    waited: float
    pools: float
    others: float


def cpu_waits(analysis: Analysis, spinning: float = 0.0) -> CpuWaits:
    """The waits for CPUs of all computations.

    Parameters
    ----------
    analysis : Analysis
    spinning : float, optional
        How much of the tasks' CPU seconds they had only because of native pools, whose are these.
    """
    if analysis.seconds_waited:
        waited = analysis.seconds_waited.get(Activity.CPU_WAIT, 0.0)
    else:
        waited = max(0.0, analysis.off_cpu_in_tasks)
    groups = analysis.thread_groups
    pools = spinning + sum(group.cpu for group in groups if is_pool(group))
    other_groups = sum(
        group.cpu for group in groups if group.kind != "tasks" and not is_pool(group)
    )
    other_groups += analysis.cpu_of_children
    others = float(np.nansum(analysis.recording.computations.others_cpu))
    # Tasks compete with each other where more run than there are CPUs.
    crowded = 1 - analysis.cpus / analysis.at_once if analysis.at_once > analysis.cpus else 0.0
    used = pools + other_groups + others + crowded * (analysis.cpu_in_tasks - spinning)
    if not used:
        return CpuWaits(waited, 0.0, 0.0)
    # A second of a CPU that is free is a part of a second for all tasks that share the CPUs.
    of_each = max(1.0, analysis.at_once / analysis.cpus)
    of_pools, of_others = (
        min(seconds * of_each, waited * seconds / used) for seconds in (pools, others)
    )
    return CpuWaits(waited, of_pools, of_others)


def is_pool(group: ThreadGroup) -> bool:
    """Whether these are threads of a library that a variable limits, or may be."""
    return group.kind == "native" and (group.name in VARIABLES or not group.name)


def seconds_saved_without(
    analysis: Analysis,
    seconds: float,
    waited: float,
    *,
    idle_machine: bool = False,
    idle_pools: bool = False,
) -> tuple[float, str]:
    """What is predicted to be gained without so many of the seconds waited, and the kind of that.

    Idle is what had these CPUs: `idle_machine` or `idle_pools` of the simulator. Without recorded
    waits the tasks may have waited for something else.
    """
    share = min(1.0, seconds / waited) if waited else 0.0
    wait = Activity.CPU_WAIT if analysis.seconds_waited else Activity.NONCPU
    saved = analysis.seconds_saved(
        remove={wait: share}, idle_machine=idle_machine, idle_pools=idle_pools
    )
    if isnan(saved):
        return seconds / analysis.at_once / analysis.overlap, AT_MOST
    return max(saved, 0.0), ABOUT if analysis.seconds_waited else AT_MOST


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
        # What is in transit for two tasks blocks a worker once.
        starts, stops = Intervals(starts, stops).union()
        until_stop = occupancy.seconds_until(occupancy.overhead, stops)
        until_start = occupancy.seconds_until(occupancy.overhead, starts)
        yield float((until_stop - until_start).sum())
