"""Read the costs of scheduling from a recording: the work of each computation.

Two recorded schedulers are read in two ways: a local one submits tasks and collects results step by
step on one thread; that of a cluster sends each task to a worker that may have others.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, fields
from functools import cached_property
from math import inf, nan

import numpy as np

from dask_diag.analysis.groups import cpus_of_hosts, rows_by, rows_by_code, rows_of_workers, sums_by
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.simulation.work import Cluster, Columns, Row, Work
from dask_diag.analysis.task_times import (
    LARGE,
    computation_stops,
    own_dependencies,
    start_times,
    transfer_times,
    transfers_between_workers,
    worker_stop_times,
)
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Workers

LATENCY = 0.005
"""Seconds until a small result of another worker is there, if the recording has no transfers."""
USUAL_COST = 0.001
"""CPU seconds of the scheduler for a task, at most, where it is not busy: it also does what has
nothing to do with tasks."""
BUSY = 0.2
"""Least share of the time in which it used a CPU for what it did to have been for tasks."""
ENOUGH_ON_CLUSTERS = 5
"""Tasks that were sent to a free thread from which on what is typical of them is read from them."""
USUAL_WAKE = 0.005
"""Seconds until a task starts on a free thread, at most, where there are fewer."""
AT_ONCE_ON_CLUSTERS = 2.0
"""So many times what a task costs the scheduler may pass between two results of which the second
was waiting."""


ENOUGH = 20
"""Measured steps of a kind from which on what is typical of it is read from them alone."""
SHARE_OF_SUBMITTING = 0.5
"""Seconds from submitting a task to collecting a waiting result, if not measurable."""
QUICK = 0.1
"""The quantile of waits of the scheduler that is taken for its reaction to a result: in the others
the result was late."""
AT_ONCE = 3.0
"""So many times what submitting takes the scheduler may take for a result that was waiting."""
ORDER = 1e-9
"""Seconds by which results arrive one after the other: they are collected in order of arrival."""


@dataclass(frozen=True)
class Timestamps:
    """Times of tasks.

    Attributes
    ----------
    submitted : array of float
        Time when the scheduler had the task ready to be sent.
    start, stop : array of float
        From when to when it occupied a worker, transfers included.
    received : array of float
        Time when the scheduler had its result from another process; NaN in the same process.
    collected : array of float
    """

    submitted: FloatArray
    start: FloatArray
    stop: FloatArray
    received: FloatArray
    collected: FloatArray

    def filter(self, rows: IntArray) -> Timestamps:
        """Select tasks."""
        return Timestamps(*(getattr(self, field.name)[rows] for field in fields(self)))


def timestamps_of(recording: Recording) -> Timestamps:
    """Times of all tasks under a local scheduler; unmeasured times are estimated."""
    tasks, moves = recording.tasks, transfer_times(recording)
    submitted, received = _submitted(recording), np.full(len(tasks), np.nan)
    if moves.scheduler:
        submitted = np.fmax(submitted, moves.scheduler[Activity.SERIALIZE][1])
        received = moves.scheduler[Activity.DESERIALIZE][0]
    start = np.fmax(np.fmin(tasks.start, moves.worker_start), submitted)
    start = np.where(np.isnan(start), submitted, start)
    stop = np.fmax(np.fmax(tasks.stop, moves.worker_stop), start)
    unfinished = np.isnan(tasks.stop) & ~tasks.outcome.eq(Outcome.OK)
    stop = np.where(unfinished, np.fmax(computation_stops(recording), start), stop)
    return Timestamps(
        submitted=submitted,
        start=start,
        stop=stop,
        received=np.maximum(received, stop),
        collected=np.fmax(tasks.collected, stop),
    )


def _timestamps_on_cluster(recording: Recording) -> Timestamps:
    """Times of all tasks on a cluster: sent, on a thread, result known to the scheduler."""
    tasks, submitted = recording.tasks, _submitted(recording)
    start = np.fmax(start_times(recording), submitted)
    # A run whose worker was lost ended when the scheduler knew of that.
    stop = np.where(np.isnan(tasks.stop), tasks.collected, np.nan)
    stop = np.fmin(worker_stop_times(recording), stop)
    # A task that never started took no time.
    stop = np.where(np.isnan(tasks.start), start, np.fmax(stop, start))
    return Timestamps(submitted, start, stop, stop, np.fmax(tasks.collected, stop))


def _submitted(recording: Recording) -> FloatArray:
    submitted, start = recording.tasks.submitted, recording.tasks.start
    submitted = np.where(np.isnan(submitted), start, submitted)
    return np.where(np.isnan(submitted), recording.start, submitted)


@dataclass(frozen=True)
class _Recorded:
    """Measurements of one computation, its tasks in the order of submission.

    Attributes
    ----------
    computation : dict
        Its row of `Recording.computations`.
    rows, lanes : array of int
        Rows and workers of its tasks in `Recording.tasks`.
    cpu : array of float
    joined : array of float
        When the worker process of each task had started; NaN if not known.
    worker_cpu, pool_cpu : float
        CPU seconds of threads that ran tasks, and of others that tasks used.
    timestamps : Timestamps
    task, depends_on : array of int
        A dependency each: numbers of tasks.
    """

    computation: Row
    rows: IntArray
    lanes: IntArray
    cpu: FloatArray
    joined: FloatArray
    worker_cpu: float
    pool_cpu: float
    timestamps: Timestamps
    task: IntArray
    depends_on: IntArray

    @property
    def cpu_scheduler(self) -> float:
        """CPU seconds of the scheduler's thread without tasks; 0 if unknown."""
        cpu = _known(self.computation["cpu_scheduler"])
        is_in_tasks = self.computation["scheduler"] == "synchronous"
        return max(cpu - float(self.cpu.sum()), 0.0) if is_in_tasks else cpu

    def work(self, **columns: object) -> Work:
        """Work of the computation: `columns`, and the columns common to all schedulers."""
        computation, timestamps = self.computation, self.timestamps
        first, seconds = float(timestamps.submitted[0]), timestamps.stop - timestamps.start
        # If it is not known when the graph was in order, it was when the first task was submitted.
        ordered = float(np.fmin(computation["prepared"], first))
        called = float(np.fmin(computation["called"], computation["start"]))
        common: Columns = {
            "rows": self.rows,
            "seconds": seconds,
            "cpu": np.minimum(self.cpu, seconds),
            "gil": np.zeros(len(seconds)),
            "graph": max(ordered - called, 0.0),
            "before": first - ordered,
            "after": max(float(computation["stop"] - timestamps.collected.max()), 0.0),
            "workers": max(int(computation["workers"]), 1),
            "task": self.task,
            "depends_on": self.depends_on,
        }
        return Work(**{**common, **columns})


