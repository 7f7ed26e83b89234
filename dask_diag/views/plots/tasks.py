"""The plot of tasks: a lane for each worker, a rectangle for each task."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from bokeh.events import Tap
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    FixedTicker,
    GlyphRenderer,
    HoverTool,
    LegendItem,
    LinearColorMapper,
    Range1d,
    Stack,
    Title,
)
from bokeh.plotting import figure
from bokeh.transform import dodge, transform

from dask_diag.analysis.functions import by_function
from dask_diag.analysis.groups import rows_by
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.over_time import worker_layers
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.formatting import count, percent, seconds, size
from dask_diag.model.codes import Activity, Outcome, WorkerEvent
from dask_diag.model.recording import Recording
from dask_diag.views.assets import call, callback
from dask_diag.views.colors import color_of_activity
from dask_diag.views.escaping import shown
from dask_diag.views.names import name_of_part
from dask_diag.views.plots.figures import (
    Options,
    Packed,
    add_legend,
    draw_nothing,
    formatted,
    legend_label,
    new_figure,
    set_hover,
    size_in_page,
)
from dask_diag.views.plots.lines import STRIPES, Layer, look_of
from dask_diag.views.plots.task_columns import (
    FULL,
    LANE,
    Details,
    TasksInLanes,
    details_of,
    packed_details,
    tasks_in_lanes,
)
from dask_diag.views.plots.workers import layers_without_task


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


_DURATIONS = "plots/tasks/tooltip.js"
_LOOKUPS = "plots/tasks/lookups.js"
_TOOLTIP = [
    ("key", "@key{custom}"),
    ("function", "@function{custom}"),
    ("start", "@left{custom}"),
    ("duration", "@right{custom}"),
    ("CPU", "@cpu{custom}"),
    ("worker", "@top{custom}"),
    ("outcome", "@outcome{custom}"),
]


def add_tooltip(
    plot: figure, renderer: GlyphRenderer, names: dict[str, list[str]], workers: list[str]
) -> None:
    """Give the hover tool a task's key, function, start, duration, CPU, non-CPU and worker.

    The columns hold codes; `names` has the texts of each coded column. Bokeh escapes them.
    """
    name = call(_LOOKUPS, "name_of", "names, value")
    formatters = {
        f"@{column}": CustomJSHover(args={"names": texts}, code=name)
        for column, texts in names.items()
    }
    formatters["@key"] = CustomJSHover(code=call(_LOOKUPS, "short_key", "value"))
    formatters["@left"] = formatted("moment")
    for field, function in (("@right", "duration"), ("@cpu", "cpu_time")):
        code = call(_DURATIONS, function, "source.data, special_vars.index")
        formatters[field] = CustomJSHover(args={"source": renderer.data_source}, code=code)
    formatters["@top"] = CustomJSHover(
        args={"names": workers, "lane_height": LANE},
        code=call(_LOOKUPS, "worker_at", "names, value, lane_height"),
    )
    set_hover(plot, [renderer], _TOOLTIP, formatters=formatters, point_policy="follow_mouse")


_MOST_BYTES = 7_200_000
"""That tasks and their keys may take in a page."""
_MOST_WITH_DETAILS = 4_000_000
"""That they may take together with what else is shown of a pinned task."""
_SAMPLE = 20_000
"""So many keys say whether it is worth the time to pack all."""
_HOPELESS = 2
"""Keys that by the sample are more times too large than this are not packed at all."""


def draw_in_view(
    plot: figure,
    ordered: TasksInLanes,
    details: Details | None,
    settings: Mapping[str, object],
) -> None:
    """Have a script draw the tasks in view, as rectangles if they are few, else pixel by pixel.

    Keys are left out, and the page says so, if they are so different that they take too many bytes.
    """
    packed = ordered.packed()
    size_of_tasks = size_in_page(packed)
    keys, size_of_keys = _keys_that_fit(ordered, _MOST_BYTES - size_of_tasks)
    used = size_of_tasks + (size_of_keys if keys else 0)
    pixels = ColumnDataSource({name: [] for name in ("image", "x", "y", "width")})
    image = plot.image_rgba(image="image", x="x", y="y", dw="width", dh=FULL, source=pixels)
    _add_tooltip(plot, image, ordered.workers)
    status = Title(
        text="unpacking the tasks ...", text_font_size="11px", text_font_style="normal", standoff=2
    )
    plot.add_layout(status, "below")
    draw = callback(
        "plots/tasks/tasks.js",
        "draw_in_view",
        {
            "plot": plot,
            "status": status,
            "packed_tasks": packed,
            "packed_keys": keys,
            "size_of_keys": size_of_keys,
            "tick": ordered.tick,
            "pixels": pixels,
            "details": details and packed_details(details, _MOST_WITH_DETAILS - used),
            **settings,
        },
    )
    plot.js_on_change("inner_width", draw)


def _add_tooltip(plot: figure, image: GlyphRenderer, workers: list[str]) -> None:
    """Say what is in a pixel, if the figure has a hover tool."""
    if not plot.select(HoverTool):
        return
    worker = CustomJSHover(
        args={"names": workers, "lane_height": LANE},
        code=call(_LOOKUPS, "worker_at", "names, value, lane_height"),
    )
    in_pixel = CustomJSHover(
        args={"pixels": image.data_source},
        code=call(_LOOKUPS, "text_of_pixel", "pixels, special_vars"),
    )
    hover = HoverTool(
        renderers=[image],
        tooltips=[("worker", "$y{custom}"), ("time", "$x{custom}"), ("in it", "$sx{custom}")],
        formatters={"$y": worker, "$x": formatted("moment"), "$sx": in_pixel},
        point_policy="follow_mouse",
        show_arrow=False,
        visible=False,
    )
    plot.add_tools(hover)


def _keys_that_fit(tasks: TasksInLanes, most_bytes: int) -> tuple[Packed | None, int]:
    """The keys, packed, if they are small enough, and how many bytes they take or would take."""
    every = max(1, len(tasks) // _SAMPLE)
    likely = every * size_in_page(tasks.rows(slice(None, None, every)).packed_keys())
    if likely > _HOPELESS * most_bytes:
        return None, likely
    keys = tasks.packed_keys()
    size = size_in_page(keys)
    return (keys if size <= most_bytes else None), size


_BINS = 600
_LEAST = 0.001
"""Of the lanes' time: what has less cannot be seen."""
_UNITS = 1000
"""Shares are whole numbers of this part: the page stays small."""


