"""How many workers were busy, blocked or idle at each moment of a computation.

One sweep over the sorted times of a computation. At each moment some workers run tasks. Of the free
ones, as many are in overhead as there are tasks that could run, wait in the pool, or wait to be
collected; the others are idle. A worker that unpickles inputs or pickles a result is busy. Each
worker is in exactly one state at each moment, so the seconds sum to wall time × workers.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dask_diag.analysis.cluster_occupancy import ClusterCapacity, sweep_cluster
from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.preparing import NotOfGraphs, times_not_of_graphs
from dask_diag.analysis.task_times import (
    call_times,
    preparation_stops,
    prepared_times,
    worker_stop_times,
)
from dask_diag.analysis.transfers import Interval, TransferTimes, transfer_times
from dask_diag.analysis.worker_states import (
    Occupancy,
    TaskTimes,
    constant,
    lean,
    open_intervals,
)
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["Occupancy", "TaskTimes", "occupancies", "ready_times", "sweep"]


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
    not_of_graphs = times_not_of_graphs(recording)
    capacity = ClusterCapacity(recording)
    return [
        sweep_cluster(recording, index, of_tasks, capacity)
        if computations.cluster[index]
        else sweep(
            of_tasks,
            transfers.by_scheduler(rows),
            computation=name,
            span=computations.span[index],
            graph=(called[[index]], prepared[[index]]),
            not_of_graph=not_of_graphs[index],
            startup=_startups(recording, index, times[2][rows], rows),
            stop=float(computations.stop[index]),
            workers=int(computations.workers[index]),
        )
        for index, name in enumerate(computations.computation.tolist())
        for rows in [rows_of.get(name, no_rows)]
        for of_tasks in [TaskTimes(rows, *(column[rows] for column in times))]
    ]


def _task_times(
    recording: Recording, ready: FloatArray, transfers: TransferTimes
) -> tuple[FloatArray, ...]:
    """The columns of `TaskTimes` but for its rows, of all tasks."""
    tasks = recording.tasks
    # A task that is not known to have started has no stop either.
    stop = np.where(np.isnan(tasks.start), tasks.stop, worker_stop_times(recording))
    worker_start = np.fmin(tasks.start, transfers.worker_start)
    return ready, tasks.collected, worker_start, np.fmax(stop, transfers.worker_stop)


def sweep(
    tasks: TaskTimes,
    transfers: Mapping[str, Interval],
    *,
    computation: str,
    span: str,
    graph: Interval,
    not_of_graph: NotOfGraphs,
    startup: Interval,
    stop: float,
    workers: int,
) -> Occupancy:
    """The occupancy of one computation, of its tasks and the scheduler's transfers.

    `graph` is the time from the call of dask to the first submission, and `not_of_graph` parts of
    it; `startup` is that from there to the first task of each worker process.
    """
    has_start = ~np.isnan(tasks.worker_start)
    worker_start, worker_stop = tasks.worker_start[has_start], tasks.worker_stop[has_start]
    running = worker_start, worker_stop
    waiting = tasks.ready[has_start], worker_start
    collecting = worker_stop, np.fmax(worker_stop, tasks.collected[has_start])
    # Of a task without times it is known only that it could run from when it was ready, so some
    # worker may have been busy with it since.
    perhaps_running = tasks.ready[~has_start], np.full((~has_start).sum(), stop)
    times, counts = open_intervals(
        [
            *(running, waiting, collecting, perhaps_running),
            *(graph, *not_of_graph, startup),
            *transfers.values(),
        ],
        float(graph[0].min()),
        stop,
    )
    busy, ready, done, unknown, in_graph, importing, profiling, starting, *moving = counts
    # A pool that was resized ran more tasks at once than was recorded of it: no count of free
    # workers is negative.
    workers = max(workers, int(busy.max(initial=0)), 1)
    # Each state takes its workers from those that the ones before it left free, so that all sum to
    # the number of workers.
    free = workers - busy
    in_graph = np.where(in_graph > 0, free, 0)
    free = free - in_graph
    profilers = np.where(profiling > 0, in_graph, 0)
    imported = np.where(importing > 0, in_graph - profilers, 0)
    overhead = np.minimum(free, ready + done)
    # A process that starts keeps a ready task waiting: its seconds are taken from the overhead, of
    # which they are a part.
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
        capacity=constant(workers, len(busy)),
        busy=busy,
        overhead=overhead,
        unknown=lean(unknown),
        blocked=blocked,
        graph=in_graph - imported - profilers,
        imports=lean(imported),
        profilers=lean(profilers),
        startup=lean(starting),
        delayed={},
        backlog=constant(0, len(busy)),
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
    # A process whose tasks all lack times would look as if it had started until the end.
    stops = np.array([time for time in first.values() if time < np.inf], dtype=float)
    return np.full(len(stops), prepared), np.maximum(stops, prepared)
