"""Activities in bins of equal length, by function: what a part of the time was spent on."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.activity_sums import Division
from dask_diag.analysis.bins import bins_of, edges_of_bins, sums_of_rectangles, sums_of_steps
from dask_diag.analysis.functions import positions_among
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.task_activities import Amounts, seconds_of_tasks
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording

__all__ = ["NO_TASK", "ActivitiesOverTime", "activities_over_time"]

NO_TASK = -1
"""The row of seconds in which workers had no task."""


class ActivitiesOverTime(NamedTuple):
    """Worker-seconds in bins, of functions that have rows.

    Attributes
    ----------
    edges : array of float, shape (bins + 1,)
        Seconds, as in the recording's tables.
    seconds : dict of (int, str) to array of float, shape (bins,)
        Of each row and activity; the row after the last function is all others together,
        `NO_TASK` that of workers without a task. Over all bins they sum to what
        `dask_diag.analysis.activities.cells` has.
    cpu : array of float, shape (functions + 1, bins)
        CPU seconds of tasks, whatever they metered and however they ended; NaN in all bins of a
        row if that is with_cpu of none.
    tasks : array of int, shape (functions + 1, bins)
        How many tasks started.
    longest : array of float, shape (functions + 1, bins)
        The seconds of the longest task that started then; 0 where there is none.

    Notes
    -----
    What a task did is taken to be spread evenly over its time.
    """

    edges: FloatArray
    seconds: dict[tuple[int, str], FloatArray]
    cpu: FloatArray
    tasks: IntArray
    longest: FloatArray


def activities_over_time(
    recording: Recording, occupied: Sequence[Occupancy], functions: Sequence[str], bins: int
) -> ActivitiesOverTime:
    """Divide all seconds of workers among functions, activities and bins.

    Parameters
    ----------
    recording : Recording
    occupied : sequence of Occupancy
        Of its computations.
    functions : sequence of str
        Those with a row of their own.
    bins : int
    """
    edges = edges_of_bins(recording, bins)
    row_of = positions_among(functions, recording.tasks.function)
    count = len(functions) + 1
    seconds: dict[tuple[int, str], FloatArray] = {}

    def add(row: int, activity: str, sums: FloatArray) -> None:
        if sums.any():
            seconds[row, activity] = seconds.get((row, activity), 0.0) + sums

    for amounts in seconds_of_tasks(Division(recording)):
        for row, sums in enumerate(_spread(amounts, row_of, count, edges)):
            add(row, amounts.activity, sums)
    for occupancy in occupied:
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            add(NO_TASK, activity, sums_of_steps(occupancy.times, workers, edges))
    return ActivitiesOverTime(edges, seconds, *_of_tasks(recording, row_of, count, edges))


def _of_tasks(
    recording: Recording, row_of: IntArray, count: int, edges: FloatArray
) -> tuple[FloatArray, IntArray, FloatArray]:
    """CPU seconds, tasks that started, and the longest of these, by row and bin."""
    bins = len(edges) - 1
    started = np.flatnonzero(~np.isnan(recording.tasks.start))
    tasks, row = recording.tasks.rows(started), row_of[started]
    cell = row * bins + bins_of(tasks.start, edges)
    counts = np.bincount(cell, minlength=count * bins)
    longest = np.zeros(count * bins)
    np.fmax.at(longest, cell, tasks.stop - tasks.start)
    with_cpu = np.flatnonzero(~np.isnan(tasks.thread_cpu))
    stop = worker_stop_times(recording)[started[with_cpu]]
    cpu = Amounts("", with_cpu, tasks.thread_cpu[with_cpu], tasks.start[with_cpu], stop)
    seconds = _spread(cpu, row, count, edges)
    seconds[np.bincount(row[with_cpu], minlength=count) == 0] = np.nan
    shape = (count, bins)
    return seconds, counts.reshape(shape), longest.reshape(shape)


def _spread(amounts: Amounts, row_of: IntArray, count: int, edges: FloatArray) -> FloatArray:
    """The amounts by row and bin, each over its time; those without length in its one bin."""
    _, task, values, start, stop = amounts
    row, length = row_of[task], stop - start
    lasts = length > 0
    density = np.divide(values, length, np.zeros(len(values)), where=lasts)
    sums = sums_of_rectangles(
        start[lasts], stop[lasts], density[lasts], row[lasts], count=count, edges=edges
    )
    bins = len(edges) - 1
    cell = row[~lasts] * bins + bins_of(start[~lasts], edges)
    return sums + np.bincount(cell, values[~lasts], count * bins).reshape(count, bins)
