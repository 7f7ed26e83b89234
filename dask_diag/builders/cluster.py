"""From what was pulled of clusters to the tables of a Recording."""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from time import perf_counter

import numpy as np

from dask_diag.builders.chunks import Tables, Taken
from dask_diag.builders.clocks import to_other_clock
from dask_diag.builders.cluster_workers import (
    Lanes,
    cluster_workers_table,
    readings_of,
    worker_labels,
)
from dask_diag.builders.constants import constant
from dask_diag.builders.keys import keys_columns
from dask_diag.capture.cluster.formats import OUTCOMES, RUN_FIELDS
from dask_diag.capture.cluster.log import Batch, ClusterComputation, ClusterLog
from dask_diag.columns import Array, Categorical, IntArray, Values
from dask_diag.model import tables
from dask_diag.model.recording import Recording, combine
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES
from dask_diag.schema import Activity, Outcome

__all__ = ["ClusterTables", "results_of", "with_clusters"]

_RUN = np.dtype(list(RUN_FIELDS))
_SECONDS_UNTIL_FINAL = 1.0
"""A computation that has stopped may go on, if tasks are run again."""


class ClusterTables:
    """Makes tables of what clients pull, batch by batch."""

    def __init__(self) -> None:
        self._parts: dict[int, _LogTables] = {}

    def take(self, logs: Sequence[ClusterLog], position: int, now: float) -> Taken:
        """What is new, of which the first task is to be at `position`; and what may change."""
        new: dict[str, list[Table]] = {}
        unfinished: list[Table] = []
        for log in logs:
            part = self._parts.setdefault(id(log), _LogTables(log))
            taken = part.take(position)
            position += len(taken["tasks"])
            finished, running = part.take_computations(now)
            unfinished.append(running)
            for name, table in {**taken, "computations": finished}.items():
                new.setdefault(name, []).append(table)
        return (
            {name: stack(parts) for name, parts in new.items()},
            {
                "computations": stack([*unfinished, tables.Computations.empty()]),
                "workers": cluster_workers_table(logs),
            },
        )

    def take_all(self, logs: Sequence[ClusterLog], now: float) -> Tables:
        """Everything, new or not."""
        new, provisional = self.take(logs, 0, now)
        return {
            name: stack([part[name] for part in (new, provisional) if name in part])
            for name in {**new, **provisional}
        }


