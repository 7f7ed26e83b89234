"""The plot of tasks: a lane for each worker, a rectangle for each task."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CustomJSHover,
    FixedTicker,
    LegendItem,
    LinearColorMapper,
    Range1d,
    Stack,
)
from bokeh.transform import dodge, transform

from dask_diag.analysis.functions import by_function
from dask_diag.recording import Labels, Recording, Table
from dask_diag.views.colors import colors_of
from dask_diag.views.figures import _LEGEND_LABEL, Options, add_legend, new_figure, set_hover
from dask_diag.views.names import seconds, shown

__all__ = ["plot_tasks"]

_LANE = 320
"""Height of a lane on the y axis: room for a rectangle of `_FULL`, with a gap."""
_FULL = 255
_LANES_THAT_FIT = 12
_OUTLINED_UP_TO = 3000
_EMPTY_LANES = 8


def plot_tasks(recording: Recording, origin: float, duration: float, options: Options) -> Any:
    """Draw each task as a rectangle in the lane of its worker.

    It is filled from below as far as its time was CPU time; its colour is that of its function.
    """
    tasks = recording.tasks
    drawn = tasks.rows(~np.isnan(tasks["start"])) if len(tasks) else tasks
    workers = _workers_in_order(drawn)
    lanes = len(workers) or _EMPTY_LANES
    plot = new_figure(
        options,
        duration,
        height=max(300, 110 + 16 * lanes) if lanes > _LANES_THAT_FIT else 300,
        y_range=Range1d(lanes * _LANE - (_LANE - _FULL) / 2, -(_LANE - _FULL) / 2),
        **({"title": _title(recording)} if len(tasks) else {}),
    )
    _label_lanes(plot, workers or [str(lane) for lane in range(lanes)])
    if len(drawn):
        _draw(plot, recording, drawn, workers, origin, duration, options)
    else:
        set_hover(plot, [], None)
    return plot


def _title(recording: Recording) -> str:
    tasks = recording.tasks
    wall, cpu = np.nansum(tasks["stop"] - tasks["start"]), np.nansum(tasks["thread_cpu"])
    share = f", {cpu / wall:.0%} of it CPU" if wall else ""
    return f"{len(tasks):,} tasks, {seconds(float(wall))} in all{share}"


def _workers_in_order(drawn: Table) -> list[str]:
    """The workers that ran something: by kind, then by number."""
    if not len(drawn):
        return []
    labels: Labels = drawn["worker"]
    names = [labels.values[code] for code in np.unique(labels.codes).tolist()]
    return sorted(names, key=lambda name: (name.partition("-")[0], len(name), name))


def _label_lanes(plot: Any, names: list[str]) -> None:
    every = max(1, len(names) // 60)
    ticks = [lane * _LANE + _FULL / 2 for lane in range(0, len(names), every)]
    plot.yaxis.ticker = FixedTicker(ticks=ticks)
    plot.yaxis.major_label_overrides = dict(zip(ticks, names[::every], strict=True))
    plot.yaxis.axis_label = "Worker"
    plot.yaxis.major_tick_line_color = None
    plot.ygrid.grid_line_color = None


def _draw(
    plot: Any,
    recording: Recording,
    drawn: Table,
    workers: list[str],
    origin: float,
    duration: float,
    options: Options,
) -> None:
    functions: Labels = drawn["function"]
    colors = colors_of(functions.values, options.palette)
    source = ColumnDataSource(_columns(drawn, workers, origin, duration, options))
    mapper = LinearColorMapper(
        palette=colors, low=-0.5, high=len(colors) - 0.5, nan_color="#888888"
    )
    color = transform("function", mapper)
    outline = {"line_color": "white", "line_width": 0.5}
    if len(drawn) > _OUTLINED_UP_TO:
        outline = {"line_color": None}
    place = {"left": "left", "right": "right", "source": source, "fill_color": color}
    bottom = dodge("top", _FULL)
    whole = plot.quad(**place, top="top", bottom=bottom, fill_alpha=0.35, **outline)
    plot.quad(
        **place, top={"expr": Stack(fields=["top", "unfilled"])}, bottom=bottom, **outline
    )
    _mark_exceptional(plot, drawn, source)
    _add_hover(plot, whole, drawn, workers, options)
    order = [name for name in by_function(recording)["function"].tolist()]
    first_rows = dict(zip(reversed(functions.codes.tolist()), range(len(drawn) - 1, -1, -1)))
    add_legend(
        plot,
        [
            LegendItem(
                label=shown(name, _LEGEND_LABEL),
                renderers=[whole],
                index=first_rows[functions.values.index(name)],
            )
            for name in order
            if name in functions.values and functions.values.index(name) in first_rows
        ],
    )


def _columns(
    drawn: Table, workers: list[str], origin: float, duration: float, options: Options
) -> dict[str, Any]:
    """The columns that the page needs, as small as they can be: it may hold many thousand tasks."""
    wall = drawn["stop"] - drawn["start"]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(np.clip(drawn["thread_cpu"] / wall, 0, 1))
    lane_of = np.array(
        [workers.index(name) if name in workers else 0 for name in drawn["worker"].values]
    )
    heads = drawn["key"].heads
    return {
        "left": drawn["start"] - origin,
        "right": np.where(np.isnan(wall), duration, drawn["stop"] - origin),
        "top": (lane_of[drawn["worker"].codes] * _LANE).astype(np.uint32),
        "unfilled": np.round((1 - share) * _FULL).astype(np.uint8),
        "function": drawn["function"].codes,
        "cpu": drawn["thread_cpu"].astype(np.float32),
        "head": heads.codes,
        "tail": [shown(tail, options.label_size) for tail in drawn["key"].tails()],
    }


def _mark_exceptional(plot: Any, drawn: Table, source: ColumnDataSource) -> None:
    """Outline the tasks that failed, hatch those that were not finished."""
    left, right, top = (np.asarray(source.data[name]) for name in ("left", "right", "top"))
    for outcome, look in (
        ("failed", {"line_color": "#d00000", "line_width": 2.5}),
        ("unfinished", {"line_color": "#888888", "hatch_pattern": "/", "hatch_color": "#888888"}),
    ):
        rows = drawn["outcome"].where(outcome)
        if rows.any():
            plot.quad(
                left=left[rows],
                right=right[rows],
                top=top[rows],
                bottom=top[rows] + _FULL,
                fill_color=None,
                **look,
            )


def _add_hover(
    plot: Any, whole: Any, drawn: Table, workers: list[str], options: Options
) -> None:
    limit = options.label_size
    names = {
        "head": [shown(head, limit) for head in drawn["key"].heads.values],
        "function": [shown(name, limit) for name in drawn["function"].values],
    }
    lookups = {
        f"@{column}": CustomJSHover(args={"names": texts}, code="return names[value]")
        for column, texts in names.items()
    }
    lookups["@top"] = CustomJSHover(
        args={"names": workers, "lane": _LANE}, code="return names[Math.round(value / lane)]"
    )
    index = "const {left, right, cpu} = source.data; const i = special_vars.index;"
    formats = "const s = (x) => isNaN(x) ? 'unknown' : x >= 1 ? x.toFixed(3) + ' s' : (1e3 * x).toFixed(3) + ' ms';"
    source = whole.data_source
    for column, code in (
        ("right", "return s(right[i] - left[i])"),
        (
            "cpu",
            "const w = right[i] - left[i];"
            "return s(cpu[i]) + ' CPU (' + (100 * cpu[i] / w).toFixed(0) + '%), '"
            " + s(Math.max(0, w - cpu[i])) + ' non-CPU'",
        ),
        ("left", "return s(left[i])"),
    ):
        lookups[f"@{column}"] = CustomJSHover(args={"source": source}, code=index + formats + code)
    set_hover(
        plot,
        [whole],
        [
            ("key", "@head{custom}@tail"),
            ("function", "@function{custom}"),
            ("start", "@left{custom}"),
            ("duration", "@right{custom}"),
            ("of it", "@cpu{custom}"),
            ("worker", "@top{custom}"),
        ],
        formatters=lookups,
        point_policy="follow_mouse",
    )
