"""Intervals, bins and amounts over time."""

from __future__ import annotations

from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording


class Intervals(NamedTuple):
    """Times from `start` to `stop`, of each of which `number` things were there."""

    start: FloatArray
    stop: FloatArray
    number: FloatArray

    @property
    def seconds(self) -> float:
        """The seconds of all things."""
        return float(((self.stop - self.start) * self.number).sum())


def intervals(start: FloatArray, stop: FloatArray, count: float = 1.0) -> Intervals:
    """One interval for each start and stop; those that are empty, or not known, are left out."""
    is_some = stop > start
    starts = start[is_some]
    return Intervals(starts, stop[is_some], np.full(len(starts), float(count)))


def join(parts: list[Intervals]) -> Intervals:
    """All of them, one after the other."""
    columns = zip(*(parts or [intervals(np.zeros(0), np.zeros(0))]), strict=True)
    return Intervals(*map(np.concatenate, columns))


def union(of: Intervals) -> Intervals:
    """The times at which at least one thing was there, each once."""
    if not len(of.start):
        return of
    order = np.argsort(of.start, kind="stable")
    starts, reached = of.start[order], np.maximum.accumulate(of.stop[order])
    first = np.concatenate([[0], np.flatnonzero(starts[1:] > reached[:-1]) + 1])
    last = np.append(first[1:] - 1, len(starts) - 1)
    return intervals(starts[first], reached[last])


def inside(start: float, stop: float, of: Intervals, count: float = 1.0) -> Intervals:
    """What of one time is in these intervals, which do not overlap."""
    return intervals(np.maximum(of.start, start), np.minimum(of.stop, stop), count)


def outside(start: float, stop: float, of: Intervals) -> Intervals:
    """What of one time is in none of these intervals, which are in order and do not overlap."""
    within = inside(start, stop, of)
    return intervals(np.append(start, within.stop), np.append(within.start, stop))


def peak(of: Intervals) -> float:
    """How many things were there at once, at most."""
    times = np.concatenate([of.start, of.stop])
    changes = np.concatenate([of.number, -of.number])
    # Of what stops just as another starts, one is there.
    order = np.lexsort((changes, times))
    return float(np.cumsum(changes[order]).max(initial=0.0))


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


Number = TypeVar("Number", bound=np.generic)
Other = TypeVar("Other", bound=np.generic)


def rows_by_code(codes: npt.NDArray[np.integer]) -> dict[int, IntArray]:
    """The rows of each code that occurs, ascending."""
    if not len(codes):
        return {}
    # One stable sort for all codes; a mask for each would read the column as often as it has codes.
    order = np.argsort(codes, kind="stable")
    present, first = np.unique(codes[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, first[1:]), strict=True))


def rows_by(labels: Categorical) -> dict[str, IntArray]:
    """The rows of each value that occurs, ascending."""
    return {labels.values[code]: rows for code, rows in rows_by_code(labels.codes).items()}


def counts_by(labels: Categorical, mask: BoolArray | None = None) -> IntArray:
    """How many rows have each value, or how many of those in the mask."""
    codes = labels.codes if mask is None else labels.codes[mask]
    return np.bincount(codes, minlength=len(labels.values))


def sums_by(labels: Categorical, amounts: FloatArray) -> FloatArray:
    """The sum of the amounts of each value's rows."""
    return np.bincount(labels.codes, amounts, minlength=len(labels.values)).astype(np.float64)


def extremes_by(of: np.ufunc, labels: Categorical, amounts: FloatArray) -> FloatArray:
    """The maximum or minimum (``np.fmax``, ``np.fmin``) of each value's rows; NaN if unknown."""
    extremes = np.full(len(labels.values), np.nan)
    of.at(extremes, labels.codes, amounts)
    return extremes


def present_by_size(counts: IntArray, sizes: FloatArray) -> IntArray:
    """The codes that occur, the largest size first."""
    present = np.flatnonzero(counts)
    return present[np.argsort(-sizes[present], kind="stable")]


def distinct_pairs(
    first: npt.NDArray[Number], second: npt.NDArray[Other]
) -> tuple[npt.NDArray[Number], npt.NDArray[Other], IntArray]:
    """The pairs that occur, in order, as two arrays, and which of them each row is."""
    # One number for a pair sorts ten times as fast as rows of two.
    left, left_code = np.unique(first, return_inverse=True)
    right, right_code = np.unique(second, return_inverse=True)
    base = max(len(right), 1)
    codes, row = np.unique(left_code * base + right_code, return_inverse=True)
    return left[codes // base], right[codes % base], row


def worker_order(name: str) -> tuple[str, int, str, int, str]:
    """What workers are sorted by: kind, then number; of a worker of a cluster, then its thread."""
    worker, slash, thread = name.rpartition("/")
    if not slash:
        worker, thread = name, ""
    # A longer number is a larger one: thread-10 after thread-9.
    return worker.partition("-")[0], len(worker), worker, len(thread), thread
