"""What the workers did over time, in bins of equal length: the layers of one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.activities import Amounts, Division, seconds_of_tasks
from dask_diag.analysis.functions import positions_among
from dask_diag.analysis.intervals import bins_of, edges_of_bins, sums_of_rectangles, sums_of_steps
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.task_times import stop_times, worker_stop_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

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


OTHER_FUNCTIONS = ""
"""The name of the layer of all functions that have none of their own."""


class WorkerLayers(NamedTuple):
    """How many workers, on average in each bin, did what.

    Attributes
    ----------
    edges : array of float, shape (bins + 1,)
        Seconds, as in the recording's tables.
    functions : dict of str to array of float
        Workers that computed: of tasks whose CPU time is known, only that share of their time.
        `OTHER_FUNCTIONS` is all functions that were not asked for.
    off_cpu : array of float
        Workers that had a task which was off the CPU, on average over its time.
    moving : array of float
        Workers that rebuilt a task's inputs or pickled its result.
    free : dict of str to array of float
        Workers without a task, by activity; the last is `Activity.IDLE`.
    """

    edges: FloatArray
    functions: dict[str, FloatArray]
    off_cpu: FloatArray
    moving: FloatArray
    free: dict[str, FloatArray]


def worker_layers(
    recording: Recording,
    occupied: Sequence[Occupancy],
    functions: Sequence[str],
    bins: int = 600,
) -> WorkerLayers:
    """Divide the workers at each time among functions and what they did besides.

    The layers of a bin sum to the workers of the computations that ran then.

    Parameters
    ----------
    recording : Recording
    occupied : sequence of Occupancy
        Of its computations.
    functions : sequence of str
        Those with a layer of their own.
    bins : int, optional
    """
    edges = edges_of_bins(recording, bins)
    width = edges[1] - edges[0]
    computed, off_cpu = _tasks(recording, functions, edges)
    busy = np.zeros(bins)
    free: dict[str, FloatArray] = {}
    for occupancy in occupied:
        busy += sums_of_steps(occupancy.times, occupancy.busy, edges) / width
        for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
            means = sums_of_steps(occupancy.times, workers, edges) / width
            free[activity] = free.get(activity, 0.0) + means
    idle = free.pop(Activity.IDLE, np.zeros(bins))
    # What is busy beyond tasks; the rest is rounding.
    moving = np.maximum(busy - sum(computed.values()) - off_cpu, 0.0)
    return WorkerLayers(edges, computed, off_cpu, moving, {**free, Activity.IDLE: idle})


def _tasks(
    recording: Recording, functions: Sequence[str], edges: FloatArray
) -> tuple[dict[str, FloatArray], FloatArray]:
    """Workers that computed, by function, and those whose task was off the CPU."""
    names = [*functions, OTHER_FUNCTIONS]
    bins = len(edges) - 1
    started = np.flatnonzero(~np.isnan(recording.tasks.start))
    if not len(started):
        return {name: np.zeros(bins) for name in names}, np.zeros(bins)
    tasks = recording.tasks.rows(started)
    stop = stop_times(recording)[started]
    length = stop - tasks.start
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.clip(tasks.thread_cpu / length, 0.0, 1.0)
    # Of a task whose CPU time is not known, as of one that still runs, no part is known to be off
    # the CPU.
    share = np.where(np.isnan(share), 1.0, share)
    layer = positions_among(functions, tasks.function)
    width = edges[1] - edges[0]
    computed = (
        sums_of_rectangles(tasks.start, stop, share, layer, count=len(names), edges=edges) / width
    )
    one_layer, ones = np.zeros_like(layer), np.ones(len(stop))
    (all_tasks,) = sums_of_rectangles(tasks.start, stop, ones, one_layer, count=1, edges=edges)
    all_tasks = all_tasks / width
    off_cpu = np.maximum(all_tasks - computed.sum(axis=0), 0.0)
    return dict(zip(names, computed, strict=True)), off_cpu
