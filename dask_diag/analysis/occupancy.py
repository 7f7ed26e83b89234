"""How many workers were busy, blocked or idle at each moment.

One sweep over the sorted times of a computation, or of a worker of a cluster. At each moment some
workers run tasks. Of the free workers, as many are in overhead as there are tasks that could run,
wait in the pool, or wait to be collected; the others are idle. A worker that unpickles inputs or
pickles a result is busy. Each worker is in exactly one state at each moment, so the seconds sum to
wall time × workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import MANY, counts_by, rows_by, rows_of_workers
from dask_diag.analysis.intervals import Intervals, StepFunction, distinct_times
from dask_diag.analysis.phases import NotOfGraphs, times_not_of_graphs
from dask_diag.analysis.task_times import (
    call_times,
    computation_stops,
    is_attached,
    preparation_stops,
    prepared_times,
    transfer_times,
    transfers_between_workers,
    worker_stop_times,
)
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model.codes import Activity, WorkerEvent
from dask_diag.model.recording import Recording
from dask_diag.model.tables import OtherTasks, Transfers, WorkerEvents


class TaskTimes(NamedTuple):
    """The times of a computation's tasks, as arrays; NaN if unknown.

    Attributes
    ----------
    rows : array of int
        Positions in `Recording.tasks`.
    ready, collected : array of float
        Seconds: when all dependencies had been collected, and when the result was.
    worker_start, worker_stop : array of float
        The time in which a task had a worker: from its start to its stop, or to the end of its
        computation if it did not finish; in another process also while the worker rebuilt its
        inputs and pickled its result.
    """

    rows: IntArray
    ready: FloatArray
    collected: FloatArray
    worker_start: FloatArray
    worker_stop: FloatArray


_BUSY = "busy"
_IMPORTS = "imports"
_WAITING, _DONE, _PERHAPS = "waiting", "done", "perhaps"
"""Tasks that can run, tasks whose result can be collected, and tasks that may run."""
_OTHERS = "tasks of other computations"
_QUEUED = "queued"
_CAPACITY, _BACKLOG = "capacity", "backlog"
_LIMITED = "limited"

States = dict[str, IntArray]
"""Step functions by name: the number of workers in a state, or of open intervals of a kind."""


@dataclass(frozen=True)
class Occupancy:
    """The state of a computation's workers as step functions of time.

    Of many small computations it is that of a series, in which one runs after the other: between
    them there are no workers.

    Attributes
    ----------
    computation, span : str
        The computation is empty for a series.
    computations, first_starts : Intervals, array of float
        From when to when each computation lasted, and when its first task started, or it stopped;
        on a cluster, when its graph arrived.
    workers : int
        The number that the scheduler gave, or that ran at once if that is more.
    tasks : TaskTimes
    times : array of float, shape (steps + 1,)
        Seconds; the first and last are the bounds of the computation.
    capacity : array of int, shape (steps,)
        Workers that were present: on a cluster, the threads of its workers at that time.
    busy : array of int, shape (steps,)
        Workers that ran a task, or moved its inputs or result.
    states : dict of str to array of int
        Free workers by state; a state that never occurs is left out:

        * ``idle``: there was nothing to run
        * ``graph``: the graph was made, optimized and put in order; ``imports`` and ``profilers``:
          the same, while dask imported modules, or profilers had something to do
        * ``overhead``: a task waited for the scheduler or for a worker, or its result for the
          scheduler. Parts of that have states of their own: ``startup`` (a process starts),
          ``serialize`` and ``deserialize`` (the scheduler is busy with it), and on a cluster
          ``transfer`` (results of other workers are on their way), ``spill`` (to a disk) and
          ``event-loop`` (a coroutine keeps it)
        * ``other``: a task had been submitted, and it is not known when it ran
    backlog : array of int, shape (steps,)
        Tasks that wait at workers of a cluster whose threads are all busy, whatever other workers
        do.
    """

    computation: str
    span: str
    computations: Intervals
    first_starts: FloatArray
    workers: int
    tasks: TaskTimes
    times: FloatArray
    capacity: IntArray
    busy: IntArray
    states: States
    backlog: IntArray

    @property
    def wall(self) -> float:
        """Seconds of the computation, or of all in the series."""
        return self.computations.seconds

    @property
    def is_series(self) -> bool:
        """Whether it is that of several computations."""
        return len(self.computations.start) > 1

    def seconds_before_tasks(self, workers: IntArray) -> float:
        """Worker-seconds of a step function before the first task of each computation."""
        starts = self.computations.start
        return float(self.seconds_during(workers, starts, self.first_starts).sum())

    @property
    def worker_seconds(self) -> float:
        """Seconds of all workers while present."""
        return self.seconds(self.capacity)

    def _state(self, name: str) -> IntArray:
        return self.states.get(name, _constant(0, len(self.busy)))

    @property
    def idle(self) -> IntArray:
        """Free workers without anything to run."""
        return self._state(Activity.IDLE) + self.limited

    @property
    def limited(self) -> IntArray:
        """Those of them whose tasks waited for a resource of the worker that other tasks had."""
        return self._state(_LIMITED)

    @property
    def overhead(self) -> IntArray:
        """Free workers while a task, or a result, waited."""
        return self._state(Activity.OVERHEAD)

    @property
    def unknown(self) -> IntArray:
        """Workers that were free unless a submitted task ran at an unknown time."""
        return self._state(Activity.OTHER)

    @property
    def startup(self) -> IntArray:
        """Workers in processes that had not started a task."""
        return self._state(Activity.STARTUP)

    @property
    def without_workers(self) -> Intervals:
        """When no worker of the cluster was there."""
        return self.when(self.capacity == 0) if not self.is_series else _NO_INTERVALS

    @property
    def imports(self) -> IntArray:
        """Free workers while dask imported modules."""
        return self._state(_IMPORTS)

    @property
    def free(self) -> States:
        """Free workers by activity, without the workers blocked by the scheduler."""
        states = {name: self._state(name) for name in _FREE}
        if _IMPORTS in self.states:
            states[Activity.STARTUP] = self.startup + self.imports
        states[Activity.IDLE] = self.idle
        return {
            name: workers
            for name, workers in states.items()
            if name in self.states or name not in _DELAYED
        }

    @property
    def blocked(self) -> States:
        """Free workers while the scheduler serialized or deserialized, by activity."""
        return {name: self.states[name] for name in _BLOCKED if name in self.states}

    def when(self, workers: IntArray) -> Intervals:
        """Intervals with any worker in a state."""
        is_any = workers > 0
        return Intervals(self.times[:-1][is_any], self.times[1:][is_any])

    def seconds(self, workers: IntArray) -> float:
        """Worker-seconds of a step function."""
        return float((workers * np.diff(self.times)).sum())

    def seconds_until(self, workers: FloatArray | IntArray, times: FloatArray) -> FloatArray:
        """Worker-seconds of a step function from the start up to each time."""
        sums = np.append(0.0, np.cumsum(workers * np.diff(self.times)))
        return np.asarray(np.interp(times, self.times, sums))

    def seconds_during(
        self, workers: IntArray, starts: FloatArray | float, stops: FloatArray | float
    ) -> FloatArray:
        """Worker-seconds of a step function in each interval."""
        until = self.seconds_until(workers, np.stack([starts, stops]))
        return np.asarray(until[1] - until[0])


_BLOCKED = (Activity.SERIALIZE, Activity.DESERIALIZE)
_DELAYED = (Activity.TRANSFER, Activity.SPILL, Activity.EVENT_LOOP)
_FREE = (
    *(Activity.GRAPH, Activity.STARTUP, Activity.PROFILERS),
    *(*_DELAYED, Activity.OVERHEAD, Activity.IDLE, Activity.OTHER),
)


def ready_times(recording: Recording) -> FloatArray:
    """Times at which tasks could start: the graph in order, and all dependencies collected."""
    # fmax ignores the NaN of a result that was not collected, which delays nothing.
    ready = preparation_stops(recording)
    dependencies = recording.dependencies
    collected = recording.tasks.collected[dependencies.depends_on]
    np.fmax.at(ready, dependencies.task, collected)
    return ready


def ready_tasks(recording: Recording) -> StepFunction:
    """Ready tasks over time: all dependencies collected, and not started.

    Tasks with an unknown start count until their computation stops.
    """
    start, ready = recording.tasks.start, ready_times(recording)
    start = np.where(np.isnan(start), computation_stops(recording), start)
    return StepFunction.of(Intervals(ready, np.maximum(start, ready)))


FEW_TASKS = 10
"""Tasks of a small computation, at most."""


def occupancies(recording: Recording, in_series: bool = False) -> list[Occupancy]:
    """The occupancy of every computation, in the order recorded.

    Parameters
    ----------
    recording : Recording
    in_series : bool, optional
        Whether small computations of local threads are joined if there are more than `MANY`: to as
        few series as ran at once, which come last.
    """
    tasks, computations = recording.tasks, recording.computations
    moved = transfer_times(recording)
    # A task that is not known to have started has no stop either.
    stop = np.where(np.isnan(tasks.start), tasks.stop, worker_stop_times(recording))
    times = (
        *(ready_times(recording), tasks.collected),
        *(np.fmin(tasks.start, moved.worker_start), np.fmax(stop, moved.worker_stop)),
    )
    rows_of = rows_by(tasks.computation)
    called, prepared = call_times(computations), prepared_times(computations)
    not_of_graphs = times_not_of_graphs(recording)
    clusters = _Clusters(recording)
    made, of_series, swept_in_series = [], [], set()
    if in_series and len(computations) > MANY:
        for series in _series_of(recording):
            occupancy = _occupancy_of_series(recording, series, times, not_of_graphs)
            if occupancy is not None:
                of_series.append(occupancy)
                swept_in_series.update(series.tolist())
    for index, name in enumerate(computations.computation.tolist()):
        if index in swept_in_series:
            continue
        rows = rows_of.get(name, _NO_ROWS)
        of_tasks = TaskTimes(rows, *(column[rows] for column in times))
        if computations.cluster[index]:
            swept, states = _cluster(recording, index, of_tasks, clusters)
        else:
            graph = Intervals(called[[index]], prepared[[index]])
            preparing = {
                Activity.GRAPH: graph,
                _IMPORTS: not_of_graphs[index].imports,
                Activity.PROFILERS: not_of_graphs[index].profilers,
                Activity.STARTUP: _startups(recording, index, of_tasks, graph),
            }
            moving = {
                activity: intervals.filter(rows[~np.isnan(intervals.start[rows])])
                for activity, intervals in moved.scheduler.items()
            }
            swept, states = _local(recording, index, of_tasks, {**preparing, **moving})
        capacity = states.pop(_CAPACITY)
        made.append(
            Occupancy(
                computation=name,
                span=computations.span[index],
                computations=Intervals(swept[:1], swept[-1:]),
                first_starts=swept[:1]
                if computations.cluster[index]
                else np.fmin.reduce(of_tasks.worker_start, initial=swept[-1], keepdims=True),
                workers=max(int(capacity.max(initial=0)), 1),
                tasks=of_tasks,
                times=swept,
                capacity=capacity,
                busy=states.pop(_BUSY),
                backlog=states.pop(_BACKLOG, _constant(0, len(capacity))),
                states=states,
            )
        )
    return made + of_series


def _series_of(recording: Recording) -> list[IntArray]:
    """Rows of small computations of which none overlaps another, for each span and many workers."""
    computations, labels = recording.computations, recording.tasks.computation
    counts = dict(zip(labels.values, counts_by(labels).tolist(), strict=True))
    tasks = np.array([counts.get(name, 0) for name in computations.computation.tolist()])
    is_local = computations.scheduler.is_in({"threads", "synchronous"})
    small = np.flatnonzero((tasks > 0) & (tasks <= FEW_TASKS) & is_local)
    called = call_times(computations)
    small = small[np.argsort(called[small], kind="stable")]
    columns = computations.span.codes, computations.workers
    kinds = list(zip(*(column[small].tolist() for column in columns), strict=True))
    series: dict[tuple[int, int], list[list[int]]] = {}
    stops = computations.stop.tolist()
    for row, begins, kind in zip(small.tolist(), called[small].tolist(), kinds, strict=True):
        tracks = series.setdefault(kind, [])
        track = next((track for track in tracks if stops[track[-1]] <= begins), None)
        if track is None:
            tracks.append([row])
        else:
            track.append(row)
    return [np.array(track) for tracks in series.values() for track in tracks if len(track) > 1]


_IN_COMPUTATION = "in a computation"


def _occupancy_of_series(
    recording: Recording,
    series: IntArray,
    times: tuple[FloatArray, ...],
    not_of_graphs: Sequence[NotOfGraphs],
) -> Occupancy | None:
    """One sweep over computations that do not overlap; None if more tasks ran than had workers."""
    computations = recording.computations
    called, stops = call_times(computations)[series], computations.stop[series]
    label_of = {name: code for code, name in enumerate(recording.tasks.computation.values)}
    names = computations.computation[series].tolist()
    place_of_label = np.full(len(label_of), -1)
    place_of_label[[label_of[name] for name in names]] = np.arange(len(series))
    places = place_of_label[recording.tasks.computation.codes]
    rows = np.flatnonzero(places >= 0)
    places = places[rows]
    tasks = TaskTimes(rows, *(column[rows] for column in times))
    until = stops[places]
    clipped = TaskTimes(rows, *(np.clip(part, called[places], until) for part in tasks[1:]))
    prepared = np.clip(prepared_times(computations)[series], called, stops)
    imports, profilers = (
        Intervals.join([not_of_graphs[row][kind] for row in series.tolist()]) for kind in (0, 1)
    )
    kinds = {
        **_tasks(clipped, slice(None), clipped.ready, clipped.worker_stop, until),
        Activity.GRAPH: Intervals(called, prepared),
        _IMPORTS: imports,
        Activity.PROFILERS: profilers,
        _IN_COMPUTATION: Intervals(called, stops),
    }
    swept, count = _open(kinds, float(called[0]), float(stops[-1]))
    busy = count.get(_BUSY, _constant(0, len(swept) - 1))
    workers = max(int(computations.workers[series[0]]), 1)
    if busy.max(initial=0) > workers:
        return None
    states = _states(workers * count[_IN_COMPUTATION], count)
    first_starts = stops.copy()
    np.fmin.at(first_starts, places, tasks.worker_start)
    return Occupancy(
        computation="",
        span=computations.span[int(series[0])],
        computations=Intervals(called, stops),
        first_starts=first_starts,
        workers=workers,
        tasks=tasks,
        times=swept,
        capacity=states.pop(_CAPACITY),
        busy=busy,
        backlog=_constant(0, len(busy)),
        states=states,
    )


def _constant(workers: int, steps: int) -> IntArray:
    """Return a constant step function: a single number in memory, not to be written to."""
    return np.broadcast_to(np.int64(workers), steps)


def _open(
    kinds: Mapping[str, Intervals], start: float, stop: float
) -> tuple[FloatArray, dict[str, IntArray]]:
    """The bounds of intervals, and the number of open intervals of each kind from each on.

    Kinds without intervals are left out, as most are in most computations.
    """
    kinds = {name: kind for name, kind in kinds.items() if len(kind.start)}
    bounds = [np.clip(bound, start, stop) for kind in kinds.values() for bound in kind]
    times, index = distinct_times(np.concatenate([[start, stop], *bounds]))
    cuts = np.cumsum([2, *(len(bound) for bound in bounds)])
    # The first two of `index` are `start` and `stop`. Starts and stops of each kind follow in turn.
    _, *indices = np.split(index, cuts[:-1])
    counts = {}
    for name, starts, stops in zip(kinds, indices[::2], indices[1::2], strict=True):
        steps = np.bincount(starts, minlength=len(times)) - np.bincount(stops, minlength=len(times))
        counts[name] = np.cumsum(steps)[:-1]
    return times, counts


def _states(capacity: IntArray, count: Mapping[str, IntArray]) -> States:
    """Divide workers among states, by how many intervals of each kind are open."""
    states = {_CAPACITY: capacity, Activity.IDLE: capacity - count.get(_BUSY, 0)}

    def take(source: str, state: str, wanted: IntArray | int) -> None:
        """Move workers from a state to another, as many as `source` has."""
        if source in states and np.any(wanted):
            taken = np.minimum(states[source], wanted)
            states[source] = states[source] - taken
            states[state] = states.get(state, 0) + taken

    def workers_while(kind: str, workers: IntArray | int) -> IntArray | int:
        return np.where(count[kind] > 0, workers, 0) if kind in count else 0

    waiting = count.get(_WAITING, 0)
    take(Activity.IDLE, Activity.GRAPH, workers_while(Activity.GRAPH, capacity))
    take(Activity.GRAPH, Activity.PROFILERS, workers_while(Activity.PROFILERS, capacity))
    take(Activity.GRAPH, _IMPORTS, workers_while(_IMPORTS, capacity))
    take(Activity.IDLE, Activity.OTHER, count.get(_OTHERS, 0))
    take(Activity.IDLE, Activity.OVERHEAD, waiting + count.get(_DONE, 0))
    take(Activity.IDLE, Activity.OTHER, count.get(_PERHAPS, 0))
    take(Activity.IDLE, _LIMITED, count.get(_LIMITED, 0))
    # A process that starts, or moves data, keeps ready tasks waiting: its seconds are a part of the
    # overhead. While a worker writes or reads, or a coroutine computes or blocks, its event loop
    # does nothing else.
    take(Activity.OVERHEAD, Activity.STARTUP, count.get(Activity.STARTUP, 0))
    for activity in (Activity.SPILL, Activity.EVENT_LOOP):
        take(Activity.OVERHEAD, activity, workers_while(activity, capacity))
    take(Activity.OVERHEAD, Activity.TRANSFER, workers_while(Activity.TRANSFER, waiting))
    for activity in _BLOCKED:
        take(Activity.OVERHEAD, activity, workers_while(activity, capacity))
    return states


def _tasks(
    tasks: TaskTimes,
    rows: IntArray | slice,
    since: FloatArray,
    stopped: FloatArray,
    until: FloatArray,
) -> dict[str, Intervals]:
    """Intervals of some tasks of a computation, by kind.

    Tasks could run from `since` on; results could be collected once tasks had `stopped`. Tasks
    without times may have run `until` then, a time for each of the rows.
    """
    start, stop, since = tasks.worker_start[rows], tasks.worker_stop[rows], since[rows]
    collected = np.fmax(stopped[rows], tasks.collected[rows])
    started = ~np.isnan(start)
    return {
        _BUSY: Intervals(start, stop).filter(started),
        _WAITING: Intervals(since, start).filter(started),
        _DONE: Intervals(stopped[rows], collected).filter(started),
        _PERHAPS: Intervals(since, np.fmax(since, until)).filter(~started),
    }


def _local(
    recording: Recording, index: int, tasks: TaskTimes, others: Mapping[str, Intervals]
) -> tuple[FloatArray, States]:
    """The states of a local scheduler's workers, for a row of `Recording.computations`.

    `others` are intervals besides those of tasks, with the preparation of the graph.
    """
    computations = recording.computations
    stop = float(computations.stop[index])
    # A task without times could run from when it was ready, so some worker may have been busy with
    # it since.
    until = np.full(len(tasks.rows), stop)
    kinds = _tasks(tasks, slice(None), tasks.ready, tasks.worker_stop, until)
    times, count = _open({**kinds, **others}, float(others[Activity.GRAPH].start[0]), stop)
    steps = len(times) - 1
    count.setdefault(_BUSY, _constant(0, steps))
    # A pool that was resized ran more tasks at once than was recorded of it: no count of free
    # workers is negative.
    workers = max(int(computations.workers[index]), int(count[_BUSY].max(initial=0)), 1)
    blocked = {kind: _constant(0, steps) for kind in others if kind in _BLOCKED}
    states = _states(_constant(workers, steps), count)
    return times, {**blocked, **states, _BUSY: count[_BUSY]}


def _startups(recording: Recording, index: int, tasks: TaskTimes, graph: Intervals) -> Intervals:
    """Starts of worker processes: from the first submission to the first task of each.

    Threads start at once, and processes of a pool that was there before have started. In a program
    that was attached to, all may be such processes.
    """
    if is_attached(recording):
        return _NO_INTERVALS
    computations, workers = recording.computations, recording.workers
    called, ready = (float(time) for (time,) in graph)
    joined = workers.computation.eq(computations.computation[index]) & (workers.joined > called)
    new = set(workers.pid[joined].tolist())
    first = [
        float(np.fmin.reduce(tasks.worker_start[rows], initial=np.inf))
        for pid, rows in rows_by(recording.tasks.pid[tasks.rows]).items()
        if pid in new
    ]
    # A process whose tasks all lack times would look as if it had started until the end.
    stops = np.array([time for time in first if time < np.inf], dtype=float)
    prepared = np.full(len(stops), ready)
    return Intervals(prepared, np.maximum(stops, prepared))


_NO_ROWS: IntArray = np.zeros(0, np.int64)
_NO_INTERVALS = Intervals(np.zeros(0), np.zeros(0))


class _Clusters:
    """Intervals of clusters' workers, grouped by worker once for all computations."""

    def __init__(self, recording: Recording) -> None:
        transfers, events = transfers_between_workers(recording), recording.worker_events
        spills = events.filter(~events.event.eq(WorkerEvent.PAUSED))
        self.moving = _intervals_of_workers(transfers.destination, transfers)
        self.spilling = _intervals_of_workers(spills.worker, spills)
        metrics, tasks = recording.metrics, recording.tasks
        on_loop = metrics.filter(metrics.activity.eq(Activity.EVENT_LOOP))
        start = tasks.start[on_loop.task]
        # When between its start and its stop a coroutine had the loop is not known.
        had_loop = Intervals(start, start + on_loop.value)
        self.on_loop = {
            name: had_loop.filter(rows)
            for name, rows in rows_of_workers(tasks.worker[on_loop.task]).items()
        }
        self._recording = recording
        self._stops = worker_stop_times(recording)

    def others(self, index: int) -> dict[str, Intervals]:
        """Intervals of tasks of other computations on the cluster, by worker."""
        recording, computations = self._recording, self._recording.computations
        of_cluster = computations.cluster.eq(computations.cluster[index])
        names = {*computations.computation[of_cluster].tolist()}
        names.discard(computations.computation[index])
        tasks = recording.tasks
        rows = np.flatnonzero(tasks.computation.is_in(names) & ~np.isnan(tasks.start))
        unrecorded = recording.other_tasks
        unrecorded = unrecorded.filter(unrecorded.computation.eq(computations.cluster[index]))
        intervals = _intervals_of_workers(unrecorded.worker, unrecorded)
        for worker, positions in rows_of_workers(tasks.worker[rows]).items():
            ran = Intervals(tasks.start[rows[positions]], self._stops[rows[positions]])
            intervals[worker] = Intervals.join([ran, intervals.get(worker, _NO_INTERVALS)])
        return intervals


