"""The stacks that workers of clusters sampled: tables of a Recording, worker by worker."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence

import numpy as np

from dask_diag.capture.stacks_table import joined_stacks, stacks_as_seen, stacks_of_tasks
from dask_diag.capture.task import Line
from dask_diag.capture.tasks_table import keys_columns
from dask_diag.capture.workers_table import constant
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import (
    COROUTINE,
    OK,
    OTHER_TASK,
    OUTCOMES,
    RESULT,
    RUN,
    Batch,
    unpacked_stacks,
)
from dask_diag.cluster.workers_table import (
    Lanes,
    bounds_in_microseconds,
    microseconds,
    readings_of,
    times_of_workers,
    to_other_clock,
)
from dask_diag.columns import Array, Categorical, IntArray, Values
from dask_diag.model import tables
from dask_diag.model.codes import UNKNOWN_WORKER, Activity
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES
from dask_diag.sampling.call_tree import Stacks

CachedRow = tuple[Hashable, str, float, float, float]


class ClusterResults:
    """The results that were released, or were there when recording stopped; pull by pull.

    Parameters
    ----------
    in_bytes : bool
        Whether a result counts its bytes, as distributed measures them; or else 1.
    """

    def __init__(self, in_bytes: bool) -> None:
        self._in_bytes = in_bytes
        self._batches: dict[int, int] = {}

    def take(self, logs: Sequence[ClusterLog]) -> tables.CachedResults:
        """Those since last asked."""
        parts = [self._table_of(batch, log) for batch, log in self._new(logs)]
        return stack([tables.CachedResults.empty(), *parts])

    def take_rows(self, logs: Sequence[ClusterLog]) -> list[CachedRow]:
        """Key, function, metric, start and stop of those since last asked."""
        rows: list[CachedRow] = []
        for batch, log in self._new(logs):
            table = self._table_of(batch, log)
            columns = [table[name].tolist() for name in ("function", "metric", "start", "stop")]
            rows += zip(batch.result_keys, *columns, strict=True)
        return rows

    def _new(self, logs: Sequence[ClusterLog]) -> Iterator[tuple[Batch, ClusterLog]]:
        """The batches with results since last asked."""
        for log in logs:
            seen = self._batches.get(id(log), 0)
            batches = log.batches[seen:]
            self._batches[id(log)] = seen + len(batches)
            yield from ((batch, log) for batch in batches if batch.results)

    def _table_of(self, batch: Batch, log: ClusterLog) -> tables.CachedResults:
        rows = np.frombuffer(batch.results, RESULT.dtype)
        keys, functions = keys_columns(list(batch.result_keys), batch.result_functions)
        distinct, codes = np.unique(rows["computation"].astype(np.int64), return_inverse=True)
        computations = [log.computations.get(number) for number in distinct.tolist()]
        names = Categorical.of(recorded.name if recorded else "" for recorded in computations)
        return tables.CachedResults(
            {
                "key": keys,
                "function": functions,
                "computation": names[codes.reshape(-1)],
                "metric": rows["nbytes"].copy() if self._in_bytes else np.ones(len(rows)),
                "start": microseconds(rows["start"] - log.offset, np.floor),
                "stop": microseconds(rows["stop"] - log.offset, np.ceil),
            }
        )


Positions = Callable[[IntArray], IntArray]
"""Where runs are in `tasks`, by their ids; -1 where they were not recorded."""


def metrics_of(metrics: Mapping[int, Sequence[Sequence[float | str]]]) -> Table:
    """What tasks metered, by their rows."""
    rows = [
        (task, *metric) for task, metrics_of_task in metrics.items() for metric in metrics_of_task
    ]
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


def waits_of(waits: Mapping[int, Sequence[tuple[str, float, int, str]]]) -> Table:
    """What tasks waited for, by their rows."""
    rows = [(task, *wait) for task, waits_of_task in waits.items() for wait in waits_of_task]
    tasks, activities, seconds, samples, labels = zip(*rows, strict=True) if rows else ((),) * 5
    return Table(
        {
            "task": np.array(tasks, np.int64),
            "activity": Categorical.of(activities),
            "seconds": np.array(seconds, float),
            "samples": np.array(samples, np.int64),
            "label": Categorical.of(labels),
        }
    )


def transfers_of(batch: Batch, log: ClusterLog, positions_of: Positions) -> Table:
    """What workers sent to each other for tasks that were recorded, whatever made it."""
    names = log.labels
    rows, sources, destinations, starts, stops, sizes = (
        zip(*batch.transfers, strict=True) if batch.transfers else ((),) * 6
    )
    count = len(batch.transfers)
    numbers = np.array(destinations, np.int64)
    bounds = [
        times_of_workers(np.array(times, float), numbers, log) - log.offset
        for times in (starts, stops)
    ]
    start, stop = bounds_in_microseconds(*bounds)
    return Table(
        {
            "task": positions_of(np.array(rows, np.int64)),
            "activity": constant(Activity.TRANSFER, count),
            "side": constant("network", count),
            "start": start,
            "stop": stop,
            "bytes": np.array(sizes, float),
            "source": Categorical.of([names.get(w, "") for w in sources]),
            "destination": Categorical.of([names.get(w, "") for w in destinations]),
        }
    )


def others_of(batch: Batch, log: ClusterLog) -> Table:
    """When tasks of clients that are not recorded ran."""
    rows = np.frombuffer(batch.others, OTHER_TASK.dtype)
    numbers = rows["worker"].astype(np.int64)
    workers, codes = distinct_of(numbers)
    names = log.labels
    start, stop = (times_of_workers(rows[bound], numbers, log) for bound in ("start", "stop"))
    return Table(
        {
            "computation": constant(log.scheduler, len(codes)),
            "worker": Categorical(codes, [names.get(number, "") for number in workers]),
            "start": start - log.offset,
            "stop": stop - log.offset,
        }
    )


def tasks_of(batch: Batch, log: ClusterLog, lanes: Lanes) -> Table:
    """The table of the runs in a batch."""
    runs = np.frombuffer(batch.rows, RUN.dtype)
    if not len(runs):
        return TABLES["tasks"].empty()
    ids = np.frombuffer(batch.ids, np.int64).tolist()
    row_of = {number: row for row, number in enumerate(ids)} if batch.functions else {}
    named = {row_of[number]: name for number, name in batch.functions.items()}
    texts, functions = keys_columns(list(batch.keys), named)
    workers, codes = distinct_of(runs["worker"])
    names = log.labels
    labels = [names.get(worker, UNKNOWN_WORKER) for worker in workers]
    hosts = [log.workers[w].host if w in log.workers else "" for w in workers]
    pids = [int(log.workers[w].facts.get("pid", 0)) if w in log.workers else 0 for w in workers]
    threads = runs["thread"].astype(np.int64)
    idents, thread_codes = distinct_of(threads)
    times = _times_of(runs, log, workers, codes)
    errors = {row: details.error for row, details in batch.details.items() if details.error}
    computations, spans = _of_computations(runs["computation"], log)
    outcomes = runs["outcome"]
    ok = outcomes == OK
    columns: dict[str, Values] = {
        "key": texts,
        "function": functions,
        **times,
        "worker": lanes.of(labels, codes, threads),
        "pid": Categorical(codes, pids),
        "thread": Categorical(thread_codes, idents),
        "computation": computations,
        "span": _with_spans_of_tasks(spans, ids, batch),
        "outcome": Categorical(outcomes, OUTCOMES),
        "error": Categorical.of([errors.get(row, "") for row in ids]),
        **{name: constant("", len(ids)) for name in ("error_message", "error_location")},
        "attempt": runs["attempt"].astype(np.int64),
        "host": Categorical(codes, hosts),
        "nbytes": np.where(ok, runs["nbytes"], np.nan),
        "queued": microseconds(runs["queued"], np.rint),
        "stolen": runs["stolen"].astype(np.int64),
        "client": Categorical(runs["client"], log.clients),
    }
    return Table({name: columns[name] for name in TABLES["tasks"].schema})


def _times_of(
    runs: Array, log: ClusterLog, workers: Sequence[int], codes: IntArray
) -> dict[str, Values]:
    """Times by this process's clock: no task starts before it was sent, or ends too late."""
    submitted = microseconds(runs["submitted"] - log.offset, np.floor)
    collected = microseconds(runs["collected"] - log.offset, np.ceil)
    start, stop, seceded = (runs[name].copy() for name in ("start", "stop", "seceded"))
    for code, worker in enumerate(workers):
        rows = np.flatnonzero((codes == code) & (runs["measured"] == 1))
        readings = readings_of(log.workers.get(worker))
        for times in (start, stop, seceded):
            times[rows] = to_other_clock(times[rows], readings)
    start, stop, seceded = start - log.offset, stop - log.offset, seceded - log.offset
    # The clocks' error, at most: what it took is as it was measured.
    early = np.fmax(submitted - start, 0)
    # Moved as a whole where it fits: a task keeps its length, and only when it ran is as uncertain
    # as the clocks are.
    late = np.fmax(stop + early - collected, 0)
    start, stop = np.fmax(start + early - late, submitted), stop + early - late
    started, stopped = bounds_in_microseconds(start, stop)
    # Rounding may be off by the last bit of a float.
    start = np.fmax(started, submitted)
    stop = np.where(stopped > collected, collected, stopped)
    seceded = microseconds(seceded + early - late, np.floor)
    cpu = microseconds(runs["cpu"], np.rint)
    return {
        "start": np.where(np.isnan(runs["start"]), np.nan, start),
        "stop": stop,
        "thread_cpu": cpu,
        "thread_noncpu": stop - start - cpu,
        "submitted": submitted,
        "collected": collected,
        "seceded": np.where(seceded > stop, stop, seceded),
        "seceded_cpu": microseconds(runs["seceded_cpu"], np.rint),
    }


