"""Trees as arrays: each node before what is below it, so that a subtree is a range of positions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np

from dask_diag.columns import Array

__all__ = ["depths", "preorder", "sums_below"]


def depths(parent: Sequence[int]) -> Array:
    """How many nodes are above each; `parent` is -1 for a root, else an earlier position."""
    found = [0] * len(parent)
    for node, above in enumerate(parent):
        if above >= 0:
            found[node] = found[above] + 1
    return np.array(found, dtype=np.int64)


def sums_below(parent: Array, depth: Array, values: Array) -> Array:
    """For each node the sum over it and all that is below it, column by column."""
    sums = values.astype(float)
    for level in _deepest_first(depth):
        if depth[level[0]] > 0:
            np.add.at(sums, parent[level], sums[level])
    return sums


def preorder(parent: Array, depth: Array, *keys: Array) -> tuple[Array, Array]:
    """The position of each node when it comes before what is below it, and where its subtree ends.

    Siblings are in the order of `keys`, the first of them most important, then in their own.
    """
    size = sums_below(parent, depth, np.ones(len(parent))).astype(np.int64)
    order = np.lexsort((*reversed(keys), parent))
    before = np.cumsum(size[order]) - size[order]
    first = np.concatenate([[True], np.diff(parent[order]) != 0])
    of_earlier_siblings = np.empty(len(parent), dtype=np.int64)
    of_earlier_siblings[order] = before - before[first][np.cumsum(first) - 1]
    position = of_earlier_siblings
    for level in reversed(list(_deepest_first(depth))):
        if depth[level[0]] > 0:
            position[level] += position[parent[level]] + 1
    return position, position + size


def _deepest_first(depth: Array) -> Iterator[Array]:
    """The nodes of each depth."""
    order = np.argsort(-depth, kind="stable")
    cuts = np.flatnonzero(np.diff(depth[order])) + 1
    return (level for level in np.split(order, cuts) if len(level))
