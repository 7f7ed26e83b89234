"""Which part of the time before tasks is not their graph's: it would pass whatever the graph."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.program_lines import is_import_or_profiler, late_samples
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.analysis.transfers import Interval
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Root

__all__ = [
    "is_known_what_was_imported",
    "not_of_graphs",
    "seconds_not_of_graphs",
    "times_not_of_graphs",
]


_SHORT = 0.05
"""Seconds: what was not seen of a graph that took less had ended before a sample could be taken."""


def not_of_graphs(recording: Recording) -> BoolArray:
    """Which samples of dask's preparations are of imports, and of profilers that start.

    dask imports modules when it is first called. What could not be sampled is one call that keeps
    the GIL, as where a library is loaded: Python gives it up every few milliseconds.
    """
    imported, not_seen = _imported_and_not_seen(recording)
    return imported | not_seen


def _imported_and_not_seen(recording: Recording) -> tuple[BoolArray, BoolArray]:
    samples = recording.samples
    in_calls = samples.root.where(Root.GRAPH)
    if not in_calls.any():
        return in_calls, in_calls
    imported = in_calls & is_import_or_profiler(recording)
    is_seen = (samples.node >= 0) & ~late_samples(recording)
    return imported, in_calls & ~imported & ~is_seen


def is_known_what_was_imported(recording: Recording) -> bool:
    """Whether a stack was seen while dask prepared graphs: only these show what was imported.

    A graph that arrives at a cluster is made: nothing is imported for it there.
    """
    samples = recording.samples
    is_seen = samples.root.where(Root.GRAPH) & (samples.node >= 0)
    return bool(is_seen.any() or not recording.computations.cluster.where("").any())


def times_not_of_graphs(recording: Recording) -> list[Interval]:
    """When imports and the start of profilers kept dask from preparing, by computation.

    The samples of a cycle are put at its beginning, as dask imports modules before it uses them. No
    intervals where no stack was seen: what was an import is not known then.
    """
    computations = recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    is_long = prepared - called > _SHORT
    times: list[list[tuple[float, float]]] = [[] for _ in range(len(computations))]
    cycles = _cycles(recording) if is_known_what_was_imported(recording) else ()
    for start, stop, imported, not_seen in cycles:
        first = np.maximum(called, start)
        lasted = np.maximum(np.minimum(prepared, stop) - first, 0.0)
        # Of several computations that were prepared in one cycle each has its part.
        shared = max(float(lasted.sum()), imported + not_seen)
        took = lasted * (imported + not_seen * is_long) / shared
        for row in np.flatnonzero(took).tolist():
            times[row].append((float(first[row]), float(first[row] + took[row])))
    columns = [np.array(of_one, dtype=float).reshape(-1, 2).T for of_one in times]
    return [(starts, stops) for starts, stops in columns]


def seconds_not_of_graphs(recording: Recording) -> FloatArray:
    """For how long, by computation."""
    times = times_not_of_graphs(recording)
    return np.array([(stops - starts).sum() for starts, stops in times], dtype=float)


def _cycles(recording: Recording) -> Iterator[tuple[float, float, float, float]]:
    """Cycles with samples that are not of graphs: start, stop, seconds of imports and not seen."""
    samples = recording.samples
    both_kinds = _imported_and_not_seen(recording)
    rows = np.flatnonzero((both_kinds[0] | both_kinds[1]) & (samples.seconds > 0))
    bounds, cycle = np.unique(
        np.stack([samples.start[rows], samples.stop[rows]]), axis=1, return_inverse=True
    )
    cycle, weights = cycle.reshape(-1), samples.seconds[rows]
    seconds = [
        np.bincount(cycle, weights * kind[rows], minlength=bounds.shape[1]).tolist()
        for kind in both_kinds
    ]
    yield from zip(*bounds.tolist(), *seconds, strict=True)
