"""What summaries have in common: text for a terminal, a table for a notebook."""

from __future__ import annotations

import html
import io
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from rich import box
from rich.color import ColorSystem
from rich.console import Console, OverflowMethod
from rich.style import Style
from rich.table import Table as RichTable
from rich.text import Text

from dask_diag.formatting import percent
from dask_diag.model.codes import Activity

WIDTH = 80
"""Columns where it is not known how many there are."""
_NARROWEST = 60
_GLYPHS = "█▓▒░▚▞"
"""Of the largest shares of a bar, in order; what is left of them is drawn as dots."""
_OTHERS = "·"
_STYLES = {"high": "bold red", "medium": "bold yellow", "low": "bold"}
_BAR_STYLES = {
    Activity.CPU: "blue",
    Activity.OVERHEAD: "bright_black",
    Activity.IDLE: "dim",
    Activity.GRAPH: "magenta",
    Activity.STARTUP: "magenta",
    Activity.PROFILERS: "magenta",
}
_WAITING = "yellow"
_UNIT_FOLLOWS = re.compile(r"(?<=\d) (?=(?:[nµm]?s|[kMGT]?B)\b)")
_NO_BREAK = "\u00a0"


class FindingText(NamedTuple):
    """A finding in words: its code, how severe it is, what was lost, and all else."""

    code: str
    severity: str
    lost: str
    text: str

    @property
    def title(self) -> str:
        """The first line."""
        return f"{self.code} ({', '.join(filter(None, (self.severity, self.lost)))})"


@dataclass(frozen=True)
class SummaryParts:
    """What a summary shows, from top to bottom.

    Attributes
    ----------
    headline : str
        A sentence per line.
    warning : str
        What to know before any number is read.
    findings : sequence of FindingText
    bar_title : str
    bar : sequence of (str, float)
        Names and shares of the whole, the largest first.
    columns : sequence of str
    rows : sequence of tuple of str
        The first column is text, the last row a total.
    lines : sequence of (str, str)
        Short lines with a label each.
    notices : sequence of str
        What a reader must know besides the numbers.
    is_wrapped : bool
        Whether the first column of the table is shown whole, on several lines.
    """

    headline: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    warning: str = ""
    findings: Sequence[FindingText] = ()
    bar_title: str = ""
    bar: Sequence[tuple[str, float]] = ()
    lines: Sequence[tuple[str, str]] = ()
    notices: Sequence[str] = ()
    is_wrapped: bool = False


def text_of(parts: SummaryParts, width: int = WIDTH, color: bool = False) -> str:
    """A summary as text, block by block."""
    return _Writer(max(width, _NARROWEST), color).text_of(parts)


