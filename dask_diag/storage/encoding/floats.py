"""Numbers, of which 64-bit floats are predicted and stored by how far the prediction is off.

Most are whole numbers, as bytes are, or whole nanoseconds, as clock readings are, or the difference
of earlier columns, as durations are: then nothing is off. What is off is counted in units in the
last place.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.storage.encoding.integers import (
    ERROR,
    Decoder,
    Encoder,
    Spec,
    dtype_of,
    is_constant,
)

__all__ = ["counted", "decode_numbers", "encode_numbers"]

SCALES = (1, 1_000_000, 1_000_000_000)
"""Of whole numbers, of whole microseconds, and of whole nanoseconds."""

_BITS, _COUNT = "bits", "count"
_LARGEST_COUNT = 2.0**62
_SAMPLE = 64


def encode_numbers(column: Array, to: Encoder) -> Spec:
    """Append a column's numbers, and return the specification that decodes them."""
    native = column.astype(column.dtype.newbyteorder("="), copy=False)
    bits, dtype = native.view(f"i{native.dtype.itemsize}"), column.dtype.str
    if native.dtype == np.float64:
        to.floats[to.column] = native
    if native.dtype != np.float64 or to.is_short or is_constant(bits):
        return {"dtype": dtype, "integers": {_BITS: to.encode(bits, _BITS)}}
    sources = to.differences.get(to.column, ())
    if sources and to.floats.keys() >= set(sources):
        spec: Spec = {"dtype": dtype, "sources": sources, "integers": {}}
        predicted = _difference([to.floats[source] for source in sources])
    else:
        scale = _scale_of(native)
        count = counted(native, scale)
        spec = {"dtype": dtype, "scale": scale, "integers": {_COUNT: to.encode(count, scale)}}
        predicted = _quotient(count, scale)
    spec["integers"][ERROR] = to.encode(bits - predicted, ERROR)
    return spec


def decode_numbers(spec: Spec, source: Decoder) -> Array:
    """The column that `encode_numbers` encoded."""
    dtype, integers = dtype_of(spec["dtype"]), spec["integers"]
    if _BITS in integers:
        values: Array = source.decode(integers[_BITS], _BITS)
        if dtype.kind == "f":
            values = values.astype(f"i{dtype.itemsize}", copy=False).view(dtype.newbyteorder("="))
    else:
        if (dtype.kind, dtype.itemsize) != ("f", 8):
            raise ValueError(f"expected 64-bit floats, found {dtype}")
        if "sources" in spec:
            predicted = _difference([source.floats[column] for column in spec["sources"]])
        else:
            predicted = _multiples(spec["scale"], integers[_COUNT], source)
        values = (predicted + source.decode(integers[ERROR], ERROR)).view(np.float64)
    if values.dtype == np.float64:
        source.floats[source.column] = values
    return values.astype(dtype, copy=False)


def _multiples(scale: int, count: Spec, source: Decoder) -> IntArray:
    if scale not in SCALES:
        raise ValueError(f"expected a scale, found {scale!r}")
    return _quotient(source.decode(count, scale), scale)


def _scale_of(values: FloatArray) -> int:
    """The smallest scale by which a column is whole, or nearly so, by a sample; else the last."""
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
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[FloatArray]) -> IntArray:
    """The bits of the first column less the others."""
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, columns)
    # The bits of what is no number are not the same on every processor.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)
