"""Columns of 64-bit integers as compressed planes of bytes.

Of neighbours, and of columns that go along with each other, differences are stored: they are
small. All arithmetic is modulo 2**64, so that it is exact whatever the numbers are.
"""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from dask_diag.storage.streams import StreamReader, StreamWriter

__all__ = ["Integers", "bits_left", "decode_integers", "encode_integers"]

Integers = np.ndarray[Any, np.dtype[np.int64]]

ITSELF, STEPS, OTHER = "", "+", "="
_OTHERS_TRIED = 8
_BLOCKS, _BLOCK = 4, 256


def encode_integers(values: Integers, others: dict[str, Integers], into: StreamWriter) -> Any:
    """Put a column into streams, and return what is needed to take it out.

    `others` are columns of the same length, by name, that are known when it is taken out.
    """
    possible = {ITSELF, STEPS, *(OTHER + name for name in others)}
    base = into.choose(len(values), lambda: _best_base(values, others), possible)
    left = _less(values, base, others)
    least = int(left.min()) if len(left) else 0
    rest = (left - np.int64(least)).view(np.uint64)
    width = (int(rest.max(initial=0)).bit_length() + 7) // 8
    if not width and not into.leaves_out(len(values)):
        width = 1
    cells = rest.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)
    planes = cells[:, :width].T.tobytes()
    rows = len(values)
    return [
        base,
        least,
        [into.put(planes[place * rows : (place + 1) * rows]) for place in range(width)],
    ]


def decode_integers(
    told: Any, rows: int, others: dict[str, Integers], streams: StreamReader
) -> Integers:
    """Take out of the streams what `encode_integers` put there."""
    base, least, planes = told
    found = [np.frombuffer(streams.take(plane, rows), dtype=np.uint8) for plane in planes]
    if not found:
        streams.make_up(rows)
    cells = np.zeros((rows, 8), dtype=np.uint8)
    for place, plane in enumerate(found):
        cells[:, place] = plane
    left = cells.view("<u8").reshape(rows).astype(np.int64, copy=False)
    left = left + np.int64(least)
    if base == STEPS:
        return np.cumsum(left, dtype=np.int64)
    return left if base == ITSELF else left + others[base.removeprefix(OTHER)]


def _less(values: Integers, base: str, others: dict[str, Integers]) -> Integers:
    if base == STEPS:
        return np.diff(values, prepend=np.int64(0))
    return values if base == ITSELF else values - others[base.removeprefix(OTHER)]


def _best_base(values: Integers, others: dict[str, Integers]) -> str:
    """What to take off a column so that the least is left, judged by a sample of it."""
    rows = len(values)
    if rows < 2:
        return ITSELF
    starts = np.linspace(1, max(1, rows - _BLOCK), _BLOCKS if rows > _BLOCK else 1, dtype=np.int64)
    sample = [slice(start, start + _BLOCK) for start in starts.tolist()]
    before = [slice(piece.start - 1, min(piece.stop, rows) - 1) for piece in sample]
    here = np.concatenate([values[piece] for piece in sample])
    bits = {
        ITSELF: bits_left(here),
        STEPS: bits_left(here - np.concatenate([values[piece] for piece in before])),
    }
    # The latest only: to try them all would take long.
    for name, other in islice(reversed(others.items()), _OTHERS_TRIED):
        bits[OTHER + name] = bits_left(here - np.concatenate([other[piece] for piece in sample]))
    return min(bits, key=bits.__getitem__)


def bits_left(values: Integers) -> float:
    """How many bits a number takes, about, once what is common to most is taken off."""
    middle = np.partition(values, len(values) // 2)[len(values) // 2]
    return float(np.log2(1.0 + np.abs((values - middle).astype(float))).mean())
