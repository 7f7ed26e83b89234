"""The finding on native thread pools inside tasks."""

from __future__ import annotations

from collections.abc import Sequence

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
from dask_diag.formatting import amount, seconds
from dask_diag.schema import Activity

__all__ = ["thread_oversubscription"]

AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
OUTSIDE_OF_WALL = 0.05
"""CPU time of the pools' threads must be more than this share of the wall time."""
OUTSIDE = 0.15
"""Least share of the CPU time of pools and tasks together that the pools' threads used."""
WAITED = 0.075
"""Least share of the tasks' time that they waited for a CPU, or for the pools' threads."""
WORTH_NAMING_OTHERS = 0.1
"""Least share of the waits that is reported as that of other programs."""


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
    waits = cpu_waits(analysis)
    # A task waits for its library's threads as for a lock.
    locked = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0)
    if (waits.waited + locked) / analysis.in_tasks < WAITED:
        return None
    share = (waits.pools + locked) / analysis.in_tasks
    saved, kind = seconds_saved_without(analysis, waits.pools, waits.waited, idle_pools=True)
    blocked = analysis.waits_of_tasks(Activity.CPU_WAIT)
    if locked:
        saved += _saved_without_locks(analysis, waits, used)
        blocked = blocked + analysis.waits_of_tasks(Activity.LOCK_WAIT)
    libraries = sorted(pool.name for pool in pools if pool.name)
    called = in_words(libraries) or "a native library whose name is not known"
    return Finding(
        "thread-oversubscription",
        severity_of_share(share) if libraries else severity_of_guess(share),
        saved,
        f"{amount(analysis.at_once)} concurrent tasks called {called} (up to {largest} threads) "
        f"on {analysis.cpus} CPUs. Its threads used {seconds(used)} of CPU time, the tasks' own "
        f"threads {seconds(analysis.cpu_in_tasks)}; tasks {_waited(analysis, waits, locked)}",
        _advice(libraries),
        # Threads of a library that is not known may do something else.
        kind=kind if libraries else AT_MOST,
        where=where_of_tasks(analysis.recording, blocked),
    )


def _saved_without_locks(analysis: Analysis, waits: CpuWaits, used: float) -> float:
    """What is gained besides if no task waits for the pools' threads, which compute no more."""
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
