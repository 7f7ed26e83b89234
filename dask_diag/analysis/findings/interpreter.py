"""The finding on other programs that use the CPUs."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.cpu import ThreadGroup
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    FIND_OUT,
    MOST_NAMED,
    Finding,
    in_words,
    severity_of_guess,
    severity_of_share,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.findings.waiting import (
    USUAL,
    VARIABLES,
    CpuWaits,
    cpu_waits,
    is_pool,
    seconds_saved_without,
)
from dask_diag.analysis.lines import cpu_share_of_linear_algebra
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.waits import waits
from dask_diag.formatting import amount, percent, seconds, size
from dask_diag.model.codes import Activity

WORTH_REPORTING = 0.15
"""Least share of the tasks' time that is reported."""
AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
BLOCKS_A_SECOND = 250.0
"""Least rate of voluntary switches per second if threads share the GIL (they switch every 5 ms)."""
BLOCKS_A_TASK = 4.0
"""Voluntary switches that submitting a task and collecting its result may take."""
LEAST_OF_ONE_CPU = 0.6
MOST_OF_ONE_CPU = 1.25
"""How many CPUs tasks use if they share the GIL."""
OF_ITS_OWN = 0.5
"""Least share of the waits for the GIL that waits for CPUs do not explain, for an estimate and
advice: else it is not certain whether the GIL or the lack of CPUs is the cause."""
WORTH_PROCESSES = 0.25
"""Least share of the seconds of computations that processes are predicted to save, to be advised.

What they cost differs by about as much between machines and libraries.
"""
LEAST_NAMED = 0.1
"""Least size of what is moved, beside all else, that is named."""
_NOT_TASKS = frozenset({"scheduler", "dask_diag"})
"""Kinds of threads that use the GIL and are no part of what tasks do."""
MORE_PROCESSES = "Client(n_workers=..., threads_per_worker=1)"
RELEASE = "use code that releases the GIL in these functions, as NumPy does on whole arrays"


class _GilWaits(NamedTuple):
    """Seconds that tasks waited for the GIL, and why.

    Attributes
    ----------
    waited : float
    scheduler : float
        Those in which the scheduler's thread, or one of the profilers, had it.
    own : float
        Those that neither this nor waits for CPUs explain: other tasks had it.
    """

    waited: float
    scheduler: float
    own: float

    @property
    def share(self) -> float:
        """The share of the waits that tasks themselves explain."""
        return self.own / self.waited if self.waited else 0.0

    @property
    def share_with_cpu(self) -> float:
        """Of the waits for tasks, the share in which the one that had it also had a CPU."""
        for_tasks = self.waited - self.scheduler
        return self.own / for_tasks if for_tasks > 0 else 0.0


def gil_bound(analysis: Analysis) -> Finding | None:
    """Threads that wait for the GIL."""
    if not analysis.schedulers & {"threads", "distributed"} or not analysis.in_tasks:
        return None
    if analysis.share_at_once < AT_ONCE:
        return None
    is_recorded = bool(analysis.seconds_waited)
    waits = _waits_for_gil(analysis) if is_recorded else _non_cpu_of_turns(analysis)
    share = waits.own / analysis.in_tasks
    if share < WORTH_REPORTING:
        return None
    # Without recorded waits it is not known what else tasks waited for.
    remove = {Activity.GIL_WAIT if is_recorded else Activity.NONCPU: waits.share}
    saved = analysis.seconds_saved(remove=remove)
    is_sure = is_recorded and waits.share_with_cpu >= OF_ITS_OWN
    return Finding(
        "gil-bound",
        severity_of_share(share) if is_sure else severity_of_guess(share),
        waits.own / analysis.at_once / analysis.overlap if isnan(saved) else max(saved, 0.0),
        _evidence(analysis, waits),
        _advice(analysis, waits, remove),
        kind=ABOUT if is_sure and not isnan(saved) else AT_MOST,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.GIL_WAIT)),
    )


