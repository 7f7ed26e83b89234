"""One picture of several plots, and where it goes: a file, a browser, a notebook."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable
from itertools import combinations
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from bokeh.io import output_notebook
from bokeh.io import show as bokeh_show
from bokeh.io.state import curstate
from bokeh.layouts import column, gridplot
from bokeh.models import Plot
from bokeh.resources import Resources
from bokeh.util.browser import view

from dask_diag.analysis.analysis import Analysis
from dask_diag.atomic_files import as_path, check_target, write_text
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import seconds
from dask_diag.views.plots.activities.plot import plot_activities
from dask_diag.views.plots.cache import plot_cache
from dask_diag.views.plots.figures import Options, new_figure
from dask_diag.views.plots.flame.graph import plot_flame
from dask_diag.views.plots.memory import plot_memory
from dask_diag.views.plots.resources import plot_resources
from dask_diag.views.plots.tasks.plot import plot_tasks
from dask_diag.views.sources import listed, recording_of
from dask_diag.views.theme.page import page_of

__all__ = ["figure_of", "plot_of", "visualize"]

_PLOTS: dict[str, Callable[..., Any]] = {
    "tasks": plot_tasks,
    "resources": plot_resources,
    "cache": plot_cache,
    "memory": plot_memory,
    "flame": plot_flame,
}
_TABLES = {"flame": "samples", "cache": "cached_results"}
"""The tables that plots draw, where they are not called like the plots."""
_ACTIVITIES = "activities"
_FRAME = "theme/page.html"
_SIZES = {
    *("width", "height", "sizing_mode", "frame_width", "frame_height", "aspect_ratio"),
    *("min_width", "max_width", "min_height", "max_height", "width_policy", "height_policy"),
}
"""Who gives one of these has said how large figures are, whatever room there is."""


def visualize(
    profilers: Any,
    filename: str | os.PathLike[str] = "profile.html",
    show: bool = True,
    save: bool | None = None,
    mode: str | None = None,
    *,
    plots: Iterable[str] | None = None,
    **kwargs: Any,
) -> Any:
    """Draw what was measured with bokeh; several plots are stacked over one time axis.

    Below them, the page tells where worker time went: by function, activity and worker, with a
    choice of functions and of the unit.

    Parameters
    ----------
    profilers : diagnostic, Recording, or a list of them
    filename : str or path, optional
        The file to write; one that is there is replaced. No other is written, but one among the
        system's temporary files to show in a browser what is not saved.
    show : bool, optional
        Open the picture in a browser, or in the notebook.
    save : bool, optional
        Write the file. By default it is written, except in a notebook.
    mode : str, optional
        Where the page finds bokeh's own code: ``"inline"``, the default, puts it into the page,
        which then needs no network; ``"cdn"`` makes a small page that does.
    plots : list of {"tasks", "resources", "cache", "memory", "activities"}, optional
        Draw only these. By default the page has all that the profilers have.
    **kwargs
        ``palette`` (name of a bokeh palette), ``label_size`` (most characters of a label, 60), and
        keywords for bokeh's figure, over the defaults, for the plots over time. The pictures of
        activities are as wide as those.

    Returns
    -------
    bokeh figure, grid of figures, or layout
        The plots over time, as dask.diagnostics returns them; with the pictures of activities only
        where `plots` names them.

    Raises
    ------
    DiagnosticError
        If something is given that cannot be drawn, if `plots` names something that there is not,
        or if the file cannot be written where it is said.
    UnknownKeywordError
        If bokeh's figure does not know a keyword; it is an AttributeError, too.

    Warns
    -----
    RuntimeWarning
        If two of the plots are of times that do not overlap; the page tells it too.

    Notes
    -----
    The page is light or dark as the reader's system is, and figures are narrower where the window
    is, unless `kwargs` say how large they are.
    """
    if "file_path" in kwargs:
        warnings.warn(
            "The file_path keyword argument is deprecated and will be removed in a future "
            "release. Please use filename instead.",
            FutureWarning,
            stacklevel=2,
        )
        filename = kwargs.pop("file_path")
    if not isinstance(filename, (str, os.PathLike)):
        raise DiagnosticError(
            f"filename: expected a path, found {type(filename).__name__}; several profilers are "
            "given as a list"
        )
    path = as_path(filename, "filename")
    if save:
        check_target(path, overwrite=True)
    in_notebook = _in_notebook()
    drawings = _drawings(listed(profilers))
    notices = _notices(drawings)
    chosen = _checked(plots)
    options = Options(**kwargs)
    picture = _picture(drawings, chosen, options)
    if save is None:
        save = not in_notebook
    page = _page(picture, drawings, options) if chosen is None and (save or show) else picture
    fitted = not _SIZES & set(options.figure)
    if save:
        _write(page, path, mode or "inline", fitted, notices)
    if show and in_notebook:
        _show_in_notebook(page)
    elif show and save:
        view(path.resolve().as_uri())
    elif show:
        _show_in_browser(page, mode or "inline", fitted, notices)
    for notice in notices:
        warnings.warn(notice, RuntimeWarning, stacklevel=2)
    return picture


def figure_of(source: Any, **kwargs: Any) -> Any:
    """The figure of one diagnostic."""
    return _figures(_drawings([source]), Options(**kwargs))[0]


def plot_of(name: str, recording: Recording, options: Options) -> Any:
    """One of the plots over time; None if there is nothing to draw."""
    if not len(getattr(recording, _TABLES.get(name, name), ())):
        return None
    return _figures([(name, recording)], options)[0]


def _checked(plots: Iterable[str] | None) -> list[str] | None:
    if plots is None:
        return None
    names = [plots] if isinstance(plots, str) else list(plots)
    known = [*_PLOTS, _ACTIVITIES]
    unknown = [name for name in names if name not in known]
    if unknown or not names:
        raise DiagnosticError(
            f"plots: expected some of {', '.join(map(repr, known))}, found "
            f"{', '.join(map(repr, unknown)) or 'none'}"
        )
    return names


Drawing = tuple[str, Recording]
"""The name of a plot, and what it is of."""


def _picture(drawings: list[Drawing], plots: list[str] | None, options: Options) -> Any:
    """What is returned: the plots over time, the pictures of activities where they are named."""
    if plots is None:
        return _stacked(_figures(drawings, options))
    there = {name for name, _ in drawings}
    missing = [name for name in plots if name not in (*there, _ACTIVITIES)]
    if missing:
        raise DiagnosticError(
            f"plots: there is nothing to draw of {', '.join(missing)}; there is of "
            f"{', '.join([*sorted(there), _ACTIVITIES])}"
        )
    figures = _figures([drawing for drawing in drawings if drawing[0] in plots], options)
    if _ACTIVITIES not in plots:
        return _stacked(figures)
    if figures:
        return column(_stacked(figures), _activities_of(drawings, options))
    # A keyword that bokeh's figure does not know is told, whatever is drawn.
    new_figure(options, 1.0)
    return _activities_of(drawings, options)


def _page(picture: Any, drawings: list[Drawing], options: Options) -> Any:
    """What is written and shown: below the plots, the pictures of activities, if tasks ran."""
    if any(len(recording.tasks) for _, recording in drawings):
        return column(picture, _activities_of(drawings, options))
    return picture


def _activities_of(drawings: list[Drawing], options: Options) -> Any:
    """The pictures of activities of those that recorded tasks.

    A computation that another diagnostic heard alone is left out: its workers would seem idle.
    """
    recordings = list({id(recording): recording for _, recording in drawings}.values())
    with_tasks = [recording for recording in recordings if len(recording.tasks)]
    return plot_activities(Analysis(recording_of(with_tasks or recordings)), options)


def _notices(drawings: list[Drawing]) -> list[str]:
    """What must be known before such plots are compared: they may not be of the same block."""
    measured = [(name, part) for name, part in drawings if part.stop > part.start]
    for (name, one), (other_name, other) in combinations(measured, 2):
        if one.stop < other.start or other.stop < one.start:
            apart = max(one.start, other.start) - min(one.stop, other.stop)
            return [
                f"What is drawn was not measured at the same time: {name} and {other_name} are "
                f"{seconds(apart)} apart. Profilers that are entered with one with statement "
                "watch the same block."
            ]
    return []


def _drawings(sources: list[Any]) -> list[Drawing]:
    return [drawing for source in sources for drawing in _drawings_of(source)]


def _figures(drawings: list[Drawing], options: Options) -> list[Any]:
    """A figure for each thing to draw, all from the same origin of time."""
    origin = min((recording.start for _, recording in drawings), default=0.0)
    stop = max((recording.stop for _, recording in drawings), default=0.0)
    duration = stop - origin or 1.0
    return [_PLOTS[name](recording, origin, duration, options) for name, recording in drawings]


def _drawings_of(source: Any) -> list[Drawing]:
    """What to draw of a source: what the diagnostic says, or all that a recording has."""
    if isinstance(source, Recording):
        names = [name for name in _PLOTS if len(getattr(source, _TABLES.get(name, name)))]
        return [(name, source) for name in names or ["tasks"]]
    if not hasattr(source, "recording"):
        raise DiagnosticError(
            f"expected a profiler of dask_diag, found {type(source).__module__}."
            f"{type(source).__name__}; draw it with its own visualize()"
        )
    return [(source.draws, source.recording)]


def _stacked(drawings: list[Any]) -> Any:
    """Figures over one time axis, and below them what has an axis of its own."""
    figures = [drawing for drawing in drawings if isinstance(drawing, Plot)]
    panels = [drawing for drawing in drawings if not isinstance(drawing, Plot)]
    above = [_over_one_axis(figures)] if figures else []
    return column(above + panels) if len(above + panels) > 1 else (above + panels)[0]


def _over_one_axis(figures: list[Any]) -> Any:
    if len(figures) == 1:
        return figures[0]
    for plot in figures[1:]:
        plot.x_range = figures[0].x_range
        plot.title = None
        plot.min_border_top = 10
    for plot in figures[:-1]:
        plot.xaxis.axis_label = None
        plot.min_border_bottom = 10
    return gridplot([[plot] for plot in figures], toolbar_options={"logo": None})


def _write(picture: Any, path: Path, mode: str, fitted: bool, notices: list[str]) -> None:
    resources = Resources(mode=mode)
    title = "dask_diag profile"
    page = page_of(picture, resources, _FRAME, title, fitted=fitted, notices=notices)
    write_text(path, page)


def _in_notebook() -> bool:
    if curstate().notebook:
        return True
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return type(get_ipython()).__module__.startswith("ipykernel")


def _show_in_browser(picture: Any, mode: str, fitted: bool, notices: list[str]) -> None:
    """Show what is not to be saved: the browser needs a file, but in no folder of the user's."""
    if curstate().file is not None:
        # The user told bokeh where.
        bokeh_show(picture)
        return
    folder = Path(mkdtemp(prefix="dask_diag-"))
    _write(picture, folder / "profile.html", mode, fitted, notices)
    view((folder / "profile.html").as_uri())


def _show_in_notebook(picture: Any) -> None:
    if not curstate().notebook:
        output_notebook(resources=Resources(mode="inline"), hide_banner=True)
    bokeh_show(picture)
