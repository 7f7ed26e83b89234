"""The profiler of results that the scheduler caches for dependent tasks."""

from __future__ import annotations

import sys
from array import array
from collections import Counter, namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from math import isfinite, isnan, nan
from typing import TYPE_CHECKING, Any, cast

from dask.utils import funcname

from dask_diag.capture.computation import Computation, ComputationSnapshot
from dask_diag.capture.results import ResultSizes
from dask_diag.capture.task_info import TaskInfo
from dask_diag.errors import ArgumentTypeError, text
from dask_diag.formatting import BYTES, counted, percent
from dask_diag.hooks.stack import requested_keys
from dask_diag.profilers.base import Diagnostic
from dask_diag.profilers.engine import (
    SizeOf,
    Watch,
    rehearsal,
    rehearsal_of_results,
    seconds_per_task,
)
from dask_diag.system.interpreter import growing_array

if TYPE_CHECKING:
    from dask_diag.cluster.log import ClusterLog
    from dask_diag.cluster.tasks_table import ClusterResults
    from dask_diag.cluster.wire import Wants
    from dask_diag.columns import FloatArray
    from dask_diag.model.recording import Recording
    from dask_diag.model.table import Table


ResultMetric = Callable[[Any], Any]
"""The user's function that measures a result."""

_NAMED = 3
"""Types of results that a notice names."""


class CheckedMetric:
    """A metric that returns finite numbers only, and never fails.

    Attributes
    ----------
    errors : dict
        Number of failures by error.
    are_integers : bool
        Whether all sizes so far were whole numbers.
    """

    def __init__(self, metric: ResultMetric) -> None:
        self._metric = _quick_metric(metric)
        self.are_integers = True
        self.errors: dict[str, int] = {}

    def __call__(self, value: object) -> float:
        """Size of a result; NaN if the metric fails."""
        try:
            metric = self._metric(value)
            if not isfinite(metric):
                raise ValueError(f"expected a finite number, found {metric}")
            if type(metric) is int:
                return metric
            if hasattr(metric, "__index__"):
                return int(metric.__index__())
            self.are_integers = False
            return float(metric)
        except Exception as error:
            message = f"{type(error).__name__}: {error}"[:200]
            self.errors[message] = self.errors.get(message, 0) + 1
            return nan


def _quick_metric(metric: ResultMetric) -> ResultMetric:
    """Replace ``cachey.nbytes``, which takes long for an array, by an equal function."""
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


def unit_of(metric: ResultMetric | None) -> str:
    """Unit of a known metric; empty for others, whatever their name."""
    if isinstance(metric, ResultSizes):
        return BYTES
    for module, name in _MEASURE_BYTES:
        # What was never imported cannot have been passed.
        if metric is not None and metric is getattr(sys.modules.get(module), name, None):
            return BYTES
    return ""


def notices_of_unknown(counts: Iterable[Mapping[str, int]], total: int) -> list[str]:
    """Notice on results of unknown size, from counts by type and the number of all results."""
    unknown = sum(map(Counter, counts), Counter[str]())
    if not unknown:
        return []
    count = unknown.total()
    names = [name for name, _ in unknown.most_common(_NAMED)]
    more = ", …" if len(unknown) > _NAMED else ""
    return [
        f"sizes are unknown for {count:,} of {total:,} results "
        f"({percent(count / max(count, total))}), of type {', '.join(names)}{more}; pass metric=, "
        "a function that measures them"
    ]


CacheData = namedtuple("CacheData", ("key", "task", "metric", "cache_time", "free_time"))
CacheData.__doc__ = "A result in `CacheProfiler.results`; times of ``time.perf_counter()``."