class _Writer:
    """Writes blocks of text of a width; what is painted is plain without colour."""

    def __init__(self, width: int, color: bool) -> None:
        self._width = width
        self._color = color

    def text_of(self, parts: SummaryParts) -> str:
        first, *others = parts.headline.split("\n")
        blocks = [
            [self._paint(line, "bold") for line in _lines(first, self._width)]
            + [line for text in others for line in _lines(text, self._width)],
            [self._paint(line, "bold red") for line in self._wrapped(parts.warning, "! ", "  ")],
            list(self._findings(parts.findings)),
            list(self._bar(parts.bar_title, parts.bar)),
            self._table(parts.columns, parts.rows, parts.is_wrapped),
            list(self._labelled(parts.lines)),
            [line for text in parts.notices for line in self._wrapped(text, "- ", "  ")],
        ]
        return "\n\n".join("\n".join(block) for block in blocks if block)

    def _paint(self, text: str, style: str) -> str:
        if not self._color or not style:
            return text
        return Style.parse(style).render(text, color_system=ColorSystem.STANDARD)

    def _wrapped(self, text: str, first: str, others: str) -> list[str]:
        return _lines(text, self._width, first, others)

    def _findings(self, findings: Sequence[FindingText]) -> Iterator[str]:
        for finding in findings:
            for line in self._wrapped(finding.title, "! ", "  "):
                yield self._paint(line, _STYLES.get(finding.severity, ""))
            yield from self._wrapped(finding.text, "  ", "  ")

    def _bar(self, title: str, shares: Sequence[tuple[str, float]]) -> Iterator[str]:
        """A title, the bar, and which glyph is which share."""
        if not shares:
            return
        width = self._width - 2
        drawn = list(zip(_GLYPHS, shares, strict=False))
        free, bar = width, ""
        for glyph, (name, share) in drawn:
            piece = glyph * min(round(share * width), free)
            free -= len(piece)
            bar += self._paint(piece, _style_of_part(name))
        yield title
        yield f"  {bar}{_OTHERS * free}"
        legend = [f"{glyph} {name} {percent(share)}" for glyph, (name, share) in drawn]
        legend += [f"{_OTHERS} {name} {percent(share)}" for name, share in shares[len(drawn) :]]
        # A share stays with its name where a line breaks.
        text = "  ".join(item.replace(" ", "\N{NO-BREAK SPACE}") for item in legend)
        for line in _lines(text, width):
            yield "  " + line.replace("\N{NO-BREAK SPACE}", " ")

    def _labelled(self, lines: Sequence[tuple[str, str]]) -> Iterator[str]:
        width = max((len(label) for label, _ in lines), default=0) + 2
        for label, text in lines:
            first, *others = self._wrapped(text, label.ljust(width), " " * width)
            yield self._paint(first[:width], "bold") + first[width:]
            yield from others

    def _table(
        self, columns: Sequence[str], rows: Sequence[tuple[str, ...]], is_wrapped: bool
    ) -> list[str]:
        if not rows:
            return []
        stream = io.StringIO()
        console = Console(
            file=stream, width=self._width, color_system=None, highlight=False, force_jupyter=False
        )
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        for position, name in enumerate(columns):
            if position == 0:
                overflow: OverflowMethod = "fold" if is_wrapped else "ellipsis"
                table.add_column(
                    name, no_wrap=not is_wrapped, overflow=overflow, justify="left", ratio=1
                )
            else:
                table.add_column(name, no_wrap=True, overflow="ellipsis", justify="right")
        for row in rows[:-1]:
            table.add_row(*map(Text, row))
        table.add_section()
        table.add_row(*map(Text, rows[-1]))
        console.print(table)
        return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def _style_of_part(name: str) -> str:
    return _BAR_STYLES.get(name, _WAITING)


def unbroken(text: str) -> str:
    """A text of which no line ends between a number and its unit."""
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


_NEW_LINE = "\n"

Record = Mapping[str, Any]
"""A row of a table, by column."""


class Summary(str):
    """Text that shows itself as it is, and as a table in a notebook."""

    _html: str
    _parts: SummaryParts | None

    def __new__(cls, text: str, as_html: str, parts: SummaryParts | None = None) -> Summary:
        """Make one of its two forms, and of what it was made."""
        self = super().__new__(cls, text)
        self._html = as_html
        self._parts = parts
        return self

    def for_terminal(self, width: int = WIDTH, color: bool = False) -> str:
        """The text for a terminal of so many columns, in colour or not."""
        return self[:] if self._parts is None else text_of(self._parts, width, color)

    def __repr__(self) -> str:
        return self[:]

    def _repr_html_(self) -> str:
        return self._html


def make_summary(parts: SummaryParts) -> Summary:
    """The summary in both of its forms."""
    return Summary(text_of(parts), _as_html(parts), parts)


def table_summary(
    headline: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notices: Sequence[str]
) -> Summary:
    """A headline, a table whose first column is text and last row a total, and notices."""
    return make_summary(SummaryParts(headline, columns, rows, notices=notices))


def _as_html(parts: SummaryParts) -> str:
    findings = [f"{finding.title}. {finding.text}" for finding in parts.findings]
    shares = ", ".join(f"{name} {percent(share)}" for name, share in parts.bar)
    lines = [(parts.bar_title, shares)] if parts.bar else []
    lines += parts.lines
    return "".join(
        (
            f"<p>{html.escape(parts.headline).replace(_NEW_LINE, '<br>')}</p>",
            f"<p><strong>{html.escape(parts.warning)}</strong></p>" if parts.warning else "",
            _html_list(findings),
            _html_table(parts.columns, parts.rows),
            _html_list([f"{label}: {text}" for label, text in lines]),
            _html_list(parts.notices),
        )
    )


def _html_list(texts: Sequence[str]) -> str:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in texts)
    return f"<ul>{items}</ul>" if items else ""


def _html_table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if n else "left"}">{html.escape(text)}</{tag}>'
            for n, text in enumerate(texts)
        )

    if not rows:
        return ""
    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    # A heading without a text would be read as one.
    headings = re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", cells("th", columns))
    return f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table>"