class _LogTables:
    """The tables of what one client has pulled, from where they were taken last."""

    def __init__(self, log: ClusterLog) -> None:
        self._log = log
        self._batches = 0
        self._computations: set[int] = set()
        self._lanes = Lanes()
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
        names = ("tasks", "dependencies", "metrics", "transfers", "other_tasks")
        return {
            name: stack([TABLES[name].empty(), *(part[name] for part in parts)]) for name in names
        }

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
        runs = np.frombuffer(batch.rows, _RUN)
        tasks = self._tasks_of(batch, runs)
        positions = np.arange(len(runs)) + position
        counts = runs["dependencies"]
        depends_on = self._positions_of(np.frombuffer(batch.depends_on, np.int64))
        task = np.repeat(positions, counts)
        known = depends_on >= 0
        place = dict(zip(ids.tolist(), positions.tolist(), strict=True))
        return {
            "tasks": tasks,
            "dependencies": Table({"task": task[known], "depends_on": depends_on[known]}),
            "metrics": _metrics_of(
                {place[row]: metrics for row, (_, metrics, _) in batch.details.items()}
            ),
            "transfers": self._transfers_of(batch),
            "other_tasks": self._others_of(batch),
        }

    def _positions_of(self, ids: IntArray) -> IntArray:
        """Where runs are in `tasks`; -1 where they were not recorded."""
        if not len(self._ids):
            return np.full(len(ids), -1)
        at = np.minimum(np.searchsorted(self._ids, ids), len(self._ids) - 1)
        return np.where(self._ids[at] == ids, self._positions[at], -1)

    def _tasks_of(self, batch: Batch, runs: Array) -> Table:
        log, count = self._log, len(runs)
        if not count:
            return TABLES["tasks"].empty()
        texts, functions = keys_columns(list(batch.keys), {})
        workers, codes = self._workers_of(runs["worker"])
        names = worker_labels(log.workers.values())
        labels = [names.get(worker, "unknown") for worker in workers]
        hosts = [log.workers[w].host if w in log.workers else "" for w in workers]
        pids = [int(log.workers[w].facts.get("pid", 0)) if w in log.workers else 0 for w in workers]
        threads = runs["thread"].astype(np.int64)
        distinct, thread_codes = np.unique(threads, return_inverse=True)
        times = self._times_of(runs, workers, codes)
        errors = {row: error for row, (error, _, _) in batch.details.items() if error}
        ids = np.frombuffer(batch.ids, np.int64).tolist()
        computations, spans = self._of_computations(runs["computation"])
        outcomes = runs["outcome"]
        ok = outcomes == OUTCOMES.index(Outcome.OK)
        columns: dict[str, Values] = {
            "key": texts,
            "function": functions,
            **times,
            "worker": self._lanes.of(labels, codes, threads),
            "pid": Categorical(codes, pids),
            "thread": Categorical(thread_codes.reshape(-1), distinct.tolist()),
            "computation": computations,
            "span": _with_spans_of_tasks(spans, ids, batch),
            "outcome": Categorical(outcomes, OUTCOMES),
            "error": Categorical.of([errors.get(row, "") for row in ids]),
            **{name: constant("", len(ids)) for name in ("error_message", "error_location")},
            "attempt": runs["attempt"].astype(np.int64),
            "host": Categorical(codes, hosts),
            "nbytes": np.where(ok, runs["nbytes"], np.nan),
            "queued": np.round(runs["queued"], 9),
            "stolen": runs["stolen"].astype(np.int64),
            "client": Categorical(runs["client"], log.clients),
        }
        return Table({name: columns[name] for name in TABLES["tasks"].schema})

    def _workers_of(self, indices: IntArray) -> tuple[list[int], IntArray]:
        workers, codes = np.unique(indices, return_inverse=True)
        return workers.tolist(), codes.reshape(-1)

    def _times_of(self, runs: Array, workers: Sequence[int], codes: IntArray) -> dict[str, Values]:
        """Times by this process's clock: no task starts before it was sent, or ends too late."""
        log = self._log
        submitted, collected = runs["submitted"] - log.offset, runs["collected"] - log.offset
        start, stop, seceded = (runs[name].copy() for name in ("start", "stop", "seceded"))
        for code, worker in enumerate(workers):
            rows = np.flatnonzero((codes == code) & (runs["measured"] == 1))
            readings = readings_of(log.workers.get(worker))
            for times in (start, stop, seceded):
                times[rows] = to_other_clock(times[rows], readings)
        start, stop, seceded = start - log.offset, stop - log.offset, seceded - log.offset
        # The clocks' error, at most: what it took is as it was measured.
        early = np.fmax(submitted - start, 0)
        late = np.fmax(stop + early - collected, 0)
        start, stop = np.fmax(start + early - late, submitted), stop + early - late
        seceded = seceded + early - late
        # Clocks count nanoseconds: what is less is the rounding of a difference.
        cpu = np.round(runs["cpu"], 9)
        return {
            "start": np.where(np.isnan(runs["start"]), np.nan, start),
            "stop": stop,
            "thread_cpu": cpu,
            "thread_noncpu": stop - start - cpu,
            "submitted": submitted,
            "collected": collected,
            "seceded": seceded,
            "seceded_cpu": np.round(runs["seceded_cpu"], 9),
        }

    def _of_computations(self, indices: IntArray) -> tuple[Categorical, Categorical]:
        """The names of computations, and their spans."""
        distinct, codes = np.unique(indices, return_inverse=True)
        known = [self._log.computations.get(index) for index in distinct.tolist()]
        names = [each.name if each else "" for each in known]
        return (
            Categorical(codes.reshape(-1), names),
            Categorical.of([each.span if each else "" for each in known])[codes.reshape(-1)],
        )

    def _others_of(self, batch: Batch) -> Table:
        log = self._log
        worker, start, stop = np.frombuffer(batch.others, float).reshape(-1, 3).T
        workers, codes = self._workers_of(worker.astype(np.int64))
        names = worker_labels(log.workers.values())
        for code, number in enumerate(workers):
            rows = codes == code
            readings = readings_of(log.workers.get(number))
            start = np.where(rows, to_other_clock(start, readings), start)
            stop = np.where(rows, to_other_clock(stop, readings), stop)
        return Table(
            {
                "computation": constant(log.scheduler, len(codes)),
                "worker": Categorical(codes, [names.get(number, "") for number in workers]),
                "start": start - log.offset,
                "stop": stop - log.offset,
            }
        )

    def _transfers_of(self, batch: Batch) -> Table:
        log = self._log
        names = worker_labels(log.workers.values())
        rows, sources, destinations, starts, stops, sizes = (
            zip(*batch.transfers, strict=True) if batch.transfers else ((),) * 6
        )
        positions = self._positions_of(np.array(rows, np.int64))
        known = positions >= 0
        count = int(known.sum())
        bounds = []
        for times in (starts, stops):
            times_here = [
                to_other_clock(np.array([time]), readings_of(log.workers.get(worker)))[0]
                for time, worker in zip(times, destinations, strict=True)
            ]
            bounds.append(np.array(times_here, float)[known] - log.offset)
        return Table(
            {
                "task": positions[known],
                "activity": constant(Activity.TRANSFER, count),
                "side": constant("network", count),
                "start": bounds[0],
                "stop": bounds[1],
                "bytes": np.array(sizes, float)[known],
                "source": Categorical.of([names.get(w, "") for w in sources])[known],
                "destination": Categorical.of([names.get(w, "") for w in destinations])[known],
            }
        )


