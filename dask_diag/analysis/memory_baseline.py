"""How much memory there was while no task ran, and how much of it the scheduler held."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_diag.analysis.memory import together
from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.columns import Array
from dask_diag.formatting import BYTES
from dask_diag.model.recording import Recording

__all__ = ["cached_at", "memory_at_rest", "returned_by"]


def memory_at_rest(recording: Recording) -> tuple[Array, Array]:
    """Times at which memory was read and no task ran, in order, and the bytes of all processes.

    Where tasks were not recorded, only those count at which no computation ran, or that were read
    for
    being between two tasks.
    """
    sampled = together(recording)
    times = sampled.times
    if len(recording.tasks):
        start, stop = np.sort(start_times(recording)), np.sort(stop_times(recording))
        rest = np.searchsorted(start, times) <= np.searchsorted(stop, times, "right")
    else:
        computations = recording.computations
        begun = np.searchsorted(np.sort(computations["start"]), times, "right")
        outside = begun == np.searchsorted(np.sort(computations["stop"]), times)
        by_the_clock = recording.resources.time if len(recording.resources) else np.zeros(0)
        rest = outside | ~np.isin(times, by_the_clock)
    return times[rest], sampled.sizes[rest]


def cached_at(recording: Recording, moments: Array) -> Array:
    """Bytes that the scheduler held at each of these times; NaN where that was not measured."""
    if recording.metric_unit != BYTES:
        return np.full(len(moments), np.nan)
    cache = recording.cached_results
    if not len(cache):
        return np.zeros(len(moments))
    return _let_in(cache["start"], cache["metric"], moments, "right") - _let_in(
        cache["stop"], cache["metric"], moments, "left"
    )


def _let_in(times: Array, sizes: Array, moments: Array, side: Any) -> Array:
    """The sum of the sizes whose time is before each moment."""
    order = np.argsort(times)
    so_far = np.concatenate([[0.0], np.cumsum(np.nan_to_num(sizes[order]))])
    return np.asarray(so_far[np.searchsorted(times[order], moments, side)])


def returned_by(recording: Recording, moment: float) -> tuple[float, float]:
    """Bytes of results of the computation that ended last before a moment, and of those before it.

    NaN if results were not measured in bytes.
    """
    if recording.metric_unit != BYTES:
        return float("nan"), float("nan")
    cache = recording.cached_results
    if not len(cache):
        return 0.0, 0.0
    computation = cache["computation"].codes
    ends = np.full(len(cache["computation"].values), -np.inf)
    np.maximum.at(ends, computation, cache["stop"])
    # What a computation returns is let go at its very end.
    end = ends[computation]
    returned = (cache["stop"] == end) & (end < moment)
    if not returned.any():
        return 0.0, 0.0
    sizes, end = np.nan_to_num(cache["metric"])[returned], end[returned]
    return float(sizes[end == end.max()].sum()), float(sizes[end < end.max()].sum())
