"""From what was pulled of clusters to the tables of a Recording."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from time import perf_counter

import numpy as np
from toolz import merge_with

from dask_diag.capture.build import Increment, Tables
from dask_diag.capture.workers_table import constant
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.messages import Batch, ClusterComputation
from dask_diag.cluster.tasks_table import (
    RUN,
    metrics_of,
    others_of,
    tasks_of,
    transfers_of,
    waits_of,
)
from dask_diag.cluster.workers_table import (
    Lanes,
    RemoteProcesses,
    SeenEvents,
    cluster_workers_table,
    memory_at,
    microseconds,
    rows_by_process,
    worker_events_of,
)
from dask_diag.columns import Categorical, FloatArray, IntArray, Values
from dask_diag.model import tables
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording, combine
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES

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


def with_remote_memory(
    memory: tables.Memory, logs: Mapping[str, Sequence[ClusterLog]]
) -> tables.Memory:
    """The series, by label, with what processes had that are not of this one's tree.

    Of these only what is resident is known: a series has no other measure if it has any of them.
    """
    columns = {name: np.array(memory[name]) for name in memory.columns if name != "label"}
    for label, of_series in logs.items():
        rows = memory.label.where(label)
        remote = RemoteProcesses().take(of_series)
        for process_rows in rows_by_process(remote) if len(remote) and rows.any() else ():
            process = remote.rows(
                process_rows[np.argsort(remote["time"][process_rows], kind="stable")]
            )
            resident = _resident_at(columns["time"][rows], process)
            columns["rss"][rows] += resident
            columns["processes"][rows] += resident > 0
            for name in ("pss", "uss"):
                columns[name][rows] = np.nan
    return tables.Memory({"label": memory.label, **columns})


def _resident_at(times: FloatArray, process: Table) -> FloatArray:
    """As it was sampled last; it was there at most one interval before it was sampled first."""
    sampled = process["time"]
    interval = float(np.median(np.diff(sampled))) if len(sampled) > 1 else 0.0
    is_first = (times < sampled[0]) & (times >= sampled[0] - interval)
    return np.where(is_first, process["memory"][0], memory_at(times, process))


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
