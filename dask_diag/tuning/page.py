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

_WIDTH, _ROW, _NAMES, _RIGHT = 900, 26, 260, 60


def tune_page(rows: Sequence[Row], summary: Summary, title: str) -> str:
    """A page that needs no network."""
    body = f"{summary._repr_html_()}<h2>Runs</h2>{_chart(rows)}"
    return summary_page(Summary(summary, body), title, "Settings tried")


def _chart(tried: Sequence[Row]) -> str:
    """A row for each setting, from zero seconds on, a dot per run and a line at the median."""
    rows = [row for row in tried if row.walls]
    if not rows:
        return "<p>No run was measured.</p>"
    longest = max(max(row.walls) for row in rows)
    height = _ROW * len(rows) + 24
    scale = (_WIDTH - _NAMES - _RIGHT) / longest
    marks = [
        mark
        for number, row in enumerate(rows)
        for mark in _marks(row.setting.name, row.walls, row.median, number, scale)
    ]
    end = _NAMES + longest * scale
    axis = (
        f'<text x="{_NAMES}" y="{height - 4}">0 s</text>'
        f'<text x="{end:.0f}" y="{height - 4}" text-anchor="end">{seconds(longest)}</text>'
    )
    return (
        f'<div><svg viewBox="0 0 {_WIDTH} {height}" width="{_WIDTH}" role="img" '
        'aria-label="Wall time of each run" fill="currentColor" font-size="13">'
        f"{''.join(marks)}{axis}</svg></div>"
    )


def _marks(
    name: str, walls: list[float], median: float, number: int, scale: float
) -> Iterator[str]:
    middle = _ROW * number + _ROW // 2
    yield f'<text x="0" y="{middle + 4}">{html.escape(shown(name, 36))}</text>'
    x = _NAMES + median * scale
    yield (
        f'<line x1="{_NAMES}" x2="{x:.1f}" y1="{middle}" y2="{middle}" stroke="#1567b1" '
        'stroke-width="8" stroke-opacity="0.35"/>'
    )
    for wall in walls:
        x = _NAMES + wall * scale
        yield (
            f'<circle cx="{x:.1f}" cy="{middle}" r="4" fill="#1567b1">'
            f"<title>{seconds(wall)}</title></circle>"
        )
