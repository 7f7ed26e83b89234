"""What moving tasks and results between processes took, task by task."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.columns import Array
from dask_diag.model.recording import Recording

__all__ = ["Interval", "Moves", "transfers_by_task"]

Interval = tuple[Array, Array]
ACTIVITIES = ("serialize", "deserialize")


@dataclass(frozen=True)
class Moves:
    """Times of the transfers of each task, in the order of `Recording.tasks`; NaN if not known.

    Attributes
    ----------
    opened, closed : array of float
        When the worker began to rebuild the task, and when it had pickled its result.
    scheduler : dict of str to pair of arrays of float
        For ``serialize`` and ``deserialize``, from when to when the scheduler was at it; empty if
        it never was.
    """

    opened: Array
    closed: Array
    scheduler: dict[str, Interval]

    def by_scheduler(self, rows: Array) -> dict[str, Interval]:
        """From when to when the scheduler moved some of the tasks."""
        found = {}
        for activity, (start, stop) in self.scheduler.items():
            known = ~np.isnan(start[rows])
            found[activity] = (start[rows][known], stop[rows][known])
        return found


def transfers_by_task(recording: Recording) -> Moves:
    """The transfers of each task."""
    transfers, rows = recording.transfers, len(recording.tasks)

    def of(by: str, activity: str, column: str) -> Array:
        times = np.full(rows, np.nan)
        if len(transfers):
            chosen = transfers["side"].where(by) & transfers["activity"].where(activity)
            times[transfers["task"][chosen]] = transfers[column][chosen]
        return times

    return Moves(
        opened=of("worker", "deserialize", "start"),
        closed=of("worker", "serialize", "stop"),
        scheduler={
            activity: (of("scheduler", activity, "start"), of("scheduler", activity, "stop"))
            for activity in (ACTIVITIES if len(transfers) else ())
        },
    )
