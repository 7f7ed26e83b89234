"""The plots of CPU, memory and bytes moved over time."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from bokeh.models import GlyphRenderer, LegendItem, LinearAxis, Range1d, Span
from bokeh.plotting import figure

from dask_diag.analysis.cpu import (
    OTHERS,
    PROFILERS,
    PROGRAM,
    SCHEDULER,
    TASKS,
    THREADS,
    WORKER_PROCESSES,
    CpuLayers,
)
from dask_diag.analysis.intervals import StepFunction
from dask_diag.columns import FloatArray
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Resources
from dask_diag.views.colors import color_of_activity, color_of_phase
from dask_diag.views.plots.figures import (
    Options,
    add_legend,
    draw_nothing,
    formatted,
    new_figure,
    number_ticks,
    set_hover,
)
from dask_diag.views.plots.lines import Layer, Lines, draw_layers, top_of

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


RESIDENT = "#c2740c"
CHILDREN = "#a8763a"
CACHED = "#00757e"
"""Each is seen on a light and on a dark page."""
_NEAR = 2.0
"""A limit of up to so many times the peak is in view; a higher one would flatten all else."""
_BYTE = 1.0
_FEW = 50
"""Samples that are points on their line; of more the line says enough."""


class ProcessMemory(NamedTuple):
    """What is drawn: samples, cached results in bytes if they are known, and a limit or NaN."""

    samples: Resources
    cached: StepFunction | None
    limit: float

    @property
    def resident(self) -> FloatArray:
        """Of all processes, in bytes."""
        return self.samples.memory + self.samples.memory_children

    @property
    def peak(self) -> float:
        """Of what is drawn; what is not known is not."""
        cached = 0.0 if self.cached is None else self.cached.peak
        return float(np.fmax.reduce([*self.resident, cached], initial=0.0))


def limit_in_view(memory: ProcessMemory) -> bool:
    """Whether the limit is so near that it is drawn."""
    return memory.limit <= _NEAR * memory.peak


def plot_process_memory(
    memory: ProcessMemory, origin: float, duration: float, options: Options
) -> figure:
    """Draw resident memory, cached results, and the limit if it is near."""
    top = max(memory.peak, memory.limit if limit_in_view(memory) else 0.0)
    plot = new_figure(
        options, duration, y_range=Range1d(0, _SPACE * top or 1e6), height=110, title=None
    )
    plot.yaxis.axis_label = "Memory"
    plot.yaxis.formatter = number_ticks("B")
    plot.yaxis.ticker.desired_num_ticks = 3
    plot.yaxis.minor_tick_line_color = None
    if limit_in_view(memory):
        limit = Span(location=memory.limit, dimension="width", line_color=LIMIT)
        limit.line_dash = "dashed"
        plot.add_layout(limit)
    units = dict.fromkeys(("bytes", "children"), _BYTE)
    lines = Lines(plot, "samples", units, "memory to a byte")
    drawn = [_resident(plot, lines, memory, origin)] if len(memory.samples) else []
    if memory.cached is not None and len(memory.cached.times):
        drawn.append(_cached(plot, lines, memory.cached))
    lines.finish()
    if not drawn:
        draw_nothing(plot)
    set_hover(
        plot,
        drawn,
        [("what", "$name"), ("time", "@time{custom}"), ("memory", "@bytes{custom}")],
        formatters={"@time": formatted("moment"), "@bytes": formatted("size")},
    )
    return plot


def _resident(plot: figure, lines: Lines, memory: ProcessMemory, origin: float) -> GlyphRenderer:
    samples = memory.samples
    source = lines.source(
        {
            "time": samples.time - origin,
            "bytes": memory.resident,
            "children": samples.memory_children,
        },
        drawn=("bytes", "children"),
    )
    plot.line("time", "bytes", source=source, color=RESIDENT, line_width=2)
    if samples.memory_children.any():
        plot.line("time", "children", source=source, color=CHILDREN, line_dash="dashed")
    # Samples can be few: a single one would leave no line to see.
    strength = 1.0 if len(samples) <= _FEW else 0.0
    return plot.scatter(
        "time",
        "bytes",
        source=source,
        color=RESIDENT,
        size=5,
        alpha=strength,
        hover_alpha=1.0,
        name="resident memory",
    )


def _cached(plot: figure, lines: Lines, level: StepFunction) -> GlyphRenderer:
    source = lines.source(
        {"time": level.times, "bytes": np.asarray(level.amounts, dtype=np.float64)},
        drawn=("bytes",),
    )
    plot.step("time", "bytes", mode="after", source=source, color=CACHED, line_width=2)
    return plot.scatter(
        "time",
        "bytes",
        source=source,
        color=CACHED,
        size=8,
        alpha=0,
        hover_alpha=0.6,
        name="cached results",
    )


CPU = "#4f78b8"
MEMORY = "#c2740c"
"""Both are seen on a white background and on a black one."""
MEMORY_CHILDREN = "#a8763a"
_SHORTEST_INTERVAL = 0.05
_MEGABYTES = 1e-6
"""In MB."""
_UNITS = {
    "cpu": 0.1,
    "delay": 0.01,
    **dict.fromkeys(("memory", "memory_children", "read", "written"), _MEGABYTES),
}
_PRECISION = "CPU to 0.1%, how late a sample was to 10 µs"


def plot_resources(
    recording: Recording, origin: float, duration: float, options: Options
) -> figure:
    """Draw per cent of CPU as a step line, left, and MB of memory as a line, right."""
    samples = recording.resources
    memory = (samples.memory + samples.memory_children) / 1e6
    cpu = _measured_cpu(samples, recording.start)
    plot = new_figure(
        options,
        duration,
        y_range=Range1d(0, max(100, 1.05 * np.nan_to_num(cpu).max(initial=0))),
    )
    plot.yaxis.axis_label = "% CPU"
    plot.extra_y_ranges = {"memory": Range1d(0, max(100, 1.05 * memory.max(initial=0)))}
    plot.add_layout(LinearAxis(y_range_name="memory", axis_label="Memory (MB)"), "right")
    lines = Lines(plot, "samples", _UNITS, _PRECISION)
    source = lines.source(
        _columns(samples, cpu, memory, origin), drawn=("cpu", "memory", "memory_children")
    )
    steps = plot.step("time", "cpu", mode="before", source=source, color=CPU, line_width=2)
    line = plot.line(
        "time", "memory", source=source, color=MEMORY, y_range_name="memory", line_width=2
    )
    # Samples can be few: a single one would leave no line to see.
    points = plot.scatter("time", "cpu", source=source, color=CPU, size=4)
    dots = plot.scatter(
        "time", "memory", source=source, color=MEMORY, y_range_name="memory", size=4
    )
    items = [
        LegendItem(label="% CPU", renderers=[steps, points]),
        LegendItem(label="Memory", renderers=[line, dots]),
    ]
    if samples.memory_children.any():
        children = plot.line(
            "time",
            "memory_children",
            source=source,
            color=MEMORY_CHILDREN,
            line_dash="dashed",
            y_range_name="memory",
            line_width=2,
        )
        items.append(LegendItem(label="of it in children", renderers=[children]))
    if options.has_legend:
        add_legend(plot, items, click_policy="hide")
    # Above and below the mouse there may be many.
    _add_tooltip(plot, points, mode="vline" if lines.finish() else "mouse")
    return plot


def _add_tooltip(plot: figure, points: GlyphRenderer, mode: str) -> None:
    megabytes = formatted("size", "1e6 * value")
    set_hover(
        plot,
        [points],
        [
            ("time", "@time{custom}"),
            ("CPU", "@cpu{custom}"),
            ("memory", "@memory{custom}"),
            ("in children", "@memory_children{custom}"),
            ("read, written", "@read{custom}, @written{custom}"),
            ("threads", "@threads{custom}"),
            ("sample late by", "@delay{custom}"),
        ],
        formatters={
            "@time": formatted("moment"),
            "@cpu": formatted("percent", "value / 100"),
            **dict.fromkeys(("@memory", "@memory_children", "@read", "@written"), megabytes),
            "@threads": formatted("count"),
            "@delay": formatted("seconds", "value / 1e3"),
        },
        mode=mode,
    )


def _measured_cpu(samples: Resources, start: float) -> FloatArray:
    """Per cent of a core; unknown for a sample that came right after the one before it.

    The kernel counts some CPU time by ticks of 4 or 10 ms: over a few of them, as from the start of
    a computation to its first sample, two CPUs may seem to be three.
    """
    interval = np.diff(samples.time, prepend=start)
    usual = float(np.median(interval)) if len(interval) else 0.0
    return np.where(interval < min(0.5 * usual, _SHORTEST_INTERVAL), np.nan, samples.cpu)


def _columns(
    samples: Resources, cpu: FloatArray, memory: FloatArray, origin: float
) -> dict[str, FloatArray]:
    return {
        "time": samples.time - origin,
        "cpu": cpu,
        "memory": memory,
        "memory_children": samples.memory_children / 1e6,
        "read": samples.read / 1e6,
        "written": samples.written / 1e6,
        "threads": samples.threads,
        "delay": 1e3 * samples.delay,
    }
