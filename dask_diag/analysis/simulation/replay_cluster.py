"""The event loop of a cluster: its scheduler and its workers, with recorded durations.

It is what distributed's scheduler does by default. Tasks without inputs wait in its queue until a
worker has a free slot: a worker is sent a few more than it has threads, so that one need not wait
for the next. Tasks with inputs go to a worker that has these, unless they start earlier elsewhere
though the inputs have to be sent there first. A worker with nothing to do is given a task that
waits at another one. Everything that the scheduler does adds to one clock.
"""

from __future__ import annotations

from heapq import heappop, heappush
from math import inf

import numpy as np

from dask_diag.analysis.simulation.cluster_workers import NOWHERE, STEALING, Inputs, Workers
from dask_diag.analysis.simulation.replay import Graph, Timeline, Waiting, floats, integers
from dask_diag.analysis.simulation.work import Cluster, Work

__all__ = ["replay_on_cluster"]

MOST_HOLDERS = 3
"""Of so many workers that have most of a task's inputs it is seen when it would start there."""


class _Scheduler:
    """The scheduler's queue, and the messages that are on their way to it."""

    def __init__(self, work: Work, cluster: Cluster, threads: int, graph: Graph) -> None:
        self.tasks = Waiting(graph)
        self.workers, self._inputs = Workers(work, cluster, threads), Inputs(work, cluster)
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
        """Until all tasks are done."""
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
        """Queue the tasks whose inputs are there, those of them that the client has submitted."""
        while self.tasks.ready:
            task = self.tasks.ready.pop()
            if self._delay[task] > 0:
                submitted = self.end + self._delay[task]
                heappush(self._messages, (submitted, 0, task, NOWHERE))
            else:
                heappush(self._queue, task)

    def _send(self) -> None:
        """Send tasks in their order as long as there is a slot for the first."""
        while self._queue:
            task = self._queue[0]
            worker = self.workers.with_slot(self._now)
            if self._has_inputs[task]:
                worker = _with_inputs(task, worker, self.workers, self._inputs, self._now)
            if worker == NOWHERE:
                return
            heappop(self._queue)
            self._now += self._submit
            self._send_to(task, worker, self._now)

    def _send_to(self, task: int, worker: int, now: float) -> None:
        arrived = now + (self._inputs.bring(task, worker) if self._has_inputs[task] else 0.0)
        stop = self.workers.send(task, worker, arrived)
        self._sent += 1
        self._sent_last[task] = self._sent
        heappush(self._messages, (stop + self._deliver[task], self._sent, task, worker))

    def _give_waiting_task(self, worker: int) -> None:
        """Give a worker that has nothing to do a task that would start later where it waits."""
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


def replay_on_cluster(
    work: Work, cluster: Cluster, threads: int, graph: Graph | None = None
) -> Timeline:
    """Run the tasks on so many threads of workers.

    Parameters
    ----------
    work : Work
    cluster : Cluster
        That of the work.
    threads : int
    graph : Graph, optional
        That of the work, if it was made before.

    Raises
    ------
    DiagnosticError
        If tasks depend on each other in a cycle.
    """
    scheduler = _Scheduler(work, cluster, threads, graph or Graph(work))
    scheduler.run()
    scheduler.tasks.check_collected()
    workers, end = scheduler.workers, scheduler.end
    waited = min(scheduler.waited, end)
    return Timeline(np.array(workers.start), np.array(workers.stop), end, waited)


def _with_inputs(task: int, other: int, workers: Workers, inputs: Inputs, now: float) -> int:
    """The worker on which a task starts first: one that has inputs, or one with a free slot."""
    held = inputs.by_worker(task)
    nbytes = sum(held.values())
    best, starts = NOWHERE, inf
    largest = sorted(held, key=lambda worker: -held[worker])[:MOST_HOLDERS]
    for worker in (*largest, *([other] if other != NOWHERE and other not in largest else ())):
        if worker in held and worker != other and workers.is_full(worker):
            continue
        moves = len(held) > 1 or worker not in held
        arrived = now + inputs.seconds(nbytes - held.get(worker, 0.0)) if moves else now
        start = max(arrived, workers.free_at(worker))
        if start < starts:
            best, starts = worker, start
    return best
