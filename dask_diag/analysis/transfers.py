"""When tasks and results were moved between processes, task by task."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np

from dask_diag.columns import FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Transfers
from dask_diag.schema import Activity

__all__ = [
    "LARGE",
    "TRANSFERS",
    "Interval",
    "TransferTimes",
    "transfer_times",
    "transfers_of_tasks",
]

Interval = tuple[FloatArray, FloatArray]
"""Starts and stops."""
TRANSFERS = (Activity.SERIALIZE, Activity.DESERIALIZE)
"""The activities of transfers."""
LARGE = 1e6
"""Least bytes of a result or of inputs whose transfer between processes takes time."""


@dataclass(frozen=True)
class TransferTimes:
    """Times of the transfers of each task, in the order of `Recording.tasks`; NaN if not known.

    Attributes
    ----------
    worker_start, worker_stop : array of float
        When the worker started to rebuild the task's inputs, and when it had pickled its result.
    scheduler : dict of str to pair of arrays of float
        For ``serialize`` and ``deserialize``: when the scheduler started it and when it stopped.
        Empty if nothing was moved.
    """

    worker_start: FloatArray
    worker_stop: FloatArray
    scheduler: dict[str, Interval]

    def by_scheduler(self, rows: IntArray) -> dict[str, Interval]:
        """The intervals in which the scheduler moved some of the tasks or their results."""
        intervals = {}
        for activity, (start, stop) in self.scheduler.items():
            is_known = ~np.isnan(start[rows])
            intervals[activity] = (start[rows][is_known], stop[rows][is_known])
        return intervals


def transfers_of_tasks(recording: Recording) -> Transfers:
    """Those of tasks and of results; others were of data that no recorded task made."""
    transfers = recording.transfers
    return transfers.rows(transfers.task >= 0)


def transfer_times(recording: Recording) -> TransferTimes:
    """The times of the transfers of each task."""
    transfers, tasks = transfers_of_tasks(recording), len(recording.tasks)

    def times(side: str, activity: str, bound: Literal["start", "stop"]) -> FloatArray:
        of_tasks = np.full(tasks, np.nan)
        rows = transfers.side.where(side) & transfers.activity.where(activity)
        of_tasks[transfers.task[rows]] = getattr(transfers, bound)[rows]
        return of_tasks

    return TransferTimes(
        worker_start=times("worker", Activity.DESERIALIZE, "start"),
        worker_stop=times("worker", Activity.SERIALIZE, "stop"),
        scheduler={
            activity: (times("scheduler", activity, "start"), times("scheduler", activity, "stop"))
            for activity in (TRANSFERS if len(transfers) else ())
        },
    )
