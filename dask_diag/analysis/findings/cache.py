"""The finding on results that the scheduler caches and memory that is nearly used up."""

from __future__ import annotations

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import MEASURED, Finding
from dask_diag.analysis.findings.function_names import MOST_NAMED, in_words
from dask_diag.analysis.findings.where import Where, during
from dask_diag.formatting import BYTES, percent, size

__all__ = ["cache_pressure"]

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
