"""Plots of lines over time: CPU, memory, series of a memory sampler, cached results."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from bokeh.models import ColumnDataSource, GlyphRenderer, LegendItem, LinearAxis, Range1d, Span
from bokeh.plotting import figure

from dask_diag.analysis.intervals import StepFunction
from dask_diag.analysis.memory import cached_levels, peak_allocations, peak_snapshots, series_of
from dask_diag.columns import Array, FloatArray, IntArray
from dask_diag.formatting import BYTES, size
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Resources
from dask_diag.views.assets import callback
from dask_diag.views.colors import CACHED, CHILDREN, CPU, LIMIT, MEMORY, FunctionColors, Look
from dask_diag.views.escaping import shown
from dask_diag.views.plots.figures import (
    SIZES,
    Options,
    add_legend,
    draw_nothing,
    formatted,
    label,
    legend_label,
    new_figure,
    number_ticks,
    pack,
    set_hover,
    status_below,
)

_MOST_POINTS = 10_000
"""Points of all lines of a figure; more points travel packed."""
_MICROSECOND = 1e-6
_DIGITS = 7
_PRECISION = f"fractions to {_DIGITS} digits of the largest"

Columns = Mapping[str, npt.NDArray[np.generic]]


class LineFigure:
    """Lines of one figure, of which the page draws the points in view.

    Parameters
    ----------
    plot : bokeh figure
    points : str
        The page's word for the points.
    units : mapping of str to float, optional
        Rounding of a column if points are many. Whole numbers of other columns are not rounded,
        fractions to `_DIGITS` digits of the largest.
    precision : str
        The same in words.
    """

    def __init__(
        self,
        plot: figure,
        points: str,
        units: Mapping[str, float] | None = None,
        precision: str = _PRECISION,
    ) -> None:
        self._plot = plot
        self._points = points
        self._units = {"time": _MICROSECOND, **(units or {})}
        self._precision = precision
        self._lines: list[tuple[ColumnDataSource, Columns, Sequence[str]]] = []

    def source(self, columns: Columns, *drawn: str) -> ColumnDataSource:
        """Create a source for one or more lines, which `finish` fills.

        Parameters
        ----------
        columns : mapping of str to array of float
            ``time``, in seconds, ascending, and values at these times.
        *drawn : str
            Columns that are drawn: the page draws their extremes in each pixel.
        """
        source = ColumnDataSource({name: [] for name in columns})
        self._lines.append((source, columns, drawn))
        return source

    def finish(self) -> bool:
        """Fill the sources; return False if the page fills them with the points in view."""
        if sum(len(columns["time"]) for _, columns, _ in self._lines) <= _MOST_POINTS:
            for source, columns, _ in self._lines:
                source.data = dict(columns)
            return True
        arguments = {
            "plot": self._plot,
            "status": status_below(self._plot, self._points),
            "lines": [self._packed(*line) for line in self._lines],
            "points": self._points,
            "most": _MOST_POINTS,
            "precision": f"times to 1 µs, {self._precision}",
        }
        draw = callback("plots/lines.js", "draw_lines", arguments)
        self._plot.js_on_change("inner_width", draw)
        return False

    def _packed(
        self, source: ColumnDataSource, columns: Columns, drawn: Sequence[str]
    ) -> dict[str, object]:
        """Pack steps from point to point, and the indices of unknown values."""
        units, steps = {}, {}
        for name, column in columns.items():
            values = np.asarray(column, dtype=np.float64)
            unknown = np.isnan(values)
            integers, units[name] = _integers(np.where(unknown, 0.0, values), self._units.get(name))
            steps[name] = np.diff(integers, prepend=0)
            steps["unknown " + name] = np.flatnonzero(unknown)
        return {"source": source, "packed": pack(steps), "units": units, "drawn": list(drawn)}


def _integers(values: FloatArray, unit: float | None) -> tuple[IntArray, float]:
    """Values as whole multiples of the largest possible unit, and the unit."""
    if unit is None:
        largest = float(np.abs(values).max(initial=0.0))
        exact = largest < 2**52 and np.array_equal(values, np.round(values))
        unit = 1.0 if exact or not largest else 10.0 ** (np.ceil(np.log10(largest)) - _DIGITS)
    integers = np.round(values / unit).astype(np.int64)
    common = int(np.gcd.reduce(integers)) if len(integers) else 0
    return (integers // common, unit * common) if common > 1 else (integers, unit)


# CPU and memory in one figure with two axes, as dask.diagnostics draws them.

_SHORTEST_INTERVAL = 0.05
_MEGABYTES = ("memory", "memory_children", "read", "written")
_UNITS = {"cpu": 0.1, "delay": 0.01, **dict.fromkeys(_MEGABYTES, 1e-6)}


def plot_resources(
    recording: Recording, origin: float, duration: float, options: Options
) -> figure:
    """Draw per cent of CPU as a step line, left, and MB of memory as a line, right."""
    samples = recording.resources
    columns = {
        "time": samples.time - origin,
        "cpu": _measured_cpu(samples, recording.start),
        "memory": (samples.memory + samples.memory_children) / 1e6,
        "memory_children": samples.memory_children / 1e6,
        "read": samples.read / 1e6,
        "written": samples.written / 1e6,
        "threads": samples.threads,
        "delay": 1e3 * samples.delay,
    }
    top, top_of_memory = (
        max(100, 1.05 * np.nan_to_num(columns[name]).max(initial=0)) for name in ("cpu", "memory")
    )
    plot = new_figure(options, duration, y_range=Range1d(0, top))
    plot.yaxis.axis_label = "% CPU"
    plot.extra_y_ranges = {"memory": Range1d(0, top_of_memory)}
    plot.add_layout(LinearAxis(y_range_name="memory", axis_label="Memory (MB)"), "right")
    lines = LineFigure(plot, "samples", _UNITS, "CPU to 0.1%, how late a sample was to 10 µs")
    source = lines.source(columns, "cpu", "memory", "memory_children")
    right = {"y_range_name": "memory", "source": source}
    steps = plot.step("time", "cpu", mode="before", source=source, color=CPU.color, line_width=2)
    line = plot.line("time", "memory", color=MEMORY.color, line_width=2, **right)
    # A single sample has no line.
    points = plot.scatter("time", "cpu", source=source, color=CPU.color, size=4)
    dots = plot.scatter("time", "memory", color=MEMORY.color, size=4, **right)
    items = [
        LegendItem(label="% CPU", renderers=[steps, points]),
        LegendItem(label="Memory", renderers=[line, dots]),
    ]
    if samples.memory_children.any():
        look = {"color": CHILDREN.color, "line_dash": "dashed", "line_width": 2}
        children = plot.line("time", "memory_children", **look, **right)
        items.append(LegendItem(label=CHILDREN.name, renderers=[children]))
    if options.has_legend:
        add_legend(plot, items, click_policy="hide")
    set_hover(
        plot,
        [points],
        [
            ("time", "@time{moment}"),
            ("CPU", "@cpu{percent: value / 100}"),
            ("memory", "@memory{size: 1e6 * value}"),
            ("in children", "@memory_children{size: 1e6 * value}"),
            ("read, written", "@read{size: 1e6 * value}, @written{size: 1e6 * value}"),
            ("threads", "@threads{count}"),
            ("sample late by", "@delay{seconds: value / 1e3}"),
        ],
        # Many samples may be above and below the mouse.
        mode="vline" if lines.finish() else "mouse",
    )
    return plot


def _measured_cpu(samples: Resources, start: float) -> FloatArray:
    """Per cent of a core; NaN in a sample shortly after the sample before.

    The kernel counts some CPU time by ticks of 4 or 10 ms: over a few ticks, as from the start of
    a computation to its first sample, two CPUs may seem to be three.
    """
    interval = np.diff(samples.time, prepend=start)
    usual = float(np.median(interval)) if len(interval) else 0.0
    return np.where(interval < min(0.5 * usual, _SHORTEST_INTERVAL), np.nan, samples.cpu)


# Memory of processes, on the same axis as cached results.

SPACE = 1.08
"""Height of an axis in highest values: a line at the top is seen."""
_NEAR = 2.0
"""A limit above so many peaks is not drawn: all else would be flat."""
_FEW = 50
"""Samples that are drawn as points on their line."""


class ProcessMemory(NamedTuple):
    """Samples, cached results in bytes if known, and the limit or NaN."""

    samples: Resources
    cached: StepFunction | None
    limit: float

    @property
    def resident(self) -> FloatArray:
        """Bytes of all processes."""
        return self.samples.memory + self.samples.memory_children

    @property
    def peak(self) -> float:
        """Highest known value of the lines."""
        cached = 0.0 if self.cached is None else self.cached.peak
        return float(np.fmax.reduce([*self.resident, cached], initial=0.0))

    @property
    def is_limit_drawn(self) -> bool:
        """Whether the limit is near enough to be drawn."""
        return self.limit <= _NEAR * self.peak

    def key(self) -> Iterator[Look]:
        """Looks of the lines, and the limit, which has no line if it is far away."""
        yield MEMORY._replace(name=f"{MEMORY.name}, peak {size(self.resident.max())}")
        if self.samples.memory_children.any():
            yield CHILDREN
        if self.cached is not None:
            yield CACHED._replace(name=f"{CACHED.name}, peak {size(self.cached.peak)}")
        if not isnan(self.limit):
            name = f"{LIMIT.name} {size(self.limit)}"
            is_drawn = self.is_limit_drawn
            yield LIMIT._replace(name=name) if is_drawn else Look(f"{name}, above the plot", "")


def plot_process_memory(
    memory: ProcessMemory, origin: float, duration: float, options: Options
) -> figure:
    """Draw resident memory, cached results, and the limit if it is near."""
    top = max(memory.peak, memory.limit if memory.is_limit_drawn else 0.0)
    y_range = Range1d(0, SPACE * top or 1e6)
    plot = new_figure(options, duration, y_range=y_range, height=110, title=None)
    label_few_ticks(plot, "Memory")
    plot.yaxis.formatter = number_ticks("B")
    if memory.is_limit_drawn:
        add_limit(plot, memory.limit)
    lines = LineFigure(plot, "samples", {"bytes": 1.0, "children": 1.0}, "memory to a byte")
    dots, drawn = [], {}
    samples = memory.samples
    if len(samples):
        columns = {
            "time": samples.time - origin,
            "bytes": memory.resident,
            "children": samples.memory_children,
        }
        source = lines.source(columns, "bytes", "children")
        line = plot.line("time", "bytes", source=source, color=MEMORY.color, line_width=2)
        drawn[MEMORY.name] = line
        if samples.memory_children.any():
            line = plot.line(
                "time", "children", source=source, color=CHILDREN.color, line_dash="dashed"
            )
            drawn[CHILDREN.name] = line
        # A single sample has no line.
        look = {
            "color": MEMORY.color,
            "size": 5,
            "alpha": float(len(samples) <= _FEW),
            "hover_alpha": 1.0,
        }
        dots.append(plot.scatter("time", "bytes", source=source, name=MEMORY.name, **look))
    level = memory.cached
    if level is not None and len(level.times):
        columns = {"time": level.times, "bytes": np.asarray(level.amounts, dtype=np.float64)}
        source = lines.source(columns, "bytes")
        step = plot.step(
            "time", "bytes", mode="after", source=source, color=CACHED.color, line_width=2
        )
        drawn[CACHED.name] = step
        look = {"color": CACHED.color, "size": 8, "hover_alpha": 0.6, "name": CACHED.name}
        dots.append(plot.scatter("time", "bytes", source=source, alpha=0, **look))
    lines.finish()
    if not dots:
        draw_nothing(plot)
    if options.has_legend:
        items = [LegendItem(label=name, renderers=[line]) for name, line in drawn.items()]
        add_legend(plot, items)
    tooltips = [("what", "$name"), ("time", "@time{moment}"), ("memory", "@bytes{size}")]
    set_hover(plot, dots, tooltips)
    return plot


def label_few_ticks(plot: figure, text: str) -> None:
    """Label the vertical axis of a low figure."""
    plot.yaxis.axis_label = text
    plot.yaxis.ticker.desired_num_ticks = 3


def add_limit(plot: figure, value: float) -> None:
    """Draw a dashed line at a limit."""
    plot.add_layout(
        Span(location=value, dimension="width", line_color=LIMIT.color, line_dash="dashed")
    )


# Series of a memory sampler.

Series = tuple[str, FloatArray, FloatArray]
"""A label, times in seconds, and MB."""
Snapshot = tuple[str, float, float, str]
"""The label of a series, a time in seconds, MB, and allocations in words."""


def plot_memory(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw MB of each series as a line, over the time of the recording."""
    series = [(name, times - origin, sizes / 1e6) for name, times, sizes in series_of(recording)]
    snapshots = _snapshots(recording, series, {name: origin for name, _, _ in series})
    return _plot_series(series, snapshots, duration, options)


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
        # A page with this figure alone is not fitted to the window otherwise.
        options.figure |= {"sizing_mode": "stretch_width", "max_width": 1000}
    snapshots = _snapshots(recording, series, starts)
    return _plot_series(series, snapshots, duration or 1.0, options)


