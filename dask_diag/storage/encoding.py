"""Columns as bytes that compress well, and back, equal to the bit.

Every column becomes integers: a label its code, a clock reading its nanoseconds. What is stored is
the difference to the row before or to an earlier column, whichever is smaller, byte plane by byte
plane: first the low bytes of all rows, then the next ones. Low bytes are noise; the others hardly
change from row to row, and nearly vanish when they are compressed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property, reduce
from itertools import chain, permutations
from typing import Any

import numpy as np

from dask_diag.columns import Array, Categorical, FloatArray, IntArray, PrefixStrings, Values
from dask_diag.model.table import Table
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.choices import Choices, Prediction, TableChoices

__all__ = ["NotStorableError", "Spec", "decode_table", "encode_table"]

Integers = IntArray
Floats = FloatArray
Kind = str | int
"""What integers count: columns are compared with columns of the same kind."""
Spec = dict[str, Any]

SCALES = (1, 1_000_000_000)
"""Most floats are whole numbers, as bytes are, or whole nanoseconds, as clock readings are."""
VALUE, STEP, COLUMN = "", "+", "="
"""What integers are stored as: themselves, steps from row to row, differences to a column."""

_NUMBERS = frozenset("biuf")
_LARGEST_COUNT = 2.0**62
_SAMPLE = 512
_NOISE = 200
_SOURCES = 4
_NO_WORSE = 2.0
"""Bits of a value by which a prediction may be more wrong than it was in an earlier chunk."""


class NotStorableError(Exception):
    """A column is of a kind, or holds values, that a file cannot hold."""


class _Table:
    """A table while its columns are encoded or decoded: those that are done."""

    def __init__(self, rows: int, choices: TableChoices | None = None) -> None:
        if type(rows) is not int or rows < 0:
            raise ValueError(f"expected a number of rows, found {rows!r}")
        self.rows = rows
        self.choices = choices or TableChoices(Choices.FEWEST)
        self.floats: dict[str, Floats] = {}
        # By kind and name, as nanoseconds are only compared with nanoseconds.
        self.integers: defaultdict[Kind, dict[str, Integers]] = defaultdict(dict)

    @property
    def is_short(self) -> bool:
        """Whether it has so few rows that a search takes longer than it saves."""
        return self.rows <= self.choices.few

    @cached_property
    def sample(self) -> Integers:
        """Rows that have one before them, from all over the table."""
        count = max(0, min(self.rows - 1, _SAMPLE))
        return np.linspace(1, self.rows - 1, count).astype(np.int64)


def encode_table(table: Table, out: ByteWriter, choices: TableChoices | None = None) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them."""
    done, columns = _Table(len(table), choices), {}
    for name in table.columns:
        try:
            columns[name] = _encode_column(name, table[name], done, out)
        except NotStorableError as error:
            raise NotStorableError(f"column {name!r}: {error}") from None
    return {"rows": len(table), "columns": columns}


def decode_table(spec: Spec, source: ByteReader) -> Table:
    """The table that `encode_table` encoded; whatever is wrong with it raises some error."""
    done = _Table(spec["rows"])
    return Table(
        {
            name: _DECODERS[column["kind"]](name, column, done, source)
            for name, column in spec["columns"].items()
        }
    )


def _encode_column(name: str, column: object, done: _Table, out: ByteWriter) -> Spec:
    if isinstance(column, Categorical):
        return _encode_labels(name, column, done, out)
    if isinstance(column, PrefixStrings):
        return _encode_texts(name, column, done, out)
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in _NUMBERS:
        found = getattr(column, "dtype", type(column).__name__)
        raise NotStorableError(f"expected a flat array of numbers, labels or texts, found {found}")
    if column.dtype.itemsize > 8:
        raise NotStorableError(f"expected numbers of at most 8 bytes, found {column.dtype}")
    native = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("="))
    encode = _encode_floats if native.dtype == np.float64 else _encode_numbers
    return {"dtype": column.dtype.str, **encode(name, native, done, out)}


# Integers, which the other kinds are made of.


def _encode_integers(
    name: str, values: Integers, kind: Kind, done: _Table, out: ByteWriter
) -> Spec:
    group = done.integers[kind]
    if done.is_short or _is_constant(values):
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


def _encode_few(values: Integers, out: ByteWriter) -> Spec:
    """All bytes of a few integers: to look for a shorter form would take longer than it saves."""
    out.append(values.astype("<i8", copy=False).view(np.uint8).reshape(-1, 8).T.tobytes())
    return {"base": VALUE, "first": 0, "least": 0, "planes": [False] * 8}


def _is_constant(values: Array) -> bool:
    """Whether all values are the same: it takes no search to find that nothing is left of them."""
    return bool(values[0] == values[-1] and (values == values[0]).all())


def _encode_constant(values: Integers, out: ByteWriter) -> Spec:
    # One plane of nothing, so that no small file makes its reader allocate endless rows.
    out.append(bytes(len(values)))
    return {"base": VALUE, "first": 0, "least": int(values[0]), "planes": [False]}


