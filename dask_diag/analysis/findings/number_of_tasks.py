"""Findings on how many tasks run at once: too few threads for them, or too few tasks."""

from __future__ import annotations

from math import ceil, isinf

import numpy as np

from dask_diag.analysis.cpu import cpus_of_others
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.locks import lock_bound, seconds_waited_for_threads
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    Finding,
    in_words,
    memory_not_recorded,
    severity_of_share,
    together,
    where_of_tasks,
)
from dask_diag.analysis.findings.scheduling import serial_chain
from dask_diag.analysis.findings.waiting import cpus_used, seconds_of_children
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.columns import BoolArray
from dask_diag.formatting import amount, counted, percent, seconds
from dask_diag.model.codes import Activity

WORTH_REPORTING = 0.15
"""Least share of the time of computations that is lost."""
MOSTLY_WAITING = 0.4
"""Least share of the tasks' seconds in which they sleep or wait for I/O."""
OFTEN_LOCKED = 0.1
"""Largest share of the tasks' seconds in which they wait for locks."""
OF_CHILDREN = 0.5
"""Least share of these seconds in which tasks waited for programs that they started, or these
computed, if that is said; and in which they computed, if CPUs that others use are not idle."""
HARDLY_IDLE = 0.1
"""Share of the CPUs' time below which who used them is said, not how idle they were."""
WAITS = (Activity.SLEEP, Activity.IO_WAIT, Activity.CHILD_WAIT, Activity.DEVICE_WAIT)
"""Waits that leave a CPU to other threads."""
TIMES_AS_MANY = (2, 4, 8, 16)
"""Times the present workers that are tried."""
MOST_OF_IT = 0.8
"""Share of what the most workers gain that is enough: fewer threads need less memory."""
MOST_OF_WORK = 0.9
"""Share of a computation's work that is in fewer tasks than workers if chunks are too large."""


def too_few_threads(analysis: Analysis) -> Finding | None:
    """Tasks that sleep or wait, but for locks, while CPUs are idle and other tasks could run."""
    is_mixed = analysis.on_cluster and len(analysis.schedulers) > 1
    if not analysis.in_tasks or is_mixed or isinf(analysis.cpus_for_tasks):
        return None
    waited = sum(analysis.seconds_waited.get(name, 0.0) for name in WAITS)
    # A task of a cluster waits for a lock of the cluster, and for tasks that it has submitted, as
    # for other threads.
    for_threads = 0.0 if analysis.on_cluster else seconds_waited_for_threads(analysis)
    waited += for_threads
    share = waited / analysis.in_tasks
    locked = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0) - for_threads
    # More threads would queue for the lock, which the simulator does not know.
    if share < MOSTLY_WAITING or locked > OFTEN_LOCKED * analysis.in_tasks:
        return None
    # A lock that is polled shows as a sleep.
    if lock_bound(analysis) is not None:
        return None
    workers, lost = _workers_worth_having(analysis, waited)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis.recording, analysis.recording.tasks.thread_noncpu)
    return Finding(
        "too-few-threads",
        severity_of_share(lost / analysis.computing),
        lost,
        f"Tasks {_waited_for(analysis, waited, for_threads)} for {percent(share)} of their time, "
        f"while {_idle(analysis)}. Mostly: {in_words(where.functions)}",
        f"run more tasks at once: {_with_threads(analysis, workers)}"
        f"{memory_not_recorded(analysis.memory_headroom)}",
        kind=ABOUT,
        where=where,
    )


def _idle(analysis: Analysis) -> str:
    """How many CPUs had nothing to do; what other programs used of a cluster's is not known."""
    used = cpus_used(analysis)
    if analysis.on_cluster:
        cpus = counted(int(analysis.cpus_for_tasks), "CPU")
        return f"tasks used {amount(used)} of the {cpus} of the workers' hosts"
    others = cpus_of_others(analysis.recording)
    idle = max(1 - (used + others) / analysis.cpus, 0.0)
    cpus = counted(analysis.cpus, "CPU")
    if idle < HARDLY_IDLE:
        return f"other programs used {percent(min(others / analysis.cpus, 1.0))} of {cpus}"
    return f"{cpus} {'was' if analysis.cpus == 1 else 'were'} {percent(idle)} idle"


def _with_threads(analysis: Analysis, workers: int) -> str:
    """How to have so many threads."""
    if analysis.on_cluster:
        threads = ceil(workers / _processes(analysis))
        return (
            f"threads_per_worker={threads} (dask worker --nthreads {threads}), {workers} threads "
            "in all"
        )
    in_threads = "" if analysis.schedulers == {"threads"} else "scheduler='threads', "
    return f"{in_threads}num_workers={workers}"


def _processes(analysis: Analysis) -> int:
    """How many worker processes a cluster had: of the largest of its workers."""
    workers = analysis.recording.workers
    threads = int(workers.threads[~workers.address.where("")].max(initial=1))
    return max(1, round(analysis.workers / threads))


def _waited_for(analysis: Analysis, waited: float, for_threads: float) -> str:
    """What tasks did instead of computing."""
    for_programs = analysis.seconds_waited.get(Activity.CHILD_WAIT, 0.0)
    if max(seconds_of_children(analysis), for_programs) > OF_CHILDREN * waited:
        return "waited for programs that they started"
    return (
        "slept or waited for I/O"
        + " or programs" * (for_programs > 0)
        + " or other threads" * (for_threads > 0)
    )