def _snapshots(
    recording: Recording, series: Sequence[Series], starts: Mapping[str, float]
) -> list[Snapshot]:
    """Snapshots of allocations on the line of their series, with the largest allocations."""
    rows = peak_allocations(recording).to_dicts()
    lines = {name: (times, sizes) for name, times, sizes in series}
    return [
        (
            snapshot.label,
            time := snapshot.time - starts[snapshot.label],
            float(np.interp(time, *lines[snapshot.label])),
            ", ".join(
                f"{size(row['bytes'])} {row['function'] or 'unknown'}"
                for row in rows
                if row["label"] == snapshot.label and row["bytes"] >= 0.01 * snapshot.traced
            ),
        )
        for snapshot in peak_snapshots(recording)
        if len(lines.get(snapshot.label, ((),))[0])
    ]


def _plot_series(
    series: Sequence[Series], snapshots: Sequence[Snapshot], duration: float, options: Options
) -> figure:
    peaks = [float(sizes.max(initial=0.0)) for _, _, sizes in series]
    # Between two samples of a series memory may have been higher.
    top = max([*peaks, *(memory for _, _, memory, _ in snapshots)], default=0.0)
    title = f"Memory, peak {size(1e6 * top)}" if top else "Memory"
    plot = new_figure(options, duration, y_range=Range1d(0, 1.05 * top or 100), title=title)
    plot.yaxis.axis_label = "Memory (MB)"
    if not any(len(times) for _, times, _ in series):
        draw_nothing(plot)
        return plot
    colors = FunctionColors([name for name, _, _ in series], options.palette)
    items, dots = [], []
    for name, times, sizes in series:
        source, color = ColumnDataSource({"time": times, "memory": sizes}), colors[name]
        line = plot.line("time", "memory", source=source, color=color, line_width=2)
        # A single sample has no line.
        text = label(name, options.label_size)
        dots.append(plot.scatter("time", "memory", source=source, color=color, size=4, name=text))
        items.append(LegendItem(label=legend_label(name), renderers=[line, dots[-1]]))
    diamonds = [
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
    if diamonds:
        dots += diamonds
        items.append(LegendItem(label="allocations were read", renderers=diamonds))
    if options.has_legend:
        add_legend(plot, items, click_policy="hide")
    memory_in_mb = "@memory{size: 1e6 * value}"
    set_hover(
        plot, dots, [("series", "$name"), ("time", "@time{moment}"), ("memory", memory_in_mb)]
    )
    return plot


# Cached results.

_TOTAL = "#444444"


def plot_cache(recording: Recording, origin: float, duration: float, options: Options) -> figure:
    """Draw the sum of the metric over cached results, by function, over time."""
    levels, total = cached_levels(recording, origin)
    plot = new_figure(options, duration, y_range=Range1d(0, 1.05 * total.peak or 10))
    plot.yaxis.axis_label = f"Cache Size ({label(measured(recording), options.label_size)})"
    plot.yaxis.formatter = number_ticks("B" if recording.metric_unit == BYTES else "")
    if not levels:
        draw_nothing(plot)
        return plot
    lines = LineFigure(plot, "changes")

    def step(level: StepFunction, name: str, color: str, dash: str) -> list[GlyphRenderer]:
        """Draw steps, and points where the level changes: bokeh's steps have no tooltips."""
        source = lines.source({"time": level.times, "amount": _compact(level.amounts)}, "amount")
        shared = {"source": source, "name": name}
        look = {"line_color": color, "line_width": 2, "line_dash": dash}
        points = {"color": color, "size": 10, "alpha": 0, "hover_alpha": 0.6}
        return [
            plot.step("time", "amount", mode="after", **shared, **look),
            plot.scatter("time", "amount", **shared, **points),
        ]

    colors = options.colors_of(levels)
    drawn = [step(total, "total", _TOTAL, "dashed")]
    for function, level in levels.items():
        drawn.append(step(level, shown(function, options.label_size), colors[function], "solid"))
    if options.has_legend:
        names = ["total", *map(legend_label, levels)]
        items = zip(names, drawn, strict=True)
        legend = [LegendItem(label=name, renderers=renderers) for name, renderers in items]
        add_legend(plot, legend, click_policy="hide")
    unit = shown(recording.metric_unit, options.label_size)
    set_hover(
        plot,
        [dots for _, dots in drawn],
        [("function", "$name"), ("time", "@time{moment}"), ("cached", "@amount{custom}")],
        {"@amount": formatted("quantity", "value, unit", unit=unit)},
    )
    lines.finish()
    return plot


def measured(recording: Recording) -> str:
    """The metric of results, with its unit if numbers are shown without the unit."""
    metric, unit = recording.metric or "count", recording.metric_unit
    return metric if unit in ("", BYTES, metric) else f"{metric}, {unit}"


def _compact(amounts: Array) -> Array:
    """Whole numbers as integers of 32 bits, where they fit: half the size in the page."""
    integers = np.round(amounts)
    fits = np.array_equal(integers, amounts) and np.abs(integers).max(initial=0) < 2**31
    return integers.astype(np.int32) if fits else amounts
