"""Rules on memory: of this process, and of workers of a cluster that spill or pause."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    MOST_NAMED,
    NO_GAIN,
    Diagnosis,
    FindingLocation,
    Gain,
    at_line,
    evidence,
    largest,
    merged_intervals,
    rule,
    severity_of,
    simulated,
    sums_of_tasks,
    where_of_intervals,
    where_of_tasks,
)
from dask_diag.analysis.groups import lookup
from dask_diag.analysis.memory import cached_at, memory_at_rest, returned_by
from dask_diag.analysis.task_times import running_computations
from dask_diag.columns import FloatArray
from dask_diag.formatting import BYTES
from dask_diag.model.codes import COLLECTED, FULL_COLLECTION, Activity, Root, WorkerEvent
from dask_diag.model.recording import Recording
from dask_diag.model.tables import WorkerEvents

NEAR = 0.5
"""Least share of the memory that the process may use which cached results had."""
VERY_NEAR = 0.75
"""Share from which on the severity is high."""


@rule("cache-pressure", needs_tasks=False)
def cache_pressure(analysis: Analysis) -> Diagnosis | None:
    """Cached results came near the limit of memory."""
    recording = analysis.recording
    limit = recording.computations.memory_limit
    limits = limit[limit > 0]
    if recording.metric_unit != BYTES or not len(limits):
        return None
    by_function, total = analysis.cached_levels
    peak, allowed = total.peak, float(limits.min())
    if peak < NEAR * allowed:
        return None
    largest_first = sorted(by_function, key=lambda name: -by_function[name].peak)
    names = analysis.named(largest_first[:MOST_NAMED])
    is_high = total.amounts[:-1] >= NEAR * allowed
    return Diagnosis(
        "high" if peak >= VERY_NEAR * allowed else "medium",
        NO_GAIN,
        evidence(
            "Cached results reached {peak:bytes}, {share:share} of the {allowed:bytes} that this "
            "process may use. Mostly results of {functions}",
            peak=peak,
            share=peak / allowed,
            allowed=allowed,
            functions=names,
        ),
        "reduce results in the task that creates them, compute in parts, or use smaller chunks and "
        "fewer workers",
        FindingLocation(
            merged_intervals(total.times[:-1][is_high], total.times[1:][is_high]),
            functions=names,
        ),
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
LATER = 0.45
"""Least share of the rise that comes after the first part: before, workers load and cache most."""
FEWEST_COLLECTED = 1_000
"""Objects that collections of garbage found in tasks, so that the growth may be such objects."""
VERY_LARGE = 1e9
"""Growth in bytes beyond which the severity is high."""


COLLECTING = 0.1
"""Least share of the tasks' time, and of the time in computations that a fix gains."""
FEWEST_FULL = 3
"""Fewest collections in tasks that looked through objects of all ages: in any program that imports
much, one comes now and then, in some task."""
A_FREED_OBJECT = 0.4e-6
"""CPU seconds to find and free an object of a cycle, at most."""
THRESHOLD = 100_000
"""Advised first threshold of the collector: objects that may be made before it looks for cycles."""


@rule("garbage-collection", needs=("metrics",))
def garbage_collection(analysis: Analysis) -> Diagnosis | None:
    """Python's collector looked through many objects, again and again, in tasks."""
    metrics = analysis.recording.metrics
    rows = metrics.filter(metrics.activity.eq(Activity.GC) & metrics.unit.eq("seconds"))
    spent = collecting = float(rows.value.sum())
    found = _collected(analysis.recording, COLLECTED)
    full = _collected(analysis.recording, FULL_COLLECTION)
    # What is found has to be freed: the rest is spent on looking through what stays.
    cpu = float(np.nansum(rows.cpu))
    collecting *= max(0.0, 1 - found * A_FREED_OBJECT / cpu) if cpu else 0.0
    if full < FEWEST_FULL or collecting < COLLECTING * analysis.in_tasks:
        return None
    # A collection keeps the GIL from all other tasks that run.
    remove = {Activity.GC: collecting / spent}
    for_gil = analysis.waited(Activity.GIL_WAIT)
    if for_gil:
        others = max(analysis.at_once - 1, 0.0)
        remove[Activity.GIL_WAIT] = min(1.0, others * collecting / for_gil)
    gain = simulated(analysis, analysis.wall_of_tasks(collecting), remove=remove)
    if gain.seconds < COLLECTING * analysis.computing:
        return None
    where = where_of_tasks(analysis, sums_of_tasks(analysis.recording, rows.task, rows.value))
    return Diagnosis(
        severity_of(gain.seconds / analysis.computing),
        gain,
        evidence(
            "Tasks collected garbage for {spent:seconds} ({share:share} of their time) and found "
            "{found:object}; no other thread runs Python code meanwhile. Mostly in {functions}",
            spent=spent,
            found=found,
            share=spent / analysis.in_tasks,
            functions=where.functions,
        ),
        _advice_on_collections(analysis) + "; or keep arrays in place of many small objects",
        where,
    )


