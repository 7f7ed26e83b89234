"""Who had the CPUs that tasks waited for: each second of waiting is attributed once."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST
from dask_diag.analysis.thread_groups import ThreadGroup
from dask_diag.schema import Activity

__all__ = ["USUAL", "VARIABLES", "CpuWaits", "cpu_waits", "is_pool", "seconds_saved_without"]

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
