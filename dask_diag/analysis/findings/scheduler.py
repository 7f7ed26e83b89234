"""The finding on a scheduler that cannot hand out tasks as fast as workers run them."""

from __future__ import annotations

from math import isnan

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.where import during
from dask_diag.analysis.phases import first_starts
from dask_diag.formatting import amount, count, percent, seconds
from dask_diag.schema import Activity

__all__ = ["scheduler_bound"]

WORTH_REPORTING = 0.15
"""Least share of the time of computations that is lost."""
WAITED = 0.75
"""Least share of the workers' time, since the first task started, that they waited for the
scheduler."""
FEWEST_TASKS = 50
"""Least number of tasks."""


def scheduler_bound(analysis: Analysis) -> Finding | None:
    """Workers that mostly wait for the one thread that hands out tasks."""
    tasks = len(analysis.recording.tasks)
    if tasks < FEWEST_TASKS or not analysis.schedulers & {"threads", "processes"}:
        return None
    # The scheduler was in the profilers' hooks for a part of it.
    without_hooks = 1 - analysis.share_of_hooks
    overhead = analysis.activities.get(Activity.OVERHEAD, 0.0) * without_hooks
    first, stop = first_starts(analysis.recording), analysis.recording.computations.stop
    lasted = float((stop - first).sum())
    waited = overhead / analysis.workers
    if lasted <= 0 or waited < WAITED * lasted:
        return None
    lost = analysis.seconds_saved(remove={Activity.OVERHEAD}) * without_hooks
    # Of more tasks than can be simulated it is what workers waited.
    lost = waited if isnan(lost) else lost
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    return Finding(
        "scheduler-bound",
        severity_of_share(lost / analysis.wall),
        lost,
        f"{amount(analysis.workers)} workers waited for the scheduler for "
        f"{percent(min(waited / lasted, 1.0))} of {seconds(lasted)}: its one thread handed out "
        f"{count(tasks)} tasks, {seconds(lasted / tasks)} each",
        "make fewer and larger tasks (larger chunks, fused steps); more workers cannot help",
        kind=AT_MOST,
        where=during(first, stop),
    )