class CacheProfiler(Diagnostic):
    """Profile the results that the scheduler caches in memory between tasks.

    On a cluster of distributed, these are the results in the memory of the workers.

    Parameters
    ----------
    metric : callable, optional
        Takes the result of a task and returns its size as a number; ``cachey.nbytes`` measures
        bytes. Default: each result counts 1. If the metric raises, the size of that result is NaN,
        and a notice counts the errors.
    metric_name : str, optional
        Name of the metric, for labels. Default: the name of the callable.
    unit : str, optional
        Unit of the metric. ``"bytes"`` and ``"seconds"`` are shown with prefixes, any other unit as
        it is. Default: ``"bytes"`` for ``cachey.nbytes``, ``dask.sizeof.sizeof`` and
        ``sys.getsizeof``, no unit for other callables.

    Attributes
    ----------
    results : list of CacheData
        For each result: key, task, metric, and the times (seconds of ``time.perf_counter()``) at
        which the scheduler received and released the result.
    recording : Recording
        The same in the table ``cached_results``, with the computations.

    Raises
    ------
    ArgumentTypeError
        If `metric` is not callable, or `unit` is not text.

    See Also
    --------
    record : Runs all profilers over a block, this one with bytes as its metric.

    Notes
    -----
    The profiler keeps the size of a result, never the result. The scheduler releases a result after
    the last task that needs the result, unless the caller requested it.

    On a cluster, the lifetime of a result runs from when the scheduler learns of it until it is
    released; replicas count once. The metric is not called on a cluster: if the metric measures
    bytes, sizes are those that distributed measures; without a metric, each result counts 1; with
    any other metric, results on clusters are left out.

    Examples
    --------
    >>> import sys
    >>> from dask.threaded import get
    >>> from dask_diag import CacheProfiler
    >>> with CacheProfiler(sys.getsizeof) as cprof:
    ...     get({"x": (bytes, 1000), "y": (len, "x")}, "y")
    1000
    >>> [(data.key, data.metric) for data in cprof.results]
    [('x', 1033), ('y', 28)]
    """

    draws = "cache"
    measures_results = True

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
        self._sizes_by_computation: dict[int, array[float]] = {}
        # Numbers of results of unknown size by type, of each computation that has some or runs.
        self._unknown: dict[int, Mapping[str, int]] = {}
        self._released: ClusterResults | None = None
        super().__init__()
        self._sizes = _sizes_by(metric)
        self._size_of: SizeOf = self._sizes or _counts_as_one
        self._cost = self._cost_beside_tasks = 0.0
        self.metric_name = metric_name or ("count" if metric is None else str(funcname(metric)))
        self.metric_unit = unit_of(metric) if unit is None else text("unit", unit, BYTES)

    @property
    def _metric_name(self) -> str:
        """Name of `metric_name` in dask.diagnostics."""
        return self.metric_name

    def clear(self) -> None:
        """Forget everything except running computations."""
        with self._lock:
            super().clear()
            self._released = None
            running = {computation.number for computation in self.session.computations}
            for number in set(self._sizes_by_computation) - running:
                del self._sizes_by_computation[number]
                self._unknown.pop(number, None)
            if isinstance(self._sizes, CheckedMetric):
                self._sizes.errors.clear()
            elif self._sizes is not None:
                self._sizes.unknown.clear()

    @property
    def results(self) -> list[CacheData]:
        """A `CacheData` for each result, those of clusters last."""
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
        """The results of all computations so far, those still cached included."""
        from dask_diag.capture.build import build_recording
        from dask_diag.capture.increments import tasks_tables

        made = tasks_tables(self.session, results=self)
        names = ("computations", "pools", "quotas", "workers", "threads", "cached_results")
        recording = build_recording(
            self.session,
            self.notices(),
            {name: made[name] for name in names},
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

    def results_on_clusters(self) -> Callable[[], Table]:
        """Return a function whose calls each return the new results on clusters."""
        results = self._cluster_results()
        return lambda: results.take(self.clusters.logs)

    def _cluster_results(self) -> ClusterResults:
        from dask_diag.cluster.tasks_table import ClusterResults

        return ClusterResults(self.metric_unit == BYTES)

    def sizes_of(self, computation: Computation) -> Sequence[float] | None:
        """Sizes of results, one for each row of a computation; None if it was not seen.

        It grows: the last one may be there just before its row, or just after.
        """
        return self._sizes_by_computation.get(computation.number)

    def _results_of(self, computation: ComputationSnapshot) -> list[CacheData]:
        from dask_diag.capture.results_table import results_of
        from dask_diag.capture.tasks_table import functions_of

        sizes = self._sizes_by_computation[computation.number]
        keys, functions = list(computation.tasks.keys), functions_of(computation).tolist()
        are_integers = self._sizes is None or self._sizes.are_integers
        results = results_of(computation, sizes)
        columns = [results[name].tolist() for name in results.columns]
        return [
            CacheData(
                keys[row],
                TaskInfo(keys[row], functions[row]),
                int(metric) if are_integers and not isnan(metric) else metric,
                *times,
            )
            for row, metric, *times in zip(*columns, strict=True)
        ]

    def notices(self) -> list[str]:
        """Sentences that a reader of the numbers should know."""
        notices = [*super().notices(), *self._notices_of_unknown_sizes()]
        if self.clusters.logs and not self._is_known_on_clusters:
            notices.append(
                f"CacheProfiler: results on clusters are left out, because {self.metric_name} is "
                "not called there; use a metric in bytes, or none"
            )
        errors = self._sizes.errors if isinstance(self._sizes, CheckedMetric) else {}
        return notices + [
            f"CacheProfiler: the metric failed on {counted(count, 'result')}, counted as NaN: "
            f"{error}"
            for error, count in tuple(errors.items())
        ]

    def _notices_of_unknown_sizes(self) -> list[str]:
        own = [self._sizes.unknown] if isinstance(self._sizes, ResultSizes) else []
        total = sum(map(len, self._sizes_by_computation.values()))
        return notices_of_unknown([*own, *self._unknown.values()], total)

    def _calibrate(self) -> None:
        if isinstance(self._sizes, ResultSizes):
            name, sizes = "sized results", ResultSizes()
        else:
            name, sizes = "results", None
        self._cost = seconds_per_task(name, partial(rehearsal_of_results, sizes or _counts_as_one))
        beside = seconds_per_task(f"tasks and {name}", partial(rehearsal, None, sizes))
        self._cost_beside_tasks = max(0.0, beside - seconds_per_task("tasks", rehearsal))

    def _began(self, computation: Computation) -> None:
        self._sizes_by_computation[computation.number] = growing_array("d")

    def tasks_start(self, watch: Watch) -> None:
        """Measure the results of a computation."""
        computation = watch.computation
        sizes = self._sizes_by_computation[computation.number]
        if watch.measures_tasks and isinstance(self._sizes, ResultSizes):
            # Bytes are measured where a result was made: it is in the processor's cache there, and
            # the scheduler is not kept from its work. A user's metric is called by the scheduler.
            result_sizes = computation.result_sizes = computation.result_sizes or ResultSizes()
            self._unknown[computation.number] = result_sizes.unknown
            sizes = self._sizes_by_computation[computation.number] = result_sizes.of_rows
        else:
            watch.measure_results(sizes, self._size_of)
        if computation.requested is None:
            computation.requested = requested_keys()
        if computation.sizes is None and self.metric_unit == BYTES:
            computation.sizes = sizes
        computation.hooks["results"] = (
            self._cost_beside_tasks if watch.measures_tasks else self._cost
        )

    def computation_ends(self, computation: Computation, failed: bool) -> None:
        """Forget an empty count. Without a lock: a reader may take long."""
        if not self._unknown.get(computation.number):
            self._unknown.pop(computation.number, None)


def _counts_as_one(value: object) -> int:
    """The size of a result without a metric."""
    return 1


def _sizes_by(metric: ResultMetric | None) -> ResultSizes | CheckedMetric | None:
    return metric if metric is None or isinstance(metric, ResultSizes) else CheckedMetric(metric)
