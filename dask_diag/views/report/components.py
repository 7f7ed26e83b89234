"""What sections of a report are made of; report.html says how each looks."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, NamedTuple

from bokeh.models import Column, GridPlot, LayoutDOM, Row

from dask_diag.analysis.headline import is_known_why_no_tasks, why_no_tasks
from dask_diag.formatting import count, percent
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown

_LONGEST = 120
_SWATCHES = {
    "/": "hatch-up",
    "\\": "hatch-down",
    ".": "hatch-dots",
    "-": "hatch-lines",
    "x": "hatch-cross",
    "v": "hatch-cross",
}
"""The style of each hatch of bokeh's that layers have; ``report.css`` draws it."""
_SEEN = 0.01
"""Of the wall: a part that has less is a hair in the bar."""
_LINE = 45
"""Pixels of a widget or a line of text, which do not say how high they are."""


def class_of_hatch(hatch: str) -> str:
    """The style of a hatch of bokeh's; empty where there is none."""
    return _SWATCHES.get(hatch, "")


def safe(text: object, limit: int = _LONGEST) -> str:
    """The user's text on one line; the template escapes it."""
    return shown(text, limit)


class Part:
    """An element of a section."""

    kind: ClassVar[str]


@dataclass(frozen=True)
class Text(Part):
    """Paragraphs, or a list of remarks."""

    texts: Sequence[str]
    listed: bool = False
    kind: ClassVar[str] = "text"


@dataclass(frozen=True)
class Grid(Part):
    """A table; the first `texts` columns are text, the others numbers.

    With `intervals`, one for each row, its first cell is a button that shows these seconds.
    With `tasks` it also pins the task of this number, if that is not -1.
    With `marks` a row may be marked as ``slower`` or ``faster``. With `few` the page shows so many
    rows, the first ones in the order that the reader has chosen, until asked for all.
    With `follows`, its id, the page has it follow the time that the plots show.
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
    kind: ClassVar[str] = "grid"


@dataclass(frozen=True)
class Key(Part):
    """A legend: pairs of a colour and a name, and how many more are left out."""

    caption: str
    items: Sequence[tuple[str, str]]
    more: int = 0
    hatches: Mapping[str, str] = field(default_factory=dict)
    """Of the names that are hatched in the plot its hatch, as bokeh writes it."""
    kind: ClassVar[str] = "key"

    def swatch(self, name: str) -> str:
        """The class of the swatch of a name."""
        return class_of_hatch(self.hatches.get(name, ""))


class Piece(NamedTuple):
    """Of a bar: its share of the longest bar, and how it looks."""

    color: str
    percent: float
    tooltip: str
    hatch: str = ""
    """The class of its hatch, if it has one."""


@dataclass(frozen=True)
class Bars(Part):
    """Stacked bars: for each a name, a text, and pieces."""

    caption: str
    rows: Sequence[tuple[str, str, Sequence[Piece]]]
    kind: ClassVar[str] = "bars"


@dataclass(frozen=True)
class WallPart:
    """A part of the wall time: its share from 0 to 1, and how it looks."""

    name: str
    time: str
    percent: str
    share: float
    color: str
    text_color: str
    is_hatched: bool


@dataclass(frozen=True)
class WallBar(Part):
    """The wall time as one bar, with a legend; `scale` is the share of the width that it has."""

    parts: Sequence[WallPart]
    caption: str = ""
    scale: float = 1.0
    kind: ClassVar[str] = "wall"

    @property
    def named(self) -> list[WallPart]:
        """The parts that can be seen in the bar."""
        return [part for part in self.parts if part.share >= _SEEN]

    @property
    def others(self) -> str:
        """The others, in the order of the bar; pointing at one names it."""
        small = [part for part in self.parts if part.share < _SEEN]
        if len(small) == 1:
            return f"{small[0].name} {small[0].time}"
        share = percent(sum(part.share for part in small))
        return f"{count(len(small))} parts of less than 1%: {share}" if small else ""


@dataclass(frozen=True)
class Figure(Part):
    """A bokeh model."""

    name: str
    model: LayoutDOM = field(repr=False)
    description: str
    kind: ClassVar[str] = "figure"

    @property
    def height(self) -> int:
        """Pixels that the page reserves for it, before it is drawn."""
        return height_of(self.model)


@dataclass(frozen=True)
class Pinned(Part):
    """The row that says what is known of the task that was clicked."""

    kind: ClassVar[str] = "pinned"


@dataclass(frozen=True)
class Code(Part):
    """Source code, and where it is."""

    location: str
    text: str
    first: int = 1
    """The number of its first line."""
    computing: Sequence[int] = ()
    """The numbers of the lines that called dask, which are marked."""
    kind: ClassVar[str] = "code"

    @property
    def heading(self) -> str:
        """The location, and where it computed, for those who do not see the mark."""
        last = self.first + self.text.count("\n")
        lines = [str(line) for line in self.computing if self.first <= line <= last]
        many = "lines" if lines[1:] else "line"
        return f"{self.location}: computed in {many} {', '.join(lines)}" if lines else self.location

    @property
    def lines(self) -> list[tuple[str, bool]]:
        """Its lines, and whether each is marked."""
        numbered = enumerate(self.text.split("\n"), self.first)
        return [(line, number in self.computing) for number, line in numbered]


@dataclass(frozen=True)
class ShownFinding:
    """A finding as text."""

    code: str
    severity: str
    lost: str
    evidence: str
    advice: str
    where: str
    intervals: Sequence[tuple[float, float]] = ()
    """Seconds from when to when it was, on the page's time axis: the page shades them."""
    page: str = ""
    """Of the documentation."""
    address: str = ""
    """Of that page, if it is known."""


@dataclass(frozen=True)
class Findings(Part):
    """Findings, the worst first."""

    findings: Sequence[ShownFinding]
    kind: ClassVar[str] = "findings"


@dataclass(frozen=True)
class Fold(Part):
    """Parts that are shown when asked for."""

    title: str
    parts: Sequence[Part]
    kind: ClassVar[str] = "fold"


@dataclass(frozen=True)
class Wide(Part):
    """Parts that are not shown on a phone."""

    parts: Sequence[Part]
    kind: ClassVar[str] = "wide"


@dataclass(frozen=True)
class Lanes(Part):
    """Figures that are scrolled where they are high, so that the others stay in view."""

    parts: Sequence[Figure]
    kind: ClassVar[str] = "lanes"


def height_of(model: LayoutDOM) -> int:
    """About how many pixels a model is high."""
    if not model.visible:
        return 0
    if isinstance(model, GridPlot):
        rows: dict[int, int] = {}
        for child, row, *_ in model.children:
            rows[row] = max(rows.get(row, 0), height_of(child))
        return sum(rows.values())
    if isinstance(model, (Column, Row)):
        heights = [height_of(child) for child in model.children if isinstance(child, LayoutDOM)]
        return sum(heights) if isinstance(model, Column) else max(heights, default=0)
    return int(model.height or _LINE)


def not_there(what: str, profiler: str, recording: Recording) -> Text:
    """The message in place of what was not measured, or was not there to be measured."""
    if is_known_why_no_tasks(recording):
        return Text([f"No {what}: {why_no_tasks(recording)}."])
    return Text([f"No {what}; record with {profiler}."])


def of_first(rows: int, most: int) -> str:
    """What the caption of a table adds if rows are left out."""
    return f", the first {count(most)} of {count(rows)}" if rows > most else ""
