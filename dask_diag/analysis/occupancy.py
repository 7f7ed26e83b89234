"""How many workers were busy, blocked or idle at each moment of a computation.

One sweep over the sorted times of a computation. At each moment some workers run tasks. Of the free
ones, as many are in overhead as there are tasks that could run, wait in the pool, or wait to be
collected; the others are idle. A worker that unpickles inputs or pickles a result is busy. Each
worker is in exactly one state at each moment, so the seconds sum to wall time × workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.task_times import (
    call_times,
    preparation_stops,
    prepared_times,
    stop_times,
)
from dask_diag.analysis.transfers import Interval, TransferTimes, transfer_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["Occupancy", "TaskTimes", "occupancies", "ready_times", "sweep"]


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
    startup : array of int, shape (steps,)
        Workers that would be in `overhead`, had their process started its first task.
    """

    computation: str
    span: str
    workers: int
    tasks: TaskTimes
    times: FloatArray
    busy: IntArray
    overhead: IntArray
    unknown: IntArray
    blocked: dict[str, IntArray]
    graph: IntArray
    startup: IntArray

    @property
    def wall(self) -> float:
        """Seconds of the computation."""
        return float(self.times[-1] - self.times[0])

    @property
    def idle(self) -> IntArray:
        """Workers that were free while there was nothing to run."""
        free = self.workers - self.busy - self.graph - self.startup - self.overhead - self.unknown
        return np.asarray(free - sum(self.blocked.values()))

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
        free = self.workers - self.busy
        with np.errstate(invalid="ignore", divide="ignore"):
            shares = np.where(free > 0, workers / free, 0.0)
        return self.seconds_until(shares, moments)


def ready_times(recording: Recording) -> FloatArray:
    """When each task could start: with its computation, or once its dependencies are collected."""
    # A NaN, of a result that was not collected, delays nothing: fmax ignores it.
    ready = preparation_stops(recording)
    dependencies = recording.dependencies
    collected = recording.tasks.collected[dependencies.depends_on]
    np.fmax.at(ready, dependencies.task, collected)
    return ready


def occupancies(recording: Recording) -> list[Occupancy]:
    """The occupancy of every computation, in the order recorded."""
    ready, transfers = ready_times(recording), transfer_times(recording)
    times = _task_times(recording, ready, transfers)
    rows_of = rows_by(recording.tasks.computation)
    no_rows = np.zeros(0, np.int64)
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    return [
        sweep(
            TaskTimes(rows, *(column[rows] for column in times)),
            transfers.by_scheduler(rows),
            computation=name,
            span=computations.span[index],
            graph=(called[[index]], prepared[[index]]),
            startup=_startups(recording, index, times[2][rows], rows),
            stop=float(computations.stop[index]),
            workers=int(computations.workers[index]),
        )
        for index, name in enumerate(computations.computation.tolist())
        for rows in [rows_of.get(name, no_rows)]
    ]


def _task_times(
    recording: Recording, ready: FloatArray, transfers: TransferTimes
) -> tuple[FloatArray, ...]:
    """The columns of `TaskTimes` but for its rows, of all tasks."""
    tasks = recording.tasks
    # A task that is not known to have started has no stop either.
    stop = np.where(np.isnan(tasks.start), tasks.stop, stop_times(recording))
    worker_start = np.fmin(tasks.start, transfers.worker_start)
    return ready, tasks.collected, worker_start, np.fmax(stop, transfers.worker_stop)


def sweep(
    tasks: TaskTimes,
    transfers: Mapping[str, Interval],
    *,
    computation: str,
    span: str,
    graph: Interval,
    startup: Interval,
    stop: float,
    workers: int,
) -> Occupancy:
    """The occupancy of one computation, of its tasks and the scheduler's transfers.

    `graph` is the time from the call of dask to the first submission, `startup` that from there to
    the first task of each worker process.
    """
    known = ~np.isnan(tasks.worker_start)
    worker_start, worker_stop = tasks.worker_start[known], tasks.worker_stop[known]
    running = worker_start, worker_stop
    waiting = tasks.ready[known], worker_start
    collecting = worker_stop, np.fmax(worker_stop, tasks.collected[known])
    perhaps_running = tasks.ready[~known], np.full((~known).sum(), stop)
    times, counts = _counts(
        [running, waiting, collecting, perhaps_running, graph, startup, *transfers.values()],
        float(graph[0].min()),
        stop,
    )
    busy, ready, done, unknown, in_graph, starting, *moving = counts
    workers = max(workers, int(busy.max(initial=0)), 1)
    # Each state takes its workers from those that the ones before it left free, so that all sum to
    # the number of workers.
    free = workers - busy
    in_graph = np.where(in_graph > 0, free, 0)
    free = free - in_graph
    overhead = np.minimum(free, ready + done)
    starting = np.minimum(overhead, starting)
    unknown = np.minimum(free - overhead, unknown)
    overhead = overhead - starting
    blocked = {}
    for activity, scheduler_moves in zip(transfers, moving, strict=True):
        blocked[activity] = np.where(scheduler_moves > 0, overhead, 0)
        overhead = overhead - blocked[activity]
    return Occupancy(
        computation=computation,
        span=span,
        workers=workers,
        tasks=tasks,
        times=times,
        busy=busy,
        overhead=overhead,
        unknown=unknown,
        blocked=blocked,
        graph=in_graph,
        startup=starting,
    )


def _startups(
    recording: Recording, index: int, worker_start: FloatArray, rows: IntArray
) -> Interval:
    """From the first submission to the first task of each process that joined for a computation.

    Threads start at once, and processes of a pool that was there before have started.
    """
    computations, workers = recording.computations, recording.workers
    prepared = float(prepared_times(computations)[index])
    called = float(call_times(computations)[index])
    joined = workers.computation.where(computations.computation[index]) & (workers.joined > called)
    new = set(workers.pid[joined].tolist())
    first = {
        pid: float(np.fmin.reduce(worker_start[of_pid], initial=np.inf))
        for pid, of_pid in rows_by(recording.tasks.pid[rows]).items()
        if pid in new
    }
    stops = np.array([time for time in first.values() if time < np.inf], dtype=float)
    return np.full(len(stops), prepared), np.maximum(stops, prepared)


def _counts(
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