def _workers_worth_having(analysis: Analysis, waited: float) -> tuple[int, float]:
    """How many workers gain most of what can be gained, and what they gain by the simulator.

    That is, of those for whose tasks there is memory.
    """
    now = max(1, round(analysis.workers))
    # CPUs that are busy do no more: programs that tasks started use them, too, and these cannot
    # have those of other programs, as tasks may that only wait.
    used = cpus_used(analysis)
    if seconds_of_children(analysis) > OF_CHILDREN * waited:
        used += cpus_of_others(analysis.recording)
    most = analysis.computing * max(0.0, 1 - used / analysis.cpus_for_tasks)
    gains = [
        (times * now, min(_gained_in_threads(analysis, times * now), most))
        for times in TIMES_AS_MANY
        if times <= analysis.memory_headroom.times
    ]
    # Of a chain, more may be predicted to take a little longer.
    largest = max([0.0, *(gain for _, gain in gains)])
    enough = (pair for pair in gains if pair[1] >= MOST_OF_IT * largest)
    return next(enough, (now, 0.0))


def _gained_in_threads(analysis: Analysis, workers: int) -> float:
    """What so many threads are predicted to gain; 0 if that is not known."""
    if analysis.on_cluster:
        gained, processes = analysis.seconds_saved(workers=workers), _processes(analysis)
    elif "processes" in analysis.schedulers:
        gained, processes = analysis.seconds_saved(workers=workers, scheduler="threads"), 1
    else:
        return float(np.nan_to_num(analysis.seconds_saved(workers=workers)))
    # In processes the tasks computed at once; in threads of one they may hold the GIL.
    in_turns = analysis.computing - analysis.cpu_in_tasks / processes
    return float(np.nan_to_num(min(gained, in_turns)))


def chunks_too_large(analysis: Analysis) -> Finding | None:
    """Fewer tasks than workers: some have nothing to run from the start."""
    lost, most_workers, times = 0.0, 0, 1.0
    large = np.zeros(len(analysis.task_seconds), bool)
    for occupancy in analysis.occupancies:
        of_work = _tasks_with_the_work(analysis, occupancy)
        at_once = _at_once(analysis, occupancy, of_work)
        if not 0 < at_once < occupancy.workers:
            continue
        parts = occupancy.tasks.rows[~_puts_together(analysis, occupancy)]
        seconds_of_tasks = analysis.task_seconds[parts]
        cpu = np.nansum(analysis.recording.tasks.thread_cpu[parts])
        ran = float(np.diff(occupancy.times)[occupancy.busy > 0].sum())
        # What puts the result together runs alone, after all others.
        ran -= float(analysis.task_seconds[occupancy.tasks.rows].sum() - seconds_of_tasks.sum())
        # More tasks than CPUs compute no faster.
        even = max(seconds_of_tasks.sum() / occupancy.workers, cpu / analysis.cpus_for_tasks)
        lost += max(ran - float(even), 0.0)
        large[occupancy.tasks.rows[of_work]] = True
        most_workers = max(most_workers, occupancy.workers)
        times = max(times, occupancy.workers / at_once)
    if lost < WORTH_REPORTING * analysis.wall or serial_chain(analysis) is not None:
        return None
    where = where_of_tasks(analysis.recording, large * analysis.task_seconds)
    number = int(large.sum())
    # Smaller chunks need no more memory at once, as these would together.
    fit = times <= analysis.memory_headroom.times
    at_once_with_others = together(len(analysis.recording.computations)) if fit else ""
    return Finding(
        "chunks-too-large",
        severity_of_share(lost / analysis.wall),
        lost / analysis.overlap,
        f"{counted(number, 'task')} of {in_words(where.functions)} had "
        f"{percent(MOST_OF_WORK)} or more of the work of a computation with {most_workers} "
        "workers: the others were idle. Longest: "
        f"{seconds(float(analysis.task_seconds[large].max()))}",
        f"{at_once_with_others}make chunks smaller, so that there are several tasks for each "
        "worker",
        kind=AT_MOST,
        where=where,
    )


def _at_once(analysis: Analysis, occupancy: Occupancy, of_work: BoolArray) -> int:
    """How many of these tasks might run at once: those that wait for none of the others."""
    dependencies = analysis.recording.dependencies
    are_work = np.zeros(len(analysis.task_seconds), bool)
    are_work[occupancy.tasks.rows[of_work]] = True
    waiting = dependencies.task[are_work[dependencies.depends_on]]
    are_work[waiting] = False
    return int(are_work.sum())


def _tasks_with_the_work(analysis: Analysis, occupancy: Occupancy) -> BoolArray:
    """All tasks of the functions whose longest tasks have most of a computation's work."""
    took = analysis.task_seconds[occupancy.tasks.rows] * ~_puts_together(analysis, occupancy)
    order = np.argsort(-took, kind="stable")
    before = np.cumsum(took[order]) - took[order]
    functions = analysis.recording.tasks.function.codes[occupancy.tasks.rows]
    return np.isin(functions, functions[order[before < MOST_OF_WORK * took.sum()]])


def _puts_together(analysis: Analysis, occupancy: Occupancy) -> BoolArray:
    """The tasks that dask adds to make one result of all chunks: no chunks make them shorter."""
    functions = analysis.recording.tasks.function
    names = [name for name in functions.values if name.startswith("finalize")]
    return functions.is_in(names)[occupancy.tasks.rows]
