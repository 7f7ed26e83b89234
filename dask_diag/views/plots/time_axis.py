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
from dask_diag.views.escaping import shown as shown_text
from dask_diag.views.plots.figures import Options, new_figure
from dask_diag.views.plots.phases import Phase, name_phases, shade_phases

__all__ = ["BORDERS", "TimeAxis", "overview"]

BORDERS = {"min_border_left": 86, "min_border_right": 64}
"""Equal, so that a moment is at the same place in each figure."""
_COMPUTATION = "#8d99a6"
_LABEL = 40


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
    settings = {"tools": "", "height": 40, "title": None, "toolbar_location": None}
    strip_options = Options(**{**options.figure, **settings, "min_border_top": 2})
    strip_options.figure |= {"x_range": Range1d(0, end), "y_range": Range1d(0, 1)}
    strip = new_figure(strip_options, end)
    strip.yaxis.visible = False
    strip.ygrid.grid_line_color = None
    strip.xaxis.visible = False
    # It is not seen: a screen reader says it.
    strip.yaxis.axis_label = "All time"
    recordings = list(recordings)
    phases = shade_phases(strip, recordings, origin)
    bars = [bar for recording in recordings for bar in _bars(recording, origin)]
    _draw_bars(strip, bars)
    # Preparing is part of a computation, whose bar names it.
    gaps = [phase for phase in phases if phase[0] != "preparing"]
    name_phases(strip, [*gaps, *bars])
    window = RangeTool(x_range=shown)
    # The bars are seen through it.
    window.overlay.update(fill_alpha=0.12, line_color="#777777", line_alpha=0.9)
    strip.add_tools(window)
    return strip


def _bars(recording: Recording, origin: float) -> list[Phase]:
    """Computations, with the names of their spans; one after the other without one is numbered."""
    computations = recording.computations
    spans = computations.span.tolist()
    several = len(spans) > 1
    names = [
        span or (f"computation {n}" if several else "computation")
        for n, span in enumerate(spans, 1)
    ]
    left, right = (times - origin for times in (computations.start, computations.stop))
    return [
        (shown_text(name, _LABEL), start, stop)
        for name, start, stop in zip(names, left.tolist(), right.tolist(), strict=True)
    ]


def _draw_bars(strip: figure, bars: list[Phase]) -> None:
    names, left, right = zip(*bars, strict=True) if bars else ((), (), ())
    strip.quad(
        left="left",
        right="right",
        bottom=0.12,
        top=0.88,
        source=ColumnDataSource({"left": left, "right": right, "name": names}),
        fill_color=_COMPUTATION,
        fill_alpha=0.45,
        line_color=_COMPUTATION,
    )
