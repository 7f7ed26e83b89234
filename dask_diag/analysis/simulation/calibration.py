"""What the scheduler's steps cost, read from a recording.

The scheduler's thread does one thing after another, and recorded are the moments at which it had
submitted or collected a task. A step that follows another at once shows what it costs. Before a
collection the thread may have waited; that it did is seen from when the task ended. So each
collection is bounded by two costs: `Work.collect`, since the step before, and `Work.deliver` with
`Work.notice`, since the task's end. One bound was measured; the other is what is typical of the
computation, but so small that replaying the recorded order gives the recorded moments.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.grouping import rows_by, rows_by_code
from dask_diag.analysis.simulation.cluster_calibration import Clusters, cluster_work
from dask_diag.analysis.simulation.recorded import Recorded
from dask_diag.analysis.simulation.steps import (
    Steps,
    batches_of,
    measured_or_typical,
    moments_of,
    ordinals,
    sends_before,
    steps_of,
)
from dask_diag.analysis.simulation.work import Work
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["QUICK", "works_of"]

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
