"""The cached results since the last chunk, while computations run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from time import perf_counter

from dask_diag.builders.chunks import Taken
from dask_diag.builders.keys import keys_columns
from dask_diag.builders.recording import cached_results_of
from dask_diag.capture.cached_results import CACHED_RESULT, CachedResults, CachedResultsSnapshot
from dask_diag.capture.computation import Computation
from dask_diag.capture.tasks.keys import Keys, NamesOfPlainKeys
from dask_diag.model import tables
from dask_diag.model.table import Table, stack

__all__ = ["IncrementalCachedResults"]

ResultsOfComputations = Callable[[], Iterable[tuple[Computation, CachedResults]]]

_NONE = CachedResultsSnapshot(b"", [], [], True)


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

    def take(self) -> Taken:
        """The results released since last asked, and those that are cached now."""
        for computation, results in self._results():
            if computation.number not in self._seen:
                self._seen.add(computation.number)
                self._live.append(_ResultsOfComputation(computation, results))
        taken = [each.take() for each in self._live]
        self._live = [each for each in self._live if not each.has_ended]
        released, cached = (
            stack([*(pair[which] for pair in taken), Table({})]) for which in (0, 1)
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
        self._taken = 0

    def take(self) -> tuple[Table, Table]:
        """The results released since last asked, and those that are cached now."""
        results, now = self._results, perf_counter()
        if results.finished is None:
            released, cached = self._read(results, now)
        if results.finished is not None:
            # If it ended meanwhile, what was read may lack what was released.
            released, cached = self._read_finished(results.finished), _NONE
            self.has_ended = True
        tables = self._table(released), self._table(cached)
        self._taken += len(tables[0])
        return tables

    def _read(
        self, results: CachedResults, now: float
    ) -> tuple[CachedResultsSnapshot, CachedResultsSnapshot]:
        released, cached = results.released_and_cached(self._taken)
        start, stop = self._taken, self._taken + len(released)
        rows = bytes(results.rows[start * CACHED_RESULT.size : stop * CACHED_RESULT.size])
        cached_rows = [CACHED_RESULT.pack(metric, since, now) for metric, since in cached.values()]
        return (
            CachedResultsSnapshot(rows, released, NamesOfPlainKeys(released, results.dsk), True),
            CachedResultsSnapshot(
                b"".join(cached_rows), list(cached), NamesOfPlainKeys([*cached], results.dsk), True
            ),
        )

    def _read_finished(self, finished: CachedResultsSnapshot) -> CachedResultsSnapshot:
        taken = self._taken
        assert isinstance(finished.keys, Keys)
        keys = self._keys[taken:] + finished.keys.after(len(self._keys))
        names = [(row - taken, name) for row, name in finished.names if row >= taken]
        rows = finished.rows[taken * CACHED_RESULT.size :]
        return CachedResultsSnapshot(rows, keys, names, True)

    def _table(self, results: CachedResultsSnapshot) -> Table:
        # Made of keys again, and not looked up among those of tasks: results that are cached for
        # long are of all chunks before, and to search these takes longer with each of them.
        columns = keys_columns(list(results.keys), dict(results.names))
        return cached_results_of(self._computation.name, results.rows, *columns)
