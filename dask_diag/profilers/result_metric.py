"""The function that measures the results of tasks: dask_diag's own, a library's, or the user's."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import isfinite
from typing import TYPE_CHECKING, Any, cast

from dask_diag.capture.result_sizes import ResultSizes
from dask_diag.formatting import BYTES, percent

if TYPE_CHECKING:
    from dask_diag.columns import FloatArray

__all__ = ["CheckedMetric", "ResultMetric", "notices_of_unknown", "unit_of"]

ResultMetric = Callable[[Any], Any]
"""The user's function that measures a result."""

_NAMED = 3
"""Types of results that a notice names."""
_NAN = float("nan")


class CheckedMetric:
    """A metric that returns finite numbers only, and never fails.

    Attributes
    ----------
    errors : dict
        How many results it failed on, by error.
    are_integers : bool
        Whether all sizes so far were whole numbers.
    """

    def __init__(self, metric: ResultMetric) -> None:
        self._metric = _quick_metric(metric)
        self.are_integers = True
        self.errors: dict[str, int] = {}

    def size_of(self, value: object) -> float:
        """The size of a result; NaN if the metric fails on it."""
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
            return _NAN


def _quick_metric(metric: ResultMetric) -> ResultMetric:
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


def unit_of(metric: ResultMetric | None) -> str:
    """The unit of a metric that is known; a name like ``megabytes`` says nothing for sure."""
    if isinstance(metric, ResultSizes):
        return BYTES
    for module, name in _MEASURE_BYTES:
        # What was never imported cannot have been passed.
        if metric is not None and metric is getattr(sys.modules.get(module), name, None):
            return BYTES
    return ""


def notices_of_unknown(counts: Iterable[Mapping[str, int]], total: int) -> list[str]:
    """What to say of results whose size is not known, counted by type, of so many in all."""
    unknown = sum(map(Counter, counts), Counter[str]())
    if not unknown:
        return []
    count = unknown.total()
    names = [name for name, _ in unknown.most_common(_NAMED)]
    more = ", …" if len(unknown) > _NAMED else ""
    return [
        f"the sizes of {count:,} of {total:,} results ({percent(count / max(count, total))}) "
        f"are not known: they are of type {', '.join(names)}{more}; a metric that measures them "
        "can be given"
    ]
