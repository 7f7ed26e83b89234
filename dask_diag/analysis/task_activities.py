"""What tasks did with their time, and the other amounts that they metered or that were moved."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.activity_sums import Division, Sum, sums_of_groups
from dask_diag.analysis.metering import without_metered
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.analysis.transfers import transfers_of_tasks
from dask_diag.analysis.waits import divided
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.schema import OUTCOMES, Activity, Outcome

__all__ = ["SECONDS", "UNITS_OF_TRANSFERS", "amounts_of_tasks", "seconds_of_tasks", "units_of"]

SECONDS = "seconds"
UNITS_OF_TRANSFERS = ("bytes", "count")
"""What transfers are measured in beside seconds: their size, and how many they were."""


def units_of(recording: Recording) -> list[str]:
    """Every unit of which a recording has amounts."""
    moved = UNITS_OF_TRANSFERS if len(recording.transfers) else ()
    return list(dict.fromkeys([SECONDS, *recording.metrics.unit.values, *moved]))


def seconds_of_tasks(division: Division) -> Iterator[Sum]:
    """The seconds of tasks: CPU, waits, what they metered, transfers, and failures."""
    recording, groups = division.recording, division.groups
    tasks = recording.tasks
    ok = division.counted & tasks.outcome.where(Outcome.OK)
    wall = worker_stop_times(recording) - tasks.start
    unmeasured = ok & np.isnan(tasks.thread_cpu)
    yield from sums_of_groups(groups, unmeasured, wall, Activity.OTHER)
    ok &= ~unmeasured
    cpu, noncpu, metered = without_metered(recording, ok)
    yield from sums_of_groups(groups, ok, cpu, Activity.CPU)
    for activity, seconds, has_any in divided(recording, noncpu, ok):
        yield from sums_of_groups(groups, has_any, seconds, activity)
    yield from _by_activity(division, metered.task, metered.activity, metered.value)
    yield from _transfers(division, SECONDS)
    # What they did before they failed is not divided: it was lost, whatever it was.
    for outcome in OUTCOMES:
        if outcome == Outcome.OK:
            continue
        mask = division.counted & tasks.outcome.where(outcome)
        yield from sums_of_groups(groups, mask, wall, outcome)


def amounts_of_tasks(division: Division, unit: str) -> Iterator[Sum]:
    """What tasks metered in another unit than seconds, and what was moved for them."""
    metrics = division.recording.metrics
    rows = metrics.rows(metrics.unit.where(unit) & division.counted[metrics.task])
    yield from _by_activity(division, rows.task, rows.activity, rows.value)
    if unit in UNITS_OF_TRANSFERS:
        yield from _transfers(division, unit)


def _transfers(division: Division, unit: str) -> Iterator[Sum]:
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
    yield from _by_activity(division, rows.task, rows.activity, amounts)


def _by_activity(
    division: Division, task: IntArray, activity: Categorical, amounts: FloatArray
) -> Iterator[Sum]:
    """The sums of amounts that each belong to a task and an activity."""
    groups = division.groups[task]
    for name in dict.fromkeys(activity.values):
        yield from sums_of_groups(groups, activity.where(name), amounts, name)
