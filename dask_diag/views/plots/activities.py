"""Pictures of activities: worker time by function, activity and worker."""

from __future__ import annotations

import html
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import cast

import numpy as np
from bokeh.layouts import column, row
from bokeh.models import (
    Button,
    CheckboxGroup,
    ColumnDataSource,
    CustomJSTickFormatter,
    Div,
    FixedTicker,
    LabelSet,
    LayoutDOM,
    LinearColorMapper,
    Range1d,
    Select,
    TextInput,
)
from bokeh.plotting import figure
from bokeh.transform import transform

from dask_diag.analysis.activities import UNUSED
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.groups import worker_order
from dask_diag.columns import Array
from dask_diag.formatting import count
from dask_diag.model.codes import Activity
from dask_diag.model.table import Table
from dask_diag.views.assets import call, callback
from dask_diag.views.colors import look_of, stacking_order
from dask_diag.views.plots.figures import Options, empty_source, label, number_ticks, set_hover

MOST_BARS = 30
"""Bars that can be read; the others are one bar."""
UNUSED_WORKERS = "unused workers"
"""Name of all workers without a task."""
_MOST_FUNCTIONS = 300
"""Functions that a reader can choose from; the others count as one function."""

Columns = dict[str, Array]


@dataclass(frozen=True)
class Numbers:
    """Measured amounts by function, worker, activity and unit.

    Attributes
    ----------
    functions : list of str
        The longest first; functions beyond `_MOST_FUNCTIONS` are one, the last.
    unlisted : int
        Functions in the last one, beside one.
    workers, units : list of str
        Workers without any task are one, the last.
    activities : list of (str, bool)
        In stacking order; True for an activity of free workers.
    cells : dict of str to array
        ``function``, ``worker``, ``activity`` and ``unit`` are positions in the lists, the function
        of free workers the one after the last; ``value`` is the sum.
    cpu : dict of str to array
        ``cpu`` and ``noncpu``: seconds of each function, with metered time.
    """

    functions: list[str]
    unlisted: int
    workers: list[str]
    units: list[str]
    activities: list[tuple[str, bool]]
    cells: Columns
    cpu: Columns

    def in_the_page(self) -> dict[str, object]:
        """Numbers for ``bars.js``."""
        return {**vars(self), "most_bars": MOST_BARS, "unused_workers": UNUSED_WORKERS}


def numbers_of(analysis: Analysis) -> Numbers:
    """Sums of a recording for the page."""
    table, of_functions = analysis.cells, analysis.functions
    names = of_functions["function"].tolist()
    unlisted = max(len(names) - _MOST_FUNCTIONS, 0)
    functions = names[:_MOST_FUNCTIONS]
    if unlisted:
        functions[-1] = f"({count(unlisted + 1)} more functions)"
    of_workers = [UNUSED_WORKERS if w == UNUSED else w for w in table["worker"].tolist()]
    workers = sorted(
        set(of_workers),
        key=lambda name: (name == UNUSED_WORKERS, worker_order(name)),
    )
    free = [function is None for function in table["function"].tolist()]
    pairs = list(zip(table["activity"].tolist(), free, strict=True))
    activities = sorted(set(pairs), key=lambda pair: (*stacking_order(pair[0]), pair[1]))
    units = list(dict.fromkeys(["seconds", *table["unit"].tolist()]))
    code = {name: min(n, _MOST_FUNCTIONS - 1) for n, name in enumerate(names)}
    return Numbers(
        functions=functions,
        unlisted=unlisted,
        workers=workers,
        units=units,
        activities=activities,
        cells={
            "function": _codes(table["function"].tolist(), {**code, None: len(functions)}),
            "worker": _codes(of_workers, _index_of(workers)),
            "activity": _codes(pairs, _index_of(activities)),
            "unit": _codes(table["unit"].tolist(), _index_of(units)),
            "value": np.nan_to_num(table["value"], posinf=0.0, neginf=0.0),
        },
        cpu={
            name: _added_up(of_functions, column, list(code.values()), len(functions))
            for name, column in (("cpu", "thread_cpu"), ("noncpu", "thread_noncpu"))
        },
    )


def _index_of(values: Sequence[Hashable]) -> dict[Hashable, int]:
    return {value: index for index, value in enumerate(values)}


def _codes(values: Sequence[Hashable], index: Mapping[Hashable, int]) -> Array:
    return np.array([index[value] for value in values], dtype=np.int32)


def _added_up(table: Table, column: str, codes: Sequence[int], length: int) -> Array:
    values = np.nan_to_num(table[column]) if len(table) else np.zeros(0)
    return np.bincount(np.array(codes, dtype=np.int64), values, minlength=length)


