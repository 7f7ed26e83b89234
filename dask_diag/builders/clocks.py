"""Times of other processes' clocks as times of this one's."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from dask_diag.columns import FloatArray

__all__ = ["ClockReadings", "bounds_in_microseconds", "error_of", "microseconds", "to_other_clock"]

ClockReadings = Sequence[Sequence[float]]
"""Of each comparison: its time, the offset to add to get the other clock's time, and its error."""

_MOST_DRIFT = 5e-4
"""Of a clock that was compared once: a system does not let its clock drift by more."""


def to_other_clock(times: FloatArray, readings: ClockReadings) -> FloatArray:
    """Add the offset; between comparisons, and after the last one, clocks drift evenly."""
    if not readings:
        return times
    at, offsets, _ = np.array(sorted(tuple(reading) for reading in readings)).T
    # Outside the readings `interp` goes on with the last offset: there the mean drift of all of
    # them is nearer to the truth, as long as there are two.
    added = np.interp(times, at, offsets)
    if at[-1] > at[0]:
        drift = (offsets[-1] - offsets[0]) / (at[-1] - at[0])
        added = np.where(times > at[-1], offsets[-1] + drift * (times - at[-1]), added)
        added = np.where(times < at[0], offsets[0] + drift * (times - at[0]), added)
    return np.asarray(times + added)


def error_of(readings: ClockReadings, until: float) -> float:
    """By how much a mapped time is wrong at most, up to a time of the worker's clock.

    A time is mapped as it comes, by the readings that there are: each reading shows how wrong the
    times before it were, if its clock does not drift evenly. After the last one nothing does.
    """
    if not readings:
        return 0.0
    at, offsets, errors = np.array(sorted(tuple(reading) for reading in readings)).T
    drift = np.zeros(len(at))
    drift[1:] = (offsets[1:] - offsets[0]) / np.maximum(at[1:] - at[0], 1e-9)
    # What each reading should have been by those before it: its distance from that is how wrong the
    # times between were mapped.
    expected = offsets[:-1] + drift[:-1] * np.diff(at)
    missed = np.abs(offsets[1:] - expected).max(initial=0.0)
    drift_after = abs(drift[-1]) if len(at) > 1 else _MOST_DRIFT
    return float(errors.max() + missed + drift_after * max(0.0, until - at[-1]))


def microseconds(times: FloatArray, rounded: Callable[[FloatArray], FloatArray]) -> FloatArray:
    """Times of a scheduler, which reads its clock once for all that a message brings.

    To a microsecond they take half as much in a file: `rounded` down or up, so that what was before
    or after stays so.
    """
    return np.asarray(rounded(times * 1e6) / 1e6)


def bounds_in_microseconds(start: FloatArray, stop: FloatArray) -> tuple[FloatArray, FloatArray]:
    """When workers of a cluster started and stopped something, in whole microseconds.

    To read the two clocks of a task takes about one: what is less is noise, which would be more
    than a byte of each time in a file. How long it took is rounded once, and not each of its ends,
    so that sums of many are right. What lies between whole microseconds stays between them.
    """
    first = microseconds(start, np.floor)
    return first, microseconds(first + microseconds(stop - start, np.rint), np.rint)
