"""The figures of a report: over one time axis, with one crosshair, in the same colours."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import cast

import numpy as np
from bokeh.models import ColumnDataSource, GlyphRenderer, Plot
from bokeh.plotting import figure

from dask_diag.analysis.cpu import CpuLayers, cpu_layers
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.functions import functions_by_time
from dask_diag.analysis.groups import rows_by
from dask_diag.analysis.intervals import StepFunction
from dask_diag.columns import IntArray
from dask_diag.formatting import BYTES
from dask_diag.views.colors import FunctionColors
from dask_diag.views.drawings import plot_of
from dask_diag.views.plots.figures import Options, draw_alike, time_range
from dask_diag.views.plots.flame import TIMELINE
from dask_diag.views.plots.layers import Layer, layers_of, plot_cpu, plot_workers
from dask_diag.views.plots.lines import ProcessMemory, plot_process_memory
from dask_diag.views.plots.tasks import MOST_RECTANGLES, numbers_of_tasks, tasks_in_lanes
from dask_diag.views.plots.time_axis import BORDERS, TimeAxis, overview
from dask_diag.views.report.components import Figure

WORKERS = "workers"
"""The name of the figure in which findings are shaded."""
SHADES = "shades"
"""The name of the source of what is shaded there: the page fills it."""
_SHADE = "#ff8c00"
_WORKERS_HEIGHT, _RESOURCE_HEIGHT = 180, 70
_LANES_HEIGHT, _LANES_BORDER, _LANE_HEIGHT, _SMALLEST_LANE = 160, 12, 26, 12
"""Pixels: with the strip they fit a window of 1280 × 800, below the findings."""
_AXIS_HEIGHT = 22
_ON_A_PHONE = "on a phone"
"""The tag that ``fit_width.js`` knows."""
_LINES_OF_BINNED = 14
"""Of the text below many tasks."""


class Figures:
    """The figures of one report.

    Parameters
    ----------
    analysis : Analysis
    axis : TimeAxis, optional
        Of the page; by default one of this recording alone.
    colors : FunctionColors, optional
        Of functions; by default those of this recording's.
    """

    def __init__(
        self,
        analysis: Analysis,
        axis: TimeAxis | None = None,
        colors: FunctionColors | None = None,
    ) -> None:
        recording = analysis.recording
        self._analysis = analysis
        duration = recording.stop - recording.start or 1.0
        self._axis = axis or TimeAxis(time_range(duration))
        self.colors = colors or FunctionColors(functions_by_time([recording]))

    def over_time(self, name: str, **settings: object) -> Figure | None:
        """One of the plots of `dask_diag.views.drawings`, without its legend."""
        options = self._options(**settings)
        options.is_pinnable = True
        options.occupied = self._analysis.occupancies
        plot = plot_of(name, self._analysis.recording, options)
        if plot is None:
            return None
        if isinstance(plot, Plot):
            self._join(plot)
        else:
            draw_alike(plot.select(GlyphRenderer))
        return Figure(name, plot, f"Plot of {name} over time")

    def tasks(self) -> Figure | None:
        """A lane for each worker; of many workers, higher than the page shows at once."""
        tasks = self._analysis.recording.tasks
        present = np.unique(tasks.worker.codes).tolist()
        lanes = max(sum(tasks.worker.values[code] != "" for code in present), 1)
        fitting = min(_LANES_HEIGHT, _LANES_BORDER + _LANE_HEIGHT * lanes)
        height = max(fitting, _LANES_BORDER + _SMALLEST_LANE * lanes)
        if len(tasks) > MOST_RECTANGLES:
            height += _LINES_OF_BINNED
        return self.over_time("tasks", height=height, toolbar_location=None)

    @cached_property
    def task_numbers(self) -> IntArray:
        """The number of each task in the page; -1 where it is not known when it started."""
        recording = self._analysis.recording
        table = tasks_in_lanes(recording, recording.start).table
        return numbers_of_tasks(recording, table)[:-1]

    def critical_paths(self) -> list[list[int]]:
        """Of each computation the numbers of the tasks on its critical path, in order."""
        path = self._analysis.critical_path.tasks
        numbers = self.task_numbers[path["task"]]
        rows_of = rows_by(path["computation"])
        paths = [numbers[rows_of[name]] for name in dict.fromkeys(path["computation"].tolist())]
        return [numbers[numbers >= 0].tolist() for numbers in paths]

    def flame(self) -> Figure | None:
        """The flame graph, which counts what the page's time axis shows."""
        options = self._options(toolbar_location="right")
        panel = plot_of("flame", self._analysis.recording, options)
        if panel is None:
            return None
        self._join(cast("figure", panel.select_one({"name": TIMELINE})))
        return Figure("flame", panel, "Calls, as wide as their time")

    @cached_property
    def layers(self) -> list[Layer]:
        """What workers did, as layers of one figure."""
        return layers_of(self._analysis, self._options())

    def workers(self) -> Figure:
        """How many workers computed, waited or were free."""
        options = self._options(height=_WORKERS_HEIGHT, toolbar_location="right")
        plot = plot_workers(self._analysis, self.layers, options)
        self._join(plot)
        return Figure(WORKERS, plot, "Plot of what the workers did over time")

    def shaded_workers(self) -> Figure:
        """The same, with times shaded that the page puts into a source; a page has one."""
        drawn = self.workers()
        add_shades(cast("figure", drawn.model))
        return drawn

    @cached_property
    def cpu_layers(self) -> CpuLayers | None:
        """What used the CPUs; None if that was not sampled."""
        return cpu_layers(self._analysis.recording)

    def cpu(self) -> Figure | None:
        """How many CPUs were used by what."""
        if self.cpu_layers is None:
            return None
        recording = self._analysis.recording
        cpus = int(recording.computations.cpus.max(initial=0))
        plot = plot_cpu(
            self.cpu_layers, cpus, recording.start, self._options(height=_RESOURCE_HEIGHT)
        )
        self._join(plot)
        return Figure("cpu", plot, "Plot of CPU over time")

    @cached_property
    def process_memory(self) -> ProcessMemory:
        """What is known of the memory of the processes."""
        recording = self._analysis.recording
        limits = recording.computations.memory_limit
        limit = float(np.nanmin(limits)) if (~np.isnan(limits)).any() else float("nan")
        cached: StepFunction | None = None
        if recording.metric_unit == BYTES and len(recording.cached_results):
            total = self._analysis.cached_levels[1]
            cached = StepFunction(total.times - recording.start, total.amounts)
        return ProcessMemory(recording.resources, cached, limit)

    def memory(self) -> Figure | None:
        """The resident memory, cached results, and the limit."""
        recording, memory = self._analysis.recording, self.process_memory
        if not len(memory.samples):
            return None
        duration = recording.stop - recording.start or 1.0
        options = self._options(height=_RESOURCE_HEIGHT)
        plot = plot_process_memory(memory, recording.start, duration, options)
        self._join(plot)
        return Figure("process-memory", plot, "Plot of memory over time")

    def overview(self) -> Figure:
        """The whole recording in a strip, in which the shown part can be moved and resized."""
        recording = self._analysis.recording
        strip = overview([recording], recording.start, self._axis.range, self._options())
        draw_alike(strip.renderers)
        return Figure("overview", strip, "The whole recording: move or resize the part shown")

    def _options(self, **settings: object) -> Options:
        options = Options(
            sizing_mode="stretch_width",
            title=None,
            x_range=self._axis.range,
            toolbar_location=None,
        )
        options.figure |= {**BORDERS, **settings}
        options.colors = self.colors
        options.has_legend = False
        return options

    def _join(self, plot: figure) -> None:
        """Give a figure what all share; the page has the names of the colours."""
        for legend in plot.legend:
            legend.visible = False
        plot.xaxis.axis_label = None
        plot.min_border_top, plot.min_border_bottom = 2, 6
        self._axis.join(plot)
        draw_alike(plot.renderers)


def with_one_axis(figures: Sequence[Figure]) -> None:
    """Number the time under the last of figures that stand below each other, for all of them.

    A phone shows only the first ones: the page shows the hidden axis of those there.
    """
    for drawn in figures[:-1]:
        axis = cast("figure", drawn.model).xaxis[0]
        axis.update(visible=False, tags=[_ON_A_PHONE])
    last = cast("figure", figures[-1].model)
    last.height = int(last.height or 0) + _AXIS_HEIGHT


def add_shades(plot: figure) -> None:
    """Have a figure shade the times that the page puts into a source, over its whole height."""
    plot.quad(
        left="left",
        right="right",
        bottom=float(plot.y_range.start),
        top=float(plot.y_range.end),
        source=ColumnDataSource({"left": [], "right": []}, name=SHADES),
        fill_color=_SHADE,
        fill_alpha=0.25,
        line_color=_SHADE,
        line_alpha=0.8,
    )
