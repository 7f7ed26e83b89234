"""The plot of the processes' memory over time: resident, cached results, and the limit."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from bokeh.models import GlyphRenderer, Range1d, Span
from bokeh.plotting import figure

from dask_diag.analysis.step_functions import Level
from dask_diag.columns import FloatArray
from dask_diag.model.tables import Resources
from dask_diag.views.plots.cpu import LIMIT
from dask_diag.views.plots.figures import (
    Options,
    draw_nothing,
    formatted,
    new_figure,
    number_ticks,
    set_hover,
)
from dask_diag.views.plots.lines import Lines

__all__ = [
    "CACHED",
    "CHILDREN",
    "RESIDENT",
    "ProcessMemory",
    "limit_in_view",
    "plot_process_memory",
]

RESIDENT = "#c2740c"
CHILDREN = "#a8763a"
CACHED = "#00757e"
"""Each is seen on a light and on a dark page."""
_SPACE = 1.08
_NEAR = 2.0
"""A limit of up to so many times the peak is in view; a higher one would flatten all else."""
_BYTE = 1.0
_FEW = 50
"""Samples that are points on their line; of more the line says enough."""


class ProcessMemory(NamedTuple):
    """What is drawn: samples, cached results in bytes if they are known, and a limit or NaN."""

    samples: Resources
    cached: Level | None
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


def _cached(plot: figure, lines: Lines, level: Level) -> GlyphRenderer:
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