def _known(value: float) -> float:
    return float(np.nan_to_num(value))


def works_of(recording: Recording, without: Collection[str] = ()) -> dict[str, Work]:
    """Tasks and costs of each computation with tasks, but for some."""
    tasks, dependencies = recording.tasks, own_dependencies(recording)
    local, on_cluster = timestamps_of(recording), _timestamps_on_cluster(recording)
    network = _Network(recording)
    rows_of = rows_by(tasks.computation)
    edges_of = rows_by_code(tasks.computation.codes[dependencies.task])
    code_of = {name: code for code, name in enumerate(tasks.computation.values)}
    cpu_of_workers = _cpu_of_threads(recording, {"tasks"})
    cpu_of_pools = _cpu_of_threads(recording, {"native", "python"})
    workers = recording.workers
    joined = dict(zip(workers.tuples("computation", "pid"), workers.joined.tolist(), strict=True))
    number = np.empty(len(tasks), np.int64)
    works = {}
    for computation in recording.computations.to_dicts():
        name = computation["computation"]
        if name not in rows_of or name in without:
            continue
        rows, is_local = rows_of[name], computation["scheduler"] != "distributed"
        timestamps = local if is_local else on_cluster
        # From here on a task's number says when it was submitted, which is the order in which the
        # scheduler prefers tasks; dependencies are renumbered with it. Tasks that a cluster's
        # scheduler sent together start in the order that it prefers.
        second = np.zeros(len(rows)) if is_local else timestamps.start[rows]
        rows = rows[np.lexsort((second, timestamps.submitted[rows]))]
        number[rows] = np.arange(len(rows))
        edges = edges_of.get(code_of[name], np.zeros(0, np.int64))
        recorded = _Recorded(
            computation=computation,
            rows=rows,
            lanes=tasks.worker.codes[rows].astype(np.int64),
            cpu=np.nan_to_num(np.maximum(tasks.thread_cpu[rows], 0.0)),
            joined=np.array([joined.get((name, pid), nan) for pid in tasks.pid[rows].tolist()]),
            worker_cpu=cpu_of_workers.get(name, 0.0),
            pool_cpu=cpu_of_pools.get(name, 0.0),
            timestamps=timestamps.filter(rows),
            task=number[dependencies.task[edges]],
            depends_on=number[dependencies.depends_on[edges]],
        )
        works[name] = _local_work(recorded) if is_local else _cluster_work(recorded, network)
    return works


