"""How many tasks could have been run, and were not, at each moment."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.levels import Level
from dask_diag.analysis.occupancy import when_ready
from dask_diag.model.recording import Recording

__all__ = ["ready_tasks", "thinned"]


def ready_tasks(recording: Recording) -> Level:
    """Tasks whose needs had been collected and that had not begun, over time.

    Tasks of which it is not known when they began count until their computation's end.
    """
    tasks, computations = recording.tasks, recording.computations
    if not len(tasks):
        return Level(np.zeros(0), np.zeros(0))
    ends = dict(
        zip(computations["computation"].tolist(), computations["stop"].tolist(), strict=True)
    )
    end = np.array([ends.get(name, recording.stop) for name in tasks["computation"].values])
    ready = when_ready(recording)
    begun = np.where(np.isnan(tasks["start"]), end[tasks["computation"].codes], tasks["start"])
    moments = np.concatenate([ready, np.maximum(begun, ready)])
    order = np.argsort(moments, kind="stable")
    changes = np.repeat(np.array([1, -1], np.int32), len(tasks))[order]
    moments = moments[order]
    last = np.append(moments[1:] != moments[:-1], True)
    return Level(moments[last], np.cumsum(changes)[last])


def thinned(level: Level, steps: int) -> Level:
    """At most so many steps: of each of equal parts of the time, the highest and the last one."""
    times, amounts = level
    if len(times) <= steps:
        return level
    parts = max(steps // 2, 1)
    part = ((times - times[0]) * (parts / (times[-1] - times[0]))).astype(np.int64)
    ends = np.append(np.flatnonzero(part[1:] != part[:-1]), len(times) - 1)
    by_height = np.lexsort((amounts, part))
    highest = by_height[np.append(np.flatnonzero(np.diff(part[by_height])), len(times) - 1)]
    kept = np.unique(np.concatenate([ends, highest]))
    return Level(times[kept], amounts[kept])
