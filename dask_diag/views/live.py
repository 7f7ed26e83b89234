"""The page of a live view: empty figures, which a script fills with the server's answers."""

from __future__ import annotations

import json
from functools import cache

from bokeh.models import (
    BoxZoomTool,
    CrosshairTool,
    FixedTicker,
    HoverTool,
    PanTool,
    Range1d,
    RangeTool,
    ResetTool,
    Span,
    Stack,
    Tool,
    WheelZoomTool,
)
from bokeh.plotting import figure
from bokeh.resources import Resources
from bokeh.transform import dodge

from dask_diag.views.assets import call, text_of
from dask_diag.views.colors import CPU, LIMIT, MEMORY, OTHER_PROCESSES, RUNNING, STRIPED
from dask_diag.views.escaping import shown
from dask_diag.views.page import html_of
from dask_diag.views.plots.figures import empty_source, number_ticks, quads
from dask_diag.views.plots.layers import STRIPES
from dask_diag.views.plots.tasks import FULL, LANE

_WIDTH, _BORDER = 1200, 104
_SIGNS = (CPU, OTHER_PROCESSES._replace(hatch="dashed"), LIMIT, MEMORY, RUNNING)
"""Looks of lines and stripes."""
_LOOKS: dict[str, object] = {
    "lane_height": LANE,
    "full": FULL,
    "off_cpu_color": STRIPED.color,
    "off_cpu": (STRIPED.name, STRIPED.color, STRIPED.style),
    "free": {"start": 0, "length": 1, "units": 1, "colors": [], "hatches": [], "shares": []},
}
"""Looks of tasks for ``tasks.js``; nothing is drawn where no task ran."""


@cache
def live_page(name: str) -> str:
    """The page about a file of this name, without anything of a recording."""
    # The server sends a policy of its own.
    return html_of(
        "live/live.html",
        f"{shown(name)}: live",
        _figures(),
        Resources(mode="inline"),
        policy="",
        style=text_of("live/live.css"),
        name=shown(name),
        signs=_SIGNS,
        start=call("live/live.js", "start", json.dumps(_LOOKS)),
    )


def _figures() -> list[figure]:
    """Figures of tasks, CPU, memory, and all time in a strip, with one range of time."""
    view = Range1d(0, 60, name="live_view", min_interval=1e-6, bounds=(0, None))
    shared = CrosshairTool(overlay=Span(dimension="height", line_color="#8a8f96", line_alpha=0.6))
    figures = [
        _overview(view),
        *(make(view, [shared]) for make in (_stream, _cpu, _memory)),
    ]
    for plot in figures:
        for renderer in plot.renderers:
            # Nothing is selected or muted here. Bokeh would work out how each glyph looked then at
            # each change of its data, which takes longer than the glyph itself.
            renderer.selection_glyph = renderer.nonselection_glyph = renderer.muted_glyph = None
    return figures


def _figure(name: str, view: Range1d, tools: list[Tool], **settings: object) -> figure:
    """An empty figure; with tools, the part of time in view can be moved in it."""
    if tools:
        tools = [
            PanTool(dimensions="width"),
            BoxZoomTool(dimensions="width"),
            WheelZoomTool(dimensions="width", modifiers="ctrl"),
            ResetTool(),
            *tools,
        ]
    plot = figure(
        name=name,
        width=_WIDTH,
        x_range=view,
        tools=tools,
        toolbar_location=None,
        min_border_left=_BORDER,
        min_border_right=12,
        **settings,
    )
    plot.outline_line_color = None
    plot.axis.minor_tick_line_color = None
    plot.xaxis.formatter = number_ticks("s")
    plot.xgrid.grid_line_alpha = 0.4
    plot.ygrid.grid_line_alpha = 0.4
    return plot


def _stream(view: Range1d, tools: list[Tool]) -> figure:
    plot = _figure("live_stream", view, tools, height=160, y_range=Range1d(2 * LANE, 0))
    images = empty_source("image x y width", "live_images")
    plot.image_rgba("image", "x", "y", "width", FULL, source=images)
    columns = "left right top off_cpu color name lasted share"
    bottom = dodge("top", FULL)
    tasks, running = (empty_source(columns, name) for name in ("live_tasks", "live_running"))
    drawn = quads(plot, tasks, bottom, "top", fill_color="color", line_color=None)
    stripes = empty_source("left right top off_cpu", "live_stripes")
    quads(plot, stripes, {"expr": Stack(fields=["top", "off_cpu"])}, "top", **STRIPES)
    look = {"fill_color": "color", "hatch_color": "color", "line_color": "color"}
    also_drawn = quads(plot, running, bottom, "top", fill_alpha=0.45, hatch_pattern="/", **look)
    tooltips = [("task", "@name"), ("took", "@lasted"), ("CPU", "@share")]
    plot.add_tools(HoverTool(renderers=[drawn, also_drawn], tooltips=tooltips))
    plot.yaxis.ticker = FixedTicker(ticks=[], name="live_lanes")
    plot.yaxis.axis_label = "Worker"
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.grid_line_color = None
    plot.xaxis.visible = False
    return plot


def _cpu(view: Range1d, tools: list[Tool]) -> figure:
    plot = _figure("live_cpu", view, tools, height=70, y_range=Range1d(0, 100))
    lines = empty_source("time cpu others memory", "live_lines")
    plot.step(
        "time",
        "others",
        source=lines,
        mode="before",
        color=OTHER_PROCESSES.color,
        line_dash="dashed",
    )
    plot.step("time", "cpu", source=lines, mode="before", color=CPU.color, line_width=2)
    plot.add_layout(_limit("live_cpu_limit"))
    plot.yaxis.axis_label = "CPU %"
    plot.yaxis.ticker.desired_num_ticks = 3
    plot.xaxis.visible = False
    return plot


def _memory(view: Range1d, tools: list[Tool]) -> figure:
    plot = _figure("live_memory", view, tools, height=86, y_range=Range1d(0, 1e9))
    lines = empty_source("time memory", "live_memory_lines")
    plot.line("time", "memory", source=lines, color=MEMORY.color, line_width=2)
    plot.add_layout(_limit("live_memory_limit"))
    plot.yaxis.axis_label = "Memory"
    plot.yaxis.formatter = number_ticks("B")
    plot.yaxis.ticker.desired_num_ticks = 3
    return plot


def _limit(name: str) -> Span:
    """A line at a limit of the machine."""
    return Span(
        location=0, dimension="width", line_color=LIMIT.color, line_dash="dashed", name=name
    )


def _overview(view: Range1d) -> figure:
    """CPU over all time, with a movable box around the time in view."""
    all_time = Range1d(0, 60, name="live_all")
    y_range = Range1d(0, 100, name="live_overview_height")
    plot = _figure("live_overview", all_time, [], height=46, y_range=y_range)
    lines = empty_source("time cpu", "live_overview_lines")
    plot.varea("time", y1=0, y2="cpu", source=lines, fill_color=CPU.color, fill_alpha=0.5)
    tool = RangeTool(x_range=view)
    tool.overlay.fill_alpha = 0.15
    plot.add_tools(tool)
    plot.yaxis.visible = False
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_color = None
    return plot
