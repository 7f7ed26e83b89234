"""The workers of a cluster: their names, their lanes of threads, and their table."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from dask_diag.builders.clocks import ClockReadings, to_other_clock
from dask_diag.builders.constants import constant
from dask_diag.capture.cluster.log import Batch, ClusterLog, ClusterWorker
from dask_diag.columns import Categorical, IntArray
from dask_diag.model import tables
from dask_diag.model.table import Table, stack
from dask_diag.schema import WorkerEvent

__all__ = [
    "Lanes",
    "SeenEvents",
    "cluster_workers_table",
    "readings_of",
    "worker_events_of",
    "worker_labels",
]

SeenEvents = set[tuple[str, int, str, float]]
"""The scheduler, the worker's number, what happened, and when it started."""
_UNKNOWN = "unknown"


def worker_labels(workers: Iterable[ClusterWorker]) -> dict[int, str]:
    """A name for each worker; one that has come again under its name has a number, too."""
    labels: dict[int, str] = {}
    counts: dict[str, int] = {}
    for worker in sorted(workers, key=lambda each: each.number):
        name = f"worker-{worker.name}" if worker.name.isdigit() else worker.name
        count = counts[name] = counts.get(name, 0) + 1
        labels[worker.number] = f"{name} ({count})" if count > 1 else name
    return labels


def readings_of(worker: ClusterWorker | None) -> ClockReadings:
    """How a worker's clock compares with the scheduler's; none if that is not known."""
    return [] if worker is None else worker.facts.get("clock", [])


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
    clusters: dict[str, ClusterLog] = {}
    for log in logs:
        known = clusters.get(log.scheduler)
        if log.workers and (known is None or len(log.workers) >= len(known.workers)):
            clusters[log.scheduler] = log
    return stack([tables.Workers.empty(), *map(_workers_of, clusters.values())])


def _workers_of(log: ClusterLog) -> tables.Workers:
    workers = list(log.workers.values())
    labels = worker_labels(workers)
    readings = [readings_of(worker) for worker in workers]
    last = [reading[-1] if reading else (0.0, 0.0, 0.0) for reading in readings]
    errors = [max((error for _, _, error in reading), default=0.0) for reading in readings]
    facts = [worker.facts for worker in workers]
    left = [np.nan if worker.left is None else worker.left - log.offset for worker in workers]
    return tables.Workers(
        {
            "computation": Categorical.of(log.scheduler for _ in workers),
            "pid": Categorical.of(int(each.get("pid", 0)) for each in facts),
            "joined": np.array([worker.joined - log.offset for worker in workers]),
            "worker": Categorical.of(labels[worker.number] for worker in workers),
            "address": Categorical.of(worker.address for worker in workers),
            "host": Categorical.of(worker.host for worker in workers),
            "threads": np.array([worker.threads for worker in workers], np.int64),
            "left": np.array(left, float),
            "reason": Categorical.of(worker.reason for worker in workers),
            "clock_offset": np.array([offset - log.offset for _, offset, _ in last], float),
            "clock_error": np.array([error + log.error for error in errors], float),
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
    names = worker_labels(log.workers.values())
    rows = [row for row in batch.events if (log.scheduler, *row[:3]) not in seen]
    seen.update((log.scheduler, *row[:3]) for row in rows)
    numbers, events, starts, stops, sizes = zip(*rows, strict=True) if rows else ((),) * 5
    times = {}
    for bound, values in (("start", starts), ("stop", stops)):
        mapped = [
            value
            if event == WorkerEvent.PAUSED
            else to_other_clock(np.array([value]), readings_of(log.workers.get(number)))[0]
            for number, event, value in zip(numbers, events, values, strict=True)
        ]
        times[bound] = np.array(mapped, float) - log.offset
    return Table(
        {
            "computation": constant(log.scheduler, len(numbers)),
            "worker": Categorical.of(names.get(number, "") for number in numbers),
            "event": Categorical.of(events),
            **times,
            "bytes": np.array(sizes, float),
        }
    )
