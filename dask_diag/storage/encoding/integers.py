"""Integers, which all columns are made of, as byte planes.

What is stored is the difference to a base, byte plane by byte plane: first the low bytes of all
rows, then the next ones. Low bytes are noise; the others hardly change from row to row, and nearly
vanish when they are compressed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.bases import BASES, COLUMN, DIFFERENCES, STEP, VALUE

__all__ = ["ERROR", "Decoder", "Encoder", "Spec", "dtype_of", "is_constant"]

Spec = dict[str, Any]

ERROR = "error"
"""The unit of what floats are off; such integers have no base."""

_FEW = 100
"""Rows up to which a shorter form takes longer than it saves: they are stored as they are."""


class _Columns:
    """The columns of a table so far, which later ones are stored relative to.

    Attributes
    ----------
    column : str
        The name of the one that is encoded or decoded.
    integers : dict
        By unit and column, as nanoseconds are only compared with nanoseconds.
    floats : dict
        By column.
    """

    def __init__(self, rows: int) -> None:
        if type(rows) is not int or rows < 0:
            raise ValueError(f"expected a number of rows, found {rows!r}")
        self.rows = rows
        self.is_short = rows <= _FEW
        self.column = ""
        self.integers: dict[tuple[str | int, str], IntArray] = {}
        self.floats: dict[str, FloatArray] = {}


class Encoder(_Columns):
    """Appends the integers of a table to `out`, column by column."""

    def __init__(self, rows: int, table: str, out: ByteWriter) -> None:
        super().__init__(rows)
        self.out = out
        self.differences: Mapping[str, Sequence[str]] = DIFFERENCES.get(table, {})
        self._bases: Mapping[str, str] = BASES.get(table, {})

    def encode(self, array: Array, unit: str | int) -> Spec:
        """Append integers of the column, and return the specification that decodes them."""
        if self.is_short:
            return self._planes(array, array.dtype.itemsize)
        if is_constant(array):
            self.integers[unit, self.column] = array
            # So that no small file makes its reader allocate endless rows.
            self.out.append_planes(bytes(self.rows))
            return {"base": VALUE, "least": int(array[0]), "planes": 0}
        values = self.integers[unit, self.column] = array.astype(np.int64, copy=False)
        base = self._base_of(unit)
        residual = values
        if base == STEP:
            residual = np.empty_like(values)
            residual[0] = 0
            np.subtract(values[1:], values[:-1], out=residual[1:])
        elif base != VALUE:
            residual = values - self.integers[unit, base[1:]]
        least, greatest = int(residual.min()), int(residual.max())
        width = max(1, ((greatest - least).bit_length() + 7) // 8)
        first = {"first": int(values[0])} if base == STEP else {}
        spec = self._planes(residual - np.int64(least), width)
        return {**spec, "base": base, **first, "least": least}

    def _planes(self, array: Array, width: int) -> Spec:
        """Append the low bytes of integers, plane by plane; they are as large as that at most."""
        cells = array.astype(array.dtype.newbyteorder("<")).view(np.uint8)
        planes = cells.reshape(self.rows, array.dtype.itemsize).T[:width]
        self.out.append_planes(planes.tobytes())
        return {"base": VALUE, "least": 0, "planes": width}

    def _base_of(self, unit: str | int) -> str:
        base = VALUE if unit == ERROR else self._bases.get(self.column, VALUE)
        is_missing = base[:1] == COLUMN and (unit, base[1:]) not in self.integers
        return STEP if is_missing else base


class Decoder(_Columns):
    """Takes from `source` what an `Encoder` appended."""

    def __init__(self, rows: int, source: ByteReader) -> None:
        super().__init__(rows)
        self.source = source

    def decode(self, spec: Spec, unit: str | int) -> IntArray:
        """The next integers, of a column in that unit."""
        values = self._residual(spec["planes"], spec["least"])
        base = spec["base"]
        if base == STEP:
            values[:1] += np.int64(spec["first"])
            np.cumsum(values, out=values)
        elif base != VALUE:
            values += self.integers[unit, base.removeprefix(COLUMN)]
        self.integers[unit, self.column] = values
        return values

    def _residual(self, width: int, least: int) -> IntArray:
        """What was left of integers without their base."""
        if not 0 <= width <= 8:
            raise ValueError(f"expected up to eight planes, found {width!r}")
        planes = self.source.take_planes(self.rows * max(1, width))
        if not width:
            # One number in memory, however many rows.
            return np.broadcast_to(np.int64(least), self.rows)
        cells = np.zeros((self.rows, 8), np.uint8)
        cells[:, :width] = np.frombuffer(planes, np.uint8).reshape(width, self.rows).T
        values: IntArray = cells.view("<i8").reshape(self.rows).astype(np.int64, copy=False)
        values += np.int64(least)
        return values


def is_constant(values: Array) -> bool:
    """Whether all values are the same; one that is repeated need not be read."""
    is_repeated = values.strides == (0,)
    return is_repeated or bool(values[0] == values[-1] and (values == values[0]).all())


def dtype_of(name: object) -> np.dtype[np.generic]:
    """The type of numbers that a file says."""
    dtype = np.dtype(str(name))
    if dtype.kind not in "biuf" or dtype.itemsize > 8:
        raise ValueError(f"expected numbers, found {dtype}")
    return dtype
