"""Run the tasks of a computation on a simulated cluster, with recorded durations.

It is what distributed's scheduler does by default. Tasks without inputs wait in its queue until a
worker has a free slot: a worker is sent a few more than it has threads, so that one need not wait
for the next. Tasks with inputs go to a worker that has these, unless they start earlier elsewhere
though the inputs have to be sent there first. A worker with nothing to do is given a task that
waits at another one. Everything that the scheduler does adds to one clock.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from math import ceil, inf

import numpy as np

from dask_diag.analysis.simulation.replay import Graph, Timeline, Waiting, floats, integers, zeros
from dask_diag.analysis.simulation.work import Cluster, Work

SATURATION = 1.1
"""Tasks that a worker has for each thread, rounded up: distributed's `worker-saturation`."""
TIMES_FULL = 2
"""So many times as many tasks wait, at most, at a worker that has their inputs."""
STEALING = 0.05
"""Seconds until a task is sent to a worker that has nothing to do: distributed looks for these each
0.1 s."""
NOWHERE = -1


class Inputs:
    """Locations of results, and seconds for moving results to other workers."""

    def __init__(self, work: Work, cluster: Cluster) -> None:
        order = np.argsort(work.task, kind="stable")
        self._inputs = integers(work.depends_on[order])
        self._bounds = integers(np.searchsorted(work.task[order], np.arange(len(work) + 1)))
        self._nbytes = floats(cluster.nbytes)
        self._latency, self._rate = cluster.latency, cluster.bytes_a_second
        self._home = integers(np.full(len(work), NOWHERE))
        self._copies: set[tuple[int, int]] = set()

    def made(self, task: int, worker: int) -> None:
        """Note the worker of a task's result."""
        self._home[task] = worker

    def by_worker(self, task: int) -> dict[int, float]:
        """Bytes of a task's inputs, by the worker of the input."""
        held: dict[int, float] = {}
        for input_task in self._inputs[self._bounds[task] : self._bounds[task + 1]]:
            home = self._home[input_task]
            held[home] = held.get(home, 0.0) + self._nbytes[input_task]
        return held

    def seconds(self, nbytes: float) -> float:
        """Seconds until results of other workers arrive."""
        return self._latency + nbytes / self._rate

    def bring(self, task: int, worker: int) -> float:
        """Copy a task's inputs to a worker, and return the seconds of moving."""
        missing = [
            input_task
            for input_task in self._inputs[self._bounds[task] : self._bounds[task + 1]]
            if self._home[input_task] != worker and (input_task, worker) not in self._copies
        ]
        if not missing:
            return 0.0
        self._copies.update((input_task, worker) for input_task in missing)
        return self.seconds(sum(self._nbytes[input_task] for input_task in missing))


class WorkerPool:
    """Threads and slots of workers, and when threads become free."""

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
        """Time when a worker's next thread is free; the first unused worker has none busy."""
        if worker < len(self._free):
            return self._free[worker][0]
        first = worker * self._threads_each
        return self._startup[first] if first < len(self._startup) else 0.0

    def with_slot(self, now: float) -> int:
        """Worker with a free slot and the earliest free thread, or `NOWHERE`."""
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
        """Number of workers with tasks so far."""
        return len(self._free)

    def _is_true(self, free: float, worker: int) -> bool:
        return self._tasks[worker] < self._limit and self._free[worker][0] == free

    def is_full(self, worker: int) -> bool:
        """Whether even a task with inputs on the worker waits for a slot elsewhere."""
        return self._tasks[worker] >= TIMES_FULL * self._limit

    def send(self, task: int, worker: int, now: float) -> float:
        """Run a task whose inputs arrive now, and return its end."""
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
        """Waiting task with the latest start, or `NOWHERE`."""
        late = self._late
        while late and (self.start[late[0][1]] != -late[0][0] or -late[0][0] <= now + STEALING):
            heappop(late)
        return late[0][1] if late else NOWHERE

    def is_idle(self, worker: int, now: float) -> bool:
        """Whether a thread of a worker has nothing to do."""
        return worker < self._count and self.free_at(worker) <= now

    def take_back(self, task: int) -> None:
        """Take the task with the latest start away from its worker."""
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
        """Free a slot: the scheduler has the result of a task."""
        self._tasks[worker] -= 1
        self._offer(worker)

    def _offer(self, worker: int) -> None:
        if self._tasks[worker] < self._limit:
            heappush(self._offers, (self._free[worker][0], worker))


MOST_HOLDERS = 3
"""Of so many workers that have most of a task's inputs it is seen when it would start there."""


