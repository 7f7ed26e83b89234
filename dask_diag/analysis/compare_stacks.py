"""The calls of two recordings as one tree."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.call_tree import tree
from dask_diag.analysis.tree_arrays import depths, preorder, sums_below
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["merged_tree"]

_SIDES = ("before", "after")
Call = tuple[int, str, str]
"""The node of the caller, and the name and file of what it called; code may move in its file."""


def merged_tree(before: Recording, after: Recording) -> Table:
    """A node for each chain of calls that was sampled in either.

    Returns
    -------
    Table
        ``parent``, ``depth``, ``end``, ``name``, ``file``, ``first_line`` as in
        `dask_diag.analysis.call_tree.tree`; of ``before`` and ``after`` the seconds of self time,
        and as ``total_before`` and ``total_after`` with what it called; ``count`` (samples of
        both). Callees are in order of the sum of both.
    """
    nodes: dict[Call, int] = {}
    lines: list[int] = []
    own: list[list[float]] = []
    for side, recording in enumerate((before, after)):
        node_of_row: list[int] = []
        for row in tree(recording).to_dicts():
            above = node_of_row[row["parent"]] if row["parent"] >= 0 else -1
            call = above, row["name"], row["file"]
            node = nodes.setdefault(call, len(nodes))
            if node == len(lines):
                lines.append(row["first_line"])
                own.append([0.0, 0.0, 0.0])
            own[node][side] += row["wall"]
            own[node][-1] += row["count"]
            node_of_row.append(node)
    parent = np.array([above for above, _, _ in nodes], dtype=np.int64)
    depth = depths(parent.tolist())
    numbers = np.array(own)
    totals = sums_below(parent, depth, numbers)
    position, end = preorder(parent, depth, -totals[:, :2].sum(axis=1))
    order = np.argsort(position)
    calls = list(nodes)
    return Table(
        {
            "parent": np.concatenate([[-1], position[parent[order][1:]]]),
            "depth": depth[order],
            "end": end[order],
            "name": Categorical.of(calls[node][1] for node in order.tolist()),
            "file": Categorical.of(calls[node][2] for node in order.tolist()),
            "first_line": np.array(lines, dtype=np.int64)[order],
            "count": numbers[order, -1],
            **{name: numbers[order, side] for side, name in enumerate(_SIDES)},
            **{f"total_{name}": totals[order, side] for side, name in enumerate(_SIDES)},
        }
    )
