"""Which part of the time before tasks is not their graph's: it would pass whatever the graph."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.program_lines import is_import_or_profiler, late_samples
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.schema import Root

__all__ = ["not_of_graphs", "seconds_not_of_graphs"]


def not_of_graphs(recording: Recording) -> BoolArray:
    """Which samples of dask's preparations are of imports, and of profilers that start.

    dask imports modules when it is first called. What could not be sampled is one call that keeps
    the GIL, as where a library is loaded: Python gives it up every few milliseconds.
    """
    samples = recording.samples
    in_calls = samples.root.where(Root.GRAPH)
    is_seen = (samples.node >= 0) & ~late_samples(recording)
    return in_calls & (~is_seen | is_import_or_profiler(recording))


def seconds_not_of_graphs(recording: Recording) -> FloatArray:
    """What these samples represent, by the computation that was being prepared.

    None where stacks were not sampled: what was an import is not known then.
    """
    computations = recording.computations
    samples = recording.samples.rows(not_of_graphs(recording))
    middle = (samples.start + samples.stop) / 2
    order = np.argsort(middle)
    called, prepared = call_times(computations), prepared_times(computations)
    first, last = (np.searchsorted(middle[order], bound) for bound in (called, prepared))
    until: FloatArray = np.cumsum(np.concatenate([[0.0], samples.seconds[order]]))
    return until[last] - until[first]
