"""The tasks of a computation that are in chunks already: where they are, their keys and functions.

What is added is kept as it came. To join it with what came before at each chunk would copy all of
it each time, and what is asked for are the few tasks that others now refer to.
"""

from __future__ import annotations

import numpy as np

from dask_diag.builders.keys import NO_KEYS, KeyColumns
from dask_diag.columns import Categorical, IntArray, concatenate

__all__ = ["TakenTasks"]


class TakenTasks:
    """The rows of one computation, part by part; its length is how many there are."""

    def __init__(self) -> None:
        self._parts = [NO_KEYS]
        # The first row of each part, and of the next one; and by how much a part has moved.
        self._rows = [0, 0]
        self._moved = [0]

    def __len__(self) -> int:
        return self._rows[-1]

    def add(self, position: int, columns: KeyColumns) -> None:
        """Add the rows that follow, of which the first is at `position` of all tasks."""
        if len(columns[0]):
            self._parts.append(columns)
            self._moved.append(position - len(self))
            self._rows.append(len(self) + len(columns[0]))

    def positions_of(self, rows: IntArray) -> IntArray:
        """Where rows are in the table of all tasks."""
        positions: IntArray = rows + np.array(self._moved)[self._parts_of(rows)]
        return positions

    def columns_of(self, rows: IntArray) -> KeyColumns:
        """Keys as text, and functions, of rows."""
        parts = self._parts_of(rows)
        # Only the parts with such rows are joined: tasks refer to others that ran shortly before.
        used = np.flatnonzero(np.bincount(parts))
        lengths = np.diff(self._rows)[used]
        shift = np.zeros(len(self._parts), dtype=np.int64)
        shift[used] = np.cumsum(lengths) - lengths - np.array(self._rows)[used]
        joined = zip(NO_KEYS, *(self._parts[part] for part in used.tolist()), strict=True)
        within = rows + shift[parts]
        texts, functions = (concatenate(column)[within] for column in joined)
        return texts, functions

    def functions(self) -> Categorical:
        """The functions of all rows."""
        functions: Categorical = concatenate([functions for _, functions in self._parts])
        return functions

    def _parts_of(self, rows: IntArray) -> IntArray:
        return np.searchsorted(self._rows[:-1], rows, "right") - 1
