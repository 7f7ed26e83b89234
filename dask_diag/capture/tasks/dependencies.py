"""Which tasks of a computation depend on which, by their rows."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain
from typing import Any

__all__ = ["Dependencies"]


class Dependencies:
    """Which tasks need which: how many each row needs, and then the rows that they are.

    It grows with the rows of a computation: who writes a recording while the computation runs does
    in its
    own thread what else would be done at the end.
    """

    def __init__(self) -> None:
        self.counts = array("I")
        self.rows = array("I")
        self.closed = False
        self._dependencies: Mapping[Any, Any] | None = None
        self._row_of: dict[Any, int] = {}
        self._lock = threading.Lock()

    def extend(self, keys: Sequence[Any], dependencies: Mapping[Any, Any]) -> None:
        """Take up those of `keys`, which are all that have a row, that are new."""
        with self._lock:
            if self.closed:
                return
            if self._dependencies is None and dependencies:
                self._dependencies = dependencies if any(dependencies.values()) else {}
            if self._dependencies:
                taken = len(self.counts)
                new = keys[taken:]
                self._row_of.update(zip(new, range(taken, taken + len(new)), strict=True))
                counts, rows = self.of(new)
                self.rows.extend(rows)
                self.counts.extend(counts)

    def of(self, keys: Sequence[Any]) -> tuple[list[int], list[int]]:
        """How many rows each task needs, and which, of tasks that need not have a row yet."""
        dependencies, row_of = self._dependencies or {}, self._row_of
        try:
            needed = list(map(dependencies.__getitem__, keys))
        except KeyError:
            needed = [dependencies.get(key, ()) for key in keys]
        rows = list(map(row_of.get, chain.from_iterable(needed)))
        if None in rows:
            # Data that is no task's result.
            needed = [[need for need in each if need in row_of] for each in needed]
            rows = [row for row in rows if row is not None]
        return list(map(len, needed)), rows  # type: ignore[return-value]

    def rows_of(self, keys: Iterable[Any]) -> list[int]:
        """The rows of tasks by their keys, as far as all are known; none once it is closed."""
        rows = list(map(self._row_of.get, keys))
        return rows[: rows.index(None)] if None in rows else rows  # type: ignore[return-value]

    def close(self) -> None:
        """Let go of the keys; it grows no more."""
        with self._lock:
            self.closed = True
            self._dependencies = None
            self._row_of = {}