def _evidence(analysis: Analysis, waits: _GilWaits) -> str:
    names = f"Mostly: {in_words(_functions_that_wait(analysis))}"
    if not analysis.seconds_waited:
        return (
            f"{amount(analysis.at_once)} concurrent tasks used only "
            f"{amount(analysis.cpu_in_tasks / analysis.busy_wall)} CPUs and were off-CPU "
            f"{percent(waits.own / analysis.in_tasks)} of the time. This suggests GIL contention; "
            f"another lock or short sleeps look the same. {names}"
        )
    part = ""
    if waits.scheduler >= WORTH_REPORTING * waits.waited:
        part = f", {seconds(waits.scheduler)} of it for the scheduler's thread"
    if waits.share_with_cpu < 1 - WORTH_REPORTING:
        without_cpu = waits.waited - waits.scheduler - waits.own
        part += (
            f", {seconds(without_cpu)} of it perhaps because threads that had it waited for a CPU"
        )
    return (
        f"Tasks waited {seconds(waits.waited)} for the GIL "
        f"({percent(waits.waited / analysis.in_tasks)}){part}. {names}"
    )


def _advice(analysis: Analysis, waits: _GilWaits, remove: dict[str, float]) -> str:
    if not analysis.seconds_waited:
        return f"{FIND_OUT}; if it is the GIL, {_remedy(analysis, remove)}"
    if waits.share_with_cpu < OF_ITS_OWN:
        return (
            "record again while CPUs are free, with no more workers than CPUs: tasks also waited "
            "for CPUs, and a thread that has the GIL and no CPU stops all others"
        )
    return _remedy(analysis, remove)


def _waits_for_gil(analysis: Analysis) -> _GilWaits:
    """The recorded waits.

    Who has the GIL needs a CPU, too. If it waits for one as much as tasks do on average, so much of
    the time in which others wait for the GIL is a wait for that CPU.
    """
    waited = analysis.seconds_waited.get(Activity.GIL_WAIT, 0.0)
    scheduler = waited * _share_of_scheduler(analysis)
    needed = analysis.cpu_in_tasks + analysis.seconds_waited.get(Activity.CPU_WAIT, 0.0)
    with_cpu = analysis.cpu_in_tasks / needed if needed else 1.0
    return _GilWaits(waited, scheduler, (waited - scheduler) * with_cpu)


def _share_of_scheduler(analysis: Analysis) -> float:
    """In what share of a task's waits for the GIL the scheduler or a profiler had it, about.

    Divided in proportion to the CPU of the threads that a task competes with: these, and those of
    the tasks that run beside it. Small tasks wait for the thread that hands them out.
    """
    groups = [group for group in analysis.thread_groups if not group.processes]
    apart = sum(group.cpu for group in groups if group.kind in _NOT_TASKS)
    beside = max(1.0 - 1.0 / analysis.at_once, 0.0) if analysis.at_once else 0.0
    of_tasks = beside * analysis.cpu_in_tasks
    # Python threads of libraries hold it for tasks.
    of_tasks += sum(group.cpu for group in groups if group.kind == "python")
    return apart / (apart + of_tasks) if apart else 0.0


