"""The results that the scheduler of a computation caches for the tasks that depend on them.

Nothing but its size is noted when a result comes. It is cached from when its task was collected; a
result that the caller did not ask for is released with the last task that depends on it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from time import perf_counter
from typing import NamedTuple

import numpy as np

from dask_diag.builders.constants import constant
from dask_diag.builders.tasks import keys_and_functions_of, numbers_of
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings
from dask_diag.model import tables
from dask_diag.model.table import NO_ROWS, Table, stack

__all__ = ["CachedResults", "NewResults", "cached_results_table", "results_of", "table_of"]

_FEW_NAMES = 200
"""Names of keys that need not be dropped: to have them costs less than to look for them."""
_NONE: IntArray = np.zeros(0, np.int64)

ResultsOfComputation = tuple[ComputationSnapshot, Sequence[float]]
"""A computation, and the size of the result of each of its rows."""


class NewResults(NamedTuple):
    """Results that came one after the other, a row each.

    Attributes
    ----------
    columns : Table
        Sizes as ``metric``, when they came as ``start``, and what else there is of them.
    dependents : array of int
        How many tasks depend on each of them before it is released; 0 if it never is.
    counts, depends_on : array of int
        On how many results the task of each depended; and the rows, in the whole computation, of
        these.
    """

    columns: Table
    dependents: IntArray
    counts: IntArray
    depends_on: IntArray

    @classmethod
    def of(
        cls,
        columns: Table,
        sizes: Sequence[float],
        collected: FloatArray,
        dependents: Sequence[int],
        dependencies: tuple[Sequence[int], Sequence[int]],
    ) -> NewResults:
        """The first results of some rows, as many as have a size.

        Parameters
        ----------
        columns : Table
            What else there is of each result.
        sizes, collected, dependents
            Of each row; `dependents` as `TaskRows` has them.
        dependencies : tuple of (sequence of int, sequence of int)
            On how many rows each row depends, if one does, and on which.
        """
        count = len(sizes)
        counts = np.zeros(count, np.int64)
        counts[: len(dependencies[0])] = dependencies[0][:count]
        others = {name: columns[name][:count] for name in columns.columns}
        return cls(
            Table({**others, "metric": np.array(sizes, float), "start": collected[:count]}),
            np.array(dependents[:count], np.int64),
            counts,
            np.array(dependencies[1][: int(counts.sum())], np.int64),
        )


class CachedResults:
    """The results of one computation that are cached while it runs.

    Attributes
    ----------
    columns : Table
        Those of the results that are cached now, in the order in which they came.
    """

    def __init__(self) -> None:
        self.columns: Table = NO_ROWS
        self._count = 0
        # Of each that is cached: its row among all, and how many tasks are to come that depend on
        # it.
        self._rows, self._to_come = _NONE, _NONE

    def add(self, new: NewResults) -> Table:
        """Add those that came next; returns the ones released by then, with ``stop``, in order."""
        count = len(new.columns)
        if not count:
            return NO_ROWS
        columns = stack([self.columns, new.columns]) if len(self.columns) else new.columns
        rows = np.concatenate([self._rows, np.arange(self._count, self._count + count)])
        to_come = np.concatenate([self._to_come, new.dependents])
        self._count += count
        tasks = np.repeat(np.arange(count), new.counts)
        # Rows are in order, and what a task depends on is cached until the task is done.
        at = np.searchsorted(rows, new.depends_on)
        came = np.bincount(at, minlength=len(rows))
        last = np.zeros(len(rows), np.int64)
        # Of several tasks the last one remains.
        last[at] = tasks
        is_released = (came > 0) & (came == to_come)
        released = np.flatnonzero(is_released)
        released = released[np.argsort(last[released], kind="stable")]
        result = _stopped(columns.rows(released), new.columns["start"][last[released]])
        stays = ~is_released
        self._rows = rows[stays]
        self._to_come = np.where(to_come, to_come - came, 0)[stays]
        self.columns = columns.rows(stays)
        return result

    def until(self, now: float) -> Table:
        """Those that are cached, as if they were released now."""
        return _stopped(self.columns, np.full(len(self.columns), now))

    def drop_names(self) -> None:
        """Drop the names of keys, unless results that are cached have them."""
        keys: PrefixStrings = self.columns["key"] if len(self.columns) else PrefixStrings.of([])
        if len(keys.heads.values) > 2 * len(keys) + _FEW_NAMES:
            texts, functions = keys.tolist(), self.columns["function"].tolist()
            self.columns = Table(
                {
                    "key": PrefixStrings.of(texts),
                    "function": Categorical.of(functions),
                    "metric": self.columns["metric"],
                    "start": self.columns["start"],
                }
            )


def _stopped(columns: Table, stop: FloatArray) -> Table:
    if not len(columns):
        return NO_ROWS
    return Table({**{name: columns[name] for name in columns.columns}, "stop": stop})


def table_of(computation: str, results: Table) -> tables.CachedResults:
    """`Recording.cached_results` of results of one computation."""
    if not len(results):
        return tables.CachedResults.empty()
    return tables.CachedResults(
        {
            "key": results["key"],
            "function": results["function"],
            "computation": constant(computation, len(results)),
            "metric": results["metric"],
            "start": results["start"],
            "stop": results["stop"],
        }
    )


def cached_results_table(computations: Iterable[ResultsOfComputation]) -> tables.CachedResults:
    """`Recording.cached_results` of computations, in the order of release."""
    parts = [_table_of_all(computation, sizes) for computation, sizes in computations]
    return stack([*parts, tables.CachedResults.empty()])


def _table_of_all(computation: ComputationSnapshot, sizes: Sequence[float]) -> tables.CachedResults:
    results = results_of(computation, sizes)
    if not len(results):
        return tables.CachedResults.empty()
    keys, functions = keys_and_functions_of(computation.tasks)
    rows = results["row"]
    columns = {name: results[name] for name in ("metric", "start", "stop")}
    return table_of(
        computation.info.name,
        Table({"key": keys[rows], "function": functions[rows], **columns}),
    )


def results_of(computation: ComputationSnapshot, sizes: Sequence[float]) -> Table:
    """The results of a computation, as ``row``, ``metric``, ``start`` and ``stop``.

    Those that were released come in that order, then those that were cached at the end, or are now.
    """
    tasks = computation.tasks
    collected = numbers_of(tasks)[5]
    # Tasks in flight come last.
    count = min(len(sizes), int((~np.isnan(collected)).sum()))
    if not count:
        return NO_ROWS
    new = NewResults.of(
        Table({"row": np.arange(count)}),
        sizes[:count],
        collected,
        tasks.dependents,
        (tasks.dependencies.counts, tasks.dependencies.rows),
    )
    results, stop = CachedResults(), computation.info.stop
    released = results.add(new)
    cached = results.until(perf_counter() if stop is None else stop)
    return stack([part for part in (released, cached) if len(part)])
