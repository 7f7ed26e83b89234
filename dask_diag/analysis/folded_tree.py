"""The tree of calls with the functions of libraries folded: what is left is the user's own code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.call_tree import NOT_SAMPLED, are_functions
from dask_diag.analysis.source_paths import is_standard_library, package_of, short_path
from dask_diag.analysis.tree_arrays import depths, preorder, sums_below
from dask_diag.columns import Categorical, IntArray
from dask_diag.model.table import Table

__all__ = ["STANDARD_LIBRARY", "folded_tree", "library_of"]

STANDARD_LIBRARY = "standard library"
_FOLDERS_OF_PACKAGES = ("/site-packages/", "/dist-packages/")
_STRUCTURE = ("parent", "depth", "end", "name", "file", "first_line")
_TOTAL = "total_"
Function = tuple[int, int, int]
"""Codes of its name and file, and its first line."""


def library_of(file: str) -> str:
    """The package that a source file was installed with; empty for the user's own code.

    Functions without a file are in no package: the user's code calls them by name.
    """
    path = file.replace("\\", "/")
    if any(folder in path for folder in _FOLDERS_OF_PACKAGES):
        return package_of(short_path(file)).removesuffix(".py")
    return STANDARD_LIBRARY if file and is_standard_library(file) else ""


def folded_tree(nodes: Table) -> tuple[Table, IntArray]:
    """Make each chain of calls within one library a single node.

    Parameters
    ----------
    nodes : Table
        As `dask_diag.analysis.call_tree.tree` returns them.

    Returns
    -------
    nodes : Table
        The same columns, and ``frames``: how many functions a node represents. One that represents
        several is called by the library and their number.
    folded : array of int
        For each row of the old table its row in the new one.
    """
    folding = _Folding(nodes)
    parent = np.array(folding.parents, dtype=np.int64)
    depth = depths(folding.parents)
    own = [name for name in nodes.columns if name not in _STRUCTURE and _TOTAL not in name]
    sums = np.zeros((len(parent), len(own)))
    np.add.at(sums, folding.folded, np.stack([nodes[name] for name in own], axis=1))
    totals = sums_below(parent, depth, sums)
    with_total = [name for name in own if _TOTAL + name in nodes.columns]
    seconds = totals[:, [own.index(name) for name in with_total if name in _WALL]].sum(axis=1)
    name = folding.names()
    last = name.where(NOT_SAMPLED) & nodes["file"][folding.first].where("")
    position, end = preorder(parent, depth, last, -seconds)
    order = np.argsort(position)
    first = folding.first[order]
    return Table(
        {
            "parent": np.concatenate([[-1], position[parent[order][1:]]]),
            "depth": depth[order],
            "end": end[order],
            "name": name[order],
            "file": nodes["file"][first],
            "first_line": nodes["first_line"][first],
            "frames": folding.frames()[order],
            **{column: sums[order, own.index(column)] for column in own},
            **{_TOTAL + column: totals[order, own.index(column)] for column in with_total},
        }
    ), position[folding.folded]


_WALL = ("wall", "before", "after")
"""The columns by which callees are sorted: of one recording, or of two."""


class _Folding:
    """Each node's folded one: `folded` has its number, `parents` the tree of those numbers."""

    def __init__(self, nodes: Table) -> None:
        self._nodes = nodes
        self.parents: list[int] = []
        self._libraries: list[str] = []
        self._functions: list[set[Function]] = []
        numbers: dict[tuple[int, object], int] = {}
        folded: list[int] = []
        first: list[int] = []
        for node, (above, library, function) in enumerate(self._rows()):
            parent = folded[above] if above >= 0 else -1
            # A call into the same library stays in its caller's node; a way out of it and back
            # starts another one.
            if library and self._libraries[parent] == library:
                number = parent
            else:
                # Siblings of one library become one node, whatever functions of it were called.
                number = numbers.setdefault((parent, library or function), len(self.parents))
            if number == len(self.parents):
                self.parents.append(parent)
                self._libraries.append(library)
                self._functions.append(set())
                first.append(node)
            self._functions[number].add(function)
            folded.append(number)
        self.folded = np.array(folded, dtype=np.int64)
        self.first = np.array(first, dtype=np.int64)

    def _rows(self) -> Iterator[tuple[int, str, Function]]:
        """Of each node its parent, its library, and what it is a call of."""
        nodes = self._nodes
        is_call = (nodes["depth"] > 1) & ~are_functions(nodes)
        libraries = [library_of(file) for file in nodes["file"].values]
        codes = nodes["file"].codes.tolist()
        columns = nodes["name"].codes.tolist(), codes, nodes["first_line"].tolist()
        functions = zip(*columns, strict=True)
        for above, call, code, function in zip(
            nodes["parent"].tolist(), is_call.tolist(), codes, functions, strict=True
        ):
            yield above, libraries[code] if call else "", function

    def frames(self) -> IntArray:
        """How many functions each node represents."""
        return np.array([len(functions) for functions in self._functions], dtype=np.int64)

    def names(self) -> Categorical:
        """The name of each; those of the unfolded nodes have their old codes."""
        old = self._nodes["name"]
        codes, names = old.codes[self.first].astype(np.int64), list(old.values)
        boxes: dict[str, int] = {}
        for number, functions in enumerate(self._functions):
            if len(functions) > 1:
                box = f"{self._libraries[number]} ({len(functions)} frames)"
                codes[number] = boxes.setdefault(box, len(names) + len(boxes))
        return Categorical(codes, [*names, *boxes])
