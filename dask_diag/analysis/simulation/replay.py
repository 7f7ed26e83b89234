"""Run the tasks of a computation on simulated workers, as dask's local scheduler does.

`contention` has what more workers cannot give: CPUs that are not there, and more than one GIL.
"""

from __future__ import annotations

from array import array
from dataclasses import dataclass
from heapq import heappop, heappush

import numpy as np

from dask_diag.analysis.cpu import LEAST_FREE
from dask_diag.analysis.simulation.work import Work
from dask_diag.columns import FloatArray, IntArray, ratio
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import counted


@dataclass(frozen=True)
class Timeline:
    """Times of simulated tasks: seconds since the first task could be submitted.

    Attributes
    ----------
    start, stop : array of float
        Of each task on its worker.
    end : float
        Time when the last task was collected.
    waiting : float
        Seconds in which the scheduler waited for results. In the others it was busy.
    """

    start: FloatArray
    stop: FloatArray
    end: float
    waiting: float


class Graph:
    """Dependents of each task; several replays may share a graph.

    Parameters
    ----------
    work : Work

    Attributes
    ----------
    dependents, bounds : array of int
        Those of each task: from its bound to the next one.
    missing : list of int
        How many tasks each waits for.
    ready : array of int
        Those without dependencies. It ends with the one that was submitted first: a stack's top.
    """

    def __init__(self, work: Work) -> None:
        count = len(work)
        # dask puts the dependents of a task on its stack in reverse, so that the one that it ranks
        # first is on top.
        order = np.lexsort((-work.task, work.depends_on))
        missing = np.bincount(work.task, minlength=count)
        self.bounds = integers(np.searchsorted(work.depends_on[order], np.arange(count + 1)))
        self.dependents = integers(work.task[order])
        self.missing: list[int] = missing.tolist()
        self.ready = integers(np.flatnonzero(missing == 0)[::-1])


def integers(values: IntArray) -> array[int]:
    """Convert to an array of Python's, a fifth of the memory of a list."""
    return array("q", values.astype(np.int64, copy=False).tobytes())


def floats(values: FloatArray) -> array[float]:
    """Convert floats likewise."""
    return array("d", values.astype(float, copy=False).tobytes())


def zeros(count: int) -> array[float]:
    """So many zeros."""
    return array("d", bytes(8 * count))


class Waiting:
    """Tasks waiting for dependencies, in one replay."""

    def __init__(self, graph: Graph) -> None:
        self._bounds, self._dependents = graph.bounds, graph.dependents
        self._missing, self.ready = graph.missing[:], graph.ready[:]

    def collect(self, task: int) -> None:
        """Put dependents on the stack whose last missing dependency was `task`."""
        bounds, missing = self._bounds, self._missing
        for dependent in self._dependents[bounds[task] : bounds[task + 1]]:
            missing[dependent] -= 1
            if not missing[dependent]:
                self.ready.append(dependent)

    def check_collected(self) -> None:
        """Refuse to end while tasks are waiting."""
        waiting = int(np.count_nonzero(self._missing))
        if waiting:
            raise DiagnosticError(
                "expected dependencies without cycles, found "
                f"{counted(waiting, 'task')} in or after a cycle; this recording's "
                "dependencies are damaged"
            )


def replay(work: Work, workers: int, graph: Graph) -> Timeline:
    """Run the tasks on so many workers.

    Parameters
    ----------
    work : Work
    workers : int
    graph : Graph
        That of the work.

    Raises
    ------
    DiagnosticError
        If tasks depend on each other in a cycle.
    """
    waiting_tasks = Waiting(graph)
    if work.batch == 1 and not work.startup:
        timeline = _one_by_one(work, workers, waiting_tasks)
    else:
        timeline = _in_batches(work, workers, waiting_tasks)
    waiting_tasks.check_collected()
    return timeline


def _one_by_one(work: Work, workers: int, graph: Waiting) -> Timeline:
    """Replay like `_in_batches` of one task, whose lists would take 60% longer."""
    ready, collected = graph.ready, graph.collect
    prepare, collect, notice = map(floats, (work.prepare, work.collect, work.notice))
    wake, seconds, deliver = map(floats, (work.wake, work.seconds, work.deliver))
    start, stop, submit = zeros(len(work)), zeros(len(work)), work.submit
    results: list[tuple[float, int, int]] = []
    now = waiting = 0.0
    free, sent = workers, 0
    while ready or results:
        if free and ready:
            # From the top of the stack down, as dask takes them: the task that became ready last
            # goes first.
            tasks = ready[: -free - 1 : -1]
            del ready[-free:]
            free -= len(tasks)
            for task in tasks:
                now += prepare[task]
            for task in tasks:
                now += submit
                start[task] = moment = now + wake[task]
                stop[task] = moment = moment + seconds[task]
                # Of two results that arrive at the same moment the one that was sent first is
                # collected first: a tie must not depend on the numbers of the tasks.
                sent += 1
                heappush(results, (moment + deliver[task], sent, task))
        # The clock goes on while the scheduler is busy, so a result may have arrived long ago: only
        # what arrives later is waited for.
        arrived, _, task = heappop(results)
        free += 1
        now += collect[task]
        noticed = arrived + notice[task]
        if now < noticed:
            waiting += noticed - now
            now = noticed
        collected(task)
    return Timeline(np.array(start), np.array(stop), now, waiting)


