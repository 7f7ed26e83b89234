"""The cached results since the last chunk, while computations run."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from itertools import compress
from time import perf_counter

import numpy as np

from dask_diag.builders.chunks import Increment
from dask_diag.builders.constants import constant
from dask_diag.builders.keys import keys_columns
from dask_diag.builders.recording import cached_results_of
from dask_diag.capture.cached_results import CACHED_RESULT, CachedResults, CachedResultsSnapshot
from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import Graph
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys
from dask_diag.model import tables
from dask_diag.model.table import NO_ROWS, Table, stack

__all__ = ["IncrementalCachedResults"]

_FEW_NAMES = 200
"""Names of keys that need not be dropped: to have them costs less than to make texts again."""

ResultsOfComputations = Callable[[], Iterable[tuple[Computation, CachedResults]]]


class IncrementalCachedResults:
    """The results that a CacheProfiler saw released; and those that are cached.

    Parameters
    ----------
    results : callable
        Returns the computations so far, each with its results.
    on_clusters : callable, optional
        Returns those of clusters that are new.
    """

    def __init__(
        self,
        results: ResultsOfComputations,
        on_clusters: Callable[[], Table] = tables.CachedResults.empty,
    ) -> None:
        self._on_clusters = on_clusters
        self._results = results
        self._seen: set[int] = set()
        self._live: list[_ResultsOfComputation] = []

    def take(self) -> Increment:
        """The results released since last asked, and those that are cached now."""
        for computation, results in self._results():
            if computation.number not in self._seen:
                self._seen.add(computation.number)
                self._live.append(_ResultsOfComputation(computation, results))
        pairs = [results.take() for results in self._live]
        self._live = [results for results in self._live if not results.has_ended]
        released, cached = (
            stack([*(pair[which] for pair in pairs), Table({})]) for which in (0, 1)
        )
        released = stack([released, self._on_clusters()])
        return {"cached_results": released}, {"cached_results": cached}


class _ResultsOfComputation:
    """The results of one computation, from where they were taken last.

    Attributes
    ----------
    has_ended : bool
        Whether all of them have been taken.
    """

    def __init__(self, computation: Computation, results: CachedResults) -> None:
        self.has_ended = False
        self._computation = computation
        self._results = results
        # Released by the computation when it ends, which is before all have been taken.
        self._keys = results.keys
        self._position = 0
        # Of the results that were cached when last asked: most are so for long, and their keys take
        # longer to make into text than all else that is done of them.
        self._cached_keys: list[Hashable] = []
        self._cached_columns: Table = NO_ROWS

    def take(self) -> tuple[Table, Table]:
        """The results released since last asked, and those that are cached now."""
        results = self._results
        if results.finished is None:
            rows, cached = self._read(results)
        if results.finished is not None:
            # If it ended meanwhile, what was read may lack what was released.
            rows, cached = self._read_finished(results.finished), tables.CachedResults.empty()
            self.has_ended = True
        released = self._released(rows)
        self._position += len(released)
        return released, cached

    def _read(self, results: CachedResults) -> tuple[CachedResultsSnapshot, Table]:
        released, cached = results.released_and_cached(self._position)
        start, stop = self._position, self._position + len(released)
        rows = bytes(results.rows[start * CACHED_RESULT.size : stop * CACHED_RESULT.size])
        names = NamesOfPlainKeys(released, results.dsk)
        return CachedResultsSnapshot(rows, released, names, True), self._cached(cached, results.dsk)

    def _read_finished(self, finished: CachedResultsSnapshot) -> CachedResultsSnapshot:
        position = self._position
        assert isinstance(finished.keys, Keys)
        keys = self._keys[position:] + finished.keys.after(len(self._keys))
        names = [(row - position, name) for row, name in finished.names if row >= position]
        rows = finished.rows[position * CACHED_RESULT.size :]
        return CachedResultsSnapshot(rows, keys, names, True)

    def _released(self, results: CachedResultsSnapshot) -> Table:
        # Made of keys again, and not looked up among those of tasks: results that are cached for
        # long are of all chunks before, and to search these takes longer with each of them.
        columns = keys_columns(list(results.keys), dict(results.names))
        return cached_results_of(self._computation.name, results.rows, *columns)

    def _cached(self, cached: Mapping[Hashable, tuple[float, float]], dsk: Graph) -> Table:
        """The results that are cached now; the columns of those that were before are kept."""
        keys = list(cached)
        stay = list(map(cached.__contains__, self._cached_keys))
        same = list(compress(self._cached_keys, stay))
        before = self._cached_columns
        names = before["key"].heads.values if stay else []
        if keys[: len(same)] != same or len(names) > 2 * len(same) + _FEW_NAMES:
            # They are in the order in which they came, unless the scheduler is another. Names of
            # those that were released are dropped when they are most of all.
            stay, same = [False] * len(stay), []
        new = keys[len(same) :]
        columns = _columns_of_cached(new, [cached[key] for key in new], dsk)
        if len(same) < len(stay):
            before = before.rows(np.array(stay, dtype=bool))
        self._cached_keys, self._cached_columns = keys, stack([before, columns])
        if not keys:
            return tables.CachedResults.empty()
        return tables.CachedResults(
            {
                **{name: self._cached_columns[name] for name in self._cached_columns.columns},
                "computation": constant(self._computation.name, len(keys)),
                "stop": np.full(len(keys), perf_counter()),
            }
        )


def _columns_of_cached(
    keys: Sequence[Hashable], values: Sequence[tuple[float, float]], dsk: Graph
) -> Table:
    """What does not change while a result is cached."""
    if not keys:
        return NO_ROWS
    texts, functions = keys_columns(keys, dict(NamesOfPlainKeys(keys, dsk)))
    numbers = np.array(values, dtype=float)
    return Table(
        {
            "key": texts,
            "function": functions,
            "metric": numbers[:, 0].copy(),
            "start": numbers[:, 1].copy(),
        }
    )
