"""Outlines of tasks that the page chooses, above their rectangles."""

from __future__ import annotations

from bokeh.models import ColumnDataSource
from bokeh.plotting import figure
from bokeh.transform import dodge

from dask_diag.views.plots.tasks.columns import FULL

__all__ = ["add_outlines"]


def add_outlines(plot: figure, **style: str | float) -> ColumnDataSource:
    """Outline in this style the tasks that the page puts into a source, which is returned empty."""
    source = ColumnDataSource({name: [] for name in ("left", "right", "top")})
    plot.quad(
        left="left",
        right="right",
        top="top",
        bottom=dodge("top", FULL),
        fill_color=None,
        source=source,
        **style,
    )
    return source
