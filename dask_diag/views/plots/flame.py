"""Flame graphs of one recording, and of the difference of two.

Roots are at the top, below them functions of tasks and calls, as wide as their time. ``flame.js``
draws the graph and answers the reader's clicks; this file has the figures and their numbers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
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

from dask_diag.analysis.call_tree import (
    MEASURES,
    NOT_SAMPLED,
    are_functions,
    call_tree,
    folded_tree,
    innermost,
    measures,
    merged_tree,
    package_of,
    preorder,
    seconds_over_time,
    short_path,
    tree_and_nodes,
)
from dask_diag.analysis.groups import distinct_pairs
from dask_diag.analysis.lines import lines_of_nodes
from dask_diag.columns import Array, BoolArray, Categorical, FloatArray, IntArray, ratio
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import ROOTS, Activity, Root
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Samples
from dask_diag.views.assets import call
from dask_diag.views.colors import CPU, STRIPED, Look, look_of, pale_color_of, text_color_on
from dask_diag.views.escaping import shown
from dask_diag.views.names import recorded_lines
from dask_diag.views.plots.figures import (
    Options,
    add_legend,
    empty_source,
    label,
    new_figure,
    quads,
    set_hover,
    time_range,
)

TIMELINE = "flame-timeline"
"""Name of the timeline's figure: pages give it the time axis of their other plots."""
_FEW_SAMPLES = 100


def plot_flame(recording: Recording, origin: float, duration: float, options: Options) -> LayoutDOM:
    """A flame graph with a timeline below, and widgets to choose a view, and to search.

    Parameters
    ----------
    recording : Recording
    origin : float
        Start of the timeline, in the recording's seconds.
    duration : float
        Ignored: the timeline ends with the recording.
    options : Options
        With an ``x_range`` the timeline has this range, and the graph counts the time that it
        shows.
    """
    recording, left_out = without_waiting_scheduler(recording)
    nodes, node_of_sample = tree_and_nodes(recording)
    nodes, node_of_sample, merged = merge_short_calls(nodes, node_of_sample, is_missing(nodes))
    folded, folded_node = folded_tree(nodes)
    (starts, stops), cells, keys = cells_of(recording, node_of_sample)
    lines = lines_of_nodes(recording, nodes)
    code, code_texts = code_of_lines(recording, nodes, lines)
    spans = spans_of(recording, nodes, origin)
    bars = empty_source("left right cpu waiting either")
    columns = columns_of(nodes, line=lines, code=code, folded=folded_node)
    models: dict[str, object] = {
        "nodes": ColumnDataSource(columns),
        "boxes": ColumnDataSource(boxes_of(folded)),
        "cycles": ColumnDataSource({"start": starts - origin, "stop": stops - origin}),
        "cells": ColumnDataSource(cells),
        # The folded tree has all names of the other tree, by the same codes, and more.
        "texts": {**texts_of(folded, options), "code": code_texts},
        "spans": ColumnDataSource(spans),
        "bars": bars,
        "resolution": float(np.median(stops - starts)) if len(starts) else 0.0,
    }
    timeline = _timeline(recording.stop - origin or 1.0, spans, bars, options)
    warnings, remarks = [], []
    samples = float(nodes["total_count"][0])
    if 0 < samples < _FEW_SAMPLES:
        # A share has a standard error of at most this.
        error = percent(0.5 / sqrt(samples))
        text = f"Only {counted(round(samples), 'sample')}: shares are uncertain by up to ±{error}."
        style = {"font-size": "14px", "font-weight": "bold", "border-left": "5px solid #b8860b"}
        style["padding"] = "2px 8px"
        warnings.append(Div(text=text, disable_math=True, styles=style))
    if merged:
        text = (
            f"{count(merged)} calls of less than half a pixel of a wide screen each are merged: "
            f"below each caller they are one call, {SHORT_CALLS}."
        )
        remarks.append(Div(text=text, disable_math=True))
    if left_out:
        text = f"Left out: {seconds(left_out)} for which the scheduler's thread waited for tasks."
        remarks.append(Div(text=text, disable_math=True))
    modes = {"Wall time": "", "CPU": " of CPU", "Waiting": " of waiting"}
    graph, above, detail = _graph(
        nodes, options, models, timeline, modes=modes, orders=list(_ORDERS), keys=keys
    )
    return _column(graph, *warnings, *above, graph, detail, *remarks, timeline)