def _cpu_of_threads(recording: Recording, kinds: set[str]) -> dict[str, float]:
    """CPU seconds of threads of certain kinds, by computation."""
    threads = recording.threads.filter(recording.threads.kind.is_in(kinds))
    names = threads.computation
    sums = sums_by(names, threads.cpu_seconds)
    return dict(zip(names.values, sums.tolist(), strict=True))


def _local_work(recorded: _Recorded) -> Work:
    computation, timestamps = recorded.computation, recorded.timestamps
    in_processes = computation["scheduler"] == "processes"
    count, steps = len(recorded.rows), steps_of(timestamps)
    batches = batches_of(steps, recorded.lanes, in_processes)
    ordinal = ordinals(batches)
    is_first = ordinal == 0
    collecting = _collecting(timestamps, steps, batches)
    # Tasks of a round are all prepared before the first of them is sent.
    sent = np.cumsum(is_first)
    sent_in_round = sent - (sent - is_first)[np.searchsorted(steps.round, steps.round)]
    wake = timestamps.start - steps.last_of_round - sent_in_round * collecting["submit"]
    begins = is_first & (steps.round == steps.round[0]) & in_processes
    startup = _startup(recorded, np.maximum(wake, 0.0), begins, is_first & ~begins)
    wake = np.maximum(wake, 0.0) - startup
    gap = np.maximum(timestamps.start - np.concatenate([[0.0], timestamps.stop[:-1]]), 0.0)
    lasted = float(computation["stop"] - computation["start"])
    return recorded.work(
        switching=max(recorded.worker_cpu - float(recorded.cpu.sum()), 0.0) / count,
        prepare=np.maximum(timestamps.submitted - steps.before_submission, 0.0),
        wake=measured_or_typical(wake, is_first),
        gap=measured_or_typical(gap, ~is_first),
        cpu_scheduler=recorded.cpu_scheduler,
        pool_cpu=recorded.pool_cpu,
        # In worker processes it is not known which programs tasks start.
        cpu_children=0.0 if in_processes else _known(computation["cpu_children"]),
        others=_known(computation["cpu_other_processes"]) / lasted if lasted > 0 else 0.0,
        startup=tuple(startup[begins].tolist()),
        batch=int(ordinal.max()) + 1,
        graph_bytes=_known(computation["graph_bytes"]),
        **collecting,
    )


