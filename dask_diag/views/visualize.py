"""``visualize``: several plots in one picture, saved and shown."""

from __future__ import annotations

import html
import json
import os
import shlex
import warnings
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

from bokeh.embed.notebook import notebook_content
from bokeh.io import show as bokeh_show
from bokeh.io.state import curstate
from bokeh.layouts import column
from bokeh.models import LayoutDOM
from bokeh.resources import Resources
from bokeh.util.browser import view

from dask_diag.errors import DiagnosticError
from dask_diag.files import as_path, check_target, write_text
from dask_diag.views.assets import image_tag, text_of
from dask_diag.views.drawings import (
    PLOTS,
    Drawing,
    drawings_of,
    figures_of,
    notices_of,
    recordings_in,
    stacked,
)
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.page import page_of, policy_of, script
from dask_diag.views.plots.figures import SIZES, Options, new_figure
from dask_diag.views.profile_page import ProfilePage, activities_of
from dask_diag.views.report.header import Head
from dask_diag.views.report.page import MadeSection, rendered
from dask_diag.views.saved_picture import SavedPicture, saved_picture
from dask_diag.views.sources import Sources, listed, recording_of

_FRAME = "theme/page.html"
_TITLE = "dask_diag profile"
_HTML, _JAVASCRIPT, _TEXT = "text/html", "application/javascript", "text/plain"
_BOKEH = "application/vnd.bokehjs_exec.v0+json"


class Page(NamedTuple):
    """A picture, and what a page says above it.

    Attributes
    ----------
    picture : bokeh layout
    head : Head or None
        What a template shows first.
    notices : sequence of str
    fitted : bool
        Whether a picture that is wider than the window becomes as wide as that.
    sections : sequence of MadeSection
        What a page has in place of the picture.
    """

    picture: LayoutDOM
    head: Head | None = None
    notices: Sequence[str] = ()
    fitted: bool = True
    sections: Sequence[MadeSection] = ()


class Saved(NamedTuple):
    """What a notebook shows where scripts do not run.

    Attributes
    ----------
    picture : SavedPicture or None
        None if there is nothing to draw.
    file : str
        The file of the recording, if it is in one.
    """

    picture: SavedPicture | None
    file: str = ""

    def html(self) -> str:
        """A sentence and the picture."""
        sentence = html.escape(self._sentence())
        if self.picture is None:
            return f"<p>{sentence}</p>"
        image = image_tag(self.picture.svg, self.picture.text, self.picture.width)
        return f"<p>{sentence}</p>{image}"

    def text(self) -> str:
        """The same where there are no pictures."""
        return "\n".join([self._sentence(), *([self.picture.text] if self.picture else [])])

    def _sentence(self) -> str:
        sentences = [
            "The interactive plots are drawn by scripts, and none ran here.",
            "To see them, trust the notebook or run the cell again.",
        ]
        if self.file:
            page = f"dask-diag report {shown(shlex.quote(self.file), 200)}"
            sentences.append(f"Or make a page of the recording: {page}.")
        if self.picture is not None:
            sentences.append(self.picture.caption)
        return " ".join(sentences)


def write_page(page: Page, path: Path, mode: str) -> None:
    """Write a page; `mode` says where it finds bokeh's own code, as `Resources` has it."""
    resources = Resources(mode=mode)
    write_text(
        path, _of_sections(page, resources) if page.sections else _of_picture(page, resources)
    )


def _of_sections(page: Page, resources: Resources) -> str:
    said = page.head, list(page.notices)
    return rendered(list(page.sections), resources, _TITLE, *said, fitted=page.fitted)


def _of_picture(page: Page, resources: Resources) -> str:
    return page_of(
        page.picture,
        resources,
        _FRAME,
        _TITLE,
        fitted=page.fitted,
        head=page.head,
        notices=list(page.notices),
        style=text_of("theme/head.css"),
        policy=policy_of(resources),
    )


def in_notebook() -> bool:
    """Whether a picture can be shown below the cell that is running."""
    if curstate().notebook:
        return True
    try:
        from IPython import get_ipython
    except ImportError:
        return False
    return type(get_ipython()).__module__.startswith("ipykernel")


