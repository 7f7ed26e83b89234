"""Amounts over time: cached results, tasks that are ready to run, running computations."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dask_diag.analysis.intervals import rows_by
from dask_diag.analysis.occupancy import ready_times
from dask_diag.analysis.task_times import call_times, computation_stops
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import CachedResults, Computations


class Level(NamedTuple):
    """A step function: an amount from each time on, until the next.

    `times` are seconds, ascending and distinct.
    """

    times: FloatArray
    amounts: npt.NDArray[np.number]

    @property
    def peak(self) -> float:
        """The largest amount."""
        return float(self.amounts.max(initial=0.0))


def cached_levels(recording: Recording, origin: float = 0.0) -> tuple[dict[str, Level], Level]:
    """The cached results of each function over time, highest peak first, and those of all.

    Times are relative to `origin`. Results of unknown size (NaN) are ignored.
    """
    cached = recording.cached_results
    if not len(cached):
        return {}, Level(np.zeros(0), np.zeros(0))
    sized = cached.rows(~np.isnan(cached.metric))
    levels = {
        name: _cached_level(sized.rows(rows), origin)
        for name, rows in rows_by(sized.function).items()
    }
    highest_first = dict(sorted(levels.items(), key=lambda item: -item[1].peak))
    return highest_first, _cached_level(sized, origin)


def _cached_level(cached: CachedResults, origin: float) -> Level:
    times = np.concatenate([cached.start, cached.stop])
    changes = np.concatenate([cached.metric, -cached.metric])
    moments, inverse = np.unique(times, return_inverse=True)
    amounts = np.cumsum(np.bincount(inverse, changes, minlength=len(moments)))
    if len(amounts):
        # All results are released by then; the rest is rounding.
        amounts[-1] = 0.0
    return Level(moments - origin, amounts)


def ready_tasks(recording: Recording) -> Level:
    """Tasks whose dependencies had been collected and that had not started, over time.

    Tasks with an unknown start count until their computation stops.
    """
    tasks = recording.tasks
    if not len(tasks):
        return Level(np.zeros(0), np.zeros(0))
    ready = ready_times(recording)
    start = np.where(np.isnan(tasks.start), computation_stops(recording), tasks.start)
    moments = np.concatenate([ready, np.maximum(start, ready)])
    order = np.argsort(moments, kind="stable")
    # A task counts one from when it is ready to when it starts.
    changes = np.repeat(np.array([1, -1], np.int32), len(tasks))[order]
    moments = moments[order]
    # Of changes at the same moment only the level after the last is a step.
    last = np.append(moments[1:] != moments[:-1], True)
    return Level(moments[last], np.cumsum(changes)[last])


def thinned(level: Level, steps: int) -> Level:
    """At most so many steps: the highest and the last one of each of equal parts of the time."""
    times, amounts = level
    if len(times) <= steps:
        return level
    parts = max(steps // 2, 1)
    part = ((times - times[0]) * (parts / (times[-1] - times[0]))).astype(np.int64)
    last = np.append(np.flatnonzero(part[1:] != part[:-1]), len(times) - 1)
    # Sorted by part and then by amount, the last one of each part is its highest.
    by_height = np.lexsort((amounts, part))
    highest = by_height[np.append(np.flatnonzero(np.diff(part[by_height])), len(times) - 1)]
    retained = np.unique(np.concatenate([last, highest]))
    return Level(times[retained], amounts[retained])


def running_computations(computations: Computations, times: FloatArray) -> IntArray:
    """How many computations ran at each of these times, those included that started or stopped."""
    started = np.searchsorted(np.sort(computations.start), times, "right")
    return started - np.searchsorted(np.sort(computations.stop), times, "left")


def overlap(computations: Computations) -> BoolArray:
    """Of all but the first to start: whether another that started earlier had not stopped yet."""
    order = np.argsort(computations.start)
    latest_stop = np.maximum.accumulate(computations.stop[order])
    return np.asarray(computations.start[order][1:] < latest_stop[:-1])


def seconds_computing(computations: Computations) -> float:
    """Seconds in which at least one computation ran."""
    return _seconds_covered(computations.start, computations.stop)


def seconds_called(computations: Computations) -> float:
    """Seconds in which at least one computation ran, or its graph was prepared."""
    return _seconds_covered(call_times(computations), computations.stop)


def _seconds_covered(starts: FloatArray, stops: FloatArray) -> float:
    """Seconds that belong to at least one of these intervals."""
    if not len(starts):
        return 0.0
    # What an interval adds is its time after all that started before it had stopped.
    order = np.argsort(starts)
    starts, stops = starts[order], stops[order]
    reached = np.maximum.accumulate(stops)
    uncovered_from = np.maximum(starts[1:], reached[:-1])
    first = stops[0] - starts[0]
    return float(first + np.maximum(stops[1:] - uncovered_from, 0.0).sum())
