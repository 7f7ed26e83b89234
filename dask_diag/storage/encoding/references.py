"""Keys of results as rows of the tasks that made them: a key is then in the file once.

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

__all__ = ["NOT_FOUND", "RecentTasks"]

C = TypeVar("C", PrefixStrings, Array)

NOT_FOUND = -1
"""In place of a row, of a key that no recent task has."""

_MOST_PARTS = 64
_MOST_ROWS = 1 << 17
"""Of the chunks before, so that what a reader remembers is bounded."""

_FACTOR = 0x9E3779B97F4A7C15
_MULTIPLIERS = np.random.default_rng(1).integers(0, 2**63, 256, np.uint64) * 2 + np.uint64(1)


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

    def rows_of(self, keys: PrefixStrings) -> IntArray:
        """How many tasks follow on the one with each key, or `NOT_FOUND`."""
        rows = np.full(len(keys), NOT_FOUND, np.int64)
        # In order, as a search for the next one is then near the one before.
        missing, hashes = _in_order(_hashes(keys))
        before = 0
        for part in self._parts:
            if not len(missing):
                break
            order, sorted_hashes = part.index
            at = np.searchsorted(sorted_hashes, hashes)
            at = np.minimum(at, len(order) - 1)
            found = sorted_hashes[at] == hashes
            rows[missing[found]] = before + len(order) - 1 - order[at[found]]
            missing, hashes = missing[~found], hashes[~found]
            before += len(order)
        return rows if self._are_those_of(rows, keys) else np.full(len(keys), NOT_FOUND, np.int64)

    def _are_those_of(self, rows: IntArray, keys: PrefixStrings) -> bool:
        """Whether the keys are equal, and not only their hashes."""
        known = rows != NOT_FOUND
        if not known.any():
            return True
        expected, found = keys if known.all() else keys[known], self.keys(rows[known])
        (lengths, tails), (found_lengths, found_tails) = expected.encoded, found.encoded
        code_of = {value: code for code, value in enumerate(found.heads.values)}
        codes = np.array([code_of.get(value, -1) for value in expected.heads.values], np.int64)
        return (
            tails == found_tails
            and bool((lengths == found_lengths).all())
            and bool((codes[expected.heads.codes] == found.heads.codes).all())
        )

    def keys(self, rows: IntArray) -> PrefixStrings:
        """The keys of tasks, all of them rows that there are."""
        columns, rows = self._needed(rows, [part.keys for part in self._parts])
        keys: PrefixStrings = concatenate(columns)[rows]
        return keys

    def numbers(self, name: str, rows: IntArray) -> Array:
        """``collected`` or ``nbytes`` of tasks; anything, but always the same, if not found."""
        columns = [part.numbers[name] for part in self._parts]
        columns, rows = self._needed(np.maximum(rows, 0), columns)
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
        self.numbers = {
            name: _floats(columns.get(name, unknown)) for name in ("collected", "nbytes")
        }

    @cached_property
    def index(self) -> tuple[IntArray, Array]:
        """Rows in the order of their hashes, and these."""
        return _in_order(_hashes(self.keys))


def _in_order(hashes: Array) -> tuple[IntArray, Array]:
    """Rows in the order of their hashes, and these."""
    order = np.argsort(hashes)
    return order, hashes[order]


def _floats(values: Values) -> Array:
    if isinstance(values, np.ndarray) and values.dtype.kind == "f":
        return np.asarray(values, float)
    return np.full(len(values), np.nan)


def _hashes(keys: PrefixStrings) -> Array:
    """A number for each key, nearly always another one for another key."""
    lengths, tails = keys.encoded
    sizes = lengths.astype(np.int64)
    stops = np.cumsum(sizes)
    position = np.arange(len(tails)) - np.repeat(stops - sizes, sizes)
    weighted = _MULTIPLIERS.take(position, mode="wrap") * np.frombuffer(tails, np.uint8)
    sums = np.concatenate([np.zeros(1, np.uint64), np.cumsum(weighted, dtype=np.uint64)])
    of_tails: Array = sums[stops] - sums[stops - sizes]
    of_heads = np.array([hash(head) & (2**64 - 1) for head in keys.heads.values], np.uint64)
    if not len(keys):
        return of_tails
    hashes: Array = of_tails * np.uint64(_FACTOR) + of_heads[keys.heads.codes]
    return hashes
