"""Findings on what is not time: memory, failures, and numbers that are worse than they look."""

from __future__ import annotations

from math import isnan

import numpy as np

from dask_diag.analysis.findings.facts import Facts
from dask_diag.analysis.findings.finding import Finding, severity_of_share
from dask_diag.recording import Recording
from dask_diag.table import Table
from dask_diag.units import is_size, size

__all__ = ["failed_tasks", "memory_growth", "sampler_late"]

GROWN = 100e6
"""Bytes of growth from which on it is told."""
LATE = 0.25
"""Seconds by which a sample may be late."""


def failed_tasks(facts: Facts) -> Finding | None:
    """Tasks that raised."""
    tasks = facts.recording.tasks
    failed = np.flatnonzero(tasks["outcome"].where("failed")) if len(tasks) else np.zeros(0, int)
    if not len(failed):
        return None
    first = tasks.rows(slice(int(failed[0]), int(failed[0]) + 1)).to_dicts()[0]
    seconds = float(facts.seconds_of_tasks[failed].sum())
    several = "1 task" if len(failed) == 1 else f"{len(failed):,} tasks"
    return Finding(
        "failed-tasks",
        "high",
        seconds / facts.workers,
        f"{several} failed after {seconds:.3g} s, the first {first['key']} of "
        f"{first['function']} with {first['error']}",
        "run that task alone to see why: compute with scheduler='synchronous' and a debugger",
    )


def memory_growth(facts: Facts) -> Finding | None:
    """Memory that grows all the time and is not given back."""
    samples = _samples_in_computes(facts.recording)
    if len(samples) < 8:
        return None
    memory = samples["memory"] + samples["memory_children"]
    parts = np.array_split(memory, 4)
    # The least of each part: what was there even when little was needed.
    floors = np.array([part.min() for part in parts])
    last = float(samples["time"][-1])
    held, returned = _held_and_returned(facts.recording, last)
    grown = float(floors[-1] - floors[0]) - np.nan_to_num(held)
    steady = bool((np.diff(floors) > 0.1 * (floors[-1] - floors[0])).all())
    worth_telling = max(GROWN, 0.2 * floors[0])
    if not steady or grown < worth_telling:
        return None
    severity, which = "high" if grown > 1e9 else "medium", "beside results that are held"
    if isnan(held + returned):
        severity, which = "low", "it is not known how much of it is results: CacheProfiler tells"
    elif grown - returned < worth_telling:
        severity, which = "low", f"{size(returned)} of it may be what computes returned before"
    lasted = last - float(samples["time"][0])
    return Finding(
        "memory-growth",
        severity,
        float("nan"),
        f"memory that is not given back grew by {size(grown)}, from {size(floors[0])} to "
        f"{size(floors[-1])}, in {lasted:.3g} s, all the time ({which})",
        "look for what tasks keep (caches, globals, lists that grow); what a compute returns is "
        "kept, too: reduce it first; on Linux allocators may keep memory (MALLOC_TRIM_THRESHOLD_)",
    )


def _samples_in_computes(recording: Recording) -> Table:
    """The samples of resources that were taken while a compute ran."""
    samples, computes = recording.resources, recording.computes
    if not len(samples) or not len(computes):
        return samples
    time = samples["time"]
    within = np.zeros(len(samples), dtype=bool)
    for start, stop in zip(computes["start"].tolist(), computes["stop"].tolist(), strict=True):
        within |= (time >= start) & (time <= stop)
    return samples.rows(within)


def _held_and_returned(recording: Recording, moment: float) -> tuple[float, float]:
    """Bytes that the scheduler held then, and that computes had returned before; NaN: not known."""
    cache = recording.cache
    if not is_size(recording.metric):
        return float("nan"), float("nan")
    if not len(cache):
        return 0.0, 0.0
    held = (cache["start"] <= moment) & (cache["stop"] >= moment)
    compute = cache["compute"].codes
    ends = np.full(len(cache["compute"].values), -np.inf)
    np.maximum.at(ends, compute, cache["stop"])
    # What a compute returns is let go at its very end.
    returned = (cache["stop"] == ends[compute]) & (cache["stop"] < moment)
    return float(cache["metric"][held].sum()), float(cache["metric"][returned].sum())


def sampler_late(facts: Facts) -> Finding | None:
    """Samples of resources that came late, between which anything may have happened."""
    samples = facts.recording.resources
    if len(samples) < 3:
        return None
    late = np.nan_to_num(samples["late"])
    delayed = late > LATE
    if not delayed.any():
        return None
    return Finding(
        "sampler-late",
        severity_of_share(float(delayed.mean()) / 2),
        float("nan"),
        f"{int(delayed.sum())} of {len(samples)} samples of resources were late, the worst by "
        f"{late.max():.3g} s: a task kept the interpreter's lock (GIL) all that time, or the "
        "machine was too busy; peaks between samples are not seen",
        "take memory and CPU between late samples with care; see which tasks ran then in the task "
        "plot: code that keeps the lock for so long also stops all other threads",
    )
