"""When tasks and results were moved between processes, task by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations, Transfers


def call_times(computations: Computations) -> FloatArray:
    """When each computation was called for; if not known, when its scheduler started."""
    return np.fmin(computations.called, computations.start)


def prepared_times(computations: Computations) -> FloatArray:
    """When the graph of each computation was in order; if not known, when its scheduler started."""
    return np.fmax(computations.prepared, computations.start)


def preparation_stops(recording: Recording) -> FloatArray:
    """When the graph of each task was in order; if not known, when the recording started."""
    computations = recording.computations
    return _of_computations(
        recording, computations.computation, prepared_times(computations), recording.start
    )


def computation_stops(recording: Recording) -> FloatArray:
    """When the computation of each task stopped; if not known, when the recording did."""
    computations = recording.computations
    return _of_computations(recording, computations.computation, computations.stop, recording.stop)


def start_times(recording: Recording) -> FloatArray:
    """When each task started; if not known, when it was submitted."""
    tasks = recording.tasks
    return np.where(np.isnan(tasks.start), tasks.submitted, tasks.start)


def stop_times(recording: Recording) -> FloatArray:
    """When each task stopped; if not known, when its computation did."""
    tasks = recording.tasks
    return np.where(np.isnan(tasks.stop), computation_stops(recording), tasks.stop)


def worker_stop_times(recording: Recording) -> FloatArray:
    """When each task left its worker: when it stopped, or seceded.

    One that no one waited for any more counts until its computation stopped.
    """
    tasks = recording.tasks
    stops = np.fmin(stop_times(recording), tasks.seceded)
    cancelled = tasks.outcome.where(Outcome.CANCELLED)
    if cancelled.any():
        # It may have started after that, while the word of it was on the way.
        latest = np.fmax(start_times(recording), computation_stops(recording))
        stops = np.where(cancelled, np.fmin(stops, latest), stops)
    return np.asarray(stops)


def _of_computations(
    recording: Recording, names: Categorical, times: FloatArray, default: float
) -> FloatArray:
    time_of = dict(zip(names.tolist(), times.tolist(), strict=True))
    labels = recording.tasks.computation
    values = np.array([time_of.get(name, default) for name in labels.values], dtype=float)
    return values[labels.codes] if len(labels) else np.zeros(0)


Interval = tuple[FloatArray, FloatArray]
"""Starts and stops."""
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
    scheduler : dict of str to pair of arrays of float
        For ``serialize`` and ``deserialize``: when the scheduler started it and when it stopped.
        Empty if nothing was moved.
    """

    worker_start: FloatArray
    worker_stop: FloatArray
    scheduler: dict[str, Interval]

    def by_scheduler(self, rows: IntArray) -> dict[str, Interval]:
        """The intervals in which the scheduler moved some of the tasks or their results."""
        intervals = {}
        for activity, (start, stop) in self.scheduler.items():
            is_known = ~np.isnan(start[rows])
            intervals[activity] = (start[rows][is_known], stop[rows][is_known])
        return intervals


def transfers_of_tasks(recording: Recording) -> Transfers:
    """Those of tasks and of results; others were of data that no recorded task made."""
    transfers = recording.transfers
    return transfers.rows(transfers.task >= 0)


def transfer_times(recording: Recording) -> TransferTimes:
    """The times of the transfers of each task."""
    transfers, tasks = transfers_of_tasks(recording), len(recording.tasks)

    def times(side: str, activity: str, bound: Literal["start", "stop"]) -> FloatArray:
        of_tasks = np.full(tasks, np.nan)
        rows = transfers.side.where(side) & transfers.activity.where(activity)
        of_tasks[transfers.task[rows]] = getattr(transfers, bound)[rows]
        return of_tasks

    return TransferTimes(
        worker_start=times("worker", Activity.DESERIALIZE, "start"),
        worker_stop=times("worker", Activity.SERIALIZE, "stop"),
        scheduler={
            activity: (times("scheduler", activity, "start"), times("scheduler", activity, "stop"))
            for activity in (TRANSFERS if len(transfers) else ())
        },
    )