_ENTRY = 22
_MOST_LINES = 5
_ENTRIES_A_LINE = 4
_NARROWEST_CONTROL = 150
"""Pixels of an entry: narrow lines have fewer entries."""
_LIST_STYLE = """
:host { overflow-y: auto; border: 1px solid #d5d5d5; border-radius: 3px; padding: 3px 6px;
        box-sizing: border-box; }
.bk-input-group { display: grid;
                  grid-template-columns: repeat(auto-fill, minmax(max(%dpx, %d%%), 1fr));
                  column-gap: 10px; row-gap: 0;
                  align-content: start; }
.bk-input-group > label { display: block; margin: 0; height: %dpx; overflow: hidden;
                          text-overflow: ellipsis; white-space: nowrap; font-size: 12px; }
"""
_WIDTH = 1000
_NARROWEST = 800
_NOTHING = "<i>nothing was measured</i>"
_HEADING = "Where worker time went"
_PALE = look_of(Activity.IDLE).hatch


def plot_activities(analysis: Analysis, options: Options) -> LayoutDOM:
    """Draw where worker time went, with a choice of functions and of the unit."""
    measured = numbers_of(analysis)
    numbers = _as_shown(measured, options)
    looks = [look_of(name, options.palette, is_free=free) for name, free in measured.activities]
    # Pieces have no hatches; what is pale elsewhere is so here.
    colors = [f"{look.color}{'40' * (look.hatch == _PALE)}" for look in looks]
    width = max(int(options.figure.get("width") or _WIDTH), _NARROWEST)
    function_list, unit_select, controls = _choice(numbers, width)
    pictures = _pictures(numbers, colors, width)
    heading = Div(text=_HEADING, styles={"font-size": "15px", "font-weight": "bold"})
    legend_items = [
        _legend_item(name, color)
        for (name, _), color in zip(numbers.activities, colors, strict=True)
    ]
    # Most likely as the script will write it: the page below does not move.
    legend = Div(text="".join(legend_items) or _NOTHING, width=width - 10, disable_math=True)
    arguments = {
        "numbers": numbers.in_the_page(),
        "function_list": function_list,
        "unit_select": unit_select,
        "pictures": pictures,
        "heading": heading,
        "legend": legend,
        "texts": {"heading": _HEADING, "legend_items": legend_items, "nothing": _NOTHING},
    }
    plots = [cast("figure", picture["plot"]) for picture in pictures.values()]
    draw = callback("plots/activities/activities.js", "draw", arguments)
    plots[0].js_on_change("inner_width", draw)
    function_list.js_on_change("active", draw)
    unit_select.js_on_change("value", draw)
    return column(
        heading,
        *controls,
        legend,
        row(*plots[:2], spacing=0),
        row(*plots[2:], spacing=0),
    )


