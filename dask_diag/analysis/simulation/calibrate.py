"""What scheduling cost, read from a recording."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import inf

import numpy as np

from dask_diag.analysis.groups import rows_by, rows_by_code, rows_of_workers
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.simulation.work import (
    Cluster,
    Recorded,
    Steps,
    Work,
    batches_of,
    measured_or_typical,
    moments_of,
    ordinals,
    sends_before,
    steps_of,
)
from dask_diag.analysis.task_times import LARGE, start_times, worker_stop_times
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

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
        for number, rows in enumerate(rows_of_workers(lanes).values()):
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
        lanes = rows_of_workers(tasks.worker)
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
    startup = _cluster_startup(clusters.recording, computation, first)
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
    if was_free.sum() < ENOUGH_ON_CLUSTERS:
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
    waited[order[1:]] = np.diff(collected[order]) <= AT_ONCE_ON_CLUSTERS * cost
    usual = measured_or_typical(deliver, ~waited)
    return np.asarray(np.minimum(deliver, np.where(waited, usual, inf)))


def _cluster_startup(
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


ENOUGH = 20
"""Measured steps of a kind from which on what is typical of it is read from them alone."""
SHARE_OF_SUBMITTING = 0.5
"""Of the seconds from submitting a task to collecting a waiting result, if not measurable."""
QUICK = 0.1
"""The quantile of waits of the scheduler that is taken for its reaction to a result: in the others
the result was late."""
AT_ONCE = 3.0
"""So many times what submitting takes the scheduler may take for a result that was waiting."""
ORDER = 1e-9
"""Seconds by which results arrive one after the other: they are collected in order of arrival."""


@dataclass(frozen=True)
class _Collecting:
    """What sending and collecting cost: see `Work`."""

    submit: float
    collect: FloatArray
    deliver: FloatArray
    notice: FloatArray


def works_of(recording: Recording) -> dict[str, Work]:
    """The tasks and costs of each computation that ran tasks."""
    tasks, dependencies = recording.tasks, recording.dependencies
    moments = moments_of(recording)
    rows_of = rows_by(tasks.computation)
    edges_of = rows_by_code(tasks.computation.codes[dependencies.task])
    code_of = {name: code for code, name in enumerate(tasks.computation.values)}
    cpu_of_workers = _cpu_of_threads(recording, {"tasks"})
    cpu_of_pools = _cpu_of_threads(recording, {"native", "python"})
    clusters = Clusters(recording)
    number = np.empty(len(tasks), np.int64)
    works = {}
    for computation in recording.computations.to_dicts():
        name = computation["computation"]
        if name not in rows_of:
            continue
        rows = rows_of[name]
        # From here on a task's number says when it was submitted, which is the order in which the
        # scheduler prefers tasks; dependencies are renumbered with it.
        rows = rows[np.argsort(moments.submitted[rows], kind="stable")]
        if computation["scheduler"] == "distributed":
            # Those that were sent together start in the order that the scheduler prefers.
            rows = rows[np.lexsort((moments.start[rows], moments.submitted[rows]))]
        number[rows] = np.arange(len(rows))
        edges = edges_of.get(code_of[name], np.zeros(0, np.int64))
        recorded = Recorded(
            computation=computation,
            rows=rows,
            workers=tasks.worker.codes[rows].astype(np.int64),
            cpu=np.nan_to_num(np.maximum(tasks.thread_cpu[rows], 0.0)),
            worker_cpu=cpu_of_workers.get(name, 0.0),
            pool_cpu=cpu_of_pools.get(name, 0.0),
            moments=moments.rows(rows),
        )
        task, depends_on = dependencies.task[edges], dependencies.depends_on[edges]
        if recorded.on_cluster:
            works[name] = cluster_work(clusters, recorded, number[task], number[depends_on])
        else:
            works[name] = _work(recorded, number[task], number[depends_on])
    return works


def _cpu_of_threads(recording: Recording, kinds: set[str]) -> dict[str, float]:
    """CPU seconds of threads of these kinds, by computation."""
    threads = recording.threads.rows(recording.threads.kind.is_in(kinds))
    names = threads.computation
    sums = np.bincount(names.codes, threads.cpu_seconds, minlength=len(names.values))
    return dict(zip(names.values, sums.tolist(), strict=True))


def _work(recorded: Recorded, task: IntArray, depends_on: IntArray) -> Work:
    moments, steps = recorded.moments, steps_of(recorded.moments)
    batches = batches_of(steps, recorded.workers, recorded.in_processes)
    ordinal = ordinals(batches)
    is_first = ordinal == 0
    collecting = _collecting(recorded, steps, batches, sends_before(moments, steps, is_first))
    # Tasks of a round are all prepared before the first of them is sent.
    sent = np.cumsum(is_first)
    sent_in_round = sent - (sent - is_first)[np.searchsorted(steps.round, steps.round)]
    wake = moments.start - steps.last_of_round - sent_in_round * collecting.submit
    wake, startup = _startup(np.maximum(wake, 0.0), is_first, steps.round, recorded.in_processes)
    gap = np.maximum(moments.start - np.concatenate([[0.0], moments.stop[:-1]]), 0.0)
    prepare = np.maximum(moments.submitted - steps.before_submission, 0.0)
    seconds = moments.stop - moments.start
    computation = recorded.computation
    called = float(np.fmin(computation["called"], computation["start"]))
    return Work(
        rows=recorded.rows,
        seconds=seconds,
        cpu=np.minimum(recorded.cpu, seconds),
        gil=np.zeros(len(seconds)),
        switching=recorded.switching_cpu / len(seconds),
        prepare=prepare,
        wake=measured_or_typical(wake, is_first),
        gap=measured_or_typical(gap, ~is_first),
        collect=collecting.collect,
        deliver=collecting.deliver,
        notice=collecting.notice,
        submit=collecting.submit,
        scheduler_cpu=recorded.scheduler_cpu,
        pool_cpu=recorded.pool_cpu,
        children_cpu=recorded.children_cpu,
        others=recorded.others,
        startup=startup,
        graph=max(recorded.ordered - called, 0.0),
        before=float(moments.submitted[0]) - recorded.ordered,
        after=max(float(computation["stop"] - moments.collected.max()), 0.0),
        workers=max(int(computation["workers"]), 1),
        batch=int(ordinal.max()) + 1,
        task=task,
        depends_on=depends_on,
        graph_bytes=float(np.nan_to_num(computation["graph_bytes"])),
    )


def _collecting(
    recorded: Recorded, steps: Steps, batches: IntArray, sends: IntArray
) -> _Collecting:
    moments = recorded.moments
    is_first = ordinals(batches) == 0
    # The results of a batch come together, when its last task has ended.
    ended = np.maximum.reduceat(moments.stop, np.flatnonzero(is_first))[batches]
    since_step = np.maximum(moments.collected - steps.before_collection, 0.0)
    since_end = np.maximum(moments.collected - ended, 0.0)
    # The result was waiting when the scheduler's thread had finished the step before, so the time
    # from that step is what collecting costs. Of the others that time holds waiting, too.
    at_once = ended <= steps.before_collection
    notice = float(np.quantile(since_end[~at_once], QUICK)) if (~at_once).any() else 0.0
    if np.isnan(moments.received).any():
        # A task starts after it was sent.
        waking = max(float(np.quantile(moments.start - steps.last_of_round, QUICK)), 0.0)
        both, typical = _typical_steps(since_step, sends, at_once, waking + notice)
        submit = min(both - typical, waking)
    else:
        reached = np.maximum(moments.received - steps.before_collection, 0.0)
        submit = float(np.quantile(reached[sends > 0] / sends[sends > 0], QUICK))
        # Sending tasks takes no longer than pickling them.
        pickling = np.median(np.maximum(moments.submitted - steps.before_submission, 0.0))
        # And a batch starts after it was sent.
        waking = np.quantile((moments.start - steps.last_of_round)[is_first], QUICK)
        longest = min(float(pickling) * len(batches) / int(sends.sum()), float(waking))
        submit = min(submit, max(longest, 0.0))
        typical = float(np.median(moments.collected - moments.received))
        at_once &= reached <= AT_ONCE * submit * np.maximum(sends, 1)
    collect = np.maximum(since_step - sends * submit, 0.0)
    collect = np.where(at_once, collect, np.minimum(typical, collect))
    arrived = np.where(at_once, ended, moments.collected - np.minimum(notice, since_end))
    arrived = _in_order_of(moments.collected, arrived)
    return _Collecting(
        submit=submit,
        collect=collect,
        deliver=np.maximum(arrived - ended, 0.0),
        notice=np.maximum(np.minimum(notice, moments.collected - arrived), 0.0),
    )


def _in_order_of(moments: FloatArray, arrived: FloatArray) -> FloatArray:
    """Arrivals, moved so that they are in the order of those moments."""
    order = np.argsort(moments, kind="stable")
    # The replay collects in order of arrival: arrivals that are equal, or out of order by a
    # rounding error, would have it collect in another order than was recorded.
    apart = ORDER * np.arange(len(order))
    in_order = np.empty(len(order))
    in_order[order] = np.maximum.accumulate(arrived[order] - apart) + apart
    return in_order


def _typical_steps(
    since_step: FloatArray, sends: IntArray, at_once: BoolArray, reactions: float
) -> tuple[float, float]:
    """What sending a task and collecting a waiting result take, and the latter alone."""
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
    wake: FloatArray, is_first: BoolArray, rounds: IntArray, in_processes: bool
) -> tuple[FloatArray, tuple[float, ...]]:
    """Waking without the start of worker processes, and what that adds to the first batches."""
    if not in_processes:
        return wake, ()
    begins = is_first & (rounds == rounds[0])
    later = is_first & ~begins
    # The first batch of each process waits for its start; later ones show what waking takes.
    usual = float(np.median(wake[later])) if later.any() else float(wake.min(initial=0.0))
    startup = np.maximum(wake[begins] - usual, 0.0)
    return np.where(begins, np.minimum(wake, usual), wake), tuple(startup.tolist())
