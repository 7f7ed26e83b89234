"""Where a picture goes: a file, a browser, a notebook."""

from __future__ import annotations

import html
import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp
from typing import NamedTuple

from bokeh.embed.notebook import notebook_content
from bokeh.io import show as bokeh_show
from bokeh.io.state import curstate
from bokeh.models import LayoutDOM
from bokeh.resources import Resources
from bokeh.util.browser import view

from dask_diag.atomic_files import write_text
from dask_diag.views.assets import text_of
from dask_diag.views.escaping import shown
from dask_diag.views.image import image_tag
from dask_diag.views.report.header import Head
from dask_diag.views.report.page import MadeSection, rendered
from dask_diag.views.saved_picture import SavedPicture
from dask_diag.views.theme.page import page_of, policy_of, script

__all__ = [
    "Page",
    "Saved",
    "in_notebook",
    "show_file",
    "show_in_browser",
    "show_in_notebook",
    "write_page",
]

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
