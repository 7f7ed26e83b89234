"""Printed results: texts for a terminal, which a notebook shows as HTML."""

from __future__ import annotations

import io
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, repeat
from typing import Any, NamedTuple

from rich import box
from rich.color import ColorSystem
from rich.console import Console, OverflowMethod
from rich.measure import Measurement
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from dask_diag.formatting import percent
from dask_diag.views.colors import Look

WIDTH = 80
"""Columns of a terminal of unknown size."""
_NARROWEST = 60
_UNLIMITED = 10_000
_LONGEST_WORD = 20
"""Letters of the longest word of a first column that is not broken."""
_GLYPHS = "█▓▒░▚▞"
"""Glyphs of the largest shares of a bar, in order; smaller shares are drawn as dots."""
_OTHERS = "·"
_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold"}
_UNIT_FOLLOWS = re.compile(r"(?<=\d) (?=(?:[nµm]?s|[kMGT]?B)\b)")
_NO_BREAK = "\u00a0"

Record = Mapping[str, Any]
"""A row of a table, by column."""
Paint = Callable[[str, str], str]
"""A function that returns a text in a style."""


class FindingText(NamedTuple):
    """A finding in words: code, severity, possible saving, and the other sentences."""

    code: str
    severity: str
    saving: str
    text: str

    @property
    def title(self) -> str:
        """The first line."""
        return ": ".join(filter(None, (f"{self.code} ({self.severity})", self.saving)))


@dataclass(frozen=True)
class SummaryParts:
    """Content of a summary, from top to bottom.

    Attributes
    ----------
    headline : str
        A sentence per line.
    warning : str
        A sentence to read before any number.
    note_on_findings : str
        A sentence before the findings.
    findings : sequence of FindingText
    more : str
        Where the findings are explained.
    bar_title : str
    bar : sequence of (Look, float)
        Looks and shares of the whole, the largest first.
    above : (sequence of str, sequence of tuple of str)
        Columns and rows of a table above the other one, without a total.
    columns : sequence of str
    rows : sequence of tuple of str
        The first column is text, the last row a total.
    lines : sequence of (str, str)
        Short lines with a label each.
    notices : sequence of str
        Sentences needed to read the numbers.
    is_wrapped : bool
        Whether the first column of the table is shown whole, on several lines.
    is_folded : bool
        Whether only the headline and the warning are shown: in a notebook the rest is folded.
    picture : callable
        Makes HTML that a notebook shows above the table.
    page : str
        The file with the report, by its path from the notebook on; empty without one.
    """

    headline: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    warning: str = ""
    note_on_findings: str = ""
    findings: Sequence[FindingText] = ()
    more: str = ""
    bar_title: str = ""
    bar: Sequence[tuple[Look, float]] = ()
    above: tuple[Sequence[str], Sequence[tuple[str, ...]]] = ((), ())
    lines: Sequence[tuple[str, str]] = ()
    notices: Sequence[str] = ()
    is_wrapped: bool = False
    is_folded: bool = False
    picture: Callable[[], str] = str
    page: str = ""


def text_of(
    parts: SummaryParts, width: int = WIDTH, color: bool = False, cuts_names: bool = True
) -> str:
    """A summary as text, block by block.

    With `cuts_names` false, a table with long names may be wider than `width`.
    """
    width = max(width, _NARROWEST)

    def paint(text: str, style: str) -> str:
        if not color or not style:
            return text
        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)

    first, *others = parts.headline.split("\n")
    findings = (
        line
        for finding in parts.findings
        for line in (
            *(
                paint(title, _STYLES.get(finding.severity, ""))
                for title in _lines(finding.title, width, "! ", "  ")
            ),
            *_lines(finding.text, width, "  ", "  "),
        )
    )
    blocks: list[Iterable[str]] = [
        [
            *(paint(line, "bold") for line in _lines(first, width)),
            *(line for text in others for line in _lines(text, width)),
        ],
        (paint(line, "bold red") for line in _lines(parts.warning, width, "! ", "  ")),
    ]
    below: list[Iterable[str]] = [
        _lines(parts.note_on_findings, width),
        (*findings, *_lines(parts.more, width)),
        _bar(parts.bar_title, parts.bar, width, paint),
        _table(*parts.above, width, False, cuts_names, has_total=False),
        _table(parts.columns, parts.rows, width, parts.is_wrapped, cuts_names),
        _labelled(parts.lines, width, paint),
        (line for text in parts.notices for line in _lines(text, width, "- ", "  ")),
    ]
    blocks += [] if parts.is_folded else below
    return "\n\n".join(filter(None, map("\n".join, blocks)))


