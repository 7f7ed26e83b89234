"""The plot of workers: how many of them computed, waited or were free, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from bokeh.models import BoxAnnotation, Label, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.phases import phase_intervals
from dask_diag.analysis.worker_layers import OTHER_FUNCTIONS, WorkerLayers, worker_layers
from dask_diag.schema import Activity
from dask_diag.views.assets import callback
from dask_diag.views.escaping import shown
from dask_diag.views.part_names import name_of_part
from dask_diag.views.plots.figures import Options, draw_nothing, new_figure
from dask_diag.views.plots.layers import Layer, draw_layers, top_of
from dask_diag.views.theme.colors import OTHER, FunctionColors, color_of_activity, color_of_phase

__all__ = ["layers_of", "layers_without_task", "plot_workers"]

_BINS = 600
_LEAST = 0.001
"""Of all workers' time: a layer that has less cannot be seen."""
_MOST_NAMES = 50
"""Phases that may be named: there are several for each computation."""
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
    yield from layers_without_task(made)


def layers_without_task(made: WorkerLayers) -> Iterator[Layer]:
    """What workers did that had no task, the lowest first; idle ones are not drawn."""
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
    plot = new_figure(
        options,
        duration,
        y_range=Range1d(0, max(float(most), top_of(layers) if layers else 0.0)),
        height=220,
        title=None,
    )
    plot.yaxis.axis_label = "Workers"
    plot.ygrid.grid_line_color = None
    _add_phases(plot, analysis)
    if not layers:
        draw_nothing(plot)
        return plot
    edges = np.linspace(0.0, duration, _BINS + 1)
    draw_layers(plot, edges, layers, "workers", "none was busy")
    return plot


def _add_phases(plot: figure, analysis: Analysis) -> None:
    """Shade the time before, between and after the tasks of computations; name it if it fits."""
    recording = analysis.recording
    middle = (plot.y_range.start + plot.y_range.end) / 2
    names: list[dict[str, object]] = []
    rows = phase_intervals(recording).to_dicts()
    longest = sorted((row["stop"] - row["start"] for row in rows), reverse=True)[:_MOST_NAMES]
    for row in rows:
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
        if stop - start < longest[-1]:
            continue
        # The page shows those that fit: how many pixels it has is not known here.
        label = Label(
            x=(left + right) / 2,
            y=middle,
            text=phase,
            text_align="center",
            text_baseline="middle",
            text_font_size="12px",
            text_color="#333333",
            visible=False,
        )
        plot.add_layout(label)
        names.append({"label": label, "left": left, "right": right})
    place = callback("plots/phases.js", "name_phases", {"plot": plot, "phases": names})
    plot.js_on_change("inner_width", place)
