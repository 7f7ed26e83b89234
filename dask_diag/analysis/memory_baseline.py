"""How much memory was in use while no task ran, and how much of it were cached results."""

from __future__ import annotations

from typing import Literal

import numpy as np

from dask_diag.analysis.memory import memory_of_all
from dask_diag.analysis.step_functions import running_computations
from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.columns import FloatArray
from dask_diag.formatting import BYTES
from dask_diag.model.recording import Recording

__all__ = ["cached_at", "memory_at_rest", "returned_by"]


def memory_at_rest(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """Times at which memory was read and no task ran, in order, and the bytes of all processes.

    Where tasks were not recorded, only readings count that were taken while no computation ran, or
    because a moment was between two tasks.
    """
    samples = memory_of_all(recording)
    times = samples.times
    if len(recording.tasks):
        start, stop = np.sort(start_times(recording)), np.sort(stop_times(recording))
        at_rest = np.searchsorted(start, times) <= np.searchsorted(stop, times, "right")
    else:
        # Periodic samples have a row in `resources`; readings between tasks do not.
        is_periodic = np.isin(times, recording.resources.time)
        at_rest = (running_computations(recording.computations, times) == 0) | ~is_periodic
    return times[at_rest], samples.sizes[at_rest]


def cached_at(recording: Recording, moments: FloatArray) -> FloatArray:
    """Bytes that the scheduler cached at each of these times; NaN where that was not measured."""
    if recording.metric_unit != BYTES:
        return np.full(len(moments), np.nan)
    cached = recording.cached_results
    added = _sum_until(cached.start, cached.metric, moments, "right")
    return added - _sum_until(cached.stop, cached.metric, moments, "left")


def _sum_until(
    times: FloatArray, sizes: FloatArray, moments: FloatArray, side: Literal["left", "right"]
) -> FloatArray:
    """The sum of the sizes whose time is before each moment; with ``right``, or at it."""
    order = np.argsort(times)
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(sizes[order]))])
    return np.asarray(sums[np.searchsorted(times[order], moments, side)])


def returned_by(recording: Recording, moment: float) -> tuple[float, float]:
    """Bytes of results of the computation that stopped last before a moment, and of earlier ones.

    NaN if results were not measured in bytes.
    """
    if recording.metric_unit != BYTES:
        return float("nan"), float("nan")
    cached = recording.cached_results
    computation = cached.computation.codes
    last_release = np.full(len(cached.computation.values), -np.inf)
    np.maximum.at(last_release, computation, cached.stop)
    # The scheduler releases what a computation returns at the very end of it.
    end = last_release[computation]
    returned = (cached.stop == end) & (end < moment)
    if not returned.any():
        return 0.0, 0.0
    sizes, end = np.nan_to_num(cached.metric)[returned], end[returned]
    return float(sizes[end == end.max()].sum()), float(sizes[end < end.max()].sum())
