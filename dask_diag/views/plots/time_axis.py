"""The one time axis of a page: figures over it move together and share a crosshair."""

from __future__ import annotations

from collections.abc import Iterable

from bokeh.models import (
    ColumnDataSource,
    CrosshairTool,
    Range1d,
    RangeTool,
    Span,
)
from bokeh.plotting import figure

from dask_diag.model.recording import Recording
from dask_diag.views.plots.figures import Options, new_figure
from dask_diag.views.plots.phases import shade_phases

__all__ = ["BORDERS", "TimeAxis", "overview"]

BORDERS = {"min_border_left": 86, "min_border_right": 64}
"""Equal, so that a moment is at the same place in each figure."""
_COMPUTATION = "#7a8794"


class TimeAxis:
    """A range of time, and a crosshair.

    Parameters
    ----------
    shown : Range1d
        What figures show of the time; see `time_range`.
    """

    def __init__(self, shown: Range1d) -> None:
        self.range = shown
        # The page's address has what the range of this name shows.
        shown.name = "time axis"
        self._crosshair = Span(
            dimension="height", line_color="#888888", line_width=1, line_dash="dotted"
        )

    def join(self, plot: figure) -> None:
        """Give a figure what all share."""
        plot.x_range = self.range
        plot.add_tools(CrosshairTool(overlay=self._crosshair))


def overview(
    recordings: Iterable[Recording], origin: float, shown: Range1d, options: Options
) -> figure:
    """All time in a strip, in which the shown part can be moved and resized.

    Parameters
    ----------
    recordings : iterable of Recording
        Their computations are bars; phases without tasks are shaded.
    origin : float
        Where the axis begins, in the recordings' seconds.
    shown : Range1d
        What the figures show.
    options : Options
    """
    end = shown.bounds[1] if shown.bounds else shown.end
    settings = {"tools": "", "height": 52, "title": None, "toolbar_location": None}
    strip_options = Options(**{**options.figure, **settings, "min_border_top": 2})
    strip_options.figure |= {"x_range": Range1d(0, end), "y_range": Range1d(0, 1)}
    strip = new_figure(strip_options, end)
    strip.yaxis.visible = False
    strip.ygrid.grid_line_color = None
    strip.xaxis.axis_label = None
    recordings = list(recordings)
    shade_phases(strip, recordings, origin)
    for recording in recordings:
        _add_computations(strip, recording, origin)
    strip.add_tools(RangeTool(x_range=shown))
    return strip


def _add_computations(strip: figure, recording: Recording, origin: float) -> None:
    computations = recording.computations
    strip.quad(
        left="left",
        right="right",
        bottom=0.25,
        top=0.75,
        source=ColumnDataSource(
            {"left": computations.start - origin, "right": computations.stop - origin}
        ),
        fill_color=_COMPUTATION,
        fill_alpha=0.55,
        line_color="white",
    )
