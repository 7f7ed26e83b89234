"""What each task waited for: the last of its dependencies to stop."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.task_times import stop_times
from dask_diag.columns import IntArray
from dask_diag.model.recording import Recording

__all__ = ["last_dependencies"]


def last_dependencies(recording: Recording) -> IntArray:
    """Of each task the row in `Recording.tasks` of its dependency that stopped last.

    Returns
    -------
    array of int
        -1 for a task without dependencies among those that are known to have started.
    """
    tasks, table = recording.tasks, recording.dependencies
    last = np.full(len(tasks), -1, np.int64)
    if not len(table):
        return last
    started = ~np.isnan(tasks.start[table.depends_on])
    task, depends_on = table.task[started], table.depends_on[started]
    order = np.lexsort((stop_times(recording)[depends_on], task))
    # Of several assignments to one task the last one holds.
    last[task[order]] = depends_on[order]
    return last
