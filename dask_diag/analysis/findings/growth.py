"""The finding on memory that is not released."""

from __future__ import annotations

from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import MEASURED, Finding
from dask_diag.analysis.findings.where import during
from dask_diag.analysis.memory_baseline import cached_at, memory_at_rest, returned_by
from dask_diag.analysis.step_functions import running_computations
from dask_diag.columns import FloatArray
from dask_diag.formatting import seconds, size
from dask_diag.model.recording import Recording

__all__ = ["memory_growth"]

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
