"""Keys as text, many at once: one by one, it would take longer than all else that is recorded."""

from __future__ import annotations

from collections.abc import Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from dask_diag.columns import Labels, Texts

__all__ = ["codes_of", "tuples_as_text"]

Cells = np.ndarray[Any, np.dtype[np.uint8]]
"""A row of characters for each key; those that are zero are left out."""


def codes_of(items: Sequence[Any]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """For each item its position among the distinct ones, and those."""
    distinct = list(dict.fromkeys(items))
    position = {item: place for place, item in enumerate(distinct)}
    return np.fromiter(map(position.__getitem__, items), np.int64, len(items)), distinct


def tuples_as_text(keys: Sequence[Any]) -> tuple[Texts, list[Any]] | None:
    """Keys such as ``("x", 1, 2)`` as ``str`` writes them, and the distinct names.

    None if not all are of that shape.
    """
    if set(map(type, keys)) != {tuple} or not all(keys):
        return None
    names = list(map(itemgetter(0), keys))
    if set(map(type, names)) != {str}:
        return None
    codes, distinct = codes_of(names)
    cells = _cells_of_numbers(keys)
    if cells is None or any(", " in name for name in distinct):
        return None
    there = cells != 0
    heads = Labels(codes, [f"({name!r}," for name in distinct])
    tails = cells[there].tobytes()
    return Texts.from_encoded(heads, np.count_nonzero(there, axis=1), tails), distinct


def _cells_of_numbers(keys: Sequence[Any]) -> Cells | None:
    """What follows the name; None if something is no integer, or there is nothing."""
    lengths = np.fromiter(map(len, keys), np.int64, len(keys))
    parts = []
    for length in np.unique(lengths).tolist():
        rows = np.flatnonzero(lengths == length)
        alike = keys if len(rows) == len(keys) else [keys[row] for row in rows.tolist()]
        columns = [_integers(list(map(itemgetter(at), alike))) for at in range(1, length)]
        if not columns or any(column is None for column in columns):
            return None
        parts.append((rows, _between_commas([_digits(column) for column in columns])))
    if len(parts) == 1:
        return parts[0][1]
    cells = np.zeros((len(keys), max(part.shape[1] for _, part in parts)), np.uint8)
    for rows, part in parts:
        cells[rows, : part.shape[1]] = part
    return cells


def _integers(items: list[Any]) -> np.ndarray[Any, Any] | None:
    # A bool is written as a word, and a numpy integer as numpy writes it.
    if set(map(type, items)) != {int}:
        return None
    try:
        return np.array(items, dtype=np.int64)
    except OverflowError:
        return None


def _between_commas(columns: Sequence[Cells]) -> Cells:
    """Columns of numbers as they stand in a tuple: `` 1, 2)``."""
    ends = [b","] * (len(columns) - 1) + [b")"]
    rows = len(columns[0])
    parts = []
    for column, end in zip(columns, ends, strict=True):
        parts += [_same(b" ", rows), column, _same(end, rows)]
    return np.concatenate(parts, axis=1)


def _same(character: bytes, rows: int) -> Cells:
    return np.full((rows, 1), ord(character), np.uint8)


def _digits(numbers: Any) -> Cells:
    """Integers as people write them, with zero in the cells that are not needed."""
    size = np.abs(numbers).astype(np.uint64)
    # Of -2**63 the absolute value is itself, which is right once it has no sign.
    largest = int(size.max())
    left = size.astype(np.min_scalar_type(largest))
    width = len(str(largest))
    cells = np.zeros((len(numbers), width + 1), np.uint8)
    for place in range(width, 0, -1):
        rest = left // 10
        digit = (left - rest * 10 + ord("0")).astype(np.uint8)
        cells[:, place] = digit if place == width else np.where(left > 0, digit, 0)
        left = rest
    cells[:, 0] = np.where(numbers < 0, ord("-"), 0)
    return cells
