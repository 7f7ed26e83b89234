"""The plot of tasks: a lane for each worker, a rectangle for each task."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    FixedTicker,
    LegendItem,
    LinearColorMapper,
    Range1d,
    Stack,
)
from bokeh.transform import dodge, transform

from dask_diag.analysis.functions import by_function
from dask_diag.columns import Labels
from dask_diag.recording import Recording, Table
from dask_diag.views.colors import colors_of
from dask_diag.views.figures import Options, add_legend, draw_nothing, legend_label, new_figure
from dask_diag.views.names import seconds, shown
from dask_diag.views.task_hover import tell_of_tasks

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
        source = ColumnDataSource(_columns(recording, drawn, workers, origin, options))
        colors = colors_of(drawn["function"].values, options.palette)
        whole, filled = _draw_rectangles(plot, source, colors)
        _mark_exceptional(plot, drawn, source)
        _add_legend(plot, filled, recording, drawn["function"])
        names = {
            "head": [shown(head, options.label_size) for head in drawn["key"].heads.values],
            "function": [shown(name, options.label_size) for name in drawn["function"].values],
        }
        tell_of_tasks(plot, whole, names, workers, lane_height=_LANE)
    else:
        draw_nothing(plot)
    return plot


def _title(recording: Recording) -> str:
    tasks = recording.tasks
    wall, cpu = np.nansum(tasks["stop"] - tasks["start"]), np.nansum(tasks["thread_cpu"])
    share = f", {cpu / wall:.0%} of it CPU (the filled part of each task)" if wall else ""
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


def _columns(
    recording: Recording, drawn: Table, workers: list[str], origin: float, options: Options
) -> dict[str, Any]:
    """What the page needs of each task, as small as it can be: there may be many thousand."""
    wall = drawn["stop"] - drawn["start"]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = np.nan_to_num(np.clip(drawn["thread_cpu"] / wall, 0, 1))
    lanes = np.array([workers.index(n) if n in workers else 0 for n in drawn["worker"].values])
    return {
        "left": drawn["start"] - origin,
        "right": np.where(np.isnan(wall), _ends(recording, drawn), drawn["stop"]) - origin,
        "top": (lanes[drawn["worker"].codes] * _LANE).astype(np.uint32),
        "unfilled": np.round((1 - share) * _FULL).astype(np.uint8),
        "function": drawn["function"].codes,
        "cpu": drawn["thread_cpu"].astype(np.float32),
        "head": drawn["key"].heads.codes,
        "tail": [shown(tail, options.label_size) for tail in drawn["key"].tails()],
    }


def _ends(recording: Recording, drawn: Table) -> Any:
    """When the compute of each task ended: as far as one that was not finished is drawn."""
    computes = recording.computes
    stops = dict(zip(computes["compute"].tolist(), computes["stop"].tolist(), strict=True))
    ends = np.array([stops.get(name, recording.stop) for name in drawn["compute"].values])
    return ends[drawn["compute"].codes]


def _draw_rectangles(plot: Any, source: ColumnDataSource, colors: list[str]) -> tuple[Any, Any]:
    """Draw each task twice: the whole of it pale, and over it, from below, the share of CPU."""
    mapper = LinearColorMapper(palette=colors, low=-0.5, high=len(colors) - 0.5)
    outlined = len(source.data["left"]) <= _OUTLINED_UP_TO
    look = {
        "left": "left",
        "right": "right",
        "bottom": dodge("top", _FULL),
        "source": source,
        "fill_color": transform("function", mapper),
        "line_color": "white" if outlined else None,
        "line_width": 0.5,
    }
    whole = plot.quad(top="top", fill_alpha=0.35, **look)
    return whole, plot.quad(top={"expr": Stack(fields=["top", "unfilled"])}, **look)


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


def _add_legend(plot: Any, renderer: Any, recording: Recording, functions: Labels) -> None:
    """Name the functions' colours, those that took longest first."""
    present, first_rows = np.unique(functions.codes, return_index=True)
    row_of = {functions.values[code]: row for code, row in zip(present, first_rows, strict=True)}
    add_legend(
        plot,
        [
            LegendItem(label=legend_label(name), renderers=[renderer], index=int(row_of[name]))
            for name in by_function(recording)["function"].tolist()
            if name in row_of
        ],
    )
