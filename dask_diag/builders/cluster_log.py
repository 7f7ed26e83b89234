"""The tables of what one client has pulled of its cluster, batch by batch."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from toolz import merge_with

from dask_diag.builders.chunks import Tables
from dask_diag.builders.clocks import microseconds
from dask_diag.builders.cluster_rows import metrics_of, others_of, transfers_of, waits_of
from dask_diag.builders.cluster_tasks import RUN, tasks_of
from dask_diag.builders.cluster_workers import Lanes, SeenEvents, worker_events_of
from dask_diag.builders.constants import constant
from dask_diag.capture.cluster.batch import Batch, ClusterComputation
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Categorical, IntArray, Values
from dask_diag.model import tables
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES

__all__ = ["LogTables"]

_SECONDS_UNTIL_FINAL = 1.0
"""A computation that has stopped may go on, if tasks are run again."""


class LogTables:
    """The tables of what one client has pulled, from where they were taken last."""

    def __init__(self, log: ClusterLog, events: SeenEvents, lanes: Lanes) -> None:
        self._log = log
        self._events = events
        self._batches = 0
        self._computations: set[int] = set()
        self._lanes = lanes
        self._ids: IntArray = np.zeros(0, np.int64)
        self._positions: IntArray = np.zeros(0, np.int64)

    def take(self, position: int) -> Tables:
        """The tasks that are new, and what refers to them."""
        batches = self._log.batches[self._batches :]
        self._batches += len(batches)
        parts = []
        for batch in batches:
            ids = np.frombuffer(batch.ids, np.int64)
            self._ids = np.concatenate([self._ids, ids])
            self._positions = np.concatenate([self._positions, np.arange(len(ids)) + position])
            parts.append(self._tables_of(batch, ids, position))
            position += len(ids)
        names = (
            *("tasks", "dependencies", "metrics", "waits", "transfers"),
            *("other_tasks", "worker_events"),
        )
        made: Tables = merge_with(stack, {name: TABLES[name].empty() for name in names}, *parts)
        return made

    def take_computations(self, now: float) -> tuple[Table, Table]:
        """The computations that are done and were not taken before, and those that run."""
        log = self._log
        finished, running = [], []
        for index, computation in tuple(log.computations.items()):
            if index in self._computations:
                continue
            stop = computation.stop
            if log.has_ended or (
                stop is not None and now - (stop - log.offset) > _SECONDS_UNTIL_FINAL
            ):
                self._computations.add(index)
                finished.append(computation)
            else:
                running.append(computation)
        return _computations_of(finished, log, now), _computations_of(running, log, now)

    def _tables_of(self, batch: Batch, ids: IntArray, position: int) -> Tables:
        log = self._log
        runs = np.frombuffer(batch.rows, RUN)
        positions = np.arange(len(runs)) + position
        counts = runs["dependencies"]
        depends_on = self._positions_of(np.frombuffer(batch.depends_on, np.int64))
        task = np.repeat(positions, counts)
        is_recorded = depends_on >= 0
        row_of = dict(zip(ids.tolist(), positions.tolist(), strict=True))
        return {
            "tasks": tasks_of(batch, log, self._lanes),
            "dependencies": Table(
                {"task": task[is_recorded], "depends_on": depends_on[is_recorded]}
            ),
            "metrics": metrics_of(
                {row_of[n]: details.metrics for n, details in batch.details.items()}
            ),
            "waits": waits_of({row_of[n]: details.waits for n, details in batch.details.items()}),
            "transfers": transfers_of(batch, log, self._positions_of),
            "other_tasks": others_of(batch, log),
            "worker_events": worker_events_of(batch, log, self._events),
        }

    def _positions_of(self, ids: IntArray) -> IntArray:
        """Where runs are in `tasks`; -1 where they were not recorded."""
        if not len(self._ids):
            return np.full(len(ids), -1)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[at] == ids, self._positions[at], -1)


def _computations_of(
    computations: Sequence[ClusterComputation], log: ClusterLog, now: float
) -> tables.Computations:
    count = len(computations)
    start = np.array([computation.start - log.offset for computation in computations], float)
    # As those of their tasks.
    start = microseconds(start, np.floor)
    stop = [
        now if computation.stop is None else computation.stop - log.offset
        for computation in computations
    ]
    columns_known: dict[str, Values] = {
        "computation": Categorical.of(computation.name for computation in computations),
        **dict.fromkeys(("called", "start", "prepared"), start),
        "stop": microseconds(np.array(stop, float), np.ceil),
        "workers": np.array([computation.workers for computation in computations], np.int64),
        "scheduler_cpu": np.array(
            [computation.scheduler_cpu for computation in computations], float
        ),
        "span": Categorical.of(computation.span for computation in computations),
        "scheduler": constant("distributed", count),
        "cluster": constant(log.scheduler, count),
        "error": constant("", count),
        "pool_end": constant("", count),
    }
    columns = tables.Computations.schema
    unknown = {name: _unknown(column.kind, count) for name, column in columns.items()}
    return tables.Computations({**unknown, **columns_known})


def _unknown(kind: str, count: int) -> Values:
    if kind == "category":
        return constant("", count)
    return np.full(count, np.nan) if kind == "float" else np.zeros(count, np.int64)
