"""The flame graph: roots at the top, then functions of tasks, and calls, as wide as their time.

``flame.js`` draws it and answers the reader's clicks; this file gives it the data and the figures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields
from math import sqrt

import numpy as np
from bokeh.events import DoubleTap, SelectionGeometry, Tap
from bokeh.layouts import column, row
from bokeh.models import (
    AutocompleteInput,
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
    Toggle,
    UIElement,
    WheelPanTool,
)
from bokeh.plotting import figure

from dask_diag.analysis.call_tree import are_functions, folded_tree, tree_and_nodes
from dask_diag.analysis.lines import lines_of_nodes
from dask_diag.formatting import counted, percent
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.assets import call
from dask_diag.views.plots.figures import (
    Options,
    add_legend,
    label,
    new_figure,
    set_hover,
    time_range,
)
from dask_diag.views.plots.flame_data import (
    about_short_calls,
    boxes_of,
    cells_of,
    code_of_lines,
    columns_of,
    is_missing,
    merge_short_calls,
    small,
    spans_of,
    texts_of,
)

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


ORDERS = {"function": "By function", "time": "Time order", "sandwich": "Sandwich"}
"""The views of a flame graph: their names in the script, and in the page."""
_SMALL = {"font-size": "12px"}


@dataclass(frozen=True)
class Controls:
    """The widgets, by the names that the script has for them."""

    order: RadioButtonGroup
    mode: RadioButtonGroup
    folding: Toggle
    choice: Select
    search: TextInput
    key: AutocompleteInput
    up: Button
    reset: Button
    callee: Select
    status: Div
    detail: Div

    def models(self) -> dict[str, object]:
        """The widgets by name."""
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def rows(self) -> list[LayoutDOM]:
        """What stands above the graph."""
        first: list[UIElement] = [self.order, self.mode, self.folding, self.up, self.reset]
        second: list[UIElement] = [self.choice, self.search, self.key]
        return [row(*first, spacing=8), row(*second, spacing=8), self.callee, self.status]


def controls_of(
    nodes: Table,
    options: Options,
    modes: Sequence[str],
    orders: Sequence[str] = tuple(ORDERS),
    keys: Sequence[str] = (),
) -> Controls:
    """Widgets to choose a view, a root or a function, a unit, and a task, and to search.

    Parameters
    ----------
    nodes : Table
    options : Options
    modes : sequence of str
        The units of width, as the page calls them.
    orders : sequence of str, optional
        Which of `ORDERS` there are.
    keys : sequence of str, optional
        Of the tasks that can be chosen.
    """
    is_choice = (nodes["depth"] == 1) | are_functions(nodes)
    names = [
        (str(n), label(nodes["name"][n], options.label_size))
        for n in np.flatnonzero(is_choice).tolist()
    ]
    return Controls(
        order=RadioButtonGroup(
            labels=[ORDERS[order] for order in orders],
            active=0,
            width=270,
            visible=len(orders) > 1,
        ),
        mode=RadioButtonGroup(labels=list(modes), active=0, width=230),
        folding=Toggle(label="Fold libraries", width=120),
        choice=Select(value="0", options=[("0", "all"), *names], width=260),
        search=TextInput(placeholder="search functions and files", width=260),
        key=AutocompleteInput(
            placeholder="key of a task",
            completions=list(keys),
            restrict=False,
            case_sensitive=False,
            search_strategy="includes",
            min_characters=1,
            max_completions=20,
            width=260,
            visible=bool(keys),
        ),
        up=Button(label="Up", width=70),
        reset=Button(label="Reset", width=70),
        callee=Select(value="", options=[("", "")], width=796, visible=False),
        status=Div(text="", disable_math=True, min_height=20, styles=_SMALL),
        detail=Div(text="", disable_math=True, min_height=36, styles=_SMALL),
    )


def panel_of(
    controls: Controls, graph: figure, *others: LayoutDOM, warnings: Sequence[Div] = ()
) -> LayoutDOM:
    """The widgets, the graph, its detail, and what is below them; warnings above all."""
    parts = [*warnings, *controls.rows(), graph, controls.detail, *others]
    settings = {"sizing_mode": graph.sizing_mode} if graph.sizing_mode else {}
    return column(*parts, spacing=2, **settings)


def listen(
    models: Mapping[str, object], graph: figure, timeline: figure, controls: Controls
) -> None:
    """Call the script for each event with the name of what to do."""
    args = {**models, **controls.models(), "graph": graph, "timeline": timeline}
    names = ", ".join(args)
    # The numbers are in the page once: events go through one callback that has them.
    flame = CustomJS(
        args=args,
        code=call("plots/flame/flame.js", "act", f"{{{names}}}, cb_obj, cb_data.action"),
    )

    def does(action: str) -> CustomJS:
        code = f"return flame.execute(cb_obj, {{action: '{action}'}})"
        return CustomJS(args={"flame": flame}, code=code)

    graph.js_on_change("inner_width", does("resize"))
    for end in ("start", "end"):
        graph.x_range.js_on_change(end, does("move"))
        graph.y_range.js_on_change(end, does("move"))
        timeline.x_range.js_on_change(end, does("move_in_time"))
    timeline.js_on_event(SelectionGeometry, does("choose_range"))
    # The second of two quick clicks is a double one, wherever it is.
    for click in (Tap, DoubleTap):
        graph.js_on_event(click, does("zoom"))
        timeline.js_on_event(click, does("forget_range"))
    for widget, prop, action in (
        (controls.order, "active", "switch_order"),
        (controls.mode, "active", "switch_mode"),
        (controls.folding, "active", "fold"),
        (controls.choice, "value", "choose"),
        (controls.callee, "value", "choose_function"),
        (controls.search, "value_input", "find"),
        (controls.key, "value_input", "choose_key"),
    ):
        widget.js_on_change(prop, does(action))
    controls.up.js_on_click(does("go_up"))
    controls.reset.js_on_click(does("reset"))


_MODES = ["Wall time", "CPU", "Waiting"]
_WORDS = ["", " of CPU", " of waiting"]
"""How the page calls the seconds of each mode."""
_FEW_SAMPLES = 100


def flame_panel(recording: Recording, options: Options, origin: float | None = None) -> LayoutDOM:
    """A flame graph with a timeline below, and widgets to choose a view, and to search.

    Parameters
    ----------
    recording : Recording
    options : Options
        With an ``x_range`` the timeline has it, and the graph counts what that shows.
    origin : float, optional
        What the timeline counts from, in the recording's seconds; by default its start.

    Returns
    -------
    bokeh layout
    """
    begin = recording.start if origin is None else origin
    nodes, node_of_sample = tree_and_nodes(recording)
    nodes, node_of_sample, merged = merge_short_calls(nodes, node_of_sample, is_missing(nodes))
    folded, folded_node = folded_tree(nodes)
    graph, drawing = calls_figure(nodes, options)
    timeline, spans, bars = timeline_of(recording, nodes, begin, options)
    (starts, stops), cells, keys = cells_of(recording, node_of_sample)
    lines = lines_of_nodes(recording, nodes)
    code, code_texts = code_of_lines(recording, nodes, lines)
    controls = controls_of(nodes, options, _MODES, keys=keys)
    models: dict[str, object] = {
        "nodes": ColumnDataSource(
            {
                **columns_of(nodes),
                "line": small(lines),
                "code": small(code),
                "folded": small(folded_node),
            }
        ),
        "boxes": ColumnDataSource(boxes_of(folded)),
        "cycles": ColumnDataSource({"start": starts - begin, "stop": stops - begin}),
        "cells": ColumnDataSource(cells),
        # The folded tree has all names of the other one, by the same codes, and more.
        "texts": {**texts_of(folded, options), "code": code_texts},
        "spans": spans,
        "bars": bars,
        "measured": _WORDS,
        "orders": list(ORDERS),
        "resolution": float(np.median(stops - starts)) if len(starts) else 0.0,
        **drawing,
    }
    listen(models, graph, timeline, controls)
    remark = [Div(text=about_short_calls(merged), disable_math=True)] if merged else []
    warnings = _warning(float(nodes["total_count"][0]))
    return panel_of(controls, graph, *remark, timeline, warnings=warnings)


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
