"""What programs that tasks started computed, for findings on tasks that wait."""

from __future__ import annotations

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.cpu_accounting import cpus_of_others, cpus_sampled, seconds_beside

__all__ = ["cpus_used", "seconds_of_children"]


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
