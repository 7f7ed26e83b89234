"""The event loop: dask's local scheduler, with recorded durations in place of tasks.

It is the loop of ``dask.local.get_async``. One thread takes ready tasks from the top of a stack,
as many as there are free workers, submits them, and waits for a result; collecting it puts the
tasks that have become ready on the stack. Everything the thread does adds to one clock, so tasks
that end while it is busy wait for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from dask_diag.analysis.simulation.work import Work
from dask_diag.columns import FloatArray
from dask_diag.errors import DiagnosticError

__all__ = ["Timeline", "replay"]


@dataclass(frozen=True)
class Timeline:
    """When simulated tasks ran: seconds since the first task could be submitted.

    Attributes
    ----------
    start, stop : array of float
        Of each task on its worker.
    end : float
        When the last task was collected.
    waiting : float
        Seconds in which the scheduler waited for results. In the others it was busy.
    """

    start: FloatArray
    stop: FloatArray
    end: float
    waiting: float


class _Graph:
    """Which tasks become ready when one is collected.

    Attributes
    ----------
    ready : list of int
        Those without dependencies. It ends with the one that was submitted first: a stack's top.
    """

    def __init__(self, work: Work) -> None:
        count = len(work)
        order = np.lexsort((-work.task, work.depends_on))
        missing = np.bincount(work.task, minlength=count)
        self._bounds = np.searchsorted(work.depends_on[order], np.arange(count + 1)).tolist()
        self._dependents = work.task[order].tolist()
        self._missing: list[int] = missing.tolist()
        self.ready: list[int] = np.flatnonzero(missing == 0)[::-1].tolist()

    def collect(self, task: int) -> None:
        """Put on the stack what waited for this task last."""
        bounds, missing = self._bounds, self._missing
        for dependent in self._dependents[bounds[task] : bounds[task + 1]]:
            missing[dependent] -= 1
            if not missing[dependent]:
                self.ready.append(dependent)

    def check_collected(self) -> None:
        """Refuse to end while tasks still wait."""
        waiting = np.count_nonzero(self._missing)
        if waiting:
            raise DiagnosticError(
                f"expected dependencies without cycles, found {waiting} tasks in or after a cycle; "
                "this recording's dependencies are damaged"
            )


class _Workers:
    """The workers, and the results that they will deliver: a heap by time of arrival."""

    def __init__(self, work: Work, workers: int) -> None:
        self.results: list[tuple[float, int, list[int]]] = []
        self.start = [0.0] * len(work)
        self.stop = [0.0] * len(work)
        self._seconds, self._wake = work.seconds.tolist(), work.wake.tolist()
        self._gap, self._deliver = work.gap.tolist(), work.deliver.tolist()
        self._startup = list(work.startup[:workers][::-1])
        self._sent = 0

    def send(self, tasks: list[int], now: float) -> None:
        """Have a free worker run tasks, one after the other."""
        moment = now + self._wake[tasks[0]] - self._gap[tasks[0]]
        if self._startup:
            moment += self._startup.pop()
        for task in tasks:
            self.start[task] = moment = moment + self._gap[task]
            self.stop[task] = moment = moment + self._seconds[task]
        self._sent += 1
        heappush(self.results, (moment + self._deliver[tasks[0]], self._sent, tasks))


def replay(work: Work, workers: int) -> Timeline:
    """Run the tasks on so many workers.

    Raises
    ------
    DiagnosticError
        If tasks depend on each other in a cycle.
    """
    graph, pool = _Graph(work), _Workers(work, workers)
    ready, results = graph.ready, pool.results
    prepare, collect, notice = work.prepare.tolist(), work.collect.tolist(), work.notice.tolist()
    size, submit = work.batch, work.submit
    now = waiting = 0.0
    running = 0
    while ready or results:
        room = size * (workers + -running // size)
        if room > 0 and ready:
            tasks = ready[-room:]
            del ready[-room:]
            tasks.reverse()
            running += len(tasks)
            for task in tasks:
                now += prepare[task]
            for first in range(0, len(tasks), size):
                now += submit
                pool.send(tasks[first : first + size], now)
        arrived, _, tasks = heappop(results)
        running -= len(tasks)
        for task in tasks:
            now += collect[task]
            noticed = arrived + notice[task]
            if now < noticed:
                waiting += noticed - now
                now = noticed
            graph.collect(task)
    graph.check_collected()
    return Timeline(np.array(pool.start), np.array(pool.stop), now, waiting)
