"""Times of computations, of tasks, and of transfers between processes."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.groups import lookup
from dask_diag.analysis.intervals import Intervals
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.codes import ATTACHED, Activity, Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations, Dependencies, Transfers


def own_dependencies(recording: Recording) -> Dependencies:
    """Dependencies within a computation; on a cluster tasks also use results of earlier ones."""
    dependencies, of = recording.dependencies, recording.tasks.computation.codes
    return dependencies.filter(of[dependencies.task] == of[dependencies.depends_on])


def call_times(computations: Computations) -> FloatArray:
    """Times of the calls of computations; if not known, of the scheduler's start.

    If one call of Dask runs several computations one after the other, such as dask-awkward, which
    finds the needed columns by a computation, each begins as the one before stops.
    """
    called = np.fmin(computations.called, computations.start)
    order = np.lexsort((computations.start, called))
    earlier, later = order[:-1], order[1:]
    stops = computations.stop[earlier]
    follows = (called[earlier] == called[later]) & (stops <= computations.start[later])
    called[later[follows]] = stops[follows]
    return called


def prepared_times(computations: Computations) -> FloatArray:
    """Times at which graphs were in order; if not known, of the scheduler's start."""
    return np.fmax(computations.prepared, computations.start)


def ran_before(recording: Recording) -> BoolArray:
    """Select computations that ran already when their program was attached to."""
    return recording.computations.computation.is_in(recording.joined.computation.values)


def is_attached(recording: Recording) -> bool:
    """Whether the program ran already when its recording began."""
    return bool(recording.environment.section.eq(ATTACHED).any())


def running_computations(computations: Computations, times: FloatArray) -> IntArray:
    """Count the running computations at each time, both ends included."""
    running = Intervals(computations.start, computations.stop).open_at(times, closed=True)
    return running.astype(np.int64)


def overlap(computations: Computations) -> BoolArray:
    """Select computations, after the first, that started before all earlier had stopped."""
    order = np.argsort(computations.start)
    latest_stop = np.maximum.accumulate(computations.stop[order])
    return np.asarray(computations.start[order][1:] < latest_stop[:-1])


def seconds_computing(computations: Computations) -> float:
    """Seconds with at least one running computation."""
    return Intervals(computations.start, computations.stop).union().seconds


def seconds_called(computations: Computations) -> float:
    """Seconds with at least one computation that ran or whose graph was prepared."""
    return Intervals(call_times(computations), computations.stop).union().seconds


def preparation_stops(recording: Recording) -> FloatArray:
    """Times at which the graph of each task was in order; if not known, the recording's start."""
    return _computation_times(recording, prepared_times(recording.computations), recording.start)


def computation_stops(recording: Recording) -> FloatArray:
    """Stops of the computation of each task; if not known, of the recording."""
    return _computation_times(recording, recording.computations.stop, recording.stop)


def _computation_times(recording: Recording, times: FloatArray, default: float) -> FloatArray:
    """Times of computations, for each task."""
    time_of = lookup(recording.computations.computation, times)
    labels = recording.tasks.computation
    values = np.array([time_of.get(name, default) for name in labels.values], dtype=float)
    return values[labels.codes] if len(labels) else np.zeros(0)


def start_times(recording: Recording) -> FloatArray:
    """Starts of tasks; if not known, times of submission."""
    tasks = recording.tasks
    return np.where(np.isnan(tasks.start), tasks.submitted, tasks.start)


def stop_times(recording: Recording) -> FloatArray:
    """Stops of tasks; if not known, when the scheduler knew of the end, or of the computation."""
    tasks = recording.tasks
    latest = np.fmin(tasks.collected, computation_stops(recording))
    return np.where(np.isnan(tasks.stop), latest, tasks.stop)


def worker_stop_times(recording: Recording) -> FloatArray:
    """Times at which tasks left the worker: stopped, or seceded.

    A cancelled task counts until its computation stopped.
    """
    tasks = recording.tasks
    stops = np.fmin(stop_times(recording), tasks.seceded)
    cancelled = tasks.outcome.eq(Outcome.CANCELLED)
    if cancelled.any():
        # The task may have started after that, before its worker heard of it.
        latest = np.fmax(start_times(recording), computation_stops(recording))
        stops = np.where(cancelled, np.fmin(stops, latest), stops)
    return np.asarray(stops)


TRANSFERS = (Activity.SERIALIZE, Activity.DESERIALIZE)
"""The activities of transfers."""
LARGE = 1e6
"""Least bytes of a result or of inputs whose transfer between processes takes time."""


@dataclass(frozen=True)
class TransferTimes:
    """Times of the transfers of each task, in the order of `Recording.tasks`; NaN if not known.

    Attributes
    ----------
    worker_start, worker_stop : array of float
        When the worker started to rebuild the task's inputs, and when it had pickled its result.
    scheduler : dict of str to Intervals
        For ``serialize`` and ``deserialize``: when the scheduler started it and when it stopped.
        Empty if nothing was moved.
    """

    worker_start: FloatArray
    worker_stop: FloatArray
    scheduler: dict[str, Intervals]


def transfers_of_tasks(recording: Recording) -> Transfers:
    """The transfers of recorded tasks and of results."""
    transfers = recording.transfers
    return transfers.filter(transfers.task >= 0)


def transfers_between_workers(recording: Recording) -> Transfers:
    """The transfers of results from worker to worker of a cluster."""
    transfers = recording.transfers
    return transfers.filter(transfers.activity.eq(Activity.TRANSFER))


def transfer_times(recording: Recording) -> TransferTimes:
    """The times of the transfers of each task."""
    transfers, tasks = transfers_of_tasks(recording), len(recording.tasks)

    def times(side: str, activity: str) -> Intervals:
        bounds = np.full((2, tasks), np.nan)
        rows = transfers.filter(transfers.side.eq(side) & transfers.activity.eq(activity))
        bounds[:, rows.task] = rows.start, rows.stop
        return Intervals(*bounds)

    return TransferTimes(
        worker_start=times("worker", Activity.DESERIALIZE).start,
        worker_stop=times("worker", Activity.SERIALIZE).stop,
        scheduler={
            activity: times("scheduler", activity)
            for activity in (TRANSFERS if len(transfers) else ())
        },
    )
