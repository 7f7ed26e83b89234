"""The plot of workers: how many of them computed, waited or were free, over time."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import numpy as np
from bokeh.models import Range1d
from bokeh.plotting import figure

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import OTHER_FUNCTIONS, WorkerLayers, worker_layers
from dask_diag.model.codes import Activity
from dask_diag.views.colors import OTHER, FunctionColors, color_of_activity
from dask_diag.views.escaping import shown
from dask_diag.views.names import name_of_part
from dask_diag.views.plots.figures import Options, draw_nothing, new_figure
from dask_diag.views.plots.lines import Layer, draw_layers, top_of
from dask_diag.views.plots.time_axis import name_phases, shade_phases

_BINS = 600
_LEAST = 0.001
"""Of all workers' time: a layer that has less cannot be seen."""
_HATCHES = {
    Activity.OVERHEAD: "/",
    Activity.GRAPH: ".",
    Activity.STARTUP: ".",
    Activity.PROFILERS: ".",
    Activity.TRANSFER: "\\",
    Activity.SPILL: "v",
    Activity.SERIALIZE: "-",
    Activity.DESERIALIZE: "-",
    Activity.OTHER: "x",
}
"""Of free workers, the lowest first; idle ones are not drawn."""


def hatch_of(activity: str) -> str:
    """The hatch of what workers did that had no task, as bokeh writes it; idle ones have none."""
    return _HATCHES.get(activity, "")


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
    name_phases(plot, shade_phases(plot, [recording], recording.start))
    if not layers:
        draw_nothing(plot)
        return plot
    edges = np.linspace(0.0, duration, _BINS + 1)
    draw_layers(plot, edges, layers, "workers", "none was busy")
    return plot
