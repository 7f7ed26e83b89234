"""What a page shows of a pinned task beyond its rectangle: what it waited for, and its result.

Tasks are numbered as they are drawn: lane by lane, in order of time.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dask_diag.analysis.last_dependencies import last_dependencies
from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.model.recording import Recording
from dask_diag.views.plots.binary_columns import Packed, pack, size_in_page
from dask_diag.views.plots.tasks.columns import TasksInLanes

__all__ = ["Details", "details_of", "packed_details"]

_LONGEST = 50
"""Tasks whose details are in every page: the report's table of the longest has as many."""
_MOST_ROWS = 1000
"""Tasks with details where not all of them fit."""


@dataclass(frozen=True)
class Details:
    """Of each task the number of its dependency that stopped last, or -1; and its result's bytes.

    Bytes are NaN where they were not measured, `duration` is in seconds.
    """

    last: IntArray
    nbytes: FloatArray
    duration: FloatArray


def details_of(recording: Recording, ordered: TasksInLanes) -> Details:
    """The details of tasks that are in order."""
    # Of -1, which is no task, the number is the last one: -1 again.
    number = np.full(len(recording.tasks) + 1, -1, np.int64)
    number[ordered.row] = np.arange(len(ordered))
    last = number[last_dependencies(recording)[ordered.row]]
    nbytes = np.asarray(recording.tasks.nbytes)[ordered.row]
    return Details(last, nbytes, ordered.stop - ordered.start)


def packed_details(details: Details, most_bytes: float = np.inf) -> Packed:
    """The details of all tasks if they take at most so many bytes, else of the longest ones.

    There are ``back``, how many numbers a task comes after its last dependency (0 if it has none),
    and ``size``, one more than the bytes of its result (0 if they are not known). With ``step``
    they are of some tasks only: each is so many numbers after the one before.
    """
    # Two bytes a task are the least that dependencies on other lanes take.
    if 2 * len(details.last) <= most_bytes:
        everything = pack(_columns(details, np.arange(len(details.last))))
        if size_in_page(everything) <= most_bytes:
            return everything
    chosen = _longest_with_paths(details)
    return pack({"step": np.diff(chosen, prepend=0), **_columns(details, chosen)})


def _columns(details: Details, chosen: IntArray) -> dict[str, Array]:
    last, nbytes = details.last[chosen], details.nbytes[chosen]
    size = np.where(np.isnan(nbytes), 0, np.nan_to_num(nbytes) + 1)
    return {"back": np.where(last < 0, 0, chosen - last), "size": size.astype(np.int64)}


def _longest_with_paths(details: Details) -> IntArray:
    """The numbers of the longest tasks, and of those on the paths that led to them."""
    step = np.argsort(-details.duration, kind="stable")[:_LONGEST]
    chosen = step
    # All paths one step back at a time: where not all fit, each has about as many.
    while len(step):
        before = details.last[step]
        step = np.setdiff1d(before[before >= 0], chosen)[: _MOST_ROWS - len(chosen)]
        chosen = np.concatenate([chosen, step])
    return np.sort(chosen)
