"""Fewer and larger tasks: what chunks that are several times as large would make of a graph."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.errors import DiagnosticError

__all__ = ["merged", "side_by_side"]

SUMMED = ("seconds", "cpu", "gil")


def merged(work: Work, functions: IntArray, factor: int) -> Work:
    """The work with every `factor` successive tasks of a function made one.

    Only tasks that are as many steps from the start of the graph are merged, since those cannot
    depend on each other. A merged task takes as long as its parts together, and is handed out once.
    A graph of fewer tasks is made and put in order in less time.

    Raises
    ------
    DiagnosticError
        If tasks depend on tasks that were submitted later.
    """
    if (work.depends_on >= work.task).any():
        raise DiagnosticError(
            "merge_tasks: expected tasks that were submitted after those they depend on; this "
            "recording's dependencies are damaged"
        )
    order, new = _levels(work, functions)
    ordinal = np.arange(len(work)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    groups = np.empty(len(work), np.int64)
    groups[order] = np.cumsum(ordinal % factor == 0) - 1
    # Numbered by their first parts, so that they are preferred in the recorded order.
    _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    groups = rank[groups]
    count = len(first)
    # One number for a pair: parts of a merged task may share a dependency, which then counts once.
    edges = np.unique(groups[work.task] * count + groups[work.depends_on])
    parts = np.bincount(groups)

    def sums(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(groups, values, minlength=count), float)

    columns: dict[str, Any] = {name: sums(getattr(work, name)) for name in SUMMED}
    # A merged task is handed out once, so it has the mean cost of its parts, not their sum.
    columns |= {name: sums(getattr(work, name)) / parts for name in STEPS}
    if work.cluster is not None:
        size, delay = sums(work.cluster.nbytes), sums(work.cluster.delay) / parts
        columns["cluster"] = replace(work.cluster, nbytes=size, delay=delay)
    columns |= {"task": edges // count, "depends_on": edges % count}
    return replace(
        work,
        rows=work.rows[np.sort(first)],
        scheduler_cpu=work.scheduler_cpu * count / len(work),
        graph=work.graph * count / len(work),
        before=work.before * count / len(work),
        **columns,
    )


def side_by_side(work: Work, functions: IntArray) -> int:
    """How many tasks of a function can be merged, at most: of the median task."""
    _, new = _levels(work, functions)
    sizes = np.diff(np.concatenate([np.flatnonzero(new), [len(work)]]))
    return int(np.median(np.repeat(sizes, sizes)))


def _levels(work: Work, functions: IntArray) -> tuple[IntArray, BoolArray]:
    """Tasks by level of the graph and function, and which of them is the first of its group."""
    depths = _depths(work)
    order = np.lexsort((np.arange(len(work)), functions, depths))
    new = np.ones(len(work), bool)
    new[1:] = (np.diff(depths[order]) != 0) | (np.diff(functions[order]) != 0)
    return order, new


def _depths(work: Work) -> IntArray:
    """How many tasks are on the longest way from the start of the graph to each."""
    depths = [0] * len(work)
    order = np.argsort(work.task, kind="stable")
    for task, need in zip(work.task[order].tolist(), work.depends_on[order].tolist(), strict=True):
        depths[task] = max(depths[task], depths[need] + 1)
    return np.array(depths)
