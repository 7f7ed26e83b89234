"""The call stacks sampled so far, while computations run."""

from __future__ import annotations

from collections.abc import Callable

from dask_diag.builders.chunks import Taken
from dask_diag.builders.stacks import stacks_as_seen, stacks_tables
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.session import Session

__all__ = ["IncrementalStacks"]

_MOST_CELLS = 20_000
"""Rows written while computations run; if there are more, cycles are merged: it is cheap."""


class IncrementalStacks:
    """The call stacks that a SamplingProfiler sampled.

    All rows are written again each time, since what samples represent is known only when their
    tasks have ended. Until then they are written as they were sampled.

    Parameters
    ----------
    session : Session
    stacks : Stacks
    is_active : callable
        Whether the profiler still samples.
    """

    def __init__(self, session: Session, stacks: Stacks, is_active: Callable[[], bool]) -> None:
        self._session = session
        self._stacks = stacks
        self._is_active = is_active

    def take(self) -> Taken:
        """Nothing for good, and all samples so far; final once the profiler has ended."""
        if self._is_active():
            return {}, stacks_as_seen(self._stacks, _MOST_CELLS)
        session = self._session
        return {}, stacks_tables(self._stacks, session.snapshots(), session.start, session.stop)
