"""The timeline below a flame graph: how many threads computed and waited, over time."""

from __future__ import annotations

from bokeh.models import BoxSelectTool, ColumnDataSource, LegendItem, Range1d
from bokeh.plotting import figure

from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.plots.figures import Options, add_legend, time_range
from dask_diag.views.plots.flame.data import spans_of

__all__ = ["TIMELINE", "empty_source", "timeline_of"]

TIMELINE = "flame-timeline"
"""The name of the figure: pages give it the time axis of their other plots."""
_HEIGHT = 120
_KINDS = {
    "CPU": ("cpu", "cpu", "#4a78a8"),
    "waiting": ("waiting", "waiting", "#b9cee4"),
    "not known": ("unknown", "either", "#e3e3e3"),
}
"""Of each kind of time its column, the column that its bars reach to, and its colour."""


def timeline_of(
    recording: Recording, nodes: Table, begin: float, options: Options
) -> tuple[figure, ColumnDataSource, ColumnDataSource]:
    """The figure of threads over time, its numbers by function, and its bars.

    What it shows of the time is what the flame graph counts.
    """
    duration = recording.stop - begin or 1.0
    settings = {
        name: value
        for name, value in options.figure.items()
        if name in ("width", "sizing_mode", "x_range", "min_border_left", "min_border_right")
    }
    plot = figure(
        name=TIMELINE,
        **{"width": 1000, "x_range": time_range(duration), **settings},
        height=_HEIGHT,
        y_range=Range1d(0, 1),
        tools="",
        toolbar_location=None,
        outline_line_color=None,
    )
    select = BoxSelectTool(dimensions="width")
    plot.add_tools(select)
    plot.toolbar.active_drag = select
    plot.xaxis.axis_label = "Time (s): drag to choose a range, click for all"
    plot.yaxis.axis_label = "Threads"
    plot.xgrid.visible = False
    plot.yaxis.ticker.desired_num_ticks = 3
    bars = empty_source("left right cpu waiting either")
    spans = spans_of(recording, nodes, begin)
    below: str | float = 0
    items = []
    for name, (kind, top, color) in _KINDS.items():
        quads = plot.quad(
            left="left",
            right="right",
            bottom=below,
            top=top,
            fill_color=color,
            line_color=None,
            source=bars,
        )
        quads.nonselection_glyph = None
        below = top
        if spans[kind].any():
            items.append(LegendItem(label=name, renderers=[quads]))
    add_legend(plot, items)
    return plot, ColumnDataSource(spans), bars


def empty_source(names: str) -> ColumnDataSource:
    """A source of these columns, which a script fills."""
    return ColumnDataSource({name: [] for name in names.split()})
