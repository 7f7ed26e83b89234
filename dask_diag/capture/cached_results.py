"""The results that the scheduler of one computation caches for the tasks that depend on them."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Hashable, Iterable, Mapping
from struct import Struct
from typing import NamedTuple

from dask_diag.capture.dask_internals import Graph, SchedulerState
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys

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

    The scheduler's thread only appends what it gets: to look up a key between two tasks takes
    several times as long as in a loop. What is cached and what is released follows from it, since a
    result that the caller did not ask for is released with the last task that depends on it. A
    reader, or the end of the computation, finds that for many results at once.

    Attributes
    ----------
    finished : CachedResultsSnapshot or None
        All of them, once the computation has ended; nothing else remains then.
    new_keys, new_numbers : list, array of float
        Of results that came since: their keys, and the metric and the time of each, which are there
        before its key.
    integers : bool
        Whether all metrics are whole numbers.
    keys, rows
        Of the results that were released.
    cached : dict
        The metric of each result that is cached, and since when, by key.
    dsk, state
        The graph, and what the scheduler knows of it.
    """

    def __init__(self, dsk: Graph) -> None:
        self.finished: CachedResultsSnapshot | None = None
        self.new_keys: list[Hashable] = []
        self.new_numbers = array("d")
        self.integers = True
        self.keys: list[Hashable] = []
        self.rows: bytearray | bytes = bytearray()
        self.cached: dict[Hashable, tuple[float, float]] = {}
        self.dsk = dsk
        self.state: SchedulerState = {}
        self._tasks_to_come: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def __len__(self) -> int:
        return len(self.rows) // CACHED_RESULT.size + len(self.cached) + len(self.new_keys)

    def _take_new(self) -> None:
        """Find what is cached and what is released by now; the lock is held."""
        count = len(self.new_keys)
        keys, numbers = self.new_keys[:count], self.new_numbers[: 2 * count]
        # Each in one step: the scheduler's thread goes on to append.
        del self.new_numbers[: 2 * count], self.new_keys[:count]
        if keys:
            self._take(keys, numbers[::2], numbers[1::2])

    def _take(self, keys: list[Hashable], metrics: array[float], times: array[float]) -> None:
        """Find what is cached and released once these results came, in this order.

        It is done for each task of a computation at its end, and calls no function for most.
        """
        cached, to_come = self.cached, self._tasks_to_come
        dependencies = self.state.get("dependencies", {})
        dependents = self.state.get("dependents", {})
        # What the caller asked for is not released, nor is what was in the graph as data a result.
        released = self.state.get("released", ())
        for key, metric, now in zip(keys, metrics, times, strict=True):
            cached[key] = metric, now
            for dependency in dependencies.get(key, ()):
                tasks = (to_come and to_come.pop(dependency, 0)) or len(dependents[dependency])
                if tasks > 1:
                    to_come[dependency] = tasks - 1
                elif dependency in released and dependency in cached:
                    self.rows += _pack_cached_result(*cached.pop(dependency), now)
                    self.keys.append(dependency)

    def released_and_cached(
        self, row: int
    ) -> tuple[list[Hashable], dict[Hashable, tuple[float, float]]]:
        """Keys of released results, from a row on; and those that are cached: each result once."""
        with self._lock:
            self._take_new()
            return self.keys[row:], dict(self.cached)

    def snapshot(self, now: float) -> CachedResultsSnapshot:
        """All results, as if those that are cached were released now."""
        if self.finished is None:
            snapshot = self._snapshot(*self.released_and_cached(0), now)
        return self.finished or snapshot

    def finish(self, now: float) -> None:
        """Publish all results; release the graph, and the user's keys."""
        if self.finished is not None:
            return
        with self._lock:
            self._take_new()
            snapshot = self._snapshot(self.keys, self.cached, now)
            self.finished = snapshot._replace(keys=Keys(self.keys, list(self.cached)))
            # Others may be reading what was here: it is replaced, and not cleared.
            self.rows, self.keys, self.cached, self.dsk = snapshot.rows, [], {}, {}
            self.state, self._tasks_to_come = {}, {}

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
