"""Rows of a table by label or by pairs of labels, and the order in which workers are listed."""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_diag.columns import Array, Categorical, IntArray

__all__ = ["distinct_pairs", "rows_by", "rows_by_code", "worker_order"]


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


def distinct_pairs(first: Array, second: Array) -> tuple[Array, Array, IntArray]:
    """The pairs that occur, in order, as two arrays, and which of them each row is."""
    # One number for a pair sorts ten times as fast as rows of two.
    left, left_code = np.unique(first, return_inverse=True)
    right, right_code = np.unique(second, return_inverse=True)
    base = max(len(right), 1)
    codes, row = np.unique(left_code * base + right_code, return_inverse=True)
    return left[codes // base], right[codes % base], row


def worker_order(name: str) -> tuple[str, int, str]:
    """What workers are sorted by: kind, then number."""
    return name.partition("-")[0], len(name), name
