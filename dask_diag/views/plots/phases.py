"""The phases of computations in plots over time: shaded, and named where the name fits."""

from __future__ import annotations

from collections.abc import Iterable

from bokeh.models import ColumnDataSource, Label
from bokeh.plotting import figure

from dask_diag.analysis.phases import phase_intervals
from dask_diag.model.recording import Recording
from dask_diag.views.assets import callback
from dask_diag.views.theme.colors import color_of_phase

__all__ = ["Phase", "name_phases", "shade_phases"]

_MOST_NAMES = 50
"""Phases that may be named: there are several for each computation."""
Phase = tuple[str, float, float]
"""Its name, and from where to where it is on the plot's axis."""


def shade_phases(plot: figure, recordings: Iterable[Recording], origin: float) -> list[Phase]:
    """Shade the time before, between and after the tasks of computations; returns these phases.

    One glyph draws them all: there are several for each computation, and of each annotation a
    browser would make five models and an element.

    Parameters
    ----------
    plot : bokeh figure
        Its y range begins at 0.
    recordings : iterable of Recording
    origin : float
        Where the plot's axis begins, in the recordings' seconds.
    """
    phases = [
        (row["phase"], row["start"] - origin, row["stop"] - origin)
        for recording in recordings
        for row in phase_intervals(recording).to_dicts()
        if row["phase"] != "tasks"
    ]
    if phases:
        names, left, right = zip(*phases, strict=True)
        colors = [color_of_phase(name) for name in names]
        plot.quad(
            left="left",
            right="right",
            bottom=0,
            top=float(plot.y_range.end),
            source=ColumnDataSource({"left": left, "right": right, "color": colors}),
            fill_color="color",
            fill_alpha=0.3,
            line_color=None,
            level="underlay",
        )
    return phases


def name_phases(plot: figure, phases: Iterable[Phase], height: float | None = None) -> None:
    """Name the longest phases, or other intervals; the page shows the names that fit.

    How many pixels a phase has is not known here. Names are at this height, by default the middle.
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
