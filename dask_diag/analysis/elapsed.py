"""How long computations ran, where several may have run at once."""

from __future__ import annotations

import numpy as np

from dask_diag.model.table import Table

__all__ = ["seconds_computing"]


def seconds_computing(computations: Table) -> float:
    """Seconds in which at least one computation ran."""
    if not len(computations):
        return 0.0
    order = np.argsort(computations["start"])
    starts, stops = computations["start"][order], computations["stop"][order]
    reached = np.maximum.accumulate(stops)
    begins = np.maximum(starts[1:], reached[:-1])
    first = stops[0] - starts[0]
    return float(first + np.maximum(stops[1:] - begins, 0.0).sum())
