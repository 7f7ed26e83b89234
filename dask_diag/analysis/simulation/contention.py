"""What more workers cannot give: CPUs that the machine does not have, and more than one GIL."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.simulation.replay import Timeline
from dask_diag.columns import FloatArray

__all__ = ["contention"]


def contention(
    timeline: Timeline, cpu: FloatArray, gil: FloatArray, cpus: float, gils: float
) -> float:
    """Seconds by which tasks delay each other that need more than there is.

    At each moment the running tasks need a number of CPUs, each its share of the time that it
    takes. Where that is twice what there is, everything takes twice as long.

    Parameters
    ----------
    timeline : Timeline
    cpu, gil : array of float
        Seconds of each task in which it needs a CPU, and the GIL.
    cpus, gils : float
        How many there are.
    """
    took = timeline.stop - timeline.start
    ran = np.flatnonzero(took > 0)
    times = np.concatenate([timeline.start[ran], timeline.stop[ran]])
    order = np.argsort(times, kind="stable")
    durations = np.diff(times[order])
    slowness = np.ones(len(durations))
    for seconds, available in ((cpu, cpus), (gil, gils)):
        if not seconds.any() or available == np.inf:
            continue
        share = np.minimum(seconds[ran] / took[ran], 1.0)
        load = np.cumsum(np.concatenate([share, -share])[order])[:-1]
        slowness = np.maximum(slowness, load / available)
    return float((durations * (slowness - 1.0)).sum())
