"""Columns of whole numbers, as small as they get, for a page; packed.js makes them columns again.

The bytes of a column travel plane by plane, all lowest bytes first, and deflated: what is small or
repeats takes next to nothing. Every browser of today inflates them itself.
"""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np

__all__ = ["pack", "size_in_page", "ticks"]

_LEVEL = 6


def pack(columns: Mapping[str, Any]) -> dict[str, Any]:
    """Make of `columns` what a script in the page is given.

    Parameters
    ----------
    columns : mapping of str to array of int, or str
        Of any lengths; numbers below 2**53.

    Returns
    -------
    dict
        ``layout``, a list of name, length, bytes a value (0 of a text), and whether there are
        negative numbers; and ``data``, deflated.
    """
    layout: list[list[Any]] = []
    parts: list[bytes] = []
    for name, column in columns.items():
        if isinstance(column, str):
            parts.append(column.encode("utf-8", "backslashreplace"))
            layout.append([name, len(parts[-1]), 0, False])
            continue
        values = np.asarray(column).astype(np.int64)
        signed = bool((values < 0).any())
        if signed:
            # Small ones of either sign stay small: 0, -1, 1, -2, ... become 0, 1, 2, 3, ...
            values = np.where(values < 0, -2 * values - 1, 2 * values)
        width = max(1, (int(values.max(initial=0)).bit_length() + 7) // 8)
        planes = values.astype("<i8").view(np.uint8).reshape(-1, 8)[:, :width]
        parts.append(np.ascontiguousarray(planes.T).tobytes())
        layout.append([name, len(values), width, signed])
    return {"layout": layout, "data": zlib.compress(b"".join(parts), _LEVEL)}


def size_in_page(packed: dict[str, Any]) -> int:
    """Bytes that packed columns take in a page, which holds text."""
    return -(-len(packed["data"]) // 3) * 4


def ticks(seconds: Any, tick: float) -> Any:
    """Seconds as whole numbers of `tick` seconds."""
    return np.round(np.asarray(seconds) / tick).astype(np.int64)
