"""How many threads of a cluster were busy, blocked or idle at each moment of a computation.

Workers of a cluster come and go, and a free one cannot take a task that was sent to another. So
each worker has a sweep of its own, over the tasks that were sent to it, and these are summed up.
What free threads are left then are in overhead as long as tasks wait in the scheduler's queue.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.analysis.transfers import Interval
from dask_diag.analysis.worker_states import Occupancy, TaskTimes, constant, open_intervals
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, WorkerEvent

__all__ = ["ClusterCapacity", "sweep_cluster"]

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
