"""A page of a summary: a heading, and a table with verdicts."""

from __future__ import annotations

from dask_diag.views.assets import text_of
from dask_diag.views.text import Summary
from dask_diag.views.theme.page import page_without_figures

__all__ = ["summary_page"]

_VERDICTS = ("slower", "faster")


def summary_page(summary: Summary, title: str, heading: str = "Comparison") -> str:
    """A page with a table of verdicts, which needs no network."""
    body = summary._repr_html_()
    # Only the table may be wider than a small screen; the keyboard scrolls what has the focus.
    scroller = '<div role="region" aria-label="Functions" tabindex="0"><table>'
    body = (
        body.replace("→", "→<wbr>")
        .replace("<table>", scroller)
        .replace("</table>", "</table></div>")
    )
    for verdict in _VERDICTS:
        body = _marked(body, verdict)
    return page_without_figures(
        "theme/summary.html",
        title,
        heading=heading,
        summary=body,
        style=text_of("theme/head.css") + text_of("theme/summary.css"),
    )


def _marked(body: str, verdict: str) -> str:
    """Mark the rows that end with a verdict, so that the page's style can colour them."""
    rows = body.split("<tr>")
    ends = f">{verdict}</td></tr>"
    return rows[0] + "".join(
        (f'<tr class="{verdict}">' if ends in row else "<tr>") + row for row in rows[1:]
    )
