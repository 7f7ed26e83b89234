"""What stack samples saw, as columns: by cycle, function, key and node of the tree of calls."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dask_diag.capture.sampling.bins import Packed
from dask_diag.capture.sampling.call_tree import Snapshot
from dask_diag.columns import Array

__all__ = ["Cells", "CellsByCycle", "Function", "Names", "cells_of", "summed"]

Function = tuple[str, str]
"""A root, and the function of tasks: empty but for that of tasks."""


class Names(NamedTuple):
    """The texts by their numbers; the first key is that of tasks that go together."""

    functions: list[Function]
    keys: list[str]


class Cells(NamedTuple):
    """What was seen, in columns of equal length; functions (with roots) and keys are numbers."""

    cycle: Array
    function: Array
    key: Array
    node: Array
    seconds: Array
    cpu: Array
    samples: Array

    def where(self, mask: Array) -> Cells:
        """Some of them."""
        return Cells(*(column[mask] for column in self))


NO_CELLS = Cells(*(np.zeros(0, dtype=kind) for kind in (*[np.int64] * 4, float, float, np.int64)))


class CellsByCycle:
    """The cells of snapshots of one profiler, of which most cycles are the same as in the last."""

    def __init__(self) -> None:
        self._forget()

    def _forget(self) -> None:
        self._cells_of_cycle: dict[int, tuple[Packed, Cells]] = {}
        self._functions: dict[Function, int] = {}
        self._keys = {"": 0}

    def of(self, snapshot: Snapshot) -> tuple[Cells, Names]:
        """The cells of a snapshot, and the names of their numbers."""
        if not self._cells_of_cycle.keys() <= snapshot.cycles.keys():
            # Cycles were merged: names may have gone with them.
            self._forget()
        for number, packed in snapshot.cycles.items():
            if number not in self._cells_of_cycle or self._cells_of_cycle[number][0] is not packed:
                self._cells_of_cycle[number] = packed, self._columns_of(number, packed)
        columns = (self._cells_of_cycle[number][1] for number in snapshot.cycles)
        cells = Cells(*map(np.concatenate, zip(NO_CELLS, *columns, strict=True)))
        return cells, Names(list(self._functions), list(self._keys))

    def _columns_of(self, number: int, packed: Packed) -> Cells:
        functions, keys = self._functions, self._keys
        of = np.array(
            [
                (
                    functions.setdefault((root, name), len(functions)),
                    keys.setdefault(key, len(keys)),
                )
                for name, key, root in packed.distinct
            ],
            dtype=np.int64,
        ).reshape(-1, 2)[packed.groups]
        nodes = np.array(packed.nodes, dtype=np.int64)
        counts = np.array(packed.counts, dtype=np.int64)
        cycle = np.full(len(packed), number, dtype=np.int64)
        seconds, cpu = np.array(packed.seconds), np.array(packed.cpu)
        return Cells(cycle, of[:, 0], of[:, 1], nodes, seconds, cpu, counts)


def cells_of(snapshot: Snapshot) -> tuple[Cells, Names]:
    """The cells of one snapshot, and the names of their numbers."""
    return CellsByCycle().of(snapshot)


def summed(cells: Cells) -> Cells:
    """The same, where those that are alike in all but numbers are one."""
    rows = np.stack([cells.cycle, cells.function, cells.key, cells.node], axis=1)
    distinct, row = np.unique(rows, axis=0, return_inverse=True)
    row = row.reshape(-1)
    seconds, cpu, counts = (
        np.bincount(row, values, minlength=len(distinct))
        for values in (cells.seconds, cells.cpu, cells.samples)
    )
    cycle, function, key, node = distinct.T
    return Cells(cycle, function, key, node, seconds, cpu, counts.astype(np.int64))
