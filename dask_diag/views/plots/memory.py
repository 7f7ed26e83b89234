"""The plot of memory: the series of a MemorySampler, one after the other or aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from bokeh.models import ColumnDataSource, LegendItem, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.memory_series import series_of
from dask_diag.columns import FloatArray
from dask_diag.formatting import size
from dask_diag.model.recording import Recording
from dask_diag.views.plots.figures import (
    SIZES,
    Options,
    add_legend,
    draw_nothing,
    formatted,
    label,
    legend_label,
    new_figure,
    set_hover,
)
from dask_diag.views.theme.colors import FunctionColors

__all__ = ["figure_of_series", "plot_memory"]

Series = tuple[str, FloatArray, FloatArray]
"""A label, times in seconds, and MB."""


def plot_memory(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw MB of each series as a line, over the time of the recording."""
    return _figure(
        [(name, times - origin, sizes / 1e6) for name, times, sizes in series_of(recording)],
        duration,
        options,
    )


def figure_of_series(
    recording: Recording,
    measures: Mapping[str, str] | None = None,
    align: bool = False,
    **kwargs: Any,
) -> figure:
    """Draw MB of each series; with `align` all start at the left."""
    series = [
        (name, times - (times[:1].sum() if align else recording.start), sizes / 1e6)
        for name, times, sizes in series_of(recording, measures)
    ]
    duration = max((float(times.max(initial=0.0)) for _, times, _ in series), default=1.0)
    options = Options(**kwargs)
    if not SIZES & options.figure.keys():
        # It is shown by itself, in pages that are not fitted to the window otherwise.
        options.figure |= {"sizing_mode": "stretch_width", "max_width": 1000}
    return _figure(series, duration or 1.0, options)


def _figure(series: Sequence[Series], duration: float, options: Options) -> figure:
    top = max((float(sizes.max(initial=0.0)) for _, _, sizes in series), default=0.0)
    title = f"Memory, peak {size(1e6 * top)}" if top else "Memory"
    plot = new_figure(options, duration, y_range=Range1d(0, 1.05 * top or 100), title=title)
    plot.yaxis.axis_label = "Memory (MB)"
    if not any(len(times) for _, times, _ in series):
        draw_nothing(plot)
        return plot
    items, dots = [], []
    for (name, times, sizes), color in zip(series, _colors(series, options), strict=True):
        source = ColumnDataSource({"time": times, "memory": sizes})
        line = plot.line("time", "memory", source=source, color=color, line_width=2)
        # A series can be a single sample, of which a line shows nothing.
        dot = plot.scatter(
            "time",
            "memory",
            source=source,
            color=color,
            size=4,
            name=label(name, options.label_size),
        )
        dots.append(dot)
        items.append(LegendItem(label=legend_label(name), renderers=[line, dot]))
    add_legend(plot, items, click_policy="hide")
    set_hover(
        plot,
        dots,
        [("series", "$name"), ("time", "@time{custom}"), ("memory", "@memory{custom}")],
        formatters={"@time": formatted("moment"), "@memory": formatted("size", "1e6 * value")},
    )
    return plot


def _colors(series: Sequence[Series], options: Options) -> list[str]:
    names = [name for name, _, _ in series]
    colors = FunctionColors(names, options.palette)
    return [colors[name] for name in names]
