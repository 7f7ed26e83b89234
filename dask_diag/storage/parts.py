"""Columns as integers, and joined again, equal to the bit.

A label is its code, a text the code of its head and the length of its tail. Of 64-bit floats most
are whole numbers, as bytes are, or whole nanoseconds, as clock readings are, or the difference of
earlier columns, as durations are. What they are off that is counted in units in the last place.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce

import numpy as np

from dask_diag.columns import Array, Categorical, FloatArray, IntArray, PrefixStrings, Values
from dask_diag.model.table import Table
from dask_diag.storage.integers import FEW, Spec
from dask_diag.storage.preceding import KEY, RecentTasks

__all__ = ["DIFFERENCES", "SCALES", "NotStorableError", "Parts", "counted", "join", "split"]

DIFFERENCES = {"thread_noncpu": ("stop", "start", "thread_cpu")}
"""Floats that are one column minus others, up to a rounding error here and there."""

SCALES = (1, 1_000_000, 1_000_000_000)
"""Of floats that are whole numbers, whole microseconds and whole nanoseconds."""
_LARGEST_COUNT = 2.0**62
_SAMPLE = 64
_TOKEN = 32
"""The digits of the tokens that end keys: two of them are one byte."""
_HEX_DIGITS = b"0123456789abcdef"
_STORABLE = frozenset((str, int, float, bool, type(None)))
"""Types of labels that JSON has, too."""

Parts = dict[str, Array]
"""The integers that a column is made of."""


class NotStorableError(Exception):
    """A column is of a kind, or holds values, that a file cannot hold."""


def split(name: str, table: Table, tasks: RecentTasks | None) -> tuple[Spec, Parts, bytes]:
    """A column as integers, the bytes of its texts, and what else it takes to join them again."""
    column = table[name]
    if isinstance(column, Categorical):
        return {"kind": "labels", "values": _storable(column)}, {"codes": column.codes}, b""
    if isinstance(column, PrefixStrings):
        if tasks and name == KEY and (rows := tasks.rows_of(column)) is not None:
            return {"kind": "tasks"}, {"rows": rows}, b""
        parts, tails = _split_texts(column)
        return {"kind": "texts", "values": _storable(column.heads)}, parts, tails
    if isinstance(column, np.ndarray) and column.ndim == 1 and _is_number(column.dtype):
        spec, parts = _split_numbers(name, column, table)
        return {"kind": "numbers", "dtype": column.dtype.str, **spec}, parts, b""
    kind = getattr(column, "dtype", type(column).__name__)
    raise NotStorableError(f"expected a flat array of numbers, labels or texts, found {kind}")


def join(
    spec: Spec,
    parts: Parts,
    tails: bytes,
    columns: Mapping[str, Values],
    tasks: RecentTasks | None,
) -> Values:
    """The column that was split."""
    kind = spec["kind"]
    if kind == "labels":
        return _labels(parts["codes"], spec["values"])
    if kind == "texts":
        return _joined_texts(_labels(parts["heads"], spec["values"]), parts, tails)
    if kind == "tasks" and tasks:
        return tasks.column(KEY, parts["rows"])
    if kind == "numbers":
        return _joined_numbers(spec, parts, columns)
    raise ValueError(f"expected a kind of column, found {kind!r}")


def _storable(column: Categorical) -> list[object]:
    """The labels of a column, as JSON has them."""
    values = [value.item() if isinstance(value, np.generic) else value for value in column.values]
    for value in values:
        if type(value) not in _STORABLE:
            raise NotStorableError(f"expected labels that are text or numbers, found {value!r}")
    return values


def _labels(codes: IntArray, values: object) -> Categorical:
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def _split_texts(column: PrefixStrings) -> tuple[Parts, bytes]:
    lengths, tails = column.encoded
    parts = {"heads": column.heads.codes}
    # Capitals are no digits here: they would come back as small letters.
    if not (lengths == _TOKEN).all() or tails.strip(_HEX_DIGITS):
        return {**parts, "lengths": lengths}, tails
    tokens = np.frombuffer(bytes.fromhex(tails.decode()), "<i8")
    return {**parts, "low": tokens[::2], "high": tokens[1::2]}, b""


def _joined_texts(heads: Categorical, parts: Parts, tails: bytes) -> PrefixStrings:
    if "high" in parts:
        tokens = np.stack([parts["low"], parts["high"]], axis=1).astype("<i8")
        lengths, tails = np.full(len(heads), _TOKEN), tokens.tobytes().hex().encode()
    else:
        lengths = parts["lengths"]
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > len(tails):
        raise ValueError("expected lengths of texts")
    if int(lengths.sum()) != len(tails):
        raise ValueError("expected as many bytes as the texts have")
    texts = PrefixStrings.from_encoded(heads, lengths, tails)
    if not tails.isascii():
        # They are decoded when they are first read, which is too late to call a file damaged.
        texts.tails()
    return texts


def _split_numbers(name: str, column: Array, table: Table) -> tuple[Spec, Parts]:
    values = column.astype(column.dtype.newbyteorder("="), copy=False)
    bits = values.view(f"i{values.itemsize}")
    if values.dtype != np.float64 or len(values) <= FEW or bits.min() == bits.max():
        return {}, {"bits": bits}
    sources = DIFFERENCES.get(name, ())
    before = table.columns[: table.columns.index(name)]
    if sources and all(s in before and isinstance(table[s], np.ndarray) for s in sources):
        predicted = _difference([table[source] for source in sources])
        return {"sources": sources}, {"error": bits - predicted}
    scale = _scale_of(values)
    count = counted(values, scale)
    # A division need not give back the float that was counted. What its bits are off is nearly
    # always 0, and then takes nothing; so every float comes back, whatever the scale was taken for.
    return {"scale": scale}, {"count": count, "error": bits - _quotient(count, scale)}


def _joined_numbers(spec: Spec, parts: Parts, columns: Mapping[str, Values]) -> Array:
    dtype = np.dtype(str(spec["dtype"]))
    if not _is_number(dtype):
        raise ValueError(f"expected numbers, found {dtype}")
    if "bits" in parts:
        bits = parts["bits"]
    elif (dtype.kind, dtype.itemsize) != ("f", 8):
        raise ValueError(f"expected 64-bit floats, found {dtype}")
    elif "sources" in spec:
        bits = parts["error"] + _difference([columns[source] for source in spec["sources"]])
    else:
        bits = parts["error"] + _quotient(parts["count"], spec["scale"])
    if dtype.itemsize < 8:
        bits = bits.astype(f"i{dtype.itemsize}")
    values: Array = bits.view(dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)


def _is_number(dtype: np.dtype[np.generic]) -> bool:
    return dtype.kind in "biuf" and dtype.itemsize <= 8


def _scale_of(values: FloatArray) -> int:
    """The smallest scale by which a column is whole, or nearly so, by a sample; else the last."""
    # A sample will do: a wrong scale costs bytes, and never a value.
    sample = values[:: max(1, len(values) // _SAMPLE)]
    sample = sample[np.isfinite(sample)]
    with np.errstate(over="ignore"):
        fits = (s for s in SCALES if (np.rint(sample * s) / s == sample).all())
        return next(fits, SCALES[-1])


def counted(values: FloatArray, scale: int) -> IntArray:
    """The integers nearest to `scale` times the values; 0 where there is none."""
    is_countable = np.abs(values) < _LARGEST_COUNT / scale
    count: IntArray = np.rint(np.where(is_countable, values, 0.0) * scale).astype(np.int64)
    return count


def _quotient(count: IntArray, scale: int) -> IntArray:
    """The bits of the floats that are so many parts of a scale."""
    if scale not in SCALES:
        raise ValueError(f"expected a scale, found {scale!r}")
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[Values]) -> IntArray:
    """The bits of the first column less the others; of what is no number, those of zero."""
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, [np.asarray(column, float) for column in columns])
    # The bits of what is no number are not the same on every processor.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)
