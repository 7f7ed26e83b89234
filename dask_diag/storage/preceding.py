"""What a chunk may refer to in the chunks before it, which its writer and its reader both have.

The keys of results are those of tasks: stored as rows of these, a key is in the file once. Of keys
that end in tokens that is nearly all that a result takes: sixteen bytes of noise. A row is counted
back from the last task of the chunk, so that chunks need not know how many are before them.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np

from dask_diag.columns import IntArray, PrefixStrings, Values, concatenate
from dask_diag.model.table import Table

__all__ = ["KEY", "NUMBERS", "Preceding", "RecentTasks"]

KEY = "key"
NUMBERS = ("collected", "nbytes")
"""What is remembered of tasks besides: of when and of what size a result is."""

_MOST_PARTS = 64
_MOST_ROWS = 1 << 17
"""Of the chunks before, so that what a reader remembers is bounded."""
_MANY = 2048
_LONG = 16
"""Of so many keys those are searched for that have as many bytes: others take less time in full."""


class RecentTasks:
    """The tasks of the last chunks, the newest first; it never changes."""

    def __init__(self, *parts: _Part) -> None:
        self._parts = parts

    def plus(self, tasks: Table) -> RecentTasks:
        """With those of one more chunk."""
        return RecentTasks(_Part(tasks), *self._parts)

    def limited(self) -> RecentTasks:
        """What the next chunks may refer to."""
        rows = np.cumsum([len(part.tasks) for part in self._parts], dtype=np.int64)
        return RecentTasks(*self._parts[: int((rows[:_MOST_PARTS] <= _MOST_ROWS).sum())])

    def rows_of(self, keys: PrefixStrings) -> IntArray | None:
        """How many tasks follow on the last one with each key; nothing if a key is not there."""
        if len(keys) > _MANY and len(keys.encoded[1]) < _LONG * len(keys):
            return None
        texts, before = keys.tolist(), 0
        rows: dict[str, int] = {}
        missing = set(texts)
        for part in self._parts:
            if not missing:
                break
            shared = part.following.keys() & missing
            rows.update((key, before + part.following[key]) for key in shared)
            missing -= shared
            before += len(part.tasks)
        return None if missing else np.array([rows[key] for key in texts], np.int64)

    def column(self, name: str, rows: IntArray) -> Values:
        """What a column has in these rows, all of which have to be there."""
        last, total, parts = int(rows.max(initial=0)), 0, []
        for part in self._parts:
            parts.append(part.tasks[name])
            total += len(part.tasks)
            if total > last:
                break
        if total <= last or int(rows.min(initial=0)) < 0:
            raise ValueError(f"expected rows of {total} tasks")
        values: Values = concatenate(parts[::-1])[total - 1 - rows]
        return values


class _Part:
    """The tasks of one chunk."""

    def __init__(self, tasks: Table) -> None:
        self.tasks = Table({name: tasks[name] for name in (KEY, *NUMBERS)})

    @cached_property
    def following(self) -> dict[str, int]:
        """How many tasks of the chunk follow on the last one with each key."""
        keys = self.tasks[KEY].tolist()
        return dict(zip(keys, reversed(range(len(keys))), strict=True))


class Preceding:
    """What is remembered of the chunks of one file, up to the last one that stays.

    Attributes
    ----------
    head : bytes
        The head of the last one: that of the next is nearly the same.
    tasks : RecentTasks
        To which the results of later ones refer.
    """

    def __init__(self) -> None:
        self.head = b""
        self.tasks = RecentTasks()

    def advance(self, head: bytes, tasks: RecentTasks) -> None:
        """Remember one more chunk, after which these are the tasks."""
        self.head, self.tasks = head, tasks.limited()
