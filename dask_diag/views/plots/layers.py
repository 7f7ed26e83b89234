"""Plots of stacked layers over time: states of the workers, and CPUs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from bokeh.models import BasicTicker, CDSView, ColumnDataSource, LegendItem, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.cpu import CpuLayers
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import OTHER_FUNCTIONS, WorkerLayers, worker_layers
from dask_diag.columns import FloatArray
from dask_diag.formatting import amount
from dask_diag.model.codes import Activity
from dask_diag.views.colors import CPU_LAYERS, OTHER, Look, look_of, stacking_order
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import (
    Options,
    add_legend,
    draw_nothing,
    legend_label,
    new_figure,
    quads,
    set_hover,
)
from dask_diag.views.plots.lines import SPACE, add_limit, label_few_ticks
from dask_diag.views.plots.time_axis import name_phases, shade_phases

BINS = 600
"""Intervals in which a whole recording is shown."""
LEAST = 0.001
"""Share of all workers' time of the smallest layer that is drawn."""
_NAMED_IN_TOOLTIP = 4
_ROUNDING = 1e-6

STRIPES: dict[str, str | float | None] = {
    "fill_color": None,
    "line_color": None,
    "hatch_pattern": "left_diagonal_line",
    "hatch_color": look_of(Activity.NONCPU).color,
    "hatch_scale": 10,
    "hatch_weight": 2,
}
"""Look of a task's time off the CPU, over the color of its function. These stripes rise to the
left: those of scheduling overhead and of unfinished tasks rise to the right."""


class Layer(NamedTuple):
    """A layer, with its height in each interval."""

    look: Look
    heights: FloatArray


def glyph_of(look: Look) -> dict[str, object]:
    """Keywords of a filled glyph; a hatch marks time without work of the program."""
    glyph: dict[str, object] = {"fill_color": look.color}
    if look.hatch:
        glyph |= {
            "fill_alpha": 0.25,
            "hatch_pattern": look.hatch,
            "hatch_color": look.color,
            "hatch_scale": 8,
            "hatch_weight": 1.2,
        }
    return glyph


def _draw_layers(
    plot: figure,
    options: Options,
    edges: FloatArray,
    layers: Sequence[Layer],
    words: tuple[str, str],
) -> None:
    """Stack layers in a figure, the first at the bottom; a legend names them, the top first.

    Parameters
    ----------
    plot : bokeh figure
        The plot; its vertical range ends above all layers.
    options : Options
    edges : array of float
        Edges of the intervals, on the plot's axis.
    layers : sequence of Layer
        At least one.
    words : (str, str)
        The tooltip's word for heights, and its text for an interval without height.
    """
    unit, nothing = words
    heights = np.array([layer.heights for layer in layers])
    # The top of a layer is the bottom of the next: all share one source.
    levels = np.cumsum([np.zeros(len(edges) - 1), *heights], axis=0)
    columns = {str(n): np.append(level, level[-1]) for n, level in enumerate(levels)}
    shared = {"source": ColumnDataSource({"time": edges, **columns}), "view": CDSView()}
    items = []
    for n, layer in enumerate(layers):
        coordinates = {"x": "time", "y1": str(n), "y2": str(n + 1), "step_mode": "after"}
        area = plot.varea_step(**coordinates, **shared, **glyph_of(layer.look))
        items.append(LegendItem(label=legend_label(layer.look.name), renderers=[area]))
    if options.has_legend:
        add_legend(plot, items[::-1])
    # The tooltip is that of the whole height of an interval: it names the largest layers.
    texts = [_text(layers, column) or nothing for column in heights.T]
    bins = quads(
        plot,
        ColumnDataSource({"left": edges[:-1], "right": edges[1:], "what": texts}),
        bottom=0,
        top=float(plot.y_range.end),
        fill_alpha=0,
        line_alpha=0,
    )
    tooltips = [("time", "@left{moment}"), (unit, "@what")]
    set_hover(plot, [bins], tooltips, point_policy="follow_mouse")


