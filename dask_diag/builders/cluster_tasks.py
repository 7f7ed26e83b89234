"""The table of tasks of what was pulled of a cluster."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dask_diag.builders.clocks import bounds_in_microseconds, microseconds, to_other_clock
from dask_diag.builders.cluster_workers import Lanes, readings_of
from dask_diag.builders.constants import constant
from dask_diag.builders.keys import keys_columns
from dask_diag.capture.cluster.batch import Batch
from dask_diag.capture.cluster.formats import OUTCOMES, RUN_FIELDS
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Array, Categorical, IntArray, Values
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES
from dask_diag.schema import UNKNOWN_WORKER, Outcome

__all__ = ["RUN", "distinct_of", "tasks_of"]

RUN = np.dtype(list(RUN_FIELDS))
"""A row of a batch."""


def tasks_of(batch: Batch, log: ClusterLog, lanes: Lanes) -> Table:
    """The table of the runs in a batch."""
    runs = np.frombuffer(batch.rows, RUN)
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
    ok = outcomes == OUTCOMES.index(Outcome.OK)
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
