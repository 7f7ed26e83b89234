"""The plot of tasks: a lane for each worker, a rectangle for each task.

Tasks are numbered as they are drawn: lane by lane, in order of time.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import count as counter
from typing import NamedTuple

import numpy as np
from bokeh.events import MouseLeave, MouseMove, Tap
from bokeh.models import (
    ColumnDataSource,
    CustomJS,
    CustomJSHover,
    FixedTicker,
    GlyphRenderer,
    LegendItem,
    LinearColorMapper,
    Range1d,
    Stack,
)
from bokeh.plotting import figure
from bokeh.transform import dodge, transform

from dask_diag.analysis.critical_path import last_dependencies
from dask_diag.analysis.functions import by_function
from dask_diag.analysis.groups import rows_by, workers_of_clusters
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.over_time import worker_layers
from dask_diag.analysis.task_times import transfers_between_workers
from dask_diag.columns import (
    Array,
    Categorical,
    FloatArray,
    IntArray,
    PrefixStrings,
    ratio,
    smallest_integers,
)
from dask_diag.formatting import count, percent, seconds, size
from dask_diag.model.codes import Activity, Outcome, WorkerEvent
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Transfers, WorkerEvents
from dask_diag.views.assets import call, callback
from dask_diag.views.colors import ABSENT, PAUSED, STRIPED, Look, look_of
from dask_diag.views.escaping import shown
from dask_diag.views.lanes import TasksInLanes, end_of_name, tasks_in_lanes
from dask_diag.views.plots.figures import (
    Options,
    Packed,
    add_legend,
    draw_nothing,
    empty_source,
    legend_label,
    new_figure,
    pack,
    quads,
    set_hover,
    size_in_page,
    status_below,
)
from dask_diag.views.plots.layers import (
    BINS,
    LEAST,
    STRIPES,
    Layer,
    glyph_of,
    layers_without_function,
)

LANE = 320
"""Height of a lane on the vertical axis: a rectangle of `FULL`, and a gap."""
FULL = 255


_CPU_DIGITS = 9
"""Binary digits of packed CPU time: exact to 0.2% of the task's duration, or to a tick."""


def packed_tasks(columns: Mapping[str, Array], tick: float) -> Packed:
    """Pack columns as those of `TasksInLanes`: all but the keys.

    ``count`` has a number for each lane, and there are for each task ``gap`` (ticks since the task
    before in its lane), ``length`` (ticks), ``function``, ``outcome``, and ``rest``: its length
    without CPU time, and without the last digits. ``unknown`` has the tasks without CPU time.
    """
    start, stop = _ticks(columns["start"], tick), _ticks(columns["stop"], tick)
    counts, cpu = columns["count"], columns["cpu"]
    before = np.concatenate([[0], stop[:-1]])
    before[(np.cumsum(counts) - counts)[counts > 0]] = 0
    length = stop - start
    unknown = np.isnan(cpu)
    off_cpu = np.where(unknown, 0, length - _ticks(np.nan_to_num(cpu), tick))
    _, digits = np.frexp(np.maximum(length, 0).astype(np.float64))
    left_out = np.maximum(digits - 1 - _CPU_DIGITS, 0)
    return pack(
        {
            "count": counts,
            "gap": start - before,
            "length": length,
            "function": columns["function"],
            "outcome": columns["outcome"],
            "rest": np.sign(off_cpu) * (np.abs(off_cpu) >> left_out),
            "unknown": np.flatnonzero(unknown),
        }
    )


def _ticks(times: FloatArray, tick: float) -> IntArray:
    return np.round(times / tick).astype(np.int64)


# Keys. Keys of one function differ in numbers: a page has their patterns, and the numbers packed.

_NUMBER = "\x1f"
"""Place of a number in a pattern. Shown texts have no such characters."""
_BETWEEN_PATTERNS = "\x1e"
_NUMBERS = re.compile(r"(?<![0-9A-Za-z])(0|[1-9][0-9]{0,14})(?![0-9A-Za-z])")
_LONGEST_PIECE = 200


