"""The profiler of results that the scheduler caches, as other tasks depend on them."""

from __future__ import annotations

import sys
from collections import namedtuple
from collections.abc import Callable, Collection, Hashable, Iterator
from functools import partial
from math import isfinite, isnan
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

from dask.utils import funcname

from dask_diag.capture.cached_results import (
    CACHED_RESULT,
    CachedResults,
    CachedResultsSnapshot,
)
from dask_diag.capture.computation import STATE_KEY, Computation
from dask_diag.capture.computation_reader import snapshot_of
from dask_diag.capture.dask_internals import Graph, SchedulerState
from dask_diag.capture.result_sizes import ResultSizes
from dask_diag.capture.snapshot import ComputationSnapshot
from dask_diag.capture.tasks.task_info import TaskInfo
from dask_diag.formatting import BYTES, percent
from dask_diag.profilers.base import Diagnostic
from dask_diag.profilers.hook_cost import seconds_per_task
from dask_diag.validation import text

if TYPE_CHECKING:
    from dask_diag.columns import FloatArray
    from dask_diag.model.recording import Recording

__all__ = ["CacheData", "CacheProfiler", "ResultMetric"]

CacheData = namedtuple("CacheData", ("key", "task", "metric", "cache_time", "free_time"))
"""A result that the scheduler cached, as `CacheProfiler.results` hold it."""

ResultMetric = Callable[[Any], Any]
"""The user's function that measures a result."""

_NAN = float("nan")
_NAMED = 3
"""Types of results that a notice names."""


class CacheProfiler(Diagnostic):
    """Profile the results that the scheduler caches in memory between tasks.

    Parameters
    ----------
    metric : callable, optional
        Called with each task's result; returns its size as a number. By default each result counts
        1. ``cachey.nbytes`` measures bytes. An error that it raises is caught, counted and shown in
        the summary; that result's size is then not known (NaN).
    metric_name : str, optional
        What the metric measures, for labels; the callable's name by default.
    unit : str, optional
        The unit of what the metric returns: ``"bytes"`` and ``"seconds"`` are shown with prefixes,
        any other as it is. By default ``cachey.nbytes``, ``dask.sizeof.sizeof`` and
        ``sys.getsizeof`` return bytes, and all others numbers without a unit, whatever their name.

    Attributes
    ----------
    results : list of CacheData
        Key, task, metric, and the times (seconds of ``time.perf_counter()``) at which the scheduler
        got the result and released it.

    Notes
    -----
    The work per task grows with the number of its inputs, not with what has been done or is cached.
    """

    draws = "cache"

    def __init__(
        self,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
    ) -> None:
        if metric is not None and not callable(metric):
            raise TypeError(
                f"metric: expected a callable that takes a result and returns a number, found "
                f"{metric!r}; leave it out to count results"
            )
        self._results_by_computation: dict[int, CachedResults] = {}
        self._metric_errors: dict[str, int] = {}
        super().__init__()
        self._metric = metric
        self._size_of = _quick_metric(metric)
        # It never fails, and returns nothing but sizes.
        self._measure = metric.size_of if isinstance(metric, ResultSizes) else self._checked_metric
        self.metric_name = metric_name or ("count" if metric is None else str(funcname(metric)))
        self.metric_unit = _unit_of(metric) if unit is None else text("unit", unit, BYTES)

    @property
    def _metric_name(self) -> str:
        """The name that dask.diagnostics has for `metric_name`."""
        return self.metric_name

    def clear(self) -> None:
        """Forget what was recorded, except of computations that are running now."""
        with self._lock:
            super().clear()
            running = {computation.number for computation in self.session.computations}
            for number in set(self._results_by_computation) - running:
                del self._results_by_computation[number]
            self._metric_errors = {}
            if isinstance(self._metric, ResultSizes):
                self._metric.unknown.clear()

    @property
    def recording(self) -> Recording:
        """The results of all computations so far, those that are cached now included."""
        from dask_diag.builders.recording import build_recording, cached_results_table

        now = perf_counter()
        cached_results = self.cached_results()
        return build_recording(
            self.session,
            [snapshot_of(computation) for computation, _ in cached_results],
            self.notices(),
            cached_results=cached_results_table(
                (computation.name, results.snapshot(now)) for computation, results in cached_results
            ),
            metric=self.metric_name,
            metric_unit=self.metric_unit,
        )

    def cached_results(self) -> list[tuple[Computation, CachedResults]]:
        """The computations seen so far, each with its results."""
        with self._lock:
            return [
                (computation, self._results_by_computation[computation.number])
                for computation in self.session.computations
            ]

    def _results_of(self, computation: ComputationSnapshot) -> list[CacheData] | None:
        results = self._results_by_computation[computation.info.number].finished
        return None if results is None else list(_released_results(results))

    def notices(self) -> list[str]:
        """What a reader must know besides the numbers."""
        return [*super().notices(), *self._notices_of_unknown_sizes()] + [
            f"CacheProfiler: the metric failed on {count:,} result{'s' * (count != 1)} with "
            f"{error}, which {'counts' if count == 1 else 'count'} as NaN"
            for error, count in tuple(self._metric_errors.items())
        ]

    def _notices_of_unknown_sizes(self) -> list[str]:
        if not isinstance(self._metric, ResultSizes) or not self._metric.unknown:
            return []
        unknown = dict(self._metric.unknown)
        count, total = sum(unknown.values()), sum(len(each) for _, each in self.cached_results())
        names = sorted(unknown, key=lambda name: -unknown[name])
        more = ", …" if len(names) > _NAMED else ""
        return [
            f"the sizes of {count:,} of {total:,} results ({percent(count / max(count, total))}) "
            f"are not known: they are of type {', '.join(names[:_NAMED])}{more}; a metric that "
            "measures them can be given"
        ]

    def _calibrate(self) -> None:
        sized = isinstance(self._metric, ResultSizes)
        rehearse = partial(_rehearse_results, ResultSizes() if sized else None)
        name = "sized results" if sized else "results"
        self._hooks["results"] = seconds_per_task(name, rehearse)

    def _meet_state(self, dsk: Graph, state: SchedulerState) -> None:
        super()._meet_state(dsk, state)
        computation = state[STATE_KEY]
        if computation.sizer is None and self.metric_unit == BYTES:
            computation.sizer = self

    def _began(self, computation: Computation) -> None:
        self._results_by_computation[computation.number] = CachedResults(computation.dsk)

    def _posttask(
        self, key: Hashable, value: object, dsk: Graph, state: SchedulerState, worker_id: object
    ) -> None:
        try:
            computation = state[STATE_KEY]
            cached_results = self._results_by_computation[computation.number]
            if self._metric is None:
                metric: float = 1
            else:
                metric = self._measure(value)
                if type(metric) is not int:
                    cached_results.integers = False
                if computation.sizer is self:
                    computation.note_size(key, metric)
            now = perf_counter()
            cached, released = cached_results.cached, state["released"]
            cached[key] = metric, now
            for dependency in state["dependencies"][key]:
                if dependency in released and dependency in cached:
                    cached_results.release(dependency, now)
        except Exception as error:
            self._fault("to record a result", error)

    def _checked_metric(self, value: object) -> float:
        try:
            metric = self._size_of(value)  # type: ignore[misc]
            if not isfinite(metric):
                raise ValueError(f"expected a finite number, found {metric}")
            if type(metric) is int:
                return metric
            size: float = metric.__index__() if hasattr(metric, "__index__") else float(metric)
            return size
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:200]
            self._metric_errors[message] = self._metric_errors.get(message, 0) + 1
            return _NAN

    def _ended(self, computation: Computation, dsk: Graph) -> None:
        results = self._results_by_computation.get(computation.number)
        if results is not None:
            # Else it was cleared: for another diagnostic the computation had ended already.
            results.finish(perf_counter())