class FreeTime(NamedTuple):
    """What lanes did in the time in which they had no task.

    Attributes
    ----------
    start, length : float
        Seconds on the plot's axis: of the first bin, and of each.
    layers : list of Layer
        The lowest first; heights are shares of the time without a task. The rest is idle.
    """

    start: float
    length: float
    layers: list[Layer]

    def for_page(self) -> dict[str, object]:
        """It as ``binned.js`` takes it."""
        return {
            "start": self.start,
            "length": self.length,
            "units": _UNITS,
            "colors": [layer.color for layer in self.layers],
            "names": [layer.name for layer in self.layers],
            "hatches": [layer.hatch for layer in self.layers],
            "shares": [
                np.rint(layer.heights * _UNITS).astype(int).tolist() for layer in self.layers
            ],
        }


def free_time(
    recording: Recording, origin: float, lanes: int, occupied: Sequence[Occupancy] | None
) -> FreeTime:
    """Divide the time without a task, in bins; all lanes have an equal part in it.

    Which of the free workers the scheduler kept waiting is not known, only how many. So a lane
    shows of its free time the share that all free workers had, and the lanes sum to what there was.

    Parameters
    ----------
    recording : Recording
    origin : float
        Where the plot's axis starts.
    lanes : int
        One for each worker that had a task.
    occupied : sequence of Occupancy, optional
        Of the computations, if they are there already.
    """
    if occupied is None:
        occupied = occupancies(recording)
    made = worker_layers(recording, occupied, [], _BINS)
    in_tasks = sum(made.functions.values()) + made.off_cpu
    without_task = made.moving + sum(made.free.values())
    # Lanes may be more than the workers of a computation, or fewer: some had no task.
    free: FloatArray = np.maximum(without_task, lanes - in_tasks)
    least = _LEAST * max(lanes, 1) * _BINS
    layers = [
        layer._replace(heights=np.divide(layer.heights, free, np.zeros(_BINS), where=free > 0))
        for layer in layers_without_task(made)
        if layer.total > least
    ]
    start, length = float(made.edges[0]) - origin, float(made.edges[1] - made.edges[0])
    return FreeTime(start, length, layers)


_FINEST = 1500
"""Parts of the time: what is closer together than one of them is drawn as one."""
_GAP = 6
"""Between a lane and its strip."""
_ABSENT = "#9a9a9a"


class _Moved(NamedTuple):
    """What happened at workers from one time to another: of each the worker, start, stop, bytes."""

    workers: Mapping[str, IntArray]
    start: FloatArray
    stop: FloatArray
    bytes: FloatArray


_KINDS = {
    Activity.TRANSFER: ("results arrive from other workers", color_of_activity(Activity.TRANSFER)),
    WorkerEvent.DISK_WRITE: ("results go to disk", color_of_activity(Activity.SPILL)),
    WorkerEvent.DISK_READ: ("results come back from disk", color_of_activity(Activity.SPILL)),
    WorkerEvent.PAUSED: ("paused", color_of_activity(Activity.NONCPU)),
}


_NAMES = dict.fromkeys(
    (WorkerEvent.DISK_WRITE, WorkerEvent.DISK_READ), "results go to disk or come back"
)


def marks_in_lanes(recording: Recording) -> list[tuple[str, str]]:
    """The colours and names of what is drawn; empty if there is nothing but tasks."""
    present = [kind for kind in _KINDS if len(_moved(recording, kind).start)]
    # What goes to disk and what comes back have one colour.
    names = {_KINDS[kind][1]: _NAMES.get(kind, _KINDS[kind][0]) for kind in present}
    marks = list(names.items())
    workers = recording.workers.rows(~recording.workers.address.where(""))
    if (workers.joined > recording.start).any() or not np.isnan(workers.left).all():
        marks.append((_ABSENT, "hatched: the worker was not there"))
    return marks


