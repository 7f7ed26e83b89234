"""The call stacks sampled so far, while computations run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.builders.chunks import Increment
from dask_diag.builders.stacks import SeenBefore, joined_stacks, stacks_as_seen, stacks_tables
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.session import Session

if TYPE_CHECKING:
    from dask_diag.builders.cluster_stacks import ClusterStacks
    from dask_diag.capture.cluster.log import ClusterLog

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
    logs : callable
        Returns what was pulled from clusters.
    """

    def __init__(
        self,
        session: Session,
        stacks: Stacks,
        is_active: Callable[[], bool],
        logs: Callable[[], Sequence[ClusterLog]] = tuple,
    ) -> None:
        self._session = session
        self._logs = logs
        self._clusters: ClusterStacks | None = None
        self._stacks = stacks
        self._is_active = is_active
        self._before = SeenBefore()

    def take(self) -> Increment:
        """Nothing for good, and all samples so far; final once the profiler has ended."""
        clusters = self._of_clusters()
        began = min((log.began for log in self._logs()), default=inf)
        if self._is_active():
            local = stacks_as_seen(self._stacks, _MOST_CELLS, before=self._before, began=began)
            others = clusters.as_seen(_MOST_CELLS) if clusters else []
        else:
            session = self._session
            start, stop = session.start, session.stop
            local = stacks_tables(self._stacks, session.snapshots(), start, stop, began)
            now = perf_counter()
            others = clusters.scaled(start or now, stop or now) if clusters else []
        return {}, joined_stacks([local, *others]) if others else local

    def _of_clusters(self) -> ClusterStacks | None:
        logs = self._logs()
        if logs and self._clusters is None:
            from dask_diag.builders.cluster_stacks import ClusterStacks

            self._clusters = ClusterStacks(self._stacks.finest)
        if self._clusters is not None:
            self._clusters.take(logs)
        return self._clusters
