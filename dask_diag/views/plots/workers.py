"""The plot of workers: how many of them computed, waited or were free, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np
from bokeh.models import BoxAnnotation, ColumnDataSource, Label, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.phases import phase_intervals
from dask_diag.analysis.worker_layers import OTHER_FUNCTIONS, WorkerLayers, worker_layers
from dask_diag.columns import FloatArray
from dask_diag.formatting import amount
from dask_diag.schema import Activity
from dask_diag.views.escaping import shown
from dask_diag.views.part_names import name_of_part
from dask_diag.views.plots.figures import Options, draw_nothing, formatted, new_figure, set_hover
from dask_diag.views.theme.colors import OTHER, FunctionColors, color_of_activity, color_of_phase

__all__ = ["Layer", "add_phases", "layers_of", "plot_workers"]

_BINS = 600
_LEAST = 0.001
"""Of all workers' time: a layer that has less cannot be seen."""
_NARROWEST_NAME = 0.07
"""Of the width: the name of a phase that is narrower would not fit."""
_NAMED_IN_TOOLTIP = 4
_HATCHES = {
    Activity.OVERHEAD: "/",
    Activity.GRAPH: ".",
    Activity.STARTUP: ".",
    Activity.TRANSFER: "\\",
    Activity.SPILL: "v",
    Activity.SERIALIZE: "-",
    Activity.DESERIALIZE: "-",
    Activity.OTHER: "x",
}
"""Of free workers, the lowest first; idle ones are not drawn."""


class Layer(NamedTuple):
    """What some workers did: how many, on average in each bin."""

    name: str
    color: str
    workers: FloatArray
    hatch: str = ""

    @property
    def total(self) -> float:
        """Workers, summed over the bins."""
        return float(self.workers.sum())


def layers_of(analysis: Analysis, options: Options) -> list[Layer]:
    """The layers that can be seen, the lowest first; none if no tasks were recorded."""
    if not len(analysis.recording.tasks):
        return []
    functions = analysis.functions["function"].tolist()
    colors = options.colors_of(functions)
    named = [name for name in functions if name in colors]
    made = worker_layers(analysis.recording, analysis.occupancies, named, _BINS)
    layers = list(_all_layers(made, named, colors))
    total = sum(layer.total for layer in layers) + float(made.free[Activity.IDLE].sum())
    return [layer for layer in layers if layer.total > _LEAST * total]


def _all_layers(
    made: WorkerLayers, named: Sequence[str], colors: FunctionColors
) -> Iterator[Layer]:
    for name in named:
        yield Layer(shown(name, 40), colors[name], made.functions[name])
    yield Layer("other functions", OTHER, made.functions[OTHER_FUNCTIONS])
    yield Layer(name_of_part(Activity.NONCPU), color_of_activity(Activity.NONCPU), made.off_cpu)
    yield Layer("inputs and results moved", color_of_activity(Activity.SERIALIZE), made.moving)
    for activity, hatch in _HATCHES.items():
        if activity in made.free:
            name, color = name_of_part(activity), color_of_activity(activity)
            yield Layer(name, color, made.free[activity], hatch)


def plot_workers(analysis: Analysis, layers: Sequence[Layer], options: Options) -> figure:
    """Draw the workers as stacked areas: functions from below, then waiting, then free workers.

    Height is a share of the workers, colour says what they did. Idle workers are empty space.
    """
    recording = analysis.recording
    duration = recording.stop - recording.start
    most = max((occupancy.workers for occupancy in analysis.occupancies), default=1)
    tops = np.cumsum([layer.workers for layer in layers], axis=0) if layers else np.zeros((1, 1))
    plot = new_figure(
        options,
        duration,
        y_range=Range1d(0, max(float(most), float(tops.max()))),
        height=220,
        title=None,
    )
    plot.yaxis.axis_label = "Workers"
    plot.ygrid.grid_line_color = None
    add_phases(plot, analysis)
    if not layers:
        draw_nothing(plot)
        return plot
    edges = np.linspace(0.0, duration, _BINS + 1)
    bottom = np.zeros(_BINS)
    for layer, top in zip(layers, tops, strict=True):
        _draw(plot, edges, bottom, top, layer)
        bottom = top
    _add_tooltip(plot, edges, layers, tops[-1])
    return plot


def _draw(
    plot: figure, edges: FloatArray, bottom: FloatArray, top: FloatArray, layer: Layer
) -> None:
    """One area of steps; free workers are hatched, so that they are not taken for work."""
    source = ColumnDataSource(
        {"time": edges, "bottom": np.append(bottom, bottom[-1]), "top": np.append(top, top[-1])}
    )
    look: dict[str, object] = {"fill_color": layer.color}
    if layer.hatch:
        look |= {
            "fill_alpha": 0.25,
            "hatch_pattern": layer.hatch,
            "hatch_color": layer.color,
            "hatch_scale": 8,
            "hatch_weight": 1.2,
        }
    plot.varea_step("time", "bottom", "top", source=source, step_mode="after", **look)


def _add_tooltip(plot: figure, edges: FloatArray, layers: Sequence[Layer], top: FloatArray) -> None:
    """Over the whole height of each bin: what is in it, the largest layers first."""
    rows = np.array([layer.workers for layer in layers])
    source = ColumnDataSource(
        {
            "left": edges[:-1],
            "right": edges[1:],
            "what": [_text(layers, rows[:, index]) for index in range(rows.shape[1])],
        }
    )
    bins = plot.quad(
        left="left",
        right="right",
        bottom=0,
        top=float(max(plot.y_range.end, top.max())),
        source=source,
        fill_alpha=0,
        line_alpha=0,
    )
    set_hover(
        plot,
        [bins],
        [("time", "@left{custom}"), ("workers", "@what")],
        formatters={"@left": formatted("moment")},
        point_policy="follow_mouse",
    )


def _text(layers: Sequence[Layer], workers: FloatArray) -> str:
    order = np.argsort(-workers, kind="stable")[:_NAMED_IN_TOOLTIP].tolist()
    parts = [f"{amount(workers[n])} {layers[n].name}" for n in order if workers[n] > 0]
    return ", ".join(parts) or "none was busy"


def add_phases(plot: figure, analysis: Analysis, names: bool = True) -> None:
    """Shade the time before, between and after the tasks of computations, and name it."""
    recording = analysis.recording
    duration = recording.stop - recording.start
    middle = (plot.y_range.start + plot.y_range.end) / 2
    for row in phase_intervals(recording).to_dicts():
        phase, start, stop = row["phase"], row["start"], row["stop"]
        if phase == "tasks":
            continue
        left, right = start - recording.start, stop - recording.start
        plot.add_layout(
            BoxAnnotation(
                left=left,
                right=right,
                fill_color=color_of_phase(phase),
                fill_alpha=0.3,
                line_color=None,
                level="underlay",
                propagate_hover=True,
            )
        )
        if names and right - left >= _NARROWEST_NAME * duration:
            plot.add_layout(
                Label(
                    x=(left + right) / 2,
                    y=middle,
                    text=phase,
                    text_align="center",
                    text_baseline="middle",
                    text_font_size="12px",
                    text_color="#333333",
                )
            )
