"""The state of workers over time: step functions, and how they are made of intervals."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.intervals import Intervals, intervals
from dask_diag.analysis.transfers import Interval
from dask_diag.columns import FloatArray, IntArray
from dask_diag.schema import Activity

__all__ = ["Occupancy", "TaskTimes", "constant", "lean", "open_intervals"]


@dataclass(frozen=True)
class TaskTimes:
    """The times of the tasks of one computation, as arrays; NaN where there is none.

    Attributes
    ----------
    rows : array of int
        Their positions in `Recording.tasks`.
    ready, collected : array of float
        Seconds: when all dependencies had been collected, and when the result was.
    worker_start, worker_stop : array of float
        The time in which it had a worker: from its start to its stop, or to the end of its
        computation if it did not finish; in another process also while the worker rebuilt its
        inputs and pickled its result.
    """

    rows: IntArray
    ready: FloatArray
    collected: FloatArray
    worker_start: FloatArray
    worker_stop: FloatArray


@dataclass(frozen=True)
class Occupancy:
    """The state of a computation's workers as step functions of time.

    Attributes
    ----------
    computation, span : str
    workers : int
        The number that the scheduler gave, or that ran at once if that is more.
    tasks : TaskTimes
    times : array of float, shape (steps + 1,)
        Seconds; the first and last are the bounds of the computation.
    capacity : array of int, shape (steps,)
        Workers that were there: on a cluster, the threads of its workers at that time.
    busy : array of int, shape (steps,)
        Workers that ran a task, or moved its inputs or result.
    overhead : array of int, shape (steps,)
        Workers that were free while a task waited for the scheduler or for a worker, or its result
        for the scheduler.
    unknown : array of int, shape (steps,)
        Workers that were free beyond those, while it is not known whether a task that had been
        submitted ran.
    blocked : dict of str to array of int
        Workers that would be in `overhead`, had the scheduler not been busy with ``serialize`` or
        ``deserialize``; empty where nothing is moved between processes.
    graph : array of int, shape (steps,)
        Workers that were free while the graph was made, optimized and put in order.
    imports : array of int, shape (steps,)
        Workers that would be in `graph`, had dask not imported modules.
    profilers : array of int, shape (steps,)
        The same, had profilers had nothing to do.
    startup : array of int, shape (steps,)
        Workers that would be in `overhead`, had their process started its first task.
    delayed : dict of str to array of int
        Workers of a cluster that would be in `overhead`, had they not waited for results of others
        (``transfer``) or for a disk (``spill``); empty elsewhere.
    backlog : array of int, shape (steps,)
        Tasks that wait at workers of a cluster whose threads are all busy, whatever others do.
    """

    computation: str
    span: str
    workers: int
    tasks: TaskTimes
    times: FloatArray
    capacity: IntArray
    busy: IntArray
    overhead: IntArray
    unknown: IntArray
    blocked: dict[str, IntArray]
    graph: IntArray
    imports: IntArray
    profilers: IntArray
    startup: IntArray
    delayed: dict[str, IntArray]
    backlog: IntArray

    @property
    def wall(self) -> float:
        """Seconds of the computation."""
        return float(self.times[-1] - self.times[0])

    @property
    def worker_seconds(self) -> float:
        """Seconds of all workers while they were there."""
        return self.seconds(self.capacity)

    @property
    def idle(self) -> IntArray:
        """Workers that were free while there was nothing to run."""
        starting = self.graph + self.imports + self.profilers + self.startup
        waiting = sum(self.blocked.values()) + sum(self.delayed.values())
        free = self.capacity - self.busy - starting - self.overhead - self.unknown
        return np.asarray(free - waiting)

    @property
    def free(self) -> dict[str, IntArray]:
        """All workers without a task, by activity, but for those that the scheduler blocked."""
        return {
            Activity.GRAPH: self.graph,
            Activity.STARTUP: self.startup + self.imports,
            Activity.PROFILERS: self.profilers,
            **self.delayed,
            Activity.OVERHEAD: self.overhead,
            Activity.IDLE: self.idle,
            Activity.OTHER: self.unknown,
        }

    def when(self, workers: IntArray) -> Intervals:
        """When any worker is in one of the states."""
        is_any = workers > 0
        return intervals(self.times[:-1][is_any], self.times[1:][is_any])

    def seconds(self, workers: IntArray) -> float:
        """Worker-seconds of one of the step functions."""
        return float((workers * np.diff(self.times)).sum())

    def seconds_until(self, workers: FloatArray | IntArray, moments: FloatArray) -> FloatArray:
        """Worker-seconds of one of the step functions from the start up to each of `moments`."""
        sums = np.concatenate([[0.0], np.cumsum(workers * np.diff(self.times))])
        return np.asarray(np.interp(moments, self.times, sums))

    def share_until(self, workers: IntArray, moments: FloatArray) -> FloatArray:
        """What one free worker has of `workers` from the start up to each of `moments`, in seconds.

        Workers that are free at the same time have equal shares.
        """
        free = self.capacity - self.busy
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(free > 0, workers / free, 0.0)
        return self.seconds_until(shares, moments)


def constant(workers: int, steps: int) -> IntArray:
    """A step function that is the same throughout: one number in memory, not to be written to."""
    return np.broadcast_to(np.int64(workers), steps)


def lean(workers: IntArray) -> IntArray:
    """The same step function; if it is 0 throughout, as most are, it takes no memory."""
    return workers if workers.any() else constant(0, len(workers))


def open_intervals(
    kinds: Sequence[Interval], start: float, stop: float
) -> tuple[FloatArray, list[IntArray]]:
    """All times at which an interval starts or stops, and how many of each kind are open there."""
    bounds = [np.clip(bound, start, stop) for interval in kinds for bound in interval]
    times, index = np.unique(np.concatenate([[start, stop], *bounds]), return_inverse=True)
    # The first two of `index` are the bounds of the computation. Those of the intervals follow, in
    # turn of starts and of stops.
    indices = iter(np.split(index[2:], np.cumsum([len(bound) for bound in bounds])[:-1]))
    counts = []
    for starts, stops in zip(indices, indices, strict=True):
        steps = np.bincount(starts, minlength=len(times)) - np.bincount(stops, minlength=len(times))
        counts.append(np.cumsum(steps)[:-1])
    return times, counts
