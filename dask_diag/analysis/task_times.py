"""When tasks started and stopped, where that was not measured, too."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Categorical, FloatArray
from dask_diag.model.recording import Recording

__all__ = ["computation_starts", "computation_stops", "start_times", "stop_times"]


def computation_starts(recording: Recording) -> FloatArray:
    """When the computation of each task started; if not known, when the recording did."""
    computations = recording.computations
    return _of_computations(
        recording, computations.computation, computations.start, recording.start
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


def _of_computations(
    recording: Recording, names: Categorical, times: FloatArray, default: float
) -> FloatArray:
    time_of = dict(zip(names.tolist(), times.tolist(), strict=True))
    labels = recording.tasks.computation
    values = np.array([time_of.get(name, default) for name in labels.values], dtype=float)
    return values[labels.codes] if len(labels) else np.zeros(0)
