"""What a cluster's steps cost, read from a recording.

The scheduler's event loop does one thing after another: a task takes the share of its CPU seconds
that falls to it. Recorded are when it sent each task, when the worker's thread started and stopped
it, and when the scheduler knew of its end. A thread that was free when a task was sent shows how
long a task is on its way; one that was not, how long a worker takes from one task to the next.
"""

from __future__ import annotations

from functools import cached_property
from math import inf

import numpy as np

from dask_diag.analysis.cluster_occupancy import rows_of_workers
from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.simulation.recorded import Recorded
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.simulation.steps import measured_or_typical
from dask_diag.analysis.simulation.work import Cluster, Work
from dask_diag.analysis.task_times import start_times, worker_stop_times
from dask_diag.analysis.transfers import LARGE
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity

__all__ = ["Clusters", "cluster_work"]

LATENCY = 0.005
"""Seconds until a small result of another worker is there, if the recording has no transfers."""
USUAL_COST = 0.001
"""CPU seconds of the scheduler for a task, at most, where it is not busy: it also does what has
nothing to do with tasks."""
BUSY = 0.2
"""Least share of the time in which it used a CPU for what it did to have been for tasks."""
ENOUGH = 5
"""Tasks that were sent to a free thread from which on what is typical of them is read from them."""
USUAL_WAKE = 0.005
"""Seconds until a task starts on a free thread, at most, where there are fewer."""
AT_ONCE = 2.0
"""So many times what a task costs the scheduler may pass between two results of which the second
was waiting."""


class Clusters:
    """What a recording says of clusters, each fact read once.

    Parameters
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording

    @cached_property
    def submitted(self) -> FloatArray:
        """When each task was sent to its worker."""
        submitted, start = self.recording.tasks.submitted, self.recording.tasks.start
        submitted = np.where(np.isnan(submitted), start, submitted)
        return np.where(np.isnan(submitted), self.recording.start, submitted)

    @cached_property
    def start(self) -> FloatArray:
        """When each task started; one of which that is not known, when it was sent."""
        return np.fmax(start_times(self.recording), self.submitted)

    @cached_property
    def stop(self) -> FloatArray:
        """When each task left its thread; one that never started took no time."""
        tasks = self.recording.tasks
        # A run whose worker was lost ended when the scheduler knew of that.
        stop = np.where(np.isnan(tasks.stop), tasks.collected, np.nan)
        stop = np.fmin(worker_stop_times(self.recording), stop)
        return np.where(np.isnan(tasks.start), self.start, np.fmax(stop, self.start))

    @cached_property
    def collected(self) -> FloatArray:
        """When the scheduler knew of the end of each task."""
        return np.fmax(self.recording.tasks.collected, self.stop)

    @cached_property
    def workers(self) -> IntArray:
        """Which worker ran each task, by its first lane."""
        lanes = self.recording.tasks.worker
        workers = np.zeros(len(lanes), np.int64)
        for number, rows in enumerate(rows_of_workers(lanes.codes, lanes.values).values()):
            workers[rows] = number
        return workers

    @cached_property
    def network(self) -> tuple[float, float]:
        """Seconds until a small result is at another worker, and bytes that arrive in a second."""
        transfers = self.recording.transfers
        transfers = transfers.rows(transfers.activity.where(Activity.TRANSFER))
        took, sizes = transfers.stop - transfers.start, np.nan_to_num(transfers.bytes)
        small = took[sizes < LARGE]
        latency = float(np.median(small)) if len(small) else LATENCY
        took, sizes = took[sizes >= LARGE], sizes[sizes >= LARGE]
        if not len(sizes):
            return latency, BYTES_A_SECOND
        latency = min(latency, float(took.min()) / 2)
        return latency, float(np.median(sizes / np.maximum(took - latency, 1e-9)))

    @cached_property
    def _arrivals(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Of each result and worker that it was sent to, in order: start and stop."""
        tasks, transfers = self.recording.tasks, self.recording.transfers
        rows = np.flatnonzero(transfers.activity.where(Activity.TRANSFER) & (transfers.task >= 0))
        lanes = rows_of_workers(tasks.worker.codes, tasks.worker.values)
        number_of = {name: number for number, name in enumerate(lanes)}
        names = transfers.destination
        numbers = np.array([number_of.get(str(name), -1) for name in names.values], np.int64)
        to = numbers[names.codes[rows]] if len(rows) else rows
        pairs = self._pairs(transfers.task[rows].astype(np.int64), to)
        order = np.argsort(pairs, kind="stable")
        return pairs[order], transfers.start[rows][order], transfers.stop[rows][order]

    def _pairs(self, tasks: IntArray, workers: IntArray) -> IntArray:
        return tasks * (int(self.workers.max(initial=0)) + 2) + workers + 1

    def arriving(self, rows: IntArray, task: IntArray, depends_on: IntArray) -> FloatArray:
        """Seconds from when each task was sent until its last input was there, if one moved."""
        pairs, starts, stops = self._arrivals
        seconds = np.zeros(len(rows))
        if not len(pairs) or not len(task):
            return seconds
        wanted = self._pairs(rows[depends_on], self.workers[rows[task]])
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        came = pairs[at] == wanted
        began = np.fmax(starts[at], self.submitted[rows[task]])
        took = np.where(came, np.fmin(stops[at], self.start[rows[task]]) - began, 0.0)
        np.maximum.at(seconds, task, took)
        return seconds


