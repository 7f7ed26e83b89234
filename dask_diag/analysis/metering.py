"""What tasks said of their own time, and what is left of it without that."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Array
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["metered_amounts", "seconds_metered_without_cpu", "without_metered"]


def without_metered(recording: Recording, fine: Array) -> tuple[Array, Array, Table]:
    """CPU and non-CPU seconds of tasks without what they metered, and what that was.

    Seconds that a task only told of, and did not measure, are cut to those that it took.
    """
    tasks, metrics = recording.tasks, recording.metrics
    cpu, noncpu = np.array(tasks["thread_cpu"]), np.array(tasks["thread_noncpu"])
    if not len(metrics):
        return cpu, noncpu, metrics
    metered = metrics.rows(metrics["unit"].where("seconds") & fine[metrics["task"]])
    known = ~np.isnan(metered["cpu"])
    task, value, of_cpu = metered["task"], metered["value"], metered["cpu"]
    np.subtract.at(cpu, task[known], of_cpu[known])
    np.subtract.at(noncpu, task[known], (value - of_cpu)[known])
    # Of seconds whose CPU share was not measured, those are CPU that can have been nothing else.
    unknown = np.zeros(len(cpu))
    np.add.at(unknown, task[~known], value[~known])
    room = np.maximum(cpu, 0) + np.maximum(noncpu, 0)
    share = np.divide(room, unknown, out=np.ones(len(room)), where=unknown > room)
    unknown *= share
    value = np.where(known, value, value * share[task])
    from_noncpu = np.clip(unknown, 0, np.maximum(noncpu, 0))
    columns = {name: metered[name] for name in metered.columns}
    return cpu - (unknown - from_noncpu), noncpu - from_noncpu, Table({**columns, "value": value})


def seconds_metered_without_cpu(recording: Recording) -> float:
    """Seconds that tasks metered and had no CPU time in, as far as that is known."""
    metrics = recording.metrics
    if not len(metrics):
        return 0.0
    rows = metrics.rows(metrics["unit"].where("seconds"))
    return float(np.nansum(rows["value"] - rows["cpu"]))


def metered_amounts(recording: Recording) -> dict[tuple[str, str], float]:
    """What all tasks metered together, by activity and unit."""
    metrics = recording.metrics
    if not len(metrics):
        return {}
    activity, unit = metrics["activity"], metrics["unit"]
    pairs, codes = np.unique(
        activity.codes.astype(np.int64) * len(unit.values) + unit.codes, return_inverse=True
    )
    amounts: dict[tuple[str, str], float] = {}
    for pair, value in zip(pairs.tolist(), np.bincount(codes, metrics["value"]), strict=True):
        key = activity.values[pair // len(unit.values)], unit.values[pair % len(unit.values)]
        amounts[key] = amounts.get(key, 0.0) + float(value)
    return amounts
