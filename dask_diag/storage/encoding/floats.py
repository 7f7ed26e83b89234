"""Floats: predicted, and stored by how many units in the last place the prediction is off.

Most are whole numbers, as bytes are, or whole nanoseconds, as clock readings are, or the difference
of earlier columns, as durations are: then nothing is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.integers import (
    ERROR,
    ColumnsDone,
    Spec,
    decode_integers,
    encode_integers,
    encode_numbers,
    is_constant,
)

__all__ = ["counted", "decode_difference", "decode_scaled", "encode_floats"]

SCALES = (1, 1_000_000, 1_000_000_000)
"""Of whole numbers, of whole microseconds, and of whole nanoseconds."""

_ALL_SCALES = np.array(SCALES, float)[:, np.newaxis]
_LARGEST_COUNT = 2.0**62
_SAMPLE = 64


def encode_floats(name: str, values: FloatArray, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append a column's bytes, and return the specification that decodes them."""
    bits, spec = values.view(np.int64), Spec()
    done.floats[name] = values
    if is_constant(bits):
        return encode_numbers(name, values, done, out)
    sources = done.sources_of(name)
    if sources:
        spec |= {"kind": "difference", "sources": sources}
        predicted = _difference([done.floats[source] for source in sources])
    else:
        scale = _scale_of(values)
        count = counted(values, scale)
        spec |= {"kind": "scaled", "scale": scale}
        spec["count"] = encode_integers(name, count, scale, done, out)
        predicted = _quotient(count, scale)
    error = bits - predicted
    if sources or error.any():
        spec["error"] = encode_integers(ERROR, error, ERROR, done, out)
    return spec


def decode_scaled(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """A column of which `encode_floats` encoded multiples."""
    scale = spec["scale"]
    if scale not in SCALES:
        raise ValueError(f"expected a scale, found {scale!r}")
    count = decode_integers(name, spec["count"], scale, done, source)
    return _corrected(_quotient(count, scale), spec, done, source)


def decode_difference(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """A column that `encode_floats` encoded as the difference of others."""
    predicted = _difference([done.floats[column] for column in spec["sources"]])
    if "error" not in spec:
        # So that no small file makes its reader allocate endless rows.
        raise ValueError("expected the errors of a difference")
    return _corrected(predicted, spec, done, source)


def _corrected(predicted: IntArray, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    dtype = np.dtype(str(spec["dtype"]))
    if dtype.newbyteorder("=") != np.float64:
        raise ValueError(f"expected 64-bit floats, found {dtype}")
    if "error" in spec:
        # By no column's name: no other column is stored relative to it.
        predicted = predicted + decode_integers(ERROR, spec["error"], ERROR, done, source)
    return predicted.view(np.float64).astype(dtype, copy=False)


def _scale_of(values: FloatArray) -> int:
    """The smallest scale by which a column is whole, or nearly so, by a sample; else the last."""
    sample = values[:: max(1, len(values) // _SAMPLE)]
    with np.errstate(all="ignore"):
        is_whole = np.rint(sample * _ALL_SCALES) / _ALL_SCALES == sample
    are_whole = (is_whole | ~np.isfinite(sample)).all(axis=1)
    return SCALES[int(are_whole.argmax())] if are_whole.any() else SCALES[-1]


def counted(values: FloatArray, scale: int) -> IntArray:
    """The integers nearest to `scale` times the values; 0 where there is none."""
    is_countable = np.abs(values) < _LARGEST_COUNT / scale
    count: IntArray = np.rint(np.where(is_countable, values, 0.0) * scale).astype(np.int64)
    return count


def _quotient(count: IntArray, scale: int) -> IntArray:
    """The bits of the floats that are so many parts of a scale."""
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[FloatArray]) -> IntArray:
    """The bits of the first column less the others."""
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, columns)
    # The bits of what is no number are not the same on every processor.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)