def _of_computations(indices: IntArray, log: ClusterLog) -> tuple[Categorical, Categorical]:
    """The names of computations, and their spans."""
    distinct, codes = distinct_of(indices)
    computations = [log.computations.get(index) for index in distinct]
    return (
        Categorical(
            codes, [computation.name if computation else "" for computation in computations]
        ),
        Categorical.of([computation.span if computation else "" for computation in computations])[
            codes
        ],
    )


def _with_spans_of_tasks(spans: Categorical, ids: Sequence[int], batch: Batch) -> Categorical:
    """The spans of computations, but for tasks that have another one."""
    if not batch.details:
        return spans
    usual = dict(zip(ids, spans.tolist(), strict=True))
    others = {row: details.span for row, details in batch.details.items()}
    return Categorical.of({**usual, **others}.values())


def distinct_of(numbers: IntArray) -> tuple[list[int], IntArray]:
    """The distinct numbers, and of each number which of them it is."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    return distinct.tolist(), codes.reshape(-1)


Parts = list[dict[str, Table]]


class ClusterStacks:
    """Sums up the stacks of tasks, pull by pull.

    Parameters
    ----------
    cycle : float
        Seconds of which samples are summed up.
    """

    def __init__(self, cycle: float) -> None:
        self._cycle = cycle
        self._logs: dict[int, _StacksOfLog] = {}

    def take(self, logs: Sequence[ClusterLog]) -> None:
        """Add what was pulled since the last call."""
        for log in logs:
            self._logs.setdefault(id(log), _StacksOfLog(log, self._cycle)).take()

    def as_seen(self, most: int) -> Parts:
        """`frames`, `call_tree` and `samples`, as samples were taken, in about `most` rows."""
        workers = [stacks for log in self._logs.values() for stacks in log.stacks_by_label()]
        most //= max(len(workers), 1)
        return [stacks_as_seen(stacks, most, label) for label, stacks in workers]

    def scaled(self, start: float, stop: float) -> Parts:
        """The same, scaled to the seconds that tasks took; what still runs stops at the end."""
        return [part for log in self._logs.values() for part in log.scaled((start, stop))]

    def tables(self, start: float, stop: float) -> dict[str, Table]:
        """`scaled`, as one of each table."""
        return joined_stacks(self.scaled(start, stop))


class _StacksOfLog:
    """The stacks of what one client has pulled, by worker."""

    def __init__(self, log: ClusterLog, cycle: float) -> None:
        self._log = log
        self._cycle = cycle
        self._lanes = Lanes()
        self._batches = 0
        self._tasks: list[Table] = []
        self._workers: list[IntArray] = []
        self._stacks: dict[int, Stacks] = {}

    def take(self) -> None:
        batches = self._log.batches[self._batches :]
        self._batches += len(batches)
        for batch in batches:
            if not batch.ids:
                continue
            tasks = tasks_of(batch, self._log, self._lanes)
            workers = np.frombuffer(batch.rows, RUN.dtype)["worker"].astype(np.int64)
            self._tasks.append(tasks)
            self._workers.append(workers)
            self._add(batch, tasks, workers)

    def _add(self, batch: Batch, tasks: Table, workers: IntArray) -> None:
        log = self._log
        ids = np.frombuffer(batch.ids, np.int64)
        keys, functions = list(batch.keys), tasks["function"]
        for number, details in batch.details.items():
            if not details.stacks or details.stacks == COROUTINE:
                continue
            row = int(np.searchsorted(ids, number))
            worker = int(workers[row])
            readings = readings_of(log.workers.get(worker))
            samples = unpacked_stacks(details.stacks, Line)
            times = to_other_clock(np.array([time for time, *_ in samples]), readings) - log.offset
            moved = [
                (time, *sample[1:]) for time, sample in zip(times.tolist(), samples, strict=True)
            ]
            self._stacks_of(worker).take(functions[row : row + 1].tolist()[0], keys[row], moved)

    def _stacks_of(self, worker: int) -> Stacks:
        return self._stacks.setdefault(worker, Stacks(self._cycle))

    def stacks_by_label(self) -> Iterator[tuple[str, Stacks]]:
        labels = self._log.labels
        for worker, stacks in self._stacks.items():
            yield labels.get(worker, ""), stacks

    def scaled(self, bounds: tuple[float, float]) -> Parts:
        if not self._tasks:
            return []
        tasks, workers = stack(self._tasks), np.concatenate(self._workers)
        labels = self._log.labels
        return [
            stacks_of_tasks(
                self._stacks_of(worker),
                tasks.rows(workers == worker),
                labels.get(worker, ""),
                bounds,
            )
            for worker in np.unique(workers).tolist()
        ]
