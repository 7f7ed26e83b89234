"""Why workers had no task: what the seconds of free workers are divided into."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np

from dask_diag.analysis.activity_sums import Division, Group, Sum, sums_of_groups
from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.occupancy import Occupancy
from dask_diag.analysis.transfers import transfers_of_tasks
from dask_diag.columns import IntArray
from dask_diag.model.recording import Recording

__all__ = ["NO_TASK", "UNUSED", "seconds_blocked_by_transfers", "seconds_of_free_workers"]

NO_TASK = None
"""The function of seconds in which a worker ran no task."""
UNUSED = "unused"
"""The worker of seconds of workers that ran no task at all."""
_ROUNDING = 1e-9


def seconds_blocked_by_transfers(
    division: Division, occupancies: Iterable[Occupancy]
) -> Iterator[Sum]:
    """Seconds of free workers while the scheduler pickled or rebuilt.

    They belong to the tasks whose inputs or results it moved.
    """
    recording = division.recording
    transfers = transfers_of_tasks(recording)
    is_counted = transfers.side.where("scheduler") & division.counted[transfers.task]
    transfers = transfers.rows(is_counted)
    rows_of = rows_by(recording.tasks.computation[transfers.task])
    for occupancy in occupancies:
        rows = transfers.rows(rows_of.get(occupancy.computation, slice(0)))
        groups = division.groups[rows.task]
        for activity, workers in occupancy.blocked.items():
            until_start = occupancy.seconds_until(workers, rows.start)
            seconds = occupancy.seconds_until(workers, rows.stop) - until_start
            moved = rows.activity.where(activity)
            yield from sums_of_groups(groups[moved], seconds[moved], activity)


def seconds_of_free_workers(division: Division, occupancy: Occupancy) -> Iterator[Sum]:
    """Seconds of a computation's free workers, by why they were free."""
    if "worker" not in division.by:
        for activity, workers in occupancy.free.items():
            if seconds := occupancy.seconds(workers):
                yield _group(division, occupancy, ""), activity, seconds
        return
    # The tasks for which the scheduler blocked a worker say nothing about which one it was.
    for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
        seconds = not_shared = occupancy.seconds(workers)
        for worker, share in _shares_of_workers(division.recording, occupancy, workers):
            not_shared -= share
            yield _group(division, occupancy, worker), activity, share
        if abs(not_shared) > _ROUNDING * seconds:
            yield _group(division, occupancy, UNUSED), activity, not_shared


def _group(division: Division, occupancy: Occupancy, worker: str) -> Group:
    """The group of seconds in which a worker ran no task."""
    values = {
        "function": NO_TASK,
        "worker": worker,
        "computation": occupancy.computation,
        "span": occupancy.span,
    }
    return tuple(values[name] for name in division.by)


def _shares_of_workers(
    recording: Recording, occupancy: Occupancy, workers: IntArray
) -> Iterator[tuple[str, float]]:
    """What each worker that ran tasks has of a step function, in the gaps between its tasks."""
    tasks = occupancy.tasks
    has_start = ~np.isnan(tasks.worker_start)
    labels = recording.tasks.worker[tasks.rows[has_start]]
    at_start = occupancy.share_until(workers, tasks.worker_start[has_start])
    at_stop = occupancy.share_until(workers, tasks.worker_stop[has_start])
    in_tasks = np.bincount(labels.codes, at_stop - at_start, minlength=len(labels.values))
    total = float(occupancy.share_until(workers, occupancy.times[-1:])[0])
    for code in np.unique(labels.codes).tolist():
        yield labels.values[code], total - float(in_tasks[code])
