"""Floats: predicted, and stored by how many units in the last place the prediction is off.

Most are whole numbers, as bytes are, or whole nanoseconds, as clock readings are, or the difference
of earlier columns, as durations are: then nothing is off.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from itertools import chain, permutations

import numpy as np

from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.choices import Prediction
from dask_diag.storage.encoding.integers import (
    ColumnsDone,
    Spec,
    best_base,
    bits_of,
    decode_integers,
    encode_integers,
    is_constant,
)

__all__ = ["counted", "decode_floats", "encode_floats"]

SCALES = (1, 1_000_000, 1_000_000_000)
"""Of whole numbers, of whole microseconds, and of whole nanoseconds."""

_LARGEST_COUNT = 2.0**62
_SOURCES = 4
"""How many of the columns before may be what a column is the difference of."""
_NO_WORSE = 2.0
"""Bits of a value by which a prediction may be more wrong than it was in an earlier chunk."""


def encode_floats(name: str, values: FloatArray, done: ColumnsDone, out: ByteWriter) -> Spec:
    """Append a column's bytes, and return the specification that decodes them."""
    bits = values.view(np.int64)
    needs_search = not done.is_short and not is_constant(bits)
    scale, sources = _prediction(name, values, done) if needs_search else (0, ())
    spec: Spec = {"kind": "floats", "scale": scale, "sources": sources, "error": None}
    if scale:
        count = counted(values, scale)
        spec["count"] = encode_integers(name, count, scale, done, out)
        predicted = _quotient(count, scale)
    else:
        predicted = _difference([done.floats[source] for source in sources])
    error = bits - predicted
    if not scale or error.any():
        spec["error"] = encode_integers(name, error, "error", done, out)
    done.floats[name] = values
    return spec


def decode_floats(name: str, spec: Spec, done: ColumnsDone, source: ByteReader) -> Array:
    """The column that `encode_floats` encoded."""
    scale, dtype = spec["scale"], np.dtype(str(spec["dtype"]))
    if dtype.newbyteorder("=") != np.float64 or scale not in (0, *SCALES):
        raise ValueError(f"expected 64-bit floats and a scale, found {dtype} and {scale!r}")
    if scale:
        bits = _quotient(decode_integers(name, spec["count"], scale, done, source), scale)
    else:
        bits = _difference([done.floats[source] for source in spec["sources"]])
    if not scale or spec["error"]:
        bits = bits + decode_integers(name, spec["error"], "error", done, source)
    done.floats[name] = bits.view(np.float64)
    return done.floats[name].astype(dtype, copy=False)


def _prediction(name: str, values: FloatArray, done: ColumnsDone) -> Prediction:
    """What was best in an earlier chunk, if it is about as right in this one; or else a new one."""
    known, at = done.choices.predictions, done.sample
    if name in known:
        prediction, bits_before = known[name]
        is_possible = done.floats.keys() >= set(prediction[1])
        most = bits_before + _NO_WORSE
        if is_possible and _bits_of_error(values, prediction, at, done) <= most:
            return prediction
    prediction = _best_prediction(values, done)
    known[name] = prediction, _bits_of_error(values, prediction, at, done)
    return prediction


def _bits_of_error(
    values: FloatArray, prediction: Prediction, at: IntArray, done: ColumnsDone
) -> float:
    """How many bits, about, a value is off in a sample."""
    (scale, sources), sample = prediction, values[at]
    if scale:
        predicted = _quotient(counted(sample, scale), scale)
    else:
        predicted = _difference([done.floats[source][at] for source in sources])
    error = sample.view(np.int64) - predicted
    return float(bits_of(error[np.newaxis])[0]) if error.any() else 0.0


def _best_prediction(values: FloatArray, done: ColumnsDone) -> Prediction:
    """The scale by which a column is nearly whole, or 0 and the columns that it is made of."""
    at = done.sample
    sample, previous = values[at], values[at - 1]
    bits, finite = sample.view(np.int64), np.isfinite(sample)
    errors = {scale: bits - _quotient(counted(sample, scale), scale) for scale in SCALES}
    for scale, error in errors.items():
        if not error[finite].any():
            return scale, ()
    last = list(done.floats)[-_SOURCES:]
    for sources in chain(permutations(last, 2), permutations(last, 3)):
        difference = _difference([done.floats[source][at] for source in sources])
        if not (bits - difference)[finite].any():
            return 0, sources
    costs = {0: best_base(bits, previous.view(np.int64), at, done.integers["error"])[0]}
    for scale, error in errors.items():
        counts = counted(sample, scale), counted(previous, scale)
        of_count, _ = best_base(*counts, at, done.integers[scale])
        costs[scale] = of_count + float(bits_of(error[np.newaxis])[0])
    return min(costs, key=costs.__getitem__), ()


def counted(values: FloatArray, scale: int) -> IntArray:
    """The integers nearest to `scale` times the values; 0 where there is none."""
    is_countable = np.abs(values) < _LARGEST_COUNT / scale
    count: IntArray = np.rint(np.where(is_countable, values, 0.0) * scale).astype(np.int64)
    return count


def _quotient(count: IntArray, scale: int) -> IntArray:
    """The bits of the floats that are so many parts of a scale."""
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[FloatArray]) -> IntArray:
    """The bits of the first column less the others; 0 if there are none."""
    if not columns:
        return np.zeros(1, np.int64)
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, columns)
    # The bits of what is no number are not the same on every processor.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)
