"""The plot of cached results: a step line for each function, and one for all."""

from __future__ import annotations

import numpy as np
from bokeh.models import ColumnDataSource, GlyphRenderer, LegendItem, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.intervals import StepFunction
from dask_diag.analysis.memory import cached_levels
from dask_diag.columns import Array
from dask_diag.formatting import BYTES
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import (
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
from dask_diag.views.plots.lines import Lines

_TOTAL = "#444444"


def plot_cache(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw the sum of the metric over cached results, by function, over time."""
    levels, total = cached_levels(recording, origin)
    plot = new_figure(
        options,
        duration,
        y_range=Range1d(0, 1.05 * total.peak or 10),
    )
    in_bytes = recording.metric_unit == BYTES
    plot.yaxis.axis_label = f"Cache Size ({label(measured(recording), options.label_size)})"
    plot.yaxis.formatter = number_ticks("B" if in_bytes else "")
    lines = Lines(plot, "changes")

    def source_of(level: StepFunction) -> ColumnDataSource:
        columns = {"time": level.times, "amount": _compact(level.amounts)}
        return lines.source(columns, drawn=("amount",))

    dots, items = [], []
    if levels:
        drawn = _step(plot, source_of(total), "total", _TOTAL, "dashed")
        dots.append(drawn[1])
        items.append(LegendItem(label="total", renderers=drawn))
    colors = options.colors_of(levels)
    for function, level in levels.items():
        color = colors[function]
        name = shown(function, options.label_size)
        drawn = _step(plot, source_of(level), name, color, "solid")
        dots.append(drawn[1])
        items.append(LegendItem(label=legend_label(function), renderers=drawn))
    if not dots:
        draw_nothing(plot)
        return plot
    if options.has_legend:
        add_legend(plot, items, click_policy="hide")
    set_hover(
        plot,
        dots,
        [
            ("function", "$name"),
            ("time", "@time{custom}"),
            ("cached", "@amount{custom}"),
        ],
        formatters={
            "@time": formatted("moment"),
            "@amount": formatted(
                "quantity", "value, unit", unit=shown(recording.metric_unit, options.label_size)
            ),
        },
    )
    lines.finish()
    return plot


def measured(recording: Recording) -> str:
    """What results were measured by: the metric, and its unit if numbers are shown without it."""
    metric, unit = recording.metric or "count", recording.metric_unit
    return metric if unit in ("", BYTES, metric) else f"{metric}, {unit}"


def _step(
    plot: figure, source: ColumnDataSource, name: str, color: str, dash: str
) -> list[GlyphRenderer]:
    """A line of steps, and dots where it steps: bokeh's step lines have no tooltips."""
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


def _compact(amounts: Array) -> Array:
    """Whole numbers as integers, where they fit: half the size in the page."""
    integers = np.round(amounts)
    fits = np.array_equal(integers, amounts) and np.abs(integers).max(initial=0) < 2**31
    return integers.astype(np.int32) if fits else amounts