def without_waiting_scheduler(recording: Recording) -> tuple[Recording, float]:
    """The recording without the time that the scheduler's thread waited for tasks; its seconds."""
    samples = recording.samples
    waits = samples.root.eq(Root.SCHEDULER) & (samples.cpu_seconds < samples.seconds)
    kept = np.where(waits, samples.cpu_seconds, samples.seconds)
    columns = {name: samples[name] for name in samples.columns} | {"seconds": kept}
    without = type(samples)(columns).filter(~waits | (kept > 0))
    return replace(recording, samples=without), float((samples.seconds - kept).sum())


_ORDERS = {"function": "By function", "time": "Time order", "sandwich": "Sandwich"}
"""Views of a flame graph: their names in the script, and in the page."""
_ROW = 19
"""Height of a call in pixels."""
_FEWEST_ROWS, _MOST_ROWS = 9, 30
_WORTH_A_ROW = 0.1
"""Share of all seconds of the calls so deep for which the figure has a row."""
_CURSOR = "#d6007a"
_SMALL = {"font-size": "12px"}


def _graph(
    nodes: Table,
    options: Options,
    models: Mapping[str, object],
    timeline: figure,
    *,
    modes: Mapping[str, str],
    orders: Sequence[str],
    keys: Sequence[str] = (),
) -> tuple[figure, list[LayoutDOM], Div]:
    """The graph of calls, the widgets above, and the text below.

    Parameters
    ----------
    nodes : Table
        A tree with ``total_wall``, from which the height of the figure follows.
    options : Options
    models : mapping of str to object
        Arguments of the script, besides the widgets and figures.
    timeline : bokeh figure
        The figure whose range of time the graph counts.
    modes : mapping of str to str
        Units of width, and the page's words for their seconds.
    orders : sequence of str
        Names of `_ORDERS`.
    keys : sequence of str, optional
        Keys of the tasks that can be chosen.
    """
    graph = _empty_graph(nodes, options)
    drawn = empty_source("left right top bottom fill alpha name location line own total")
    words = empty_source("x y text color alpha")
    rectangles = quads(
        graph,
        drawn,
        bottom="bottom",
        top="top",
        fill_color="fill",
        fill_alpha="alpha",
        line_color="white",
        line_width=0.5,
        hover_line_color="black",
        hover_fill_color="fill",
        hover_fill_alpha="alpha",
    )
    graph.text(
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
    tooltips = [
        ("call", "@name"),
        ("where", "@location"),
        ("total", "@total"),
        ("self", "@own"),
        ("line", "@line"),
    ]
    set_hover(graph, [rectangles], tooltips, point_policy="follow_mouse", visible=False)
    cursor = BoxAnnotation(
        fill_color=None, line_color=_CURSOR, line_width=3, level="overlay", visible=False
    )
    graph.add_layout(cursor)
    is_choice = (nodes["depth"] == 1) | are_functions(nodes)
    choices = [
        (str(n), label(nodes["name"][n], options.label_size))
        for n in np.flatnonzero(is_choice).tolist()
    ]
    first: dict[str, UIElement] = {
        "order": RadioButtonGroup(
            labels=[_ORDERS[order] for order in orders],
            active=0,
            width=270,
            visible=len(orders) > 1,
        ),
        "mode": RadioButtonGroup(labels=list(modes), active=0, width=230),
        "folding": Toggle(label="Fold libraries", width=120),
        "up": Button(label="Up", width=70),
        "reset": Button(label="Reset", width=70),
    }
    second: dict[str, UIElement] = {
        "choice": Select(value="0", options=[("0", "all"), *choices], width=260),
        "search": TextInput(placeholder="search functions and files", width=260),
        "key": AutocompleteInput(
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
    }
    callee = Select(value="", options=[("", "")], width=796, visible=False)
    status = Div(text="", disable_math=True, min_height=20, styles=_SMALL)
    detail = Div(text="", disable_math=True, min_height=36, styles=_SMALL)
    widgets = {**first, **second, "callee": callee, "status": status, "detail": detail}
    arguments = {
        **models,
        **widgets,
        "drawn": drawn,
        "words": words,
        "cursor": cursor,
        "measured": list(modes.values()),
        "orders": list(orders),
        "graph": graph,
        "timeline": timeline,
    }
    _listen(arguments, graph, timeline, widgets)
    above = [row(*first.values(), spacing=8), row(*second.values(), spacing=8), callee, status]
    return graph, above, detail


def _empty_graph(nodes: Table, options: Options) -> figure:
    depth, wall = nodes["depth"], nodes["total_wall"]
    # The others are further down: below a few deep calls the figure would be white.
    wide = np.flatnonzero(np.bincount(depth, wall) >= _WORTH_A_ROW * wall[0])
    rows = int(np.clip(wide.max(initial=0) + 2, _FEWEST_ROWS, _MOST_ROWS))
    deepest = int(depth.max()) + 1
    own = Options()
    # The horizontal axis has seconds of calls, and never the page's time.
    time_axis = {"x_range", "min_border_left", "min_border_right"}
    own.figure = {key: value for key, value in options.figure.items() if key not in time_axis}
    graph = new_figure(
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
    graph.add_tools(wheel)
    if deepest > rows:
        graph.toolbar.active_scroll = wheel
    graph.axis.visible = False
    graph.grid.visible = False
    graph.min_border = 0
    return graph


def _listen(
    arguments: Mapping[str, object],
    graph: figure,
    timeline: figure,
    widgets: Mapping[str, UIElement],
) -> None:
    """Call the script at each event with the name of an action."""
    # The numbers are in the page once: events go through one callback that has them.
    code = call(
        "plots/flame/flame.js", "act", f"{{{', '.join(arguments)}}}, cb_obj, cb_data.action"
    )
    flame = CustomJS(args=dict(arguments), code=code)

    def does(action: str) -> CustomJS:
        code = f"return flame.execute(cb_obj, {{action: '{action}'}})"
        return CustomJS(args={"flame": flame}, code=code)

    graph.js_on_change("inner_width", does("resize"))
    for end in ("start", "end"):
        graph.x_range.js_on_change(end, does("move"))
        graph.y_range.js_on_change(end, does("move"))
        timeline.x_range.js_on_change(end, does("move_in_time"))
    timeline.js_on_event(SelectionGeometry, does("choose_range"))
    # The second of two quick clicks is a double click, wherever it is.
    for click in (Tap, DoubleTap):
        graph.js_on_event(click, does("zoom"))
        timeline.js_on_event(click, does("forget_range"))
    for widget, prop, action in (
        ("order", "active", "switch_order"),
        ("mode", "active", "switch_mode"),
        ("folding", "active", "fold"),
        ("choice", "value", "choose"),
        ("callee", "value", "choose_function"),
        ("search", "value_input", "find"),
        ("key", "value_input", "choose_key"),
    ):
        widgets[widget].js_on_change(prop, does(action))
    for button, action in (("up", "go_up"), ("reset", "reset")):
        widgets[button].js_on_event("button_click", does(action))


def _column(graph: figure, *parts: LayoutDOM) -> LayoutDOM:
    settings = {"sizing_mode": graph.sizing_mode} if graph.sizing_mode else {}
    return column(*parts, spacing=2, **settings)


_HEIGHT = 120
_KINDS = (
    ("cpu", "cpu", Look("computing (CPU)", CPU.color)),
    ("waiting", "waiting", Look("off the CPU", STRIPED.color)),
    ("unknown", "either", look_of(Activity.OTHER)._replace(hatch="")),
)
"""Kinds of time: the column, the column to which bars reach, and the look."""
LOOKS_OF_THREADS = [look for *_, look in _KINDS]


def _timeline(
    duration: float, spans: Mapping[str, Array], bars: ColumnDataSource, options: Options
) -> figure:
    """The figure of threads over time; the flame graph counts the time that it shows."""
    shared = {"width", "sizing_mode", "x_range", "min_border_left", "min_border_right"}
    settings = {name: value for name, value in options.figure.items() if name in shared}
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
    plot.axis.minor_tick_line_color = None
    below: str | float = 0
    items = []
    for kind, top, look in _KINDS:
        drawn = quads(plot, bars, below, top, fill_color=look.color, line_color=None)
        drawn.nonselection_glyph = None
        below = top
        if spans[kind].any():
            items.append(LegendItem(label=look.name, renderers=[drawn]))
    add_legend(plot, items)
    return plot


# Numbers of the page.

_NAME = 100
_MOST_KEYS = 2000
"""Tasks that can be chosen, so that pages stay small."""
_MOST_CELLS = 80_000
"""Cells above which neighboring cycles merge."""
_DIGITS = 14
"""Binary digits of seconds in a page: exact to 1 in 16,000."""
_GREY = "#d4d4d4"


def columns_of(nodes: Table, **others: Array) -> dict[str, Array]:
    """Columns of nodes, and others, for the page, in types that browsers have."""
    numbers: dict[str, Array] = {
        **{name: nodes[name] for name in ("parent", "depth", "end", "first_line")},
        **{name: nodes[name].codes for name in ("name", "file")},
        "color": _color_codes(nodes),
        **others,
    }
    return {**{name: small(column) for name, column in numbers.items()}, **structure_of(nodes)}


def boxes_of(folded: Table) -> dict[str, Array]:
    """Nodes of a folded tree that represent several functions, for the page."""
    columns = {
        "node": np.arange(len(folded)),
        "name": folded["name"].codes,
        "color": _color_codes(folded),
        "frames": folded["frames"],
    }
    is_box = folded["frames"] > 1
    return {name: small(column[is_box]) for name, column in columns.items()}


def small(values: Array) -> Array:
    """Whole numbers in the smallest type of browsers that has all of them."""
    integers = values.astype(np.int64)
    fits = [
        kind
        for kind in (np.uint8, np.uint16, np.int32)
        if integers.min(initial=0) >= np.iinfo(kind).min
        and integers.max(initial=0) <= np.iinfo(kind).max
    ]
    return integers.astype(fits[0])


def structure_of(nodes: Table) -> dict[str, Array]:
    """Flags of functions of tasks and of nodes that were not sampled, and kinds of nodes.

    ``kind`` is the same number for all calls of one function.
    """
    is_function = are_functions(nodes)
    columns = [nodes["name"].codes, nodes["file"].codes, nodes["first_line"], is_function]
    # A root, and a function of tasks, may be called like a function that was sampled.
    columns.append(np.where(nodes["depth"] < 2, nodes["depth"], 2))
    values = np.stack([np.asarray(column, dtype=np.int64) for column in columns], axis=1)
    _, kind = np.unique(values, axis=0, return_inverse=True)
    return {
        "kind": small(kind.reshape(-1)),
        "is_function": small(is_function),
        "missing": small(is_missing(nodes)),
        "frames": np.ones(len(nodes), dtype=np.uint8),
    }


def _color_codes(nodes: Table) -> Array:
    """Positions among the colors of `texts_of`: colors of files, then of functions."""
    files, names = nodes["file"], nodes["name"]
    # Only functions of tasks have a color: there may be thousands of other names.
    of_names = len(files.values) + 1 + np.searchsorted(_tasks_names(nodes), names.codes)
    codes = np.where(are_functions(nodes), of_names, files.codes)
    return np.where((nodes["depth"] < 2) | is_missing(nodes), len(files.values), codes)


def _tasks_names(nodes: Table) -> IntArray:
    """Codes of the names of functions of tasks, ascending."""
    return np.unique(np.asarray(nodes["name"].codes[are_functions(nodes)], dtype=np.int64))


def is_missing(nodes: Table) -> BoolArray:
    """Flags of nodes that represent time that could not be sampled."""
    below_root = nodes["depth"] == 2
    below_function = are_functions(nodes)[nodes["parent"]] & (nodes["depth"] == 3)
    unnamed: BoolArray = nodes["name"].eq(NOT_SAMPLED) & nodes["file"].eq("")
    missing: BoolArray = unnamed & (below_root & ~are_functions(nodes) | below_function)
    return missing


def texts_of(nodes: Table, options: Options) -> dict[str, list[str] | dict[str, str]]:
    """Names, files and colors by code, and the meaning of the roots."""
    files = [short_path(file) for file in nodes["file"].values]
    colors = [pale_color_of(package_of(file), file, options.palette) for file in files]
    functions = np.flatnonzero(are_functions(nodes))
    largest_first = functions[np.argsort(-nodes["total_count"][functions], kind="stable")]
    tasks = {nodes["name"].codes[node]: nodes["name"][int(node)] for node in largest_first}
    color_of = options.colors_of(tasks.values())
    of_tasks = [color_of[tasks[code]] for code in _tasks_names(nodes).tolist()]
    colors = [*colors, _GREY, *of_tasks]
    return {
        "names": [shown(name, _NAME) for name in nodes["name"].values],
        "files": [shown(file, _NAME) for file in files],
        "colors": colors,
        "roots": dict(ROOTS),
        "text_colors": [text_color_on(color) for color in colors],
    }


def looks_of_calls(recording: Recording, palette: str | None = None) -> list[Look]:
    """Looks of the packages in which calls took longest; a file has a shade of its package's."""
    nodes = call_tree(without_waiting_scheduler(recording)[0])
    seconds_of: dict[str, float] = {}
    is_call = (nodes["depth"] > 1) & ~are_functions(nodes) & ~is_missing(nodes)
    for file, own in nodes.filter(is_call).tuples("file", "wall"):
        package = package_of(short_path(file))
        seconds_of[package] = seconds_of.get(package, 0.0) + own
    longest = sorted(filter(None, seconds_of), key=lambda name: -seconds_of[name])
    looks: dict[str, Look] = {}
    for name in longest[:_PACKAGES]:
        # Of two packages of one color the longer one is named.
        color = pale_color_of(name, name, palette)
        looks.setdefault(color, Look(shown(name, _NAME), color))
    return list(looks.values())


_PACKAGES = 6


def code_of_lines(
    recording: Recording, nodes: Table, lines: IntArray
) -> tuple[IntArray, list[str]]:
    """Position of each node's line of code among the texts, and the texts; the first is empty."""
    recorded = recorded_lines(recording)
    texts = {"": 0}
    lines_of_nodes = zip(nodes["file"].tolist(), lines.tolist(), strict=True)
    codes = [
        texts.setdefault(shown(recorded.get(line, "").strip(), _NAME), len(texts))
        for line in lines_of_nodes
    ]
    return np.array(codes, dtype=np.int64), list(texts)


def cells_of(
    recording: Recording, node_of_sample: Array
) -> tuple[tuple[Array, Array], dict[str, Array], list[str]]:
    """Bounds of cycles; cells, which are sums of a node in a cycle, by task; and keys of the tasks.

    The column ``key`` is a position among the keys with most time, from 1 on; 0 is all other tasks.
    Wall seconds are the sum of ``cpu``, ``waiting`` and ``unknown``.
    """
    samples = recording.samples
    seen = node_of_sample >= 0
    starts, stops, cycle = distinct_pairs(samples["start"][seen], samples["stop"][seen])
    of_key, keys = _longest_keys(samples.filter(seen))
    while True:
        in_cycle, nodes, cell = distinct_pairs(cycle, node_of_sample[seen])
        of_cell, key, part = distinct_pairs(cell, of_key)
        if len(key) <= _MOST_CELLS or len(starts) < 2:
            break
        pairs = np.arange(0, len(starts), 2)
        starts, stops, cycle = starts[pairs], np.maximum.reduceat(stops, pairs), cycle // 2
    sums = np.zeros((len(key), len(MEASURES)))
    np.add.at(sums, part, measures(samples, np.ones(len(samples)))[seen])
    numbers = dict(zip(MEASURES, sums.T, strict=True))
    wall = numbers.pop("wall")
    numbers["unknown"] = np.round(wall - numbers["cpu"] - numbers["waiting"], 12)
    indices = {"cycle": in_cycle[of_cell], "node": nodes[of_cell], "key": key}
    columns = {name: small(column) for name, column in indices.items()}
    return (starts, stops), {**columns, **{n: _short(c) for n, c in numbers.items()}}, keys


def _short(values: Array) -> Array:
    """Whole numbers in the smallest type, others as precise as a picture shows."""
    if bool((values == np.round(values)).all()):
        return small(values)
    fraction, exponent = np.frexp(values)
    # The digits that are zero now take next to no bytes, as the page has them compressed.
    rounded = np.round(fraction * 2**_DIGITS) / 2**_DIGITS
    return np.asarray(np.ldexp(rounded, exponent), dtype=np.float32)


def _longest_keys(samples: Samples) -> tuple[IntArray, list[str]]:
    """Number of each sample's key, and the keys by number; 0 is all other keys."""
    column = samples.key
    seconds = np.zeros(len(column.values))
    np.add.at(seconds, column.codes, samples.seconds)
    chosen = [code for code in np.argsort(-seconds, kind="stable") if column.values[code]]
    longest = [code for code in chosen if seconds[code] > 0][:_MOST_KEYS]
    number = np.zeros(len(column.values), dtype=np.int64)
    number[longest] = np.arange(len(longest)) + 1
    return number[column.codes], [shown(column.values[code], _NAME) for code in longest]


def spans_of(recording: Recording, nodes: Table, begin: float) -> dict[str, Array]:
    """Seconds per second in order of time, with the node of their function or root."""
    spans = seconds_over_time(recording)
    is_function = are_functions(nodes)
    node_of = {
        (bool(is_function[node]), nodes["name"][int(node)]): int(node)
        for node in np.flatnonzero(is_function | (nodes["depth"] == 1))
    }
    of_span = [
        node_of.get((True, function) if root == Root.TASKS else (False, root), 0)
        for root, function in spans.tuples("root", "function")
    ]
    return {
        "left": spans["start"] - begin,
        "right": spans["stop"] - begin,
        "node": np.array(of_span, dtype=np.int32),
        **{name: spans[name].astype(np.float32) for name in ("cpu", "waiting", "unknown")},
    }


SHORT_CALLS = "(short calls)"
_UNITS = ("wall", "cpu", "waiting")
"""Measures that the page can draw as width."""
_MOST_CALLS = 20_000
"""Calls of which a page has all."""
_LEAST_SHARE = 0.5 / 3840
"""Share of all: half a pixel of a wide screen, the least that the page draws."""


def merge_short_calls(
    nodes: Table, node_of_sample: IntArray, is_missing: BoolArray
) -> tuple[Table, IntArray, int]:
    """Merge short calls below each call into one, if a tree has very many calls.

    Parameters
    ----------
    nodes : Table
        As `dask_diag.analysis.call_tree.tree_and_nodes` returns them.
    node_of_sample : array of int
        The node of each sample, or -1.
    is_missing : array of bool
        Nodes that represent time that was not sampled: the page counts them.

    Returns
    -------
    nodes : Table
        The nodes, with a node called `SHORT_CALLS` in place of those merged below a call.
    node_of_sample : array of int
    merged : int
        Number of merged nodes. Seconds add up as before.
    """
    named = _are_shown(nodes) | (nodes["depth"] <= 2) | is_missing
    if len(nodes) <= _MOST_CALLS or named.all():
        return nodes, node_of_sample, 0
    above = innermost(nodes["parent"], named)
    callers, caller = np.unique(above[~named], return_inverse=True)
    old = np.flatnonzero(named)
    row_of = np.full(len(nodes), -1, dtype=np.int64)
    row_of[old] = np.arange(len(old))
    row_of[~named] = len(old) + caller.reshape(-1)
    # The caller's row of each row; merged rows are last.
    parent = np.concatenate([row_of[nodes["parent"][old]], row_of[callers]])
    parent[0] = -1
    depth = np.concatenate([nodes["depth"][old], nodes["depth"][callers] + 1])
    position, end = preorder(parent, depth, np.arange(len(parent)))
    order = np.argsort(position)
    parent = np.concatenate([nodes["parent"][:1], position[parent[order][1:]]])
    columns: dict[str, Array | Categorical] = {
        "parent": parent,
        "depth": depth[order],
        "end": end[order],
    }
    rows = nodes.filter(np.concatenate([old, callers])[order])
    is_merged = order >= len(old)
    for name in ("name", "file"):
        columns[name] = _renamed(rows[name], is_merged, SHORT_CALLS if name == "name" else "")
    columns["first_line"] = np.where(is_merged, 0, rows["first_line"])
    for measure in MEASURES:
        sums = np.bincount(caller.reshape(-1), nodes[measure][~named], len(callers))
        for name in (measure, f"total_{measure}"):
            columns[name] = np.concatenate([nodes[name][old], sums])[order]
    new = np.where(node_of_sample >= 0, position[row_of[node_of_sample]], -1)
    return Table(columns), new, int((~named).sum())


def _are_shown(nodes: Table) -> BoolArray:
    """Flags of nodes with a share that a screen can show, in any unit of width."""
    totals = [nodes[f"total_{unit}"] for unit in _UNITS]
    shown = [total >= _LEAST_SHARE * total[0] for total in totals if total[0] > 0]
    return np.any(shown, axis=0) if shown else np.ones(len(nodes), dtype=bool)


def _renamed(names: Categorical, rows: BoolArray, name: str) -> Categorical:
    """The column with another value in some rows."""
    values = (*names.values, name) if name not in names.values else tuple(names.values)
    return Categorical(np.where(rows, values.index(name), names.codes), values)


# Two recordings.

_LESS, _SAME, _MORE = (33, 102, 172), (212, 212, 212), (178, 24, 43)
"""Blue, gray, and red, as channels."""
_STEPS = 5
"""Steps of color from no change to all of it, each way."""


def differential_panel(before: Recording, after: Recording, options: Options) -> LayoutDOM:
    """A flame graph as wide as both recordings together, colored by the change.

    Widgets choose, search, and show one recording alone.
    """
    nodes = merged_tree(*(without_waiting_scheduler(side)[0] for side in (before, after)))
    folded, folded_node = folded_tree(nodes)
    columns = ("parent", "depth", "end", "name", "file", "first_line")
    wall = nodes["total_before"] + nodes["total_after"]
    both = Table({**{name: nodes[name] for name in columns}, "total_wall": wall})
    number, zeros = np.arange(len(nodes)), np.zeros(len(nodes))
    columns_of_page = columns_of(
        nodes,
        # Each node has a name of its own: by how much it changed.
        name=number,
        color=_change_codes(nodes),
        line=zeros,
        code=zeros,
        folded=folded_node,
    )
    boxes = {
        "node": np.arange(len(folded)),
        "name": len(nodes) + np.arange(len(folded)),
        "color": _change_codes(folded),
        "frames": folded["frames"],
    }
    cells = {
        **{name: zeros.astype(np.int32) for name in ("cycle", "key")},
        "node": number.astype(np.int32),
        "wall": (nodes["before"] + nodes["after"]).astype(np.float32),
        "cpu": nodes["before"].astype(np.float32),
        "waiting": nodes["after"].astype(np.float32),
        "count": nodes["count"].astype(np.float32),
    }
    colors = [_mixed(step / _STEPS) for step in range(-_STEPS, _STEPS + 1)]
    models: dict[str, object] = {
        "nodes": ColumnDataSource(columns_of_page),
        "boxes": ColumnDataSource({name: small(column) for name, column in boxes.items()}),
        "cycles": ColumnDataSource({"start": np.zeros(1), "stop": np.ones(1)}),
        "cells": ColumnDataSource(cells),
        "texts": {
            "names": [_name_of_change(row) for row in (*nodes.to_dicts(), *folded.to_dicts())],
            "files": [shown(short_path(file), _NAME) for file in nodes["file"].values],
            "colors": colors,
            "text_colors": [text_color_on(color) for color in colors],
            "roots": dict(ROOTS),
        },
        "spans": empty_source("left right node cpu waiting unknown"),
        "bars": empty_source("left right cpu waiting either"),
        "resolution": 0.0,
    }
    # The script needs a timeline; two recordings have no common time.
    timeline = figure(visible=False, width=10, height=10, x_range=(0, 1), y_range=(0, 1))
    timeline.scatter([], [])
    modes = {"Both": " before and after", "Before": " before", "After": " after"}
    # Merged callers would have the change of only one of them in their names and colors.
    graph, above, detail = _graph(both, options, models, timeline, modes=modes, orders=["function"])
    return _column(graph, *above, graph, detail, timeline)


def _change_codes(nodes: Table) -> FloatArray:
    """Positions among the colors: 0 is all before, `2 * _STEPS` all after."""
    before, after = nodes["total_before"], nodes["total_after"]
    change = ratio(after - before, before + after)
    return np.asarray(np.round(_STEPS * change) + _STEPS)


def _name_of_change(row: dict[str, object]) -> str:
    """Name of a call, and by how much longer it took."""
    name = shown(row["name"], _NAME)
    if int(str(row["depth"])) < 2:
        return name
    change = float(str(row["total_after"])) - float(str(row["total_before"]))
    return f"{name} {'+' if change >= 0 else '-'}{seconds(abs(change))}"


def _mixed(share: float) -> str:
    """A color from gray to red, or with a negative share to blue."""
    to = _MORE if share > 0 else _LESS
    channels = (a + (b - a) * abs(share) for a, b in zip(_SAME, to, strict=True))
    return "#" + "".join(f"{round(channel):02x}" for channel in channels)
