"""Workers: the threads and processes that ran tasks, numbered and named."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from dask_diag._version import __version__
from dask_diag.builders.constants import constant, this_host, without_nan
from dask_diag.capture.snapshot import ComputationInfo
from dask_diag.capture.system.memory_limit import memory_limit
from dask_diag.capture.system.usage import processors
from dask_diag.columns import Array, Categorical, FloatArray, smallest_integers
from dask_diag.model import tables
from dask_diag.schema import UNKNOWN_WORKER

__all__ = ["Workers", "worker_codes", "worker_names", "workers_table"]

Workers = dict[tuple[int, int, str], int]
"""The number of each worker by its pid, its thread and its kind; it grows."""


def worker_codes(
    computation: ComputationInfo, ran_on: FloatArray, start: FloatArray, workers: Workers
) -> Array:
    """A number for each thread of each process, in the order in which they first ran a task.

    `workers` grows by those not seen before.
    """
    idents, inverse = np.unique(without_nan(ran_on).astype(np.int64), return_inverse=True)
    first = np.full(len(idents), np.inf)
    np.minimum.at(first, inverse, without_nan(start, np.inf))
    codes = np.zeros(len(idents), dtype=np.int64)
    # Numbered by their first task, so that names do not depend on idents, which the system reuses.
    for position in np.argsort(first, kind="stable").tolist():
        worker = _worker_of(computation, int(idents[position]))
        codes[position] = workers.setdefault(worker, len(workers))
    return smallest_integers(codes[inverse], len(workers))


def _worker_of(computation: ComputationInfo, ident: int) -> tuple[int, int, str]:
    """The pid, the thread and the kind of what a row says ran its task."""
    if ident in computation.remote_workers:
        return ident, computation.remote_workers[ident].thread, "process"
    synchronous = computation.scheduler == "synchronous"
    if synchronous and (ident == computation.thread or (not ident and computation.workers <= 1)):
        return computation.pid, computation.thread, "caller"
    return (computation.pid, ident, "thread") if ident else (0, 0, UNKNOWN_WORKER)


def workers_table(computations: Iterable[ComputationInfo]) -> tables.Workers:
    """`Recording.workers`."""
    rows = [
        (computation.name, pid, worker.joined)
        for computation in computations
        for pid, worker in computation.remote_workers.items()
    ]
    if not rows:
        return tables.Workers.empty()
    names, pids, joined = zip(*rows, strict=True)
    return tables.Workers(
        {
            "computation": Categorical.of(names),
            "pid": Categorical.of(pids),
            "joined": np.array(joined, dtype=float),
            "worker": constant("", len(rows)),
            "address": constant("", len(rows)),
            "host": constant(this_host(), len(rows)),
            "threads": np.ones(len(rows), np.int64),
            "left": np.full(len(rows), np.nan),
            "reason": constant("", len(rows)),
            "clock_offset": np.zeros(len(rows)),
            "clock_error": np.zeros(len(rows)),
            "cpus": np.full(len(rows), processors(), np.int64),
            "memory_limit": np.full(len(rows), memory_limit()),
            "version": constant(__version__, len(rows)),
            "measured": np.ones(len(rows), np.int64),
        }
    )


def worker_names(workers: Iterable[tuple[int, int, str]]) -> list[str]:
    """A short name for each: ``thread-0``, ``process-3``; ``caller`` for the computing thread."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for _, _, kind in workers:
        count = counts[kind] = counts.get(kind, -1) + 1
        names.append(f"{kind}-{count}" if kind in ("thread", "process") or count else kind)
    return names