def draw_workers_in_lanes(
    plot: figure, recording: Recording, origin: float, duration: float, lanes: Sequence[str]
) -> None:
    """Draw this into the figure of tasks, which has these lanes."""
    workers = recording.workers.rows(~recording.workers.address.where(""))
    if not len(workers):
        return
    lanes_of: dict[str, list[int]] = {}
    for lane, name in enumerate(lanes):
        lanes_of.setdefault(name.rpartition("/")[0], []).append(lane)
    _draw_absence(plot, list(_absences(workers.to_dicts(), lanes_of, origin, duration)))
    rows = [
        row
        for kind in _KINDS
        for row in _strips(_moved(recording, kind), kind, lanes_of, origin, duration)
    ]
    if rows:
        # The strip of the last lane is below it.
        plot.y_range.start = LANE * len(lanes)
        _draw_strips(plot, rows)


def _absences(
    workers: Sequence[Mapping[str, float]],
    lanes_of: Mapping[str, Sequence[int]],
    origin: float,
    duration: float,
) -> Iterator[tuple[float, float, int]]:
    """Start, stop and lane of the times in which a worker had not joined yet, or had left."""
    for worker in workers:
        joined, left = worker["joined"] - origin, worker["left"] - origin
        for lane in lanes_of.get(str(worker["worker"]), ()):
            if joined > 0:
                yield 0.0, min(joined, duration), lane
            if left < duration:
                yield max(left, 0.0), duration, lane


def _draw_absence(plot: figure, rows: Sequence[tuple[float, float, int]]) -> None:
    if not rows:
        return
    left, right, lane = zip(*rows, strict=True)
    top = LANE * np.array(lane)
    source = ColumnDataSource({"left": left, "right": right, "top": top, "bottom": top + FULL})
    plot.quad(
        source=source,
        fill_color=None,
        line_color=_ABSENT,
        line_width=1,
        hatch_pattern="/",
        hatch_color=_ABSENT,
        hatch_alpha=0.5,
        hatch_scale=8,
        level="underlay",
    )


def _moved(recording: Recording, kind: str) -> _Moved:
    """All events of a kind."""
    if kind == Activity.TRANSFER:
        transfers = recording.transfers
        table = transfers.rows(transfers.activity.where(kind))
        return _Moved(rows_by(table.destination), table.start, table.stop, table.bytes)
    events = recording.worker_events.rows(recording.worker_events.event.where(kind))
    return _Moved(rows_by(events.worker), events.start, events.stop, events.bytes)


def _strips(
    moved: _Moved,
    kind: str,
    lanes_of: Mapping[str, Sequence[int]],
    origin: float,
    duration: float,
) -> Iterator[dict[str, object]]:
    """The rectangles of a kind, in the strips of workers; those that would touch are one."""
    name, color = _KINDS[kind]
    for worker, of_worker in moved.workers.items():
        if worker not in lanes_of:
            continue
        rows = of_worker[np.argsort(moved.start[of_worker], kind="stable")]
        start, stop = moved.start[rows] - origin, np.maximum.accumulate(moved.stop[rows]) - origin
        apart = start[1:] > stop[:-1] + duration / _FINEST
        first = np.concatenate([[0], np.flatnonzero(apart) + 1])
        last = np.append(first[1:], len(rows)) - 1
        sizes = np.add.reduceat(np.nan_to_num(moved.bytes[rows]), first)
        for begin, end, together in zip(first.tolist(), last.tolist(), sizes, strict=True):
            number = end - begin + 1
            yield {
                "left": start[begin],
                "right": stop[end],
                "top": LANE * lanes_of[worker][0] + FULL + _GAP,
                "bottom": LANE * (lanes_of[worker][0] + 1) - _GAP,
                "color": color,
                "worker": shown(worker, 60),
                "what": _text(name, number, float(together)),
            }


def _text(name: str, number: int, together: float) -> str:
    times = f" ({count(number)} times)" if number > 1 else ""
    return f"{name}{times}{f', {size(together)}' if together else ''}"


def _draw_strips(plot: figure, rows: Sequence[Mapping[str, object]]) -> None:
    strips = plot.quad(
        left="left",
        right="right",
        top="top",
        bottom="bottom",
        fill_color="color",
        line_color="color",
        source=ColumnDataSource({name: [row[name] for row in rows] for name in rows[0]}),
    )
    if plot.select(HoverTool):
        plot.add_tools(
            HoverTool(
                renderers=[strips],
                tooltips=[("worker", "@worker"), ("what", "@what"), ("from", "@left{custom}")],
                formatters={"@left": formatted("moment")},
                point_policy="follow_mouse",
                show_arrow=False,
                visible=False,
            )
        )


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