def show_file(path: Path) -> None:
    """Open a page in the browser."""
    view(path.resolve().as_uri())


def show_in_browser(page: Page, mode: str) -> None:
    """Show what is not saved: the browser needs a file, but in no folder of the user's."""
    if curstate().file is not None:
        # The user chose bokeh's file.
        bokeh_show(page.picture)
        return
    path = Path(mkdtemp(prefix="dask_diag-")) / "profile.html"
    write_page(page, path, mode)
    show_file(path)


def show_in_notebook(page: Page, saved: Saved, fold: str = "") -> None:
    """Show a picture below the cell that is running; with `fold`, below a line to open it.

    What is `saved` is seen where scripts do not run, as in a notebook that is opened again and not
    trusted: the script that draws the picture hides it.
    """
    picture = page.picture
    _load_bokeh()
    drawing, div, _ = notebook_content(picture)
    title = html.escape(fold)
    plots = f"<details><summary>{title}</summary>{div}</details>" if fold else div
    # JupyterLab takes the attribute `hidden` from what is not trusted.
    said = f'<div>{saved.html()}</div><div style="display: none">{plots}</div>'
    said = f'<div class="dask-diag-cell">{said}</div>'
    _publish({_HTML: said, _TEXT: saved.text()})
    arguments = f"{json.dumps(picture.id)}, {json.dumps(page.fitted)}, () => {{\n{drawing}\n}}"
    # As bokeh publishes it: with an extension of its own, and without one.
    _publish(
        {_JAVASCRIPT: script("theme/cell.js", "show_in_cell", arguments), _BOKEH: ""},
        {_BOKEH: {"id": picture.id}},
    )


def _load_bokeh() -> None:
    """Have the page load bokeh's script, once for all cells.

    Bokeh's own `output_notebook` stores it twice in the notebook, and with it MathJax, which is as
    large as all the rest and which no plot here needs.
    """
    if curstate().notebook:
        return
    curstate().output_notebook()
    components = ["bokeh", "bokeh-gl", "bokeh-widgets", "bokeh-tables"]
    scripts = "\n;".join(Resources(mode="inline", components=components).js_raw)
    _publish({_JAVASCRIPT: f"(function () {{\n{scripts}\n}}).call(window)"})


def _publish(data: dict[str, str], metadata: dict[str, dict[str, str]] | None = None) -> None:
    from IPython.display import publish_display_data

    publish_display_data(data, metadata=metadata)


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
    notebook = in_notebook()
    if save is None:
        save = not notebook
    drawn = Page(picture, None, [*warning, *notices], not SIZES & options.figure.keys())
    is_report = chosen is None and (save or show)
    with _in_a_report(drawn, drawings, options) if is_report else nullcontext(drawn) as page:
        if save:
            write_page(page, path, mode or "inline")
        if show and notebook:
            show_in_notebook(page, _saved(drawings, options, file), fold)
        elif show and save:
            show_file(path)
        elif show:
            show_in_browser(page, mode or "inline")
    for notice in notices:
        warnings.warn(notice, RuntimeWarning, stacklevel=2)
    return picture


@contextmanager
def _in_a_report(page: Page, drawings: Sequence[Drawing], options: Options) -> Iterator[Page]:
    """The page of all that was drawn; meanwhile its figures look as they do in a report."""
    made = ProfilePage(drawings, page.picture, options)
    with made.in_a_report():
        panels = [panel for panel in (made.layout, made.activities) if panel is not None]
        picture = column(*panels) if len(panels) > 1 else made.layout
        yield page._replace(picture=picture, head=made.head, sections=made.sections())


def _saved(drawings: Sequence[Drawing], options: Options, file: str) -> Saved:
    """What a notebook shows of it without scripts."""
    recording = recording_of(recordings_in(drawings))
    duration = recording.stop - recording.start or 1.0
    return Saved(saved_picture(recording, recording.start, duration, options), file)


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
