"""The workers of a simulated cluster: when their threads are free, and which results they have."""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from math import ceil

import numpy as np

from dask_diag.analysis.simulation.replay import floats, integers, zeros
from dask_diag.analysis.simulation.work import Cluster, Work

__all__ = ["NOWHERE", "STEALING", "Inputs", "Workers"]

SATURATION = 1.1
"""How many tasks a worker has for each thread, rounded up: distributed's `worker-saturation`."""
TIMES_FULL = 2
"""So many times as many tasks wait, at most, at a worker that has their inputs."""
STEALING = 0.05
"""Seconds until a task is sent to a worker that has nothing to do: distributed looks for these each
0.1 s."""
NOWHERE = -1


class Inputs:
    """Which worker has which results, and what it takes to bring them to another one."""

    def __init__(self, work: Work, cluster: Cluster) -> None:
        order = np.argsort(work.task, kind="stable")
        self._inputs = integers(work.depends_on[order])
        self._bounds = integers(np.searchsorted(work.task[order], np.arange(len(work) + 1)))
        self._nbytes = floats(cluster.nbytes)
        self._latency, self._rate = cluster.latency, cluster.bytes_a_second
        self._home = integers(np.full(len(work), NOWHERE))
        self._copies: set[tuple[int, int]] = set()

    def made(self, task: int, worker: int) -> None:
        """A worker has a task's result."""
        self._home[task] = worker

    def by_worker(self, task: int) -> dict[int, float]:
        """The bytes of a task's inputs that each worker made."""
        held: dict[int, float] = {}
        for input_task in self._inputs[self._bounds[task] : self._bounds[task + 1]]:
            home = self._home[input_task]
            held[home] = held.get(home, 0.0) + self._nbytes[input_task]
        return held

    def seconds(self, nbytes: float) -> float:
        """Until results of other workers are there."""
        return self._latency + nbytes / self._rate

    def bring(self, task: int, worker: int) -> float:
        """Bring a task's inputs to a worker, which has them from then on: seconds."""
        missing = [
            input_task
            for input_task in self._inputs[self._bounds[task] : self._bounds[task + 1]]
            if self._home[input_task] != worker and (input_task, worker) not in self._copies
        ]
        if not missing:
            return 0.0
        self._copies.update((input_task, worker) for input_task in missing)
        return self.seconds(sum(self._nbytes[input_task] for input_task in missing))


class Workers:
    """When threads of workers are free, and which workers have a slot for a task."""

    def __init__(self, work: Work, cluster: Cluster, threads: int) -> None:
        self._threads, self._threads_each = threads, min(cluster.threads, threads)
        self._startup = work.startup
        self._count = ceil(threads / self._threads_each)
        self._limit = ceil(SATURATION * self._threads_each)
        self._free: list[list[float]] = []
        self._tasks: list[int] = []
        self._offers: list[tuple[float, int]] = []
        self._wake, self._gap = floats(work.wake), floats(work.gap)
        self._seconds = floats(work.seconds)
        self.start, self.stop = zeros(len(work)), zeros(len(work))
        self._free_before = zeros(len(work))
        self._late: list[tuple[float, int]] = []
        self._worker_of = integers(np.full(len(work), NOWHERE))

    def free_at(self, worker: int) -> float:
        """When a worker's next thread is free. The one after all that were used has none busy."""
        if worker < len(self._free):
            return self._free[worker][0]
        first = worker * self._threads_each
        return self._startup[first] if first < len(self._startup) else 0.0

    def with_slot(self, now: float) -> int:
        """The worker with a free slot whose thread is free first, or `NOWHERE`."""
        # A worker that was not used yet has the number after those that were.
        offers, unused = self._offers, len(self._free)
        while offers and not self._is_true(*offers[0]):
            heappop(offers)
        is_there = unused < self._count and self.free_at(unused) <= now
        if is_there and (not offers or offers[0][0] > now):
            return unused
        return offers[0][1] if offers else NOWHERE

    @property
    def used(self) -> int:
        """How many workers were sent tasks by now."""
        return len(self._free)

    def _is_true(self, free: float, worker: int) -> bool:
        return self._tasks[worker] < self._limit and self._free[worker][0] == free

    def is_full(self, worker: int) -> bool:
        """Whether even a task whose inputs are there had better wait."""
        return self._tasks[worker] >= TIMES_FULL * self._limit

    def send(self, task: int, worker: int, now: float) -> float:
        """Have a worker run a task whose inputs are there from now on; when it is done."""
        if worker == len(self._free):
            self._use_next()
        free = self._free[worker]
        self.start[task] = start = max(now + self._wake[task], free[0] + self._gap[task])
        self.stop[task] = stop = start + self._seconds[task]
        self._free_before[task] = heapreplace(free, stop)
        self._worker_of[task] = worker
        if start > now + STEALING:
            heappush(self._late, (-start, task))
        self._tasks[worker] += 1
        self._offer(worker)
        return stop

    def waits_longest(self, now: float) -> int:
        """The task that starts last of those that wait at workers, or `NOWHERE`."""
        late = self._late
        while late and (self.start[late[0][1]] != -late[0][0] or -late[0][0] <= now + STEALING):
            heappop(late)
        return late[0][1] if late else NOWHERE

    def is_idle(self, worker: int, now: float) -> bool:
        """Whether a thread of a worker has nothing to do."""
        return worker < self._count and self.free_at(worker) <= now

    def take_back(self, task: int) -> None:
        """Have a worker not run the task that starts last of all that were sent to workers."""
        worker = self._worker_of[task]
        free = self._free[worker]
        free[free.index(self.stop[task])] = self._free_before[task]
        heapify(free)
        self.done(worker)

    def _use_next(self) -> None:
        first = len(self._free) * self._threads_each
        threads = list(self._startup[first : min(first + self._threads_each, self._threads)])
        more = min(self._threads_each, self._threads - first) - len(threads)
        free = threads + [threads[-1] if threads else 0.0] * more
        heapify(free)
        self._free.append(free)
        self._tasks.append(0)

    def done(self, worker: int) -> None:
        """The scheduler has the result of one of its tasks."""
        self._tasks[worker] -= 1
        self._offer(worker)

    def _offer(self, worker: int) -> None:
        if self._tasks[worker] < self._limit:
            heappush(self._offers, (self._free[worker][0], worker))
