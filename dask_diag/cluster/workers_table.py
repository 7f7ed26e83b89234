"""Tables of workers and processes of clusters, and the conversion of workers' times.

Descendants of this process are sampled with the process itself, and count once. Samples of other
processes are pulled.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from time import perf_counter

import numpy as np

from dask_diag.capture.workers_table import constant, this_host
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import EVENTS, PROCESS, SCHEDULER, WORKER_EVENT, Batch, ClusterWorker
from dask_diag.columns import Categorical, FloatArray, IntArray, ratio
from dask_diag.model import tables
from dask_diag.model.codes import UNKNOWN_WORKER, WorkerEvent
from dask_diag.model.table import Table, stack

ClockReadings = Sequence[Sequence[float]]
"""Time, offset to the other clock and error of each comparison."""

_MOST_DRIFT = 5e-4
"""Most drift that a system lets its clock have, for a clock that was compared once."""


def to_other_clock(times: FloatArray, readings: ClockReadings) -> FloatArray:
    """Add the offset; between comparisons, and after the last one, clocks drift evenly."""
    if not readings:
        return times
    at, offsets, _ = np.array(sorted(tuple(reading) for reading in readings)).T
    # Outside the readings `interp` goes on with the last offset: there the mean drift of all of
    # them is nearer to the truth, as long as there are two.
    drift = (offsets[-1] - offsets[0]) / max(at[-1] - at[0], 1e-9)
    outside = times - np.clip(times, at[0], at[-1])
    return np.asarray(times + np.interp(times, at, offsets) + drift * outside)


def error_of(readings: ClockReadings, until: float) -> float:
    """The largest error of a mapped time, up to a time of the worker's clock.

    A time is mapped when it is pulled, by the readings so far. Each reading shows how wrong earlier
    times were, if the clock does not drift evenly. Nothing shows that after the last reading.
    """
    if not readings:
        return 0.0
    at, offsets, errors = np.array(sorted(tuple(reading) for reading in readings)).T
    drift = np.zeros(len(at))
    drift[1:] = (offsets[1:] - offsets[0]) / np.maximum(at[1:] - at[0], 1e-9)
    # The distance of a reading from its extrapolation is the error of the times between.
    expected = offsets[:-1] + drift[:-1] * np.diff(at)
    missed = np.abs(offsets[1:] - expected).max(initial=0.0)
    drift_after = abs(drift[-1]) if len(at) > 1 else _MOST_DRIFT
    return float(errors.max() + missed + drift_after * max(0.0, until - at[-1]))


def microseconds(times: FloatArray, rounded: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Times in whole microseconds, for half the bytes in a file.

    A scheduler reads the clock once for each message. Times are `rounded` down or up, for events to
    keep their order.
    """
    return np.asarray(rounded(times * 1e6) / 1e6)


