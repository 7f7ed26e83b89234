"""The finding on native thread pools inside tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import Finding, severity_of_guess, severity_of_share
from dask_diag.analysis.findings.function_names import in_words
from dask_diag.formatting import amount, seconds

__all__ = ["thread_oversubscription"]

AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
OUTSIDE_OF_WALL = 0.05
"""Least share of the wall time that other threads than the tasks' used a CPU."""
OUTSIDE = 0.15
"""Least share of the CPU time that other threads than the tasks' used."""
WAITED = 0.075
"""Least share of the tasks' time that they waited for a CPU."""
ALL_BUSY = 0.8
"""Without recorded waits: least share of all CPUs that was busy, or else"""
PREEMPTED_A_SECOND = 100.0
"""the least rate of involuntary context switches per second."""
VARIABLES = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
    "openmp": "OMP_NUM_THREADS",
    "flexiblas": "FLEXIBLAS_NUM_THREADS",
}
USUAL = ("openblas", "openmp", "mkl")


def thread_oversubscription(analysis: Analysis) -> Finding | None:
    """Native thread pools and workers that compete for the CPUs."""
    outside = analysis.known_cpu_outside_tasks
    if analysis.share_at_once < AT_ONCE or outside <= OUTSIDE_OF_WALL * analysis.wall:
        return None
    if outside < OUTSIDE * (outside + analysis.cpu_in_tasks):
        return None
    pools = [row for row in analysis.recording.pools.to_dicts() if row["threads"] > 1]
    largest = max((row["threads"] for row in pools), default=0)
    if pools and analysis.at_once * largest <= analysis.cpus:
        return None
    if not pools and not (_has_unknown_pools(analysis) and _too_many_without_pools(analysis)):
        return None
    if analysis.seconds_waited:
        waited, waited_for = analysis.seconds_waited.get("cpu-wait", 0.0), "waited {} for a CPU"
    else:
        waited = float(np.nansum(analysis.recording.tasks.thread_noncpu))
        waited_for = "were off-CPU for {} (Profiler(waits=True) or dask-diag run --waits shows why)"
    share = waited / analysis.in_tasks
    if share < WAITED:
        return None
    libraries = sorted({row["library"] for row in pools})
    evidence = (
        f"used {seconds(outside)} of CPU time, the tasks' own threads "
        f"{seconds(analysis.cpu_in_tasks)}; tasks {waited_for.format(seconds(waited))}"
    )
    if pools:
        severity = severity_of_share(share)
        evidence = (
            f"{amount(analysis.at_once)} concurrent tasks called {in_words(libraries)} (a pool of "
            f"{largest} threads) on {analysis.cpus} CPUs. The pools {evidence}"
        )
        advice = (
            f"set {_settings(libraries, ' and ')} before Python starts, or compute inside "
            "threadpoolctl.threadpool_limits(1)"
        )
    else:
        severity = severity_of_guess(share)
        evidence = (
            f"{amount(analysis.at_once)} concurrent tasks ran on {analysis.cpus} CPUs. Other "
            f"threads, perhaps a native thread pool (not known without threadpoolctl), {evidence}"
        )
        advice = (
            f"install threadpoolctl to see native thread pools; if there is one, set "
            f"{_settings(USUAL, ' or ')} before Python starts"
        )
    return Finding("thread-oversubscription", severity, waited / analysis.at_once, evidence, advice)


def _settings(libraries: Sequence[str], between: str) -> str:
    names = [VARIABLES.get(name, "OMP_NUM_THREADS") for name in libraries]
    return between.join(f"{name}=1" for name in dict.fromkeys(names))


def _has_unknown_pools(analysis: Analysis) -> bool:
    """Whether the native thread pools of a computation could not be listed."""
    return bool((analysis.recording.pools.known == 0).any())


def _too_many_without_pools(analysis: Analysis) -> bool:
    """Whether there were more threads than CPUs, where the pools are not known."""
    if analysis.seconds_waited:
        return True
    preempted = float(np.nansum(analysis.recording.computations.involuntary_switches))
    used = analysis.cpu_in_tasks + analysis.known_cpu_outside_tasks
    return (
        used > ALL_BUSY * analysis.cpus * analysis.busy_wall
        or preempted > PREEMPTED_A_SECOND * analysis.busy_wall
    )
