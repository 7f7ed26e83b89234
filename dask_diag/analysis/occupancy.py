"""How many workers were busy, blocked or idle at each moment of a computation.

One sweep over the sorted times of a computation. At each moment some workers run tasks. Of the free
ones, as many are in overhead as there are tasks that could run, wait in the pool, or wait to be
collected; the others are idle. A worker that unpickles inputs or pickles a result is busy. Each
worker is in exactly one state at each moment, so the seconds sum to wall time × workers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.intervals import Intervals, intervals, rows_by
from dask_diag.analysis.phases import NotOfGraphs, times_not_of_graphs
from dask_diag.analysis.task_times import (
    Interval,
    TransferTimes,
    call_times,
    preparation_stops,
    prepared_times,
    transfer_times,
    worker_stop_times,
)
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.codes import Activity, WorkerEvent
from dask_diag.model.recording import Recording


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


_NO_ROWS: IntArray = np.zeros(0, np.int64)
_NONE: Interval = (np.zeros(0), np.zeros(0))


class ClusterCapacity:
    """The workers of each cluster, and which of them ran which lanes of tasks."""

    def __init__(self, recording: Recording) -> None:
        self._workers = recording.workers
        self._rows_of = rows_by(recording.workers.computation)
        transfers = recording.transfers
        between = np.flatnonzero(transfers.activity.where(Activity.TRANSFER))
        self._transfers = transfers.rows(between)
        self._transfers_to = rows_by(self._transfers.destination)
        events = recording.worker_events
        self._spills = events.rows(~events.event.where(WorkerEvent.PAUSED))
        self._spills_of = rows_by(self._spills.worker)
        self._tasks = recording.tasks
        self._stops = worker_stop_times(recording)
        self._clusters = dict(
            zip(
                recording.computations.computation.tolist(),
                recording.computations.cluster.tolist(),
                strict=True,
            )
        )
        self._others = recording.other_tasks

    def workers(self, cluster: str) -> list[_Worker]:
        """Those of a cluster, whenever they were there."""
        rows = self._workers.rows(self._rows_of.get(cluster, _NO_ROWS))
        columns = (rows.worker.tolist(), rows.joined, rows.left, rows.threads.tolist())
        return [_Worker(*worker) for worker in zip(*columns, strict=True)]

    def transfers_to(self, worker: str) -> Interval:
        """When results were on their way to a worker."""
        rows = self._transfers_to.get(worker, _NO_ROWS)
        return self._transfers.start[rows], self._transfers.stop[rows]

    def spilling(self, worker: str) -> Interval:
        """When a worker moved results to disk or back."""
        rows = self._spills_of.get(worker, _NO_ROWS)
        return self._spills.start[rows], self._spills.stop[rows]

    def others(self, cluster: str, computation: str) -> dict[str, Interval]:
        """When workers of a cluster ran tasks that are not of a computation, by worker."""
        tasks, others = self._tasks, self._others
        elsewhere = [
            name != computation and self._clusters.get(name) == cluster
            for name in tasks.computation.values
        ]
        rows = np.flatnonzero(np.array(elsewhere, bool)[tasks.computation.codes])
        lanes = tasks.worker[rows]
        intervals_of: dict[str, list[Interval]] = {}
        for worker, of_worker in rows_of_workers(lanes.codes, lanes.values).items():
            at = rows[of_worker][~np.isnan(tasks.start[rows[of_worker]])]
            intervals_of.setdefault(worker, []).append((tasks.start[at], self._stops[at]))
        unrecorded = others.rows(others.computation.where(cluster))
        for worker, of_worker in rows_by(unrecorded.worker).items():
            times = unrecorded.start[of_worker], unrecorded.stop[of_worker]
            intervals_of.setdefault(worker, []).append(times)
        return {
            worker: (
                np.concatenate([start for start, _ in intervals]),
                np.concatenate([stop for _, stop in intervals]),
            )
            for worker, intervals in intervals_of.items()
        }


class _Worker(NamedTuple):
    name: str
    joined: float
    left: float
    threads: int


class _Sent(NamedTuple):
    """Tasks that were sent to one worker, when, and what else happened there.

    `stopped` is when tasks did, on a thread of the worker or after they seceded; `moving` is when
    results moved to the worker, `spilling` when it moved results to disk or back, `others` when it
    ran tasks of other computations.
    """

    rows: IntArray
    submitted: FloatArray
    stopped: FloatArray
    moving: Interval
    spilling: Interval
    others: Interval


class _States(NamedTuple):
    """Step functions that are summed up over workers."""

    capacity: IntArray
    busy: IntArray
    overhead: IntArray
    transfer: IntArray
    spill: IntArray
    unknown: IntArray
    backlog: IntArray


def sweep_cluster(
    recording: Recording, index: int, tasks: TaskTimes, capacity: ClusterCapacity
) -> Occupancy:
    """The occupancy of one computation of a cluster, by its row in `Recording.computations`."""
    computations = recording.computations
    start, stop = float(computations.start[index]), float(computations.stop[index])
    lanes = recording.tasks.worker[tasks.rows]
    rows_of = rows_of_workers(lanes.codes, lanes.values)
    submitted = recording.tasks.submitted[tasks.rows]
    # After a task seceded its result is not on the way yet.
    stopped = np.fmax(tasks.worker_stop, recording.tasks.stop[tasks.rows])
    queued = np.nan_to_num(recording.tasks.queued[tasks.rows])
    others = capacity.others(computations.cluster[index], computations.computation[index])
    sweeps = []
    recorded = set()
    for worker in capacity.workers(computations.cluster[index]):
        rows = rows_of.get(worker.name, _NO_ROWS)
        recorded.add(worker.name)
        if (worker.left <= start or worker.joined >= stop) and not len(rows):
            continue
        moving, of_others = capacity.transfers_to(worker.name), others.get(worker.name, _NONE)
        spilling = capacity.spilling(worker.name)
        sent = _Sent(rows, submitted[rows], stopped[rows], moving, spilling, of_others)
        sweeps.append(_sweep_worker(worker, tasks, sent, start, stop))
    for name, rows in rows_of.items():
        if name not in recorded:
            # A worker of which only tasks are known has the threads that these show.
            worker = _Worker(name, start, np.nan, 0)
            sent = _Sent(rows, submitted[rows], stopped[rows], _NONE, _NONE, _NONE)
            sweeps.append(_sweep_worker(worker, tasks, sent, start, stop))
    waiting = submitted - queued, submitted
    times, (in_queue,) = open_intervals([waiting], start, stop)
    times, states, (queue,) = _summed(sweeps, (times, [in_queue]))
    delayed = {Activity.TRANSFER: states.transfer, Activity.SPILL: states.spill}
    free = states.capacity - states.busy - states.overhead - states.unknown - sum(delayed.values())
    nothing = constant(0, len(free))
    return Occupancy(
        computation=computations.computation[index],
        span=computations.span[index],
        workers=max(int(states.capacity.max(initial=0)), 1),
        tasks=tasks,
        times=times,
        capacity=states.capacity,
        busy=states.busy,
        overhead=states.overhead + np.minimum(free, queue),
        unknown=states.unknown,
        blocked={},
        graph=nothing,
        imports=nothing,
        profilers=nothing,
        startup=nothing,
        delayed=delayed,
        backlog=states.backlog,
    )


def rows_of_workers(codes: IntArray, lanes: Sequence[str]) -> dict[str, IntArray]:
    """The rows of the tasks of each worker; a lane is a worker's name and a thread's."""
    names = [str(lane).rpartition("/")[0] for lane in lanes]
    rows: dict[str, IntArray] = {}
    for code in np.unique(codes).tolist():
        of_lane = np.flatnonzero(codes == code)
        name = names[code]
        rows[name] = np.concatenate([rows[name], of_lane]) if name in rows else of_lane
    return rows


def _sweep_worker(
    worker: _Worker,
    tasks: TaskTimes,
    sent: _Sent,
    start: float,
    stop: float,
) -> tuple[FloatArray, _States]:
    rows, submitted, stopped, moving, spilling, others = sent
    worker_start, worker_stop = tasks.worker_start[rows], tasks.worker_stop[rows]
    collected = tasks.collected[rows]
    has_start = ~np.isnan(worker_start)
    left_at = stop if np.isnan(worker.left) else worker.left
    # A task without times may have run until it was collected, but not after its worker had left.
    until = np.fmin(np.nan_to_num(collected[~has_start], nan=stop), left_at)
    live = np.array([min(worker.joined, left_at)]), np.array([left_at])
    times, counts = open_intervals(
        [
            (worker_start[has_start], worker_stop[has_start]),
            (submitted[has_start], worker_start[has_start]),
            (stopped[has_start], np.fmax(stopped[has_start], collected[has_start])),
            (submitted[~has_start], np.fmax(submitted[~has_start], until)),
            moving,
            spilling,
            others,
            live,
        ],
        start,
        stop,
    )
    busy, underway, done, perhaps, arriving, on_disk, of_others, is_live = counts
    # Tasks that seceded run beside the threads, and a worker may outlive what is recorded of it.
    capacity = np.maximum(is_live * worker.threads, busy)
    free = capacity - busy
    by_others = np.minimum(free, of_others)
    overhead = np.minimum(free - by_others, underway + done)
    unknown = by_others + np.minimum(free - by_others - overhead, perhaps)
    # Tasks that were sent to this worker and that it has no thread for, whatever other workers do.
    backlog = np.maximum(underway - (free - by_others), 0)
    # While a worker writes or reads, its event loop does nothing else.
    spill = np.where(on_disk > 0, overhead, 0)
    transfer = np.where(arriving > 0, np.minimum(overhead - spill, underway), 0)
    overhead = overhead - spill - transfer
    return times, _States(capacity, busy, overhead, transfer, spill, unknown, backlog)


def _summed(
    sweeps: Sequence[tuple[FloatArray, _States]], others: tuple[FloatArray, list[IntArray]]
) -> tuple[FloatArray, _States, list[IntArray]]:
    """The sums over workers, and other step functions, all over the same times."""
    all_times = [*(times for times, _ in sweeps), others[0]]
    times, index = np.unique(np.concatenate(all_times), return_inverse=True)
    positions = np.split(
        index.reshape(-1), np.cumsum([len(times_of_one) for times_of_one in all_times])[:-1]
    )

    def total(parts: Sequence[tuple[IntArray, IntArray]]) -> IntArray:
        # Each worker's sweep changes at times of its own: what is added up are the changes, not the
        # values.
        steps = np.zeros(len(times), np.int64)
        for where, counts in parts:
            np.add.at(steps, where, np.diff(counts, prepend=0, append=0))
        return np.asarray(np.cumsum(steps)[:-1])

    swept = [(where, states) for where, (_, states) in zip(positions[:-1], sweeps, strict=True)]
    fields = [
        total([(where, getattr(states, name)) for where, states in swept])
        for name in _States._fields
    ]
    return times, _States(*fields), [total([(positions[-1], counts)]) for counts in others[1]]


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
