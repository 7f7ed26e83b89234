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
from dask_diag.storage.recent_tasks import RecentTasks

__all__ = [
    "ERROR",
    "NUMBERS",
    "ColumnsDone",
    "Kind",
    "Spec",
    "decode_integers",
    "decode_numbers",
    "decode_raw",
    "encode_constant",
    "encode_integers",
    "encode_numbers",
    "encode_raw",
    "is_constant",
]

Kind = str | int
"""What integers count: the base of a column is of the same kind."""
Spec = dict[str, Any]

NUMBERS = frozenset("biuf")
"""The kinds of NumPy arrays that can be stored."""
ERROR = "error"
"""The kind of what floats are off; it has no base."""

_FEW = 100
"""Rows up to which a shorter form takes longer than it saves: they are stored as they are."""
_SAMPLE = 512
_NOISE = 200
"""Of 512 random bytes, 221 are different ones on average."""


class ColumnsDone:
    """The columns of a table that were encoded or decoded, which later ones refer to."""

    def __init__(self, rows: int, table: str = "", tasks: RecentTasks | None = None) -> None:
        if type(rows) is not int or rows < 0:
            raise ValueError(f"expected a number of rows, found {rows!r}")
        self.rows = rows
        self.is_short = rows <= _FEW
        self.tasks = tasks
        self.floats: dict[str, FloatArray] = {}
        # By kind and name, as nanoseconds are only compared with nanoseconds.
        self.integers: dict[tuple[Kind, str], IntArray] = {}
        self._bases: Mapping[str, str] = BASES.get(table, {})
        self._differences: Mapping[str, Sequence[str]] = DIFFERENCES.get(table, {})

    def base_of(self, kind: Kind, name: str) -> str:
        """What the integers of a column are to be stored relative to."""
        base = VALUE if kind == ERROR else self._bases.get(name, VALUE)
        is_missing = base[:1] == COLUMN and (kind, base[1:]) not in self.integers
        return STEP if is_missing else base

    def sources_of(self, name: str) -> Sequence[str]:
        """The columns that floats are the difference of; none if one of them is not there."""
        sources = self._differences.get(name, ())
        return sources if all(source in self.floats for source in sources) else ()


def encode_integers(
    name: str, array: Array, kind: Kind, done: ColumnsDone, out: ByteWriter
) -> Spec | str:
    """Append the bytes of integers, and return the specification that decodes them."""
    if done.is_short:
        return encode_raw(array, out)
    # A copy is not repeated any more.
    done.integers[kind, name] = array
    if is_constant(array):
        return encode_constant(int(array[0]), done, out)
    values = done.integers[kind, name] = array.astype(np.int64, copy=False)
    base, first, residual = done.base_of(kind, name), 0, values
    if base == STEP:
        first = int(values[0])
        residual = np.zeros_like(values)
        np.subtract(values[1:], values[:-1], out=residual[1:])
    elif base != VALUE:
        residual = values - done.integers[kind, base[1:]]
    least, greatest = int(residual.min()), int(residual.max())
    width = max(1, ((greatest - least).bit_length() + 7) // 8)
    cells = (residual - np.int64(least)).astype("<i8", copy=False).view(np.uint8)
    planes = [plane.tobytes() for plane in cells.reshape(-1, 8)[:, :width].T]
    # Only low bytes are noise.
    plain = 0
    while plain < width and _is_noise(planes[plain]):
        plain += 1
    out.append(b"".join(planes[:plain]), plain=True)
    out.append(b"".join(planes[plain:]))
    return {"base": base, "first": first, "least": least, "planes": width, "plain": plain}


def _is_noise(plane: bytes) -> bool:
    step = max(1, len(plane) // _SAMPLE)
    return len(plane) > _NOISE and len(set(plane[::step][:_SAMPLE])) > _NOISE


def is_constant(values: Array) -> bool:
    """Whether all values are the same; one that is repeated need not be read."""
    is_repeated = values.strides == (0,)
    return is_repeated or bool(values[0] == values[-1] and (values == values[0]).all())


def encode_constant(value: int, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append next to nothing for equal integers, and return their specification."""
    # So that no small file makes its reader allocate endless rows.
    out.append(bytes(done.rows))
    return {"constant": value}


def encode_raw(array: Array, out: ByteWriter) -> str:
    """Append the bytes of numbers as they are, and return their type."""
    out.append(array.tobytes())
    return array.dtype.str


def decode_integers(
    name: str, spec: Spec | str, kind: Kind, done: ColumnsDone, source: ByteReader
) -> IntArray:
    """The integers that `encode_integers` encoded."""
    if isinstance(spec, str):
        return _raw(spec, done, source).astype(np.int64)
    if "constant" in spec:
        source.take(done.rows)
        values = np.full(done.rows, spec["constant"], np.int64)
    else:
        values = _with_base(_residual(spec, done.rows, source), spec, kind, done)
    done.integers[kind, name] = values
    return values


def _residual(spec: Spec, rows: int, source: ByteReader) -> IntArray:
    """What was left of integers without their base."""
    width, plain = spec["planes"], spec["plain"]
    # At least one plane, so that no small file makes its reader allocate endless rows.
    if not 0 <= plain <= width or not 1 <= width <= 8:
        raise ValueError(f"expected up to eight planes, found {plain!r} of {width!r}")
    low, high = source.take(rows * plain, plain=True), source.take(rows * (width - plain))
    cells = np.zeros((rows, 8), np.uint8)
    cells[:, :plain] = np.frombuffer(low, np.uint8).reshape(plain, rows).T
    cells[:, plain:width] = np.frombuffer(high, np.uint8).reshape(width - plain, rows).T
    values: IntArray = cells.view("<i8").reshape(rows).astype(np.int64, copy=False)
    values += np.int64(spec["least"])
    return values


def _with_base(values: IntArray, spec: Spec, kind: Kind, done: ColumnsDone) -> IntArray:
    base = spec["base"]
    if base == STEP:
        values[:1] += np.int64(spec["first"])
        np.cumsum(values, out=values)
    elif base != VALUE:
        values += done.integers[kind, base.removeprefix(COLUMN)]
    return values


def encode_numbers(name: str, native: Array, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append the bytes of a column of any numbers, and return its specification."""
    integers = native.view(f"i{native.dtype.itemsize}")
    return {"kind": "integers", "values": encode_integers(name, integers, "integers", done, out)}


def decode_numbers(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """The column that `encode_numbers` encoded."""
    dtype = _dtype_of(spec["dtype"])
    values: Array = decode_integers(name, spec["values"], "integers", done, source)
    if dtype.kind == "f":
        values = values.astype(f"i{dtype.itemsize}").view(dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)


def decode_raw(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """The column that `encode_raw` encoded."""
    # A copy: a view would hold on to the bytes of all columns.
    return _raw(spec["dtype"], done, source).copy()


def _raw(name: str, done: ColumnsDone, source: ByteReader) -> Array:
    dtype = _dtype_of(name)
    return np.frombuffer(source.take(done.rows * dtype.itemsize), dtype)


def _dtype_of(name: object) -> np.dtype[np.generic]:
    dtype = np.dtype(str(name))
    if dtype.kind not in NUMBERS or dtype.itemsize > 8:
        raise ValueError(f"expected numbers, found {dtype}")
    return dtype
