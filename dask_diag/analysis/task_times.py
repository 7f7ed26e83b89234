"""When tasks started and stopped, where that was not measured, too."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Categorical, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations
from dask_diag.schema import Outcome

__all__ = [
    "call_times",
    "computation_stops",
    "preparation_stops",
    "prepared_times",
    "start_times",
    "stop_times",
    "worker_stop_times",
]


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