class _Scheduler:
    """Queue of the scheduler, and the messages on the way to the scheduler."""

    def __init__(self, work: Work, cluster: Cluster, threads: int, graph: Graph) -> None:
        self.tasks = Waiting(graph)
        self.workers, self._inputs = WorkerPool(work, cluster, threads), Inputs(work, cluster)
        self._collect, self._deliver = floats(work.collect), floats(work.deliver)
        self._delay, self._submit = floats(cluster.delay), work.submit
        self._has_inputs = (np.bincount(work.task, minlength=len(work)) > 0).tolist()
        self._queue: list[int] = []
        self._messages: list[tuple[float, int, int, int]] = []
        self._sent_last = integers(np.zeros(len(work), np.int64))
        self._sent = 0
        self._now = self.waited = self.end = 0.0
        for joins in {joined for joined in work.startup if joined > 0}:
            heappush(self._messages, (joins, 0, NOWHERE, NOWHERE))

    def run(self) -> None:
        """Run the event loop until all tasks are done."""
        self._take_ready()
        while self._queue or self._messages:
            self._send()
            if not self._messages:
                return
            arrived, sent, task, worker = heappop(self._messages)
            if worker != NOWHERE and sent != self._sent_last[task]:
                # It was given to another worker.
                continue
            if self._now < arrived:
                self.waited += arrived - self._now
                self._now = arrived
            if worker != NOWHERE:
                self._done(task, worker)
            elif task != NOWHERE:
                heappush(self._queue, task)
            self._give_waiting_task(worker)

    def _take_ready(self) -> None:
        """Queue ready tasks that the client has submitted."""
        while self.tasks.ready:
            task = self.tasks.ready.pop()
            if self._delay[task] > 0:
                submitted = self.end + self._delay[task]
                heappush(self._messages, (submitted, 0, task, NOWHERE))
            else:
                heappush(self._queue, task)

    def _send(self) -> None:
        """Send tasks in order while a slot is free for the first."""
        while self._queue:
            task = self._queue[0]
            worker = self.workers.with_slot(self._now)
            if self._has_inputs[task]:
                worker = self._quickest(task, worker)
            if worker == NOWHERE:
                return
            heappop(self._queue)
            self._now += self._submit
            self._send_to(task, worker, self._now)

    def _quickest(self, task: int, slot: int) -> int:
        """Worker on which a task starts first: with inputs, or with the free slot."""
        held = self._inputs.by_worker(task)
        nbytes = sum(held.values())
        best, starts = NOWHERE, inf
        candidates = sorted(held, key=lambda worker: -held[worker])[:MOST_HOLDERS]
        if slot != NOWHERE and slot not in candidates:
            candidates.append(slot)
        for worker in candidates:
            if worker in held and worker != slot and self.workers.is_full(worker):
                continue
            moves = len(held) > 1 or worker not in held
            moving = self._inputs.seconds(nbytes - held.get(worker, 0.0)) if moves else 0.0
            start = max(self._now + moving, self.workers.free_at(worker))
            if start < starts:
                best, starts = worker, start
        return best

    def _send_to(self, task: int, worker: int, now: float) -> None:
        arrived = now + (self._inputs.bring(task, worker) if self._has_inputs[task] else 0.0)
        stop = self.workers.send(task, worker, arrived)
        self._sent += 1
        self._sent_last[task] = self._sent
        heappush(self._messages, (stop + self._deliver[task], self._sent, task, worker))

    def _give_waiting_task(self, worker: int) -> None:
        """Move a waiting task to an idle worker if the task starts earlier there."""
        worker = self.workers.used if worker == NOWHERE else worker
        if self._queue or not self.workers.is_idle(worker, self._now):
            return
        task = self.workers.waits_longest(self._now)
        if task == NOWHERE:
            return
        held = self._inputs.by_worker(task) if self._has_inputs[task] else {}
        elsewhere = sum(size for home, size in held.items() if home != worker)
        moving = self._inputs.seconds(elsewhere) if held.keys() - {worker} else 0.0
        if self._now + STEALING + moving < self.workers.start[task]:
            self.workers.take_back(task)
            self._send_to(task, worker, self._now + STEALING)

    def _done(self, task: int, worker: int) -> None:
        self.end = self._now
        self._now += self._collect[task]
        self.workers.done(worker)
        self._inputs.made(task, worker)
        self.tasks.collect(task)
        self._take_ready()


def replay_on_cluster(work: Work, cluster: Cluster, threads: int, graph: Graph) -> Timeline:
    """Run the tasks on so many threads of workers.

    Parameters
    ----------
    work : Work
    cluster : Cluster
        That of the work.
    threads : int
    graph : Graph
        That of the work.

    Raises
    ------
    DiagnosticError
        If tasks depend on each other in a cycle.
    """
    scheduler = _Scheduler(work, cluster, threads, graph)
    scheduler.run()
    scheduler.tasks.check_collected()
    workers, end = scheduler.workers, scheduler.end
    waited = min(scheduler.waited, end)
    return Timeline(np.array(workers.start), np.array(workers.stop), end, waited)
