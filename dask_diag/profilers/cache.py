"""The profiler of results that the scheduler caches, as other tasks depend on them."""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import partial
from math import isnan
from time import perf_counter
from typing import TYPE_CHECKING

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
from dask_diag.errors import ArgumentTypeError
from dask_diag.formatting import BYTES, counted, percent
from dask_diag.profilers.hook_cost import TASKS, seconds_per_task
from dask_diag.profilers.on_clusters import OnClusters
from dask_diag.profilers.result_metric import CheckedMetric, ResultMetric, unit_of
from dask_diag.validation import text

if TYPE_CHECKING:
    from dask_diag.builders.cluster_results import ClusterResults
    from dask_diag.capture.cluster.log import ClusterLog
    from dask_diag.capture.cluster.messages import Wants
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table

__all__ = ["CacheData", "CacheProfiler"]

CacheData = namedtuple("CacheData", ("key", "task", "metric", "cache_time", "free_time"))
"""A result that the scheduler cached, as `CacheProfiler.results` hold it."""

_NAMED = 3
"""Types of results that a notice names."""


class CacheProfiler(OnClusters):
    """Profile the results that the scheduler caches in memory between tasks.

    On a client of distributed: the results that are in the memory of its workers.

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

    On a cluster a result is there from when the scheduler knows it to be until no one needs it; one
    that several workers have counts once. The metric is not called there: where it is in bytes,
    they are those that distributed measures, and results count 1 without a metric. With any other
    metric, those of clusters are left out.
    """

    draws = "cache"

    def __init__(
        self,
        metric: ResultMetric | None = None,
        metric_name: str | None = None,
        unit: str | None = None,
    ) -> None:
        if metric is not None and not callable(metric):
            raise ArgumentTypeError(
                f"metric: expected a callable that takes a result and returns a number, found "
                f"{metric!r}; leave it out to count results"
            )
        self._results_by_computation: dict[int, CachedResults] = {}
        self._released: ClusterResults | None = None
        super().__init__()
        self._sizes = _sizes_by(metric)
        self.metric_name = metric_name or ("count" if metric is None else str(funcname(metric)))
        self.metric_unit = unit_of(metric) if unit is None else text("unit", unit, BYTES)

    @property
    def _metric_name(self) -> str:
        """The name that dask.diagnostics has for `metric_name`."""
        return self.metric_name

    def clear(self) -> None:
        """Forget what was recorded, except of computations that are running now."""
        with self._lock:
            super().clear()
            self._released = None
            running = {computation.number for computation in self.session.computations}
            for number in set(self._results_by_computation) - running:
                del self._results_by_computation[number]
            if isinstance(self._sizes, CheckedMetric):
                self._sizes.errors.clear()
            elif self._sizes is not None:
                self._sizes.unknown.clear()

    @property
    def results(self) -> list[CacheData]:
        """A namedtuple for each result, those of clusters after those of this process.

        It is made when asked for, from the recorded columns.
        """
        with self._lock:
            results = super().results
            if self.clusters.logs and self._is_known_on_clusters:
                self._released = self._released or self._cluster_results()
                self.clusters.pull()
                results.extend(
                    CacheData(key, TaskInfo(key, function), int(metric), *times)
                    for key, function, metric, *times in self._released.take_rows(
                        self.clusters.logs
                    )
                )
            return results

    @property
    def recording(self) -> Recording:
        """The results of all computations so far, those that are cached now included."""
        from dask_diag.builders.recording import build_recording, cached_results_table

        now = perf_counter()
        cached_results = self.cached_results()
        recording = build_recording(
            self.session,
            [snapshot_of(computation) for computation, _ in cached_results],
            self.notices(),
            cached_results=cached_results_table(
                (computation.name, results.snapshot(now)) for computation, results in cached_results
            ),
            metric=self.metric_name,
            metric_unit=self.metric_unit,
        )
        return self._with_clusters(recording)

    def _wants(self) -> Wants:
        return {"results": self._is_known_on_clusters}

    @property
    def _is_known_on_clusters(self) -> bool:
        return self._sizes is None or self.metric_unit == BYTES

    def _sampled_on_clusters(self, logs: Sequence[ClusterLog]) -> dict[str, Table]:
        return {"cached_results": self._cluster_results().take(logs)}

    def _cluster_results(self) -> ClusterResults:
        from dask_diag.builders.cluster_results import ClusterResults

        return ClusterResults(self.metric_unit == BYTES)

    def results_on_clusters(self) -> Callable[[], Table]:
        """Returns, each time it is called, the results on clusters that are new."""
        results = self._cluster_results()
        return lambda: results.take(self.clusters.logs)

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
        notices = [*super().notices(), *self._notices_of_unknown_sizes()]
        if self.clusters.logs and not self._is_known_on_clusters:
            notices.append(
                f"CacheProfiler: results on clusters are left out: {self.metric_name} is not "
                "called there; a metric in bytes, or none, is known"
            )
        errors = self._sizes.errors if isinstance(self._sizes, CheckedMetric) else {}
        return notices + [
            f"CacheProfiler: the metric failed on {counted(count, 'result')} with "
            f"{error}, which {'counts' if count == 1 else 'count'} as NaN"
            for error, count in tuple(errors.items())
        ]

    def _notices_of_unknown_sizes(self) -> list[str]:
        if not isinstance(self._sizes, ResultSizes) or not self._sizes.unknown:
            return []
        unknown = dict(self._sizes.unknown)
        count, total = sum(unknown.values()), sum(len(sizes) for _, sizes in self.cached_results())
        names = sorted(unknown, key=lambda name: -unknown[name])
        more = ", …" if len(names) > _NAMED else ""
        return [
            f"the sizes of {count:,} of {total:,} results ({percent(count / max(count, total))}) "
            f"are not known: they are of type {', '.join(names[:_NAMED])}{more}; a metric that "
            "measures them can be given"
        ]

    def _calibrate(self) -> None:
        sized = isinstance(self._sizes, ResultSizes)
        rehearse = partial(_rehearse_results, ResultSizes() if sized else None)
        name = "sized results" if sized else "results"
        self._hooks["results"] = seconds_per_task(name, rehearse)

    def _meet_state(self, dsk: Graph, state: SchedulerState) -> None:
        super()._meet_state(dsk, state)
        computation = state[STATE_KEY]
        self._results_by_computation[computation.number].state = state
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
            if self._sizes is None:
                metric: float = 1
            else:
                metric = self._sizes.size_of(value)
                if type(metric) is not int:
                    cached_results.integers = False
                if computation.sizer is self:
                    computation.note_size(key, metric)
            numbers = cached_results.new_numbers
            numbers.append(metric)
            numbers.append(perf_counter())
            cached_results.new_keys.append(key)
        except Exception as error:
            self._fault("to record a result", error)

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
    results = profiler._results_by_computation[computation.number] = CachedResults({})
    tasks = range(TASKS)
    state: SchedulerState = {
        STATE_KEY: computation,
        "released": frozenset(tasks),
        "dependencies": {number: (number - 1,) if number else () for number in tasks},
        "dependents": {number: (number + 1,) for number in tasks},
    }

    results.state = state

    def work(number: int) -> None:
        computation.keys.append(number)
        profiler._posttask(number, None, {}, state, 0)
        if number == tasks[-1]:
            # What is found later of all of them is done for each as well.
            results.released_and_cached(0)

    return work


def _sizes_by(metric: ResultMetric | None) -> ResultSizes | CheckedMetric | None:
    return metric if metric is None or isinstance(metric, ResultSizes) else CheckedMetric(metric)


def _released_results(results: CachedResultsSnapshot) -> Iterator[CacheData]:
    from dask_diag.builders.keys import keys_columns

    keys = list(results.keys)
    functions = keys_columns(keys, dict(results.names))[1].tolist()
    rows = CACHED_RESULT.iter_unpack(results.rows)
    for key, function, (metric, start, stop) in zip(keys, functions, rows, strict=True):
        size = int(metric) if results.integers and not isnan(metric) else metric
        yield CacheData(key, TaskInfo(key, function), size, start, stop)
