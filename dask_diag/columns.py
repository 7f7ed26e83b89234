"""The kinds of columns that a table has beside arrays: texts and labels, encoded to be small."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import add
from typing import Any

import numpy as np

__all__ = ["Labels", "Texts", "concatenate", "smallest_integers"]


def smallest_integers(values: Any, largest: int) -> np.ndarray[Any, Any]:
    """`values` in the smallest unsigned type that holds `largest`."""
    return np.asarray(values, dtype=np.min_scalar_type(max(largest, 0)))


class Labels:
    """A column of few distinct values: a small integer a row, each value once.

    Parameters
    ----------
    codes : array of int, shape (rows,)
        The position in `values` of each row's value.
    values : sequence
        The distinct values, text or numbers.
    """

    __slots__ = ("codes", "values")

    def __init__(self, codes: Any, values: Sequence[Any]) -> None:
        self.codes = smallest_integers(codes, len(values))
        self.codes.flags.writeable = False
        self.values = tuple(values)

    @classmethod
    def of(cls, items: Iterable[Any]) -> Labels:
        """Encode a sequence of values."""
        positions: dict[Any, int] = {}
        codes = [positions.setdefault(item, len(positions)) for item in items]
        return cls(codes, list(positions))

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: Any) -> Any:
        if isinstance(rows, (int, np.integer)):
            return self.values[self.codes[rows]]
        return Labels(self.codes[rows], self.values)

    def tolist(self) -> list[Any]:
        """The value of every row."""
        values = self.values
        return [values[code] for code in self.codes.tolist()]

    def where(self, value: Any) -> np.ndarray[Any, Any]:
        """A boolean for each row: whether it holds `value`."""
        codes = [code for code, known in enumerate(self.values) if known == value]
        return np.asarray(np.isin(self.codes, codes))


class Texts:
    """A column of mostly distinct texts that begin alike, as keys do.

    Each is a head, of which there are few, and a tail; the tails are one string.
    """

    __slots__ = ("_lengths", "_tails", "heads")

    def __init__(self, heads: Labels, tails: Sequence[str]) -> None:
        encoded = [tail.encode("utf-8", "surrogatepass") for tail in tails]
        lengths = [len(tail) for tail in encoded]
        self.heads = heads
        self._lengths = smallest_integers(lengths, max(lengths, default=0))
        self._tails = b"".join(encoded)

    @classmethod
    def of(cls, texts: Iterable[str]) -> Texts:
        """Encode a sequence of texts, split where their last name or number begins."""
        split = [_split_text(text) for text in texts]
        return cls(Labels.of(head for head, _ in split), [tail for _, tail in split])

    def __len__(self) -> int:
        return len(self._lengths)

    def __getitem__(self, rows: Any) -> Any:
        texts = self.tolist()
        if isinstance(rows, (int, np.integer)):
            return texts[rows]
        return Texts.of(np.asarray(texts, dtype=object)[rows].tolist())

    def tails(self) -> list[str]:
        """What follows the head, for every row."""
        stops = np.cumsum(self._lengths, dtype=np.int64).tolist()
        return [
            self._tails[start:stop].decode("utf-8", "surrogatepass")
            for start, stop in zip([0, *stops], stops, strict=False)
        ]

    def tolist(self) -> list[str]:
        """The text of every row."""
        return list(map(add, self.heads.tolist(), self.tails()))

    def chunks(self, rows: int) -> Iterator[list[str]]:
        """The text of every row, so many rows at a time: all at once would be large."""
        stop = 0
        for first in range(0, len(self), rows):
            heads = self.heads[first : first + rows].tolist()
            tails = []
            for length in self._lengths[first : first + rows].tolist():
                start, stop = stop, stop + length
                tails.append(self._tails[start:stop].decode("utf-8", "surrogatepass"))
            yield list(map(add, heads, tails))


def _split_text(text: str) -> tuple[str, str]:
    """Where a key's shared part ends: after the name in ``('x', 1)``, after ``x-`` in ``x-1``."""
    cut = text.find(", ") if text.startswith("(") else text.find("-")
    return text[: cut + 1], text[cut + 1 :]


def concatenate(parts: Sequence[Any]) -> Any:
    """One column of several of the same kind."""
    first = parts[0]
    if isinstance(first, Labels):
        positions: dict[Any, int] = {}
        for part in parts:
            for value in part.values:
                positions.setdefault(value, len(positions))
        codes = [
            np.asarray([positions[value] for value in part.values], dtype=np.int64)[part.codes]
            if len(part)
            else np.zeros(0, dtype=np.int64)
            for part in parts
        ]
        return Labels(np.concatenate(codes), list(positions))
    if isinstance(first, Texts):
        return Texts.of(text for part in parts for text in part.tolist())
    return np.concatenate(parts)
