"""Where the wall time of a recording went: before, between and after computations, and in them."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.columns import BoolArray, Categorical, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.schema import PHASES

__all__ = ["first_starts", "phase_intervals", "phases"]


def phases(recording: Recording) -> Table:
    """Divide the wall time of a recording among phases.

    The seconds sum to ``recording.stop - recording.start``. Where computations overlap, time is
    `preparing` only while none of them ran tasks.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Table
        A row per phase of `dask_diag.schema.PHASES`, in that order: columns ``phase`` and
        ``seconds``.
    """
    intervals = phase_intervals(recording)
    seconds = intervals["stop"] - intervals["start"]
    of_phase = [float(seconds[intervals["phase"].where(phase)].sum()) for phase in PHASES]
    return Table({"phase": Categorical.of(PHASES), "seconds": np.array(of_phase)})


def phase_intervals(recording: Recording) -> Table:
    """The intervals of time of each phase, in order and without gaps.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    Table
        Columns ``phase``, ``start`` and ``stop``, seconds as in the recording's tables.
    """
    computations = recording.computations
    called, first, stop = (
        np.clip(times, recording.start, recording.stop)
        for times in (call_times(computations), first_starts(recording), computations.stop)
    )
    edges = np.unique(np.concatenate([[recording.start, recording.stop], called, first, stop]))
    starts, stops = edges[:-1], edges[1:]
    in_tasks = _covered(starts, first, stop)
    preparing = _covered(starts, called, first)
    before = stops <= called.min(initial=np.inf)
    after = starts >= stop.max(initial=-np.inf)
    # Without a computation all is before the first.
    phase = np.select(
        [in_tasks, preparing, before, after], ["tasks", "preparing", "before", "after"], "between"
    )
    change = np.append(True, phase[1:] != phase[:-1]) if len(phase) else np.zeros(0, dtype=bool)
    last = np.append(change[1:], True) if len(phase) else change
    return Table(
        {
            "phase": Categorical.of(phase[change].tolist()),
            "start": starts[change],
            "stop": stops[last],
        }
    )


def first_starts(recording: Recording) -> FloatArray:
    """When the first task of each computation started; its stop, if none is known to have.

    Where tasks were not recorded, they started when the graph was in order.
    """
    computations, tasks = recording.computations, recording.tasks
    if not len(tasks):
        return np.fmin(prepared_times(computations), computations.stop)
    first = np.array(computations.stop)
    rows_of = rows_by(tasks.computation)
    for index, name in enumerate(computations.computation.tolist()):
        if name in rows_of:
            first[index] = np.fmin.reduce(tasks.start[rows_of[name]], initial=first[index])
    return first


def _covered(moments: FloatArray, starts: FloatArray, stops: FloatArray) -> BoolArray:
    """Which of the sorted moments are in any of the intervals; of each the stop is outside."""
    changes = np.zeros(len(moments) + 1, dtype=np.int64)
    np.add.at(changes, np.searchsorted(moments, starts), 1)
    np.add.at(changes, np.searchsorted(moments, stops), -1)
    return np.asarray(np.cumsum(changes)[:-1] > 0)