def _remedy(analysis: Analysis, remove: dict[str, float]) -> str:
    """Worker processes, if they are predicted to help; else why not, and what else may."""
    if analysis.on_cluster:
        alone = int(analysis.recording.workers.threads.max(initial=0)) == 1
        # It takes turns with what its worker sends and receives. And each process needs memory.
        if alone or analysis.memory_headroom.times <= 1:
            return RELEASE
        return f"{RELEASE}; or run more worker processes with fewer threads each: {MORE_PROCESSES}"
    has_sizes = analysis.simulator.result_sizes is not None
    # All start at once, so more than there are CPUs only start later.
    workers = analysis.cpus if analysis.workers > analysis.cpus else None
    how = "scheduler='processes'" + (f", num_workers={workers}" if workers else "")
    # Where sizes are not known, the best case: there is nothing to move.
    saved = analysis.seconds_saved(
        remove=remove,
        scheduler="processes",
        workers=workers,
        result_bytes=None if has_sizes else 0.0,
    )
    if isnan(saved):
        return RELEASE
    least = WORTH_PROCESSES * analysis.computing
    if saved < least:
        longer = f"{seconds(-saved)} longer" if saved < 0 else f"only {seconds(saved)} less"
        return (
            f"{RELEASE}; worker processes do not help: they {_need(analysis)}, and are predicted "
            f"to take {longer}"
        )
    most = (saved - least) * BYTES_A_SECOND
    is_data_known = not np.isnan(analysis.recording.computations.graph_bytes).any()
    if has_sizes:
        if_little = (
            f", if the program gives its tasks less than {size(most)} of data, which is not known"
        )
        return (
            f"compute with {how}, predicted to save {seconds(saved)} though they {_need(analysis)}"
            f"{'' if is_data_known else if_little}; or {RELEASE}"
        )
    little = "" if is_data_known else " and the program gives them little data"
    # A result is sent to the scheduler's process, and from there to another.
    return (
        f"{RELEASE}; or compute with {how} if tasks pass each other less than {size(most / 2)} of "
        f"results (CacheProfiler(metric=nbytes, unit='bytes') measures it){little}: it could save "
        f"up to {seconds(saved)}"
    )


def _need(analysis: Analysis) -> str:
    """What worker processes need time for."""
    results, data = analysis.simulator.bytes_of_results, analysis.simulator.bytes_of_graphs
    # What is little beside the other need not be read.
    moved = [f"{size(results)} of results"] * (results > LEAST_NAMED * data)
    moved += [f"{size(data)} of data in the graph"] * (data > LEAST_NAMED * results)
    return "need time to start" + (f" and to move {' and '.join(moved)}" if moved else "")


def _non_cpu_of_turns(analysis: Analysis) -> _GilWaits:
    """Non-CPU seconds, if tasks seem to have shared one CPU by taking turns.

    Not those in which other programs had the CPUs.
    """
    tasks = analysis.recording.tasks
    blocked = float(
        np.nansum(analysis.recording.computations.voluntary_switches)
    ) - BLOCKS_A_TASK * len(tasks)
    # Threads that hand the GIL to each other use one CPU together, and block at each handover.
    used = analysis.cpu_in_tasks / analysis.busy_wall
    one_cpu = LEAST_OF_ONE_CPU <= used <= MOST_OF_ONE_CPU
    if analysis.cpus < 2 or not one_cpu or blocked < BLOCKS_A_SECOND * analysis.busy_wall:
        return _GilWaits(0.0, 0.0, 0.0)
    waits = cpu_waits(analysis)
    return _GilWaits(waits.waited, 0.0, waits.waited - waits.others)


def _functions_that_wait(analysis: Analysis) -> list[str]:
    if analysis.seconds_waited:
        table = waits(analysis.recording)
        names: list[str] = table["function"][table["activity"].where(Activity.GIL_WAIT)].tolist()
        return names[:MOST_NAMED]
    return top_functions(analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu))


OUTSIDE_OF_WALL = 0.05
"""CPU time of the pools' threads must be more than this share of the wall time."""
OUTSIDE = 0.1
"""Least share of the CPU time of pools and tasks together that the pools' threads used."""
WAITED = 0.075
"""Least share of the tasks' time that they waited for a CPU, or for the pools' threads."""
WORTH_NAMING_OTHERS = 0.1
"""Least share of the waits that is reported as that of other programs."""
WORTH_NAMING_SPINNING = 0.1
"""Least share of the tasks' CPU time that is reported as spinning."""


