"""Parts of a page's sections; ``report.html`` says how each looks."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from bokeh.models import Column, GridPlot, LayoutDOM, Row

from dask_diag.analysis.headline import is_known_why_no_tasks, why_no_tasks
from dask_diag.formatting import count, percent
from dask_diag.model.recording import Recording
from dask_diag.views.colors import Look, text_color_on

_SEEN = 0.01
"""Share of the wall time that can be seen in its bar."""
_LINE = 45
"""Pixels of a widget or a line of text, whose height is not given."""


class Part:
    """An element of a section."""

    @property
    def kind(self) -> str:
        """Name of the kind of part in the template."""
        return type(self).__name__

    def flat(self) -> Iterator[Part]:
        """The part, and the parts in it."""
        yield self


@dataclass(frozen=True)
class Text(Part):
    """Paragraphs, or a list of remarks."""

    texts: Sequence[str]
    listed: bool = False


@dataclass(frozen=True)
class Grid(Part):
    """A table; the first `texts` columns are text, the others numbers.

    With `intervals`, one for each row, the first cell is a button that shows these seconds; with
    `tasks`, the button also pins the task of this number, if not -1. With `marks` a row may be
    marked as ``slower`` or ``faster``. With `few` the page shows as many rows until asked for all.
    With an id in `follows`, the table follows the time that the plots show.
    """

    caption: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    texts: int = 1
    intervals: Sequence[tuple[float, float]] = ()
    tasks: Sequence[int] = ()
    marks: Sequence[str] = ()
    few: int = 0
    follows: str = ""


@dataclass(frozen=True)
class Key(Part):
    """A legend: looks, of which those without a color are only named, and the number left out."""

    caption: str
    looks: Sequence[Look]
    more: int = 0


class Piece(NamedTuple):
    """A piece of a bar: its look, its share of the longest bar in per cent, and its tooltip."""

    look: Look
    percent: float
    tooltip: str


@dataclass(frozen=True)
class Bars(Part):
    """Pairs of stacked bars: each has the pair's name or "", a label, a text, and pieces."""

    caption: str
    rows: Sequence[tuple[str, str, str, Sequence[Piece]]]


@dataclass(frozen=True)
class WallPart:
    """A part of the wall time: its look, and its share from 0 to 1."""

    look: Look
    time: str
    percent: str
    share: float

    @property
    def text_color(self) -> str:
        """Color of a text on the part, if that is solid; else the text has the page's."""
        return "" if self.look.hatch else text_color_on(self.look.color)


@dataclass(frozen=True)
class WallBar(Part):
    """The wall time as one bar, with a legend; `scale` is the share of the page's width."""

    parts: Sequence[WallPart]
    caption: str = ""
    scale: float = 1.0

    @property
    def named(self) -> list[WallPart]:
        """Parts that can be seen in the bar."""
        return [part for part in self.parts if part.share >= _SEEN]

    @property
    def others(self) -> str:
        """Parts that are too small to be seen, in words."""
        small = [part for part in self.parts if part.share < _SEEN]
        if len(small) == 1:
            return f"{small[0].look.name} {small[0].time}"
        share = percent(sum(part.share for part in small))
        return f"{count(len(small))} parts of less than 1%: {share}" if small else ""


class FunctionRow(NamedTuple):
    """A function in a table: its number, its color in the plots, cells, and bar."""

    row: int
    name: str
    color: str
    cells: Sequence[str]
    bar: Sequence[Piece]


class NamedActivity(NamedTuple):
    """An activity in the key of a table of functions; `number` is its place in the page."""

    number: int
    look: Look
    text: str


@dataclass(frozen=True)
class FunctionTable(Part):
    """Functions with a bar each, which the page makes again for a part of the time.

    Attributes
    ----------
    total : str
        Seconds of all workers.
    bar : list of Piece
        Activities of all workers.
    key : list of NamedActivity
        Names of the bars' colors.
    more : int
        Number of activities without a name in the key.
    columns : list of str
        Names of the cells.
    rows : list of FunctionRow
        The longest first.
    sums : list of str
        Cells of all functions together.
    over_time : dict
        Numbers in bins of time, for ``functions.js``.
    """

    total: str
    bar: Sequence[Piece]
    key: Sequence[NamedActivity]
    more: int
    columns: Sequence[str]
    rows: Sequence[FunctionRow]
    sums: Sequence[str]
    over_time: Mapping[str, object] = field(repr=False)


