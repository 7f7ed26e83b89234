"""Trees as arrays: each node before its descendants, so that a subtree is a range of positions.

Sums and positions are computed level by level: a loop over thousands of nodes in Python would be
slow, and recursion would fail for stacks that are deeper than Python's own limit.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
import numpy.typing as npt

from dask_diag.columns import FloatArray, IntArray

__all__ = ["depths", "preorder", "sums_below"]


def depths(parent: Sequence[int]) -> IntArray:
    """How many nodes are above each; `parent` is -1 for a root, else an earlier position."""
    depth = [0] * len(parent)
    for node, above in enumerate(parent):
        if above >= 0:
            depth[node] = depth[above] + 1
    return np.array(depth, dtype=np.int64)


def sums_below(parent: IntArray, depth: IntArray, values: FloatArray) -> FloatArray:
    """For each node the sum over it and all that is below it, column by column."""
    sums = values.astype(float)
    # When a level is added to its parents, it has the sums of all below it already.
    for level in _deepest_first(depth):
        if depth[level[0]] > 0:
            np.add.at(sums, parent[level], sums[level])
    return sums


def preorder(
    parent: IntArray, depth: IntArray, *keys: npt.NDArray[np.generic]
) -> tuple[IntArray, IntArray]:
    """The position of each node when it comes before its descendants, and where its subtree ends.

    Siblings are in the order of `keys`, the first of them most important, then in their own.
    """
    size = sums_below(parent, depth, np.ones(len(parent))).astype(np.int64)
    order = np.lexsort((*reversed(keys), parent))
    # A node starts after its parent and the subtrees of its earlier siblings.
    before = np.cumsum(size[order]) - size[order]
    # The running sum goes on from one family to the next: less its value at the first sibling.
    first = np.concatenate([[True], np.diff(parent[order]) != 0])
    of_earlier_siblings = np.empty(len(parent), dtype=np.int64)
    of_earlier_siblings[order] = before - before[first][np.cumsum(first) - 1]
    position = of_earlier_siblings
    for level in reversed(list(_deepest_first(depth))):
        if depth[level[0]] > 0:
            position[level] += position[parent[level]] + 1
    return position, position + size


def _deepest_first(depth: IntArray) -> Iterator[IntArray]:
    """The nodes of each depth, the deepest first."""
    order = np.argsort(-depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    return (level for level in np.split(order, cuts) if len(level))
