"""Activities of workers over time, in bins of equal length."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.activities import amounts_of_tasks
from dask_diag.analysis.functions import positions_among
from dask_diag.analysis.intervals import (
    Intervals,
    bins_of,
    edges_of_bins,
    sums_of_rectangles,
    sums_of_steps,
)
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

NO_TASK = -1
"""The row of seconds in which workers had no task."""


class ActivitiesOverTime(NamedTuple):
    """Worker-seconds in bins, by function and activity.

    Attributes
    ----------
    edges : array of float, shape (bins + 1,)
        Seconds, as in the recording's tables.
    seconds : dict of (int, str) to array of float, shape (bins,)
        By row and activity; the row after the last function is all others together, `NO_TASK` is
        that of workers without a task. Over all bins they sum to what
        `dask_diag.analysis.activities.cells` has.
    cpu : array of float, shape (functions + 1, bins)
        CPU seconds of tasks, whatever they metered and however they ended; NaN in all bins of a
        row if the CPU of no task is known.
    tasks : array of int, shape (functions + 1, bins)
        The number of tasks that started.
    longest : array of float, shape (functions + 1, bins)
        The seconds of the longest task that started then; 0 if none did.

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
        Occupancy of each computation.
    functions : sequence of str
        Functions with a row of their own.
    bins : int
    """
    tasks, edges = recording.tasks, edges_of_bins(recording, bins)
    row_of, count = positions_among(functions, tasks.function), len(functions) + 1
    started = ~np.isnan(tasks.start)
    cell = row_of[started] * bins + bins_of(tasks.start[started], edges)
    longest = np.zeros(count * bins)
    np.fmax.at(longest, cell, (tasks.stop - tasks.start)[started])
    measured = started & ~np.isnan(tasks.thread_cpu)
    ran = Intervals(tasks.start, worker_stop_times(recording)).filter(measured)
    rows = row_of[measured]
    cpu = _spread(ran, tasks.thread_cpu[measured], rows, count, edges)
    cpu[np.bincount(rows, minlength=count) == 0] = np.nan
    started_in = np.bincount(cell, minlength=count * bins).reshape(count, bins)
    seconds = _seconds(recording, occupied, functions, edges)
    return ActivitiesOverTime(edges, seconds, cpu, started_in, longest.reshape(count, bins))


def _seconds(
    recording: Recording,
    occupied: Sequence[Occupancy],
    functions: Sequence[str],
    edges: FloatArray,
    with_labels: bool = True,
) -> dict[tuple[int, str], FloatArray]:
    """Worker-seconds by row and activity, as in `ActivitiesOverTime`."""
    row_of = positions_among(functions, recording.tasks.function)
    seconds: dict[tuple[int, str], FloatArray] = {}

    def add(row: int, activity: str, sums: FloatArray) -> None:
        if sums.any():
            seconds[row, activity] = seconds.get((row, activity), 0.0) + sums

    for part in amounts_of_tasks(recording, with_labels=with_labels):
        rows = row_of[part.task]
        made = _spread(part.intervals, part.amounts, rows, len(functions) + 1, edges)
        for row, sums in enumerate(made):
            add(row, part.activity, sums)
    for occupancy in occupied:
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            add(NO_TASK, activity, sums_of_steps(occupancy.times, workers, edges))
    return seconds


def _spread(
    intervals: Intervals, amounts: FloatArray, rows: IntArray, count: int, edges: FloatArray
) -> FloatArray:
    """Spread amounts over bins, by row; an amount without a length is in a single bin."""
    bins, amounts = len(edges) - 1, np.nan_to_num(amounts)
    length = intervals.stop - intervals.start
    lasts = length > 0
    rate, heights = intervals.filter(lasts), amounts[lasts] / length[lasts]
    sums = sums_of_rectangles(rate, heights, rows[lasts], count=count, edges=edges)
    cell = rows[~lasts] * bins + bins_of(intervals.start[~lasts], edges)
    return sums + np.bincount(cell, amounts[~lasts], count * bins).reshape(count, bins)


OTHER_FUNCTIONS = ""
"""The name of the layer of all functions that have none of their own."""


class WorkerLayers(NamedTuple):
    """Average number of workers in each bin, by state.

    Attributes
    ----------
    edges : array of float, shape (bins + 1,)
        Seconds, as in the recording's tables.
    functions : dict of str to array of float
        Workers that computed, or may have: of tasks whose CPU time is not known, all of their time.
        `OTHER_FUNCTIONS` is all functions that were not asked for.
    of_tasks : dict of str to array of float
        Workers with a task that did not compute, such as a wait, by activity.
    moving : dict of str to array of float
        Workers that rebuilt a task's inputs or pickled its result, by activity.
    free : dict of str to array of float
        Workers without a task, by activity.
    """

    edges: FloatArray
    functions: dict[str, FloatArray]
    of_tasks: dict[str, FloatArray]
    moving: dict[str, FloatArray]
    free: dict[str, FloatArray]


_COMPUTING = (Activity.CPU, Activity.OTHER)
_MOVING = (Activity.DESERIALIZE, Activity.SERIALIZE)


def worker_layers(
    recording: Recording,
    occupied: Sequence[Occupancy],
    functions: Sequence[str],
    bins: int = 600,
) -> WorkerLayers:
    """Divide the workers at each time among functions and free workers' activities.

    The layers of a bin sum to the workers of the computations that ran then.

    Parameters
    ----------
    recording : Recording
    occupied : sequence of Occupancy
        Occupancy of each computation.
    functions : sequence of str
        Functions with a layer of their own.
    bins : int, optional
    """
    edges = edges_of_bins(recording, bins)
    names = [*functions, OTHER_FUNCTIONS]
    made = WorkerLayers(edges, {name: np.zeros(bins) for name in names}, {}, {}, {})
    for (row, activity), seconds in _seconds(recording, occupied, functions, edges, False).items():
        layers, name = made.free, activity
        if row != NO_TASK:
            is_computing = activity in _COMPUTING
            others = made.moving if activity in _MOVING else made.of_tasks
            layers, name = (made.functions, names[row]) if is_computing else (others, activity)
        layers[name] = layers.get(name, 0.0) + seconds / (edges[1] - edges[0])
    return made