def _intervals_of_workers(
    workers: Categorical, table: Transfers | WorkerEvents | OtherTasks
) -> dict[str, Intervals]:
    intervals = Intervals(table.start, table.stop)
    return {name: intervals.filter(rows) for name, rows in rows_by(workers).items()}


def _cluster(
    recording: Recording, index: int, tasks: TaskTimes, clusters: _Clusters
) -> tuple[FloatArray, States]:
    """The states of a cluster's threads, for a row of `Recording.computations`."""
    computations = recording.computations
    start, stop = float(computations.start[index]), float(computations.stop[index])
    submitted = recording.tasks.submitted[tasks.rows]
    # After a task seceded its result is not on the way yet.
    stopped = np.fmax(tasks.worker_stop, recording.tasks.stop[tasks.rows])
    allowed = np.fmax.reduce([submitted, *allowed_times(recording, tasks).values()])
    rows_of = rows_of_workers(recording.tasks.worker[tasks.rows])
    others = clusters.others(index)
    workers = recording.workers
    workers = workers.filter(workers.computation.eq(computations.cluster[index]))
    columns = workers.worker.tolist(), workers.joined, workers.left, workers.threads.tolist()
    present = list(zip(*columns, strict=True))
    # A worker of which only tasks are known has the threads that these show.
    unlisted = [name for name in rows_of if name not in set(columns[0])]
    sweeps = []
    for name, joined, left, threads in (*present, *((name, start, np.nan, 0) for name in unlisted)):
        rows = rows_of.get(name, _NO_ROWS)
        if (left <= start or joined >= stop) and not len(rows):
            continue
        left_at = stop if np.isnan(left) else left
        # A task without times may have run until it was collected, but not after its worker left.
        until = np.fmin(np.nan_to_num(tasks.collected[rows], nan=stop), left_at)
        kinds = _tasks(tasks, rows, allowed, stopped, until)
        kinds[_LIMITED] = Intervals(submitted[rows], allowed[rows])
        kinds[_CAPACITY] = Intervals(np.array([min(joined, left_at)]), np.array([left_at]))
        if name not in unlisted:
            kinds[_OTHERS] = others.get(name, _NO_INTERVALS)
            kinds[Activity.TRANSFER] = clusters.moving.get(name, _NO_INTERVALS)
            kinds[Activity.SPILL] = clusters.spilling.get(name, _NO_INTERVALS)
            kinds[Activity.EVENT_LOOP] = clusters.on_loop.get(name, _NO_INTERVALS)
        times, count = _open(kinds, start, stop)
        busy = count.get(_BUSY, _constant(0, len(times) - 1))
        # Tasks that seceded run besides the threads, and a worker may outlive its record.
        capacity = np.maximum(count[_CAPACITY] * threads, busy)
        free = np.maximum(capacity - busy - count.get(_OTHERS, 0), 0)
        backlog = np.maximum(count.get(_WAITING, 0) - free, 0)
        sweeps.append((times, {**_states(capacity, count), _BUSY: busy, _BACKLOG: backlog}))
    queued = np.nan_to_num(recording.tasks.queued[tasks.rows])
    queue = {_QUEUED: Intervals(submitted - queued, submitted)}
    times, states = _sum([*sweeps, _open(queue, start, stop)])
    if _QUEUED in states:
        waiting = np.minimum(states[Activity.IDLE], states.pop(_QUEUED))
        states[Activity.OVERHEAD] = states.get(Activity.OVERHEAD, 0) + waiting
        states[Activity.IDLE] = states[Activity.IDLE] - waiting
    return times, states