def _packed_keys(table: Table) -> Packed:
    """Pack the keys, of which ``keys.js`` makes texts again.

    ``patterns`` is a text of all patterns. ``pattern``, of each key, and ``numbers-0``,
    ``numbers-1``, ... of each key with so many numbers, are differences: to the key before of the
    same function, and to the key before of the same pattern.
    """
    keys: PrefixStrings = table["key"]
    heads, tails = keys.heads, keys.tails()
    text = "\n".join(tails)
    if text.count("\n") >= max(len(tails), 1) or _NUMBER in text:
        tails = [shown(tail, _LONGEST_PIECE) for tail in tails]
        text = "\n".join(tails)
    pieces = _NUMBERS.split(text)
    stripped = _NUMBER.join(pieces[::2]).split("\n") if tails else []
    numbers = np.array(pieces[1::2] or ["0"], "S").astype(np.int64)
    # Of equal tails, the first row.
    first_rows_of_tails: dict[str, int] = {}
    first_alike = np.fromiter(
        map(first_rows_of_tails.setdefault, stripped, counter()), np.int64, len(tails)
    )
    pairs = first_alike * max(len(heads.values), 1) + heads.codes
    _, first, pattern = np.unique(pairs, return_index=True, return_inverse=True)
    # In order of appearance, so that patterns of a single key count up.
    first_rows = np.sort(first)
    pattern = np.searchsorted(first_rows, first)[pattern.reshape(-1)]
    counts = np.array([stripped[row].count(_NUMBER) for row in first_rows.tolist()], np.int64)
    counts = counts[pattern]
    offsets = np.cumsum(counts) - counts
    columns: dict[str, Array | str] = {
        "patterns": _BETWEEN_PATTERNS.join(_patterns(heads, stripped, first_rows)),
        "pattern": _differences(pattern, table["function"].codes),
    }
    for slot in range(int(counts.max(initial=0))):
        rows = np.flatnonzero(counts > slot)
        columns[f"numbers-{slot}"] = _differences(numbers[offsets[rows] + slot], pattern[rows])
    return pack(columns)


def _patterns(heads: Categorical, tails: list[str], rows: IntArray) -> Iterator[str]:
    """Patterns of these rows, with their characters made safe to show."""
    beginnings = [shown(head, _LONGEST_PIECE) for head in heads.values]
    for row, head in zip(rows.tolist(), heads.codes[rows].tolist(), strict=True):
        pieces = (shown(piece, _LONGEST_PIECE) for piece in tails[row].split(_NUMBER))
        yield beginnings[head] + _NUMBER.join(pieces)


def _differences(values: Array, groups: Array) -> Array:
    """Differences of each value to the value before in its group."""
    # Integers of 16 bits are sorted much faster.
    order = np.argsort(smallest_integers(groups, int(np.max(groups, initial=0))), kind="stable")
    ordered, grouped = values[order], groups[order]
    steps = np.diff(ordered, prepend=0)
    fresh = np.diff(grouped, prepend=-1) != 0
    steps[fresh] = ordered[fresh]
    result = np.empty_like(steps)
    result[order] = steps
    return result


_SAMPLE = 20_000
"""Number of keys that say whether it is worth the time to pack all."""
_HOPELESS = 2
"""Keys that by the sample are more times too large are not packed at all."""


