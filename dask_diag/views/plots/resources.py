"""The plot of resources: CPU and memory over time."""

from __future__ import annotations

import numpy as np
from bokeh.models import GlyphRenderer, LegendItem, LinearAxis, Range1d
from bokeh.plotting import figure

from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Resources
from dask_diag.views.plots.figures import Options, add_legend, formatted, new_figure, set_hover
from dask_diag.views.plots.lines import Lines

__all__ = ["CPU", "MEMORY", "MEMORY_CHILDREN", "plot_resources"]

CPU = "#4f78b8"
MEMORY = "#c2740c"
"""Both are seen on a white background and on a black one."""
MEMORY_CHILDREN = "#a8763a"
_SHORTEST_INTERVAL = 0.05
_BYTE = 1e-6
"""In MB."""
_UNITS = {
    "cpu": 0.1,
    "delay": 0.01,
    **dict.fromkeys(("memory", "memory_children", "read", "written"), _BYTE),
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
