"""How much the scheduler held at each moment."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["Level", "levels_held"]


class Level(NamedTuple):
    """How much was held from each time on, until the next: a step function.

    `times` are seconds, ascending and distinct; `amounts` are in units of the metric.
    """

    times: np.ndarray[Any, Any]
    amounts: np.ndarray[Any, Any]

    @property
    def peak(self) -> float:
        """The largest amount."""
        return float(self.amounts.max(initial=0.0))


def levels_held(recording: Recording, origin: float = 0.0) -> tuple[dict[str, Level], Level]:
    """The level of each function's results, the highest first, and that of all together.

    Times are counted from `origin`.

    Results whose size is not known (NaN) are left out.
    """
    cache = recording.cached_results
    if not len(cache):
        return {}, Level(np.zeros(0), np.zeros(0))
    known = cache.rows(~np.isnan(cache["metric"]))
    functions = known["function"]
    order = np.argsort(functions.codes, kind="stable")
    cuts = np.searchsorted(functions.codes[order], np.arange(len(functions.values) + 1))
    levels = {
        name: level_of(known.rows(order[start:stop]), origin)
        for name, start, stop in zip(functions.values, cuts, cuts[1:], strict=False)
        if stop > start
    }
    highest_first = dict(sorted(levels.items(), key=lambda item: -item[1].peak))
    return highest_first, level_of(known, origin)


def level_of(held: Table, origin: float = 0.0) -> Level:
    """The level of some rows of `Recording.cached_results`; times are counted from `origin`."""
    times = np.concatenate([held["start"], held["stop"]])
    changes = np.concatenate([held["metric"], -held["metric"]])
    moments, inverse = np.unique(times, return_inverse=True)
    amounts = np.cumsum(np.bincount(inverse, changes, minlength=len(moments)))
    if len(amounts):
        # All is let go by the end; what rounding left over is not held.
        amounts[-1] = 0.0
    return Level(moments - origin, amounts)
