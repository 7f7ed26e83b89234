"""What more workers cannot give: CPUs that the machine does not have, and more than one GIL."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.cpu_accounting import LEAST_FREE
from dask_diag.analysis.simulation.replay import Timeline
from dask_diag.analysis.simulation.work import Work
from dask_diag.columns import FloatArray

__all__ = ["contention", "least_seconds"]

LEAST_FREE_FOR_SLEEPERS = 0.5
"""The same where tasks mostly slept. Others used what these did not want, and would share it: of
two programs that want all CPUs each gets a half."""


def contention(timeline: Timeline, work: Work, cpus: float, gils: float) -> float:
    """Seconds by which tasks and the scheduler delay each other that need more than there is.

    At each moment each running task needs a CPU in a share of its time, and the GIL in a share.
    Where that is twice what there is, all of them take twice as long. CPUs that other programs
    used are not there: a kernel shares them among groups of processes, so more threads of one
    program need not get more. But those who sleep had as much as they wanted.

    Parameters
    ----------
    timeline : Timeline
    work : Work
    cpus, gils : float
        How many there are.
    """
    start, stop = timeline.start - work.wake, timeline.stop + work.deliver
    times = np.concatenate([start, stop])
    order = np.argsort(times, kind="stable")
    durations = np.diff(times[order])
    scheduler = 1.0 - timeline.waiting / timeline.end if timeline.end else 0.0
    pools = (work.pool_cpu + work.children_cpu) / timeline.end if timeline.end else 0.0
    slowness = np.ones(len(durations))
    least = LEAST_FREE_FOR_SLEEPERS if work.sleeps else LEAST_FREE
    free = max(cpus - work.others, least * cpus)
    # The scheduler of a cluster is no thread of its workers' processes.
    beside = scheduler if work.cluster is None else 0.0
    for seconds, others, available in (
        (work.cpu, pools + scheduler, free),
        (work.gil, beside, gils),
    ):
        share = _shares(seconds + work.switching, stop - start)
        # A task adds its share when it starts and takes it off when it stops, so the sums so far
        # are what all that run need together.
        load = np.cumsum(np.concatenate([share, -share])[order])[:-1]
        # A task that waits for the GIL needs no CPU meanwhile: the scarcer of the two decides.
        slowness = np.maximum(slowness, (load + others) / available)
    return float((durations * (slowness - 1.0)).sum())


def least_seconds(work: Work, cpus: float, gils: float) -> float:
    """Seconds that no number of workers takes less than: all CPU seconds need so many CPUs.

    So do those that need the GIL. The average over the whole computation counts, also where
    `contention` sees no moment in which too much runs at once.
    """
    serial = work.scheduler_cpu + work.switching * len(work)
    beside = work.pool_cpu + work.children_cpu
    of_cpus = (float(work.cpu.sum()) + beside + serial) / cpus
    of_scheduler = serial if work.cluster is None else 0.0
    return max(of_cpus, (float(work.gil.sum()) + of_scheduler) / gils, work.scheduler_cpu)


def _shares(seconds: FloatArray, took: FloatArray) -> FloatArray:
    """What each needs of a CPU, at most all of it."""
    shares = np.divide(seconds, took, out=np.zeros(len(took)), where=took > 0)
    return np.minimum(shares, 1.0)
