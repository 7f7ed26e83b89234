"""The finding on a scheduler that cannot hand out tasks as fast as workers run them."""

from __future__ import annotations

from math import isnan

import numpy as np

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
BUSY = 0.75
"""On a cluster: least share of the time in which the scheduler's thread used a CPU."""
WAITED_ON_CLUSTER = 0.3
"""On a cluster: least share of its threads' time that these were free while tasks were on their
way, or in the scheduler's queue."""


def scheduler_bound(analysis: Analysis) -> Finding | None:
    """Workers that mostly wait for the one thread that hands out tasks."""
    if analysis.on_cluster:
        return _scheduler_of_a_cluster(analysis)
    tasks = len(analysis.recording.tasks)
    if tasks < FEWEST_TASKS or not analysis.schedulers & {"threads", "processes"}:
        return None
    # The scheduler was in the profilers' hooks for a part of it.
    without_hooks = 1 - analysis.share_of_task_hooks
    overhead = analysis.activities.get(Activity.OVERHEAD, 0.0) * without_hooks
    first, stop = first_starts(analysis.recording), analysis.recording.computations.stop
    lasted = float((stop - first).sum())
    waited = overhead / analysis.workers
    if lasted <= 0 or waited < WAITED * lasted:
        return None
    lost = analysis.seconds_saved(remove={Activity.OVERHEAD}) * without_hooks
    # Of more tasks than can be simulated it is what workers waited.
    lost = waited / analysis.overlap if isnan(lost) else lost
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Finding(
        "scheduler-bound",
        severity_of_share(lost / analysis.computing),
        lost,
        f"{amount(analysis.workers)} workers waited for the scheduler for "
        f"{percent(min(waited / lasted, 1.0))} of {seconds(lasted)}{analysis.added_up}: its one "
        f"thread handed out {count(tasks)} tasks, {seconds(lasted / tasks)} each",
        "make fewer and larger tasks (larger chunks, fused steps); more workers cannot help",
        kind=AT_MOST,
        where=during(first, stop),
    )


def _scheduler_of_a_cluster(analysis: Analysis) -> Finding | None:
    """The same of a scheduler in its own thread or process: its CPU says whether it was busy."""
    computations = analysis.recording.computations
    of_cluster = computations.scheduler.where("distributed")
    computations = computations.rows(of_cluster)
    names = set(computations.computation.tolist())
    occupancies = [one for one in analysis.occupancies if one.computation in names]
    tasks = sum(len(one.tasks.rows) for one in occupancies)
    wall = sum(one.wall for one in occupancies)
    cpu = float(np.nansum(computations.scheduler_cpu))
    capacity = sum(one.worker_seconds for one in occupancies)
    overhead = sum(one.seconds(one.overhead) for one in occupancies)
    if tasks < FEWEST_TASKS or cpu < BUSY * wall or overhead < WAITED_ON_CLUSTER * capacity:
        return None
    threads = capacity / wall
    lost = overhead / threads
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    return Finding(
        "scheduler-bound",
        severity_of_share(lost / analysis.wall),
        lost,
        f"The scheduler's thread used a CPU for {percent(min(cpu / wall, 1.0))} of "
        f"{seconds(wall)}{analysis.added_up}: {seconds(cpu / tasks)} for each of {count(tasks)} "
        f"tasks. The {amount(threads)} threads of the workers were free for "
        f"{percent(overhead / capacity)} of the time while tasks were on their way",
        "submit fewer and larger tasks (larger chunks; several items in each call of "
        "client.submit); more workers cannot help",
        kind=AT_MOST,
        where=during(computations.start, computations.stop),
    )
