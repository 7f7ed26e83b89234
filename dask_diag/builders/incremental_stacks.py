"""The stacks seen so far, while computations run; see stream.py."""

from __future__ import annotations

from dask_diag.builders.incremental import Taken
from dask_diag.builders.stacks import stacks_as_seen, stacks_tables
from dask_diag.profilers.sampling import SamplingProfiler

__all__ = ["IncrementalStacks"]

_MOST_CELLS = 20_000
"""That are told while computations run; if there are more, cycles are taken together: it is
cheap."""


class IncrementalStacks:
    """The stacks that a SamplingProfiler saw.

    All is told anew each time, since what samples stand for is known only when their tasks have
    ended. Until then it is told as it was seen.
    """

    def __init__(self, profiler: SamplingProfiler) -> None:
        self._profiler = profiler

    def take(self) -> Taken:
        """Nothing for good, and what was seen so far; when the profiler has ended that is all."""
        profiler = self._profiler
        if profiler._is_active():
            return {}, stacks_as_seen(profiler._stacks, _MOST_CELLS)
        return {}, stacks_tables(profiler._stacks, profiler._computations)
