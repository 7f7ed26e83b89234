"""The plot of tasks: a lane for each worker, a rectangle for each task."""

from __future__ import annotations

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    GlyphRenderer,
    LegendItem,
    LinearColorMapper,
    Range1d,
    Stack,
)
from bokeh.plotting import figure
from bokeh.transform import dodge, transform

from dask_diag.analysis.functions import by_function
from dask_diag.columns import Categorical
from dask_diag.formatting import count, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, Outcome
from dask_diag.views.assets import callback
from dask_diag.views.escaping import shown
from dask_diag.views.part_names import name_of_part
from dask_diag.views.plots.figures import (
    Options,
    add_legend,
    draw_nothing,
    legend_label,
    new_figure,
)
from dask_diag.views.plots.layers import STRIPES, Layer, look_of
from dask_diag.views.plots.tasks.binned import draw_in_view
from dask_diag.views.plots.tasks.cluster_lanes import draw_workers_in_lanes
from dask_diag.views.plots.tasks.columns import FULL, LANE, TasksInLanes, tasks_in_lanes
from dask_diag.views.plots.tasks.details import details_of, packed_details
from dask_diag.views.plots.tasks.free_time import FreeTime, free_time
from dask_diag.views.plots.tasks.outlines import add_outlines
from dask_diag.views.plots.tasks.pins import add_pins
from dask_diag.views.plots.tasks.tooltip import add_tooltip
from dask_diag.views.theme.colors import color_of_activity

__all__ = ["MOST_RECTANGLES", "plot_tasks"]

_LANES_THAT_FIT = 12
_EMPTY_LANES = 8
_LONGEST_NAME, _LONG_NAME = 12, 10
MOST_RECTANGLES = 3000
"""Of more tasks than these, the page draws what is in view."""
_COLUMNS_OF_RECTANGLES = (
    *("left", "right", "top", "off_cpu"),
    *("function", "outcome", "cpu", "key"),
)
_MARKS: dict[str, dict[str, str | float]] = {
    Outcome.FAILED: {"line_color": "#d00000", "line_width": 2.5},
    Outcome.UNFINISHED: {"line_color": "#888888", "hatch_pattern": "/", "hatch_color": "#888888"},
}


