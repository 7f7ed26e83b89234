"""The plot of CPU: what used how many CPUs over time."""

from __future__ import annotations

from bokeh.models import Range1d, Span
from bokeh.plotting import figure

from dask_diag.analysis.cpu_layers import (
    OTHERS,
    PROFILERS,
    PROGRAM,
    SCHEDULER,
    TASKS,
    THREADS,
    WORKER_PROCESSES,
    CpuLayers,
)
from dask_diag.schema import Activity
from dask_diag.views.plots.figures import Options, new_figure
from dask_diag.views.plots.layers import Layer, draw_layers, top_of
from dask_diag.views.theme.colors import color_of_activity, color_of_phase

__all__ = ["LIMIT", "layers_of_cpu", "plot_cpu"]

LIMIT = "#cd1a27"
"""The colour of the line that cannot be exceeded."""
_COLORS = {
    TASKS: color_of_activity(Activity.CPU),
    SCHEDULER: color_of_activity(Activity.OVERHEAD),
    THREADS: "#886e1f",
    PROFILERS: "#877af7",
    WORKER_PROCESSES: color_of_activity(Activity.DESERIALIZE),
    PROGRAM: color_of_phase("before"),
    OTHERS: "#a6a6a6",
}
"""Of what only this plot has: neither a function's colour nor that of an activity."""
_HATCHES = {OTHERS: "/"}
_NAMES = {THREADS: "other threads (pools of libraries)"}
_SPACE = 1.08
"""Of the highest value, that its line is seen."""


def layers_of_cpu(made: CpuLayers) -> list[Layer]:
    """The layers, the lowest first."""
    return [
        Layer(_NAMES.get(name, name), _COLORS[name], cpus, _HATCHES.get(name, ""))
        for name, cpus in made.cpus.items()
    ]


def plot_cpu(made: CpuLayers, cpus: int, origin: float, options: Options) -> figure:
    """Draw what used CPUs as stacked areas, and a line at the number of CPUs.

    Parameters
    ----------
    made : CpuLayers
    cpus : int
        Those that the process may use; 0 if not known.
    origin : float
        Where the axis begins, in the recording's seconds.
    options : Options
    """
    layers = layers_of_cpu(made)
    top = max(float(cpus), top_of(layers), 0.1)
    edges = made.edges - origin
    plot = new_figure(
        options,
        float(edges[-1]),
        y_range=Range1d(0, _SPACE * top),
        height=110,
        title=None,
    )
    plot.yaxis.axis_label = "CPUs"
    plot.yaxis.ticker.desired_num_ticks = 3
    plot.yaxis.minor_tick_line_color = None
    if layers:
        draw_layers(plot, edges, layers, "CPUs", "none was used")
    if cpus:
        plot.add_layout(
            Span(location=cpus, dimension="width", line_color=LIMIT, line_dash="dashed")
        )
    return plot
