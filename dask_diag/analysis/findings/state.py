"""Findings on what is not time: memory, failures, and numbers that are worse than they look."""

from __future__ import annotations

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
    lasted = float(samples["time"][-1] - samples["time"][0])
    grown = float(floors[-1] - floors[0] - _held(facts.recording, float(samples["time"][-1])))
    steady = bool((np.diff(floors) > 0.1 * (floors[-1] - floors[0])).all())
    if not steady or grown < GROWN or grown < 0.2 * floors[0]:
        return None
    return Finding(
        "memory-growth",
        "high" if grown > 1e9 else "medium",
        float("nan"),
        f"memory that is not given back grew from {size(floors[0])} to "
        f"{size(floors[-1])} in {lasted:.3g} s, all the time",
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


def _held(recording: Recording, moment: float) -> float:
    """Bytes that the scheduler held then, if that was measured."""
    cache = recording.cache
    if not len(cache) or not is_size(recording.metric):
        return 0.0
    held = (cache["start"] <= moment) & (cache["stop"] >= moment)
    return float(np.nansum(cache["metric"][held]))


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
