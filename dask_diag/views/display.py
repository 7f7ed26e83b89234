"""Where a picture goes: a file, a browser, a notebook."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import mkdtemp

from bokeh.io import output_notebook
from bokeh.io import show as bokeh_show
from bokeh.io.state import curstate
from bokeh.models import LayoutDOM
from bokeh.resources import Resources
from bokeh.util.browser import view

from dask_diag.atomic_files import write_text
from dask_diag.views.theme.page import page_of

__all__ = ["in_notebook", "show_file", "show_in_browser", "show_in_notebook", "write_page"]

_FRAME = "theme/page.html"


def write_page(
    picture: LayoutDOM, path: Path, mode: str, fitted: bool, notices: Sequence[str]
) -> None:
    """Write a page with a picture, and above it notices.

    Parameters
    ----------
    picture : bokeh layout
    path : Path
    mode : str
        Where the page finds bokeh's own code, as bokeh's `Resources` has it.
    fitted : bool
        Whether a picture that is wider than the window becomes as wide as that.
    notices : sequence of str
    """
    resources = Resources(mode=mode)
    title = "dask_diag profile"
    page = page_of(picture, resources, _FRAME, title, fitted=fitted, notices=list(notices))
    write_text(path, page)


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


def show_in_browser(picture: LayoutDOM, mode: str, fitted: bool, notices: Sequence[str]) -> None:
    """Show what is not saved: the browser needs a file, but in no folder of the user's."""
    if curstate().file is not None:
        # The user chose bokeh's file.
        bokeh_show(picture)
        return
    path = Path(mkdtemp(prefix="dask_diag-")) / "profile.html"
    write_page(picture, path, mode, fitted, notices)
    show_file(path)


def show_in_notebook(picture: LayoutDOM) -> None:
    """Show a picture below the cell that is running."""
    if not curstate().notebook:
        output_notebook(resources=Resources(mode="inline"), hide_banner=True)
    bokeh_show(picture)
