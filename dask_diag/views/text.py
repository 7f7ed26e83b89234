"""What summaries have in common: text for a terminal at 80 columns, a table for a notebook."""

from __future__ import annotations

import html
import io
from collections.abc import Sequence

from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dask_diag.formatting import count

__all__ = ["Summary", "counted", "table_summary"]

_WIDTH = 80


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


def table_summary(
    heading: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    notes: Sequence[str],
    found: Sequence[str] = (),
) -> Summary:
    """A heading, findings, a table whose first column is text and last row a total, and notes."""
    parts = heading, columns, rows, notes, found
    return Summary(_as_text(*parts), _as_html(*parts))


def counted(number: int, noun: str, plural: str = "") -> str:
    """A count with its noun, in the plural where it must be."""
    return f"{count(number)} {noun if number == 1 else plural or noun + 's'}"


def _as_text(
    heading: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    notes: Sequence[str],
    found: Sequence[str],
) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, width=_WIDTH, color_system=None, highlight=False, force_jupyter=False
    )
    console.print(Text(heading))
    if found:
        console.print(_listed("!", found))
    if rows:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        for position, name in enumerate(columns):
            ends = {"justify": "left", "ratio": 1} if position == 0 else {"justify": "right"}
            table.add_column(name, no_wrap=True, overflow="ellipsis", **ends)
        for row in rows[:-1]:
            table.add_row(*map(Text, row))
        table.add_section()
        table.add_row(*map(Text, rows[-1]))
        console.print(table)
    console.print(_listed("-", notes))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _listed(mark: str, texts: Sequence[str]) -> RichTable:
    listed = RichTable.grid(padding=(0, 1, 0, 0))
    for text in texts:
        listed.add_row(mark, Text(text))
    return listed


def _as_html(
    heading: str,
    columns: Sequence[str],
    rows: Sequence[tuple[str, ...]],
    notes: Sequence[str],
    found: Sequence[str],
) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if n else "left"}">{html.escape(text)}</{tag}>'
            for n, text in enumerate(texts)
        )

    table = ""
    if rows:
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        table = (
            f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
        )
    above, below = (
        "<ul>" + "".join(f"<li>{html.escape(text)}</li>" for text in texts) + "</ul>"
        if texts
        else ""
        for texts in (found, notes)
    )
    return f"<p>{html.escape(heading)}</p>{above}{table}{below}"
