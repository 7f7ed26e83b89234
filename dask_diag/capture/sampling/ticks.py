"""The times at which samples are due, and which of them fell into a task."""

from __future__ import annotations

from math import inf

__all__ = [
    "ALWAYS",
    "TimeWithoutTicks",
    "ticks_between",
    "ticks_until",
    "time_of_tick",
    "time_without_ticks",
]

_GOLDEN = 0.6180339887498949


def time_of_tick(number: int, interval: float) -> float:
    """When to sample, on the scale of ``time.perf_counter()``: once in each interval, never evenly.

    Multiples of the golden ratio, without their whole part, are spread as evenly as can be, and
    keep step with nothing: a task that repeats itself is sampled in each part for its share.

    The times are the same on every thread and in every process, without communication: a task
    computes which ticks fell into it, and so which were missed.
    """
    return interval * (number + number * _GOLDEN % 1.0)


def ticks_until(time: float, interval: float) -> int:
    """How many ticks there were up to a time; only differences have a meaning."""
    number = int(time / interval)
    return number + (time_of_tick(number, interval) <= time)


class TimeWithoutTicks:
    """A tick and the next one, between which most tasks start and stop.

    Attributes
    ----------
    span : tuple of float
        From the one up to the other: replaced in one step, as many threads read it.
    """

    __slots__ = ("span",)

    def __init__(self, start: float, stop: float) -> None:
        self.span = start, stop


ALWAYS = TimeWithoutTicks(-inf, inf)
"""Where nobody counts ticks."""
_without_ticks: dict[float, TimeWithoutTicks] = {}


def time_without_ticks(interval: float) -> TimeWithoutTicks:
    """The one of an interval that `ticks_between` has found last."""
    return _without_ticks.setdefault(interval, TimeWithoutTicks(inf, -inf))


def ticks_between(start: float, stop: float, interval: float) -> int:
    """How many ticks there were from one time up to another; quick where there were none."""
    without = time_without_ticks(interval)
    before, after = without.span
    if before <= start and stop < after:
        return 0
    number = ticks_until(stop, interval)
    without.span = time_of_tick(number - 1, interval), time_of_tick(number, interval)
    return number - ticks_until(start, interval)
