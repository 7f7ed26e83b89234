"""The results that the scheduler of one computation caches for the tasks that depend on them."""

from __future__ import annotations

from collections.abc import Container, Hashable, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from dask_diag.capture.dask_internals import Graph
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys, keys_since

__all__ = ["CACHED_RESULT", "CachedResults", "CachedResultsSnapshot"]

CACHED_RESULT = Struct("3d")
"""A result's row: the metric, cached from, cached until."""

_pack_cached_result = CACHED_RESULT.pack


class CachedResultsSnapshot(NamedTuple):
    """The results that one computation cached, a row each; it never changes.

    Attributes
    ----------
    rows : bytes
        `CACHED_RESULT` upon `CACHED_RESULT`.
    keys : iterable
    names : iterable of (int, str)
        Row and function of each result whose key does not name its function.
    integers : bool
        Whether the metric gave whole numbers only.
    """

    rows: bytes
    keys: Iterable[Hashable]
    names: Iterable[tuple[int, str]]
    integers: bool


class CachedResults:
    """The results that one computation caches and those that it has released.

    The scheduler's thread changes it while others read it: a result that is released is added to
    the rows before it is taken out of `cached`.

    Attributes
    ----------
    finished : CachedResultsSnapshot or None
        All of them, once the computation has ended; nothing else remains then.
    cached : dict
        The metric of each result, and since when it is cached, by key.
    integers : bool
        Whether all metrics are whole numbers.
    keys, rows
        Of the results that were released; a row is there before its key.
    dsk : dict
        The graph.
    """

    def __init__(self, dsk: Graph) -> None:
        self.finished: CachedResultsSnapshot | None = None
        self.cached: dict[Hashable, tuple[float, float]] = {}
        self.keys: list[Hashable] = []
        self.rows: bytearray | bytes = bytearray()
        self.integers = True
        self.dsk = dsk

    def __len__(self) -> int:
        return len(self.rows) // CACHED_RESULT.size + len(self.cached)

    def release(self, keys: Iterable[Hashable], released: Container[Hashable], now: float) -> None:
        """Record that those of some results that are `released` are cached no more.

        Each is looked up as seldom as can be: to hash a key takes as long as all else.
        """
        cached = self.cached
        for key in keys:
            if key in released and (value := cached.get(key)) is not None:
                self.rows += _pack_cached_result(*value, now)
                self.keys.append(key)
                del cached[key]

    def released_and_cached(
        self, row: int
    ) -> tuple[list[Hashable], dict[Hashable, tuple[float, float]]]:
        """Keys of released results, from a row on; and those that are cached: each result once."""
        keys = self.keys
        count = len(keys)
        cached = dict(self.cached)
        released, recent = keys_since(keys, row, count)
        for key in recent:
            cached.pop(key, None)
        return released, cached

    def snapshot(self, now: float) -> CachedResultsSnapshot:
        """All results, as if those that are cached were released now."""
        if self.finished is None:
            snapshot = self._snapshot(*self.released_and_cached(0), now)
        return self.finished or snapshot

    def finish(self, now: float) -> None:
        """Publish all results; release the graph, and the user's keys."""
        if self.finished is not None:
            return
        snapshot = self._snapshot(self.keys, self.cached, now)
        self.finished = snapshot._replace(keys=Keys(self.keys, list(self.cached)))
        # Others may be reading what was here: it is replaced, and not cleared.
        self.rows, self.keys, self.cached, self.dsk = snapshot.rows, [], {}, {}

    def _snapshot(
        self, released: list[Hashable], cached: Mapping[Hashable, tuple[float, float]], now: float
    ) -> CachedResultsSnapshot:
        keys = [*released, *cached]
        rows = [_pack_cached_result(metric, since, now) for metric, since in cached.values()]
        return CachedResultsSnapshot(
            b"".join([self.rows[: len(released) * CACHED_RESULT.size], *rows]),
            keys,
            NamesOfPlainKeys(keys, self.dsk),
            self.integers,
        )
