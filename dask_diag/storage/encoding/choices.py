"""How the columns of earlier chunks were stored shortest, so that later ones need no search.

A search takes tenths of a millisecond for each column, whatever its length: for chunks of few rows
more than everything else. A choice is never wrong, only longer than need be, if a column changes.
"""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["Choices", "Prediction", "TableChoices"]

Prediction = tuple[int, Sequence[str]]
"""Of floats: their scale, or 0 and the columns that they are made of."""

_CHUNKS = 16
"""After so many chunks it is searched again."""


class TableChoices:
    """How the columns of one table were stored.

    Attributes
    ----------
    few : int
        Up to so many rows, integers are stored as they are.
    bases : dict
        By the kind and name of integers, what they are stored relative to.
    predictions : dict
        By the name of floats, how they were predicted, and by how many bits that was wrong.
    """

    def __init__(self, few: int) -> None:
        self.few = few
        self.bases: dict[tuple[str | int, str], str] = {}
        self.predictions: dict[str, tuple[Prediction, float]] = {}


class Choices:
    """How the columns of the chunks of one file were stored.

    Parameters
    ----------
    few : int, optional
        Up to so many rows, integers are stored as they are. With fewer than the default, a search
        takes longer than it saves; with more, chunks are larger and take less time.
    """

    FEWEST = 8

    def __init__(self, few: int = FEWEST) -> None:
        self._few = few
        self._chunks = 0
        self._tables: dict[str, TableChoices] = {}

    def begin_chunk(self) -> None:
        """Forget all choices, every now and then."""
        if self._chunks % _CHUNKS == 0:
            self._tables = {}
        self._chunks += 1

    def of_table(self, name: str) -> TableChoices:
        """Those of a table, to be used and added to."""
        return self._tables.setdefault(name, TableChoices(self._few))
