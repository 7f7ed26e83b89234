"""Keys for a page: a few patterns, and numbers that mostly count up."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import count

import numpy as np

from dask_diag.columns import Array, Categorical, IntArray, PrefixStrings, smallest_integers
from dask_diag.views.escaping import shown

__all__ = ["BETWEEN_PATTERNS", "NUMBER", "columns_of_keys"]

NUMBER = "\x1f"
"""In a pattern, where a number is. What is shown has no such characters."""
BETWEEN_PATTERNS = "\x1e"

_NUMBERS = re.compile(r"(?<![0-9A-Za-z])(0|[1-9][0-9]{0,14})(?![0-9A-Za-z])")
_LONGEST_PIECE = 200


def columns_of_keys(keys: PrefixStrings, groups: Array) -> dict[str, Array | str]:
    """What ``keys.js`` makes the keys of, in columns to be packed.

    Parameters
    ----------
    keys : PrefixStrings
    groups : array of int
        A group for each key, such as its function: keys of one group have few patterns.

    Returns
    -------
    dict
        ``patterns``, a text of all; ``pattern``, of each key, and ``numbers-0``, ``numbers-1``, ...
        of each key that has so many, as differences: to the key before it in its group, and to the
        key before it of its pattern.
    """
    heads, tails = keys.heads, keys.tails()
    text = "\n".join(tails)
    if text.count("\n") >= max(len(tails), 1) or NUMBER in text:
        tails = [shown(tail, _LONGEST_PIECE) for tail in tails]
        text = "\n".join(tails)
    pieces = _NUMBERS.split(text)
    stripped = NUMBER.join(pieces[::2]).split("\n") if tails else []
    numbers = np.array(pieces[1::2] or ["0"], "S").astype(np.int64)
    # Of each tail, the first row that has the same.
    rows_of_tails: dict[str, int] = {}
    first_alike = np.fromiter(
        map(rows_of_tails.setdefault, stripped, count()), np.int64, len(tails)
    )
    pairs = first_alike * max(len(heads.values), 1) + heads.codes
    _, first, pattern = np.unique(pairs, return_index=True, return_inverse=True)
    # Numbered as they come, so that patterns which never come again count up.
    first_rows = np.sort(first)
    pattern = np.searchsorted(first_rows, first)[pattern.reshape(-1)]
    counts = np.array([stripped[row].count(NUMBER) for row in first_rows.tolist()], np.int64)
    counts = counts[pattern]
    offsets = np.cumsum(counts) - counts
    columns: dict[str, Array | str] = {
        "patterns": BETWEEN_PATTERNS.join(_patterns(heads, stripped, first_rows)),
        "pattern": _differences(pattern, groups),
    }
    for slot in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > slot)
        columns[f"numbers-{slot}"] = _differences(numbers[offsets[rows] + slot], pattern[rows])
    return columns


def _patterns(heads: Categorical, tails: list[str], rows: IntArray) -> Iterator[str]:
    """The pattern of each of these rows, with nothing in it that cannot be shown."""
    beginnings = [shown(head, _LONGEST_PIECE) for head in heads.values]
    for row, head in zip(rows.tolist(), heads.codes[rows].tolist(), strict=True):
        pieces = tails[row].split(NUMBER)
        yield beginnings[head] + NUMBER.join(map(_as_shown, pieces))


def _as_shown(piece: str) -> str:
    if piece.isprintable() and len(piece) <= _LONGEST_PIECE:
        return piece
    return shown(piece, _LONGEST_PIECE)


def _differences(values: Array, groups: Array) -> Array:
    """Each value less the one before it in its group; the first as it is."""
    # Integers of 16 bits are sorted much faster.
    order = np.argsort(smallest_integers(groups, int(np.max(groups, initial=0))), kind="stable")
    ordered, grouped = values[order], groups[order]
    steps = np.diff(ordered, prepend=0)
    fresh = np.concatenate([[True], grouped[1:] != grouped[:-1]])[: len(order)]
    steps[fresh] = ordered[fresh]
    result = np.empty_like(steps)
    result[order] = steps
    return result
