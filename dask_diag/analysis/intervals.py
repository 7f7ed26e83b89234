"""Intervals of time: what they cover together, what of one is inside others, how many are open."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.columns import FloatArray

__all__ = ["Intervals", "inside", "intervals", "join", "outside", "peak", "union"]


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