def with_clusters(recording: Recording, logs: Sequence[ClusterLog]) -> Recording:
    """A recording of this process, with what ran on clusters."""
    made = ClusterTables().take_all(logs, perf_counter())
    computations = made["computations"]
    on_clusters = Recording(
        start=recording.start,
        stop=max(recording.stop, float(computations["stop"].max(initial=-np.inf))),
        epoch=recording.epoch,
        run_id=recording.run_id,
        computations=tables.Computations.of(computations),
        tasks=tables.Tasks.of(made["tasks"]),
        dependencies=tables.Dependencies.of(made["dependencies"]),
        metrics=tables.Metrics.of(made["metrics"]),
        transfers=tables.Transfers.of(made["transfers"]),
        workers=tables.Workers.of(made["workers"]),
        other_tasks=tables.OtherTasks.of(made["other_tasks"]),
    )
    return combine([recording, on_clusters])


def results_of(logs: Sequence[ClusterLog]) -> list[tuple[Hashable, str, float, float, str]]:
    """Key, function, start, stop and worker of each task that was done."""
    results = []
    for log in logs:
        tasks = _LogTables(log).take(0)["tasks"]
        keys = [key for batch in log.batches for key in batch.keys]
        columns = [tasks[name].tolist() for name in ("function", "start", "stop", "worker")]
        ok = tasks["outcome"].where(Outcome.OK).tolist()
        rows = zip(keys, *columns, strict=True)
        results += [row for row, is_ok in zip(rows, ok, strict=True) if is_ok]
    return results


def _with_spans_of_tasks(spans: Categorical, ids: Sequence[int], batch: Batch) -> Categorical:
    """The spans of computations, but for tasks that have another one."""
    if not batch.details:
        return spans
    usual = dict(zip(ids, spans.tolist(), strict=True))
    others = {row: span for row, (_, _, span) in batch.details.items()}
    return Categorical.of({**usual, **others}.values())


def _metrics_of(metrics: Mapping[int, Sequence[Sequence[float | str]]]) -> Table:
    rows = [(task, *metric) for task, each in metrics.items() for metric in each]
    tasks, labels, units, values, cpu = zip(*rows, strict=True) if rows else ((),) * 5
    return Table(
        {
            "task": np.array(tasks, np.int64),
            "activity": Categorical.of(labels),
            "unit": Categorical.of(units),
            "value": np.array(values, float),
            "cpu": np.array(cpu, float),
        }
    )


def _computations_of(
    computations: Sequence[ClusterComputation], log: ClusterLog, now: float
) -> tables.Computations:
    count = len(computations)
    start = np.array([each.start - log.offset for each in computations], float)
    stop = [now if each.stop is None else each.stop - log.offset for each in computations]
    known: dict[str, Values] = {
        "computation": Categorical.of(each.name for each in computations),
        **dict.fromkeys(("called", "start", "prepared"), start),
        "stop": np.array(stop, float),
        "workers": np.array([each.workers for each in computations], np.int64),
        "span": Categorical.of(each.span for each in computations),
        "scheduler": constant("distributed", count),
        "cluster": constant(log.scheduler, count),
        "error": constant("", count),
    }
    columns = tables.Computations.schema
    unknown = {name: _unknown(column.kind, count) for name, column in columns.items()}
    return tables.Computations({**unknown, **known})


def _unknown(kind: str, count: int) -> Values:
    if kind == "category":
        return constant("", count)
    return np.full(count, np.nan) if kind == "float" else np.zeros(count, np.int64)
