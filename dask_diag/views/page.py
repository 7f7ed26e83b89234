"""A page of a summary: a heading, and a table with verdicts."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from html import escape
from urllib.parse import urlsplit

from bokeh.document import Document
from bokeh.embed import file_html
from bokeh.model import Model
from bokeh.models import LayoutDOM
from bokeh.resources import Resources
from jinja2 import Environment, FunctionLoader, Template

from dask_diag.views.assets import call, link, text_of
from dask_diag.views.text import Summary

_SWITCH = "scheme"
"""The button for a light or a dark page."""
_BACKGROUNDS = {"background_fill_color", "border_fill_color"}
_WHITE = "#ffffff"
_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'{elsewhere}; "
    "style-src 'unsafe-inline'{elsewhere}; img-src data: blob:; font-src data:"
)
"""Of saved pages: the browser sees to it that they load nothing but bokeh's code, if that."""


def page_of(
    models: LayoutDOM | Sequence[LayoutDOM],
    resources: Resources,
    frame: str,
    title: str,
    *,
    fitted: bool,
    **variables: object,
) -> str:
    """A page of bokeh's models.

    Parameters
    ----------
    models : bokeh model or list of them
    resources : Resources
    frame : str
        The path of its template, from the views on.
    title : str
    fitted : bool
        Whether what is wider than the window becomes as wide as that.
    **variables
        What else the template needs, besides ``style`` and ``scheme``.
    """
    roots = [models] if isinstance(models, LayoutDOM) else list(models)
    with _in_one_document(roots) as documented, _without_background(documented):
        page: str = file_html(
            roots,
            resources,
            title=title,
            template=_template(frame),
            template_variables={**_look(fitted), **variables},
            suppress_callback_warning=True,
        )
    return page


def page_without_figures(frame: str, title: str, **variables: object) -> str:
    """A page of text and tables, in the frame that those with figures have."""
    own = {**_look(), "title": title, "policy": policy_of()}
    return _template(frame).render({**own, **variables})


def policy_of(resources: Resources | None = None) -> str:
    """What a page of a file may load: nothing but bokeh's code, where that is not in the page.

    A server sends its own policy, which lets the page ask that server.
    """
    files = [] if resources is None else [*resources.js_files, *resources.css_files]
    elsewhere = dict.fromkeys(map(_source_of, files))
    return _POLICY.format(elsewhere="".join(f" {source}" for source in elsewhere))


def _source_of(file: str) -> str:
    """How a policy writes where a file is: a server, or what the page's own folder is on."""
    url = urlsplit(file)
    return f"{url.scheme}://{url.netloc}" if url.netloc else "'self' file:"


@contextmanager
def _in_one_document(roots: Sequence[LayoutDOM]) -> Iterator[Collection[Model]]:
    """Have several roots in a document, unless they are in one; all models that they have.

    Bokeh would do so one by one, and look through all models of all roots with each: they share
    their range of time, so a page of eight figures would be looked through 36 times.
    """
    if len(roots) == 1 or any(root.document is not None for root in roots):
        yield {model for root in roots for model in root.references()}
        return
    document = Document()
    with document.models.freeze():
        for root in roots:
            document.add_root(root)
    try:
        yield list(document.models)
    finally:
        # They are the user's too, who may show them elsewhere.
        document.clear()


@contextmanager
def _without_background(models: Collection[Model]) -> Iterator[None]:
    """Meanwhile figures are clear where they are white; other colours are the user's choice.

    They are the user's too, who may show them elsewhere.
    """
    cleared = []
    try:
        for model in models:
            for name in _BACKGROUNDS & model.properties():
                color = getattr(model, name)
                if color == _WHITE:
                    explicit = name in model.properties_with_values(include_defaults=False)
                    cleared.append((model, name, explicit))
                    setattr(model, name, None)
        yield
    finally:
        for model, name, explicit in cleared:
            if explicit:
                setattr(model, name, _WHITE)
            else:
                delattr(model, name)


def _look(fitted: bool = True) -> dict[str, str]:
    """What templates need.

    ``theme`` is a style of the page, ``scheme`` a script at its end. ``switch`` is the button for a
    light or a dark page, ``schemes`` the script for it, before anything is painted. Each axis and
    tooltip of bokeh's has ``shared_in_figures``: a page has it once, as ``shared``.
    """
    settings = {"widgets": text_of("theme/widgets.css"), "fitted": fitted}
    shared = link("formatting.js")
    return {
        "shared": shared,
        "shared_in_figures": escape(json.dumps(f"{shared}\n")[1:-1], quote=False),
        "theme": text_of("theme/theme.css"),
        "scheme": script("theme/theme.js", "start", json.dumps(settings)),
        "switch": _SWITCH,
        "schemes": script("theme/scheme.js", "offer_schemes", json.dumps(_SWITCH)),
    }


def script(module: str, function: str, arguments: str) -> str:
    """A script for a page that calls a function of a module."""
    return f"(function () {{\n{call(module, function, arguments)}\n}})()"


def _template(name: str) -> Template:
    """The template in such a file; it escapes what it is given."""
    return _environment().get_template(name)


@cache
def _environment() -> Environment:
    """Where templates are compiled once: it takes a tenth of a second for those of a page."""
    return Environment(autoescape=True, loader=FunctionLoader(text_of), trim_blocks=True)


_VERDICTS = ("slower", "faster")


def summary_page(summary: Summary, title: str, heading: str = "Comparison") -> str:
    """A page with a table of verdicts, which needs no network."""
    body = summary._repr_html_()
    # Only the table may be wider than a small screen; the keyboard scrolls what has the focus.
    scroller = '<div role="region" aria-label="Functions" tabindex="0"><table>'
    body = (
        body.replace("→", "→<wbr>")
        .replace("<table>", scroller)
        .replace("</table>", "</table></div>")
    )
    for verdict in _VERDICTS:
        body = _marked(body, verdict)
    return page_without_figures(
        "theme/summary.html",
        title,
        heading=heading,
        summary=body,
        style=text_of("theme/head.css") + text_of("theme/summary.css"),
    )


def _marked(body: str, verdict: str) -> str:
    """Mark the rows that end with a verdict, so that the page's style can colour them."""
    rows = body.split("<tr>")
    ends = f">{verdict}</td></tr>"
    return rows[0] + "".join(
        (f'<tr class="{verdict}">' if ends in row else "<tr>") + row for row in rows[1:]
    )
