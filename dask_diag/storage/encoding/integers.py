"""Integers, which all columns are made of, as byte planes.

What is stored is the difference to the row before or to an earlier column, whichever is smaller,
byte plane by byte plane: first the low bytes of all rows, then the next ones. Low bytes are noise;
the others hardly change from row to row, and nearly vanish when they are compressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.choices import Choices, TableChoices
from dask_diag.storage.encoding.references import RecentTasks

__all__ = [
    "NUMBERS",
    "ColumnsDone",
    "Kind",
    "Spec",
    "best_base",
    "bits_of",
    "decode_integers",
    "decode_numbers",
    "encode_integers",
    "encode_numbers",
    "is_constant",
]

Kind = str | int
"""What integers count: columns are compared with columns of the same kind."""
Spec = dict[str, Any]

NUMBERS = frozenset("biuf")
"""The kinds of NumPy arrays that can be stored."""
VALUE, STEP, COLUMN = "", "+", "="
"""What integers are stored as: themselves, steps from row to row, differences to a column."""

_SAMPLE = 512
_NOISE = 200


class ColumnsDone:
    """The columns of a table that were encoded or decoded, which later ones refer to."""

    def __init__(
        self, rows: int, choices: TableChoices | None = None, tasks: RecentTasks | None = None
    ) -> None:
        if type(rows) is not int or rows < 0:
            raise ValueError(f"expected a number of rows, found {rows!r}")
        self.rows = rows
        self.choices = choices or TableChoices(Choices.FEWEST)
        self.tasks = tasks
        self.floats: dict[str, FloatArray] = {}
        # By kind and name, as nanoseconds are only compared with nanoseconds.
        self.integers: defaultdict[Kind, dict[str, IntArray]] = defaultdict(dict)

    @property
    def is_short(self) -> bool:
        """Whether it has so few rows that a search takes longer than it saves."""
        return self.rows <= self.choices.few

    @cached_property
    def sample(self) -> IntArray:
        """Rows that have one before them, from all over the table."""
        count = max(0, min(self.rows - 1, _SAMPLE))
        return np.linspace(1, self.rows - 1, count).astype(np.int64)


def encode_integers(
    name: str, values: IntArray, kind: Kind, done: ColumnsDone, out: ByteWriter
) -> Spec:
    """Append the bytes of integers, and return the specification that decodes them."""
    group = done.integers[kind]
    if done.is_short or is_constant(values):
        group[name] = values
        return _encode_few(values, out) if done.is_short else _encode_constant(values, out)
    at, base = done.sample, _base(name, values, kind, done)
    residual = values
    if base == STEP:
        residual = np.diff(values, prepend=values[:1])
    elif base != VALUE:
        residual = values - group[base.removeprefix(COLUMN)]
    least = int(residual.min()) if len(residual) else 0
    positive = (residual - np.int64(least)).view(np.uint64)
    # At least one plane, so that no small file makes its reader allocate endless rows.
    width = max(1, (int(positive.max(initial=0)).bit_length() + 7) // 8)
    planes = positive.astype("<u8", copy=False).view(np.uint8).reshape(-1, 8)[:, :width].T
    # Of 512 random bytes, 221 are different ones on average.
    is_noise = [len(set(sample.tobytes())) > _NOISE for sample in planes[:, at]]
    for plane, plain in zip(planes, is_noise, strict=True):
        out.append(plane.tobytes(), plain)
    group[name] = values
    first = int(values[0]) if base == STEP else 0
    return {"base": base, "first": first, "least": least, "planes": is_noise}


def _encode_few(values: IntArray, out: ByteWriter) -> Spec:
    """All bytes of a few integers: to look for a shorter form would take longer than it saves."""
    out.append(values.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8).T.tobytes())
    return {"base": VALUE, "first": 0, "least": 0, "planes": [False] * 8}


def is_constant(values: Array) -> bool:
    """Whether all values are the same: it takes no search to find that nothing is left of them."""
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _encode_constant(values: IntArray, out: ByteWriter) -> Spec:
    # One plane of nothing, so that no small file makes its reader allocate endless rows.
    out.append(bytes(len(values)))
    return {"base": VALUE, "first": 0, "least": int(values[0]), "planes": [False]}


def decode_integers(
    name: str, spec: Spec, kind: Kind, done: ColumnsDone, source: ByteReader
) -> IntArray:
    """The integers that `encode_integers` encoded."""
    group, base, rows = done.integers[kind], spec["base"], done.rows
    cells = _cells(spec["planes"], rows, source)
    values = cells.view("<i8").reshape(rows).astype(np.int64, copy=False)
    values += np.int64(spec["least"])
    if base == STEP:
        values[:1] += np.int64(spec["first"])
        np.cumsum(values, out=values)
    elif base != VALUE:
        values += group[base.removeprefix(COLUMN)]
    group[name] = values
    return values


def _cells(planes: list[bool], rows: int, source: ByteReader) -> Array:
    """The eight bytes of each row; `planes` says of each of the lowest whether it is plain."""
    if not planes:
        raise ValueError("expected at least one plane")
    if any(planes):
        parts = [np.frombuffer(source.take(rows, plain), np.uint8) for plain in planes]
        block = np.array(parts)
    else:
        # One after the other: a live view reads many short columns.
        block = np.frombuffer(source.take(rows * len(planes)), np.uint8)
        block = block.reshape(len(planes), rows)
    cells = np.zeros((rows, 8), np.uint8)
    cells[:, : len(planes)] = block.T
    return cells


def _base(name: str, values: IntArray, kind: Kind, done: ColumnsDone) -> str:
    """The base that was best in an earlier chunk, if it is there; or else in this one."""
    group, bases = done.integers[kind], done.choices.bases
    base = bases.get((kind, name))
    if base is None or base.removeprefix(COLUMN) not in (VALUE, STEP, *group):
        at = done.sample
        base = bases[kind, name] = best_base(values[at], values[at - 1], at, group)[1]
    return base


def best_base(
    sample: IntArray, previous: IntArray, at: IntArray, group: Mapping[str, IntArray]
) -> tuple[float, str]:
    """The base that leaves least of a column, judged by a sample, and the bits that that takes."""
    if not len(sample) or (sample == sample[0]).all():
        return 0.0, VALUE
    bases = [VALUE, STEP, *(COLUMN + name for name in group)]
    others = (sample - column[at] for column in group.values())
    bits = bits_of(np.stack([sample, sample - previous, *others]))
    best = int(np.argmin(bits))
    return float(bits[best]), bases[best]


def bits_of(values: IntArray) -> Array:
    """How many bits a number takes, about, in each row, once what is common to it is subtracted."""
    middle = values.shape[1] // 2
    common = np.partition(values, middle, axis=1)[:, middle, np.newaxis]
    bits: Array = np.log2(1.0 + np.abs((values - common).astype(float))).mean(axis=1)
    return bits


def encode_numbers(name: str, native: Array, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append the bytes of a column of any numbers, and return its specification."""
    kind, size = native.dtype.kind, native.dtype.itemsize
    integers = native.view(f"i{size}") if kind == "f" or size == 8 else native
    values = integers.astype(np.int64, copy=False)
    return {"kind": "integers", "values": encode_integers(name, values, "integers", done, out)}


def decode_numbers(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """The column that `encode_numbers` encoded."""
    dtype = np.dtype(str(spec["dtype"]))
    if dtype.kind not in NUMBERS or dtype.itemsize > 8:
        raise ValueError(f"expected numbers, found {dtype}")
    values: Array = decode_integers(name, spec["values"], "integers", done, source)
    if dtype.kind == "f":
        values = values.astype(f"i{dtype.itemsize}").view(dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)