def _choice(numbers: Numbers, width: int) -> tuple[CheckboxGroup, Select, list[LayoutDOM]]:
    """Widgets to choose functions and the unit, in rows; at first all functions, and seconds."""
    functions = numbers.functions
    units = [(str(index), unit) for index, unit in enumerate(numbers.units)]
    unit_select = Select(title="Unit", value="0", options=units, width=150)
    lines = -(-len(functions) // _ENTRIES_A_LINE)
    function_list = CheckboxGroup(
        labels=functions,
        active=list(range(len(functions))),
        width=width - 10,
        height=_ENTRY * min(max(lines, 1), _MOST_LINES) + 8,
        stylesheets=[_LIST_STYLE % (_NARROWEST_CONTROL, 88 // _ENTRIES_A_LINE, _ENTRY)],
    )
    search = TextInput(
        title=f"Functions ({count(len(functions))}), the longest first",
        placeholder="search; the buttons choose what matches",
        width=300,
    )
    arguments = {"search": search, "function_list": function_list}
    controls = "plots/activities/controls.js"
    search.js_on_change("value_input", callback(controls, "show_matches", arguments))
    buttons = []
    for text, choose in (("Choose all", True), ("Choose none", False)):
        # As low as the fields beside the button, which have titles.
        button = Button(label=text, width=110, margin=(24, 5, 5, 5))
        chosen = callback(controls, "choose_matches", {**arguments, "choose": choose})
        button.js_on_event("button_click", chosen)
        buttons.append(button)
    return (
        function_list,
        unit_select,
        [row(unit_select, search, *buttons, width=width), function_list],
    )


_ROW = 18
_AROUND = 74
"""Height above and below the bars."""
_NAMES = 220
"""Width of the names left of the bars."""

Picture = dict[str, object]
"""A figure of bars, and sources that ``activities.js`` fills, by the names of the script."""


def _pictures(numbers: Numbers, colors: list[str], width: int) -> dict[str, Picture]:
    functions = len(numbers.functions)
    width_of_functions, half = int(0.7 * width), width // 2
    names: dict[str, object] = {"min_border_left": _NAMES}
    return {
        "by_function": _stacked(
            functions, colors, 0.15, title="Tasks by function", width=width_of_functions, **names
        ),
        "of_cpu": _cpu(functions, width - width_of_functions),
        "by_activity": _stacked(
            len(numbers.activities), colors, 0.55, title="By activity", width=half, **names
        ),
        "by_worker": _stacked(
            len(numbers.workers),
            colors,
            0.25,
            title="By worker",
            width=width - half,
            min_border_left=160,
        ),
    }


def _stacked(
    most_rows: int, colors: list[str], space_for_text: float, **settings: object
) -> Picture:
    """A bar of pieces for each row, with its total beside it.

    Parameters
    ----------
    most_rows : int
        Possible rows: the figure opens as high as it is likely to stay.
    colors : list of str
        Colors of the activities, by index.
    space_for_text : float
        Space beyond the longest bar for the text beside it, in lengths of bars.
    **settings
        Keywords of the figure.
    """
    pieces = empty_source("y left right activity name value activity_name text share")
    picture, plot = _picture(most_rows, pieces, "right", space_for_text, **settings)
    plot.xaxis.formatter = number_ticks()
    tooltips = [
        ("", "@name"),
        ("activity", "@activity_name"),
        ("value", "@text"),
        ("share", "@share"),
    ]
    _draw_pieces(plot, pieces, "activity", colors, tooltips)
    return picture


def _cpu(most_rows: int, width: int) -> Picture:
    """Shares of CPU and off-CPU time for each row of the functions."""
    pieces = empty_source("y left right kind name text")
    look = {"title": "CPU and off-CPU", "width": width, "min_border_left": 12}
    picture, plot = _picture(most_rows, pieces, 1, 0.3, x_range=Range1d(0, 1.3), **look)
    plot.yaxis.visible = False
    plot.xaxis.axis_label = "% of the tasks' seconds"
    plot.xaxis.ticker = FixedTicker(ticks=[0, 0.5, 1])
    plot.xaxis.major_label_overrides = {0: "0", 0.5: "50", 1: "100"}
    colors = [look_of(Activity.CPU).color, look_of(Activity.NONCPU).color]
    _draw_pieces(plot, pieces, "kind", colors, [("", "@name"), ("", "@text")])
    return picture


def _picture(
    most_rows: int,
    pieces: ColumnDataSource,
    text_at: str | float,
    space_for_text: float,
    **settings: object,
) -> tuple[Picture, figure]:
    """An empty figure with names left of its rows, and texts at these positions."""
    height = min(max(most_rows, 1), MOST_BARS)
    rows = empty_source("y name label right share text")
    plot = figure(
        **{"x_range": Range1d(0, 1), **settings},
        height=_AROUND + _ROW * height,
        tools="hover",
        toolbar_location=None,
        y_range=Range1d(height - 0.4, -0.6),
        min_border_right=8,
    )
    plot.yaxis.ticker = FixedTicker(ticks=[])
    plot.yaxis.formatter = CustomJSTickFormatter(
        args={"rows": rows},
        code=call("plots/activities/labels.js", "label_of_row", "rows, tick"),
    )
    plot.yaxis.major_tick_line_color = plot.yaxis.minor_tick_line_color = None
    plot.yaxis.axis_line_color = plot.outline_line_color = None
    plot.ygrid.grid_line_color = None
    plot.xgrid.grid_line_alpha = 0.4
    # The axes of figures side by side are at one height only if all have the same ticks.
    plot.xaxis.minor_tick_line_color = None
    plot.xaxis.minor_tick_out = 0
    # Not a glyph: glyphs of older bokeh fail if they are drawn before new texts are ready.
    labels = LabelSet(
        x=text_at,
        y="y",
        text="text",
        source=rows,
        x_offset=5,
        text_baseline="middle",
        text_font_size="11px",
        text_color="#333333",
    )
    plot.add_layout(labels)
    picture: Picture = {
        "plot": plot,
        "pieces": pieces,
        "rows": rows,
        "space_for_text": space_for_text,
        "height_of_row": _ROW,
        "height_around": _AROUND,
    }
    return picture, plot


def _draw_pieces(
    plot: figure,
    pieces: ColumnDataSource,
    code: str,
    colors: list[str],
    tooltips: list[tuple[str, str]],
) -> None:
    palette = colors or ["white"]
    mapper = LinearColorMapper(palette=palette, low=-0.5, high=len(palette) - 0.5)
    drawn = plot.hbar(
        y="y",
        left="left",
        right="right",
        height=0.8,
        source=pieces,
        fill_color=transform(code, mapper),
        line_color="white",
        line_width=0.5,
    )
    set_hover(plot, [drawn], tooltips, point_policy="follow_mouse")


def _as_shown(numbers: Numbers, options: Options) -> Numbers:
    """Copy numbers with the user's text made safe."""

    def safe(names: list[str]) -> list[str]:
        return [
            name if name == UNUSED_WORKERS else label(name, options.label_size) or "(unnamed)"
            for name in names
        ]

    looks = [look_of(name, is_free=free) for name, free in numbers.activities]
    frees = [free for _, free in numbers.activities]
    activities = list(zip(safe([look.name for look in looks]), frees, strict=True))
    return replace(
        numbers,
        functions=safe(numbers.functions),
        workers=safe(numbers.workers),
        units=safe(numbers.units),
        activities=activities,
    )


def _legend_item(name: str, color: str) -> str:
    return (
        '<span style="display: inline-block; margin: 0 14px 2px 0; white-space: nowrap">'
        f'<span style="display: inline-block; width: 13px; height: 11px; background: {color}; '
        'border: 1px solid #bbb; margin-right: 5px; box-sizing: border-box"></span>'
        f"{html.escape(name)}</span>"
    )
