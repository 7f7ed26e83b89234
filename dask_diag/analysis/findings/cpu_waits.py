"""Waits of tasks for CPUs, divided among those who had them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.analysis.cpu import ThreadGroup
from dask_diag.analysis.facts import Analysis
from dask_diag.model.codes import Activity

VARIABLES = {
    "openblas": "OPENBLAS_NUM_THREADS",
    "mkl": "MKL_NUM_THREADS",
    "blis": "BLIS_NUM_THREADS",
    "openmp": "OMP_NUM_THREADS",
    "flexiblas": "FLEXIBLAS_NUM_THREADS",
    "arrow": "OMP_NUM_THREADS",
}
"""Variables that limit the threads of a library; Arrow heeds OpenMP's."""
USUAL = ("openblas", "openmp", "mkl")
"""Libraries to limit where it is not known which ones are loaded."""


class CpuWaits(NamedTuple):
    """Seconds that tasks waited for CPUs, divided among competitors.

    Attributes
    ----------
    waited : float
        Seconds of ``cpu-wait``; all off-CPU seconds if waits were not recorded.
    pools, others : float
        Seconds in which native pools, or other programs, had the CPUs: no more than their CPU time,
        for each of the tasks that share a CPU. Waits are divided in proportion to the CPU time of
        all competitors: tasks, scheduler, Python threads, programs started by tasks, and profilers.
    """

    waited: float
    pools: float = 0.0
    others: float = 0.0


def cpu_waits(analysis: Analysis, spinning: float = 0.0) -> CpuWaits:
    """Waits for CPUs of all computations.

    Parameters
    ----------
    analysis : Analysis
    spinning : float, optional
        CPU seconds of the tasks to count as CPU seconds of native pools.
    """
    waited = analysis.waited(Activity.CPU_WAIT)
    if not analysis.has_waits:
        waited = max(0.0, analysis.off_cpu_in_tasks)
    # While a limit holds the program back, all that run wait, whatever other programs do.
    held = analysis.held_back / analysis.computing if analysis.computing else 0.0
    waited = max(0.0, waited - held * analysis.wall * analysis.at_once)
    groups = [group for group in analysis.thread_groups if group.kind != "tasks"]
    pools = spinning + sum(group.cpu for group in groups if is_pool(group))
    rest = sum(group.cpu for group in groups if not is_pool(group)) + analysis.cpu_of_children
    others = float(np.nansum(analysis.computations.cpu_other_processes)) * (1 - held)
    # Tasks compete with each other where more run than there are CPUs.
    sharing = max(1.0, analysis.at_once / analysis.cpus)
    used = pools + rest + others + (1 - 1 / sharing) * (analysis.cpu_in_tasks - spinning)
    if not used:
        return CpuWaits(waited)
    # A second of a CPU that is free is a part of a second for all tasks that share the CPUs.
    return CpuWaits(waited, *(min(cpu * sharing, waited * cpu / used) for cpu in (pools, others)))


def is_pool(group: ThreadGroup) -> bool:
    """Whether threads belong to a library with a variable in `VARIABLES`, or to an unknown one."""
    return group.kind == "native" and (group.name in VARIABLES or not group.name)
