"""What summaries have in common: text for a terminal at 80 columns, a table for a notebook."""

from __future__ import annotations

import html
import io
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dask_diag.formatting import count, percent

__all__ = ["Record", "Summary", "SummaryParts", "counted", "make_summary", "table_summary"]

Record = Mapping[str, Any]
"""A row of a table, by column."""

_WIDTH = 80
_BAR_WIDTH = _WIDTH - 2
_GLYPHS = "█▓▒░▚▞"
"""Of the largest shares of a bar, in order; what is left of them is drawn as dots."""
_OTHERS = "·"


class Summary(str):
    """Text that shows itself as it is, and as a table in a notebook."""

    _html: str

    def __new__(cls, text: str, as_html: str) -> Summary:
        """Make one of its two forms."""
        self = super().__new__(cls, text)
        self._html = as_html
        return self

    def __repr__(self) -> str:
        return self[:]

    def _repr_html_(self) -> str:
        return self._html


@dataclass(frozen=True)
class SummaryParts:
    """What a summary shows, from top to bottom.

    Attributes
    ----------
    headline : str
        A sentence per line.
    warning : str
        What to know before any number is read.
    findings : sequence of (str, str)
        The first line of each, and its text.
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
    """

    headline: str
    columns: Sequence[str]
    rows: Sequence[tuple[str, ...]]
    warning: str = ""
    findings: Sequence[tuple[str, str]] = ()
    bar_title: str = ""
    bar: Sequence[tuple[str, float]] = ()
    lines: Sequence[tuple[str, str]] = ()
    notices: Sequence[str] = ()


def make_summary(parts: SummaryParts) -> Summary:
    """The summary in both of its forms."""
    return Summary(_as_text(parts), _as_html(parts))


def table_summary(
    headline: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notices: Sequence[str]
) -> Summary:
    """A headline, a table whose first column is text and last row a total, and notices."""
    return make_summary(SummaryParts(headline, columns, rows, notices=notices))


def counted(number: int, singular: str, plural: str = "") -> str:
    """A number with what it counts: ``1 task``, ``2 tasks``."""
    return f"{count(number)} {singular if number == 1 else plural or singular + 's'}"


def _as_text(parts: SummaryParts) -> str:
    blocks = [
        [line for text in parts.headline.split("\n") for line in textwrap.wrap(text, _WIDTH)],
        _wrapped(parts.warning, "! ", "  "),
        list(_findings(parts.findings)),
        list(_bar(parts.bar_title, parts.bar)),
        _table(parts.columns, parts.rows),
        list(_labelled(parts.lines)),
        [line for text in parts.notices for line in _wrapped(text, "- ", "  ")],
    ]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _wrapped(text: str, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text, _WIDTH, initial_indent=first, subsequent_indent=others, break_on_hyphens=False
    )


def _findings(findings: Sequence[tuple[str, str]]) -> Iterator[str]:
    for title, text in findings:
        yield from _wrapped(title, "! ", "  ")
        yield from _wrapped(text, "  ", "  ")


def _bar(title: str, shares: Sequence[tuple[str, float]]) -> Iterator[str]:
    """A title, the bar, and which glyph is which share."""
    if not shares:
        return
    drawn = list(zip(_GLYPHS, shares, strict=False))
    bar = "".join(glyph * round(share * _BAR_WIDTH) for glyph, (_, share) in drawn)
    yield title
    yield "  " + bar[:_BAR_WIDTH].ljust(_BAR_WIDTH, _OTHERS)
    legend = [f"{glyph} {name} {percent(share)}" for glyph, (name, share) in drawn]
    legend += [f"{_OTHERS} {name} {percent(share)}" for name, share in shares[len(drawn) :]]
    # A share stays with its name where a line breaks.
    text = "  ".join(item.replace(" ", "\N{NO-BREAK SPACE}") for item in legend)
    for line in textwrap.wrap(text, _BAR_WIDTH, break_on_hyphens=False):
        yield "  " + line.replace("\N{NO-BREAK SPACE}", " ")


def _labelled(lines: Sequence[tuple[str, str]]) -> Iterator[str]:
    width = max((len(label) for label, _ in lines), default=0) + 2
    for label, text in lines:
        yield from _wrapped(text, label.ljust(width), " " * width)


def _table(columns: Sequence[str], rows: Sequence[tuple[str, ...]]) -> list[str]:
    if not rows:
        return []
    stream = io.StringIO()
    console = Console(
        file=stream, width=_WIDTH, color_system=None, highlight=False, force_jupyter=False
    )
    table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
    for position, name in enumerate(columns):
        if position == 0:
            table.add_column(name, no_wrap=True, overflow="ellipsis", justify="left", ratio=1)
        else:
            table.add_column(name, no_wrap=True, overflow="ellipsis", justify="right")
    for row in rows[:-1]:
        table.add_row(*map(Text, row))
    table.add_section()
    table.add_row(*map(Text, rows[-1]))
    console.print(table)
    return [line.rstrip() for line in stream.getvalue().splitlines() if line.strip()]


def _as_html(parts: SummaryParts) -> str:
    findings = [f"{title}. {text}" for title, text in parts.findings]
    shares = ", ".join(f"{name} {percent(share)}" for name, share in parts.bar)
    lines = [(parts.bar_title, shares)] if parts.bar else []
    lines += parts.lines
    return "".join(
        (
            f"<p>{html.escape(parts.headline)}</p>",
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
    return f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