def _collecting(timestamps: Timestamps, steps: SchedulerSteps, batches: IntArray) -> Columns:
    """Costs of sending and collecting: columns of `Work`."""
    is_first = ordinals(batches) == 0
    sends = sends_before(timestamps, steps, is_first)
    # The results of a batch come together, when its last task has ended.
    ended = np.maximum.reduceat(timestamps.stop, np.flatnonzero(is_first))[batches]
    since_step = np.maximum(timestamps.collected - steps.before_collection, 0.0)
    since_end = np.maximum(timestamps.collected - ended, 0.0)
    # The result was waiting when the scheduler's thread had finished the step before, so the time
    # from that step is what collecting costs. Of the others that time holds waiting, too.
    at_once = ended <= steps.before_collection
    notice = float(np.quantile(since_end[~at_once], QUICK)) if (~at_once).any() else 0.0
    if np.isnan(timestamps.received).any():
        # A task starts after it was sent.
        waking = max(float(np.quantile(timestamps.start - steps.last_of_round, QUICK)), 0.0)
        both, typical = _typical_steps(since_step, sends, at_once, waking + notice)
        submit = min(both - typical, waking)
    else:
        reached = np.maximum(timestamps.received - steps.before_collection, 0.0)
        submit = float(np.quantile(reached[sends > 0] / sends[sends > 0], QUICK))
        # Sending tasks takes no longer than pickling them.
        pickling = np.median(np.maximum(timestamps.submitted - steps.before_submission, 0.0))
        # And a batch starts after it was sent.
        waking = np.quantile((timestamps.start - steps.last_of_round)[is_first], QUICK)
        longest = min(float(pickling) * len(batches) / int(sends.sum()), float(waking))
        submit = min(submit, max(longest, 0.0))
        typical = float(np.median(timestamps.collected - timestamps.received))
        at_once &= reached <= AT_ONCE * submit * np.maximum(sends, 1)
    collect = np.maximum(since_step - sends * submit, 0.0)
    collect = np.where(at_once, collect, np.minimum(typical, collect))
    arrived = np.where(at_once, ended, timestamps.collected - np.minimum(notice, since_end))
    arrived = _in_order_of(timestamps.collected, arrived)
    return {
        "submit": submit,
        "collect": collect,
        "deliver": np.maximum(arrived - ended, 0.0),
        "notice": np.maximum(np.minimum(notice, timestamps.collected - arrived), 0.0),
    }


def _in_order_of(timestamps: FloatArray, arrived: FloatArray) -> FloatArray:
    """Arrivals, shifted into the order of the timestamps."""
    order = np.argsort(timestamps, kind="stable")
    # The replay collects in order of arrival: arrivals that are equal, or out of order by a
    # rounding error, would have it collect in another order than was recorded.
    apart = ORDER * np.arange(len(order))
    in_order = np.empty(len(order))
    in_order[order] = np.maximum.accumulate(arrived[order] - apart) + apart
    return in_order


def _typical_steps(
    since_step: FloatArray, sends: IntArray, at_once: BoolArray, reactions: float
) -> tuple[float, float]:
    """Seconds for sending a task and collecting a waiting result, and for collecting alone."""
    alone = since_step[at_once & (sends == 0)]
    after_sending = since_step[at_once & (sends == 1)]
    if len(after_sending) >= ENOUGH:
        both = float(np.median(after_sending))
    else:
        # The GIL has worker and scheduler take turns, so what both do for a task is done in turn.
        both = min(reactions, float(np.median(since_step)))
    collecting = float(np.median(alone)) if len(alone) >= ENOUGH else np.inf
    collecting = min(collecting, (1 - SHARE_OF_SUBMITTING) * both)
    return both, collecting