def thread_oversubscription(analysis: Analysis) -> Finding | None:
    """Native thread pools and workers that compete for the CPUs."""
    pools = [group for group in analysis.thread_groups if is_pool(group)]
    used = sum(pool.cpu for pool in pools)
    if not analysis.in_tasks or analysis.share_at_once < AT_ONCE:
        return None
    if used <= OUTSIDE_OF_WALL * analysis.wall or used < OUTSIDE * (used + analysis.cpu_in_tasks):
        return None
    # The thread that calls a library works together with its pool.
    largest = 1 + max(pool.threads for pool in pools)
    if analysis.at_once * largest <= analysis.cpus:
        return None
    spinning, is_sampled = _spinning(analysis, pools)
    waits = cpu_waits(analysis, spinning if is_sampled else 0.0)
    # A task waits for its library's threads as for a lock.
    locked = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0)
    if (waits.waited + locked) / analysis.in_tasks < WAITED:
        return None
    share = (waits.pools + locked) / analysis.in_tasks
    saved, kind = _saved(analysis, spinning)
    blocked = analysis.waits_of_tasks(Activity.CPU_WAIT)
    if locked:
        saved += _saved_without_locks(analysis, used)
        blocked = blocked + analysis.waits_of_tasks(Activity.LOCK_WAIT)
    libraries = sorted(pool.name for pool in pools if pool.name)
    called = in_words(libraries) or "a native library whose name is not known"
    return Finding(
        "thread-oversubscription",
        severity_of_share(share) if libraries else severity_of_guess(share),
        saved,
        f"{amount(analysis.at_once)} concurrent tasks called {called} (up to {largest} threads) "
        f"on {analysis.cpus} CPUs. Its threads used {seconds(used)} of CPU time, the tasks' own "
        f"threads {seconds(analysis.cpu_in_tasks)}{_spun(analysis, spinning, is_sampled)}; "
        f"tasks {_waited(analysis, waits, locked)}",
        _pools_advice(libraries),
        # Threads of a library that is not known may do something else, and so may tasks.
        kind=kind if libraries and (is_sampled or not spinning) else AT_MOST,
        where=where_of_tasks(analysis.recording, blocked),
    )


def _spinning(analysis: Analysis, pools: Sequence[ThreadGroup]) -> tuple[float, bool]:
    """CPU seconds in which tasks spun while they waited for pools, and if stacks show that.

    A call is divided evenly among its thread and those of a pool. So what the calling threads used
    beyond the share of one thread of the pool was no part of it: they waited for the others, in a
    loop, or for another task's call. A pool's threads spin, too: more was lost than this. Parts of
    a call that are not divided count as well. Without stacks all else that tasks compute does.
    """
    used = sum(pool.cpu for pool in pools)
    most = max(pool.threads for pool in pools)
    # Two libraries of a name may have a pool each.
    helpers = max(1, min(most, analysis.cpus - 1))
    share = cpu_share_of_linear_algebra(analysis.recording)
    calling = analysis.cpu_in_tasks * (1.0 if isnan(share) else share)
    return max(0.0, calling - used / helpers), not isnan(share)


def _saved(analysis: Analysis, spinning: float) -> tuple[float, str]:
    """What is gained without the pools' threads and without spinning, and the kind of that.

    While one task runs, its pool has CPUs that nobody else wants.
    """
    waits = cpu_waits(analysis)
    saved, kind = seconds_saved_without(analysis, waits.pools, waits.waited, idle_pools=True)
    alone = analysis.busy_wall * (1 - analysis.share_at_once)
    saved += spinning * (1 - alone / analysis.in_tasks) / analysis.cpus / analysis.overlap
    return min(saved, analysis.computing), kind


def _spun(analysis: Analysis, spinning: float, is_sampled: bool) -> str:
    if not is_sampled or spinning < WORTH_NAMING_SPINNING * analysis.cpu_in_tasks:
        return ""
    return f", about {seconds(spinning)} of it in loops that wait for these"