class SourceRow(NamedTuple):
    """A line of source: its row in the numbers, or -1; number; pieces, marked or not.

    A line that `is_far` from all that built work is shown when asked for.
    """

    row: int
    number: str
    pieces: Sequence[tuple[str, bool]]
    is_far: bool


class SourceFile(NamedTuple):
    """The source of a file or a cell."""

    name: str
    rows: Sequence[SourceRow]


@dataclass(frozen=True)
class SourceTable(Part):
    """The source of the program; ``lines.js`` shows the `numbers` beside the lines."""

    files: Sequence[SourceFile]
    numbers: Mapping[str, object] = field(repr=False)


@dataclass(frozen=True)
class PathSwitch(Part):
    """The switch that outlines the critical path among the tasks.

    `paths` has the numbers of each computation's tasks, in order; with `is_on` they are outlined
    when the page opens.
    """

    text: str
    paths: Sequence[Sequence[int]] = field(repr=False)
    is_on: bool


@dataclass(frozen=True)
class Figure(Part):
    """A bokeh model."""

    name: str
    model: LayoutDOM = field(repr=False)
    description: str

    @property
    def height(self) -> int:
        """Pixels that the page reserves for the figure, before it is drawn."""
        return _height_of(self.model)


def _height_of(model: LayoutDOM) -> int:
    if not model.visible:
        return 0
    if isinstance(model, GridPlot):
        rows: dict[int, int] = {}
        for child, row, *_ in model.children:
            rows[row] = max(rows.get(row, 0), _height_of(child))
        return sum(rows.values())
    if isinstance(model, (Column, Row)):
        heights = [_height_of(child) for child in model.children if isinstance(child, LayoutDOM)]
        return sum(heights) if isinstance(model, Column) else max(heights, default=0)
    return int(model.height or _LINE)


@dataclass(frozen=True)
class Pinned(Part):
    """The row with the details of the task that was clicked."""


@dataclass(frozen=True)
class Code(Part):
    """Source code: its location, its text, and the number of its first line.

    `computing` has the numbers of the lines that called dask, which are marked.
    """

    location: str
    text: str
    first: int = 1
    computing: Sequence[int] = ()

    @property
    def heading(self) -> str:
        """The location, and the marked lines for readers who do not see the mark."""
        last = self.first + self.text.count("\n")
        lines = [str(line) for line in self.computing if self.first <= line <= last]
        many = "lines" if lines[1:] else "line"
        return f"{self.location}: computed in {many} {', '.join(lines)}" if lines else self.location

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """Lines of the code, and whether each is marked."""
        numbered = enumerate(self.text.split("\n"), self.first)
        return [(line, number in self.computing) for number, line in numbered]


class ShownFinding(NamedTuple):
    """A finding as texts.

    `intervals` are seconds on the page's time axis, which the page shades. `command` prints the
    documentation, `address` is its address, if known.
    """

    code: str
    severity: str
    saving: str
    evidence: str
    advice: str
    where: str
    intervals: Sequence[tuple[float, float]]
    command: str
    address: str


@dataclass(frozen=True)
class Findings(Part):
    """Findings, the worst first."""

    findings: Sequence[ShownFinding]


@dataclass(frozen=True)
class PartGroup(Part):
    """Parts in an element of the page."""

    parts: Sequence[Part]

    def flat(self) -> Iterator[Part]:
        """The group, and the parts in it."""
        yield self
        for part in self.parts:
            yield from part.flat()


@dataclass(frozen=True)
class Fold(PartGroup):
    """Parts that are shown when asked for."""

    title: str = ""


class Wide(PartGroup):
    """Parts that are not shown on a phone."""


class ScrolledFigures(PartGroup):
    """Figures that are scrolled where they are high, so that the others stay in view."""


def not_there(what: str, profiler: str, recording: Recording) -> Text:
    """Message in place of what was not measured, or was not there to be measured."""
    if is_known_why_no_tasks(recording):
        return Text([f"No {what}: {why_no_tasks(recording)}."])
    return Text([f"No {what}; record with {profiler}."])


def of_first(rows: int, most: int) -> str:
    """Addition to the caption of a table if rows are left out."""
    return f", the first {count(most)} of {count(rows)}" if rows > most else ""