def _startup(
    recorded: _Recorded, wake: FloatArray, begins: BoolArray, later: BoolArray
) -> FloatArray:
    """Seconds of waking in which the process of a first batch started; 0 for other tasks."""
    # Later batches show what waking takes, but those with more data: it took no longer than since
    # the process had started.
    usual = float(np.median(wake[later])) if later.any() else float(wake.min(initial=0.0))
    since = np.maximum(recorded.timestamps.start - recorded.joined, 0.0)
    return np.where(begins, np.maximum(wake - np.fmin(usual, since), 0.0), 0.0)


@dataclass(frozen=True)
class SchedulerSteps:
    """Steps of the scheduler before each submission, and before each collection.

    Attributes
    ----------
    before_submission, before_collection : array of float
        Time when the scheduler had done the step before.
    round : array of int
        How many collections came before the submission: tasks of a round are submitted together.
    last_of_round : array of float
        Time when the last task of the round was submitted.
    submissions : array of int
        How many submissions came before the collection.
    """

    before_submission: FloatArray
    before_collection: FloatArray
    round: IntArray
    last_of_round: FloatArray
    submissions: IntArray


def steps_of(timestamps: Timestamps) -> SchedulerSteps:
    """Steps of a computation with tasks in the order of submission."""
    count = len(timestamps.submitted)
    # At the same moment a task is collected first, which lets another one be submitted.
    times = np.concatenate([timestamps.collected, timestamps.submitted])
    order = np.argsort(times, kind="stable")
    position = np.empty(2 * count, np.int64)
    position[order] = np.arange(2 * count)
    collection, submission = position[:count], position[count:]
    is_collection = order < count
    collections: IntArray = np.cumsum(is_collection) - is_collection
    before = np.concatenate([[timestamps.submitted[0]], times[order][:-1]])
    rounds: IntArray = collections[submission]
    latest = np.zeros(count + 1)
    np.maximum.at(latest, rounds, timestamps.submitted)
    return SchedulerSteps(
        before_submission=before[submission],
        before_collection=before[collection],
        round=rounds,
        last_of_round=latest[rounds],
        submissions=collection - collections[collection],
    )


def batches_of(steps: SchedulerSteps, workers: IntArray, in_processes: bool) -> IntArray:
    """Number of the batch of each task: the tasks sent to a worker at once.

    Tasks that were sent together were submitted in one round, ran on one worker, and were collected
    without a submission between. Threads are sent one task at a time.
    """
    if not in_processes:
        return np.arange(len(workers))
    alike = [np.diff(values) == 0 for values in (steps.round, workers, steps.submissions)]
    new: BoolArray = ~np.concatenate([[False], np.logical_and.reduce(alike)])
    return np.asarray(np.cumsum(new) - 1)


def ordinals(groups: IntArray) -> IntArray:
    """Place of each member in its group; members of a group are adjacent."""
    new = np.concatenate([[True], np.diff(groups) != 0])
    return np.asarray(np.arange(len(groups)) - np.flatnonzero(new)[np.cumsum(new) - 1])


def sends_before(timestamps: Timestamps, steps: SchedulerSteps, is_first: BoolArray) -> IntArray:
    """Number of batches sent between the previous collection and the collection of each task."""
    sent = np.concatenate([[0], np.cumsum(is_first)])[steps.submissions]
    order = np.argsort(timestamps.collected, kind="stable")
    sends = np.empty(len(order), np.int64)
    sends[order] = np.diff(sent[order], prepend=0)
    return sends


def measured_or_typical(values: FloatArray, measured: BoolArray) -> FloatArray:
    """Measured values, and their median in place of unmeasured values."""
    typical = float(np.median(values[measured])) if measured.any() else 0.0
    return np.where(measured, values, typical)