def _bar(
    title: str, shares: Sequence[tuple[Look, float]], width: int, paint: Paint
) -> Iterator[str]:
    """A title, the bar, and the share of each glyph."""
    if not shares:
        return
    width -= 2
    drawn = list(zip(_GLYPHS, shares, strict=False))
    free, bar = width, ""
    for glyph, (look, share) in drawn:
        piece = glyph * min(round(share * width), free)
        free -= len(piece)
        bar += paint(piece, look.terminal)
    yield title
    yield f"  {bar}{_OTHERS * free}"
    legend = [
        f"{glyph} {look.name} {percent(share)}"
        for glyph, (look, share) in zip(chain(_GLYPHS, repeat(_OTHERS)), shares, strict=False)
    ]
    # A share stays with its name where a line breaks.
    text = "  ".join(item.replace(" ", _NO_BREAK) for item in legend)
    yield from _lines(text, width + 2, "  ", "  ")


def _labelled(lines: Sequence[tuple[str, str]], width: int, paint: Paint) -> Iterator[str]:
    indent = max((len(label) for label, _ in lines), default=0) + 2
    for label, text in lines:
        first, *others = _lines(text, width, label.ljust(indent), " " * indent)
        yield paint(first[:indent], "bold") + first[indent:]
        yield from others


def _table(
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    width: int,
    is_wrapped: bool,
    cuts_names: bool,
    *,
    has_total: bool = True,
) -> list[str]:
    if not rows:
        return []
    stream = io.StringIO()
    console = Console(
        file=stream, width=width, color_system=None, highlight=False, force_jupyter=False
    )
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    first, *others = columns
    overflow: OverflowMethod = "fold" if is_wrapped else "ellipsis"
    names = [_at_equals(row[0]) if is_wrapped else row[0] for row in rows]
    longest = max(len(word) for name in names for word in ["", *name.split()])
    least = min(longest, _LONGEST_WORD) if is_wrapped else None
    table.add_column(first, no_wrap=not is_wrapped, overflow=overflow, ratio=1, min_width=least)
    for name in others:
        table.add_column(name, no_wrap=True, overflow="ellipsis", justify="right")
    for number, (name, (_, *cells)) in enumerate(zip(names, rows, strict=True), 1):
        if has_total and number == len(rows):
            table.add_section()
        table.add_row(*map(Text, (name, *cells)))
    needed = Measurement.get(console, console.options.update(max_width=_UNLIMITED), table)
    if is_wrapped:
        # A column that does not fit would be left out.
        console.width = max(width, needed.minimum)
    elif not cuts_names:
        console.width = max(width, needed.maximum)
    console.print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def _at_equals(name: str) -> str:
    """A name in which long words such as ``array.chunk-size=64MiB`` break behind the sign."""
    words = []
    for word in name.split(" "):
        parts = word.replace("=", "=\n").split("\n") if len(word) > _LONGEST_WORD else [word]
        pieces = (textwrap.wrap(part, _LONGEST_WORD, break_on_hyphens=False) for part in parts)
        words.append("\n".join(chain.from_iterable(pieces)))
    return " ".join(words)


def unbroken(text: str) -> str:
    """A text in which no line breaks between a number and its unit."""
    return _UNIT_FOLLOWS.sub(_NO_BREAK, text)


def _lines(text: str, width: int, first: str = "", others: str = "") -> list[str]:
    """Break a text between words, but not between a number and its unit."""
    lines = textwrap.wrap(
        unbroken(text),
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_on_hyphens=False,
    )
    return [line.replace(_NO_BREAK, " ") for line in lines]


class Summary(str):
    """Text for a terminal, shown as HTML in a notebook."""

    _make_html: Callable[[], str]
    _parts: SummaryParts | None

    def __new__(
        cls, text: str, make_html: Callable[[], str], parts: SummaryParts | None = None
    ) -> Summary:
        """Make a summary of text; with `parts`, `for_terminal` can draw again."""
        self = super().__new__(cls, text)
        self._make_html = make_html
        self._parts = parts
        return self

    def for_terminal(self, width: int = WIDTH, color: bool = False, cuts_names: bool = True) -> str:
        """The text for a terminal of so many columns, in color or not.

        With `cuts_names` false, for a file, a table with long names may be wider.
        """
        return self[:] if self._parts is None else text_of(self._parts, width, color, cuts_names)

    def __repr__(self) -> str:
        return self[:]

    def _repr_html_(self) -> str:
        return self._make_html()