def _saved_without_locks(analysis: Analysis, used: float) -> float:
    """What is gained besides if no task waits for the pools' threads, which compute no more."""
    waits = cpu_waits(analysis)
    of_cpu = waits.pools / waits.waited if waits.waited else 0.0
    with_locks = analysis.seconds_saved(remove={Activity.CPU_WAIT: of_cpu}, idle_pools=True)
    remove = {Activity.CPU_WAIT: of_cpu, Activity.LOCK_WAIT: 1.0}
    besides = analysis.seconds_saved(remove=remove, idle_pools=True) - with_locks
    most = analysis.computing - (analysis.cpu_in_tasks + used) / analysis.cpus
    # What cannot be simulated, NaN, is not more than 0.
    return max(0.0, min(besides, most))


def _waited(analysis: Analysis, waits: CpuWaits, locked: float) -> str:
    """What the tasks waited for, and how long."""
    waited = seconds(waits.waited)
    if not analysis.seconds_waited:
        return f"were off-CPU for {waited} (Profiler(waits=True) shows why){_shared(waits)}"
    parts = [f"{waited} for a CPU{_shared(waits)}"] if waits.waited else []
    parts += [f"{seconds(locked)} for these threads or for locks"] if locked else []
    return f"waited {'; '.join(parts)}"


def _shared(waits: CpuWaits) -> str:
    """What other programs had of the waits."""
    if waits.others < WORTH_NAMING_OTHERS * waits.waited:
        return ""
    return f", {seconds(waits.others)} of it while other programs had the CPUs"


def _pools_advice(libraries: Sequence[str]) -> str:
    names = [VARIABLES[library] for library in libraries or USUAL]
    settings = [f"{name}=1" for name in dict.fromkeys(names)]
    if not libraries:
        return f"find out which library it is; try {' or '.join(settings)} before Python starts"
    advice = f"set {' and '.join(settings)} before Python starts"
    if "arrow" in libraries:
        return f"{advice}, or call pyarrow.set_cpu_count(1)"
    return f"{advice}, or compute inside threadpoolctl.threadpool_limits(1)"


OTHERS = 0.1
"""Least share of the CPUs that other programs used."""
WAITED_FOR_OTHERS = 0.075
"""Least share of the tasks' time that they waited for CPUs which other programs used."""
NO_CPU_LEFT = 0.85
"""Without recorded waits: least share of the CPUs that was used, by whomever."""


def busy_machine(analysis: Analysis) -> Finding | None:
    """Other programs that took CPUs which tasks waited for."""
    computations = analysis.recording.computations
    others = float(np.nansum(computations.others_cpu))
    available = analysis.cpus * analysis.wall
    if others < OTHERS * available:
        return None
    waits = cpu_waits(analysis)
    waited_for = "waited {} for"
    if not analysis.seconds_waited:
        used = np.nansum([others, *computations.process_cpu, *computations.children_cpu])
        if used < NO_CPU_LEFT * available:
            return None
        waited_for = "were off-CPU for {}, perhaps waiting for"
    share = waits.others / analysis.in_tasks if analysis.in_tasks else 0.0
    if share < WAITED_FOR_OTHERS:
        return None
    severity = severity_of_share(share) if analysis.seconds_waited else severity_of_guess(share)
    saved, kind = seconds_saved_without(analysis, waits.others, waits.waited, idle_machine=True)
    return Finding(
        "busy-machine",
        severity,
        saved,
        # Each of several computations at once has all of it.
        f"Other programs used {seconds(others / analysis.overlap)} of CPU meanwhile, "
        f"{percent(others / available)} of "
        f"{analysis.cpus} CPUs; tasks {waited_for.format(seconds(waits.waited))} a CPU",
        "measure again when the machine is idle; else use no more workers than there are free CPUs",
        kind=kind,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.CPU_WAIT)),
    )
