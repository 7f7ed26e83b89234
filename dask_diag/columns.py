"""Kinds of columns besides arrays: texts and labels, encoded to be small."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from itertools import chain
from operator import add, index
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
FloatArray = npt.NDArray[np.float64]
IntArray = npt.NDArray[np.int64]
"""Integers; a column may have smaller ones."""
BoolArray = npt.NDArray[np.bool_]
Rows = int | slice | IntArray | BoolArray
"""A selection of rows: an index, a slice, a mask or indices."""


_SHOWN = 3
_LONGEST = 40


def read_only(array: Array) -> Array:
    """A read-only view; the array itself stays writable for its owner."""
    if not array.flags.writeable:
        return array
    view = array.view()
    view.flags.writeable = False
    return view


def smallest_integers(values: npt.ArrayLike, largest: int) -> Array:
    """`values` in the smallest unsigned type that holds `largest`."""
    dtype = np.uint8 if largest < 256 else np.min_scalar_type(largest)
    return np.asarray(values, dtype=dtype)


def ratio(part: Array, total: Array, otherwise: float = 0.0) -> FloatArray:
    """Divide; another number for a divisor that is not above 0."""
    return np.asarray(np.divide(part, total, np.full(len(total), otherwise), where=total > 0))


class Categorical:
    """A column with few distinct values, stored as integer codes.

    Parameters
    ----------
    codes : array of int, shape (rows,)
        For each row, the position of its value in `values`.
    values : sequence
        The distinct values, text or numbers.

    Examples
    --------
    >>> from dask_diag.columns import Categorical
    >>> column = Categorical.of(["ok", "failed", "ok"])
    >>> column.eq("ok").tolist()
    [True, False, True]
    >>> column.tolist()
    ['ok', 'failed', 'ok']
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: npt.ArrayLike, values: Sequence[Any]) -> None:
        self.codes = read_only(smallest_integers(codes, len(values)))
        self.values = tuple(values)

    @classmethod
    def of(cls, items: Iterable[Hashable]) -> Categorical:
        """Encode a sequence of values. Equal values of different types (1 and True) differ."""
        return cls(*_encode(list(items)))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Rows) -> Any:
        if isinstance(rows, (int, np.integer)):
            return self.values[self.codes[rows]]
        return Categorical(self.codes[rows], self.values)

    def __repr__(self) -> str:
        return _described(self)

    def tolist(self) -> list[Any]:
        """Return the value of every row."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]

    def eq(self, value: object) -> BoolArray:
        """Return a boolean mask of the rows whose value is `value`."""
        return self.is_in([value])

    def is_in(self, values: Collection[object]) -> BoolArray:
        """Return a boolean mask of the rows whose value is among `values`."""
        if not len(self):
            return np.zeros(0, dtype=bool)
        mask: BoolArray = np.array([value in values for value in self.values], dtype=bool)
        return np.asarray(mask[self.codes])


class PrefixStrings:
    """A column of mostly distinct texts with common beginnings, such as keys.

    Each text is a head, one of few distinct ones, and a tail; all tails are stored as one string.

    Examples
    --------
    >>> from dask_diag.columns import PrefixStrings
    >>> PrefixStrings.of(["load-0", "load-1"]).tolist()
    ['load-0', 'load-1']
    """

    __slots__ = ("_lengths", "_tails", "heads")

    def __init__(self, heads: Categorical, tails: Sequence[str]) -> None:
        encoded = [tail.encode("utf-8", "surrogatepass") for tail in tails]
        self._set(heads, [len(tail) for tail in encoded], b"".join(encoded))

    @classmethod
    def from_encoded(cls, heads: Categorical, lengths: Array, tails: bytes) -> PrefixStrings:
        """Make a column from heads, and lengths and tails as `encoded` returns them."""
        column = cls.__new__(cls)
        column._set(heads, lengths, tails)
        return column

    def _set(self, heads: Categorical, lengths: npt.ArrayLike, tails: bytes) -> None:
        self.heads = heads
        self._lengths = read_only(smallest_integers(lengths, int(np.max(lengths, initial=0))))
        self._tails = tails

    @property
    def encoded(self) -> tuple[Array, bytes]:
        """The number of bytes of each tail, and all tails as bytes (UTF-8, ``surrogatepass``)."""
        return self._lengths, self._tails

    @classmethod
    def of(cls, texts: Iterable[str]) -> PrefixStrings:
        """Encode a sequence of texts, split where their last name or number begins."""
        split = [_split_text(text) for text in texts]
        return cls(Categorical.of(head for head, _ in split), [tail for _, tail in split])

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, rows: Rows) -> Any:
        if isinstance(rows, (int, np.integer)):
            return self._text(index(rows))
        indices = np.arange(len(self))[rows]
        lengths = self._lengths[indices].astype(np.int64)
        starts = (np.cumsum(self._lengths, dtype=np.int64) - self._lengths)[indices]
        # The index of each selected byte in the tails of all rows.
        stops = np.cumsum(lengths)
        selected = np.repeat(starts - (stops - lengths), lengths) + np.arange(lengths.sum())
        tails = np.frombuffer(self._tails, dtype=np.uint8)[selected].tobytes()
        return PrefixStrings.from_encoded(self.heads[indices], lengths, tails)

    def _text(self, row: int) -> str:
        """The text of one row, without decoding others."""
        count = len(self)
        if not -count <= row < count:
            raise IndexError(f"row {row} is out of range: there are {count:,} rows")
        row %= count
        start = int(self._lengths[:row].sum(dtype=np.int64))
        tail = self._tails[start : start + int(self._lengths[row])]
        return str(self.heads[row]) + tail.decode("utf-8", "surrogatepass")

    def __repr__(self) -> str:
        return _described(self)

    def tails(self) -> list[str]:
        """The tail of every row."""
        stops = np.cumsum(self._lengths, dtype=np.int64).tolist()
        bounds = zip([0, *stops], stops, strict=False)
        if self._tails.isascii():
            text = self._tails.decode("ascii")
            return [text[start:stop] for start, stop in bounds]
        return [self._tails[start:stop].decode("utf-8", "surrogatepass") for start, stop in bounds]

    def tolist(self) -> list[str]:
        """Return the text of every row."""
        return list(map(add, self.heads.tolist(), self.tails()))

    def chunks(self, rows: int) -> Iterator[list[str]]:
        """Iterate over the texts in lists of `rows` texts, to save memory."""
        stop = 0
        for first in range(0, len(self), rows):
            heads = self.heads[first : first + rows].tolist()
            tails = []
            for length in self._lengths[first : first + rows].tolist():
                start, stop = stop, stop + length
                tails.append(self._tails[start:stop].decode("utf-8", "surrogatepass"))
            yield list(map(add, heads, tails))


def _encode(items: list[Hashable]) -> tuple[list[int], list[Hashable]]:
    """The code of each item, and the distinct items in order of appearance."""
    if len(set(map(type, items))) < 2:
        positions = {item: code for code, item in enumerate(dict.fromkeys(items))}
        return list(map(positions.__getitem__, items)), list(positions)
    # 1, True and 1.0 are equal, but stay apart.
    distinct: dict[tuple[type, Hashable], int] = {}
    codes = [distinct.setdefault((type(item), item), len(distinct)) for item in items]
    return codes, [value for _, value in distinct]


def _described(column: Categorical | PrefixStrings) -> str:
    """The kind of a column, its length and its first values, in one line."""
    values = [repr(value) for value in column[:_SHOWN].tolist()]
    short = [text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..." for text in values]
    more = ["..."] if len(column) > _SHOWN else []
    return f"<{type(column).__name__} of {len(column)} rows: {', '.join(short + more)}>"


def _split_text(text: str) -> tuple[str, str]:
    """The shared part of a key and the rest: split after ``('x', `` or ``x-``."""
    mark = ", " if text.startswith("(") else "-"
    cut = text.find(mark) + len(mark)
    return (text[:cut], text[cut:]) if mark in text else ("", text)


def concatenate(parts: Sequence[Any]) -> Any:
    """One column of several of a kind."""
    parts = [part for part in parts if len(part)] or parts[:1]
    first = parts[0]
    if len(parts) == 1:
        return first
    if isinstance(first, Categorical):
        codes, values = _encode(list(chain.from_iterable(part.values for part in parts)))
        code_of_value = np.array(codes, dtype=np.int64)
        before, joined = 0, []
        for part in parts:
            joined.append(code_of_value[before:][part.codes])
            before += len(part.values)
        return Categorical(np.concatenate(joined), values)
    if isinstance(first, PrefixStrings):
        lengths, tails = zip(*(part.encoded for part in parts), strict=True)
        heads = concatenate([part.heads for part in parts])
        return PrefixStrings.from_encoded(heads, np.concatenate(lengths), b"".join(tails))
    return np.concatenate(parts)


Values = Array | Categorical | PrefixStrings
"""The values of a column."""
