"""The processes of clusters: their samples, beside those of this process and its descendants.

Workers that this process started are among its descendants, and are sampled as these: they count
once. Of all others, and of the scheduler, the samples come with what is pulled.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.capture.workers_table import constant, this_host
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import PROCESS, SCHEDULER, Batch, ClusterWorker
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model import tables
from dask_diag.model.codes import UNKNOWN_WORKER, WorkerEvent
from dask_diag.model.table import Table, stack

ClockReadings = Sequence[Sequence[float]]
"""Of each comparison: its time, the offset to add to get the other clock's time, and its error."""

_MOST_DRIFT = 5e-4
"""Of a clock that was compared once: a system does not let its clock drift by more."""


def to_other_clock(times: FloatArray, readings: ClockReadings) -> FloatArray:
    """Add the offset; between comparisons, and after the last one, clocks drift evenly."""
    if not readings:
        return times
    at, offsets, _ = np.array(sorted(tuple(reading) for reading in readings)).T
    # Outside the readings `interp` goes on with the last offset: there the mean drift of all of
    # them is nearer to the truth, as long as there are two.
    added = np.interp(times, at, offsets)
    if at[-1] > at[0]:
        drift = (offsets[-1] - offsets[0]) / (at[-1] - at[0])
        added = np.where(times > at[-1], offsets[-1] + drift * (times - at[-1]), added)
        added = np.where(times < at[0], offsets[0] + drift * (times - at[0]), added)
    return np.asarray(times + added)


def error_of(readings: ClockReadings, until: float) -> float:
    """By how much a mapped time is wrong at most, up to a time of the worker's clock.

    A time is mapped as it comes, by the readings that there are: each reading shows how wrong the
    times before it were, if its clock does not drift evenly. After the last one nothing does.
    """
    if not readings:
        return 0.0
    at, offsets, errors = np.array(sorted(tuple(reading) for reading in readings)).T
    drift = np.zeros(len(at))
    drift[1:] = (offsets[1:] - offsets[0]) / np.maximum(at[1:] - at[0], 1e-9)
    # What each reading should have been by those before it: its distance from that is how wrong the
    # times between were mapped.
    expected = offsets[:-1] + drift[:-1] * np.diff(at)
    missed = np.abs(offsets[1:] - expected).max(initial=0.0)
    drift_after = abs(drift[-1]) if len(at) > 1 else _MOST_DRIFT
    return float(errors.max() + missed + drift_after * max(0.0, until - at[-1]))


