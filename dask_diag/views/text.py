"""What summaries have in common: text for a terminal, a table for a notebook."""

from __future__ import annotations

import html
import re
from collections.abc import Mapping, Sequence
from typing import Any

from dask_diag.formatting import percent
from dask_diag.views.summary_text import WIDTH, SummaryParts, text_of

__all__ = ["Record", "Summary", "make_summary", "table_summary"]

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
