"""Calls too short for any screen, merged: a page of very many calls stays small."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.sample_measures import MEASURES
from dask_diag.analysis.tree_arrays import preorder
from dask_diag.columns import Array, BoolArray, Categorical, IntArray
from dask_diag.formatting import count
from dask_diag.model.table import Table

__all__ = ["SHORT_CALLS", "about_short_calls", "merge_short_calls"]

SHORT_CALLS = "(short calls)"
_UNITS = ("wall", "cpu", "waiting")
"""What the page can draw as width."""
_MOST_CALLS = 20_000
"""Up to so many all are in the page."""
_LEAST_SHARE = 0.5 / 3840
"""Of all: half a pixel of a wide screen, as little as the page draws."""


def merge_short_calls(
    nodes: Table, node_of_sample: IntArray, is_missing: BoolArray
) -> tuple[Table, IntArray, int]:
    """Merge what is short below each call into one, if a tree has very many calls.

    Parameters
    ----------
    nodes : Table
        As `dask_diag.analysis.call_tree.tree_and_nodes` returns them.
    node_of_sample : array of int
        The node of each sample, or -1.
    is_missing : array of bool
        Which nodes represent time that was not sampled: the page counts them.

    Returns
    -------
    nodes : Table
        The same, with a node called `SHORT_CALLS` in place of what was merged below one call.
    node_of_sample : array of int
    merged : int
        How many nodes were merged. Seconds add up as before.
    """
    named = _are_shown(nodes) | (nodes["depth"] <= 2) | is_missing
    if len(nodes) <= _MOST_CALLS or named.all():
        return nodes, node_of_sample, 0
    above = _nearest(named, nodes["parent"])
    callers, caller = np.unique(above[~named], return_inverse=True)
    old = np.flatnonzero(named)
    row_of = np.full(len(nodes), -1, dtype=np.int64)
    row_of[old] = np.arange(len(old))
    row_of[~named] = len(old) + caller.reshape(-1)
    # Of each row: its caller's row, with the merged ones last.
    parent = np.concatenate([row_of[nodes["parent"][old]], row_of[callers]])
    parent[0] = -1
    depth = np.concatenate([nodes["depth"][old], nodes["depth"][callers] + 1])
    position, end = preorder(parent, depth, np.arange(len(parent)))
    order = np.argsort(position)
    parent = np.concatenate([nodes["parent"][:1], position[parent[order][1:]]])
    columns: dict[str, Array | Categorical] = {
        "parent": parent,
        "depth": depth[order],
        "end": end[order],
    }
    rows = nodes.rows(np.concatenate([old, callers])[order])
    is_merged = order >= len(old)
    for name in ("name", "file"):
        columns[name] = _renamed(rows[name], is_merged, SHORT_CALLS if name == "name" else "")
    columns["first_line"] = np.where(is_merged, 0, rows["first_line"])
    for measure in MEASURES:
        sums = np.bincount(caller.reshape(-1), nodes[measure][~named], len(callers))
        for name in (measure, f"total_{measure}"):
            columns[name] = np.concatenate([nodes[name][old], sums])[order]
    new = np.where(node_of_sample >= 0, position[row_of[node_of_sample]], -1)
    return Table(columns), new, int((~named).sum())


def about_short_calls(merged: int) -> str:
    """What a page says of what was merged."""
    return (
        f"{count(merged)} calls of less than half a pixel of a wide screen each are merged: below "
        f"each caller they are one call, {SHORT_CALLS}."
    )


def _are_shown(nodes: Table) -> BoolArray:
    """Which nodes have a share that a screen can show, in any of the units of width."""
    totals = [nodes[f"total_{unit}"] for unit in _UNITS]
    shown = [total >= _LEAST_SHARE * total[0] for total in totals if total[0] > 0]
    return np.any(shown, axis=0) if shown else np.ones(len(nodes), dtype=bool)


def _nearest(named: BoolArray, parent: Array) -> IntArray:
    """For each node the nearest that is not merged: itself, or a caller."""
    nearest = list(range(len(named)))
    for node, above in enumerate(parent.tolist()):
        if not named[node]:
            nearest[node] = nearest[above]
    return np.array(nearest, dtype=np.int64)


def _renamed(names: Categorical, rows: BoolArray, name: str) -> Categorical:
    """The same column with another value in some rows."""
    values = (*names.values, name) if name not in names.values else tuple(names.values)
    return Categorical(np.where(rows, values.index(name), names.codes), values)
