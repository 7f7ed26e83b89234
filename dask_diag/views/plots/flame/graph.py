"""The flame graph: roots at the top, then functions of tasks, and calls, as wide as their time.

``flame.js`` draws it and answers the reader's clicks; this file gives it the data and the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import sqrt
from typing import TypedDict, cast

import numpy as np
from bokeh.events import DoubleTap, SelectionGeometry, Tap
from bokeh.layouts import column, row
from bokeh.models import (
    BoxAnnotation,
    BoxSelectTool,
    Button,
    ColumnDataSource,
    CustomJS,
    Div,
    LayoutDOM,
    LegendItem,
    RadioButtonGroup,
    Range1d,
    Select,
    TextInput,
    UIElement,
    WheelPanTool,
)
from bokeh.plotting import figure

from dask_diag.analysis.call_tree import are_functions, tree_and_nodes
from dask_diag.formatting import percent
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.assets import call
from dask_diag.views.plots.figures import Options, add_legend, label, new_figure, set_hover
from dask_diag.views.plots.flame.data import cells_of, columns_of, is_missing, spans_of, texts_of
from dask_diag.views.text import counted

__all__ = [
    "controls_of",
    "flame_panel",
    "graph_of",
    "listen",
    "plot_flame",
    "row_of_controls",
]

_ROW = 19
"""Pixels that a call is high."""
_FEWEST_ROWS, _MOST_ROWS = 9, 30
_WORTH_A_ROW = 2e-3
"""Of all seconds, what a call must have for the figure to be as high as it is deep."""
_MODES = ["Wall time", "CPU", "Waiting"]
_WORDS = ["", " of CPU", " of waiting"]
"""How the page calls the seconds of each mode."""
_TIMELINE = {
    "CPU": ("cpu", "cpu", "#4a78a8"),
    "waiting": ("waiting", "waiting", "#b9cee4"),
    "not known": ("unknown", "either", "#e3e3e3"),
}
"""Of each kind of time its column, the column that its bars reach to, and its colour."""
_FEW_SAMPLES = 100


class Controls(TypedDict):
    """The widgets, by the names that the script has for them."""

    choice: Select
    mode: RadioButtonGroup
    search: TextInput
    up: Button
    reset: Button
    status: Div


def flame_panel(recording: Recording, options: Options, origin: float | None = None) -> LayoutDOM:
    """A flame graph with a timeline below, and widgets to choose and search.

    Parameters
    ----------
    recording : Recording
    options : Options
    origin : float, optional
        What the timeline counts from, in the recording's seconds; by default its start.

    Returns
    -------
    bokeh layout
    """
    begin = recording.start if origin is None else origin
    nodes, node_of_sample = tree_and_nodes(recording)
    graph, drawn, words = graph_of(nodes, options)
    timeline, spans, bars, box = _timeline(recording, nodes, begin, graph.width)
    controls = controls_of(nodes, options, _MODES)
    (starts, stops), cells = cells_of(recording, node_of_sample)
    models: dict[str, object] = {
        "nodes": ColumnDataSource(columns_of(nodes)),
        "cycles": ColumnDataSource({"start": starts - begin, "stop": stops - begin}),
        "cells": ColumnDataSource(cells),
        "texts": texts_of(nodes, options),
        "missing": np.flatnonzero(is_missing(nodes)).tolist(),
        "graph": graph,
        "drawn": drawn,
        "words": words,
        "timeline": timeline,
        "spans": spans,
        "bars": bars,
        "box": box,
        "measured": _WORDS,
        **controls,
    }
    listen(models, graph, timeline, controls)
    top = row_of_controls(controls)
    warning = _warning(float(nodes["total_count"][0]))
    parts = [top, *warning, controls["status"], graph, timeline]
    return column(*parts, spacing=2)


def row_of_controls(controls: Controls) -> LayoutDOM:
    """All widgets but the line of text, beside each other."""
    widgets = [widget for name, widget in controls.items() if name != "status"]
    return row(*cast("list[UIElement]", widgets), spacing=8)


def _warning(samples: float) -> list[Div]:
    """What to know of a graph of few samples: a share has a standard error of at most this."""
    if not 0 < samples < _FEW_SAMPLES:
        return []
    error = percent(0.5 / sqrt(samples))
    text = f"Only {counted(round(samples), 'sample')}: shares are uncertain by up to ±{error}."
    style = {"font-size": "14px", "font-weight": "bold", "border-left": "5px solid #b8860b"}
    return [Div(text=text, disable_math=True, styles={**style, "padding": "2px 8px"})]


def plot_flame(recording: Recording, origin: float, duration: float, options: Options) -> LayoutDOM:
    """The flame graph as one of the plots of a page, which all count time from `origin`."""
    return flame_panel(recording, options, origin)


def graph_of(nodes: Table, options: Options) -> tuple[figure, ColumnDataSource, ColumnDataSource]:
    """The figure in which the script draws, and the sources of its rectangles and words."""
    deep = _rows_worth_showing(nodes)
    rows = int(np.clip(deep + 1, _FEWEST_ROWS, _MOST_ROWS))
    deepest = int(nodes["depth"].max()) + 1
    plot = new_figure(
        options,
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
    drawn, words = (
        _empty("left right top bottom fill alpha name location own total"),
        _empty("x y text color alpha"),
    )
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
    tooltip = [("call", "@name"), ("where", "@location"), ("total", "@total"), ("self", "@own")]
    set_hover(plot, [rectangles], tooltip, point_policy="follow_mouse", visible=False)
    return plot, drawn, words


def _empty(names: str) -> ColumnDataSource:
    return ColumnDataSource({name: [] for name in names.split()})


def _rows_worth_showing(nodes: Table) -> int:
    """How deep the calls go that are wide enough to be read."""
    wide = nodes["total_wall"] >= _WORTH_A_ROW * nodes["total_wall"][0]
    return int(nodes["depth"][wide].max(initial=0)) + 1


def _timeline(
    recording: Recording, nodes: Table, begin: float, width: int
) -> tuple[figure, ColumnDataSource, ColumnDataSource, BoxAnnotation]:
    """The figure of seconds over time, its numbers by function, and the range that is chosen."""
    plot = figure(
        width=width,
        height=120,
        x_range=Range1d(min(0.0, recording.start - begin), recording.stop - begin or 1.0),
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
    bars = _empty("left right cpu waiting either")
    data = spans_of(recording, nodes, begin)
    below: str | float = 0
    items = []
    for name, (kind, top, color) in _TIMELINE.items():
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
        if data[kind].any():
            items.append(LegendItem(label=name, renderers=[quads]))
    add_legend(plot, items)
    box = BoxAnnotation(
        fill_color="#f0a020",
        fill_alpha=0.3,
        line_color="#b06c00",
        level="underlay",
        visible=False,
    )
    plot.add_layout(box)
    return plot, ColumnDataSource(data), bars, box


def controls_of(nodes: Table, options: Options, modes: Sequence[str]) -> Controls:
    """Widgets to choose a root or a function and a unit, to search, and to go up."""
    is_choice = (nodes["depth"] == 1) | are_functions(nodes)
    names = [
        (str(n), label(nodes["name"][n], options.label_size))
        for n in np.flatnonzero(is_choice).tolist()
    ]
    return {
        "choice": Select(value="0", options=[("0", "all"), *names], width=240),
        "mode": RadioButtonGroup(labels=list(modes), active=0, width=240),
        "search": TextInput(placeholder="search functions and files", width=260),
        "up": Button(label="Up", width=70),
        "reset": Button(label="Reset", width=70),
        "status": Div(text="", disable_math=True, height=20, styles={"font-size": "12px"}),
    }


def listen(
    models: Mapping[str, object], graph: figure, timeline: figure, controls: Controls
) -> None:
    """Call the script for each event with the name of what to do."""
    names = ", ".join(models)
    # The numbers are in the page once: events go through one callback that has them.
    flame = CustomJS(
        args=models,
        code=call("plots/flame/flame.js", "act", f"{{{names}}}, cb_obj, cb_data.action"),
    )

    def does(action: str) -> CustomJS:
        code = f"return flame.execute(cb_obj, {{action: '{action}'}})"
        return CustomJS(args={"flame": flame}, code=code)

    graph.js_on_change("inner_width", does("resize"))
    for range_, end in ((graph.x_range, "start"), (graph.x_range, "end")):
        range_.js_on_change(end, does("move"))
    timeline.js_on_event(SelectionGeometry, does("choose_range"))
    # The second of two quick clicks is a double one, wherever it is.
    for click in (Tap, DoubleTap):
        graph.js_on_event(click, does("zoom"))
        timeline.js_on_event(click, does("forget_range"))
    controls["choice"].js_on_change("value", does("choose"))
    controls["mode"].js_on_change("active", does("switch_mode"))
    controls["search"].js_on_change("value_input", does("find"))
    controls["up"].js_on_click(does("go_up"))
    controls["reset"].js_on_click(does("reset"))