def _in_batches(work: Work, workers: int, graph: Waiting) -> Timeline:
    """Replay workers that receive several tasks at once and deliver the results together."""
    ready, size, submit = graph.ready, work.batch, work.submit
    prepare, collect, notice = map(floats, (work.prepare, work.collect, work.notice))
    wake, seconds, deliver = map(floats, (work.wake, work.seconds, work.deliver))
    gap, start, stop = floats(work.gap), zeros(len(work)), zeros(len(work))
    startup = list(work.startup[:workers][::-1])
    results: list[tuple[float, int, array[int]]] = []
    now = waiting = 0.0
    running = sent = 0
    while ready or results:
        # As dask's `fire_tasks` counts: running tasks occupy that many workers, rounded up.
        free = size * (workers + -running // size)
        if free > 0 and ready:
            tasks = ready[: -free - 1 : -1]
            del ready[-free:]
            running += len(tasks)
            for task in tasks:
                now += prepare[task]
            for first in range(0, len(tasks), size):
                now += submit
                batch = tasks[first : first + size]
                # The first task of a batch waits for its worker to wake up, the others for the task
                # before: the loop below adds a gap to each, so the first one's is taken off here.
                moment = now + wake[batch[0]] - gap[batch[0]]
                moment += startup.pop() if startup else 0.0
                for task in batch:
                    start[task] = moment = moment + gap[task]
                    stop[task] = moment = moment + seconds[task]
                sent += 1
                heappush(results, (moment + deliver[batch[0]], sent, batch))
        arrived, _, batch = heappop(results)
        running -= len(batch)
        for task in batch:
            now += collect[task]
            noticed = arrived + notice[task]
            if now < noticed:
                waiting += noticed - now
                now = noticed
            graph.collect(task)
    return Timeline(np.array(start), np.array(stop), now, waiting)


LEAST_FREE_FOR_SLEEPERS = 0.5
"""The same where tasks mostly slept. Others used what these did not want, and would share it: of
two programs that want all CPUs each gets a half."""


def contention(timeline: Timeline, work: Work, cpus: float, gils: float) -> float:
    """Seconds by which tasks and the scheduler delay each other for lack of CPUs or GILs.

    At each moment each running task needs a CPU in a share of its time, and the GIL in a share.
    Where that is twice what there is, all of them take twice as long. CPUs that other programs
    used are not there: a kernel shares them among groups of processes, so more threads of one
    program need not get more. But those who sleep had as much as they wanted.

    Parameters
    ----------
    timeline : Timeline
    work : Work
    cpus, gils : float
        How many there are.
    """
    start, stop = timeline.start - work.wake, timeline.stop + work.deliver
    times = np.concatenate([start, stop])
    order = np.argsort(times, kind="stable")
    durations = np.diff(times[order])
    scheduler = 1.0 - timeline.waiting / timeline.end if timeline.end else 0.0
    pools = (work.pool_cpu + work.cpu_children) / timeline.end if timeline.end else 0.0
    slowness = np.ones(len(durations))
    least = LEAST_FREE_FOR_SLEEPERS if work.sleeps else LEAST_FREE
    free = max(cpus - work.others, least * cpus)
    # The scheduler of a cluster is no thread of its workers' processes.
    beside = scheduler if work.cluster is None else 0.0
    for seconds, others, available in (
        (work.cpu, pools + scheduler, free),
        (work.gil, beside, gils),
    ):
        share = _shares(seconds + work.switching, stop - start)
        # A task adds its share when it starts and takes it off when it stops, so the sums so far
        # are what all that run need together.
        load = np.cumsum(np.concatenate([share, -share])[order])[:-1]
        # A task that waits for the GIL needs no CPU meanwhile: the scarcer of the two decides.
        slowness = np.maximum(slowness, (load + others) / available)
    return float((durations * (slowness - 1.0)).sum())


def least_seconds(work: Work, cpus: float, gils: float) -> float:
    """Least seconds with any number of workers: all CPU seconds need the CPUs.

    So do those that need the GIL. The average over the whole computation counts, also where
    `contention` sees no moment in which too much runs at once.
    """
    serial = work.cpu_scheduler + work.switching * len(work)
    beside = work.pool_cpu + work.cpu_children
    of_cpus = (float(work.cpu.sum()) + beside + serial) / cpus
    of_scheduler = serial if work.cluster is None else 0.0
    return max(of_cpus, (float(work.gil.sum()) + of_scheduler) / gils, work.cpu_scheduler)


def _shares(seconds: FloatArray, took: FloatArray) -> FloatArray:
    """Share of a CPU needed by each task, at most 1."""
    return np.minimum(ratio(seconds, took), 1.0)
