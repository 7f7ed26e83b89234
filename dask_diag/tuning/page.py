"""The page of a tuned program: the table, and every run of every setting as a dot."""

from __future__ import annotations

import html
from collections.abc import Iterator, Sequence

from dask_diag.formatting import seconds
from dask_diag.tuning.rows import Row
from dask_diag.views.escaping import shown
from dask_diag.views.summary_page import summary_page
from dask_diag.views.text import Summary

__all__ = ["tune_page"]

_ROW, _BAR, _END = 44, 28, 97.0
"""Pixels: from row to row, and from a row's top to its bar. Percent: where the longest run ends."""


def tune_page(rows: Sequence[Row], summary: Summary, title: str) -> str:
    """A page that needs no network."""
    body = f"{summary._repr_html_()}<h2>Runs</h2>{_chart(rows)}"
    return summary_page(Summary(summary, body), title, "Settings tried")


def _chart(tried: Sequence[Row]) -> str:
    """A row for each setting, from zero seconds on, a dot per run and a line up to the median.

    Lengths are shares of the window: a picture of a fixed width is cut off on a phone.
    """
    rows = [row for row in tried if row.walls]
    if not rows:
        return "<p>No run was measured.</p>"
    longest = max(max(row.walls) for row in rows)
    height = _ROW * len(rows) + 24
    marks = [mark for number, row in enumerate(rows) for mark in _marks(row, number, longest)]
    axis = (
        f'<text x="0" y="{height - 4}">0 s</text>'
        f'<text x="{_END}%" y="{height - 4}" text-anchor="end">{seconds(longest)}</text>'
    )
    return (
        f'<div><svg width="100%" height="{height}" role="img" '
        'aria-label="Wall time of each run" fill="currentColor" font-size="13">'
        f"{''.join(marks)}{axis}</svg></div>"
    )


def _marks(row: Row, number: int, longest: float) -> Iterator[str]:
    top, bar = _ROW * number, _ROW * number + _BAR
    name = html.escape(shown(row.setting.name, 36))
    yield f'<text x="0" y="{top + 16}">{name}: median {seconds(row.median)}</text>'
    yield (
        f'<line x1="0" x2="{_END * row.median / longest:.2f}%" y1="{bar}" y2="{bar}" '
        'stroke="#1567b1" stroke-width="8" stroke-opacity="0.35"/>'
    )
    for wall in row.walls:
        yield (
            f'<circle cx="{_END * wall / longest:.2f}%" cy="{bar}" r="4" fill="#1567b1">'
            f"<title>{seconds(wall)}</title></circle>"
        )
