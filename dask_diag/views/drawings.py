"""Plots of profilers and recordings, over one time axis."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import combinations
from typing import cast

from bokeh.layouts import column, gridplot
from bokeh.models import Column, GridPlot, LayoutDOM, Plot, Range1d

from dask_diag.analysis.functions import functions_by_time
from dask_diag.formatting import seconds
from dask_diag.model.recording import Recording, Source
from dask_diag.views.colors import FunctionColors
from dask_diag.views.plots.figures import Options
from dask_diag.views.plots.flame import plot_flame
from dask_diag.views.plots.lines import plot_cache, plot_memory, plot_resources
from dask_diag.views.plots.tasks import plot_tasks
from dask_diag.views.plots.time_axis import TimeAxis

PLOTS: dict[str, Callable[[Recording, float, float, Options], LayoutDOM]] = {
    "tasks": plot_tasks,
    "resources": plot_resources,
    "cache": plot_cache,
    "memory": plot_memory,
    "flame": plot_flame,
}
_TABLES = {"flame": "samples", "cache": "cached_results"}
"""Tables of plots with another name than the plot."""

Drawing = tuple[str, Recording]
"""Name of a plot, and the recording that it draws."""


def drawings_of(sources: Sequence[Source]) -> list[Drawing]:
    """List the plot that each profiler names, and all plots that a recording has data for."""
    return [drawing for source in sources for drawing in _drawings_of(source)]


def _drawings_of(source: Source) -> list[Drawing]:
    if isinstance(source, Recording):
        names = [name for name in PLOTS if _rows(name, source)]
        return [(name, source) for name in names or ["tasks"]]
    return [(source.draws, source.recording)]


def _rows(name: str, recording: Recording) -> int:
    return len(recording.tables()[_TABLES.get(name, name)])


def figures_of(drawings: Sequence[Drawing], options: Options) -> list[LayoutDOM]:
    """A figure for each drawing, all from the same origin of time and with the same colors."""
    if options.colors is None:
        functions = functions_by_time(recordings_in(drawings))
        options.colors = FunctionColors(functions, options.palette)
    origin = min((recording.start for _, recording in drawings), default=0.0)
    stop = max((recording.stop for _, recording in drawings), default=0.0)
    duration = stop - origin or 1.0
    return [PLOTS[name](recording, origin, duration, options) for name, recording in drawings]


def plot_of(name: str, recording: Recording, options: Options) -> LayoutDOM | None:
    """Plot of this name; None if there is nothing to draw."""
    return figures_of([(name, recording)], options)[0] if _rows(name, recording) else None


def recordings_in(drawings: Sequence[Drawing]) -> list[Recording]:
    """Recordings that are drawn, each once."""
    return list({id(recording): recording for _, recording in drawings}.values())


def notices_of(drawings: Sequence[Drawing]) -> list[str]:
    """Warnings for readers who compare plots: plots may not cover the same time."""
    measured = [(name, part) for name, part in drawings if part.stop > part.start]
    for (name, one), (other_name, other) in combinations(measured, 2):
        if one.stop < other.start or other.stop < one.start:
            apart = max(one.start, other.start) - min(one.stop, other.stop)
            return [
                f"The plots of {name} and {other_name} cover different times ({seconds(apart)} "
                "apart). Enter the profilers in one `with` statement."
            ]
    return []


def stacked(drawings: Sequence[LayoutDOM]) -> LayoutDOM:
    """Stack figures over one time axis, and below them panels with an axis of their own."""
    figures = [drawing for drawing in drawings if isinstance(drawing, Plot)]
    panels = [drawing for drawing in drawings if not isinstance(drawing, Plot)]
    above = [_over_one_axis(figures)] if figures else []
    parts = [*above, *panels]
    return column(*parts) if len(parts) > 1 else parts[0]


def over_time(picture: LayoutDOM) -> list[Plot]:
    """Figures that `stacked` put over one time axis."""
    first = picture.children[0] if isinstance(picture, Column) else picture
    if isinstance(first, GridPlot):
        return [plot for plot, *_ in first.children]
    return [first] if isinstance(first, Plot) else []


def with_rows(picture: LayoutDOM, strip: Plot | None, rows: Sequence[Plot], tag: str) -> LayoutDOM:
    """Copy a picture of `stacked` with other figures over its time axis."""
    if isinstance(picture, Column):
        first, *others = picture.children
        return column(with_rows(first, strip, rows, tag), *others)
    grid = _grid(rows)
    grid.tags = [tag]
    if strip is not None:
        # The strip has no tools that the other figures' toolbar could merge.
        grid.children = [(strip, 0, 0), *((plot, row + 1, 0) for plot, row, _ in grid.children)]
    return grid


def _over_one_axis(figures: list[Plot]) -> LayoutDOM:
    if len(figures) == 1:
        return figures[0]
    axis = TimeAxis(cast("Range1d", figures[0].x_range))
    for plot in figures:
        axis.join(plot)
    for plot in figures[1:]:
        plot.title = None
        plot.min_border_top = 10
    for plot in figures[:-1]:
        plot.xaxis.axis_label = None
        plot.min_border_bottom = 10
    return _grid(figures)


def _grid(figures: Sequence[Plot]) -> GridPlot:
    return gridplot([[plot] for plot in figures], toolbar_options={"logo": None})
