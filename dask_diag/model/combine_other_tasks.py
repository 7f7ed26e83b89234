"""Tasks of other programs on a cluster, of which one recording has only the times.

Where the recording of such a program is combined with it, its tasks are in `tasks`, and their times
are no one else's any more.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from dask_diag.columns import BoolArray, Categorical, FloatArray
from dask_diag.model.measurements import Measurements

__all__ = ["without_tasks_of_parts"]

M = TypeVar("M", bound=Measurements)
Key = tuple[str, str]
"""A cluster and one of its workers."""
Times = tuple[FloatArray, FloatArray]
"""Starts, ascending, and stops."""

_ROUNDING = 3e-6
"""Seconds: the times of tasks are rounded to microseconds, away from each other."""


def without_tasks_of_parts(parts: Sequence[M]) -> list[M]:
    """The parts, of whose other tasks those are left out that are tasks of another part."""
    if not any(len(part.other_tasks) for part in parts):
        return list(parts)
    tasks_of_parts = [dict(_tasks_of(part)) for part in parts]
    made = []
    for index, part in enumerate(parts):
        is_task = np.zeros(len(part.other_tasks), bool)
        for other, tasks in enumerate(tasks_of_parts):
            if other != index:
                is_task |= _are_among(part, tasks, _ROUNDING + _error(part) + _error(parts[other]))
        made.append(replace(part, other_tasks=part.other_tasks.rows(~is_task)))
    return made


def _error(part: Measurements) -> float:
    """By how much the clocks of workers may be wrong."""
    errors: FloatArray = part.workers["clock_error"]
    return float(np.nan_to_num(errors).max(initial=0.0))


def _tasks_of(part: Measurements) -> Iterator[tuple[Key, Times]]:
    """When tasks occupied threads, by worker."""
    tasks, computations = part.tasks, part.computations
    names = zip(computations["computation"].tolist(), computations["cluster"].tolist(), strict=True)
    cluster_of = dict(names)
    lanes: Categorical = tasks["worker"]
    workers = Categorical(lanes.codes, [str(lane).rpartition("/")[0] for lane in lanes.values])
    clusters: Categorical = tasks["computation"]
    clusters = Categorical(clusters.codes, [cluster_of.get(c, "") for c in clusters.values])
    # One that did not end occupied its thread to the end.
    stops = np.fmin(np.nan_to_num(tasks["stop"], nan=np.inf), tasks["seceded"])
    started = ~np.isnan(tasks["start"])
    for cluster in set(clusters.values) - {""}:
        for worker in set(workers.values):
            rows = np.flatnonzero(clusters.where(cluster) & workers.where(worker) & started)
            if len(rows):
                rows = rows[np.argsort(tasks["start"][rows], kind="stable")]
                yield (cluster, worker), (tasks["start"][rows], stops[rows])


def _are_among(part: Measurements, tasks: dict[Key, Times], error: float) -> BoolArray:
    """Which other tasks of a part are among tasks, of which the part may have an end only."""
    others = part.other_tasks
    is_task = np.zeros(len(others), bool)
    clusters: Categorical = others["computation"]
    workers: Categorical = others["worker"]
    for (cluster, worker), (starts, stops) in tasks.items():
        rows = np.flatnonzero(clusters.where(cluster) & workers.where(worker))
        start, stop = others["start"][rows], others["stop"][rows]
        by_stop = np.argsort(stops, kind="stable")
        is_task[rows] = _is_near(starts, stops, start, stop, error)
        # The same with time reversed.
        is_task[rows] |= _is_near(
            -stops[by_stop][::-1], -starts[by_stop][::-1], -stop, -start, error
        )
    return is_task


def _is_near(
    starts: FloatArray, stops: FloatArray, start: FloatArray, stop: FloatArray, error: float
) -> BoolArray:
    """Whether one of the tasks that start when another does lasts at least as long."""
    first = np.searchsorted(starts, start - error)
    behind = np.searchsorted(starts, start + error, side="right")
    near = np.zeros(len(start), bool)
    for row in np.flatnonzero(first < behind).tolist():
        near[row] = bool((stops[first[row] : behind[row]] >= stop[row] - error).any())
    return near
