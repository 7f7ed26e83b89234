"""``visualize``: several plots in one picture, saved and shown."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from bokeh.layouts import column
from bokeh.models import LayoutDOM

from dask_diag.atomic_files import as_path, check_target
from dask_diag.errors import DiagnosticError
from dask_diag.views import display
from dask_diag.views.drawings import (
    PLOTS,
    Drawing,
    drawings_of,
    figures_of,
    notices_of,
    recordings_in,
    stacked,
)
from dask_diag.views.findings import incomplete
from dask_diag.views.plots.figures import SIZES, Options, new_figure
from dask_diag.views.profile_page import ProfilePage, activities_of
from dask_diag.views.saved_picture import saved_picture
from dask_diag.views.sources import Sources, listed, recording_of

__all__ = ["visualize"]

_ACTIVITIES = "activities"


def visualize(
    profilers: Sources,
    filename: str | os.PathLike[str] = "profile.html",
    show: bool = True,
    save: bool | None = None,
    mode: str | None = None,
    *,
    plots: Iterable[str] | None = None,
    fold: str = "",
    file: str = "",
    **kwargs: Any,
) -> LayoutDOM:
    """Draw what was measured with bokeh; several plots are stacked over one time axis.

    The page says first how long it took, where the time went and what was found. Over the plots are
    a strip of all time and what the workers did, below them where worker time went, with a choice
    of functions and of the unit, and what allocated the memory that was in use at the peak.

    Parameters
    ----------
    profilers : diagnostic, Recording, or a list of them
    filename : str or path, optional
        The file to write; an existing one is replaced. To show in a browser what is not saved, a
        temporary file is written.
    show : bool, optional
        Open the picture in a browser, or in the notebook.
    save : bool, optional
        Write the file. By default it is written, except in a notebook.
    mode : str, optional
        Where the page finds bokeh's own code: ``"inline"``, the default, puts it into the page,
        which then needs no network; ``"cdn"`` makes a small page that does.
    plots : list of {"tasks", "resources", "cache", "memory", "activities"}, optional
        Draw only these. By default everything that the profilers recorded.
    fold : str, optional
        In a notebook, a line to click in place of the picture. By default the picture is open.
    file : str, optional
        In a notebook, the file of the recording: it is named where the notebook is read without
        scripts, beside a picture that needs none.
    **kwargs
        ``palette`` (name of a bokeh palette), ``label_size`` (most characters of a label, 60), and
        keywords for bokeh's figure, which replace the defaults, for the plots over time. The
        pictures of activities are as wide as those.

    Returns
    -------
    bokeh figure, grid of figures, or layout
        The plots over time, as dask.diagnostics returns them; with the pictures of activities only
        where `plots` names them.

    Raises
    ------
    DiagnosticError
        If something is given that cannot be drawn, if `plots` names something that was not
        recorded, or if the file cannot be written.
    UnknownKeywordError
        If bokeh's figure does not know a keyword; it is an AttributeError, too.

    Warns
    -----
    RuntimeWarning
        If two of the plots cover times that do not overlap; the page shows it too.

    Notes
    -----
    The page is light or dark as the reader's system is, and figures are narrower where the window
    is, unless `kwargs` say how large they are.
    """
    path = _path_of(filename, kwargs)
    if save:
        check_target(path, overwrite=True)
    drawings = drawings_of(listed(profilers))
    notices = notices_of(drawings)
    warning = dict.fromkeys(filter(None, (incomplete(recording) for _, recording in drawings)))
    chosen = _checked(plots)
    options = Options(**kwargs)
    picture = _picture(drawings, chosen, options)
    in_notebook = display.in_notebook()
    if save is None:
        save = not in_notebook
    drawn = display.Page(picture, None, [*warning, *notices], not SIZES & options.figure.keys())
    is_report = chosen is None and (save or show)
    with _in_a_report(drawn, drawings, options) if is_report else nullcontext(drawn) as page:
        if save:
            display.write_page(page, path, mode or "inline")
        if show and in_notebook:
            display.show_in_notebook(page, _saved(drawings, options, file), fold)
        elif show and save:
            display.show_file(path)
        elif show:
            display.show_in_browser(page, mode or "inline")
    for notice in notices:
        warnings.warn(notice, RuntimeWarning, stacklevel=2)
    return picture


@contextmanager
def _in_a_report(
    page: display.Page, drawings: Sequence[Drawing], options: Options
) -> Iterator[display.Page]:
    """The page of all that was drawn; meanwhile its figures look as they do in a report."""
    made = ProfilePage(drawings, page.picture, options)
    with made.in_a_report():
        panels = [panel for panel in (made.layout, made.activities) if panel is not None]
        picture = column(*panels) if len(panels) > 1 else made.layout
        yield page._replace(picture=picture, head=made.head, sections=made.sections())


def _saved(drawings: Sequence[Drawing], options: Options, file: str) -> display.Saved:
    """What a notebook shows of it without scripts."""
    recording = recording_of(recordings_in(drawings))
    duration = recording.stop - recording.start or 1.0
    return display.Saved(saved_picture(recording, recording.start, duration, options), file)


def _path_of(filename: str | os.PathLike[str], kwargs: dict[str, Any]) -> Path:
    """The file to write, also by the name that dask.diagnostics has for it."""
    if "file_path" in kwargs:
        warnings.warn(
            "The file_path keyword argument is deprecated and will be removed in a future "
            "release. Please use filename instead.",
            FutureWarning,
            stacklevel=3,
        )
        filename = kwargs.pop("file_path")
    if not isinstance(filename, (str, os.PathLike)):
        raise DiagnosticError(
            f"filename: expected a path, found {type(filename).__name__}; several profilers are "
            "given as a list"
        )
    return as_path(filename, "filename")


def _checked(plots: Iterable[str] | None) -> list[str] | None:
    if plots is None:
        return None
    names = [plots] if isinstance(plots, str) else list(plots)
    available = [*PLOTS, _ACTIVITIES]
    unknown = [name for name in names if name not in available]
    if unknown or not names:
        raise DiagnosticError(
            f"plots: expected some of {', '.join(map(repr, available))}, found "
            f"{', '.join(map(repr, unknown)) or 'none'}"
        )
    return names


def _picture(drawings: Sequence[Drawing], plots: list[str] | None, options: Options) -> LayoutDOM:
    """What is returned: the plots over time, the pictures of activities where they are named."""
    if plots is None:
        return stacked(figures_of(drawings, options))
    recorded = {name for name, _ in drawings}
    missing = [name for name in plots if name not in (*recorded, _ACTIVITIES)]
    if missing:
        raise DiagnosticError(
            f"plots: nothing was recorded for {', '.join(missing)}; choose among "
            f"{', '.join([*sorted(recorded), _ACTIVITIES])}"
        )
    figures = figures_of([drawing for drawing in drawings if drawing[0] in plots], options)
    if _ACTIVITIES not in plots:
        return stacked(figures)
    if figures:
        return column(stacked(figures), activities_of(recordings_in(drawings), options))
    # A keyword that bokeh's figure does not know is an error, whatever is drawn.
    new_figure(options, 1.0)
    return activities_of(recordings_in(drawings), options)
