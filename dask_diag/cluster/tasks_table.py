"""Tables of tasks, transfers, results and stacks of clusters from pulled rows."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence

import numpy as np

from dask_diag.capture.stacks_table import joined_stacks, stacks_as_seen, stacks_of_tasks
from dask_diag.capture.task import Line
from dask_diag.capture.tasks_table import keys_columns, recoded
from dask_diag.capture.workers_table import constant
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import (
    COROUTINE,
    OK,
    OTHER_TASK,
    OUTCOMES,
    RESULT,
    RUN,
    TRANSFER,
    Batch,
    unpacked_stacks,
)
from dask_diag.cluster.workers_table import (
    Lanes,
    UnreadBatches,
    bounds_in_microseconds,
    client_times,
    distinct_of,
    microseconds,
    worker_labels,
)
from dask_diag.columns import Array, Categorical, IntArray, Values
from dask_diag.model import tables
from dask_diag.model.codes import UNKNOWN_WORKER, Activity
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import TABLES
from dask_diag.sampling.call_tree import Stacks

CachedRow = tuple[Hashable, str, float, float, float]


class ClusterResults:
    """Results in memory, until their release or the end of recording, pull by pull.

    Parameters
    ----------
    in_bytes : bool
        Whether the metric of a result is the number of bytes, by distributed, or 1.
    """

    def __init__(self, in_bytes: bool) -> None:
        self._in_bytes = in_bytes
        self._unread = UnreadBatches()

    def take(self, logs: Sequence[ClusterLog]) -> tables.CachedResults:
        """Results since the previous call."""
        parts = [table for _, table in self._new(logs)]
        return stack([tables.CachedResults.empty(), *parts])

    def take_rows(self, logs: Sequence[ClusterLog]) -> list[CachedRow]:
        """Key, function, metric, start and stop of results since the previous call."""
        rows: list[CachedRow] = []
        for batch, table in self._new(logs):
            columns = [table[name].tolist() for name in ("function", "metric", "start", "stop")]
            rows += zip(batch.result_keys, *columns, strict=True)
        return rows

    def _new(self, logs: Sequence[ClusterLog]) -> Iterator[tuple[Batch, tables.CachedResults]]:
        for log, batch in self._unread.take(logs):
            if batch.results:
                yield batch, self._table_of(batch, log)

    def _table_of(self, batch: Batch, log: ClusterLog) -> tables.CachedResults:
        rows = np.frombuffer(batch.results, RESULT.dtype)
        keys, functions = keys_columns(list(batch.result_keys), batch.result_functions)
        return tables.CachedResults(
            {
                "key": keys,
                "function": functions,
                "computation": _of_computations(rows["computation"], log)[0],
                "metric": rows["nbytes"].copy() if self._in_bytes else np.ones(len(rows)),
                "start": microseconds(rows["start"] - log.offset, np.floor),
                "stop": microseconds(rows["stop"] - log.offset, np.ceil),
            }
        )


def transfers_of(batch: Batch, log: ClusterLog, find: Callable[[IntArray], IntArray]) -> Table:
    """Transfers between workers for recorded tasks; `find` has the rows of runs by their ids."""
    rows = np.frombuffer(batch.transfers, TRANSFER.dtype)
    start, stop = bounds_in_microseconds(
        *(client_times(rows[bound], rows["destination"], log) for bound in ("start", "stop"))
    )
    return Table(
        {
            "task": find(rows["run"]),
            "activity": constant(Activity.TRANSFER, len(rows)),
            "side": constant("network", len(rows)),
            "start": start,
            "stop": stop,
            "bytes": rows["nbytes"].copy(),
            "source": worker_labels(rows["source"], log),
            "destination": worker_labels(rows["destination"], log),
        }
    )


def others_of(batch: Batch, log: ClusterLog) -> Table:
    """Times of tasks of clients that are not recorded."""
    rows = np.frombuffer(batch.others, OTHER_TASK.dtype)
    return Table(
        {
            "computation": constant(log.scheduler, len(rows)),
            "worker": worker_labels(rows["worker"], log),
            "start": client_times(rows["start"], rows["worker"], log),
            "stop": client_times(rows["stop"], rows["worker"], log),
        }
    )


def tasks_of(batch: Batch, log: ClusterLog, lanes: Lanes) -> Table:
    """The table of the runs in a batch."""
    runs = np.frombuffer(batch.rows, RUN.dtype)
    if not len(runs):
        return TABLES["tasks"].empty()
    ids, details = np.frombuffer(batch.ids, np.int64).tolist(), batch.details
    row_of = {number: row for row, number in enumerate(ids)} if batch.functions else {}
    named = {row_of[number]: name for number, name in batch.functions.items()}
    texts, functions = keys_columns(list(batch.keys), named)
    workers, codes = distinct_of(runs["worker"])
    labels = [log.labels.get(worker, UNKNOWN_WORKER) for worker in workers]
    known = [log.workers.get(worker) for worker in workers]
    threads = runs["thread"].astype(np.int64)
    idents, thread_codes = distinct_of(threads)
    computations, spans = _of_computations(runs["computation"], log)
    if details:
        spans = Categorical.of(
            details[number].span if number in details else span
            for number, span in zip(ids, spans.tolist(), strict=True)
        )
    columns: dict[str, Values] = {
        "key": texts,
        "function": functions,
        **_times_of(runs, log),
        "worker": lanes.of(labels, codes, threads),
        "pid": recoded(codes, [int(w.facts.get("pid", 0)) if w else 0 for w in known]),
        "thread": Categorical(thread_codes, idents),
        "computation": computations,
        "span": spans,
        "outcome": Categorical(runs["outcome"], OUTCOMES),
        "error": Categorical.of(details[n].error if n in details else "" for n in ids),
        **{name: constant("", len(ids)) for name in ("error_message", "error_location")},
        "attempt": runs["attempt"].astype(np.int64),
        "host": recoded(codes, [worker.host if worker else "" for worker in known]),
        "nbytes": np.where(runs["outcome"] == OK, runs["nbytes"], np.nan),
        "queued": microseconds(runs["queued"], np.rint),
        "stolen": runs["stolen"].astype(np.int64),
        "client": Categorical(runs["client"], log.clients),
        "group": np.full(len(ids), -1),
    }
    return Table({name: columns[name] for name in TABLES["tasks"].schema})


def _times_of(runs: Array, log: ClusterLog) -> dict[str, Values]:
    """Times by this process's clock: no task starts before it was sent, or ends too late."""
    submitted = microseconds(runs["submitted"] - log.offset, np.floor)
    collected = microseconds(runs["collected"] - log.offset, np.ceil)
    # The scheduler reads the times of runs that workers did not measure.
    is_measured = runs["measured"] == 1
    start, stop, seceded = (
        np.where(is_measured, client_times(times, runs["worker"], log), times - log.offset)
        for times in (runs["start"], runs["stop"], runs["seceded"])
    )
    # The clocks' error, at most: the duration is as it was measured.
    early = np.fmax(submitted - start, 0)
    # Shifted as a whole if it fits: a task keeps its length, and only its start is as uncertain
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


