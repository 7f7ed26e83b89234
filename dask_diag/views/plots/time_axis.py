"""The one time axis of a page: figures over it move together and share a crosshair."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np
from bokeh.models import (
    ColumnDataSource,
    CrosshairTool,
    Label,
    Range1d,
    RangeTool,
    Span,
)
from bokeh.plotting import figure

from dask_diag.analysis.phases import phase_intervals
from dask_diag.analysis.task_times import call_times, stop_times
from dask_diag.model.recording import Recording
from dask_diag.views.assets import callback
from dask_diag.views.colors import look_of
from dask_diag.views.escaping import shown as shown_text
from dask_diag.views.names import names_of_computations
from dask_diag.views.plots.figures import Options, new_figure, quads

_MOST_NAMES = 50
"""Phases with a name: there are several phases for each computation."""
_MOST_DRAWN = 500
"""Phases, or computations, that are drawn."""
Phase = tuple[str, float, float]
"""A name, with start and stop on the plot's axis."""


def shade_phases(plot: figure, recordings: Iterable[Recording], origin: float) -> list[Phase]:
    """Shade the time before, between and after the tasks of computations; returns the phases.

    One glyph draws all phases: a browser would make five models and an element of an annotation.

    Parameters
    ----------
    plot : bokeh figure
        The vertical range begins at 0.
    recordings : iterable of Recording
    origin : float
        Start of the plot's axis, in the recordings' seconds.
    """
    phases = _longest(
        (row["phase"], row["start"] - origin, row["stop"] - origin)
        for recording in recordings
        for row in phase_intervals(recording).to_dicts()
        if row["phase"] != "tasks"
    )
    if phases:
        names, left, right = zip(*phases, strict=True)
        colors = [look_of(name).color for name in names]
        source = ColumnDataSource({"left": left, "right": right, "color": colors})
        look = {"fill_color": "color", "fill_alpha": 0.45, "line_color": None, "level": "underlay"}
        quads(plot, source, 0, float(plot.y_range.end), **look)
    return phases


def _longest(phases: Iterable[Phase]) -> list[Phase]:
    """The longest intervals, in order: of more than are drawn, the others are finer than pixels."""
    longest = sorted(phases, key=lambda phase: phase[1] - phase[2])[:_MOST_DRAWN]
    return sorted(longest, key=lambda phase: phase[1])


def name_phases(plot: figure, phases: Iterable[Phase], height: float | None = None) -> None:
    """Name the longest phases, or other intervals, at a height, by default the middle.

    Pixels of a phase are not known here: the page shows the names that fit.
    """
    longest = sorted(phases, key=lambda phase: phase[1] - phase[2])[:_MOST_NAMES]
    middle = (plot.y_range.start + plot.y_range.end) / 2 if height is None else height
    names: list[dict[str, object]] = []
    for name, left, right in sorted(longest, key=lambda phase: phase[1]):
        label = Label(
            x=(left + right) / 2,
            y=middle,
            text=name,
            text_align="center",
            text_baseline="middle",
            text_font_size="12px",
            text_color="#333333",
            visible=False,
        )
        plot.add_layout(label)
        names.append({"label": label, "left": left, "right": right})
    name_phases = callback("plots/phases.js", "name_phases", {"plot": plot, "phases": names})
    plot.js_on_change("inner_width", name_phases)


BORDERS = {"min_border_left": 86, "min_border_right": 64}
"""Borders of all figures, so that a moment is at the same place in each figure."""
_COMPUTATION = "#8d99a6"
_LABEL = 40
_HEIGHT, _ROW = 40, 18
"""Pixels of the strip, and of each row of spans in it."""
_HALF = 0.38
"""Half the height of a bar, in rows."""
_MOST_ROWS = 3
"""Rows of spans."""


class TimeAxis:
    """A range of time, and a crosshair.

    Parameters
    ----------
    shown : Range1d
        The time that figures show; see `time_range`.
    """

    def __init__(self, shown: Range1d) -> None:
        self.range = shown
        # The page's address has the time that the range of this name shows.
        shown.name = "time axis"
        self._crosshair = Span(
            dimension="height", line_color="#888888", line_width=1, line_dash="dotted"
        )

    def join(self, plot: figure) -> None:
        """Give a figure the shared range and crosshair."""
        plot.x_range = self.range
        plot.add_tools(CrosshairTool(overlay=self._crosshair))