def _rehearse_results(metric: ResultMetric | None) -> Callable[[int], None]:
    """What is done for each result, except for a metric of the user's."""
    profiler = CacheProfiler(metric)
    computation = Computation({})
    computation.sizer = profiler if metric else None
    profiler._results_by_computation[computation.number] = CachedResults({})
    released: set[Hashable] = set()
    dependencies: dict[Hashable, Collection[Hashable]] = {}
    state: SchedulerState = {
        STATE_KEY: computation,
        "released": released,
        "dependencies": dependencies,
    }

    def work(number: int) -> None:
        dependencies[number] = (number - 1,)
        released.add(number - 1)
        computation.keys.append(number)
        profiler._posttask(number, None, {}, state, 0)

    return work


def _released_results(results: CachedResultsSnapshot) -> Iterator[CacheData]:
    from dask_diag.builders.keys import keys_columns

    keys = list(results.keys)
    functions = keys_columns(keys, dict(results.names))[1].tolist()
    rows = CACHED_RESULT.iter_unpack(results.rows)
    for key, function, (metric, start, stop) in zip(keys, functions, rows, strict=True):
        size = int(metric) if results.integers and not isnan(metric) else metric
        yield CacheData(key, TaskInfo(key, function), size, start, stop)


def _quick_metric(metric: ResultMetric | None) -> ResultMetric | None:
    """The same metric; ``cachey.nbytes`` of an array takes longer than all else done for a task."""
    nbytes: ResultMetric | None = getattr(sys.modules.get("cachey"), "nbytes", None)
    return metric if nbytes is None or metric is not nbytes else partial(_nbytes, nbytes)


def _nbytes(nbytes: ResultMetric, value: object) -> object:
    kind = type(value)
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        array = cast("FloatArray", value)
        # Of objects their sizes are estimated.
        if array.dtype.kind != "O":
            return array.nbytes
    return nbytes(value)


_MEASURE_BYTES = (("sys", "getsizeof"), ("dask.sizeof", "sizeof"), ("cachey", "nbytes"))


def _unit_of(metric: ResultMetric | None) -> str:
    """The unit of a metric that is known; a name like ``megabytes`` says nothing for sure."""
    if isinstance(metric, ResultSizes):
        return BYTES
    for module, name in _MEASURE_BYTES:
        # What was never imported cannot have been passed.
        if metric is not None and metric is getattr(sys.modules.get(module), name, None):
            return BYTES
    return ""
