"""Where a finding is: when, on which workers, in which functions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.findings.function_names import WORTH_NAMING, top_functions
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording

__all__ = ["NOWHERE", "Where", "during", "merged_intervals", "where_of_tasks"]

MOST_INTERVALS = 20
"""Intervals of a finding at most: those that lie closest together become one."""

Intervals = tuple[tuple[float, float], ...]


@dataclass(frozen=True)
class Where:
    """Where a finding is; what is empty is not known, or everywhere.

    Attributes
    ----------
    intervals : tuple of (float, float)
        When: start and stop in seconds of the recording's clock, as those of its tasks. In order,
        without overlap, and few: intervals that lie close together are joined.
    workers : tuple of str
        Names of workers, that with most of it first.
    functions : tuple of str
        Names of functions, that with most of it first.
    """

    intervals: Intervals = ()
    workers: tuple[str, ...] = ()
    functions: tuple[str, ...] = ()


NOWHERE = Where()


def where_of_tasks(recording: Recording, weights: FloatArray | BoolArray) -> Where:
    """Where tasks are: `weights` has a number for each, 0 or NaN for those without a part in it."""
    tasks = recording.tasks
    filled: FloatArray = np.nan_to_num(np.asarray(weights, float))
    rows = np.flatnonzero(filled > 0)
    sums = np.bincount(tasks.worker.codes, filled, minlength=len(tasks.worker.values))
    order = np.argsort(-sums, kind="stable")
    return Where(
        merged_intervals(tasks.start[rows], tasks.stop[rows]),
        tuple(tasks.worker.values[n] for n in order if sums[n] >= WORTH_NAMING * sums.sum() > 0),
        tuple(top_functions(recording, filled)),
    )


def during(starts: FloatArray, stops: FloatArray) -> Where:
    """Only when."""
    return Where(merged_intervals(np.asarray(starts, float), np.asarray(stops, float)))


def merged_intervals(starts: FloatArray, stops: FloatArray) -> Intervals:
    """What these intervals cover together, as few; intervals that are not known are left out."""
    is_known = stops > starts
    order = np.argsort(starts[is_known], kind="stable")
    starts, stops = starts[is_known][order], np.maximum.accumulate(stops[is_known][order])
    if not len(starts):
        return ()
    gaps = starts[1:] - stops[:-1]
    widest = np.zeros(len(gaps), bool)
    widest[np.argsort(-gaps, kind="stable")[: MOST_INTERVALS - 1]] = True
    separate = widest & (gaps > 0)
    starts = starts[np.concatenate([[True], separate])]
    stops = stops[np.concatenate([separate, [True]])]
    return tuple(zip(starts.tolist(), stops.tolist(), strict=True))