def microseconds(times: FloatArray, rounded: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Times of a scheduler, which reads its clock once for all that a message brings.

    To a microsecond they take half as much in a file: `rounded` down or up, so that what was before
    or after stays so.
    """
    return np.asarray(rounded(times * 1e6) / 1e6)


def bounds_in_microseconds(start: FloatArray, stop: FloatArray) -> tuple[FloatArray, FloatArray]:
    """When workers of a cluster started and stopped something, in whole microseconds.

    To read the two clocks of a task takes about one: what is less is noise, which would be more
    than a byte of each time in a file. How long it took is rounded once, and not each of its ends,
    so that sums of many are right. What lies between whole microseconds stays between them.
    """
    first = microseconds(start, np.floor)
    return first, microseconds(first + microseconds(stop - start, np.rint), np.rint)


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


_CLIENT = "client"
_SCHEDULER = "scheduler"
_GONE_AFTER = 2.5
"""Times the usual interval from which on a process without a sample is not there any more."""


class RemoteProcesses:
    """The samples of processes that are not of this one's tree, pull by pull."""

    def __init__(self) -> None:
        self._batches: dict[int, int] = {}
        self._seen: set[tuple[str, int, bytes]] = set()

    def take(self, logs: Sequence[ClusterLog]) -> tables.Processes:
        """Those since last asked; of several clients of a cluster each has them all."""
        parts = []
        for log in logs:
            batches = log.batches[self._batches.get(id(log), 0) :]
            self._batches[id(log)] = self._batches.get(id(log), 0) + len(batches)
            for batch in batches:
                for worker, samples in batch.processes:
                    # Each process is sampled at times of its own.
                    sample = log.scheduler, worker, samples[: PROCESS.size]
                    if worker not in log.below and sample not in self._seen:
                        self._seen.add(sample)
                        parts.append(_processes_of(log, worker, samples))
        return stack([tables.Processes.empty(), *parts])


def _processes_of(log: ClusterLog, worker: int, samples: bytes) -> tables.Processes:
    rows = np.frombuffer(samples, PROCESS.dtype)
    readings, pid = readings_of(log.workers.get(worker)), rows["pid"]
    own = next(iter(pid[rows["is_child"] == 0].tolist()), np.nan)
    host, label = _host_of(log, worker), _label_of(log, worker)
    return tables.Processes(
        {
            "time": to_other_clock(rows["time"], readings) - log.offset,
            "pid": pid.astype(np.int64),
            # Of this process it is none, but no other is the one that computes.
            "is_child": np.ones(len(rows), np.int64),
            "memory": rows["memory"].copy(),
            "cpu": rows["cpu"].copy(),
            "host": Categorical(np.zeros(len(rows), np.int64), [host]),
            "worker": Categorical.of([label, ""])[(pid != own).astype(np.int64)],
        }
    )


def _host_of(log: ClusterLog, worker: int) -> str:
    if worker in log.workers:
        return log.workers[worker].host
    return log.address.rpartition("://")[2].rpartition(":")[0]


def _label_of(log: ClusterLog, worker: int) -> str:
    if worker == SCHEDULER:
        return _SCHEDULER
    return log.labels.get(worker, "")


def with_places(local: Table, logs: Sequence[ClusterLog]) -> tables.Processes:
    """The processes of this tree, with their hosts, and what they are of clusters."""
    hosts_and_roles = _hosts_and_roles(logs)
    pids, codes = np.unique(local["pid"], return_inverse=True)
    locations = [hosts_and_roles.get(pid, (this_host(), "")) for pid in pids.tolist()]
    return tables.Processes(
        {
            **{name: local[name] for name in ("time", "pid", "is_child", "memory", "cpu")},
            "host": Categorical.of(host for host, _ in locations)[codes.reshape(-1)],
            "worker": Categorical.of(label for _, label in locations)[codes.reshape(-1)],
        }
    )


def _hosts_and_roles(logs: Sequence[ClusterLog]) -> dict[int, tuple[str, str]]:
    """By pid: the host and the roles of each process of this tree that a cluster knows."""
    hosts: dict[int, str] = {}
    roles: dict[int, dict[str, None]] = {}
    for log in logs:
        roles.setdefault(os.getpid(), {_CLIENT: None})
        hosts.setdefault(os.getpid(), this_host())
        for worker in sorted(log.below):
            pid = log.pid if worker == SCHEDULER else int(log.workers[worker].facts.get("pid", 0))
            hosts.setdefault(pid, _host_of(log, worker))
            roles.setdefault(pid, {})[_label_of(log, worker)] = None
    return {pid: (hosts[pid], _joined(list(labels))) for pid, labels in roles.items()}


def _joined(roles: Sequence[str]) -> str:
    """The roles of one process in few words, though it may have many workers."""
    others = [role for role in roles if role in (_CLIENT, _SCHEDULER)]
    workers = [role for role in roles if role not in others]
    return ", ".join(others + (workers if len(workers) < 2 else [f"{len(workers):,} workers"]))


def with_remote_processes(resources: Table, remote: Table, start: float) -> Table:
    """The samples of this tree, with the CPU and the memory of processes that are not of it.

    `start` is when the first of them began.
    """
    times = resources["time"]
    if not len(times) or not len(remote):
        return resources
    cpu, memory = np.zeros(len(times)), np.zeros(len(times))
    lasted = np.diff(times, prepend=min(start, times[0]))
    for rows in rows_by_process(remote):
        sampled = remote.rows(rows[np.argsort(remote["time"][rows], kind="stable")])
        used = _cpu_seconds_at(np.append(times - lasted, times), sampled)
        spent = used[len(times) :] - used[: len(times)]
        cpu += np.divide(100 * spent, lasted, out=np.zeros(len(times)), where=lasted > 0)
        memory += memory_at(times, sampled)
    return Table(
        {
            **{name: resources[name] for name in resources.columns},
            "cpu": resources["cpu"] + cpu,
            "memory_children": resources["memory_children"] + memory,
        }
    )


def rows_by_process(processes: Table) -> list[IntArray]:
    """The rows of each process, in the order of the table."""
    hosts_and_pids = np.stack([processes["host"].codes.astype(np.int64), processes["pid"]])
    _, codes = np.unique(hosts_and_pids, axis=1, return_inverse=True)
    codes = codes.reshape(-1)
    order = np.argsort(codes, kind="stable")
    return np.split(order, np.cumsum(np.bincount(codes))[:-1])


def _cpu_seconds_at(times: FloatArray, sampled: Table) -> FloatArray:
    """The CPU seconds that a process had used by then, since its first sample."""
    seconds = np.nan_to_num(sampled["cpu"]) / 100 * np.diff(sampled["time"], prepend=np.nan)
    return np.asarray(np.interp(times, sampled["time"], np.cumsum(np.nan_to_num(seconds))))


def memory_at(times: FloatArray, sampled: Table) -> FloatArray:
    """The bytes of a process as they were sampled last; 0 where it was not there."""
    index = np.searchsorted(sampled["time"], times, "right") - 1
    intervals = np.diff(sampled["time"])
    usual = float(np.median(intervals)) if len(intervals) else 0.0
    last = sampled["time"][np.maximum(index, 0)]
    is_there = (index >= 0) & (times - last <= np.maximum(_GONE_AFTER * usual, 1.0))
    return np.where(is_there, sampled["memory"][np.maximum(index, 0)], 0.0)
