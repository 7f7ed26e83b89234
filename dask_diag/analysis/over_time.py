"""Activities of workers over time, in bins of equal length."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
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
from dask_diag.analysis.task_times import stop_times, worker_stop_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.codes import WAITS, Activity
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
    row_of = positions_among(functions, tasks.function)
    count = len(functions) + 1
    seconds: dict[tuple[int, str], FloatArray] = {}

    def add(row: int, activity: str, sums: FloatArray) -> None:
        if sums.any():
            seconds[row, activity] = seconds.get((row, activity), 0.0) + sums

    def spread(intervals: Intervals, amounts: FloatArray, rows: IntArray) -> FloatArray:
        """Spread amounts over bins, by row; an amount without a length is in a single bin."""
        length = intervals.stop - intervals.start
        lasts = length > 0
        rate, heights = intervals.filter(lasts), amounts[lasts] / length[lasts]
        sums = sums_of_rectangles(rate, heights, rows[lasts], count=count, edges=edges)
        cell = rows[~lasts] * bins + bins_of(intervals.start[~lasts], edges)
        return sums + np.bincount(cell, amounts[~lasts], count * bins).reshape(count, bins)

    for part in amounts_of_tasks(recording):
        for row, sums in enumerate(spread(part.intervals, part.amounts, row_of[part.task])):
            add(row, part.activity, sums)
    for occupancy in occupied:
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            add(NO_TASK, activity, sums_of_steps(occupancy.times, workers, edges))

    started = ~np.isnan(tasks.start)
    cell = row_of[started] * bins + bins_of(tasks.start[started], edges)
    longest = np.zeros(count * bins)
    np.fmax.at(longest, cell, (tasks.stop - tasks.start)[started])
    measured = started & ~np.isnan(tasks.thread_cpu)
    ran = Intervals(tasks.start, worker_stop_times(recording)).filter(measured)
    rows = row_of[measured]
    cpu = spread(ran, tasks.thread_cpu[measured], rows)
    cpu[np.bincount(rows, minlength=count) == 0] = np.nan
    started_in = np.bincount(cell, minlength=count * bins).reshape(count, bins)
    return ActivitiesOverTime(edges, seconds, cpu, started_in, longest.reshape(count, bins))


OTHER_FUNCTIONS = ""
"""The name of the layer of all functions that have none of their own."""


class WorkerLayers(NamedTuple):
    """Average number of workers in each bin, by state.

    Attributes
    ----------
    edges : array of float, shape (bins + 1,)
        Seconds, as in the recording's tables.
    functions : dict of str to array of float
        Workers that computed: of tasks whose CPU time is known, only that share of their time.
        `OTHER_FUNCTIONS` is all functions that were not asked for.
    off_cpu : dict of str to array of float
        Workers that had a task which was off the CPU, on average over its time, by activity.
    moving : dict of str to array of float
        Workers that rebuilt a task's inputs or pickled its result, by activity.
    free : dict of str to array of float
        Workers without a task, by activity; the last is `Activity.IDLE`.
    """

    edges: FloatArray
    functions: dict[str, FloatArray]
    off_cpu: dict[str, FloatArray]
    moving: dict[str, FloatArray]
    free: dict[str, FloatArray]


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
    width = edges[1] - edges[0]
    names = [*functions, OTHER_FUNCTIONS]
    tasks = recording.tasks
    started = np.flatnonzero(~np.isnan(tasks.start))
    ran = Intervals(tasks.start, stop_times(recording)).filter(started)
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(tasks.thread_cpu[started] / (ran.stop - ran.start), 0.0, 1.0)
    # If the CPU time of a task is not known, no part of it is known to be off the CPU.
    share = np.where(np.isnan(share), 1.0, share)
    layer = positions_among(functions, tasks.function)[started]
    computed = sums_of_rectangles(ran, share, layer, count=len(names), edges=edges) / width
    no_layers, ones = np.zeros_like(layer), np.ones(len(layer))
    (in_tasks,) = sums_of_rectangles(ran, ones, no_layers, count=1, edges=edges) / width
    off_cpu = np.maximum(in_tasks - computed.sum(axis=0), 0.0)
    busy = np.zeros(bins)
    free: dict[str, FloatArray] = {}
    for occupancy in occupied:
        busy += sums_of_steps(occupancy.times, occupancy.busy, edges) / width
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            means = sums_of_steps(occupancy.times, workers, edges) / width
            free[activity] = free.get(activity, 0.0) + means
    idle = free.pop(Activity.IDLE, np.zeros(bins))
    layers = dict(zip(names, computed, strict=True))
    # Workers that are busy without a task move its data; what is negative is rounding.
    moving = np.maximum(busy - sum(layers.values()) - off_cpu, 0.0)
    parts = _parts_of_tasks(recording, edges)
    return WorkerLayers(
        edges,
        layers,
        _divided(off_cpu, parts, _OFF_CPU, Activity.NONCPU),
        _divided(moving, parts, _MOVING, Activity.SERIALIZE),
        {**free, Activity.IDLE: idle},
    )


_OFF_CPU = (Activity.NONCPU, *WAITS)
_MOVING = (Activity.DESERIALIZE, Activity.SERIALIZE)


def _parts_of_tasks(recording: Recording, edges: FloatArray) -> dict[str, FloatArray]:
    """Workers with tasks off the CPU, and that moved their data, by activity, in each bin."""
    parts: dict[str, FloatArray] = {}
    width = edges[1] - edges[0]
    for activity, _, amounts, when in amounts_of_tasks(recording, with_labels=False):
        length = when.stop - when.start
        lasts = length > 0
        if activity in (*_OFF_CPU, *_MOVING) and lasts.any():
            rows, heights = when.filter(lasts), np.nan_to_num(amounts[lasts]) / length[lasts]
            no_layers = np.zeros(len(heights), np.int64)
            (sums,) = sums_of_rectangles(rows, heights, no_layers, count=1, edges=edges)
            parts[activity] = parts.get(activity, 0.0) + np.maximum(sums, 0.0) / width
    return parts


def _divided(
    total: FloatArray, parts: Mapping[str, FloatArray], activities: Sequence[str], rest: str
) -> dict[str, FloatArray]:
    """Divide the workers of each bin among these activities; what has none is `rest`."""
    known = {activity: parts[activity] for activity in activities if activity in parts}
    sums = sum(known.values(), np.zeros(len(total)))
    most = np.minimum(np.divide(total, sums, out=np.zeros(len(total)), where=sums > 0), 1.0)
    made = {activity: most * part for activity, part in known.items()}
    unknown = np.maximum(total - most * sums, 0.0)
    return {**made, rest: made.get(rest, 0.0) + unknown}
