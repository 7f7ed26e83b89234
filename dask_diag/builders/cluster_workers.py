"""The workers of a cluster: their names, their lanes of threads, and their table."""

from __future__ import annotations

from collections.abc import Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.builders.clocks import ClockReadings, error_of, to_other_clock
from dask_diag.builders.constants import constant
from dask_diag.capture.cluster.batch import Batch, ClusterWorker
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model import tables
from dask_diag.model.table import Table
from dask_diag.schema import WorkerEvent

__all__ = [
    "Lanes",
    "SeenEvents",
    "cluster_workers_table",
    "readings_of",
    "times_of_workers",
    "worker_events_of",
]

SeenEvents = set[tuple[str, int, str, float]]
"""The scheduler, the worker's number, what happened, and when it started."""
_UNKNOWN = "unknown"


def readings_of(worker: ClusterWorker | None) -> ClockReadings:
    """How a worker's clock compares with the scheduler's; none if that is not known."""
    return [] if worker is None else worker.facts.get("clock", [])


def times_of_workers(times: FloatArray, numbers: IntArray, log: ClusterLog) -> FloatArray:
    """Times that workers have read, by their numbers, as times of the scheduler's clock."""
    mapped = times
    for number in np.unique(numbers).tolist():
        readings = readings_of(log.workers.get(number))
        if readings:
            mapped = np.where(numbers == number, to_other_clock(times, readings), mapped)
    return mapped


class Lanes:
    """The threads of workers, numbered in the order in which they first ran a task."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], int] = {}
        self._threads: dict[str, int] = {}
        self._names: list[str] = []

    def of(self, workers: Sequence[str], codes: IntArray, threads: IntArray) -> Categorical:
        """The lane of each run, by the code of its worker and its thread; 0 is not known."""
        pairs, inverse = np.unique(np.stack([codes, threads]), axis=1, return_inverse=True)
        inverse = inverse.reshape(-1)
        first = np.full(pairs.shape[1], len(codes))
        np.minimum.at(first, inverse, np.arange(len(codes)))
        positions = np.zeros(pairs.shape[1], np.int64)
        for pair in np.argsort(first).tolist():
            code, thread = pairs[:, pair].tolist()
            positions[pair] = self._lane(workers[code], thread)
        return Categorical(positions[inverse], list(self._names) or [_UNKNOWN])

    def _lane(self, worker: str, thread: int) -> int:
        key = worker, thread
        if key not in self._lanes:
            self._lanes[key] = len(self._names)
            if thread:
                number = self._threads[worker] = self._threads.get(worker, -1) + 1
                self._names.append(f"{worker}/{number}")
            else:
                self._names.append(f"{worker}/{_UNKNOWN}")
        return self._lanes[key]


def cluster_workers_table(logs: Sequence[ClusterLog]) -> tables.Workers:
    """`Recording.workers` of clusters; each worker once, though several clients may know it."""
    workers: dict[tuple[str, str, str], _Known] = {}
    for log in logs:
        for worker in tuple(log.workers.values()):
            known = _Known(log, worker, worker.joined - log.offset)
            # Its address is not enough: one that is restarted may come back there.
            key = log.scheduler, log.labels[worker.number], worker.address
            workers[key] = known.merged_with(workers[key]) if key in workers else known
    return _workers_table(list(workers.values()), logs)


class _Known(NamedTuple):
    """A worker as the client describes it that knows most of it."""

    log: ClusterLog
    worker: ClusterWorker
    joined: float

    def merged_with(self, other: _Known) -> _Known:
        """What two clients know of one worker: it joined when the first of them says."""
        best = self if self._extent() >= other._extent() else other
        return best._replace(joined=min(self.joined, other.joined))

    def _extent(self) -> tuple[bool, bool, int]:
        worker = self.worker
        return worker.left is not None, bool(worker.facts), len(readings_of(worker))

    def left(self, logs: Sequence[ClusterLog]) -> float:
        """When it left; NaN if it is still there.

        One that left while no client was recorded is not known to a client that came later.
        """
        if self.worker.left is not None:
            return self.worker.left - self.log.offset
        label = self.log.labels[self.worker.number]
        for log in logs:
            is_later = log.scheduler == self.log.scheduler and log.start >= self.log.stop
            if is_later and log.workers and label not in log.labels.values():
                return self.log.stop
        return np.nan


def _end_of(known: _Known, logs: Sequence[ClusterLog]) -> float:
    """Until when times of a worker are mapped."""
    left = known.left(logs)
    return min(known.log.stop, perf_counter()) if np.isnan(left) else left


def _workers_table(workers: Sequence[_Known], logs: Sequence[ClusterLog]) -> tables.Workers:
    readings = [readings_of(known.worker) for known in workers]
    last = [reading[-1] if reading else (0.0, 0.0, 0.0) for reading in readings]
    errors = [
        error_of(reading, _end_of(known, logs) + known.log.offset - offset)
        for known, reading, (_, offset, _) in zip(workers, readings, last, strict=True)
    ]
    offsets = np.array([known.log.offset for known in workers], float)
    own_errors = np.array([known.log.error for known in workers], float)
    facts = [known.worker.facts for known in workers]
    return tables.Workers(
        {
            "computation": Categorical.of(known.log.scheduler for known in workers),
            "pid": Categorical.of(int(each.get("pid", 0)) for each in facts),
            "joined": np.array([known.joined for known in workers], float),
            "worker": Categorical.of(known.log.labels[known.worker.number] for known in workers),
            "address": Categorical.of(known.worker.address for known in workers),
            "host": Categorical.of(known.worker.host for known in workers),
            "threads": np.array([known.worker.threads for known in workers], np.int64),
            "left": np.array([known.left(logs) for known in workers], float),
            "reason": Categorical.of(known.worker.reason for known in workers),
            "clock_offset": np.array([offset for _, offset, _ in last], float) - offsets,
            "clock_error": np.array(errors, float) + own_errors,
            "cpus": np.array([each.get("cpus", 0) for each in facts], np.int64),
            "memory_limit": np.array([each.get("memory_limit", np.nan) for each in facts], float),
            "version": Categorical.of(str(each.get("version", "")) for each in facts),
            "measured": np.array([each.get("measured", 0) for each in facts], np.int64),
        }
    )


def worker_events_of(batch: Batch, log: ClusterLog, seen: SeenEvents) -> Table:
    """When workers paused, by the scheduler's clock, and used their disks, by their own.

    Every client of a cluster is sent them: those that are `seen` by now are left out.
    """
    names = log.labels
    rows = [row for row in batch.events if (log.scheduler, *row[:3]) not in seen]
    seen.update((log.scheduler, *row[:3]) for row in rows)
    numbers, events, starts, stops, sizes = zip(*rows, strict=True) if rows else ((),) * 5
    is_pause = np.array([event == WorkerEvent.PAUSED for event in events], bool)
    times = {}
    for bound, values in (("start", starts), ("stop", stops)):
        read = np.array(values, float)
        mapped = times_of_workers(read, np.array(numbers, np.int64), log)
        # The scheduler reads its own clock for a pause.
        times[bound] = np.where(is_pause, read, mapped) - log.offset
    return Table(
        {
            "computation": constant(log.scheduler, len(numbers)),
            "worker": Categorical.of(names.get(number, "") for number in numbers),
            "event": Categorical.of(events),
            **times,
            "bytes": np.array(sizes, float),
        }
    )
