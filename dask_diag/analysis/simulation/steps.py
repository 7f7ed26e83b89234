"""What the scheduler's thread did, step by step: it submitted tasks and collected results."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from dask_diag.analysis.task_times import computation_stops
from dask_diag.analysis.transfers import transfer_times
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, Outcome

__all__ = [
    "Moments",
    "Steps",
    "batches_of",
    "measured_or_typical",
    "moments_of",
    "ordinals",
    "sends_before",
    "steps_of",
]


@dataclass(frozen=True)
class Moments:
    """Times of tasks.

    Attributes
    ----------
    submitted : array of float
        When the scheduler had the task ready to be sent.
    start, stop : array of float
        From when to when it occupied a worker, transfers included.
    received : array of float
        When the scheduler had its result from another process; NaN in the same process.
    collected : array of float
    """

    submitted: FloatArray
    start: FloatArray
    stop: FloatArray
    received: FloatArray
    collected: FloatArray

    def rows(self, rows: IntArray) -> Moments:
        """Those of some of the tasks."""
        return Moments(*(getattr(self, field.name)[rows] for field in fields(self)))


@dataclass(frozen=True)
class Steps:
    """What the scheduler had done before it submitted, and before it collected, each task.

    Attributes
    ----------
    before_submission, before_collection : array of float
        When it had done the step before.
    round : array of int
        How many collections came before the submission: tasks of a round are submitted together.
    last_of_round : array of float
        When the last task of the round was submitted.
    submissions : array of int
        How many submissions came before the collection.
    """

    before_submission: FloatArray
    before_collection: FloatArray
    round: IntArray
    last_of_round: FloatArray
    submissions: IntArray


def moments_of(recording: Recording) -> Moments:
    """Of all tasks; what was not measured follows from what was."""
    tasks, moves = recording.tasks, transfer_times(recording)
    submitted = np.where(np.isnan(tasks.submitted), tasks.start, tasks.submitted)
    submitted = np.where(np.isnan(submitted), recording.start, submitted)
    received = np.full(len(tasks), np.nan)
    if moves.scheduler:
        submitted = np.fmax(submitted, moves.scheduler[Activity.SERIALIZE][1])
        received = moves.scheduler[Activity.DESERIALIZE][0]
    start = np.fmax(np.fmin(tasks.start, moves.worker_start), submitted)
    start = np.where(np.isnan(start), submitted, start)
    stop = np.fmax(np.fmax(tasks.stop, moves.worker_stop), start)
    unfinished = np.isnan(tasks.stop) & ~tasks.outcome.where(Outcome.OK)
    stop = np.where(unfinished, np.fmax(computation_stops(recording), start), stop)
    return Moments(
        submitted=submitted,
        start=start,
        stop=stop,
        received=np.maximum(received, stop),
        collected=np.fmax(tasks.collected, stop),
    )


def steps_of(moments: Moments) -> Steps:
    """The steps of a computation, its tasks in the order in which they were submitted."""
    count = len(moments.submitted)
    # At the same moment a task is collected first, which lets another one be submitted.
    times = np.concatenate([moments.collected, moments.submitted])
    order = np.argsort(times, kind="stable")
    position = np.empty(2 * count, np.int64)
    position[order] = np.arange(2 * count)
    collection, submission = position[:count], position[count:]
    is_collection = order < count
    collections: IntArray = np.cumsum(is_collection) - is_collection
    before = np.concatenate([[moments.submitted[0]], times[order][:-1]])
    rounds: IntArray = collections[submission]
    latest = np.zeros(count + 1)
    np.maximum.at(latest, rounds, moments.submitted)
    return Steps(
        before_submission=before[submission],
        before_collection=before[collection],
        round=rounds,
        last_of_round=latest[rounds],
        submissions=collection - collections[collection],
    )


def batches_of(steps: Steps, workers: IntArray, in_processes: bool) -> IntArray:
    """The number of the batch of each task: what a worker was sent at once.

    Tasks that were sent together were submitted in one round, ran on one worker, and were collected
    without a submission between. Threads are sent one task at a time.
    """
    if not in_processes:
        return np.arange(len(workers))
    alike = [np.diff(values) == 0 for values in (steps.round, workers, steps.submissions)]
    new: BoolArray = ~np.concatenate([[False], np.logical_and.reduce(alike)])
    return np.asarray(np.cumsum(new) - 1)


def ordinals(groups: IntArray) -> IntArray:
    """The place of each in its group; the members of a group stand together."""
    new = np.concatenate([[True], np.diff(groups) != 0])
    return np.asarray(np.arange(len(groups)) - np.flatnonzero(new)[np.cumsum(new) - 1])


def sends_before(moments: Moments, steps: Steps, is_first: BoolArray) -> IntArray:
    """How often workers were sent tasks between the collection before and that of each task."""
    sent = np.concatenate([[0], np.cumsum(is_first)])[steps.submissions]
    order = np.argsort(moments.collected, kind="stable")
    sends = np.empty(len(order), np.int64)
    sends[order] = np.diff(sent[order], prepend=0)
    return sends


def measured_or_typical(values: FloatArray, measured: BoolArray) -> FloatArray:
    """The values that were measured, and their median in place of the others."""
    typical = float(np.median(values[measured])) if measured.any() else 0.0
    return np.where(measured, values, typical)
