"""What several findings advise, and what a remedy must gain to be advised."""

from __future__ import annotations

from dask_diag.analysis.memory_headroom import MemoryHeadroom

__all__ = ["FIND_OUT", "WORTH_GAINING", "memory_not_recorded", "together"]

FIND_OUT = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits)"
WORTH_GAINING = 0.1
"""Least share of the wall time of all computations that a remedy is predicted to gain."""


def memory_not_recorded(headroom: MemoryHeadroom) -> str:
    """What is said beside an advice to run more tasks at once that may not fit into memory."""
    return "" if headroom.is_known else "; each needs its memory, which was not recorded"


def together(computations: int) -> str:
    """How an advice starts if there were several computations."""
    if computations < 2:
        return ""
    return (
        "compute results that do not depend on each other together, dask.compute(a, b), so that "
        "their tasks run at once; "
    )
