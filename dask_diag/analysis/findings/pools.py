"""The finding on native thread pools inside tasks."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.cpu_waits import (
    USUAL,
    VARIABLES,
    CpuWaits,
    cpu_waits,
    is_pool,
    seconds_saved_without,
)
from dask_diag.analysis.findings.finding import (
    AT_MOST,
    Finding,
    severity_of_guess,
    severity_of_share,
)
from dask_diag.analysis.findings.function_names import in_words
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.analysis.program_lines import cpu_share_of_linear_algebra
from dask_diag.analysis.thread_groups import ThreadGroup
from dask_diag.formatting import amount, seconds
from dask_diag.schema import Activity

__all__ = ["thread_oversubscription"]

AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
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
        _advice(libraries),
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


def _advice(libraries: Sequence[str]) -> str:
    names = [VARIABLES[library] for library in libraries or USUAL]
    settings = [f"{name}=1" for name in dict.fromkeys(names)]
    if not libraries:
        return f"find out which library it is; try {' or '.join(settings)} before Python starts"
    advice = f"set {' and '.join(settings)} before Python starts"
    if "arrow" in libraries:
        return f"{advice}, or call pyarrow.set_cpu_count(1)"
    return f"{advice}, or compute inside threadpoolctl.threadpool_limits(1)"
