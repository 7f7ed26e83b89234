"""Findings on workers of a cluster that are short of memory: they spill, or pause."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    AT_MOST,
    MEASURED,
    MOST_NAMED,
    Finding,
    Where,
    during,
    in_words,
    merged_intervals,
    severity_of_share,
)
from dask_diag.analysis.groups import sums_by
from dask_diag.analysis.memory import cached_at, memory_at_rest, returned_by
from dask_diag.analysis.task_times import running_computations
from dask_diag.columns import FloatArray
from dask_diag.formatting import BYTES, counted, percent, seconds, size
from dask_diag.model.codes import Activity, WorkerEvent
from dask_diag.model.recording import Recording
from dask_diag.model.tables import WorkerEvents

NEAR = 0.5
"""Least share of the memory that the process may use which cached results had."""
VERY_NEAR = 0.75
"""Share from which on the severity is high."""


def cache_pressure(analysis: Analysis) -> Finding | None:
    """Results that wait for the tasks that need them, near the limit of memory."""
    recording = analysis.recording
    limit = recording.computations.memory_limit
    limits = limit[limit > 0]
    if recording.metric_unit != BYTES or not len(limits):
        return None
    by_function, total = analysis.cached_levels
    peak, allowed = total.peak, float(limits.min())
    if peak < NEAR * allowed:
        return None
    names = sorted(by_function, key=lambda name: -by_function[name].peak)[:MOST_NAMED]
    high = total.amounts >= NEAR * allowed
    when = during(total.times[:-1][high[:-1]], total.times[1:][high[:-1]])
    return Finding(
        "cache-pressure",
        "high" if peak >= VERY_NEAR * allowed else "medium",
        float("nan"),
        f"The scheduler cached results of {size(peak)} at once, {percent(peak / allowed)} of "
        f"the {size(allowed)} that this process may use. Mostly: {in_words(names)}",
        "reduce results in the task that makes them, compute in parts, or use smaller chunks and "
        "fewer workers",
        kind=MEASURED,
        where=Where(when.intervals, (), tuple(names)),
    )


FEWEST_READINGS = 8
"""Least number of readings that were taken while computations ran, or else between tasks."""
PARTS = 4
"""Parts of equal number into which these readings are divided to see whether memory rose steadily.

Memory must have been read between tasks before the second of them and after the last one started.
"""
GROWN = 100e6
"""Least growth that is reported, in bytes."""
GROWN_OF_MEMORY = 0.2
"""Least growth as a share of the memory at first."""
GROWN_OF_RISE = 0.5
"""Least growth while no task runs as a share of the rise while tasks ran."""
STEADY = 0.1
"""Least share of the rise by which each part's minimum must be above that of the one before."""
VERY_LARGE = 1e9
"""Growth in bytes beyond which the severity is high."""


def memory_growth(analysis: Analysis) -> Finding | None:
    """Memory that grows all the time and is not released.

    Whether it is released shows only while no task runs: before the first tasks and after the last.
    """
    recording = analysis.recording
    times, sizes = _from_the_first_computation(recording, *memory_at_rest(recording))
    if len(times) < 2:
        return None
    read_at, in_use = _readings(recording, times, sizes)
    if len(read_at) < FEWEST_READINGS:
        return None
    parts = np.array_split(read_at, PARTS)
    # Without a reading at rest before and after, growth and the memory of tasks look the same.
    if times[0] >= parts[1][0] or times[-1] < parts[-1][0]:
        return None
    cached = cached_at(recording, times[[0, -1]])
    # The program still has what the last computation just returned.
    last, earlier = returned_by(recording, float(times[-1]))
    results = float(cached[1]) + last
    before, after = float(sizes[0]), float(sizes[-1])
    # Results are meant to be there: only growth beyond them is unexpected.
    grown = after - before - np.nan_to_num(results - cached[0])
    rise, steady = _rise(recording, read_at, in_use)
    worth_reporting = max(GROWN, GROWN_OF_MEMORY * before, GROWN_OF_RISE * rise)
    if not steady or grown < worth_reporting:
        return None
    severity = "high" if grown > VERY_LARGE else "medium"
    which = f"including {size(results)} of cached or just returned results"
    if isnan(results):
        severity, which = "low", "results not measured; record with CacheProfiler"
    elif grown - earlier < worth_reporting:
        severity, which = "low", f"{size(earlier)} may be results returned earlier"
    return Finding(
        "memory-growth",
        severity,
        float("nan"),
        f"Memory grew by {size(grown)} and was not released: while no task ran it was "
        f"{size(before)} at first and {size(after)} after {seconds(float(times[-1] - times[0]))} "
        f"({which}); it rose steadily in between",
        "look for caches, globals or growing lists in tasks; also reduce results before returning "
        "them; on Linux the allocator may retain memory (MALLOC_TRIM_THRESHOLD_)",
        kind=MEASURED,
        where=during(times[:1], times[-1:]),
    )


def _from_the_first_computation(
    recording: Recording, times: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Without readings before the last one that precedes all tasks: imports are no growth."""
    first = np.min(recording.computations.start, initial=np.inf)
    rows = slice(max(int(np.searchsorted(times, first, "right")) - 1, 0), None)
    return times[rows], sizes[rows]


def _readings(
    recording: Recording, times: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """When memory was read while a computation ran, and the bytes of all processes.

    Of a short program there are few such samples. If it has many computations, what was read
    between tasks does as well.
    """
    samples = recording.resources
    samples = samples.rows(running_computations(recording.computations, samples.time) > 0)
    if len(samples) < FEWEST_READINGS:
        return times, sizes
    return samples.time, samples.memory + samples.memory_children


def _rise(recording: Recording, times: FloatArray, sizes: FloatArray) -> tuple[float, bool]:
    """By how many bytes memory beside results grew from part to part; whether steadily.

    The minimum of each part is compared: what was in use even when little was needed. Medians
    must rise, too.
    """
    memory = sizes - np.nan_to_num(cached_at(recording, times))
    parts = np.array_split(memory, PARTS)
    # One large task would raise a mean, and not a minimum or a median.
    floors = np.array([part.min() for part in parts])
    rise = float(floors[-1] - floors[0])
    is_steady = (np.diff(floors) > STEADY * rise).all()
    # Of few readings minima may rise by chance, as tasks come and go.
    usual = np.array([np.median(part) for part in parts])
    return rise, bool(is_steady and (np.diff(usual) > 0).all())


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
