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
from dask_diag.schema import UNKNOWN_WORKER, WorkerEvent

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


def readings_of(worker: ClusterWorker | None) -> ClockReadings:
    """How a worker's clock compares with the scheduler's; none if that is not known."""
    return [] if worker is None else worker.facts.get("clock", [])


def times_of_workers(times: FloatArray, numbers: IntArray, log: ClusterLog) -> FloatArray:
    """Times that workers have read, by their numbers, as times of the scheduler's clock."""
    mapped = times
    # Workers are few and times are many: one mapping for all times of a worker.
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
        return Categorical(positions[inverse], list(self._names) or [UNKNOWN_WORKER])

    def _lane(self, worker: str, thread: int) -> int:
        key = worker, thread
        if key not in self._lanes:
            self._lanes[key] = len(self._names)
            if thread:
                number = self._threads[worker] = self._threads.get(worker, -1) + 1
                self._names.append(f"{worker}/{number}")
            else:
                self._names.append(f"{worker}/{UNKNOWN_WORKER}")
        return self._lanes[key]


def cluster_workers_table(logs: Sequence[ClusterLog]) -> tables.Workers:
    """`Recording.workers` of clusters; each worker once, though several clients may know it."""
    workers: dict[tuple[str, str, str], _DescribedWorker] = {}
    for log in logs:
        for worker in tuple(log.workers.values()):
            described = _DescribedWorker(log, worker, worker.joined - log.offset)
            # Its address is not enough: one that is restarted may come back there.
            key = log.scheduler, log.labels[worker.number], worker.address
            workers[key] = described.merged_with(workers[key]) if key in workers else described
    return _workers_table(list(workers.values()), logs)


class _DescribedWorker(NamedTuple):
    """A worker as the client describes it that knows most of it."""

    log: ClusterLog
    worker: ClusterWorker
    joined: float

    def merged_with(self, other: _DescribedWorker) -> _DescribedWorker:
        """What two clients know of one worker: it joined when the first of them says."""
        best = self if self._extent() >= other._extent() else other
        return best._replace(joined=min(self.joined, other.joined))

    def _extent(self) -> tuple[bool, bool, int]:
        worker = self.worker
        return worker.left is not None, bool(worker.facts), len(readings_of(worker))

    def left_at(self, logs: Sequence[ClusterLog]) -> float:
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


def _end_of(worker: _DescribedWorker, logs: Sequence[ClusterLog]) -> float:
    """Until when times of a worker are mapped."""
    left_at = worker.left_at(logs)
    return min(worker.log.stop, perf_counter()) if np.isnan(left_at) else left_at


def _workers_table(
    workers: Sequence[_DescribedWorker], logs: Sequence[ClusterLog]
) -> tables.Workers:
    readings = [readings_of(described.worker) for described in workers]
    last = [reading[-1] if reading else (0.0, 0.0, 0.0) for reading in readings]
    errors = [
        error_of(reading, _end_of(described, logs) + described.log.offset - offset)
        for described, reading, (_, offset, _) in zip(workers, readings, last, strict=True)
    ]
    offsets = np.array([described.log.offset for described in workers], float)
    own_errors = np.array([described.log.error for described in workers], float)
    facts = [described.worker.facts for described in workers]
    return tables.Workers(
        {
            "computation": Categorical.of(described.log.scheduler for described in workers),
            "pid": Categorical.of(int(fact.get("pid", 0)) for fact in facts),
            "joined": np.array([described.joined for described in workers], float),
            "worker": Categorical.of(
                described.log.labels[described.worker.number] for described in workers
            ),
            "address": Categorical.of(described.worker.address for described in workers),
            "host": Categorical.of(described.worker.host for described in workers),
            "threads": np.array([described.worker.threads for described in workers], np.int64),
            "left": np.array([described.left_at(logs) for described in workers], float),
            "reason": Categorical.of(described.worker.reason for described in workers),
            "clock_offset": np.array([offset for _, offset, _ in last], float) - offsets,
            "clock_error": np.array(errors, float) + own_errors,
            "cpus": np.array([fact.get("cpus", 0) for fact in facts], np.int64),
            "memory_limit": np.array([fact.get("memory_limit", np.nan) for fact in facts], float),
            "version": Categorical.of(str(fact.get("version", "")) for fact in facts),
            "measured": np.array([fact.get("measured", 0) for fact in facts], np.int64),
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
