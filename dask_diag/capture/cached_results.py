"""The results that the scheduler of one computation caches for the tasks that depend on them."""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Any

from dask_diag.capture.tasks.task_log import Keys, NamesOfPlainKeys

__all__ = ["CACHED_RESULT", "CachedResults"]

CACHED_RESULT = Struct("3d")
"""A result's row: the metric, held from, held until."""

_pack_cached_result = CACHED_RESULT.pack


class CachedResults:
    """The results that one computation held and let go: how much, from when, until when."""

    def __init__(self) -> None:
        self.held: dict[Any, tuple[float, float]] = {}
        self.keys: list[Any] | Keys = []
        self.rows = bytearray()
        self.whole = True
        self.names: Iterable[tuple[int, str]] = ()

    def release(self, key: Any, now: float) -> None:
        """Stop holding a result."""
        assert isinstance(self.keys, list)
        metric, since = self.held.pop(key)
        if type(metric) is not int:
            self.whole = False
        self.rows += _pack_cached_result(metric, since, now)
        self.keys.append(key)

    def finish(self, dsk: Any, now: float) -> None:
        """Let go of everything, and of the user's keys."""
        for key in list(self.held):
            self.release(key, now)
        assert isinstance(self.keys, list)
        types = set(map(type, self.keys))
        self.names = NamesOfPlainKeys(self.keys, types, dsk)
        self.keys = Keys(self.keys, types)

    def snapshot(self, dsk: Any, now: float) -> CachedResults:
        """The same as if everything were let go now."""
        copy = CachedResults()
        copy.whole = self.whole
        copy.held = dict(self.held)
        copy.keys = list(self.keys)
        copy.rows = self.rows[: CACHED_RESULT.size * len(copy.keys)]
        copy.finish(dsk, now)
        return copy