def cluster_work(
    clusters: Clusters, recorded: Recorded, task: IntArray, depends_on: IntArray
) -> Work:
    """The tasks of a computation that a cluster ran, and what handing them out costs there."""
    rows, computation = recorded.rows, recorded.computation
    # A result that was lost is computed again, after tasks that depend on it were sent.
    in_order = depends_on < task
    task, depends_on = task[in_order], depends_on[in_order]
    submitted, stop = clusters.submitted[rows], clusters.stop[rows]
    collected = clusters.collected[rows]
    seconds = stop - clusters.start[rows]
    cost = _cost(recorded)
    arriving = clusters.arriving(rows, task, depends_on)
    wake, gap = _starting(clusters, recorded, arriving + cost)
    first, begin = float(submitted[0]), float(computation["start"])
    called = float(np.fmin(computation["called"], begin))
    startup = _startup(clusters.recording, computation, first)
    workers = max(int(computation["workers"]), 1)
    return Work(
        rows=rows,
        seconds=seconds,
        cpu=np.minimum(recorded.cpu, seconds),
        gil=np.zeros(len(rows)),
        switching=0.0,
        prepare=np.zeros(len(rows)),
        wake=wake,
        gap=gap,
        collect=np.full(len(rows), cost),
        deliver=_delivering(collected, stop, cost),
        notice=np.zeros(len(rows)),
        submit=0.0,
        scheduler_cpu=cost * len(rows),
        pool_cpu=0.0,
        children_cpu=0.0,
        others=0.0,
        startup=startup[:workers],
        graph=max(recorded.ordered - called, 0.0),
        before=max(first - recorded.ordered, 0.0),
        after=max(float(computation["stop"] - collected.max()), 0.0),
        workers=workers,
        batch=1,
        task=task,
        depends_on=depends_on,
        cluster=_cluster(clusters, recorded, task, depends_on),
    )


def _cost(recorded: Recorded) -> float:
    """What a task costs the scheduler; where that has little to do it does other things, too."""
    lasted = float(recorded.computation["stop"] - recorded.computation["start"])
    cost = recorded.scheduler_cpu / len(recorded.rows)
    return cost if recorded.scheduler_cpu > BUSY * lasted else min(cost, USUAL_COST)


def _cluster(
    clusters: Clusters, recorded: Recorded, task: IntArray, depends_on: IntArray
) -> Cluster:
    rows, tasks = recorded.rows, clusters.recording.tasks
    ready = clusters.submitted[rows] - tasks.queued[rows]
    sent_first = np.full(len(rows), float(clusters.submitted[rows[0]]))
    inputs = np.full(len(rows), -inf)
    np.maximum.at(inputs, task, clusters.collected[rows][depends_on])
    latency, rate = clusters.network
    workers = clusters.recording.workers
    workers = workers.rows(workers.computation.where(recorded.computation["cluster"]))
    hosts = rows_by(workers.host)
    cpus = [int(workers.cpus[of_host].max()) for of_host in hosts.values()]
    return Cluster(
        threads=max(int(np.median(workers.threads)), 1) if len(workers) else 1,
        hosts=max(len(hosts), 1),
        cpus=float(sum(cpus)) if cpus and min(cpus) > 0 else inf,
        is_one_process=len(workers) > 1 and len(set(workers.pid.tolist())) == 1,
        delay=np.fmax(ready - np.where(inputs > -inf, inputs, sent_first), 0.0),
        nbytes=np.nan_to_num(tasks.nbytes[rows]),
        latency=latency,
        bytes_a_second=rate,
    )


def _starting(
    clusters: Clusters, recorded: Recorded, before: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """From a task's arrival to its start on a free thread; and from the end of the task before.

    What is no part of the first, as the arrival of inputs, is `before`. Where the other of the two
    counted, it is what is typical, but no longer than there was time.
    """
    rows = recorded.rows
    submitted, start, stop = (
        times[rows] for times in (clusters.submitted, clusters.start, clusters.stop)
    )
    order = np.lexsort((start, recorded.workers))
    same = np.diff(recorded.workers[order]) == 0
    previous = np.full(len(rows), -inf)
    previous[order[1:]] = np.where(same, stop[order[:-1]], -inf)
    longest = np.maximum(start - submitted - before, 0.0)
    was_free = previous <= submitted
    if was_free.sum() < ENOUGH:
        # The first tasks of a computation take longer.
        longest = np.where(was_free, longest, np.minimum(longest, USUAL_WAKE))
    wake = np.minimum(measured_or_typical(longest, was_free), longest)
    longest = np.where(np.isfinite(previous), np.maximum(start - previous, 0.0), inf)
    was_there = (previous > submitted + before + wake) & (start >= previous)
    # One that was stolen came later.
    was_there &= clusters.recording.tasks.stolen[rows] == 0
    return wake, np.minimum(measured_or_typical(longest, was_there), longest)


def _delivering(collected: FloatArray, stop: FloatArray, cost: float) -> FloatArray:
    """From a task's end until its result is at the scheduler, without the wait for others."""
    deliver = collected - stop
    order = np.argsort(collected, kind="stable")
    waited = np.zeros(len(deliver), bool)
    waited[order[1:]] = np.diff(collected[order]) <= AT_ONCE * cost
    usual = measured_or_typical(deliver, ~waited)
    return np.asarray(np.minimum(deliver, np.where(waited, usual, inf)))


def _startup(
    recording: Recording, computation: dict[str, object], first: float
) -> tuple[float, ...]:
    """How long after the first task was sent each thread of a worker was there, in order."""
    workers = recording.workers
    workers = workers.rows(workers.computation.where(computation["cluster"]))
    stop = float(computation["stop"])  # type: ignore[arg-type]
    is_used = (workers.joined < stop) & ~(workers.left <= first)
    late = np.maximum(workers.joined[is_used] - first, 0.0)
    joined = np.sort(np.repeat(late, workers.threads[is_used]))
    return tuple(joined.tolist()) if joined.any() else ()