GROWS = 1.5
"""Least factor by which later full collections take longer than earlier ones, if tasks make what
stays."""


FEWEST_ASKED = 20
"""Least number of tasks with one full collection each, if they ask for it."""


def _advice_on_collections(analysis: Analysis) -> str:
    """What helps first: to freeze what was there before, or to look rarely for what tasks make."""
    metrics = analysis.recording.metrics
    seconds, full = (
        sums_of_tasks(analysis.recording, rows.task, rows.value)
        for rows in (
            metrics.filter(metrics.activity.eq(Activity.GC) & metrics.unit.eq(unit))
            for unit in ("seconds", FULL_COLLECTION)
        )
    )
    tasks = np.flatnonzero(full)
    each = (seconds[tasks] / full[tasks])[np.argsort(analysis.tasks.start[tasks], kind="stable")]
    earlier, later = np.array_split(each, 2)
    freeze = (
        "call gc.freeze() after loading data that stays, so that the collector does not look "
        "through it"
    )
    rarely = f"collect less often: gc.set_threshold({THRESHOLD:_}, 50, 1000)"
    # One in each task, of many: who would collect as often without being asked to?
    if len(tasks) >= FEWEST_ASKED and np.median(full[tasks]) == 1:
        samples = analysis.recording.samples
        # Most of the time of these tasks passes there.
        at = at_line(analysis, samples.seconds * samples.root.eq(Root.TASKS))
        return f"do not call gc.collect(){at}; or {freeze}"
    # What a worker process looks through was made by its tasks, but for modules.
    is_made = "processes" in analysis.schedulers
    if is_made or (len(later) and np.median(later) > GROWS * np.median(earlier)):
        return f"{rarely}; or {freeze}"
    return f"{freeze}; or {rarely}"


def _collected(recording: Recording, unit: str) -> float:
    """The number of objects that Python's collector found in tasks, or of full collections."""
    metrics = recording.metrics
    return float(metrics.value[metrics.activity.eq(Activity.GC) & metrics.unit.eq(unit)].sum())


# Garbage that is not collected yet looks like growth.
@rule(
    "memory-growth",
    # Compiled code is no growth of results.
    unless=("garbage-collection", "large-arguments", "first-call"),
    needs_tasks=False,
)
def memory_growth(analysis: Analysis) -> Diagnosis | None:
    """Memory grew steadily and was not released.

    A release shows only while no task runs: before the first tasks and after the last.
    """
    recording = analysis.recording
    times, sizes = memory_at_rest(recording)
    # Readings before the last one that precedes all tasks are left out: imports are no growth, nor
    # is code that is compiled.
    began = float(np.min(recording.computations.start, initial=np.inf))
    start = max([began, *(call.stop for call in analysis.first_calls)])
    first = max(int(np.searchsorted(times, start, "right")) - 1, 0)
    times, sizes = times[first:], sizes[first:]
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
    rise, is_steady = _rise(recording, read_at, in_use)
    worth_reporting = max(GROWN, GROWN_OF_MEMORY * before, GROWN_OF_RISE * rise)
    if not is_steady or grown < worth_reporting:
        return None
    severity = "high" if grown > VERY_LARGE else "medium"
    collected = _collected(recording, COLLECTED)
    which = ", including {results:bytes} of cached or just returned results" * (results > 0)
    if isnan(results):
        severity, which = "low", "; results were not measured (record with CacheProfiler)"
    elif grown - earlier < worth_reporting:
        severity, which = "low", ", up to {earlier:bytes} of it in results returned earlier"
    elif collected >= FEWEST_COLLECTED:
        # Those that lived long are looked for after many tasks only.
        severity, which = (
            "low",
            "; it may be garbage: collections found {collected:object} in tasks",
        )
    return Diagnosis(
        severity,
        NO_GAIN,
        evidence(
            "Memory grew steadily by {grown:bytes} and was not released. While no task ran, the "
            "program used {before:bytes} at first and {after:bytes} after {lasted:seconds}"
            f"{which}",
            grown=grown,
            before=before,
            after=after,
            lasted=times[-1] - times[0],
            results=results,
            earlier=earlier,
            collected=collected,
        ),
        "look for caches, globals and growing lists in tasks; reduce results before tasks return "
        "them; on Linux, the allocator may retain freed memory (MALLOC_TRIM_THRESHOLD_)",
        where_of_intervals(times[:1], times[-1:]),
    )


