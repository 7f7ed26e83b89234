"""What marks a pinned task, the path that led to it, and the critical path, among the tasks."""

from __future__ import annotations

from bokeh.events import Tap
from bokeh.models import ColumnDataSource, CustomJS
from bokeh.plotting import figure

from dask_diag.views.assets import call
from dask_diag.views.plots.tasks.outlines import add_outlines

__all__ = ["CRITICAL_OUTLINES", "CRITICAL_PATH", "OUTLINES", "PATH", "RECTANGLES", "add_pins"]

RECTANGLES = "tasks in the page"
"""The name of the source of rectangles, by which scripts of a page ask for tasks."""
OUTLINES = "pinned tasks"
PATH = "path to the pinned task"
CRITICAL_OUTLINES = "tasks on the critical path"
CRITICAL_PATH = "critical path"


def add_pins(plot: figure, rectangles: ColumnDataSource) -> None:
    """Give the page outlines of tasks and paths to fill, and have it asked when it is clicked.

    Their colour is that of the page's text, light or dark.
    """
    rectangles.name = RECTANGLES
    for outlines, path in ((CRITICAL_OUTLINES, CRITICAL_PATH), (OUTLINES, PATH)):
        add_outlines(plot, line_color="black", line_width=2).name = outlines
        lines = ColumnDataSource({name: [] for name in ("x0", "y0", "x1", "y1")}, name=path)
        plot.segment(
            x0="x0", y0="y0", x1="x1", y1="y1", line_color="black", line_width=1.5, source=lines
        )
    code = call("plots/tasks/tap.js", "tapped", "rectangles, cb_obj")
    plot.js_on_event(Tap, CustomJS(args={"rectangles": rectangles}, code=code))
