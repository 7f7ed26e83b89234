"""What tasks metered of their own time, and their time without it."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.grouping import distinct_pairs
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Metrics

__all__ = [
    "cpu_and_noncpu",
    "metered_amounts",
    "metered_cpu",
    "seconds_of_workers",
    "without_metered",
]


def cpu_and_noncpu(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """CPU and non-CPU seconds of tasks, neither of them negative; NaN where they are not known.

    They are those of the table but for what clocks differ: see `_settle`.
    """
    cpu, noncpu = np.array(recording.tasks.thread_cpu), np.array(recording.tasks.thread_noncpu)
    _settle(recording, ~np.isnan(cpu) & ~np.isnan(noncpu), cpu, noncpu)
    return cpu, noncpu


def without_metered(
    recording: Recording, mask: BoolArray
) -> tuple[FloatArray, FloatArray, Metrics]:
    """CPU and non-CPU seconds of tasks without what they metered, and what the masked ones metered.

    None of the masked tasks' is negative, and with what a task metered they sum to what it took.
    What it metered by a clock of its own, or only reported, is limited to that.
    """
    metrics = recording.metrics
    cpu, noncpu = seconds_of_workers(recording)
    metered = metrics.rows(metrics.unit.where("seconds") & mask[metrics.task])
    measured = ~np.isnan(metered.cpu)
    task, seconds, of_cpu = metered.task, np.array(metered.value), metered.cpu
    _limit(seconds, task, measured, cpu + noncpu)
    np.subtract.at(cpu, task[measured], of_cpu[measured])
    np.subtract.at(noncpu, task[measured], (seconds - of_cpu)[measured])
    _settle(recording, mask & ~np.isnan(cpu), cpu, noncpu)
    reported = _limit(seconds, task, ~measured, cpu + noncpu)
    # Whether reported seconds were CPU is not known: they are off-CPU while there is off-CPU time.
    from_noncpu = np.clip(reported, 0, np.maximum(noncpu, 0))
    # Of a task that reported all its seconds they may be more by rounding.
    from_cpu = np.fmin(reported - from_noncpu, np.maximum(cpu, 0))
    columns = {name: metered[name] for name in metered.columns}
    return cpu - from_cpu, noncpu - from_noncpu, Metrics({**columns, "value": seconds})


def _limit(seconds: FloatArray, task: IntArray, chosen: BoolArray, took: FloatArray) -> FloatArray:
    """Reduce those seconds of which a task has more than it took; returns the sum of each task."""
    sums, took = np.bincount(task[chosen], seconds[chosen], minlength=len(took)), np.fmax(took, 0)
    share = np.divide(took, sums, out=np.ones(len(took)), where=sums > took)
    seconds[chosen] *= share[task[chosen]]
    return np.asarray(sums * share)


def _settle(recording: Recording, known: BoolArray, cpu: FloatArray, noncpu: FloatArray) -> None:
    """Have neither be negative, of tasks of which both are known; each task's sum stays.

    A thread's CPU is read from another clock than the time. One may run faster, or in steps of
    milliseconds, and a task then has more CPU than time. Other tasks of its function in the same
    computation have that much less CPU, if they have time without it: their sum is true.
    """
    if not (known & ((cpu < 0) | (noncpu < 0))).any():
        return
    tasks = recording.tasks
    pool = distinct_pairs(tasks.function.codes, tasks.computation.codes)[2][known]
    # Of a task that metered all its seconds what is left may be less than none by rounding.
    took = np.maximum((cpu + noncpu)[known], 0.0)
    of_known = _not_negative(cpu[known], pool)
    of_known = _not_negative(took - of_known, pool)
    noncpu[known], cpu[known] = of_known, took - of_known


def _not_negative(amounts: FloatArray, pool: IntArray) -> FloatArray:
    """The amounts, with 0 in place of negative ones, which the others of their pool make up for."""
    positive = np.maximum(amounts, 0.0)
    has, lacks = np.bincount(pool, positive), np.bincount(pool, positive - amounts)
    left = np.divide(has - lacks, has, out=np.zeros(len(has)), where=has > lacks)
    return np.asarray(positive * left[pool])


def seconds_of_workers(recording: Recording) -> tuple[FloatArray, FloatArray]:
    """CPU and non-CPU seconds of tasks, up to where they seceded, neither of them negative."""
    tasks = recording.tasks
    cpu, noncpu = np.array(tasks.thread_cpu), np.array(tasks.thread_noncpu)
    seceded = ~np.isnan(tasks.seceded)
    if seceded.any():
        cpu_after = np.nan_to_num(tasks.seceded_cpu[seceded])
        cpu[seceded] -= cpu_after
        noncpu[seceded] -= tasks.stop[seceded] - tasks.seceded[seceded] - cpu_after
    _settle(recording, ~np.isnan(cpu) & ~np.isnan(noncpu), cpu, noncpu)
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
