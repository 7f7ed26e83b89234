"""The longest chain of tasks that waited for one another, and how much the others could slip."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.columns import Array, Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["CriticalPath", "critical_path"]


@dataclass(frozen=True)
class CriticalPath:
    """The longest chains of a recording's computations, by measured seconds.

    The seconds are those measured: of tasks that hindered each other they are more than they would
    be on workers without end.

    Attributes
    ----------
    computations : Table
        A row per computation that ran tasks: ``computation``, ``wall`` (s), ``length`` of its
        longest chain
        (s), ``max_speedup`` (``wall / length``: what workers without end could give at most),
        ``work``
        (s, of all tasks), ``workers``.
    tasks : Table
        A row per task on such a chain, in order: ``task`` (position in `Recording.tasks`),
        ``key``, ``function``, ``computation``, ``seconds``.
    functions : Table
        The functions of those tasks, the longest first: ``function``, ``tasks``, ``seconds``,
        ``share`` (of the length).
    slack : array of float, shape (tasks,)
        Seconds by which each task of the recording could take longer before its computation's
        longest
        chain does; NaN for tasks of which it is not known how long they took.
    """

    computations: Table
    tasks: Table
    functions: Table
    slack: Array

    @property
    def length(self) -> float:
        """Seconds of the longest chains of all computations together."""
        return float(self.computations["length"].sum()) if len(self.computations) else 0.0

    def __str__(self) -> str:
        return f"{self.computations}\n\n{self.functions}"

    def _repr_html_(self) -> str:
        return self.computations._repr_html_() + self.functions._repr_html_()


def critical_path(recording: Recording) -> CriticalPath:
    """Find the longest chain of each computation through its tasks' dependencies.

    Parameters
    ----------
    recording : Recording

    Returns
    -------
    CriticalPath

    Raises
    ------
    DiagnosticError
        If tasks need each other in a circle.
    """
    expect_recording(recording)
    tasks = recording.tasks
    if not len(tasks):
        return CriticalPath(Table({}), Table({}), Table({}), np.zeros(0))
    took = tasks["stop"] - tasks["start"]
    known = np.nan_to_num(np.maximum(took, 0.0))
    before, after, longest_need = _longest_chains(recording, known)
    through = before + known + after
    slack = np.full(len(tasks), np.nan)
    computations: list[dict[str, Any]] = []
    on_path: list[int] = []
    rows_of = rows_by(tasks["computation"])
    for computation in recording.computations.to_dicts():
        rows = rows_of.get(computation["computation"])
        if rows is None or not len(rows):
            continue
        last = rows[np.argmax((before + known)[rows])]
        length, wall = float((before + known)[last]), computation["stop"] - computation["start"]
        slack[rows] = length - through[rows]
        on_path += _chain_to(int(last), longest_need)
        computations.append(
            {
                "computation": computation["computation"],
                "wall": wall,
                "length": length,
                "max_speedup": wall / length if length else float("nan"),
                "work": float(known[rows].sum()),
                "workers": computation["workers"],
            }
        )
    slack[np.isnan(took)] = np.nan
    path = _path_table(recording, np.array(on_path, dtype=np.int64), known)
    return CriticalPath(_computes_table(computations), path, _by_function(path), slack)


def _longest_chains(recording: Recording, seconds: Array) -> tuple[Array, Array, list[int]]:
    """Seconds of the longest chain before and after each task, and which need is last before it."""
    before, after = [0.0] * len(seconds), [0.0] * len(seconds)
    longest_need = [-1] * len(seconds)
    dependencies = recording.dependencies
    if len(dependencies):
        takes = seconds.tolist()
        rank = _ranks(len(seconds), dependencies["task"], dependencies["depends_on"])
        # A task's chain is final once all edges into it have been seen: edges in order of its rank.
        forward = np.argsort(rank[dependencies["task"]], kind="stable")
        edges = zip(
            dependencies["task"][forward].tolist(),
            dependencies["depends_on"][forward].tolist(),
            strict=True,
        )
        for task, need in edges:
            reached = before[need] + takes[need]
            if reached > before[task] or longest_need[task] < 0:
                before[task] = reached
                longest_need[task] = need
        backward = np.argsort(-rank[dependencies["depends_on"]], kind="stable")
        edges = zip(
            dependencies["task"][backward].tolist(),
            dependencies["depends_on"][backward].tolist(),
            strict=True,
        )
        for task, need in edges:
            left = after[task] + takes[task]
            after[need] = max(after[need], left)
    return np.array(before), np.array(after), longest_need


def _ranks(rows: int, task: Array, dependencies: Array) -> Array:
    """A number for each task that is larger than those of all tasks it dependencies."""
    if (dependencies < task).all():
        # Schedulers that submit a task when it can be run record them in such an order.
        return np.arange(rows)
    order = np.argsort(dependencies, kind="stable")
    cuts = np.searchsorted(dependencies[order], np.arange(rows + 1)).tolist()
    dependents = task[order].tolist()
    waiting = np.bincount(task, minlength=rows).tolist()
    ready = [row for row in range(rows) if not waiting[row]]
    for row in ready:
        for dependent in dependents[cuts[row] : cuts[row + 1]]:
            waiting[dependent] -= 1
            if not waiting[dependent]:
                ready.append(dependent)
    if len(ready) < rows:
        raise DiagnosticError(
            f"expected dependencies without cycles, found {rows - len(ready)} tasks in or after a "
            "cycle; this recording's dependencies are damaged"
        )
    ranks = np.empty(rows, dtype=np.int64)
    ranks[ready] = np.arange(rows)
    return ranks


def _chain_to(last: int, longest_need: list[int]) -> list[int]:
    chain = []
    while last >= 0:
        chain.append(last)
        last = longest_need[last]
    return chain[::-1]


def _computes_table(computations: list[dict[str, Any]]) -> Table:
    if not computations:
        return Table({})
    names = Categorical.of(row["computation"] for row in computations)
    numbers = {name: np.array([row[name] for row in computations]) for name in computations[0]}
    return Table({**numbers, "computation": names})


def _path_table(recording: Recording, path: Array, seconds: Array) -> Table:
    chosen = recording.tasks.rows(path)
    names = {name: chosen[name] for name in ("key", "function", "computation")}
    return Table({"task": path, **names, "seconds": seconds[path]})


def _by_function(path: Table) -> Table:
    function: Categorical = path["function"]
    sums = np.bincount(function.codes, path["seconds"], minlength=len(function.values))
    counts = np.bincount(function.codes, minlength=len(function.values))
    order = np.flatnonzero(counts)
    order = order[np.argsort(-sums[order], kind="stable")]
    whole = sums.sum() or 1.0
    return Table(
        {
            "function": Categorical(order, function.values),
            "tasks": counts[order],
            "seconds": sums[order],
            "share": sums[order] / whole,
        }
    )
