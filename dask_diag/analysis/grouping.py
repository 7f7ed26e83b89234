"""Rows of a table by label, and the order in which workers are listed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_diag.columns import Array, Categorical, IntArray

__all__ = ["rows_by", "rows_by_code", "worker_order"]


def rows_by_code(codes: Array) -> dict[int, IntArray]:
    """The rows of each code that occurs, ascending."""
    if not len(codes):
        return {}
    order = np.argsort(codes, kind="stable")
    present, first = np.unique(codes[order], return_index=True)
    return dict(zip(present.tolist(), np.split(order, first[1:]), strict=True))


def rows_by(labels: Categorical) -> dict[Any, IntArray]:
    """The rows of each value that occurs, ascending."""
    return {labels.values[code]: rows for code, rows in rows_by_code(labels.codes).items()}


def worker_order(name: str) -> tuple[str, int, str]:
    """What workers are sorted by: kind, then number."""
    return name.partition("-")[0], len(name), name