class _Network:
    """Recorded transfers between workers of clusters.

    Parameters
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._transfers = transfers_between_workers(recording)

    @cached_property
    def speed(self) -> tuple[float, float]:
        """Seconds until a small result is at another worker, and bytes arriving in a second."""
        took = self._transfers.stop - self._transfers.start
        sizes = np.nan_to_num(self._transfers.bytes)
        small = took[sizes < LARGE]
        latency = float(np.median(small)) if len(small) else LATENCY
        took, sizes = took[sizes >= LARGE], sizes[sizes >= LARGE]
        if not len(sizes):
            return latency, BYTES_A_SECOND
        latency = min(latency, float(took.min()) / 2)
        return latency, float(np.median(sizes / np.maximum(took - latency, 1e-9)))

    @cached_property
    def _lanes(self) -> dict[str, IntArray]:
        """Rows of the tasks of each worker, by the name of its first lane."""
        lanes = self.recording.tasks.worker
        return rows_of_workers(lanes)

    @cached_property
    def _workers(self) -> IntArray:
        """Number of each task's worker."""
        workers = np.zeros(len(self.recording.tasks), np.int64)
        for number, rows in enumerate(self._lanes.values()):
            workers[rows] = number
        return workers

    @cached_property
    def _arrivals(self) -> tuple[IntArray, FloatArray, FloatArray]:
        """Pairs of a result and a receiving worker, in order, with start and stop."""
        moved = self._transfers.filter(self._transfers.task >= 0)
        number_of = {name: number for number, name in enumerate(self._lanes)}
        names = moved.destination
        numbers = np.array([number_of.get(str(name), -1) for name in names.values], np.int64)
        pairs = self._pairs(moved.task.astype(np.int64), numbers[names.codes])
        order = np.argsort(pairs, kind="stable")
        return pairs[order], moved.start[order], moved.stop[order]

    def _pairs(self, tasks: IntArray, workers: IntArray) -> IntArray:
        return tasks * (len(self._lanes) + 2) + workers + 1

    def arriving(self, recorded: _Recorded, task: IntArray, depends_on: IntArray) -> FloatArray:
        """Seconds from sending each task until its last moved input arrived."""
        rows, timestamps = recorded.rows, recorded.timestamps
        seconds = np.zeros(len(rows))
        if not len(task) or not len(self._arrivals[0]):
            return seconds
        pairs, starts, stops = self._arrivals
        wanted = self._pairs(rows[depends_on], self._workers[rows[task]])
        at = np.minimum(np.searchsorted(pairs, wanted), len(pairs) - 1)
        began = np.fmax(starts[at], timestamps.submitted[task])
        took = np.fmin(stops[at], timestamps.start[task]) - began
        np.maximum.at(seconds, task, np.where(pairs[at] == wanted, took, 0.0))
        return seconds


def _cluster_work(recorded: _Recorded, network: _Network) -> Work:
    """Tasks of a cluster's computation, and the costs of scheduling them."""
    recording, rows, timestamps = network.recording, recorded.rows, recorded.timestamps
    computation = recorded.computation
    # A result that was lost is computed again, after tasks that depend on it were sent.
    in_order = recorded.depends_on < recorded.task
    task, depends_on = recorded.task[in_order], recorded.depends_on[in_order]
    cost, nothing = _cost(recorded), np.zeros(len(rows))
    arriving = network.arriving(recorded, task, depends_on)
    wake, gap = _starting(recorded, arriving + cost, recording.tasks.stolen[rows] > 0)
    workers = recording.workers
    workers = workers.filter(workers.computation.eq(computation["cluster"]))
    first = float(timestamps.submitted[0])
    alone, startup = _joining(workers, computation, first)
    inputs = np.full(len(rows), -inf)
    np.maximum.at(inputs, task, timestamps.collected[depends_on])
    ready = timestamps.submitted - recording.tasks.queued[rows]
    latency, rate = network.speed
    cluster = Cluster(
        threads=max(int(np.median(workers.threads)), 1) if len(workers) else 1,
        hosts=max(len(np.unique(workers.host.codes)), 1),
        cpus=cpus_of_hosts(workers),
        is_one_process=len(workers) > 1 and len(set(workers.pid.tolist())) == 1,
        delay=np.fmax(ready - np.where(inputs > -inf, inputs, first), 0.0),
        nbytes=np.nan_to_num(recording.tasks.nbytes[rows]),
        latency=latency,
        bytes_a_second=rate,
    )
    return recorded.work(
        switching=0.0,
        prepare=nothing,
        wake=wake,
        gap=gap,
        collect=np.full(len(rows), cost),
        deliver=_delivering(timestamps, cost),
        notice=nothing,
        submit=0.0,
        cpu_scheduler=cost * len(rows),
        pool_cpu=0.0,
        cpu_children=0.0,
        others=0.0,
        before=first - float(np.fmin(computation["prepared"], first)) - alone,
        startup=startup[: max(int(computation["workers"]), 1)],
        batch=1,
        task=task,
        depends_on=depends_on,
        cluster=cluster,
    )