def _decode_integers(
    name: str, spec: Spec, kind: Kind, done: _Table, source: ByteReader
) -> Integers:
    group, base, rows = done.integers[kind], spec["base"], done.rows
    planes = [np.frombuffer(source.take(rows, plain), np.uint8) for plain in spec["planes"]]
    cells = np.zeros((len(planes[0]), 8), np.uint8)
    for place, plane in enumerate(planes):
        cells[:, place] = plane
    values = cells.view("<i8").reshape(rows).astype(np.int64, copy=False)
    values += np.int64(spec["least"])
    if base == STEP:
        values[:1] += np.int64(spec["first"])
        np.cumsum(values, out=values)
    elif base != VALUE:
        values += group[base.removeprefix(COLUMN)]
    group[name] = values
    return values


def _base(name: str, values: Integers, kind: Kind, done: _Table) -> str:
    """The base that was best in an earlier chunk, if it is there; or else in this one."""
    group, bases = done.integers[kind], done.choices.bases
    base = bases.get((kind, name))
    if base is None or base.removeprefix(COLUMN) not in (VALUE, STEP, *group):
        at = done.sample
        base = bases[kind, name] = _best_base(values[at], values[at - 1], at, group)[1]
    return base


def _best_base(
    sample: Integers, previous: Integers, at: Integers, group: Mapping[str, Integers]
) -> tuple[float, str]:
    """The base that leaves least of a column, judged by a sample, and the bits that that takes."""
    if not len(sample) or (sample == sample[0]).all():
        return 0.0, VALUE
    bases = [VALUE, STEP, *(COLUMN + name for name in group)]
    others = (sample - column[at] for column in group.values())
    bits = _bits(np.stack([sample, sample - previous, *others]))
    best = int(np.argmin(bits))
    return float(bits[best]), bases[best]


def _bits(values: Integers) -> Array:
    """How many bits a number takes, about, in each row, once what is common to it is subtracted."""
    middle = values.shape[1] // 2
    common = np.partition(values, middle, axis=1)[:, middle, np.newaxis]
    bits: Array = np.log2(1.0 + np.abs((values - common).astype(float))).mean(axis=1)
    return bits


def _encode_numbers(name: str, native: Array, done: _Table, out: ByteWriter) -> Spec:
    kind, size = native.dtype.kind, native.dtype.itemsize
    integers = native.view(f"i{size}") if kind == "f" or size == 8 else native
    values = integers.astype(np.int64, copy=False)
    return {"kind": "integers", "values": _encode_integers(name, values, "integers", done, out)}


def _decode_numbers(name: str, spec: Spec, done: _Table, source: ByteReader) -> Array:
    dtype = np.dtype(str(spec["dtype"]))
    if dtype.kind not in _NUMBERS or dtype.itemsize > 8:
        raise ValueError(f"expected numbers, found {dtype}")
    values: Array = _decode_integers(name, spec["values"], "integers", done, source)
    if dtype.kind == "f":
        values = values.astype(f"i{dtype.itemsize}").view(dtype.newbyteorder("="))
    return values.astype(dtype, copy=False)


# Floats: predicted, and stored by how many units in the last place the prediction is off.


def _encode_floats(name: str, values: Floats, done: _Table, out: ByteWriter) -> Spec:
    bits = values.view(np.int64)
    needs_search = not done.is_short and not _is_constant(bits)
    scale, sources = _prediction(name, values, done) if needs_search else (0, ())
    spec: Spec = {"kind": "floats", "scale": scale, "sources": sources, "error": None}
    if scale:
        count = _counted(values, scale)
        spec["count"] = _encode_integers(name, count, scale, done, out)
        predicted = _quotient(count, scale)
    else:
        predicted = _difference([done.floats[source] for source in sources])
    error = bits - predicted
    if not scale or error.any():
        spec["error"] = _encode_integers(name, error, "error", done, out)
    done.floats[name] = values
    return spec


def _decode_floats(name: str, spec: Spec, done: _Table, source: ByteReader) -> Array:
    scale, dtype = spec["scale"], np.dtype(str(spec["dtype"]))
    if dtype.newbyteorder("=") != np.float64 or scale not in (0, *SCALES):
        raise ValueError(f"expected 64-bit floats and a scale, found {dtype} and {scale!r}")
    if scale:
        bits = _quotient(_decode_integers(name, spec["count"], scale, done, source), scale)
    else:
        bits = _difference([done.floats[source] for source in spec["sources"]])
    if not scale or spec["error"]:
        bits = bits + _decode_integers(name, spec["error"], "error", done, source)
    done.floats[name] = bits.view(np.float64)
    return done.floats[name].astype(dtype, copy=False)


def _prediction(name: str, values: Floats, done: _Table) -> Prediction:
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


