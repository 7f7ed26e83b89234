"""Findings on workers of a cluster that are short of memory: they spill, or pause."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.where import Where, merged_intervals
from dask_diag.analysis.grouping import sums_by
from dask_diag.columns import FloatArray
from dask_diag.formatting import counted, percent, seconds, size
from dask_diag.model.tables import WorkerEvents
from dask_diag.schema import Activity, WorkerEvent

__all__ = ["memory_pressure", "spilling"]

WORTH_REPORTING = 0.05
"""Least share of the time of the cluster's threads that is lost."""
LESS_MEMORY = (
    "use smaller chunks or fewer threads a worker, and release futures that are not needed; or "
    "give each worker more memory: Client(n_workers=..., memory_limit=...)"
)


class _Lost(NamedTuple):
    """Events while computations ran, how long each, and the threads' seconds that these cost."""

    events: WorkerEvents
    lasted: FloatArray
    seconds: float
    share: float


def spilling(analysis: Analysis) -> Finding | None:
    """Workers whose event loops wrote results to disk and read them back."""
    events = analysis.recording.worker_events
    lost = _lost(analysis, events.rows(~events.event.where(WorkerEvent.PAUSED)))
    if lost.share < WORTH_REPORTING:
        return None
    sizes = dict(
        zip(lost.events.event.values, sums_by(lost.events.event, lost.events.bytes), strict=True)
    )
    written, read = (
        size(float(sizes.get(event, 0.0)))
        for event in (WorkerEvent.DISK_WRITE, WorkerEvent.DISK_READ)
    )
    waited = analysis.activities.get(Activity.SPILL, 0.0)
    return Finding(
        "spilling",
        severity_of_share(lost.share),
        lost.seconds / analysis.workers,
        f"{_workers(lost)} wrote {written} of results to disk and read {read} back, in "
        f"{seconds(float(lost.lasted.sum()))}; a worker starts no task and sends no result "
        f"meanwhile. Free threads waited {seconds(waited)} for it",
        f"results do not fit into the workers' memory: {LESS_MEMORY}",
        kind=AT_MOST,
        where=_where(lost),
    )


def memory_pressure(analysis: Analysis) -> Finding | None:
    """Workers that started no tasks, as their memory was nearly used up."""
    events = analysis.recording.worker_events
    lost = _lost(analysis, events.rows(events.event.where(WorkerEvent.PAUSED)))
    if lost.share < WORTH_REPORTING:
        return None
    return Finding(
        "memory-pressure",
        severity_of_share(lost.share),
        lost.seconds / analysis.workers,
        f"{_workers(lost)} paused for {seconds(float(lost.lasted.sum()))} in all "
        f"({percent(lost.share)} of the cluster's time): memory was above "
        "distributed.worker.memory.pause, and no task started there",
        LESS_MEMORY,
        kind=AT_MOST,
        where=_where(lost),
    )


def _workers(lost: _Lost) -> str:
    return counted(len(set(lost.events.worker.tolist())), "worker")


def _where(lost: _Lost) -> Where:
    sums = sums_by(lost.events.worker, lost.lasted)
    order = np.argsort(-sums, kind="stable")
    names = tuple(lost.events.worker.values[n] for n in order if sums[n] > 0)
    return Where(merged_intervals(lost.events.start, lost.events.stop), names)


def _lost(analysis: Analysis, events: WorkerEvents) -> _Lost:
    """The part of events in which a computation of their cluster ran."""
    computations, workers = analysis.recording.computations, analysis.recording.workers
    lasted = np.zeros(len(events))
    for cluster, start, stop in zip(
        computations.cluster.tolist(), computations.start, computations.stop, strict=True
    ):
        inside = np.clip(events.stop, start, stop) - np.clip(events.start, start, stop)
        lasted += np.where(events.computation.where(cluster), inside, 0.0)
    # Two computations may run at a time.
    lasted = np.minimum(lasted, events.stop - events.start)
    threads = dict(zip(workers.worker.tolist(), workers.threads.tolist(), strict=True))
    times = np.array([threads.get(name, 1) for name in events.worker.tolist()], float)
    lost = float((lasted * times).sum())
    rows = np.flatnonzero(lasted > 0)
    share = lost / analysis.available if analysis.available else 0.0
    return _Lost(events.rows(rows), lasted[rows], lost, share)
