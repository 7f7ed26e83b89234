"""What the workers did over time, in bins of equal length: the layers of one picture."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.bins import edges_of_bins, sums_of_rectangles, sums_of_steps
from dask_diag.analysis.functions import positions_among
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import FloatArray
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