def _of_computations(numbers: IntArray, log: ClusterLog) -> tuple[Categorical, Categorical]:
    """Names and spans of computations."""
    distinct, codes = distinct_of(numbers)
    known = [log.computations.get(number) for number in distinct]
    names = Categorical.of(computation.name if computation else "" for computation in known)
    spans = Categorical.of(computation.span if computation else "" for computation in known)
    return names[codes], spans[codes]


Parts = list[dict[str, Table]]


class ClusterStacks:
    """Sums up the stacks of tasks by worker, pull by pull.

    Parameters
    ----------
    cycle : float
        Seconds whose samples are summed up.
    """

    def __init__(self, cycle: float) -> None:
        self._cycle = cycle
        self._unread = UnreadBatches()
        self._tasks: list[Table] = []
        self._stacks: dict[str, Stacks] = {}

    def take(self, logs: Sequence[ClusterLog]) -> None:
        """Add the stacks that were pulled since the previous call."""
        for log, batch in self._unread.take(logs):
            if not batch.ids:
                continue
            runs = np.frombuffer(batch.rows, RUN.dtype)
            labels, keys = worker_labels(runs["worker"], log), list(batch.keys)
            tasks = tasks_of(batch, log, Lanes())
            # A run whose worker died ended when the scheduler knew of it, at the latest.
            stops = np.where(np.isnan(tasks["stop"]), tasks["collected"], tasks["stop"])
            tasks = tasks.replacing({"worker": labels, "stop": stops})
            self._tasks.append(tasks)
            rows = np.searchsorted(np.frombuffer(batch.ids, np.int64), list(batch.details))
            for row, details in zip(rows.tolist(), batch.details.values(), strict=True):
                if not details.stacks or details.stacks == COROUTINE:
                    continue
                samples = unpacked_stacks(details.stacks, Line)
                times = np.array([time for time, *_ in samples])
                shifted = client_times(times, runs["worker"][row], log).tolist()
                self._stacks.setdefault(labels[row], Stacks(self._cycle)).take(
                    tasks["function"][row],
                    keys[row],
                    [(time, *sample[1:]) for time, sample in zip(shifted, samples, strict=True)],
                )

    def as_seen(self, most: int) -> Parts:
        """`frames`, `call_tree` and `samples`, as samples were taken, in about `most` rows."""
        most //= max(len(self._stacks), 1)
        return [stacks_as_seen(stacks, most, label) for label, stacks in self._stacks.items()]

    def scaled(self, start: float, stop: float) -> Parts:
        """The tables, scaled to the seconds of the tasks; a task that runs stops at the end."""
        tasks = stack([TABLES["tasks"].empty(), *self._tasks])
        workers = tasks["worker"]
        return [
            stacks_of_tasks(
                self._stacks.get(label) or Stacks(self._cycle),
                tasks.filter(workers.eq(label)),
                label,
                (start, stop),
            )
            for label in (workers.values[code] for code in np.unique(workers.codes))
        ]

    def tables(self, start: float, stop: float) -> dict[str, Table]:
        """`scaled`, with all parts in one of each table."""
        return joined_stacks(self.scaled(start, stop))