def bounds_in_microseconds(start: FloatArray, stop: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Starts and stops on workers, in whole microseconds.

    Reading the two clocks of a task takes about a microsecond: shorter times are noise, and
    would take more than a byte of each time in a file. The duration is rounded, and not each end,
    for right sums of many durations. Times between whole microseconds stay between them.
    """
    first = microseconds(start, np.floor)
    return first, microseconds(first + microseconds(stop - start, np.rint), np.rint)


def readings_of(worker: ClusterWorker | None) -> ClockReadings:
    """Readings of a worker's clock; none if the worker is not known."""
    return [] if worker is None else worker.facts.get("clock", [])


def client_times(times: FloatArray, workers: IntArray | int, log: ClusterLog) -> FloatArray:
    """Times of workers' clocks, with the numbers of the workers, by the clock of this process."""
    mapped, numbers = times.copy(), np.broadcast_to(workers, times.shape)
    for number in np.unique(numbers).tolist():
        readings = readings_of(log.workers.get(number))
        if readings:
            rows = np.flatnonzero(numbers == number)
            mapped[rows] = to_other_clock(times[rows], readings)
    return mapped - log.offset


def distinct_of(numbers: IntArray) -> tuple[list[int], IntArray]:
    """The distinct numbers, and the position of each number among them."""
    distinct, codes = np.unique(numbers, return_inverse=True)
    return distinct.tolist(), codes.reshape(-1)


def worker_labels(workers: IntArray, log: ClusterLog) -> Categorical:
    """Labels of workers by their numbers; empty for unknown workers."""
    distinct, codes = distinct_of(workers)
    return Categorical(codes, [log.labels.get(number, "") for number in distinct])


class UnreadBatches:
    """The batches of logs that a reader has not seen yet."""

    def __init__(self) -> None:
        self._seen: dict[int, int] = {}

    def take(self, logs: Iterable[ClusterLog]) -> Iterator[tuple[ClusterLog, Batch]]:
        """Yield the batches that were pulled since the previous call, log by log."""
        for log in logs:
            seen = self._seen.get(id(log), 0)
            new = log.batches[seen:]
            self._seen[id(log)] = seen + len(new)
            yield from ((log, batch) for batch in new)


class Lanes:
    """The threads of workers, numbered in the order in which they first ran a task."""

    def __init__(self) -> None:
        self._lanes: dict[tuple[str, int], int] = {}
        self._threads: Counter[str] = Counter()
        self._names: list[str] = []

    def of(self, workers: Sequence[str], codes: IntArray, threads: IntArray) -> Categorical:
        """The lane of each run, by the code of its worker and its thread; thread 0 is unknown."""
        _, first, inverse = np.unique(
            np.stack([codes, threads]), axis=1, return_index=True, return_inverse=True
        )
        lanes = np.zeros(len(first), np.int64)
        for pair in np.argsort(first).tolist():
            run = first[pair]
            worker, thread = workers[codes[run]], int(threads[run])
            if (worker, thread) not in self._lanes:
                number = self._threads[worker] if thread else UNKNOWN_WORKER
                self._names.append(f"{worker}/{number}")
                self._threads[worker] += thread != 0
            lanes[pair] = self._lanes.setdefault((worker, thread), len(self._lanes))
        return Categorical(lanes[inverse.reshape(-1)], self._names or [UNKNOWN_WORKER])


def cluster_workers_table(logs: Sequence[ClusterLog]) -> tables.Workers:
    """`Recording.workers` of clusters, with each worker once, though several clients may know it.

    The row of a worker is from the client with most knowledge of the worker, with the earliest time
    of joining of all clients.
    """
    known: dict[str, list[tuple[ClusterLog, ClusterWorker]]] = {}
    for log in logs:
        for worker in log.workers.copy().values():
            known.setdefault(worker.id, []).append((log, worker))
    rows = []
    for described in known.values():
        best = max(reversed(described), key=_knowledge)
        joined = min(worker.joined - log.offset for log, worker in described)
        rows.append(_worker_row(*best, joined, logs))
    return tables.Workers.of_rows(rows)


def _knowledge(described: tuple[ClusterLog, ClusterWorker]) -> tuple[bool, bool, int]:
    worker = described[1]
    return worker.left is not None, bool(worker.facts), len(readings_of(worker))


def _worker_row(
    log: ClusterLog, worker: ClusterWorker, joined: float, logs: Sequence[ClusterLog]
) -> tuple[object, ...]:
    facts, readings, label = worker.facts, readings_of(worker), log.labels[worker.number]
    left = _left_at(log, worker, logs)
    offset = readings[-1][1] if readings else 0.0
    end = min(log.stop, perf_counter()) if np.isnan(left) else left
    error = error_of(readings, end + log.offset - offset) + log.error
    return (
        *(log.scheduler, int(facts.get("pid", 0)), joined, label, worker.address, worker.host),
        *(worker.threads, left, worker.reason, offset - log.offset, error, facts.get("cpus", 0)),
        *(facts.get("memory_limit", np.nan), str(facts.get("version", ""))),
        facts.get("measured", 0),
    )


def _left_at(log: ClusterLog, worker: ClusterWorker, logs: Sequence[ClusterLog]) -> float:
    """The time of a worker's leaving; NaN while the worker is present.

    A later client does not know a worker that left while no client was recorded.
    """
    if worker.left is not None:
        return worker.left - log.offset
    label = log.labels[worker.number]
    for other in logs:
        is_later = other.scheduler == log.scheduler and other.start >= log.stop
        if is_later and other.workers and label not in other.labels.values():
            return log.stop
    return np.nan


def worker_events_of(batch: Batch, log: ClusterLog) -> Table:
    """Pauses of workers, by the scheduler's clock, and use of disks, by the workers' clocks."""
    rows = np.frombuffer(batch.events, WORKER_EVENT.dtype)
    events = Categorical(rows["event"], EVENTS)
    start, stop = (
        np.where(
            events.eq(WorkerEvent.PAUSED),
            rows[bound] - log.offset,
            client_times(rows[bound], rows["worker"], log),
        )
        for bound in ("start", "stop")
    )
    return Table(
        {
            "computation": constant(log.scheduler, len(rows)),
            "worker": worker_labels(rows["worker"], log),
            "event": events,
            "start": start,
            "stop": stop,
            "bytes": rows["nbytes"].copy(),
        }
    )


_CLIENT = "client"
_SCHEDULER = "scheduler"
_GONE_AFTER = 2.5
"""Usual intervals without a sample after which a process has ended."""


class RemoteProcesses:
    """Samples of processes outside of the tree of this process, pull by pull."""

    def __init__(self) -> None:
        self._unread = UnreadBatches()

    def take(self, logs: Sequence[ClusterLog]) -> tables.Processes:
        """Samples since the previous call."""
        parts = [
            _processes_of(log, worker, samples)
            for log, batch in self._unread.take(logs)
            for worker, samples in batch.processes
            if worker not in log.below
        ]
        return stack([tables.Processes.empty(), *parts])


def _processes_of(log: ClusterLog, worker: int, samples: bytes) -> tables.Processes:
    rows = np.frombuffer(samples, PROCESS.dtype)
    count, pid = len(rows), rows["pid"]
    own = next(iter(pid[rows["is_child"] == 0].tolist()), np.nan)
    return tables.Processes(
        {
            "time": client_times(rows["time"], worker, log),
            "pid": pid.astype(np.int64),
            # A process that does not descend from this one; but this one is what computes here.
            "is_child": np.ones(count, np.int64),
            "memory": rows["memory"].copy(),
            "cpu": rows["cpu"].copy(),
            "host": constant(_host_of(log, worker), count),
            "worker": Categorical.of([_label_of(log, worker), ""])[(pid != own).astype(np.int64)],
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
    """The processes of this tree, with hosts and roles in clusters."""
    hosts_and_roles = _hosts_and_roles(logs)
    pids, codes = distinct_of(local["pid"])
    locations = [hosts_and_roles.get(pid, (this_host(), "")) for pid in pids]
    return tables.Processes(
        {
            **{name: local[name] for name in ("time", "pid", "is_child", "memory", "cpu")},
            "host": Categorical.of(host for host, _ in locations)[codes],
            "worker": Categorical.of(label for _, label in locations)[codes],
        }
    )


def _hosts_and_roles(logs: Sequence[ClusterLog]) -> dict[int, tuple[str, str]]:
    """Hosts and roles in clusters of processes of this tree, by pid."""
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
    """Short text of the roles of a process, which may have many workers."""
    others = [role for role in roles if role in (_CLIENT, _SCHEDULER)]
    workers = [role for role in roles if role not in others]
    return ", ".join(others + (workers if len(workers) < 2 else [f"{len(workers):,} workers"]))


def with_remote_processes(resources: Table, remote: Table, start: float) -> Table:
    """Samples of this tree, with the CPU and the memory of remote processes.

    `start` is the begin of the first sample.
    """
    times = resources["time"]
    if not len(times) or not len(remote):
        return resources
    cpu, memory = np.zeros(len(times)), np.zeros(len(times))
    lasted = np.diff(times, prepend=min(start, times[0]))
    for sampled in samples_by_process(remote):
        used = _cpu_seconds_at(np.append(times - lasted, times), sampled)
        spent = used[len(times) :] - used[: len(times)]
        cpu += ratio(100 * spent, lasted)
        memory += memory_at(times, sampled)
    return Table(
        {
            **{name: resources[name] for name in resources.columns},
            "cpu": resources["cpu"] + cpu,
            "memory_children": resources["memory_children"] + memory,
        }
    )


def samples_by_process(processes: Table) -> Iterator[Table]:
    """The samples of each process, in the order of their times."""
    hosts_and_pids = np.stack([processes["host"].codes.astype(np.int64), processes["pid"]])
    distinct, codes = np.unique(hosts_and_pids, axis=1, return_inverse=True)
    codes = codes.reshape(-1)
    order = np.lexsort((processes["time"], codes))
    for process in range(distinct.shape[1]):
        yield processes.filter(order[codes[order] == process])


def _cpu_seconds_at(times: FloatArray, sampled: Table) -> FloatArray:
    """The CPU seconds of a process at each time, since its first sample."""
    seconds = np.nan_to_num(sampled["cpu"]) / 100 * np.diff(sampled["time"], prepend=np.nan)
    return np.asarray(np.interp(times, sampled["time"], np.cumsum(np.nan_to_num(seconds))))


def memory_at(times: FloatArray, sampled: Table) -> FloatArray:
    """The bytes of a process at the last sample before each time; 0 without the process.

    A process starts at most one interval before its first sample.
    """
    known = sampled["time"]
    last = np.maximum(np.searchsorted(known, times, "right") - 1, 0)
    usual = float(np.median(np.diff(known))) if len(known) > 1 else 0.0
    since = times - known[last]
    is_there = (since >= -usual) & (since <= max(_GONE_AFTER * usual, 1.0))
    return np.where(is_there, sampled["memory"][last], 0.0)