def _readings(
    recording: Recording, times: FloatArray, sizes: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Times at which memory was read while a computation ran, and the bytes of all processes.

    A short program has few samples. If the program has many computations, readings between tasks do
    as well.
    """
    samples = recording.resources
    samples = samples.filter(running_computations(recording.computations, samples.time) > 0)
    if len(samples) < FEWEST_READINGS:
        return times, sizes
    return samples.time, samples.memory + samples.memory_children


def _rise(recording: Recording, times: FloatArray, sizes: FloatArray) -> tuple[float, bool]:
    """Bytes by which memory without cached results grew from part to part, and whether steadily.

    Minima of the parts are compared: memory in use even when little was needed. Medians must rise,
    too.
    """
    memory = sizes - np.nan_to_num(cached_at(recording, times))
    parts = np.array_split(memory, PARTS)
    # One large task would raise a mean, and not a minimum or a median.
    floors = np.array([part.min() for part in parts])
    rise = float(floors[-1] - floors[0])
    is_steady = (np.diff(floors) > STEADY * rise).all() and floors[-1] - floors[1] >= LATER * rise
    # Of few readings minima may rise by chance, as tasks come and go.
    usual = np.array([np.median(part) for part in parts])
    return rise, bool(is_steady and (np.diff(usual) > 0).all())


WORTH_REPORTING = 0.05
"""Least share of the time of the cluster's threads that is lost."""
LESS_MEMORY = (
    "use smaller chunks or fewer threads per worker, and release futures that are not needed "
    "(persist keeps all chunks; dask.compute(a, b) makes, uses and drops them); or give each "
    "worker more memory: Client(n_workers=..., memory_limit=...)"
)


class _Events(NamedTuple):
    """Events while computations ran, their seconds, and the share of the time of all threads.

    `gain` is the time that the threads of the workers lost.
    """

    rows: WorkerEvents
    lasted: float
    share: float
    gain: Gain
    where: FindingLocation

    @property
    def workers(self) -> int:
        """Number of workers that had any."""
        return len(self.where.workers)


@rule("spilling", needs=("worker_events",))
def spilling(analysis: Analysis) -> Diagnosis | None:
    """Event loops of workers wrote results to disk and read them back."""
    table = analysis.recording.worker_events
    events = _events_while_computing(analysis, table.filter(~table.event.eq(WorkerEvent.PAUSED)))
    if events.share < WORTH_REPORTING:
        return None
    written, read = (
        events.rows.bytes[events.rows.event.eq(event)].sum()
        for event in (WorkerEvent.DISK_WRITE, WorkerEvent.DISK_READ)
    )
    return Diagnosis(
        severity_of(events.share),
        events.gain,
        evidence(
            "{workers:worker} spilled {written:bytes} of results to disk and read {read:bytes} "
            "back, in {lasted:seconds}. A worker starts no task and sends no result while it "
            "spills; its idle threads waited {waited:seconds}",
            workers=events.workers,
            written=written,
            read=read,
            lasted=events.lasted,
            waited=analysis.spent(Activity.SPILL),
        ),
        LESS_MEMORY,
        events.where,
    )


@rule("memory-pressure", needs=("worker_events",))
def memory_pressure(analysis: Analysis) -> Diagnosis | None:
    """Workers started no tasks, as memory was nearly used up."""
    table = analysis.recording.worker_events
    events = _events_while_computing(analysis, table.filter(table.event.eq(WorkerEvent.PAUSED)))
    if events.share < WORTH_REPORTING:
        return None
    return Diagnosis(
        severity_of(events.share),
        events.gain,
        evidence(
            "{workers:worker} paused for {lasted:seconds} in all ({share:share} of worker time), "
            "because memory use was above distributed.worker.memory.pause. A paused worker starts "
            "no tasks",
            workers=events.workers,
            lasted=events.lasted,
            share=events.share,
        ),
        LESS_MEMORY,
        events.where,
    )


def _events_while_computing(analysis: Analysis, events: WorkerEvents) -> _Events:
    """Parts of events during computations of the same cluster."""
    computations, workers = analysis.computations, analysis.recording.workers
    lasted = np.zeros(len(events))
    for cluster, start, stop in zip(
        computations.cluster.tolist(), computations.start, computations.stop, strict=True
    ):
        inside = np.clip(events.stop, start, stop) - np.clip(events.start, start, stop)
        lasted += np.where(events.computation.eq(cluster), inside, 0.0)
    # Two computations may run at a time.
    lasted = np.minimum(lasted, events.stop - events.start)
    threads = lookup(workers.worker, workers.threads)
    times = np.array([threads.get(name, 1) for name in events.worker.tolist()], float)
    is_some = lasted > 0
    rows, lost = events.filter(is_some), float((lasted * times).sum())
    lasted = lasted[is_some]
    where = FindingLocation(
        merged_intervals(rows.start, rows.stop), largest(rows.worker, lasted, None)
    )
    share, gain = analysis.share_of_workers(lost), Gain(lost / analysis.workers)
    return _Events(rows, float(lasted.sum()), share, gain, where)
