"""The tasks of a computation that are in chunks already: where they are, and their functions."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Categorical, IntArray, concatenate

__all__ = ["TakenTasks"]


class TakenTasks:
    """The rows of one computation, part by part; its length is how many there are."""

    def __init__(self) -> None:
        self._functions = [Categorical([], [])]
        # The first row of each part, and of the next one; and by how much a part has moved.
        self._rows = [0, 0]
        self._moved = [0]

    def __len__(self) -> int:
        return self._rows[-1]

    def add(self, position: int, functions: Categorical) -> None:
        """Add the rows that follow, of which the first is at `position` of all tasks."""
        if len(functions):
            self._functions.append(functions)
            self._moved.append(position - len(self))
            self._rows.append(len(self) + len(functions))

    def positions_of(self, rows: IntArray) -> IntArray:
        """Where rows are in the table of all tasks."""
        parts = np.searchsorted(self._rows[:-1], rows, "right") - 1
        positions: IntArray = rows + np.array(self._moved)[parts]
        return positions

    def functions(self) -> Categorical:
        """The functions of all rows."""
        functions: Categorical = concatenate(self._functions)
        return functions
