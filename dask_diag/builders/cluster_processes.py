"""The processes of clusters: their samples, beside those of this process and its descendants.

Workers that this process started are among its descendants, and are sampled as these: they count
once. Of all others, and of the scheduler, the samples come with what is pulled.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

import numpy as np

from dask_diag.builders.clocks import to_other_clock
from dask_diag.builders.cluster_workers import readings_of
from dask_diag.builders.constants import this_host
from dask_diag.capture.cluster.formats import PROCESS, SCHEDULER
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model import tables
from dask_diag.model.table import Table, stack

__all__ = [
    "RemoteProcesses",
    "memory_at",
    "rows_by_process",
    "with_places",
    "with_remote_processes",
]

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
    numbers = np.frombuffer(samples, float).reshape(-1, PROCESS.size // 8)
    time, pid, is_child, memory, cpu = numbers.T
    readings = readings_of(log.workers.get(worker))
    own = next(iter(pid[is_child == 0].tolist()), np.nan)
    host, label = _host_of(log, worker), _label_of(log, worker)
    return tables.Processes(
        {
            "time": to_other_clock(time, readings) - log.offset,
            "pid": pid.astype(np.int64),
            # Of this process it is none, but no other is the one that computes.
            "is_child": np.ones(len(time), np.int64),
            "memory": memory.copy(),
            "cpu": cpu.copy(),
            "host": Categorical(np.zeros(len(time), np.int64), [host]),
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
