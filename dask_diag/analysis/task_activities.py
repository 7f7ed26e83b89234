"""What tasks did with their time, and the other amounts that they metered or that were moved."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.activity_sums import Division, Sum, sums_of_groups
from dask_diag.analysis.metering import seconds_of_workers, without_metered
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.analysis.transfers import transfers_of_tasks
from dask_diag.analysis.waits import divided
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import OUTCOMES, Activity, Outcome

__all__ = [
    "SECONDS",
    "UNITS_OF_TRANSFERS",
    "Amounts",
    "amounts_of_tasks",
    "seconds_of_tasks",
    "units_of",
]

SECONDS = "seconds"
UNITS_OF_TRANSFERS = ("bytes", "count")
"""What transfers are measured in beside seconds: their size, and how many they were."""


def units_of(recording: Recording) -> list[str]:
    """Every unit of which a recording has amounts."""
    moved = UNITS_OF_TRANSFERS if len(recording.transfers) else ()
    return list(dict.fromkeys([SECONDS, *recording.metrics.unit.values, *moved]))


class Amounts(NamedTuple):
    """What some tasks had of one activity, and when.

    Attributes
    ----------
    activity : str
    task : array of int
        The row of each in `Recording.tasks`; one task may come several times.
    amounts : array of float
    start, stop : array of float
        From when to when it was; where only its task is known, the time of that.
    """

    activity: str
    task: IntArray
    amounts: FloatArray
    start: FloatArray
    stop: FloatArray

    def sums(self, division: Division) -> Iterator[Sum]:
        """The sum of each group that has any."""
        return sums_of_groups(division.groups[self.task], self.amounts, self.activity)


def seconds_of_tasks(division: Division) -> Iterator[Amounts]:
    """The seconds of tasks: CPU, waits, what they metered, transfers, and failures."""
    recording = division.recording
    tasks = recording.tasks
    start, stop = tasks.start, worker_stop_times(recording)
    wall = stop - start

    def of_tasks(activity: str, mask: BoolArray, seconds: FloatArray) -> Amounts:
        rows = np.flatnonzero(mask)
        return Amounts(activity, rows, seconds[rows], start[rows], stop[rows])

    ok = division.counted & tasks.outcome.where(Outcome.OK)
    unmeasured = ok & np.isnan(tasks.thread_cpu)
    yield of_tasks(Activity.OTHER, unmeasured, wall)
    ok &= ~unmeasured
    cpu, noncpu = seconds_of_workers(recording)
    unmetered = None
    if division.with_labels:
        cpu, unmetered, metered = without_metered(recording, ok)
        while_run = start[metered.task], stop[metered.task]
        yield from _by_activity(metered.task, metered.activity, metered.value, *while_run)
    yield of_tasks(Activity.CPU, ok, cpu)
    for activity, seconds, has_any in divided(recording, noncpu, ok, unmetered):
        yield of_tasks(activity, has_any, seconds)
    yield from _transfers(division, SECONDS)
    # What they did before they failed is not divided: it was lost, whatever it was.
    for outcome in OUTCOMES:
        if outcome == Outcome.OK:
            continue
        yield of_tasks(outcome, division.counted & tasks.outcome.where(outcome), wall)


def amounts_of_tasks(division: Division, unit: str) -> Iterator[Amounts]:
    """What tasks metered in another unit than seconds, and what was moved for them."""
    recording = division.recording
    metrics = recording.metrics
    rows = metrics.rows(metrics.unit.where(unit) & division.counted[metrics.task])
    while_run = recording.tasks.start[rows.task], worker_stop_times(recording)[rows.task]
    yield from _by_activity(rows.task, rows.activity, rows.value, *while_run)
    if unit in UNITS_OF_TRANSFERS:
        yield from _transfers(division, unit)


def _transfers(division: Division, unit: str) -> Iterator[Amounts]:
    """What moving tasks and results took: seconds of workers, or bytes or times on both sides."""
    transfers = transfers_of_tasks(division.recording)
    counted = division.counted[transfers.task]
    if unit == SECONDS:
        counted &= transfers.side.where("worker")
    rows = transfers.rows(counted)
    amounts = {
        "seconds": rows.stop - rows.start,
        "bytes": np.nan_to_num(rows.bytes),
        "count": np.ones(len(rows)),
    }[unit]
    yield from _by_activity(rows.task, rows.activity, amounts, rows.start, rows.stop)


def _by_activity(
    task: IntArray, activity: Categorical, amounts: FloatArray, start: FloatArray, stop: FloatArray
) -> Iterator[Amounts]:
    """Amounts that each belong to a task and an activity."""
    for name in dict.fromkeys(activity.values):
        rows = activity.where(name)
        yield Amounts(name, task[rows], amounts[rows], start[rows], stop[rows])
