"""Figures of a report: over one time axis, with one crosshair, in the same colors."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from math import nan
from typing import cast

import numpy as np
from bokeh.models import GlyphRenderer, Plot
from bokeh.plotting import figure

from dask_diag.analysis.cpu import CpuLayers, cpu_layers
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.functions import functions_by_time
from dask_diag.analysis.groups import rows_by
from dask_diag.analysis.intervals import StepFunction
from dask_diag.columns import IntArray
from dask_diag.formatting import BYTES
from dask_diag.model.table import Table
from dask_diag.views.colors import FunctionColors
from dask_diag.views.drawings import plot_of
from dask_diag.views.lanes import tasks_in_lanes
from dask_diag.views.plots.chunks import plot_rates, plot_runtimes
from dask_diag.views.plots.figures import (
    Options,
    draw_alike,
    empty_source,
    number_ticks,
    quads,
    time_range,
)
from dask_diag.views.plots.flame import TIMELINE
from dask_diag.views.plots.layers import Layer, layers_of, plot_cpu, plot_workers
from dask_diag.views.plots.lines import ProcessMemory, plot_process_memory
from dask_diag.views.plots.tasks import MOST_RECTANGLES, numbers_of_tasks
from dask_diag.views.plots.time_axis import BORDERS, TimeAxis, overview
from dask_diag.views.report.components import Figure

WORKERS = "workers"
"""Name of the figure in which scripts of the page shade findings."""
_SHADE = "#ff8c00"
_WORKERS_HEIGHT, _RESOURCE_HEIGHT = 180, 70
_CHUNKS_HEIGHT, _RATES_HEIGHT = 260, 130
_LANES_HEIGHT, _LANES_BORDER, _LANE_HEIGHT, _SMALLEST_LANE = 160, 12, 26, 12
"""Pixels: with the strip they fit a window of 1280 × 800, below the findings."""
_AXIS_HEIGHT = 22
_LINES_OF_BINNED = 14
"""Pixels of the text below many tasks."""


class Figures:
    """Figures of one recording.

    Parameters
    ----------
    analysis : Analysis
    axis : TimeAxis, optional
        Time axis of the page; by default that of this recording alone.
    colors : FunctionColors, optional
        Colors of functions; by default those of this recording's functions.
    """

    def __init__(
        self,
        analysis: Analysis,
        axis: TimeAxis | None = None,
        colors: FunctionColors | None = None,
    ) -> None:
        self._analysis = analysis
        self._recording = recording = analysis.recording
        self._duration = recording.stop - recording.start or 1.0
        self._axis = axis or TimeAxis(time_range(self._duration))
        self.colors = colors or FunctionColors(functions_by_time([recording]))

    def over_time(self, name: str, **settings: object) -> Figure | None:
        """One of the plots of `dask_diag.views.drawings`, without its legend."""
        options = self._options(**settings)
        options.is_pinnable = True
        options.occupied = self._analysis.occupancies
        plot = plot_of(name, self._recording, options)
        if plot is None:
            return None
        if isinstance(plot, Plot):
            return self._joined(name, plot, f"Plot of {name} over time")
        draw_alike(plot.select(GlyphRenderer))
        return Figure(name, plot, f"Plot of {name} over time")

    def tasks(self) -> Figure | None:
        """A lane for each worker; for many workers, higher than the page shows at once."""
        tasks = self._recording.tasks
        present = np.unique(tasks.worker.codes).tolist()
        lanes = max(sum(tasks.worker.values[code] != "" for code in present), 1)
        fitting = min(_LANES_HEIGHT, _LANES_BORDER + _LANE_HEIGHT * lanes)
        height = max(fitting, _LANES_BORDER + _SMALLEST_LANE * lanes)
        if len(tasks) > MOST_RECTANGLES:
            height += _LINES_OF_BINNED
        return self.over_time("tasks", height=height, toolbar_location=None)

    def chunks(self, table: Table, colors: FunctionColors) -> list[Figure]:
        """Runtime of coffea's chunks against their events, and what they read over time."""
        runtimes = plot_runtimes(table, colors, self._options(height=_CHUNKS_HEIGHT))
        rates = plot_rates(self._recording, self._duration, self._options(height=_RATES_HEIGHT))
        draw_alike(runtimes.renderers)
        return [
            Figure("chunks", runtimes, "Plot of the runtime of chunks against their events"),
            self._joined("rates", rates, "Plot of what was read per second over time"),
        ]

    @cached_property
    def task_numbers(self) -> IntArray:
        """Number of each task in the page; -1 if its start is not known."""
        table = tasks_in_lanes(self._recording, self._recording.start).table
        return numbers_of_tasks(self._recording, table)[:-1]

    def critical_paths(self) -> list[list[int]]:
        """Numbers of the tasks on each computation's critical path, in order."""
        path = self._analysis.critical_path.tasks
        numbers = self.task_numbers[path["task"]]
        rows_of = rows_by(path["computation"])
        paths = [numbers[rows_of[name]] for name in dict.fromkeys(path["computation"].tolist())]
        return [numbers[numbers >= 0].tolist() for numbers in paths]

    def flame(self) -> Figure | None:
        """The flame graph of the time that the page's axis shows."""
        panel = plot_of("flame", self._recording, self._options(toolbar_location="right"))
        if panel is None:
            return None
        description = "Calls, as wide as their time"
        self._joined("", panel.select_one({"name": TIMELINE}), description)
        return Figure("flame", panel, description)

    @cached_property
    def layers(self) -> list[Layer]:
        """Layers of the figure of workers."""
        return layers_of(self._analysis, self._options())

    def workers(self, *, is_shaded: bool = False) -> Figure:
        """Numbers of workers that computed, waited or were free.

        With a source of shaded times, which the figure of one recording has.
        """
        options = self._options(height=_WORKERS_HEIGHT, toolbar_location="right")
        plot = plot_workers(self._analysis, self.layers, options)
        if is_shaded:
            add_shades(plot)
        return self._joined(WORKERS, plot, "Plot of what the workers did over time")

    @cached_property
    def cpu_layers(self) -> CpuLayers | None:
        """Uses of the CPUs; None if not sampled."""
        return cpu_layers(self._recording)

    @property
    def cpus(self) -> int:
        """CPUs that the process may use; 0 if not known."""
        return int(self._recording.computations.cpus.max(initial=0))

    def cpu(self) -> Figure | None:
        """Numbers of CPUs by use."""
        plot = self.plot_of_cpu(self._options(height=_RESOURCE_HEIGHT))
        return plot and self._joined("cpu", plot, "Plot of CPU over time")

    def plot_of_cpu(self, options: Options) -> figure | None:
        """The plot of CPUs; None if not sampled."""
        if self.cpu_layers is None:
            return None
        return plot_cpu(self.cpu_layers, self.cpus, self._recording.start, options)

    @cached_property
    def process_memory(self) -> ProcessMemory:
        """Memory of the processes, with cached results and the limit."""
        recording = self._recording
        limits = recording.computations.memory_limit
        limit = float(np.nanmin(limits)) if (~np.isnan(limits)).any() else nan
        cached: StepFunction | None = None
        if recording.metric_unit == BYTES and len(recording.cached_results):
            total = self._analysis.cached_levels[1]
            cached = StepFunction(total.times - recording.start, total.amounts)
        return ProcessMemory(recording.resources, cached, limit)

    def memory(self) -> Figure | None:
        """Resident memory, cached results, and the limit."""
        if not len(self.process_memory.samples):
            return None
        plot = self.plot_of_memory(self._options(height=_RESOURCE_HEIGHT))
        return self._joined("process-memory", plot, "Plot of memory over time")

    def plot_of_memory(self, options: Options) -> figure:
        """The plot of resident memory."""
        start = self._recording.start
        return plot_process_memory(self.process_memory, start, self._duration, options)

    def overview(self) -> Figure:
        """The whole recording in a strip, in which the shown part can be moved and resized."""
        recording = self._recording
        strip = overview([recording], recording.start, self._axis.range, self._options())
        draw_alike(strip.renderers)
        return Figure("overview", strip, "The whole recording: move or resize the part shown")

    def _options(self, **settings: object) -> Options:
        options = Options()
        options.figure = {
            "sizing_mode": "stretch_width",
            "title": None,
            "x_range": self._axis.range,
            "toolbar_location": None,
            **BORDERS,
            **settings,
        }
        options.colors = self.colors
        options.has_legend = False
        return options

    def _joined(self, name: str, plot: figure, description: str) -> Figure:
        """A figure on the page's axis; names of colors are beside it."""
        plot.xaxis.axis_label = None
        plot.xaxis.formatter = number_ticks("s")
        plot.min_border_top, plot.min_border_bottom = 2, 6
        for legend in plot.legend:
            legend.visible = False
        self._axis.join(plot)
        draw_alike(plot.renderers)
        return Figure(name, plot, description)


def with_one_axis(figures: Sequence[Figure]) -> None:
    """Number the time under the last of several figures only.

    A phone shows only the first figures: the page shows the hidden axis of those there.
    """
    for drawn in figures[:-1]:
        # ``fit_width.js`` knows the tag.
        cast("figure", drawn.model).xaxis[0].update(visible=False, tags=["on a phone"])
    last = cast("figure", figures[-1].model)
    last.height = int(last.height or 0) + _AXIS_HEIGHT


def add_shades(plot: figure) -> None:
    """Add a source whose times a figure shades; a script of the page fills the source."""
    quads(
        plot,
        empty_source("left right", "shades"),
        bottom=float(plot.y_range.start),
        top=float(plot.y_range.end),
        fill_color=_SHADE,
        fill_alpha=0.25,
        line_color=_SHADE,
        line_alpha=0.8,
    )