def _cost(recorded: _Recorded) -> float:
    """CPU seconds of the scheduler for a task; an idle scheduler also does other things."""
    lasted = float(recorded.computation["stop"] - recorded.computation["start"])
    cost = recorded.cpu_scheduler / len(recorded.rows)
    return cost if recorded.cpu_scheduler > BUSY * lasted else min(cost, USUAL_COST)


def _starting(
    recorded: _Recorded, before: FloatArray, stolen: BoolArray
) -> tuple[FloatArray, FloatArray]:
    """Seconds from arrival to start on a free thread, and from the end of the previous task.

    What is no part of the first, as the arrival of inputs, is `before`. Where the other of the two
    counted, it is what is typical, but no longer than there was time.
    """
    timestamps, lanes = recorded.timestamps, recorded.lanes
    submitted, start = timestamps.submitted, timestamps.start
    order = np.lexsort((start, lanes))
    same = np.diff(lanes[order]) == 0
    previous = np.full(len(order), -inf)
    previous[order[1:]] = np.where(same, timestamps.stop[order[:-1]], -inf)
    longest = np.maximum(start - submitted - before, 0.0)
    was_free = previous <= submitted
    if was_free.sum() < ENOUGH_ON_CLUSTERS:
        # The first tasks of a computation take longer.
        longest = np.where(was_free, longest, np.minimum(longest, USUAL_WAKE))
    wake = np.minimum(measured_or_typical(longest, was_free), longest)
    longest = np.where(np.isfinite(previous), np.maximum(start - previous, 0.0), inf)
    was_there = (previous > submitted + before + wake) & (start >= previous)
    # One that was stolen came later.
    was_there &= ~stolen
    return wake, np.minimum(measured_or_typical(longest, was_there), longest)


def _delivering(timestamps: Timestamps, cost: float) -> FloatArray:
    """Seconds from a task's end until the scheduler has the result, without waits in its queue."""
    collected = timestamps.collected
    deliver = collected - timestamps.stop
    order = np.argsort(collected, kind="stable")
    waited = np.zeros(len(deliver), bool)
    waited[order[1:]] = np.diff(collected[order]) <= AT_ONCE_ON_CLUSTERS * cost
    usual = measured_or_typical(deliver, ~waited)
    return np.asarray(np.minimum(deliver, np.where(waited, usual, inf)))


def _joining(workers: Workers, computation: Row, first: float) -> tuple[float, tuple[float, ...]]:
    """Seconds without a worker before the first task was sent, and until each thread joined.

    The scheduler waits for its first worker as long as that takes, whatever the tasks.
    """
    is_used = (workers.joined < computation["stop"]) & ~(workers.left <= first)
    joined, ordered = workers.joined[is_used], float(np.fmin(computation["prepared"], first))
    alone = max(min(float(joined.min(initial=first)), first) - ordered, 0.0)
    late = np.maximum(joined - first, 0.0) + alone
    threads = np.sort(np.repeat(late, workers.threads[is_used]))
    return alone, tuple(threads.tolist()) if threads.any() else ()
