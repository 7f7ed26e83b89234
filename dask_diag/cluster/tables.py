"""Tables of a Recording from pulled rows of clusters."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import compress
from time import perf_counter

import numpy as np

from dask_diag.capture.build import Increment, Tables, joined
from dask_diag.capture.computation import rows_of_steps
from dask_diag.capture.lines.tables import LineTables
from dask_diag.capture.repeated import RepeatedStep
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.tasks_table import others_of, tasks_of, transfers_of
from dask_diag.cluster.wire import RUN, Batch, ChunkOfEvents, ClusterComputation
from dask_diag.cluster.workers_table import (
    Lanes,
    RemoteProcesses,
    UnreadBatches,
    cluster_workers_table,
    memory_at,
    microseconds,
    samples_by_process,
    worker_events_of,
)
from dask_diag.columns import IntArray
from dask_diag.model import tables
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording, combine
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES

_SECONDS_UNTIL_FINAL = 1.0
"""A computation that has stopped may go on, if tasks are run again."""
_TABLES_OF_TASKS = (
    *("tasks", "dependencies", "metrics", "waits", "transfers"),
    *("other_tasks", "worker_events", "chunks", "branches"),
)


class RunPositions:
    """The rows of runs in the table of tasks, by the ids of runs."""

    def __init__(self) -> None:
        # No run has this id, which is larger than all others.
        self._runs: IntArray = np.array([[np.iinfo(np.int64).max], [-1]])

    def add(self, ids: IntArray, positions: IntArray) -> None:
        """Add runs, whose ids are larger than the ids of all before."""
        new = np.stack([ids, positions])
        self._runs = np.concatenate([self._runs[:, :-1], new, self._runs[:, -1:]], axis=1)

    def find(self, ids: IntArray) -> IntArray:
        """The rows of runs; -1 for a run that is not recorded."""
        known, positions = self._runs
        at = np.searchsorted(known, ids)
        return np.where(known[at] == ids, positions[at], -1)


class ClusterTables:
    """Makes tables of batches.

    Parameters
    ----------
    lines : LineTables
        Numbers the kinds of tasks.
    """

    def __init__(self, lines: LineTables) -> None:
        self._lines = lines
        self._unread = UnreadBatches()
        self._positions: dict[int, RunPositions] = {}
        self._final: set[tuple[int, int]] = set()
        self._lanes = Lanes()
        self._seen_branches: set[tuple[object, ...]] = set()

    def take(self, logs: Sequence[ClusterLog], position: int, now: float) -> Increment:
        """New rows, with the first task at `position`, and rows that may still change."""
        parts: list[Tables] = [{name: TABLES[name].empty() for name in _TABLES_OF_TASKS}]
        for log, batch in self._unread.take(logs):
            parts.append(self._tables_of(batch, log, position))
            position += len(parts[-1]["tasks"])
        new = joined(*parts)
        finished, running = self.computations(logs, now)
        return {**new, **finished}, {**running, "workers": cluster_workers_table(logs)}

    def computations(self, logs: Sequence[ClusterLog], now: float) -> Increment:
        """Computations done since the previous call, and current computations."""
        rows: tuple[list[_Row], list[_Row]] = [], []
        for log in logs:
            for number, computation in log.computations.copy().items():
                key, stop = (id(log), number), computation.stop
                if key in self._final:
                    continue
                is_running = not log.has_ended and (
                    stop is None or now - (stop - log.offset) <= _SECONDS_UNTIL_FINAL
                )
                if not is_running:
                    self._final.add(key)
                rows[is_running].append((computation, log))
        return _computations_tables(rows[0], now), _computations_tables(rows[1], now)

    def _tables_of(self, batch: Batch, log: ClusterLog, position: int) -> Tables:
        ids = np.frombuffer(batch.ids, np.int64)
        positions = np.arange(len(ids)) + position
        row_of = self._positions.setdefault(id(log), RunPositions())
        row_of.add(ids, positions)
        task = np.repeat(positions, np.frombuffer(batch.rows, RUN.dtype)["dependencies"])
        depends_on = row_of.find(np.frombuffer(batch.depends_on, np.int64))
        is_recorded = depends_on >= 0
        detailed = row_of.find(np.array(list(batch.details), np.int64)).tolist()
        details = list(zip(detailed, batch.details.values(), strict=True))
        metrics = [(row, *metric) for row, detail in details for metric in detail.metrics]
        waits = [(row, *wait) for row, detail in details for wait in detail.waits]
        of_events = [(row, ChunkOfEvents(*d.chunk)) for row, d in details if d.chunk]
        groups = self._lines.groups(log.kinds, batch.groups)
        return {
            "tasks": tasks_of(batch, log, self._lanes).replacing({"group": groups}),
            "dependencies": Table(
                {"task": task[is_recorded], "depends_on": depends_on[is_recorded]}
            ),
            "metrics": tables.Metrics.of_rows(metrics),
            "waits": tables.Waits.of_rows(waits),
            "transfers": transfers_of(batch, log, row_of.find),
            "other_tasks": others_of(batch, log),
            "worker_events": worker_events_of(batch, log),
            "chunks": tables.Chunks.of_rows(
                (row, *chunk[:6], chunk.error) for row, chunk in of_events
            ),
            "branches": tables.Branches.of_rows(self._new_branches(c for _, c in of_events)),
        }

    def _new_branches(self, chunks: Iterable[ChunkOfEvents]) -> Iterator[Sequence[object]]:
        """Branches of files that no chunk before had; each chunk of a file has them."""
        for chunk in chunks:
            for branch in chunk.branches:
                row = chunk.file, chunk.tree, *branch
                if row not in self._seen_branches:
                    self._seen_branches.add(row)
                    yield row


_Row = tuple[ClusterComputation, ClusterLog]


def _computations_tables(rows: Sequence[_Row], now: float) -> Tables:
    return {
        "computations": tables.Computations.of_rows(_computation_row(*row, now) for row in rows),
        "repeated_steps": tables.RepeatedSteps.of_rows(
            (computation.name, *step)
            for computation, _ in rows
            for step in rows_of_steps(RepeatedStep(*found) for found in computation.again)
        ),
        "resource_limits": tables.ResourceLimits.of_rows(
            (computation.name, *limit) for computation, _ in rows for limit in computation.limits
        ),
    }


_UNKNOWN = {
    name: {"category": "", "float": np.nan, "integer": 0}[column.kind]
    for name, column in tables.Computations.schema.items()
}
"""Values of the columns of computations that only a local scheduler has."""


def _computation_row(
    computation: ClusterComputation, log: ClusterLog, now: float
) -> Sequence[object]:
    # Rounded like the times of tasks.
    start = microseconds(np.array(computation.start - log.offset), np.floor)
    stop = now if computation.stop is None else computation.stop - log.offset
    known = {
        "computation": computation.name,
        **dict.fromkeys(("called", "start", "prepared"), start),
        "stop": microseconds(np.array(stop), np.ceil),
        "workers": computation.workers,
        "cpu_scheduler": computation.cpu_scheduler,
        "graph_bytes": computation.graph_bytes,
        "span": computation.span,
        "scheduler": "distributed",
        "cluster": log.scheduler,
    }
    return list({**_UNKNOWN, **known}.values())


def with_clusters(
    recording: Recording, logs: Sequence[ClusterLog], sampled: Tables | None = None
) -> Recording:
    """Add the computations of clusters to a recording of this process.

    Tasks are added, too; or, instead of tasks, the `sampled` tables.
    """
    lines, now = LineTables(), perf_counter()
    made = ClusterTables(lines)
    if sampled is None:
        parts = {**joined(*made.take(logs, 0, now)), **lines.tables()}
    else:
        computations = joined(*made.computations(logs, now))
        parts = {**sampled, **computations, "workers": cluster_workers_table(logs)}
    on_clusters = Recording(
        start=recording.start,
        stop=max(recording.stop, float(parts["computations"]["stop"].max(initial=-np.inf))),
        epoch=recording.epoch,
        run_id=recording.run_id,
        metric=recording.metric,
        metric_unit=recording.metric_unit,
        **{name: TABLES[name].of(table) for name, table in parts.items()},  # type: ignore[arg-type]
    )
    return combine([recording, on_clusters])


def with_remote_memory(
    memory: tables.Memory, logs: Mapping[str, Sequence[ClusterLog]]
) -> tables.Memory:
    """Add the resident memory of remote processes to series, by label.

    Other measures are unknown for remote processes, and for a series with a remote process.
    """
    columns = {name: np.array(memory[name]) for name in memory.columns if name != "label"}
    for label, of_series in logs.items():
        rows = memory.label.eq(label)
        remote = RemoteProcesses().take(of_series)
        for process in samples_by_process(remote) if rows.any() else ():
            resident = memory_at(columns["time"][rows], process)
            columns["rss"][rows] += resident
            columns["processes"][rows] += resident > 0
            for name in ("pss", "uss"):
                columns[name][rows] = np.nan
    return tables.Memory({"label": memory.label, **columns})


TaskResult = tuple[Hashable, str, float, float, str]
"""Key, function, start, stop and worker of a task."""


def results_of(logs: Sequence[ClusterLog]) -> list[list[TaskResult]]:
    """The tasks that were done, log by log."""
    lanes = Lanes()
    results: list[list[TaskResult]] = []
    for log in logs:
        results.append([])
        for batch in log.batches:
            tasks = tasks_of(batch, log, lanes)
            columns = (tasks[name].tolist() for name in ("function", "start", "stop", "worker"))
            is_ok = tasks["outcome"].eq(Outcome.OK).tolist()
            results[-1] += compress(zip(batch.keys, *columns, strict=True), is_ok)
    return results
