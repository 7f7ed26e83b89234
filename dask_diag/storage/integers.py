"""Integers, which all columns are made of, as byte planes.

What is stored is the difference to a base, byte plane by byte plane: first the low bytes of all
rows, then the next ones. Low bytes are noise; the others hardly change from row to row, and nearly
vanish when they are compressed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_diag.columns import Array, IntArray
from dask_diag.storage.blocks import ByteReader, ByteWriter

__all__ = ["FEW", "STEP", "VALUE", "Spec", "decode_integers", "encode_integers", "skip_integers"]

Spec = dict[str, Any]

VALUE, STEP = "", "+"
"""Bases: integers as they are, and steps from row to row; any other is a column before."""
FEW = 100
"""Rows up to which a shorter form takes longer than it saves: they are stored as they are."""


def encode_integers(
    values: Array, base: str, columns: Mapping[str, IntArray], out: ByteWriter
) -> Spec:
    """Append integers to `out`, and return the specification that decodes them.

    Relative to a base that is none of the columns before, they are stored as steps.
    """
    if len(values) <= FEW:
        return _append(values, values.dtype.itemsize, out)
    spec: Spec = {"base": VALUE}
    least, greatest = int(values.min()), int(values.max())
    residual = values.astype(np.int64, copy=False)
    if base != VALUE and least < greatest:
        if base in columns:
            spec, residual = {"base": base}, residual - columns[base]
        else:
            # The first value is in the specification: as a step from nothing it would make all
            # others as wide as it is.
            spec = {"base": STEP, "first": int(residual[0])}
            residual = np.diff(residual, prepend=residual[:1])
        least, greatest = int(residual.min()), int(residual.max())
    # Counted from the least, no residual is negative: the high bytes of negative ones would be 255,
    # of the others 0.
    width = ((greatest - least).bit_length() + 7) // 8
    return {**_append(residual - least, width, out), **spec, "least": least}


def _append(values: Array, width: int, out: ByteWriter) -> Spec:
    """Append the low bytes of integers, plane by plane; they are as large as that at most."""
    cells = np.ascontiguousarray(values, values.dtype.newbyteorder("<")).view(np.uint8)
    planes = cells.reshape(len(values), values.dtype.itemsize).T[:width]
    # So that no small file makes its reader allocate endless rows, there is one plane at least.
    out.append_planes(planes.tobytes() or bytes(len(values)))
    return {"base": VALUE, "least": 0, "planes": width}


def decode_integers(
    spec: Spec, rows: int, columns: Mapping[str, IntArray], source: ByteReader
) -> IntArray:
    """The integers that `encode_integers` appended, of so many rows."""
    values, base = _take(spec, rows, source), spec["base"]
    if base == STEP:
        values = np.cumsum(values)
        values += np.int64(spec["first"])
    elif base != VALUE:
        values = values + columns[base]
    return values


def _take(spec: Spec, rows: int, source: ByteReader) -> IntArray:
    """The integers without their base."""
    planes = skip_integers(spec, rows, source)
    width, least = spec["planes"], np.int64(spec["least"])
    if not width:
        # One number in memory, however many rows.
        return np.broadcast_to(least, rows)
    cells = np.zeros((rows, 8), np.uint8)
    cells[:, :width] = np.frombuffer(planes, np.uint8).reshape(width, rows).T
    values: IntArray = cells.view("<i8").reshape(rows).astype(np.int64, copy=False)
    values += least
    return values


def skip_integers(spec: Spec, rows: int, source: ByteReader) -> memoryview:
    """Take the bytes of integers and do not decode them."""
    if not 0 <= spec["planes"] <= 8:
        raise ValueError(f"expected up to eight planes, found {spec['planes']!r}")
    return source.take_planes(rows * max(1, spec["planes"]))
