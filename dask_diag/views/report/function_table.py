"""The table of functions as the page has it; report.html says how it looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from dask_diag.views.report.components import Part, Piece

__all__ = ["FunctionRow", "FunctionTable", "NamedActivity"]


class FunctionRow(NamedTuple):
    """A function in a table: its colour in the plots, cells, and bar; `row` is its number."""

    row: int
    name: str
    color: str
    cells: Sequence[str]
    bar: Sequence[Piece]


class NamedActivity(NamedTuple):
    """What a key says of one activity; `number` is its place in the page."""

    number: int
    name: str
    text: str
    color: str
    hatch: str


@dataclass(frozen=True)
class FunctionTable(Part):
    """All functions with a bar each, which the page makes again for a part of the time.

    Attributes
    ----------
    total : str
        The seconds of all workers.
    bar : list of Piece
        Of them.
    key : list of NamedActivity
        What the colours of bars mean.
    more : int
        How many activities are not named.
    columns : list of str
        Names of the cells.
    rows : list of FunctionRow
        The longest first.
    sums : list of str
        The cells of all functions together.
    over_time : dict
        What ``functions.js`` takes.
    """

    total: str
    bar: Sequence[Piece]
    key: Sequence[NamedActivity]
    more: int
    columns: Sequence[str]
    rows: Sequence[FunctionRow]
    sums: Sequence[str]
    over_time: Mapping[str, object] = field(repr=False)
    kind: ClassVar[str] = "functions"
