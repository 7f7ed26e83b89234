"""Which tasks of a computation depend on which, by their rows; and how many on each result."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Collection, Hashable, Mapping, Sequence
from itertools import chain, compress, count
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dask_diag.capture.dask_internals import SchedulerState

__all__ = ["Dependencies", "dependents_of"]


def dependents_of(
    keys: Sequence[Hashable], state: SchedulerState, requested: Collection[Hashable]
) -> array[int]:
    """How many tasks depend on each of these results before the scheduler releases it.

    0 where it does not: no task depends on it, or the caller requested it.
    """
    dependents = state.get("dependents", {})
    try:
        counts = array("I", map(len, map(dependents.__getitem__, keys)))
    except KeyError:
        counts = array("I", [len(dependents.get(key, ())) for key in keys])
    for row in compress(count(), map(requested.__contains__, keys)):
        counts[row] = 0
    return counts


class Dependencies:
    """On which tasks each task depends, in the order of rows.

    It grows with the rows of a computation: the thread that writes a recording while the
    computation runs does work that would otherwise be done at the end.

    Attributes
    ----------
    counts : array of int
        On how many tasks each row depends.
    rows : array of int
        The rows of these tasks, row after row.
    closed : bool
        Whether it is complete.
    """

    def __init__(self) -> None:
        self.counts = array("I")
        self.rows = array("I")
        self.closed = False
        self._dependencies: Mapping[Hashable, Collection[Hashable]] | None = None
        self._row_of: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def extend(
        self, keys: Sequence[Hashable], dependencies: Mapping[Hashable, Collection[Hashable]]
    ) -> None:
        """Add those of new tasks; `keys` are those of all rows."""
        with self._lock:
            if self.closed:
                return
            if self._dependencies is None and dependencies:
                self._dependencies = dependencies if any(dependencies.values()) else {}
            if self._dependencies:
                start = len(self.counts)
                new = keys[start:]
                self._row_of.update(zip(new, range(start, start + len(new)), strict=True))
                counts, rows = self.of(new)
                self.rows.extend(rows)
                self.counts.extend(counts)

    def of(self, keys: Sequence[Hashable]) -> tuple[list[int], list[int]]:
        """On how many rows each task depends, and on which; a task itself may have no row yet."""
        dependencies, row_of = self._dependencies or {}, self._row_of
        try:
            needed = list(map(dependencies.__getitem__, keys))
        except KeyError:
            needed = [dependencies.get(key, ()) for key in keys]
        rows = list(map(row_of.get, chain.from_iterable(needed)))
        if None in rows:
            # Data that is not the result of a task.
            needed = [[key for key in keys_of_task if key in row_of] for keys_of_task in needed]
            rows = [row for row in rows if row is not None]
        return list(map(len, needed)), rows  # type: ignore[return-value]

    def close(self) -> None:
        """Release the keys; it grows no more."""
        with self._lock:
            self.closed = True
            self._dependencies = None
            self._row_of = {}
