"""The figures of a report: over one time axis, with one crosshair, in the same colours."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property

from bokeh.models import (
    BoxAnnotation,
    ColumnDataSource,
    CrosshairTool,
    Plot,
    Range1d,
    RangeTool,
    Span,
    WheelZoomTool,
)
from bokeh.plotting import figure

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.functions import functions_by_time
from dask_diag.views.drawings import plot_of
from dask_diag.views.plots.figures import Options, new_figure
from dask_diag.views.plots.workers import Layer, add_phases, layers_of, plot_workers
from dask_diag.views.report.components import Figure
from dask_diag.views.theme.colors import FunctionColors

__all__ = ["WORKERS", "Figures"]

WORKERS = "workers"
"""The name of the figure in which findings are shaded."""

_SHORTEST_VIEW = 1e-6
"""Seconds: nobody can zoom further in."""
_BORDERS = {"min_border_left": 86, "min_border_right": 64}
"""Equal, so that a moment is at the same place in each figure."""


class Figures:
    """The figures of one report.

    Parameters
    ----------
    analysis : Analysis
    """

    def __init__(self, analysis: Analysis) -> None:
        recording = analysis.recording
        self._analysis = analysis
        duration = recording.stop - recording.start or 1.0
        self._time = Range1d(0, duration, bounds=(0, duration), min_interval=_SHORTEST_VIEW)
        self._shades: list[BoxAnnotation] = []
        self._crosshair = Span(
            dimension="height", line_color="#888888", line_width=1, line_dash="dotted"
        )

    @cached_property
    def colors(self) -> FunctionColors:
        """The colours of functions."""
        return FunctionColors(functions_by_time([self._analysis.recording]))

    def over_time(self, name: str, **settings: object) -> Figure | None:
        """One of the plots of `dask_diag.views.drawings`, without its legend."""
        plot = plot_of(name, self._analysis.recording, self._options(**settings))
        if plot is None:
            return None
        if isinstance(plot, Plot):
            self._join(plot)
        return Figure(name, plot, f"Plot of {name} over time")

    def flame(self) -> Figure | None:
        """The flame graph, which has its own axis."""
        options = Options()
        options.colors = self.colors
        plot = plot_of("flame", self._analysis.recording, options)
        return None if plot is None else Figure("flame", plot, "Flame graph")

    @cached_property
    def layers(self) -> list[Layer]:
        """What workers did, as layers of one figure."""
        return layers_of(self._analysis, self._options())

    def shade(self, name: str, intervals: Iterable[tuple[float, float]]) -> None:
        """Have the plot of workers shade these times when the page asks for that name."""
        start = self._analysis.recording.start
        self._shades += [
            BoxAnnotation(
                left=left - start,
                right=right - start,
                name=name,
                visible=False,
                fill_color="#ff8c00",
                fill_alpha=0.25,
                line_color="#ff8c00",
                line_alpha=0.8,
                propagate_hover=True,
            )
            for left, right in intervals
        ]

    def workers(self) -> Figure:
        """How many workers computed, waited or were free."""
        options = self._options(height=220, toolbar_location="above")
        plot = plot_workers(self._analysis, self.layers, options)
        self._join(plot)
        for shade in self._shades:
            plot.add_layout(shade)
        return Figure(WORKERS, plot, "Plot of what the workers did over time")

    def overview(self) -> Figure:
        """The whole recording in a strip, in which the shown part can be moved and resized."""
        analysis = self._analysis
        duration = analysis.recording.stop - analysis.recording.start or 1.0
        options = self._options(
            height=52,
            tools="",
            x_range=Range1d(0, duration),
            y_range=Range1d(0, 1),
            min_border_top=2,
        )
        strip = new_figure(options, duration)
        strip.yaxis.visible = False
        strip.ygrid.grid_line_color = None
        strip.xaxis.axis_label = None
        add_phases(strip, analysis, names=False)
        computations = analysis.recording.computations
        source = ColumnDataSource(
            {
                "left": computations.start - analysis.recording.start,
                "right": computations.stop - analysis.recording.start,
            }
        )
        strip.quad(
            left="left",
            right="right",
            bottom=0.25,
            top=0.75,
            source=source,
            fill_color="#7a8794",
            fill_alpha=0.55,
            line_color="white",
        )
        strip.add_tools(RangeTool(x_range=self._time))
        return Figure("overview", strip, "The whole recording: move or resize the part shown")

    def _options(self, **settings: object) -> Options:
        options = Options(
            sizing_mode="stretch_width",
            title=None,
            x_range=self._time,
            toolbar_location=None,
            tools="hover,xpan,xbox_zoom,reset,save",
        )
        options.figure |= {**_BORDERS, **settings}
        options.colors = self.colors
        return options

    def _join(self, plot: figure) -> None:
        """Give a figure what all share; the page has the names of the colours."""
        for legend in plot.legend:
            legend.visible = False
        plot.xaxis.axis_label = None
        plot.min_border_top = plot.min_border_bottom = 8
        wheel = WheelZoomTool(dimensions="width", modifiers={"ctrl": True})
        plot.add_tools(wheel, CrosshairTool(overlay=self._crosshair))
        plot.toolbar.active_scroll = wheel
