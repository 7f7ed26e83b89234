"""The finding on libraries that run threads of their own within tasks."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_diag.analysis.findings.facts import Facts, in_words
from dask_diag.analysis.findings.finding import Finding, severity_of_guess, severity_of_share
from dask_diag.formatting import seconds

__all__ = ["thread_oversubscription"]

AT_ONCE = 0.1
"""The share of time in which several tasks ran, from which on they may have hindered each other."""
OUTSIDE_OF_WALL = 0.05
"""The share of the wall time that CPU time on other threads than the tasks' must be more than."""
OUTSIDE = 0.15
"""The share of CPU time on other threads than the tasks' from which on it may be a pool's."""
WAITED = 0.075
"""The share of the tasks' time that they waited for a processor."""
ALL_BUSY = 0.8
"""Where waits were not told apart: the part of all processors that must have been busy, or else"""
PREEMPTED_A_SECOND = 100.0
"""how often threads must have lost their processor though they could have gone on."""
VARIABLES = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
    "openmp": "OMP_NUM_THREADS",
    "flexiblas": "FLEXIBLAS_NUM_THREADS",
}
USUAL = ("openblas", "openmp", "mkl")


def thread_oversubscription(facts: Facts) -> Finding | None:
    """Pools of libraries' threads within the threads of tasks."""
    outside = facts.cpu_outside
    if facts.share_at_once < AT_ONCE or outside <= OUTSIDE_OF_WALL * facts.wall:
        return None
    if outside < OUTSIDE * (outside + facts.cpu_in_tasks):
        return None
    pools = [row for row in facts.recording.pools.to_dicts() if row["threads"] > 1]
    largest = max((row["threads"] for row in pools), default=0)
    if pools and facts.at_once * largest <= facts.processors:
        return None
    if not pools and not (facts.pools_unknown and _too_many_without_pools(facts)):
        return None
    if facts.waits:
        waited, waited_for = facts.waits.get("cpu-wait", 0.0), "for a processor"
    else:
        waited = float(np.nansum(facts.recording.tasks["thread_noncpu"]))
        waited_for = (
            "without CPU time (Profiler(waits=True) or dask-diag run --waits tells for what)"
        )
    share = waited / facts.in_tasks
    if share < WAITED:
        return None
    libraries = sorted({row["library"] for row in pools})
    evidence = (
        f"{seconds(outside)} of CPU time beside the tasks' own {seconds(facts.cpu_in_tasks)}, "
        f"while tasks waited {seconds(waited)} {waited_for}"
    )
    if pools:
        severity = severity_of_share(share)
        evidence = (
            f"several tasks at once called {in_words(libraries)}, which runs a pool of {largest} "
            f"threads, on {facts.processors} processors: the pools had {evidence}"
        )
        advice = (
            f"set {_settings(libraries, ' and ')} before Python starts, or compute within "
            "threadpoolctl.threadpool_limits(1)"
        )
    else:
        severity = severity_of_guess(share)
        evidence = (
            f"several tasks at once ran on {facts.processors} processors, and threads of what may "
            f"be a library's pool (which one is not known without threadpoolctl) had {evidence}"
        )
        advice = (
            f"pip install threadpoolctl to be sure; if it is a pool, set the variable of its "
            f"library, {_settings(USUAL, ' or ')}, before Python starts"
        )
    return Finding("thread-oversubscription", severity, waited / facts.at_once, evidence, advice)


def _settings(libraries: Sequence[str], between: str) -> str:
    names = [VARIABLES.get(name, "OMP_NUM_THREADS") for name in libraries]
    return between.join(f"{name}=1" for name in dict.fromkeys(names))


def _too_many_without_pools(facts: Facts) -> bool:
    """Whether there were more threads than processors, as far as it is known without the pools."""
    if facts.waits:
        return True
    preempted = float(np.nansum(facts.recording.computations["involuntary_switches"]))
    used = facts.cpu_in_tasks + facts.cpu_outside
    return (
        used > ALL_BUSY * facts.processors * facts.busy_wall
        or preempted > PREEMPTED_A_SECOND * facts.busy_wall
    )