def overview(
    recordings: Iterable[Recording], origin: float, shown: Range1d, options: Options
) -> figure:
    """A strip of all time, in which the shown part can be moved and resized.

    Parameters
    ----------
    recordings : iterable of Recording
        Computations are bars, spans of tasks are bars below; phases without tasks are shaded.
    origin : float
        Start of the axis, in the recordings' seconds.
    shown : Range1d
        The time that the figures show.
    options : Options
    """
    end = shown.bounds[1] if shown.bounds else shown.end
    recordings = list(recordings)
    rows = [
        _longest(bar for recording in recordings for bar in _computations(recording, origin)),
        *_rows_of([bar for recording in recordings for bar in _spans(recording, origin)]),
    ]
    settings = {"tools": "", "title": None, "toolbar_location": None, "min_border_top": 2}
    height = _HEIGHT + _ROW * (len(rows) - 1)
    strip_options = Options(**{**options.figure, **settings, "height": height})
    strip_options.figure |= {"x_range": Range1d(0, end), "y_range": Range1d(0, len(rows))}
    strip = new_figure(strip_options, end)
    strip.yaxis.visible = False
    strip.ygrid.grid_line_color = None
    strip.xaxis.visible = False
    # The label is not seen: a screen reader says it.
    strip.yaxis.axis_label = "All time"
    phases = shade_phases(strip, recordings, origin)
    # Preparing is part of a computation, whose bar names it.
    name_phases(strip, [phase for phase in phases if phase[0] != "preparing"])
    for below, bars in enumerate(rows):
        middle = len(rows) - below - 0.5
        _draw_bars(strip, bars, middle)
        name_phases(strip, bars, middle)
    window = RangeTool(x_range=shown)
    # The bars are seen through the window.
    window.overlay.update(fill_alpha=0.12, line_color="#777777", line_alpha=0.9)
    strip.add_tools(window)
    return strip


def _computations(recording: Recording, origin: float) -> list[Phase]:
    """Computations from their calls on, with their names."""
    computations, names = recording.computations, names_of_computations(recording)
    left, right = call_times(computations) - origin, computations.stop - origin
    return [
        (shown_text(name, _LABEL), start, stop)
        for name, start, stop in zip(names, left.tolist(), right.tolist(), strict=True)
    ]


def _spans(recording: Recording, origin: float) -> list[Phase]:
    """Spans of tasks that no computation has, each from its first task to its last."""
    tasks = recording.tasks
    of_computations = {*recording.computations.span.tolist(), ""}
    named = [name for name in dict.fromkeys(tasks.span.values) if name not in of_computations]
    stop = stop_times(recording) if named else tasks.stop
    bars = []
    for name in named:
        rows = tasks.span.eq(name) & ~np.isnan(tasks.start)
        if rows.any():
            left, right = float(tasks.start[rows].min()), float(stop[rows].max())
            bars.append((shown_text(name, _LABEL), left - origin, right - origin))
    return bars


def _rows_of(bars: list[Phase]) -> list[list[Phase]]:
    """Rows of bars in which no bar hides another; of many bars at once the longest."""
    rows: list[list[Phase]] = []
    for bar in sorted(bars, key=lambda bar: bar[1] - bar[2]):
        for row in rows:
            if all(bar[2] <= left or right <= bar[1] for _, left, right in row):
                row.append(bar)
                break
        else:
            if len(rows) < _MOST_ROWS:
                rows.append([bar])
    return rows


def _draw_bars(strip: figure, bars: list[Phase], middle: float) -> None:
    names, left, right = zip(*bars, strict=True) if bars else ((), (), ())
    source = ColumnDataSource({"left": left, "right": right, "name": names})
    look = {"fill_color": _COMPUTATION, "fill_alpha": 0.45, "line_color": _COMPUTATION}
    quads(strip, source, middle - _HALF, middle + _HALF, **look)
