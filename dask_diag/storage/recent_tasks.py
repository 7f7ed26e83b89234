"""The tasks that keys of results refer to: a key is then in the file once.

Of keys that end in tokens that is nearly all that a result takes: sixteen bytes of noise. A row is
counted back from the last task of the chunk, so that chunks need not know how many are before them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import TypeVar

import numpy as np

from dask_diag.columns import Array, IntArray, PrefixStrings, Values, concatenate
from dask_diag.model.table import Table

__all__ = ["REMEMBERED", "RecentTasks"]

C = TypeVar("C", PrefixStrings, Array)

_NUMBERS = ("collected", "nbytes")
REMEMBERED = frozenset({"key", *_NUMBERS})
"""The columns of tasks that results refer to."""

_MOST_PARTS = 64
_MOST_ROWS = 1 << 17
"""Of the chunks before, so that what a reader remembers is bounded."""


class RecentTasks:
    """The tasks of the last chunks; it never changes.

    Parameters
    ----------
    *parts : _Part
        A chunk's tasks each, the newest first.
    """

    def __init__(self, *parts: _Part) -> None:
        self._parts = parts

    def plus(self, tasks: Table) -> RecentTasks:
        """With those of one more chunk."""
        return RecentTasks(_Part(tasks), *self._parts) if len(tasks) else self

    def limited(self) -> RecentTasks:
        """What the next chunks may refer to."""
        rows = np.cumsum([len(part.keys) for part in self._parts], dtype=np.int64)
        return RecentTasks(*self._parts[: int((rows[:_MOST_PARTS] <= _MOST_ROWS).sum())])

    def rows_of(self, keys: PrefixStrings) -> IntArray | None:
        """How many tasks follow on the last one with each key; nothing if a key is not there."""
        texts, before = keys.tolist(), 0
        rows: dict[str, int] = {}
        missing = set(texts)
        for part in self._parts:
            if not missing:
                break
            found = part.following.keys() & missing
            rows.update((key, before + part.following[key]) for key in found)
            missing -= found
            before += len(part.keys)
        return None if missing else np.array([rows[key] for key in texts], np.int64)

    def keys(self, rows: IntArray) -> PrefixStrings:
        """The keys of tasks, all of them rows that there are."""
        columns, rows = self._needed(rows, [part.keys for part in self._parts])
        keys: PrefixStrings = concatenate(columns)[rows]
        return keys

    def numbers(self, name: str, rows: IntArray) -> Array:
        """``collected`` or ``nbytes`` of tasks, all of them rows that there are."""
        columns = [part.numbers[name] for part in self._parts]
        columns, rows = self._needed(rows, columns)
        numbers: Array = np.concatenate(columns)[rows]
        return numbers

    def _needed(self, rows: IntArray, columns: Sequence[C]) -> tuple[list[C], IntArray]:
        """The columns of no more parts than are needed, the oldest first, and the rows of these."""
        if len(rows) and int(rows.min()) < 0:
            raise ValueError("expected rows of tasks")
        last, total = int(rows.max(initial=0)), 0
        for count, column in enumerate(columns, 1):
            total += len(column)
            if total > last:
                return list(columns[:count])[::-1], total - 1 - rows
        raise ValueError(f"expected row {last} of {total} tasks")


class _Part:
    """What results refer to of the tasks of one chunk."""

    def __init__(self, tasks: Table) -> None:
        count = len(tasks)
        columns = {name: tasks[name] for name in tasks.columns}
        keys = columns.get("key")
        unknown = np.full(count, np.nan)
        # Of a forged file they may be anything.
        self.keys = keys if isinstance(keys, PrefixStrings) else PrefixStrings.of([""] * count)
        self.numbers = {name: _floats(columns.get(name, unknown)) for name in _NUMBERS}

    @cached_property
    def following(self) -> dict[str, int]:
        """How many tasks of the chunk follow on the last one with each key."""
        return dict(zip(self.keys.tolist(), reversed(range(len(self.keys))), strict=True))


def _floats(values: Values) -> Array:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.asarray(values, float)
    return np.full(len(values), np.nan)
