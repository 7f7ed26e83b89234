"""What tasks metered of their own time, and their time without it."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Metrics

__all__ = [
    "metered_amounts",
    "metered_cpu",
    "seconds_of_workers",
    "without_metered",
]


def without_metered(
    recording: Recording, mask: BoolArray
) -> tuple[FloatArray, FloatArray, Metrics]:
    """CPU and non-CPU seconds of tasks without what they metered, and what the masked ones metered.

    Seconds that a task only reported, and did not measure, are limited to those that it took.
    """
    metrics = recording.metrics
    cpu, noncpu = seconds_of_workers(recording)
    metered = metrics.rows(metrics.unit.where("seconds") & mask[metrics.task])
    measured = ~np.isnan(metered.cpu)
    task, seconds, of_cpu = metered.task, metered.value, metered.cpu
    np.subtract.at(cpu, task[measured], of_cpu[measured])
    np.subtract.at(noncpu, task[measured], (seconds - of_cpu)[measured])
    reported = np.zeros(len(cpu))
    np.add.at(reported, task[~measured], seconds[~measured])
    available = np.maximum(cpu, 0) + np.maximum(noncpu, 0)
    share = np.divide(available, reported, out=np.ones(len(cpu)), where=reported > available)
    reported *= share
    seconds = np.where(measured, seconds, seconds * share[task])
    # Whether reported seconds were CPU is not known: they are off-CPU while there is off-CPU time.
    from_noncpu = np.clip(reported, 0, np.maximum(noncpu, 0))
    columns = {name: metered[name] for name in metered.columns}
    return (
        cpu - (reported - from_noncpu),
        noncpu - from_noncpu,
        Metrics({**columns, "value": seconds}),
    )


def seconds_of_workers(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """CPU and non-CPU seconds of tasks, up to where they seceded."""
    tasks = recording.tasks
    cpu, noncpu = np.array(tasks.thread_cpu), np.array(tasks.thread_noncpu)
    seceded = ~np.isnan(tasks.seceded)
    if seceded.any():
        cpu_after = np.nan_to_num(tasks.seceded_cpu[seceded])
        cpu[seceded] -= cpu_after
        noncpu[seceded] -= tasks.stop[seceded] - tasks.seceded[seceded] - cpu_after
    return cpu, noncpu


def metered_amounts(recording: Recording) -> dict[tuple[str, str], float]:
    """What all tasks metered together, by activity and unit."""
    metrics = recording.metrics
    activity, unit = metrics.activity, metrics.unit
    activities, units, codes = distinct_pairs(activity.codes, unit.codes)
    sums = np.bincount(codes, metrics.value, minlength=len(units)).tolist()
    amounts: dict[tuple[str, str], float] = {}
    for n, amount in enumerate(sums):
        name = activity.values[activities[n]], unit.values[units[n]]
        amounts[name] = amounts.get(name, 0.0) + amount
    return amounts


def metered_cpu(recording: Recording) -> dict[str, float]:
    """CPU seconds of all tasks in each label's metered code, where they were measured of all."""
    metrics = recording.metrics
    rows = metrics.rows(metrics.unit.where("seconds"))
    names = rows.activity.values
    sums = np.bincount(rows.activity.codes, rows.cpu, minlength=len(names)).tolist()
    return {name: cpu for name, cpu in zip(names, sums, strict=True) if not np.isnan(cpu)}