def _bits_of_error(values: Floats, prediction: Prediction, at: Integers, done: _Table) -> float:
    """How many bits, about, a value is off in a sample."""
    (scale, sources), sample = prediction, values[at]
    if scale:
        predicted = _quotient(_counted(sample, scale), scale)
    else:
        predicted = _difference([done.floats[source][at] for source in sources])
    error = sample.view(np.int64) - predicted
    return float(_bits(error[np.newaxis])[0]) if error.any() else 0.0


def _best_prediction(values: Floats, done: _Table) -> Prediction:
    """The scale by which a column is nearly whole, or 0 and the columns that it is made of."""
    at = done.sample
    sample, previous = values[at], values[at - 1]
    bits, finite = sample.view(np.int64), np.isfinite(sample)
    errors = {scale: bits - _quotient(_counted(sample, scale), scale) for scale in SCALES}
    for scale, error in errors.items():
        if not error[finite].any():
            return scale, ()
    last = list(done.floats)[-_SOURCES:]
    for sources in chain(permutations(last, 2), permutations(last, 3)):
        difference = _difference([done.floats[source][at] for source in sources])
        if not (bits - difference)[finite].any():
            return 0, sources
    costs = {0: _best_base(bits, previous.view(np.int64), at, done.integers["error"])[0]}
    for scale, error in errors.items():
        counts = _counted(sample, scale), _counted(previous, scale)
        of_count, _ = _best_base(*counts, at, done.integers[scale])
        costs[scale] = of_count + float(_bits(error[np.newaxis])[0])
    return min(costs, key=costs.__getitem__), ()


def _counted(values: Floats, scale: int) -> Integers:
    """The integers nearest to `scale` times the values; 0 where there is none."""
    is_countable = np.abs(values) < _LARGEST_COUNT / scale
    count: Integers = np.rint(np.where(is_countable, values, 0.0) * scale).astype(np.int64)
    return count


def _quotient(count: Integers, scale: int) -> Integers:
    """The bits of the floats that are so many parts of a scale."""
    return (count / scale).view(np.int64)


def _difference(columns: Sequence[Floats]) -> Integers:
    """The bits of the first column less the others; 0 if there are none."""
    if not columns:
        return np.zeros(1, np.int64)
    with np.errstate(all="ignore"):
        values = reduce(np.subtract, columns)
    # The bits of what is no number are not the same on every processor.
    return np.where(np.isfinite(values), values, 0.0).view(np.int64)


# Labels and texts.


def _encode_labels(name: str, column: Categorical, done: _Table, out: ByteWriter) -> Spec:
    values = [value.item() if isinstance(value, np.generic) else value for value in column.values]
    for value in values:
        if type(value) not in (str, int, float, bool, type(None)):
            raise NotStorableError(f"expected labels that are text or numbers, found {value!r}")
    codes = _encode_integers(name, column.codes.astype(np.int64), "codes", done, out)
    return {"kind": "labels", "codes": codes, "values": values}


def _decode_labels(name: str, spec: Spec, done: _Table, source: ByteReader) -> Categorical:
    codes, values = _decode_integers(name, spec["codes"], "codes", done, source), spec["values"]
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if len(codes) and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def _encode_texts(name: str, column: PrefixStrings, done: _Table, out: ByteWriter) -> Spec:
    heads = _encode_labels(name, column.heads, done, out)
    lengths, tails = column.encoded
    sizes = _encode_integers(name, lengths.astype(np.int64), "lengths", done, out)
    out.append(tails)
    return {"kind": "texts", "heads": heads, "lengths": sizes, "size": len(tails)}


def _decode_texts(name: str, spec: Spec, done: _Table, source: ByteReader) -> PrefixStrings:
    heads = _decode_labels(name, spec["heads"], done, source)
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    lengths = _decode_integers(name, spec["lengths"], "lengths", done, source)
    tails = bytes(source.take(spec["size"]))
    _check_that_texts_decode(lengths, tails)
    return PrefixStrings.from_encoded(heads, lengths, tails)


def _check_that_texts_decode(lengths: Integers, tails: bytes) -> None:
    """Texts are decoded when they are first read, which is too late to call a file damaged."""
    stops = np.cumsum(lengths)
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > len(tails):
        raise ValueError("expected lengths of texts")
    if (int(stops[-1]) if len(stops) else 0) != len(tails):
        raise ValueError("expected as many bytes as the texts have")
    if not tails.isascii():
        tails.decode("utf-8", "surrogatepass")
        starts = stops[:-1][stops[:-1] < len(tails)]
        if (np.frombuffer(tails, dtype=np.uint8)[starts] & 0xC0 == 0x80).any():
            raise ValueError("expected texts that end where a character does")


_DECODERS: Mapping[str, Callable[[str, Spec, _Table, ByteReader], Values]] = {
    "integers": _decode_numbers,
    "floats": _decode_floats,
    "labels": _decode_labels,
    "texts": _decode_texts,
}
