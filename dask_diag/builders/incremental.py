"""What has been measured since last asked: parts of a Recording, while computations run.

It hooks into nothing: it looks at what diagnostics collect anyway, from where it stopped the time
before. Rows are taken in the order in which the scheduler collected the tasks.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from dataclasses import fields, replace
from time import perf_counter
from typing import Any

from dask_diag.builders.keys import keys_columns
from dask_diag.builders.recording import cached_results_of, processes_table, resources_table
from dask_diag.capture.computation import Computation
from dask_diag.capture.tasks.task_log import Keys, NamesOfPlainKeys
from dask_diag.columns import concatenate
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack
from dask_diag.profilers.cache import CACHED_RESULT, CachedResults, CacheProfiler
from dask_diag.profilers.resources import PROCESS_COLUMNS, SAMPLE_COLUMNS, ResourceProfiler

__all__ = ["IncrementalCachedResults", "IncrementalResources", "Taken", "part_of", "without_rows"]

Tables = dict[str, Table]
Taken = tuple[Tables, Tables]
"""What is new for good, and what is so only now and will be told anew: what runs or is held."""


def part_of(diagnostics: Sequence[Any], tables: Tables, notices: Sequence[str]) -> Recording:
    """A part of the recording of several diagnostics over one block."""
    now = perf_counter()
    told = [text for each in diagnostics for text in each._notices()]
    empty: dict[str, Any] = {
        field.name: Table({}) for field in fields(Recording) if field.type == "Table"
    }
    metrics = [
        (each._metric_name, each._unit) for each in diagnostics if isinstance(each, CacheProfiler)
    ]
    metric, metric_unit = metrics[0] if metrics else ("", "")
    return Recording(
        start=min(each.start_time or now for each in diagnostics),
        stop=now,
        epoch=diagnostics[0]._epoch,
        metric=metric,
        metric_unit=metric_unit,
        notices=tuple(dict.fromkeys((*told, *notices))),
        **{**empty, **tables},
    )


def without_rows(recording: Recording) -> Recording:
    """What a recording has before it begins: all columns, and where it is made."""
    tables = {field.name for field in fields(Recording) if field.type == "Table"}
    return replace(
        recording,
        **{name: getattr(recording, name).rows(slice(0)) for name in tables - {"environment"}},
    )


class IncrementalResources:
    """The samples of a ResourceProfiler."""

    def __init__(self, profiler: ResourceProfiler) -> None:
        self._resources = _Rows(profiler._samples, len(SAMPLE_COLUMNS))
        self._processes = _Rows(profiler._processes, len(PROCESS_COLUMNS))

    def take(self) -> Taken:
        """The samples since last asked."""
        return {
            "resources": resources_table(self._resources.take()),
            "processes": processes_table(self._processes.take()),
        }, {}


class _Rows:
    """The whole rows of numbers that were added since last asked."""

    def __init__(self, numbers: array[float], width: int) -> None:
        self._numbers = numbers
        self._width = width
        self._taken = 0

    def take(self) -> array[float]:
        stop = len(self._numbers) // self._width * self._width
        new = self._numbers[self._taken : stop]
        self._taken = stop
        return new


class IncrementalCachedResults:
    """The results that a CacheProfiler saw let go; and those that are held.

    `told_of_tasks` gives the texts and functions of a computation's keys, up to the first of which
    they
    were not told before.
    """

    def __init__(
        self, profiler: CacheProfiler, told_of_tasks: Callable[[Computation, list[Any]], Any]
    ) -> None:
        self._profiler = profiler
        self._told_of_tasks = told_of_tasks
        self._seen = 0
        self._live: list[_CachedResultsOfComputation] = []

    def take(self) -> Taken:
        """The results let go since last asked, and those that are held now."""
        for computation in self._profiler._computations[self._seen :]:
            cached_results = self._profiler._cached_results.get(computation.number)
            if cached_results is None:
                # It begins just now.
                break
            self._seen += 1
            self._live.append(
                _CachedResultsOfComputation(computation, cached_results, self._told_of_tasks)
            )
        ended = [each for each in self._live if each.have_ended()]
        known = [each for each in self._live if each.has_names()]
        new = stack([*(each.release() for each in known), Table({})])
        held = stack([*(each.held() for each in known), Table({})])
        self._live = [each for each in self._live if each not in ended]
        return {"cached_results": new}, {"cached_results": held}


class _CachedResultsOfComputation:
    """The cached_results of one computation, from where they were taken last."""

    def __init__(
        self,
        computation: Computation,
        cached_results: CachedResults,
        told_of_tasks: Callable[[Computation, list[Any]], Any],
    ) -> None:
        self._compute = computation
        self._cached_results = cached_results
        self._told_of_tasks = told_of_tasks
        # As long as it runs this is a list; it is replaced at the end, and this one kept till then.
        self._keys: Any = cached_results.keys
        if not isinstance(self._keys, list):
            self._keys = list(self._keys)
        self._taken = 0
        self._dsk: Any = {}

    def have_ended(self) -> bool:
        return isinstance(self._cached_results.keys, Keys)

    def has_names(self) -> bool:
        """Whether functions can be told: not once its graph is let go of and it has not ended."""
        self._dsk = self._compute.dsk
        return self._compute.stop is None or self.have_ended()

    def release(self) -> Table:
        start, stop = self._taken, len(self._keys)
        self._taken = stop
        rows = bytes(
            self._cached_results.rows[start * CACHED_RESULT.size : stop * CACHED_RESULT.size]
        )
        return self._table(self._keys[start:stop], rows, start)

    def held(self) -> Table:
        """What is held now; to be asked last, as it lets go of the graph."""
        now = perf_counter()
        held = dict(self._cached_results.held)
        rows = b"".join(CACHED_RESULT.pack(metric, since, now) for metric, since in held.values())
        table = self._table(list(held), rows, None)
        self._dsk = {}
        return table

    def _table(self, keys: list[Any], rows: bytes, start: int | None) -> Table:
        told = self._told_of_tasks(self._compute, keys)
        known = len(told[0])
        others = keys_columns(keys[known:], dict(self._names_of(keys[known:], start, known)))
        columns = map(concatenate, zip(told, others, strict=True))
        return cached_results_of(self._compute, rows, *columns)

    def _names_of(
        self, keys: list[Any], start: int | None, known: int
    ) -> Iterable[tuple[int, str]]:
        if start is None or not self.have_ended():
            return NamesOfPlainKeys(keys, set(map(type, keys)), self._dsk)
        # It may have ended since the keys were taken: then there are names of later ones, too.
        first, stop = start + known, start + known + len(keys)
        return (
            (row - first, name) for row, name in self._cached_results.names if first <= row < stop
        )
