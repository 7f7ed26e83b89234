"""What the workers did over time, in bins of equal length: the layers of one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity

__all__ = ["OTHER_FUNCTIONS", "WorkerLayers", "worker_layers"]

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
    stop = max(recording.stop, np.nextafter(recording.start, np.inf))
    edges = np.linspace(recording.start, stop, bins + 1)
    computed, off_cpu = _tasks(recording, functions, edges)
    busy = np.zeros(bins)
    free: dict[str, FloatArray] = {}
    for occupancy in occupied:
        busy += _step_means(occupancy.times, occupancy.busy, edges)
        for activity, workers in _free_of(occupancy).items():
            means = _step_means(occupancy.times, workers, edges)
            free[activity] = free.get(activity, 0.0) + means
    idle = free.pop(Activity.IDLE, np.zeros(bins))
    # What is busy beyond tasks; the rest is rounding.
    moving = np.maximum(busy - sum(computed.values()) - off_cpu, 0.0)
    return WorkerLayers(edges, computed, off_cpu, moving, {**free, Activity.IDLE: idle})


def _free_of(occupancy: Occupancy) -> dict[str, IntArray]:
    return {**occupancy.free, **occupancy.blocked}


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
    layer_of_name = {name: index for index, name in enumerate(functions)}
    layer_of = np.array([layer_of_name.get(name, len(functions)) for name in tasks.function.values])
    layer = layer_of[tasks.function.codes]
    computed = _means(tasks.start, stop, share, layer, count=len(names), edges=edges)
    one_layer = np.zeros_like(layer)
    all_tasks = _means(tasks.start, stop, np.ones(len(stop)), one_layer, count=1, edges=edges)[0]
    off_cpu = np.maximum(all_tasks - computed.sum(axis=0), 0.0)
    return dict(zip(names, computed, strict=True)), off_cpu


def _means(
    starts: FloatArray,
    stops: FloatArray,
    heights: FloatArray,
    layers: IntArray,
    *,
    count: int,
    edges: FloatArray,
) -> FloatArray:
    """The mean, in each bin, of rectangles that are stacked in layers."""
    rises = _integrals(starts, heights, layers, count, edges)
    falls = _integrals(stops, -heights, layers, count, edges)
    return np.asarray(np.maximum(rises + falls, 0.0) / (edges[1] - edges[0]))


def _step_means(times: FloatArray, values: IntArray, edges: FloatArray) -> FloatArray:
    """The mean, in each bin, of a step function that is 0 outside its times."""
    changes = np.diff(np.concatenate([[0.0], values, [0.0]]))
    layers = np.zeros(len(times), dtype=np.int64)
    sums = _integrals(times, changes, layers, 1, edges)[0]
    return np.asarray(np.maximum(sums, 0.0) / (edges[1] - edges[0]))


def _integrals(
    moments: FloatArray, changes: FloatArray, layers: IntArray, count: int, edges: FloatArray
) -> FloatArray:
    """The integral over each bin of levels that change at these moments, by layer.

    In the bin of its moment a change counts from then on, in all later ones for their whole length.
    """
    bins, width = len(edges) - 1, edges[1] - edges[0]
    moments = np.clip(moments, edges[0], edges[-1])
    bin_of = np.minimum(((moments - edges[0]) / width).astype(np.int64), bins - 1)
    cell = layers * bins + bin_of
    shape = (count, bins)
    # Integrating changes instead of filling bins costs the same for a task of a second as for one
    # of an hour.
    within = np.bincount(cell, changes * (edges[bin_of + 1] - moments), count * bins)
    level = np.cumsum(np.bincount(cell, changes, count * bins).reshape(shape), axis=1)
    from_before = np.concatenate([np.zeros((count, 1)), level[:, :-1]], axis=1)
    return np.asarray(within.reshape(shape) + width * from_before)
