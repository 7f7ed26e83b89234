"""What the tasks of each function took."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np

from dask_diag.columns import Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import count
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["by_function", "expect_functions"]

_LISTED = 10


def by_function(recording: Recording) -> Table:
    """A row per function, the longest in all first.

    Returns
    -------
    Table
        ``function``; ``tasks``, ``failed`` and ``unfinished`` (counts); ``wall``, ``thread_cpu``,
        ``thread_noncpu`` and ``longest`` (seconds, of the tasks whose times are known; NaN where
        there are none).
    """
    tasks = recording.tasks
    if not len(tasks):
        return Table({})
    function: Categorical = tasks["function"]
    wall = tasks["stop"] - tasks["start"]
    columns: dict[str, Any] = {
        "tasks": _count(function, np.ones(len(tasks), bool)),
        "failed": _count(function, tasks["outcome"].where("failed")),
        "unfinished": _count(function, tasks["outcome"].where("unfinished")),
        "wall": _sum(function, wall),
        "thread_cpu": _sum(function, tasks["thread_cpu"]),
        "thread_noncpu": _sum(function, tasks["thread_noncpu"]),
        "longest": _largest(function, wall),
    }
    present = columns["tasks"] > 0
    order = np.flatnonzero(present)
    order = order[np.argsort(-np.nan_to_num(columns["wall"][order]), kind="stable")]
    names = Categorical(order, function.values)
    return Table({"function": names, **{name: column[order] for name, column in columns.items()}})


def _count(labels: Categorical, chosen: Any) -> Any:
    return np.bincount(labels.codes[chosen], minlength=len(labels.values))


def _sum(labels: Categorical, seconds: Any) -> Any:
    known = ~np.isnan(seconds)
    sums = np.bincount(labels.codes[known], seconds[known], minlength=len(labels.values))
    return np.where(_count(labels, known) > 0, sums, np.nan)


def _largest(labels: Categorical, seconds: Any) -> Any:
    largest = np.full(len(labels.values), np.nan)
    np.fmax.at(largest, labels.codes, seconds)
    return largest


def expect_functions(asked: Any, labels: Categorical, argument: str) -> list[str]:
    """The functions that are asked for, each of which labels a row.

    Raises
    ------
    DiagnosticError
        If `asked` is no collection of names, or one of them labels none.
    """
    if not isinstance(asked, Iterable):
        raise DiagnosticError(f"{argument}: expected names of functions, found {asked!r}")
    present = [labels.values[code] for code in np.unique(labels.codes).tolist()]
    names: list[str] = list(asked)
    for name in names:
        if name not in present:
            listed = ", ".join(map(repr, present[:_LISTED]))
            more = f" and {count(len(present) - _LISTED)} more" if len(present) > _LISTED else ""
            expected = f"one of {listed}{more}" if present else "no function (there are no tasks)"
            raise DiagnosticError(f"{argument}: expected {expected}, found {name!r}")
    return names
