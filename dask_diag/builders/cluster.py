"""From what was pulled of clusters to the tables of a Recording."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from itertools import chain
from time import perf_counter

import numpy as np
from toolz import merge_with

from dask_diag.builders.chunks import Increment, Tables
from dask_diag.builders.cluster_log import LogTables
from dask_diag.builders.cluster_workers import Lanes, SeenEvents, cluster_workers_table
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.model import tables
from dask_diag.model.recording import Recording, combine
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES
from dask_diag.schema import Outcome

__all__ = ["ClusterTables", "results_of", "with_clusters"]


TaskResult = tuple[Hashable, str, float, float, str]


class ClusterTables:
    """Makes tables of what clients pull, batch by batch."""

    def __init__(self) -> None:
        self._parts: dict[int, LogTables] = {}
        self._events: SeenEvents = set()
        self._lanes = Lanes()

    def take(self, logs: Sequence[ClusterLog], position: int, now: float) -> Increment:
        """What is new, of which the first task is to be at `position`; and what may change."""
        new: list[Tables] = []
        unfinished: list[Table] = []
        for log in logs:
            part = self._parts.setdefault(id(log), LogTables(log, self._events, self._lanes))
            new_tables = part.take(position)
            position += len(new_tables["tasks"])
            finished, running = part.take_computations(now)
            unfinished.append(running)
            new.append({**new_tables, "computations": finished})
        return (
            merge_with(stack, new),
            {
                "computations": stack([*unfinished, tables.Computations.empty()]),
                "workers": cluster_workers_table(logs),
            },
        )

    def without_tasks(self, logs: Sequence[ClusterLog], now: float) -> Tables:
        """The computations and the workers."""
        parts = (LogTables(log, self._events, self._lanes).take_computations(now) for log in logs)
        return {
            "computations": stack([*chain(*parts), tables.Computations.empty()]),
            "workers": cluster_workers_table(logs),
        }

    def take_all(self, logs: Sequence[ClusterLog], now: float) -> Tables:
        """Everything, new or not."""
        everything: Tables = merge_with(stack, *self.take(logs, 0, now))
        return everything


_OF_TASKS = (
    *("tasks", "dependencies", "metrics", "waits", "transfers"),
    *("other_tasks", "worker_events"),
)


def with_clusters(
    recording: Recording, logs: Sequence[ClusterLog], sampled: Tables | None = None
) -> Recording:
    """A recording of this process, with what ran on clusters.

    It has the tasks; or, if there are tables of something else that was sampled, these.
    """
    take = ClusterTables().take_all if sampled is None else ClusterTables().without_tasks
    made = take(logs, perf_counter())
    computations = made["computations"]
    chosen = {name: made[name] for name in _OF_TASKS} if sampled is None else sampled
    on_clusters = Recording(
        start=recording.start,
        stop=max(recording.stop, float(computations["stop"].max(initial=-np.inf))),
        epoch=recording.epoch,
        run_id=recording.run_id,
        metric=recording.metric,
        metric_unit=recording.metric_unit,
        computations=tables.Computations.of(computations),
        workers=tables.Workers.of(made["workers"]),
        **{name: TABLES[name].of(table) for name, table in chosen.items()},  # type: ignore[arg-type]
    )
    return combine([recording, on_clusters])


def results_of(logs: Sequence[ClusterLog]) -> list[list[TaskResult]]:
    """Key, function, start, stop and worker of each task that was done, log by log."""
    lanes = Lanes()
    return [list(_results_of_log(log, lanes)) for log in logs]


def _results_of_log(log: ClusterLog, lanes: Lanes) -> Iterator[TaskResult]:
    tasks = LogTables(log, set(), lanes).take(0)["tasks"]
    keys = [key for batch in log.batches for key in batch.keys]
    columns = [tasks[name].tolist() for name in ("function", "start", "stop", "worker")]
    ok = tasks["outcome"].where(Outcome.OK).tolist()
    rows = zip(keys, *columns, strict=True)
    return (row for row, is_ok in zip(rows, ok, strict=True) if is_ok)
