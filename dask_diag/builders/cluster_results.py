"""The results that were in the memory of clusters: `Recording.cached_results`."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence

import numpy as np

from dask_diag.builders.clocks import microseconds
from dask_diag.builders.keys import keys_columns
from dask_diag.capture.cluster.batch import Batch
from dask_diag.capture.cluster.formats import RESULT
from dask_diag.capture.cluster.log import ClusterLog
from dask_diag.columns import Categorical
from dask_diag.model import tables
from dask_diag.model.table import stack

__all__ = ["ClusterResults"]


CachedRow = tuple[Hashable, str, float, float, float]


class ClusterResults:
    """The results that were released, or were there when recording stopped; pull by pull.

    Parameters
    ----------
    in_bytes : bool
        Whether a result counts its bytes, as distributed measures them; or else 1.
    """

    def __init__(self, in_bytes: bool) -> None:
        self._in_bytes = in_bytes
        self._batches: dict[int, int] = {}

    def take(self, logs: Sequence[ClusterLog]) -> tables.CachedResults:
        """Those since last asked."""
        parts = [self._table_of(batch, log) for batch, log in self._new(logs)]
        return stack([tables.CachedResults.empty(), *parts])

    def take_rows(self, logs: Sequence[ClusterLog]) -> list[CachedRow]:
        """Key, function, metric, start and stop of those since last asked."""
        rows: list[CachedRow] = []
        for batch, log in self._new(logs):
            table = self._table_of(batch, log)
            columns = [table[name].tolist() for name in ("function", "metric", "start", "stop")]
            rows += zip(batch.result_keys, *columns, strict=True)
        return rows

    def _new(self, logs: Sequence[ClusterLog]) -> Iterator[tuple[Batch, ClusterLog]]:
        """The batches with results since last asked."""
        for log in logs:
            seen = self._batches.get(id(log), 0)
            batches = log.batches[seen:]
            self._batches[id(log)] = seen + len(batches)
            yield from ((batch, log) for batch in batches if batch.results)

    def _table_of(self, batch: Batch, log: ClusterLog) -> tables.CachedResults:
        numbers = np.frombuffer(batch.results, float).reshape(-1, RESULT.size // 8)
        computation, nbytes, start, stop = numbers.T
        keys, functions = keys_columns(list(batch.result_keys), batch.result_functions)
        distinct, codes = np.unique(computation.astype(np.int64), return_inverse=True)
        computations = [log.computations.get(number) for number in distinct.tolist()]
        names = Categorical.of(recorded.name if recorded else "" for recorded in computations)
        return tables.CachedResults(
            {
                "key": keys,
                "function": functions,
                "computation": names[codes.reshape(-1)],
                "metric": nbytes.copy() if self._in_bytes else np.ones(len(nbytes)),
                "start": microseconds(start - log.offset, np.floor),
                "stop": microseconds(stop - log.offset, np.ceil),
            }
        )
