"""The plot of what the scheduler holds: a step line for each function, and one for all."""

from __future__ import annotations

from typing import Any

import numpy as np
from bokeh.models import LegendItem, Range1d

from dask_diag.analysis.levels import Level, levels_held
from dask_diag.recording import Recording
from dask_diag.units import is_size
from dask_diag.views.colors import color_of
from dask_diag.views.figures import (
    Options,
    add_legend,
    draw_nothing,
    formatted,
    label,
    legend_label,
    new_figure,
    number_ticks,
    set_hover,
)
from dask_diag.views.lines import Lines
from dask_diag.views.names import shown

__all__ = ["plot_cache"]

_TOTAL = "#444444"


def plot_cache(recording: Recording, origin: float, duration: float, options: Options) -> Any:
    """Draw how much of the metric the scheduler holds, function by function, over time."""
    levels, total = levels_held(recording, origin)
    plot = new_figure(
        options,
        duration,
        y_range=Range1d(0, 1.05 * total.peak or 10),
        tools="hover,xpan,xwheel_zoom,xbox_zoom,reset,save",
    )
    metric = label(recording.metric or "count", options.label_size)
    plot.yaxis.axis_label = f"Cache Size ({metric})"
    in_bytes = is_size(recording.metric)
    plot.yaxis.formatter = number_ticks("B" if in_bytes else "")
    lines = Lines(plot, "changes")

    def source_of(level: Level) -> Any:
        columns = {"time": level.times, "amount": _compact(level.amounts)}
        return lines.source(columns, drawn=("amount",))

    dots, items = [], []
    if levels:
        drawn = _step(plot, source_of(total), "total", _TOTAL, "dashed")
        dots.append(drawn[1])
        items.append(LegendItem(label="total", renderers=drawn))
    for function, level in levels.items():
        color = color_of(function, options.palette)
        name = shown(function, options.label_size)
        drawn = _step(plot, source_of(level), name, color, "solid")
        dots.append(drawn[1])
        items.append(LegendItem(label=legend_label(function), renderers=drawn))
    if not dots:
        draw_nothing(plot)
        return plot
    add_legend(plot, items, click_policy="hide")
    set_hover(
        plot,
        dots,
        [
            ("function", "$name"),
            ("time", "@time{custom}"),
            ("held", "@amount{custom}"),
        ],
        formatters={
            "@time": formatted("moment"),
            "@amount": formatted("size" if in_bytes else "amount"),
        },
    )
    lines.finish()
    return plot


def _step(plot: Any, source: Any, name: str, color: str, dash: str) -> list[Any]:
    """A line of steps, and where it steps: bokeh's steps do not feel the mouse."""
    line = plot.step(
        "time",
        "amount",
        mode="after",
        source=source,
        name=name,
        line_color=color,
        line_width=2,
        line_dash=dash,
    )
    dots = plot.scatter(
        "time", "amount", source=source, name=name, color=color, size=10, alpha=0, hover_alpha=0.6
    )
    return [line, dots]


def _compact(amounts: Any) -> Any:
    """Whole numbers as integers, where they fit: half the size in the page."""
    whole = np.round(amounts)
    fits = np.array_equal(whole, amounts) and np.abs(whole).max(initial=0) < 2**31
    return whole.astype(np.int32) if fits else amounts