LATE = 0.001
"""Most seconds by which clocks let a task overlap the one that held its resource before."""


def allowed_times(recording: Recording, tasks: TaskTimes) -> dict[str, FloatArray]:
    """For each resource, when the worker of each task of a computation had enough of it."""
    allowed: dict[str, FloatArray] = {}
    limits = recording.resource_limits
    if not len(limits) or not len(tasks.rows):
        return allowed
    all_tasks = recording.tasks
    name = all_tasks.computation[tasks.rows[:1]].tolist()[0]
    limits = limits.filter(limits.computation.eq(name) & (limits.at_once > 0))
    workers = rows_of_workers(all_tasks.worker[tasks.rows])
    # A task that seceded holds its resources until it stops.
    stopped = np.fmax(tasks.worker_stop, all_tasks.stop[tasks.rows])
    for resource, rows in rows_by(limits.resource).items():
        needs_it = {*limits.function[rows].tolist()}
        is_limited = all_tasks.function[tasks.rows].is_in(needs_it)
        at_once = int(limits.at_once[rows].max())
        times = allowed[resource] = np.array(all_tasks.submitted[tasks.rows])
        for of_worker in workers.values():
            ran = of_worker[is_limited[of_worker] & ~np.isnan(tasks.worker_start[of_worker])]
            in_order = ran[np.argsort(tasks.worker_start[ran], kind="stable")]
            # As a task starts, all but so many of those before it have stopped.
            later, stops = in_order[at_once:], np.sort(stopped[ran])[:-at_once]
            starts = tasks.worker_start[later]
            # If more ran at once, not all tasks of the function need it.
            if (stops <= starts + LATE).all():
                times[later] = np.fmin(np.fmax(times[later], stops), starts)
    return allowed


def _sum(sweeps: Iterable[tuple[FloatArray, States]]) -> tuple[FloatArray, States]:
    """Add step functions by name, over the times of all sweeps."""
    sweeps = list(sweeps)
    times, index = distinct_times(np.concatenate([own for own, _ in sweeps]))
    positions = np.split(index, np.cumsum([len(own) for own, _ in sweeps])[:-1])
    names = (
        _CAPACITY,
        _BUSY,
        Activity.IDLE,
        *_DELAYED,
        *(name for _, states in sweeps for name in states),
    )
    changes = {name: np.zeros(len(times), np.int64) for name in names}
    # Each sweep has times of its own, so the changes are added, not the values.
    for where, (_, states) in zip(positions, sweeps, strict=True):
        for name, counts in states.items():
            changes[name][where] += np.diff(counts, prepend=0, append=0)
    return times, {name: np.cumsum(steps)[:-1] for name, steps in changes.items()}