def plot_tasks(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw each task as a rectangle in the lane of its worker.

    The solid part, from below, is the share of CPU time, above it the task is striped; the colour
    is that of its function.
    The page lays the rectangles out; where many tasks are in view, it draws what is in each pixel.
    """
    tasks = tasks_in_lanes(recording, origin)
    lanes = len(tasks.workers) or _EMPTY_LANES
    plot = new_figure(
        options,
        duration,
        height=max(300, 110 + 16 * lanes) if lanes > _LANES_THAT_FIT else 300,
        y_range=Range1d(lanes * LANE - (LANE - FULL) / 2, -(LANE - FULL) / 2),
        **({"title": _title(recording)} if len(recording.tasks) else {}),
    )
    _label_lanes(plot, tasks.workers or [str(lane) for lane in range(lanes)])
    if len(tasks):
        draw_workers_in_lanes(plot, recording, origin, duration, tasks.workers)
        _draw(plot, recording, tasks.in_order(), origin, options)
    else:
        draw_nothing(plot)
    return plot


def _draw(
    plot: figure, recording: Recording, tasks: TasksInLanes, origin: float, options: Options
) -> None:
    """Have the page draw all tasks, which are in order, if they are few, else those in view."""
    functions = by_function(recording)["function"].tolist()
    details = details_of(recording, tasks) if options.is_pinnable else None
    is_binned = len(tasks) > MOST_RECTANGLES
    lanes = len(tasks.workers)
    free = free_time(recording, origin, lanes, options.occupied) if is_binned else None
    labels: Categorical = tasks.table["function"]
    color_of = options.colors_of(functions)
    colors = [color_of[name] for name in labels.values]
    mapper = LinearColorMapper(palette=colors, low=-0.5, high=len(colors) - 0.5)
    source = ColumnDataSource({name: [] for name in _COLUMNS_OF_RECTANGLES})
    rectangles = _draw_rectangles(plot, source, mapper)
    codes = {outcome: _codes_of(tasks.outcome, outcome) for outcome in _MARKS}
    marks = {outcome: add_outlines(plot, **_MARKS[outcome]) for outcome in _MARKS if codes[outcome]}
    if options.has_legend:
        items = _functions_in_legend(plot, functions, labels, mapper)
        others = _others_in_legend(plot, free) if free else [_striped_in_legend(plot)]
        add_legend(plot, [*items, *others])
    names = {
        "function": [shown(name, options.label_size) for name in labels.values],
        "outcome": [shown(text, options.label_size) for text in tasks.outcome.values],
    }
    add_tooltip(plot, rectangles, names, tasks.workers)
    key_size = 2 * options.label_size
    settings = {
        "rectangles": source,
        "marks": list(marks.values()),
        "marked": [codes[outcome] for outcome in marks],
        "lane_height": LANE,
        "full": FULL,
        "functions": names["function"],
        "outcomes": names["outcome"],
        "workers": [shown(name, options.label_size) for name in tasks.workers],
    }
    if details is not None:
        add_pins(plot, source)
    if free is None:
        arguments = {
            **settings,
            "columns": tasks.columns(),
            "keys": tasks.keys(key_size),
            "details": details and packed_details(details),
        }
        plot.js_on_change("inner_width", callback("plots/tasks/tasks.js", "draw_all", arguments))
    else:
        # The lanes show what computed, waited and kept workers from tasks: each has its colour.
        settings |= {
            "colors": colors,
            "off_cpu_color": color_of_activity(Activity.NONCPU),
            "free": free.for_page(),
            "key_size": key_size,
            "most": MOST_RECTANGLES,
        }
        draw_in_view(plot, tasks, details, settings)


def _codes_of(outcomes: Categorical, outcome: str) -> list[int]:
    """The codes of the tasks that ended so, whatever their error."""
    texts = enumerate(outcomes.values)
    return [code for code, text in texts if text.partition(": ")[0] == outcome]


def _title(recording: Recording) -> str:
    tasks = recording.tasks
    wall, cpu = np.nansum(tasks["stop"] - tasks["start"]), np.nansum(tasks["thread_cpu"])
    share = f", {percent(cpu / wall)} of it CPU (the solid part of each task)" if wall else ""
    return f"{count(len(tasks))} tasks, {seconds(float(wall))} in all{share}"


def _label_lanes(plot: figure, names: list[str]) -> None:
    every = max(1, len(names) // 60)
    ticks = [lane * LANE + FULL / 2 for lane in range(0, len(names), every)]
    plot.yaxis.ticker = FixedTicker(ticks=ticks)
    labels = [_fitting(name) for name in names[::every]]
    plot.yaxis.major_label_overrides = dict(zip(ticks, labels, strict=True))
    # It does not fit beside long names: figures align.
    plot.yaxis.axis_label = "Worker" if max(map(len, labels)) < _LONG_NAME else None
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.grid_line_color = None


def _fitting(name: str) -> str:
    """The end of a long name, as of a worker that has its address for a name: figures align."""
    text = shown(name, _LONGEST_NAME * 10)
    return text if len(text) <= _LONGEST_NAME else f"…{text[1 - _LONGEST_NAME :]}"


def _draw_rectangles(
    plot: figure, source: ColumnDataSource, mapper: LinearColorMapper
) -> GlyphRenderer:
    """Draw each task, and stripes of the page's colour over the share in which it was off the CPU.

    All of it has its function's colour at full strength. The stripes have one colour, so that bokeh
    makes one pattern for all, and the page changes it with its theme.
    """
    edges = {"left": "left", "right": "right", "top": "top", "source": source}
    drawn = plot.quad(
        bottom=dodge("top", FULL),
        fill_color=transform("function", mapper),
        line_color="white",
        line_width=0.5,
        **edges,
    )
    plot.quad(bottom={"expr": Stack(fields=["top", "off_cpu"])}, **edges, **STRIPES)
    return drawn


def _functions_in_legend(
    plot: figure, functions: list[str], labels: Categorical, mapper: LinearColorMapper
) -> list[LegendItem]:
    """The functions' colours, in the order of `functions`."""
    present = {labels.values[code]: code for code in np.unique(labels.codes).tolist()}
    names = [name for name in functions if name in present]
    nowhere = np.full(len(names), np.nan)
    source = ColumnDataSource({"function": [present[name] for name in names], "at": nowhere})
    samples = plot.rect(
        x="at",
        y="at",
        width=0,
        height=0,
        source=source,
        fill_color=transform("function", mapper),
        line_color="white",
    )
    return [
        LegendItem(label=legend_label(name), renderers=[samples], index=index)
        for index, name in enumerate(names)
    ]


def _striped_in_legend(plot: figure) -> LegendItem:
    """What stripes mean, on a colour that no function has."""
    nowhere = ColumnDataSource({"at": [float("nan")]})
    geometry = {"x": "at", "y": "at", "width": 0, "height": 0, "source": nowhere}
    sample = plot.rect(**geometry, **{**STRIPES, "fill_color": "#777777"})
    return LegendItem(label=name_of_part(Activity.NONCPU), renderers=[sample])


def _others_in_legend(plot: figure, free: FreeTime) -> list[LegendItem]:
    """What else lanes show where many tasks are in view."""
    off_cpu = Layer(name_of_part(Activity.NONCPU), color_of_activity(Activity.NONCPU), np.zeros(0))
    nowhere = ColumnDataSource({"at": [float("nan")]})
    items = []
    for layer in (off_cpu, *free.layers):
        sample = plot.rect(x="at", y="at", width=0, height=0, source=nowhere, **look_of(layer))
        sample.glyph.line_color = "white"
        items.append(LegendItem(label=layer.name, renderers=[sample]))
    return items
