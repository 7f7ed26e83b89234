"""The figure in which the script of a flame graph draws."""

from __future__ import annotations

import numpy as np
from bokeh.models import BoxAnnotation, Range1d, WheelPanTool
from bokeh.plotting import figure

from dask_diag.model.table import Table
from dask_diag.views.plots.figures import Options, new_figure, set_hover
from dask_diag.views.plots.flame.timeline import empty_source

__all__ = ["calls_figure"]

_ROW = 19
"""Pixels that a call is high."""
_FEWEST_ROWS, _MOST_ROWS = 9, 30
_WORTH_A_ROW = 2e-3
"""Of all seconds, what a call must have for the figure to be as high as it is deep."""
_CURSOR = "#d6007a"
_TOOLTIP = [
    ("call", "@name"),
    ("where", "@location"),
    ("total", "@total"),
    ("self", "@own"),
    ("line", "@line"),
]


def calls_figure(nodes: Table, options: Options) -> tuple[figure, dict[str, object]]:
    """The figure, and by the script's names what it draws with.

    Parameters
    ----------
    nodes : Table
        A tree with ``total_wall``, by which the figure is as high as it needs to be.
    options : Options
    """
    plot = _empty_figure(nodes, options)
    drawn = empty_source("left right top bottom fill alpha name location line own total")
    words = empty_source("x y text color alpha")
    rectangles = plot.quad(
        left="left",
        right="right",
        top="top",
        bottom="bottom",
        fill_color="fill",
        fill_alpha="alpha",
        line_color="white",
        line_width=0.5,
        hover_line_color="black",
        hover_fill_color="fill",
        hover_fill_alpha="alpha",
        source=drawn,
    )
    plot.text(
        x="x",
        y="y",
        text="text",
        text_color="color",
        text_alpha="alpha",
        text_font_size="11px",
        text_baseline="middle",
        x_offset=4,
        source=words,
    )
    set_hover(plot, [rectangles], _TOOLTIP, point_policy="follow_mouse", visible=False)
    cursor = BoxAnnotation(
        fill_color=None, line_color=_CURSOR, line_width=3, level="overlay", visible=False
    )
    plot.add_layout(cursor)
    return plot, {"drawn": drawn, "words": words, "cursor": cursor}


def _empty_figure(nodes: Table, options: Options) -> figure:
    rows = int(np.clip(_rows_worth_showing(nodes) + 1, _FEWEST_ROWS, _MOST_ROWS))
    deepest = int(nodes["depth"].max()) + 1
    # Its horizontal axis has seconds of calls, and never the page's time.
    of_time_axis = {"x_range", "min_border_left", "min_border_right"}
    own = Options(
        **{key: value for key, value in options.figure.items() if key not in of_time_axis}
    )
    plot = new_figure(
        own,
        1.0,
        title=None,
        toolbar_location="right",
        frame_align=False,
        x_range=Range1d(0, 1),
        tools="hover,pan,xwheel_zoom,save",
        height=rows * _ROW,
        y_range=Range1d(rows, 0, bounds=(0, max(rows, deepest + 1))),
    )
    wheel = WheelPanTool(dimension="height")
    plot.add_tools(wheel)
    if deepest > rows:
        plot.toolbar.active_scroll = wheel
    plot.axis.visible = False
    plot.grid.visible = False
    plot.min_border = 0
    return plot


def _rows_worth_showing(nodes: Table) -> int:
    """How deep the calls go that are wide enough to be read."""
    wide = nodes["total_wall"] >= _WORTH_A_ROW * nodes["total_wall"][0]
    return int(nodes["depth"][wide].max(initial=0)) + 1
