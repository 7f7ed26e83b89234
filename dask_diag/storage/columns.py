"""Tables in streams: what each kind of column is stored as."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table
from dask_diag.storage.floats import decode_floats, encode_floats
from dask_diag.storage.integers import Integers, decode_integers, encode_integers
from dask_diag.storage.streams import StreamReader, StreamWriter

__all__ = ["NotStorableError", "decode_table", "encode_table"]

NUMBERS = frozenset("biuf")
DIFFERENCES = {"thread_noncpu": ("stop", "start", "thread_cpu")}
"""Columns that are the first of these less the others, and stored as that if true to the bit."""


class NotStorableError(Exception):
    """A column is of a kind, or holds values, that a file cannot hold."""


class _Known:
    """What is known of a table when the next of its columns is stored, or taken out."""

    def __init__(self) -> None:
        self.columns: dict[str, Any] = {}
        self.clocks: dict[str, Integers] = {}
        self.codes: dict[str, Integers] = {}
        self.numbers: dict[str, Integers] = {}


def encode_table(of: str, table: Table, into: StreamWriter) -> Any:
    """Put a table of that name into streams, and return what is needed to take it out."""
    known = _Known()
    told = []
    for name in table.columns:
        column = table[name]
        into.begin((of, name))
        told.append([name, *_encode_column(name, column, known, into)])
        known.columns[name] = column
    return [len(table), told]


def decode_table(told: Any, streams: StreamReader) -> Table:
    """Take out of the streams what `encode_table` put there."""
    rows, columns = told
    if type(rows) is not int or rows < 0:
        raise ValueError(f"expected a number of rows, found {rows!r}")
    known = _Known()
    for name, kind, *details in columns:
        known.columns[str(name)] = _DECODERS[kind](name, details, rows, known, streams)
    return Table(known.columns)


def _encode_column(name: str, column: Any, known: _Known, into: StreamWriter) -> list[Any]:
    if isinstance(column, Categorical):
        return ["labels", *_encode_labels(name, column, known, into)]
    if isinstance(column, PrefixStrings):
        return ["texts", *_encode_texts(name, column, known, into)]
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in NUMBERS:
        found = getattr(column, "dtype", type(column).__name__)
        raise NotStorableError(
            f"column {name!r}: expected a flat array of numbers, Categorical or "
            f"PrefixStrings, found {found}"
        )
    if _is_difference(name, column, known.columns):
        return ["difference"]
    return ["numbers", column.dtype.str, _encode_numbers(name, column, known, into)]


def _is_difference(name: str, column: Any, columns: Mapping[str, Any]) -> bool:
    """Whether a column is bit by bit what `_difference` makes of the columns before it."""
    if name not in DIFFERENCES:
        return False
    sources = [columns.get(source) for source in DIFFERENCES[name]]
    if not all(isinstance(each, np.ndarray) and each.dtype == float for each in (column, *sources)):
        return False
    expected: bytes = _difference(name, columns).tobytes()
    return expected == np.ascontiguousarray(column).tobytes()


def _difference(name: str, columns: Mapping[str, Any]) -> Any:
    total, *taken = (columns[source] for source in DIFFERENCES[name])
    with np.errstate(all="ignore"):
        for column in taken:
            total = total - column
    return total


def _encode_numbers(name: str, column: Any, known: _Known, into: StreamWriter) -> Any:
    native = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("="))
    kind, size = native.dtype.kind, native.dtype.itemsize
    if size > 8:
        raise NotStorableError(f"column {name!r}: numbers of {size} bytes, at most 8 are expected")
    if kind == "f":
        if size == 8:
            return encode_floats(native, known.clocks, name, into)
        return encode_integers(native.view(f"i{size}").astype(np.int64), {}, into)
    integers = native.view(np.int64) if native.dtype == np.uint64 else native.astype(np.int64)
    told = encode_integers(integers, known.numbers, into)
    known.numbers[name] = integers
    return told


def _decode_numbers(
    name: str, details: Any, rows: int, known: _Known, streams: StreamReader
) -> np.ndarray[Any, Any]:
    dtype, told = np.dtype(str(details[0])), details[1]
    if dtype.kind not in NUMBERS or dtype.itemsize > 8:
        raise ValueError(f"expected numbers, found {dtype}")
    column: np.ndarray[Any, Any]
    if dtype.kind == "f":
        if dtype.itemsize == 8:
            column = decode_floats(told, rows, known.clocks, name, streams)
        else:
            bits = decode_integers(told, rows, {}, streams)
            column = bits.astype(f"i{dtype.itemsize}").view(f"f{dtype.itemsize}")
    else:
        column = known.numbers[name] = decode_integers(told, rows, known.numbers, streams)
    return column.astype(dtype, copy=False)


def _encode_labels(name: str, column: Categorical, known: _Known, into: StreamWriter) -> list[Any]:
    told = None
    if len(column.values) > 1 or not into.leaves_out(len(column)):
        codes = column.codes.astype(np.int64)
        told = encode_integers(codes, known.codes, into)
        known.codes[name] = codes
    return [told, into.put(_values_as_json(name, column.values))]


def _decode_labels(
    name: str, details: Any, rows: int, known: _Known, streams: StreamReader
) -> Categorical:
    codes: np.ndarray[Any, Any]
    if details[0] is None:
        codes = np.zeros(streams.make_up(rows), np.uint8)
    else:
        codes = known.codes[name] = decode_integers(details[0], rows, known.codes, streams)
    values = json.loads(bytes(streams.take(details[1])).decode("utf-8", "surrogatepass"))
    if type(values) is not list or any(isinstance(value, (list, dict)) for value in values):
        raise ValueError("expected a list of labels")
    if rows and not 0 <= int(codes.min()) <= int(codes.max()) < len(values):
        raise ValueError(f"expected codes of {len(values)} labels")
    return Categorical(codes, values)


def _values_as_json(name: str, values: Any) -> bytes:
    plain = [value.item() if isinstance(value, np.generic) else value for value in values]
    for value in plain:
        if type(value) not in (str, int, float, bool, type(None)):
            raise NotStorableError(
                f"column {name!r}: expected labels that are text or numbers, found {value!r}"
            )
    # Written as they are: two lone surrogates would come back from their escapes as one character.
    return json.dumps(plain, ensure_ascii=False).encode("utf-8", "surrogatepass")


def _encode_texts(name: str, column: PrefixStrings, known: _Known, into: StreamWriter) -> list[Any]:
    lengths, tails = column.encoded
    told = _encode_labels(name, column.heads, known, into)
    numbers = encode_integers(lengths.astype(np.int64), {}, into)
    return [told, numbers, len(tails), into.put(tails)]


def _decode_texts(
    name: str, details: Any, rows: int, known: _Known, streams: StreamReader
) -> PrefixStrings:
    heads = _decode_labels(name, details[0], rows, known, streams)
    if not all(isinstance(head, str) for head in heads.values):
        raise ValueError("expected texts")
    lengths = decode_integers(details[1], rows, {}, streams)
    tails = bytes(streams.take(details[3], details[2]))
    _check_that_texts_decode(lengths, tails)
    return PrefixStrings.from_encoded(heads, lengths, tails)


def _check_that_texts_decode(lengths: Integers, tails: bytes) -> None:
    stops = np.cumsum(lengths)
    if int(lengths.min(initial=0)) < 0 or int(lengths.max(initial=0)) > len(tails):
        raise ValueError("expected lengths of texts")
    if (int(stops[-1]) if len(stops) else 0) != len(tails):
        raise ValueError("expected texts of the lengths that are told")
    if not tails.isascii():
        tails.decode("utf-8", "surrogatepass")
        starts = stops[:-1][stops[:-1] < len(tails)]
        within_a_character = np.frombuffer(tails, dtype=np.uint8)[starts] & 0xC0 == 0x80
        if within_a_character.any():
            raise ValueError("expected texts that end where a character does")


_DECODERS: dict[str, Any] = {
    "numbers": _decode_numbers,
    "labels": _decode_labels,
    "texts": _decode_texts,
    "difference": lambda name, details, rows, known, streams: _difference(name, known.columns),
}
