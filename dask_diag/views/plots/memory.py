"""The plot of memory: the series of a MemorySampler, one after the other or aligned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from bokeh.models import ColumnDataSource, GlyphRenderer, LegendItem, Range1d
from bokeh.plotting import figure

from dask_diag.analysis.memory import peak_allocations, peak_snapshots, series_of
from dask_diag.columns import FloatArray
from dask_diag.formatting import size
from dask_diag.model.recording import Recording
from dask_diag.views.colors import FunctionColors
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

Series = tuple[str, FloatArray, FloatArray]
"""A label, times in seconds, and MB."""
Snapshot = tuple[str, float, float, str]
"""The label of a series, a time in seconds, MB, and what was allocated then."""


def plot_memory(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw MB of each series as a line, over the time of the recording."""
    series = [(name, times - origin, sizes / 1e6) for name, times, sizes in series_of(recording)]
    snapshots = _snapshots(recording, series, {name: origin for name, _, _ in series})
    return _figure(series, snapshots, duration, options)


def figure_of_series(
    recording: Recording,
    measures: Mapping[str, str] | None = None,
    align: bool = False,
    **kwargs: Any,
) -> figure:
    """Draw MB of each series; with `align` all start at the left."""
    series, starts = [], {}
    for name, times, sizes in series_of(recording, measures):
        starts[name] = float(times[:1].sum()) if align else recording.start
        series.append((name, times - starts[name], sizes / 1e6))
    duration = max((float(times.max(initial=0.0)) for _, times, _ in series), default=1.0)
    options = Options(**kwargs)
    if not SIZES & options.figure.keys():
        # It is shown by itself, in pages that are not fitted to the window otherwise.
        options.figure |= {"sizing_mode": "stretch_width", "max_width": 1000}
    return _figure(series, _snapshots(recording, series, starts), duration or 1.0, options)


def _snapshots(
    recording: Recording, series: Sequence[Series], starts: Mapping[str, float]
) -> list[Snapshot]:
    """When allocations were read, on the line of their series, and the largest of them."""
    rows = peak_allocations(recording).to_dicts()
    lines = {name: (times, sizes) for name, times, sizes in series}
    return [
        (
            snapshot.label,
            snapshot.time - starts[snapshot.label],
            float(np.interp(snapshot.time - starts[snapshot.label], *lines[snapshot.label])),
            ", ".join(
                f"{size(row['bytes'])} {row['function'] or 'unknown'}"
                for row in rows
                if row["label"] == snapshot.label and row["bytes"] >= 0.01 * snapshot.traced
            ),
        )
        for snapshot in peak_snapshots(recording)
        if len(lines.get(snapshot.label, ((),))[0])
    ]


def _drawn_snapshots(
    plot: figure, snapshots: Sequence[Snapshot], options: Options
) -> list[GlyphRenderer]:
    """A diamond for each."""
    return [
        plot.scatter(
            "time",
            "memory",
            source=ColumnDataSource({"time": [time], "memory": [memory]}),
            marker="diamond",
            size=12,
            color="#888888",
            name=label(f"{name}; in use: {text}", max(options.label_size, 200)),
        )
        for name, time, memory, text in snapshots
    ]


def _figure(
    series: Sequence[Series], snapshots: Sequence[Snapshot], duration: float, options: Options
) -> figure:
    peaks = [float(sizes.max(initial=0.0)) for _, _, sizes in series]
    # Between two samples of a series it may have been higher.
    top = max([*peaks, *(memory for _, _, memory, _ in snapshots)], default=0.0)
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
    diamonds = _drawn_snapshots(plot, snapshots, options)
    if diamonds:
        dots += diamonds
        items.append(LegendItem(label="allocations were read", renderers=diamonds))
    if options.has_legend:
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
