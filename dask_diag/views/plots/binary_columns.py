"""Columns of whole numbers, compressed for a page; ``binary_columns.js`` reads them.

The bytes of a column are written plane by plane, all lowest bytes first, and deflated: small
numbers and repeated ones take few bytes. Every browser of today can inflate them.

A page is text, so the bytes are written as such: five letters for four bytes, where base64 takes
five and a third.
"""

from __future__ import annotations

import base64
import zlib
from collections.abc import Mapping
from typing import TypedDict

import numpy as np
import numpy.typing as npt

from dask_diag.columns import Array, IntArray

__all__ = ["Packed", "letters", "pack", "size_in_page", "ticks"]

_LEVEL = 7
_ESCAPED = bytes.maketrans(b"&<>`", b",.:/")
"""Letters of base 85 that a page or a script would escape, and others in their place."""


class Packed(TypedDict):
    """Columns as a script in the page gets them.

    Attributes
    ----------
    layout : list of (str, int, int, bool)
        Of each column its name, its length, the bytes of a value (0 in a text), and whether it has
        negative numbers.
    data : str
        All columns, deflated, as text.
    """

    layout: list[tuple[str, int, int, bool]]
    data: str


def pack(columns: Mapping[str, Array | str]) -> Packed:
    """Compress columns for a page.

    Parameters
    ----------
    columns : mapping of str to array of int, or str
        Of any lengths; numbers below 2**53.
    """
    layout: list[tuple[str, int, int, bool]] = []
    parts: list[bytes] = []
    for name, column in columns.items():
        if isinstance(column, str):
            parts.append(column.encode("utf-8", "backslashreplace"))
            layout.append((name, len(parts[-1]), 0, False))
            continue
        values = np.asarray(column).astype(np.int64)
        signed = bool((values < 0).any())
        if signed:
            # Small ones of either sign stay small: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
            values = np.where(values < 0, -2 * values - 1, 2 * values)
        width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        planes = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        parts.append(np.ascontiguousarray(planes.T).tobytes())
        layout.append((name, len(values), width, signed))
    return {"layout": layout, "data": letters(zlib.compress(b"".join(parts), _LEVEL))}


def letters(data: bytes) -> str:
    """Bytes as text, of which nothing is escaped in a page or a script."""
    return base64.b85encode(data).translate(_ESCAPED).decode("ascii")


def size_in_page(packed: Packed) -> int:
    """Bytes that packed columns take in a page."""
    return len(packed["data"])


def ticks(seconds: npt.ArrayLike, tick: float) -> IntArray:
    """Seconds as whole numbers of `tick` seconds."""
    return np.round(np.asarray(seconds) / tick).astype(np.int64)
