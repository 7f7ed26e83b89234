"""Seconds in bins of equal length, of what lasted from one moment to another."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["bins_of", "edges_of_bins", "sums_of_rectangles", "sums_of_steps"]


def edges_of_bins(recording: Recording, bins: int) -> FloatArray:
    """The edges of so many bins over a recording, which may have no length."""
    stop = max(recording.stop, np.nextafter(recording.start, np.inf))
    return np.linspace(recording.start, stop, bins + 1)


def bins_of(moments: FloatArray, edges: FloatArray) -> IntArray:
    """The bin of each moment; those beyond the edges are in the first or the last one."""
    bins, width = len(edges) - 1, edges[1] - edges[0]
    inside = np.clip(moments, edges[0], edges[-1])
    return np.asarray(np.minimum(((inside - edges[0]) / width).astype(np.int64), bins - 1))


def sums_of_rectangles(
    starts: FloatArray,
    stops: FloatArray,
    heights: FloatArray,
    layers: IntArray,
    *,
    count: int,
    edges: FloatArray,
) -> FloatArray:
    """The area, in each of `count` layers and each bin, of rectangles."""
    rises = _integrals(starts, heights, layers, count, edges)
    falls = _integrals(stops, -heights, layers, count, edges)
    return np.asarray(np.maximum(rises + falls, 0.0))


def sums_of_steps(times: FloatArray, values: IntArray, edges: FloatArray) -> FloatArray:
    """The area, in each bin, below a step function that is 0 outside its times."""
    changes = np.diff(np.concatenate([[0.0], values, [0.0]]))
    layers = np.zeros(len(times), dtype=np.int64)
    return np.asarray(np.maximum(_integrals(times, changes, layers, 1, edges)[0], 0.0))


def _integrals(
    moments: FloatArray, changes: FloatArray, layers: IntArray, count: int, edges: FloatArray
) -> FloatArray:
    """The integral over each bin of levels that change at these moments, by layer.

    In the bin of its moment a change counts from then on, in all later ones for their whole length.
    """
    bins, width = len(edges) - 1, edges[1] - edges[0]
    moments = np.clip(moments, edges[0], edges[-1])
    bin_of = bins_of(moments, edges)
    cell = layers * bins + bin_of
    shape = (count, bins)
    # Integrating changes instead of filling bins costs the same for a task of a second as for one
    # of an hour.
    within = np.bincount(cell, changes * (edges[bin_of + 1] - moments), count * bins)
    level = np.cumsum(np.bincount(cell, changes, count * bins).reshape(shape), axis=1)
    from_before = np.concatenate([np.zeros((count, 1)), level[:, :-1]], axis=1)
    return np.asarray(within.reshape(shape) + width * from_before)
