"""Columns of 64-bit floats as integers, so that they can be stored small, and come back bit by bit.

A clock counts nanoseconds and a meter bytes: divided by a scale, such an integer *is* the float.
What it is off by is stored too, counted in the last place, where it is not zero; where a column
does not look like that at all, its bits are stored.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from dask_diag.storage.integers import Integers, bits_left, decode_integers, encode_integers
from dask_diag.storage.streams import StreamReader, StreamWriter

__all__ = ["decode_floats", "encode_floats"]

Floats = np.ndarray[Any, np.dtype[np.float64]]

SCALES = (1, 1_000_000_000)
_LARGEST_COUNT = 2.0**62
_SAMPLE = 1024


def encode_floats(
    values: Floats, counts: dict[str, Integers], name: str, into: StreamWriter
) -> Any:
    """Put a column into streams, and return what is needed to take it out.

    `counts` has the integers that other columns of the table were stored as; it grows by these.
    """
    scale = into.choose(len(values), lambda: _scale_of(values[:_SAMPLE]), SCALES)
    exact = _counted(values, scale)
    if exact is None:
        return _encode_with_what_it_is_off(values, counts, name, into)
    told = [scale, encode_integers(exact, counts, into), None]
    counts[name] = exact
    return told


def _scale_of(values: Floats) -> int:
    """By which most columns like this one are integers exactly."""
    return next((scale for scale in SCALES if _counted(values, scale) is not None), SCALES[-1])


def _counted(values: Floats, scale: int) -> Integers | None:
    """The integers that are these floats, bit by bit, when divided by `scale`; None if not all."""
    with np.errstate(invalid="ignore", over="ignore"):
        count = np.rint(values * scale).astype(np.int64)
    same = (count / scale).view(np.int64) == values.view(np.int64)
    return count if same.all() else None


def _encode_with_what_it_is_off(
    values: Floats, counts: dict[str, Integers], name: str, into: StreamWriter
) -> Any:
    bits = values.view(np.int64)
    for scale in SCALES:
        known = np.abs(values) < _LARGEST_COUNT / scale
        count = _filled(np.rint(np.where(known, values, 0.0) * scale).astype(np.int64), known)
        off = np.where(known, bits - (count / scale).view(np.int64), 0)
        if not off.any():
            break
    if _is_arbitrary(bits, off, known):
        return [0, encode_integers(bits, {}, into)]
    told = [scale, encode_integers(count, counts, into)]
    counts[name] = count
    told.append(encode_integers(off, {}, into) if off.any() else None)
    unknown = np.flatnonzero(~known)
    if len(unknown):
        exceptions = [unknown.astype(np.int64), bits[unknown]]
        told += [len(unknown), *(encode_integers(column, {}, into) for column in exceptions)]
    return told


def decode_floats(
    told: Any, rows: int, counts: dict[str, Integers], name: str, streams: StreamReader
) -> Floats:
    """Take out of the streams what `encode_floats` put there."""
    scale, *told = told
    if scale == 0:
        return decode_integers(told[0], rows, {}, streams).view(np.float64)
    if scale not in SCALES:
        raise ValueError(f"expected a scale of {SCALES}, found {scale}")
    count = counts[name] = decode_integers(told[0], rows, counts, streams)
    values: Floats = count / scale
    bits = values.view(np.int64)
    if told[1] is not None:
        bits += decode_integers(told[1], rows, {}, streams)
    if len(told) > 2:
        exceptions = told[2]
        where = decode_integers(told[3], exceptions, {}, streams)
        bits[where] = decode_integers(told[4], exceptions, {}, streams)
    return values


def _filled(count: Integers, known: np.ndarray[Any, Any]) -> Integers:
    """Each number that is not known as the one before it, so that differences stay small."""
    if known.all():
        return count
    last = np.maximum.accumulate(np.where(known, np.arange(len(count)), 0))
    return count[last]


def _is_arbitrary(bits: Integers, off: Integers, known: np.ndarray[Any, Any]) -> bool:
    """Whether a column's bits themselves are no larger than what its integers are off by."""
    if not off.any():
        return 2 * int(np.count_nonzero(known)) < len(known)
    middle = slice(len(bits) // 4, len(bits) // 4 + 1024)
    return bits_left(off[middle]) + 16 > bits_left(bits[middle])
