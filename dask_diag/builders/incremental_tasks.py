"""The tasks since the last chunk, while computations run, in the order of collection."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.builders.chunks import Increment, Tables
from dask_diag.builders.incremental_computation import IncrementalComputation, Part, ResultSource
from dask_diag.builders.recording import computations_table, pools_table
from dask_diag.builders.tasks import with_workers_named
from dask_diag.builders.threads import threads_table
from dask_diag.builders.workers import Workers, workers_table
from dask_diag.capture.session import Session
from dask_diag.model.table import NO_ROWS, stack
from dask_diag.schema import REFERENCES

if TYPE_CHECKING:
    from dask_diag.builders.cluster import ClusterTables
    from dask_diag.capture.cluster.log import ClusterLog

__all__ = ["IncrementalTasks"]


class IncrementalTasks:
    """The tasks and the computations of a Profiler, their results, and what refers to tasks by row.

    Parameters
    ----------
    session : Session
    logs : callable, optional
        Returns what was pulled from clusters.
    results : CacheProfiler, optional
        What measures results, if one does.
    """

    def __init__(
        self,
        session: Session,
        logs: Callable[[], Sequence[ClusterLog]] = tuple,
        results: ResultSource | None = None,
    ) -> None:
        self._session = session
        self._logs = logs
        self._results = results
        self._results_on_clusters = results.results_on_clusters() if results else None
        self._clusters: ClusterTables | None = None
        self._seen: set[int] = set()
        self._live: list[IncrementalComputation] = []
        self._workers: Workers = {}
        self._rows = 0

    def take(self) -> Increment:
        """The tasks collected and the computations ended since last asked; and what runs now."""
        for computation in tuple(self._session.computations):
            if computation.number not in self._seen:
                self._seen.add(computation.number)
                self._live.append(IncrementalComputation(computation, self._results))
        parts = [(source, source.take()) for source in self._live]
        # Of tasks that run none has started later than the computation is said to have reached.
        now = perf_counter()
        collected, in_flight = [], []
        for source, part in parts:
            collected.append(source.collected(part, self._workers, self._rows))
            self._rows += len(collected[-1]["tasks"])
        on_clusters = self._of_clusters(now)
        rows = self._rows
        running = [(source, part) for source, part in parts if part.info.stop is None]
        for source, part in running:
            in_flight.append(source.in_flight(part, self._workers, rows))
            rows += len(in_flight[-1]["tasks"])
        self._live = [source for source, _ in running]
        ended = [(source, part) for source, part in parts if part.info.stop is not None]
        tables = self._together(collected, ended, now), self._together(in_flight, running, now)
        for local, others in zip(tables, on_clusters, strict=True):
            for name, table in others.items():
                local[name] = stack([local[name], table]) if name in local else table
        if self._results_on_clusters is not None:
            new = tables[0]
            new["cached_results"] = stack([new["cached_results"], self._results_on_clusters()])
        return tables

    def _of_clusters(self, now: float) -> Increment:
        """What was pulled from clusters since last asked."""
        logs = self._logs()
        if not logs:
            return {}, {}
        if self._clusters is None:
            from dask_diag.builders.cluster import ClusterTables

            self._clusters = ClusterTables()
        new, provisional = self._clusters.take(logs, self._rows, now)
        self._rows += len(new["tasks"])
        return new, provisional

    def _together(
        self,
        parts: Sequence[Tables],
        computations: Sequence[tuple[IncrementalComputation, Part]],
        now: float,
    ) -> Tables:
        tables = {
            name: stack([*(part[name] for part in parts if name in part), NO_ROWS])
            for name in ("tasks", "cached_results", *REFERENCES)
        }
        tasks = tables["tasks"]
        # A table without rows has no columns of workers yet.
        tables["tasks"] = with_workers_named(tasks, self._workers) if len(tasks) else NO_ROWS
        infos = [part.info for _, part in computations]
        return {
            **tables,
            "computations": computations_table(infos, now),
            "pools": pools_table(infos),
            "workers": workers_table(infos),
            "threads": threads_table((part.info, source.threads) for source, part in computations),
        }