def _text(layers: Sequence[Layer], heights: FloatArray) -> str:
    order = np.argsort(-heights, kind="stable")[:_NAMED_IN_TOOLTIP].tolist()
    return ", ".join(
        f"{amount(heights[n])} {layers[n].look.name}" for n in order if heights[n] > _ROUNDING
    )


def _top_of(layers: Sequence[Layer]) -> float:
    """Height of all layers together."""
    return float(np.sum([layer.heights for layer in layers], axis=0).max(initial=0.0))


def layers_of(analysis: Analysis, options: Options) -> list[Layer]:
    """Layers that can be seen, the lowest first; none if no tasks were recorded."""
    if not len(analysis.recording.tasks):
        return []
    functions = analysis.functions["function"].tolist()
    colors = options.colors_of(functions)
    named = [name for name in functions if name in colors]
    made = worker_layers(analysis.recording, analysis.occupancies, named, BINS)
    layers = [
        *(Layer(Look(shown(name, 40), colors[name]), made.functions[name]) for name in named),
        Layer(Look("other functions", OTHER), made.functions[OTHER_FUNCTIONS]),
        *_layers_by_activity(made.of_tasks),
        *layers_without_function(made),
    ]
    least = LEAST * sum(layer.heights.sum() for layer in layers)
    return [layer for layer in layers if layer.heights.sum() > least]


def layers_without_function(made: WorkerLayers) -> Iterator[Layer]:
    """Layers of workers that moved a task's data or had none, the lowest first."""
    yield from _layers_by_activity(made.moving)
    yield from _layers_by_activity(made.free, is_free=True)


def _layers_by_activity(parts: Mapping[str, FloatArray], is_free: bool = False) -> Iterator[Layer]:
    for activity in sorted(parts, key=stacking_order):
        yield Layer(look_of(activity, is_free=is_free), parts[activity])


def plot_workers(analysis: Analysis, layers: Sequence[Layer], options: Options) -> figure:
    """Draw the workers as stacked areas: functions from below, then waiting, then free workers.

    Height is a share of the workers, color a function or an activity. Where there is nothing, no
    computation had these workers.
    """
    recording = analysis.recording
    duration = recording.stop - recording.start
    most = max((occupancy.workers for occupancy in analysis.occupancies), default=1)
    y_range = Range1d(0, max(float(most), _top_of(layers) if layers else 0.0))
    plot = new_figure(options, duration, y_range=y_range, height=220, title=None)
    plot.yaxis.axis_label = "Workers"
    plot.yaxis.ticker = BasicTicker(min_interval=1)
    plot.ygrid.grid_line_color = None
    phases = shade_phases(plot, [recording], recording.start)
    # What a computation is prepared with are layers, which the legend names.
    name_phases(plot, [phase for phase in phases if phase[0] != "preparing" or not layers])
    if layers:
        edges = np.linspace(0.0, duration, BINS + 1)
        _draw_layers(plot, options, edges, layers, ("workers", "none was busy"))
    else:
        draw_nothing(plot)
    return plot


def layers_of_cpu(made: CpuLayers) -> list[Layer]:
    """Layers of CPU use, the lowest first."""
    return [Layer(CPU_LAYERS[name], cpus) for name, cpus in made.cpus.items()]


def plot_cpu(made: CpuLayers, cpus: int, origin: float, options: Options) -> figure:
    """Draw the use of CPUs as stacked areas, and a line at their number.

    Parameters
    ----------
    made : CpuLayers
    cpus : int
        CPUs that the process may use; 0 if not known.
    origin : float
        Start of the axis, in the recording's seconds.
    options : Options
    """
    layers = layers_of_cpu(made)
    y_range = Range1d(0, SPACE * max(float(cpus), _top_of(layers), 0.1))
    edges = made.edges - origin
    plot = new_figure(options, float(edges[-1]), y_range=y_range, height=110, title=None)
    label_few_ticks(plot, "CPUs")
    if layers:
        _draw_layers(plot, options, edges, layers, ("CPUs", "none was used"))
    if cpus:
        add_limit(plot, cpus)
    return plot