def _keys_that_fit(table: Table, most_bytes: int) -> tuple[Packed | None, int]:
    """Packed keys, if small enough; and the bytes that they take or would take."""
    every = max(1, len(table) // _SAMPLE)
    likely = every * size_in_page(_packed_keys(table.filter(slice(None, None, every))))
    if likely > _HOPELESS * most_bytes:
        return None, likely
    keys = _packed_keys(table)
    return (keys if size_in_page(keys) <= most_bytes else None), size_in_page(keys)


# Details of a pinned task: its last dependency, and the bytes of its result.

_LONGEST = 50
"""Tasks with details in every page: the report's table of the longest has as many."""
_MOST_ROWS = 1000
"""Tasks with details if not all fit."""


class Details(NamedTuple):
    """Details of tasks by number.

    `last` is the number of the dependency that stopped last, or -1; `nbytes` are the bytes of the
    result, NaN if not measured; `duration` is in seconds.
    """

    last: IntArray
    nbytes: FloatArray
    duration: FloatArray


def _details_of(recording: Recording, table: Table) -> Details:
    last = numbers_of_tasks(recording, table)[last_dependencies(recording)[table["row"]]]
    nbytes = np.asarray(recording.tasks.nbytes)[table["row"]]
    return Details(last, nbytes, table["stop"] - table["start"])


def numbers_of_tasks(recording: Recording, table: Table) -> IntArray:
    """Number of each task of a recording; -1 if the start is unknown, and for the row -1."""
    numbers = np.full(len(recording.tasks) + 1, -1, np.int64)
    numbers[table["row"]] = np.arange(len(table))
    return numbers


def packed_details(details: Details, most_bytes: float = np.inf) -> Packed:
    """Pack the details of all tasks, or of the longest tasks if all take too many bytes.

    ``back`` is the difference to the number of the last dependency (0 if there is none), ``size``
    one more than the bytes of the result (0 if not known). With ``step``, the differences of their
    numbers, details are of some tasks only.
    """

    def columns(chosen: IntArray) -> dict[str, Array]:
        last, nbytes = details.last[chosen], details.nbytes[chosen]
        sizes = np.where(np.isnan(nbytes), 0, np.nan_to_num(nbytes) + 1)
        return {"back": np.where(last < 0, 0, chosen - last), "size": sizes.astype(np.int64)}

    # Dependencies in other lanes take two bytes a task at least.
    if 2 * len(details.last) <= most_bytes:
        everything = pack(columns(np.arange(len(details.last))))
        if size_in_page(everything) <= most_bytes:
            return everything
    chosen = _longest_with_paths(details)
    return pack({"step": np.diff(chosen, prepend=0), **columns(chosen)})


def _longest_with_paths(details: Details) -> IntArray:
    """Numbers of the longest tasks, and of the tasks on the paths that led to them."""
    chosen = step = np.argsort(-details.duration, kind="stable")[:_LONGEST]
    # All paths go one step back at a time: if not all fit, each has about as many tasks.
    while len(step):
        before = details.last[step]
        step = np.setdiff1d(before[before >= 0], chosen)[: _MOST_ROWS - len(chosen)]
        chosen = np.concatenate([chosen, step])
    return np.sort(chosen)


# The figure.

_LANES_THAT_FIT = 12
_EMPTY_LANES = 8
_LONGEST_NAME, _LONG_NAME = 12, 10
MOST_RECTANGLES = 3000
"""Tasks of which the page draws each; of more tasks the page draws pixels."""
_MOST_BYTES = 7_200_000
"""Bytes of tasks and their keys in a page."""
_MOST_WITH_DETAILS = 4_000_000
"""Bytes of tasks, keys and details in a page."""
_MARKS: dict[str, dict[str, str | float]] = {
    Outcome.FAILED: {"line_color": look_of(Activity.FAILED).color, "line_width": 2.5},
    Outcome.UNFINISHED: {
        "line_color": look_of(Activity.UNFINISHED).color,
        "hatch_pattern": "/",
        "hatch_color": look_of(Activity.UNFINISHED).color,
    },
}


def plot_tasks(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw each task as a rectangle in the lane of its worker, in the color of its function.

    From below, the share of CPU time is solid, the rest striped. The page lays the rectangles out;
    if many tasks are in view, the page draws pixels.
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
    if len(tasks.table):
        _draw_workers(plot, recording, origin, duration, tasks.workers)
        _draw_tasks(plot, recording, tasks, origin, options)
    else:
        draw_nothing(plot)
    return plot


def _title(recording: Recording) -> str:
    tasks = recording.tasks
    wall, cpu = np.nansum(tasks["stop"] - tasks["start"]), np.nansum(tasks["thread_cpu"])
    share = f", {percent(cpu / wall)} of it CPU (the solid part of each task)" if wall else ""
    return f"{count(len(tasks))} tasks, {seconds(float(wall))} in all{share}"


def _label_lanes(plot: figure, names: list[str]) -> None:
    every = max(1, len(names) // 60)
    ticks = [lane * LANE + FULL / 2 for lane in range(0, len(names), every)]
    labels = [end_of_name(name, _LONGEST_NAME) for name in names[::every]]
    plot.yaxis.ticker = FixedTicker(ticks=ticks)
    plot.yaxis.major_label_overrides = dict(zip(ticks, labels, strict=True))
    # Beside long names it does not fit: figures align.
    plot.yaxis.axis_label = "Worker" if max(map(len, labels)) < _LONG_NAME else None
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.grid_line_color = None


def _draw_tasks(
    plot: figure, recording: Recording, tasks: TasksInLanes, origin: float, options: Options
) -> None:
    """Let the page draw all tasks if they are few, else the tasks in view."""
    table = tasks.table
    details = _details_of(recording, table) if options.is_pinnable else None
    is_binned = len(table) > MOST_RECTANGLES
    free = _free_time(recording, len(tasks.workers), options.occupied) if is_binned else None
    functions = by_function(recording)["function"].tolist()
    labels, outcomes = table["function"], table["outcome"]
    color_of = options.colors_of(functions)
    colors = [color_of[name] for name in labels.values]
    mapper = LinearColorMapper(palette=colors, low=-0.5, high=len(colors) - 0.5)
    fill = transform("function", mapper)
    source = empty_source("left right top off_cpu function outcome cpu key")
    look = {"fill_color": fill, "line_color": "white", "line_width": 0.5}
    rectangles = quads(plot, source, dodge("top", FULL), "top", **look)
    # Stripes of one color are one pattern for bokeh, and the page changes it with its theme.
    quads(plot, source, {"expr": Stack(fields=["top", "off_cpu"])}, "top", **STRIPES)
    # A failed task's outcome is followed by the error.
    codes = {
        outcome: [n for n, text in enumerate(outcomes.values) if text.partition(": ")[0] == outcome]
        for outcome in _MARKS
    }
    marked = [outcome for outcome in _MARKS if codes[outcome]]
    marks = [_add_outlines(plot, **_MARKS[outcome]) for outcome in marked]
    if options.has_legend:
        present = {labels.values[code]: code for code in np.unique(labels.codes).tolist()}
        names = [name for name in functions if name in present]
        columns = {"function": [present[name] for name in names]}
        sample = _sample(plot, {"fill_color": fill, "line_color": "white"}, columns)
        items = [
            LegendItem(label=legend_label(name), renderers=[sample], index=index)
            for index, name in enumerate(names)
        ]
        add_legend(plot, [*items, *_other_items(plot, free)])
    settings = {
        "rectangles": source,
        "marks": marks,
        "marked": [codes[outcome] for outcome in marked],
        "lane_height": LANE,
        "full": FULL,
        "functions": options.shown(labels.values),
        "outcomes": options.shown(outcomes.values),
        "workers": options.shown(tasks.workers),
    }
    _add_tooltip(plot, rectangles, settings["functions"], settings["outcomes"], tasks.workers)
    if details is not None:
        _add_pins(plot, source)
    key_size = 2 * options.label_size
    if free is None:
        settings |= {
            "columns": tasks.columns,
            "keys": [shown(key, key_size) for key in table["key"].tolist()],
            "details": details and packed_details(details),
        }
        plot.js_on_change("inner_width", callback("plots/tasks/tasks.js", "draw_all", settings))
        return
    edges, layers = free
    settings |= {
        "key_size": key_size,
        "most": MOST_RECTANGLES,
        "colors": colors,
        "off_cpu_color": STRIPED.color,
        "free": {
            "start": float(edges[0]) - origin,
            "length": float(edges[1] - edges[0]),
            "units": _UNITS,
            "colors": [layer.look.color for layer in layers],
            "names": [layer.look.name for layer in layers],
            "hatches": [layer.look.hatch for layer in layers],
            "shares": [np.rint(layer.heights * _UNITS).astype(int).tolist() for layer in layers],
        },
    }
    _draw_in_view(plot, tasks, details, settings)


def _draw_in_view(
    plot: figure, tasks: TasksInLanes, details: Details | None, settings: dict[str, object]
) -> None:
    """Let a script draw the tasks in view: rectangles if they are few, else pixels.

    Keys are left out, and the page says so, if they are so different that they take too many bytes.
    """
    packed = packed_tasks(tasks.columns, tasks.tick)
    keys, size_of_keys = _keys_that_fit(tasks.table, _MOST_BYTES - size_in_page(packed))
    pixels = empty_source("image x y width")
    image = plot.image_rgba(image="image", x="x", y="y", dw="width", dh=FULL, source=pixels)
    set_hover(
        plot,
        [image],
        [("worker", "$y{custom}"), ("time", "$x{moment}"), ("in it", "$sx{custom}")],
        {
            "$y": _lane_name(tasks.workers),
            "$sx": CustomJSHover(
                args={"pixels": pixels},
                code=call(_LOOKUPS, "text_of_pixel", "pixels, special_vars"),
            ),
        },
        another=True,
        point_policy="follow_mouse",
    )
    rest = _MOST_WITH_DETAILS - size_in_page(packed) - size_in_page(keys)
    settings |= {
        "plot": plot,
        "status": status_below(plot, "tasks"),
        "packed_tasks": packed,
        "packed_keys": keys,
        "size_of_keys": size_of_keys,
        "tick": tasks.tick,
        "pixels": pixels,
        "details": details and packed_details(details, rest),
    }
    plot.js_on_change("inner_width", callback("plots/tasks/tasks.js", "draw_in_view", settings))


_UNITS = 1000
"""Shares are whole numbers of this part: the page stays small."""


def _free_time(
    recording: Recording, lanes: int, occupied: Sequence[Occupancy] | None
) -> tuple[FloatArray, list[Layer]]:
    """Divide the time without a task: edges of bins, and layers of shares of that time.

    Not known is which free workers the scheduler kept waiting, only how many. So a lane shows in
    its free time the shares of all free workers, and the lanes sum to the true totals. In the rest
    no computation had the worker.
    """
    if occupied is None:
        occupied = occupancies(recording)
    made = worker_layers(recording, occupied, [], BINS)
    in_tasks = sum([*made.functions.values(), *made.of_tasks.values()])
    without_task = sum([*made.moving.values(), *made.free.values()])
    # Lanes may be more than the workers of a computation, or fewer if some had no task.
    free: FloatArray = np.maximum(without_task, lanes - in_tasks)
    least = LEAST * max(lanes, 1) * BINS
    return made.edges, [
        layer._replace(heights=ratio(layer.heights, free))
        for layer in layers_without_function(made)
        if layer.heights.sum() > least
    ]


def _sample(
    plot: figure, look: Mapping[str, object], columns: Mapping[str, Sequence[object]] | None = None
) -> GlyphRenderer:
    """Draw rectangles nowhere, of which a legend has the look."""
    columns = columns or {"at": [np.nan]}
    nowhere = [np.nan] * len(next(iter(columns.values())))
    source = ColumnDataSource({**columns, "at": nowhere})
    return plot.rect(x="at", y="at", width=0, height=0, source=source, **look)


def _other_items(plot: figure, free: tuple[FloatArray, list[Layer]] | None) -> Iterator[LegendItem]:
    """Legend of time off the CPU and, if the page draws pixels, of time without a task."""
    if free is None:
        # Stripes are on a color that no function has.
        sample = _sample(plot, {**STRIPES, "fill_color": "#777777"})
        yield LegendItem(label=STRIPED.name, renderers=[sample])
        return
    for look in (look_of(Activity.NONCPU), *(layer.look for layer in free[1])):
        sample = _sample(plot, glyph_of(look))
        sample.glyph.line_color = "white"
        yield LegendItem(label=look.name, renderers=[sample])


_DURATIONS = "plots/tasks/tooltip.js"
_LOOKUPS = "plots/tasks/lookups.js"


def _add_tooltip(
    plot: figure, renderer: GlyphRenderer, functions: object, outcomes: object, workers: list[str]
) -> None:
    """Add the tooltip of a task. The source has codes of texts, and bokeh escapes the texts."""
    source = {"source": renderer.data_source}
    name, data = call(_LOOKUPS, "name_of", "names, value"), "source.data, special_vars.index"
    set_hover(
        plot,
        [renderer],
        [
            ("key", "@key{custom}"),
            ("function", "@function{custom}"),
            ("start", "@left{moment}"),
            ("duration", "@right{custom}"),
            ("CPU", "@cpu{custom}"),
            ("worker", "@top{custom}"),
            ("outcome", "@outcome{custom}"),
        ],
        {
            "@key": CustomJSHover(code=call(_LOOKUPS, "short_key", "value")),
            "@function": CustomJSHover(args={"names": functions}, code=name),
            "@right": CustomJSHover(args=source, code=call(_DURATIONS, "duration", data)),
            "@cpu": CustomJSHover(args=source, code=call(_DURATIONS, "cpu_time", data)),
            "@top": _lane_name(workers),
            "@outcome": CustomJSHover(args={"names": outcomes}, code=name),
        },
        point_policy="follow_mouse",
    )


def _lane_name(workers: list[str]) -> CustomJSHover:
    """Create what writes the worker at a height."""
    code = call(_LOOKUPS, "worker_at", "names, value, lane_height")
    return CustomJSHover(args={"names": workers, "lane_height": LANE}, code=code)


def _add_outlines(plot: figure, **style: str | float) -> ColumnDataSource:
    """Outline the tasks that the page puts into the source, which is returned empty."""
    source = empty_source("left right top")
    quads(plot, source, dodge("top", FULL), "top", fill_color=None, **style)
    return source


def _add_pins(plot: figure, rectangles: ColumnDataSource) -> None:
    """Add outlines of tasks and paths, which scripts of the page find by name, and the mouse.

    Outlines have the color of the page's text, light or dark.
    """
    rectangles.name = "tasks in the page"
    for outlines, path in (
        ("tasks on the critical path", "critical path"),
        ("pinned tasks", "path to the pinned task"),
    ):
        _add_outlines(plot, line_color="black", line_width=2).name = outlines
        look = {"line_color": "black", "line_width": 1.5}
        plot.segment("x0", "y0", "x1", "y1", source=empty_source("x0 y0 x1 y1", path), **look)
    code = call("plots/tasks/tap.js", "heard", "rectangles, cb_obj")
    hear = CustomJS(args={"rectangles": rectangles}, code=code)
    for event in Tap, MouseMove, MouseLeave:
        plot.js_on_event(event, hear)


# Lanes of a cluster's workers: strips of transfers and spills below, hatched absence.

_FINEST = 1500
"""Parts of the time: events that are closer together are drawn as one."""
_GAP = 6
"""Space between a lane and its strip."""
_KINDS = {
    Activity.TRANSFER: look_of(Activity.TRANSFER)._replace(hatch=""),
    # Both directions of the disk have one look.
    WorkerEvent.DISK_WRITE: look_of(Activity.SPILL)._replace(hatch=""),
    WorkerEvent.DISK_READ: look_of(Activity.SPILL)._replace(hatch=""),
    WorkerEvent.PAUSED: PAUSED,
}


def marks_in_lanes(recording: Recording) -> list[Look]:
    """Looks of what lanes show besides functions."""
    tasks = recording.tasks
    present = [_KINDS[kind] for kind in _KINDS if len(_events(recording, kind)[0])]
    if (tasks.thread_cpu < tasks.stop - tasks.start).any():
        is_binned = len(tasks) > MOST_RECTANGLES
        present.insert(0, look_of(Activity.NONCPU) if is_binned else STRIPED)
    workers = workers_of_clusters(recording)
    if (workers.joined > recording.start).any() or not np.isnan(workers.left).all():
        present.append(ABSENT)
    return list(dict.fromkeys(present))


def _events(
    recording: Recording, kind: str
) -> tuple[Transfers, Categorical] | tuple[WorkerEvents, Categorical]:
    """Events of a kind, and the worker of each."""
    if kind == Activity.TRANSFER:
        transfers = transfers_between_workers(recording)
        return transfers, transfers.destination
    events = recording.worker_events.filter(recording.worker_events.event.eq(kind))
    return events, events.worker


def _draw_workers(
    plot: figure, recording: Recording, origin: float, duration: float, lanes: Sequence[str]
) -> None:
    """Draw the marks of a cluster's workers."""
    workers = workers_of_clusters(recording).to_dicts()
    lanes_of: dict[str, list[int]] = {}
    for lane, name in enumerate(lanes):
        lanes_of.setdefault(name.rpartition("/")[0], []).append(lane)
    absences = [
        (left, right, lane)
        for worker in workers
        for left, right in (
            (0.0, min(worker["joined"] - origin, duration)),
            (max(worker["left"] - origin, 0.0), duration),
        )
        if left < right
        for lane in lanes_of.get(worker["worker"], ())
    ]
    if absences:
        lefts, rights, absent = zip(*absences, strict=True)
        top = LANE * np.array(absent)
        columns = {"left": lefts, "right": rights, "top": top, "bottom": top + FULL}
        quads(
            plot,
            ColumnDataSource(columns),
            "bottom",
            "top",
            fill_color=None,
            line_color=ABSENT.color,
            line_width=1,
            hatch_pattern="/",
            hatch_color=ABSENT.color,
            hatch_alpha=0.5,
            hatch_scale=8,
            level="underlay",
        )
    rows = [
        row
        for kind in _KINDS
        if workers
        for row in _strips(recording, kind, lanes_of, origin, duration)
    ]
    if rows:
        # The strip of the last lane is below it.
        plot.y_range.start = LANE * len(lanes)
        source = ColumnDataSource({name: [row[name] for row in rows] for name in rows[0]})
        look = {"fill_color": "color", "line_color": "color"}
        strips = quads(plot, source, "bottom", "top", **look)
        tooltips = [("worker", "@worker"), ("what", "@what"), ("from", "@left{moment}")]
        set_hover(plot, [strips], tooltips, another=True, point_policy="follow_mouse")


def _strips(
    recording: Recording,
    kind: str,
    lanes_of: Mapping[str, Sequence[int]],
    origin: float,
    duration: float,
) -> Iterator[dict[str, object]]:
    """Rectangles of a kind of events in the strips of workers; one for events that would touch."""
    look = _KINDS[kind]
    table, workers = _events(recording, kind)
    for worker, events in rows_by(workers).items():
        if worker not in lanes_of:
            continue
        rows = events[np.argsort(table.start[events], kind="stable")]
        start, stop = table.start[rows] - origin, np.maximum.accumulate(table.stop[rows]) - origin
        apart = start[1:] > stop[:-1] + duration / _FINEST
        first = np.concatenate([[0], np.flatnonzero(apart) + 1])
        last = np.append(first[1:], len(rows)) - 1
        sizes = np.add.reduceat(np.nan_to_num(table.bytes[rows]), first)
        lane = lanes_of[worker][0]
        for begin, end, together in zip(first.tolist(), last.tolist(), sizes.tolist(), strict=True):
            times = f" ({count(end - begin + 1)} times)" if end > begin else ""
            yield {
                "left": start[begin],
                "right": stop[end],
                "top": LANE * lane + FULL + _GAP,
                "bottom": LANE * (lane + 1) - _GAP,
                "color": look.color,
                "worker": shown(worker, 60),
                "what": f"{look.name}{times}{f', {size(together)}' if together else ''}",
            }
