"""Pages: text, tables and figures in one frame, light and dark, without the network."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import cache
from html import escape
from itertools import groupby
from typing import NamedTuple
from urllib.parse import urlsplit

from bokeh.core.json_encoder import serialize_json
from bokeh.document import Document
from bokeh.embed import file_html, json_item
from bokeh.model import Model
from bokeh.models import LayoutDOM
from bokeh.resources import Resources
from jinja2 import Environment, FunctionLoader

from dask_diag.views.assets import call, link, text_of
from dask_diag.views.escaping import shown
from dask_diag.views.report.components import (
    Figure,
    FunctionTable,
    Part,
    PathSwitch,
    SourceTable,
    WallBar,
)
from dask_diag.views.text import Summary


class Head(NamedTuple):
    """Top of a page: a sentence, facts below it, and the wall time as a bar, if any passed."""

    title: str
    facts: str
    wall: WallBar | None = None


@dataclass
class Section:
    """A part of a page with a heading of its own.

    Attributes
    ----------
    name, title : str
    make : callable
        Makes the parts.
    is_on_top : bool
        The section is on the first screen: its title is for screen readers.
    is_optional : bool
        Pages leave the section out if it has no parts.
    is_folded : bool
        The section can be folded, and is on a phone.
    entry : str
        Entry of the navigation that neighbors share; by default the title.
    parts : list of Part
    error : str
        Error in place of parts.
    """

    name: str
    title: str
    make: Callable[..., Iterable[Part]] = tuple
    is_on_top: bool = False
    is_optional: bool = False
    is_folded: bool = False
    entry: str = ""
    parts: list[Part] = field(default_factory=list)
    error: str = ""

    def made(self, *arguments: object) -> Section:
        """Make a copy with parts; if that fails, with the error."""
        made = replace(self, parts=[])
        try:
            made.parts += self.make(*arguments)
        except Exception as error:
            made._fail(error)
        return made

    def all_parts(self) -> Iterator[Part]:
        """Parts, and the parts in them."""
        return (inner for part in self.parts for inner in part.flat())

    def figures(self) -> list[Figure]:
        """Figures among the parts."""
        return [part for part in self.all_parts() if isinstance(part, Figure)]

    def check_figures(self) -> None:
        """Put the error in place of the parts if bokeh cannot write one of the figures."""
        for figure in self.figures():
            document = Document()
            try:
                document.add_root(figure.model)
                document.to_json()
            except Exception as error:
                self._fail(error)
                return
            finally:
                document.clear()

    def _fail(self, error: Exception) -> None:
        self.parts, self.error = [], shown(f"{type(error).__name__}: {error}", 600)


class Exports(NamedTuple):
    """Menu of a page's exports.

    Attributes
    ----------
    name : str
        Beginning of the names of files that are saved from the page.
    tasks : int
        Tasks of the recording; the page may have less.
    commands : list of (str, str, str)
        A format, its purpose, and the command line that writes it.
    is_saved : bool
        Whether the name of the recording's file is known.
    """

    name: str
    tasks: int
    commands: list[tuple[str, str, str]]
    is_saved: bool


@dataclass
class Page:
    """A page of sections, or of a picture.

    Attributes
    ----------
    title : str
        Title of the browser's window.
    head : Head, optional
    warnings : list of str
        Sentences to read before any number.
    sections : list of Section
    picture : bokeh layout, optional
        Layout that a notebook shows, and a page without sections.
    exports : Exports, optional
    fitted : bool
        Whether figures that are wider than the window become as wide as the window.
    """

    title: str
    head: Head | None = None
    warnings: Sequence[str] = ()
    sections: Sequence[Section] = ()
    picture: LayoutDOM | None = None
    exports: Exports | None = None
    fitted: bool = True

    def html(self, mode: str | None = None) -> str:
        """Write the page; `mode` says where it finds bokeh's own code, as in `Resources`."""
        resources = Resources(mode=mode or "inline")
        said = {"head": self.head, "warnings": self.warnings}
        style = text_of("theme/head.css")
        if not self.sections:
            return html_of(
                "theme/page.html",
                self.title,
                [] if self.picture is None else [self.picture],
                resources,
                fitted=self.fitted,
                style=style,
                **said,
            )
        figures = [figure for section in self.sections for figure in section.figures()]
        for figure in figures:
            figure.model.name = figure.name
        groups = groupby(self.sections, lambda section: section.entry or section.title)
        return html_of(
            "report/report.html",
            self.title,
            [figure.model for figure in figures],
            resources,
            fitted=self.fitted,
            style=style + text_of("report/report.css"),
            sections=self.sections,
            entries=[(title, [section.name for section in group]) for title, group in groups],
            exports=self.exports,
            actions=self._script(bool(figures)),
            **said,
        )

    def item(self) -> tuple[str, str]:
        """The picture as an item of bokeh and settings of ``cell.js``: JSON without a tag."""
        assert self.picture is not None
        with _without_background(self.picture.references()):
            item = serialize_json(json_item(self.picture))
        settings = json.dumps({"fitted": self.fitted, "widgets": text_of("theme/widgets.css")})
        # nbconvert writes it into a script of a page.
        return item.replace("<", "\\u003c"), settings

    def _script(self, has_figures: bool) -> str:
        """Script of the page beside its figures."""
        parts = [part for section in self.sections for part in section.all_parts()]
        paths = [part.paths for part in parts if isinstance(part, PathSwitch)]
        lines = [part.numbers for part in parts if isinstance(part, SourceTable)]
        functions = [part.over_time for part in parts if isinstance(part, FunctionTable)]
        settings = {
            "has_figures": has_figures,
            "exports": self.exports and {"name": self.exports.name, "recorded": self.exports.tasks},
            "paths": paths[0] if paths else None,
            "functions": functions[0] if functions else None,
            "lines": lines[0] if lines else None,
        }
        # No text in it ends a script.
        text = json.dumps(settings).replace("<", "\\u003c")
        if self.exports is None:
            return script("report/plain.js", "start_page", text)
        return script("report/report.js", "start", text)


_POLICY = (
    "default-src 'none'; script-src 'unsafe-inline' 'unsafe-eval'{elsewhere}; "
    "style-src 'unsafe-inline'{elsewhere}; img-src data: blob:; font-src data:"
)


def policy_of(resources: Resources | None = None) -> str:
    """Policy of a saved page: the browser lets it load bokeh's code at most.

    A server sends its own policy, which lets the page ask that server.
    """
    files = [] if resources is None else [*resources.js_files, *resources.css_files]
    urls = map(urlsplit, files)
    # A file without a server is in the page's own folder.
    sources = (f"{url.scheme}://{url.netloc}" if url.netloc else "'self' file:" for url in urls)
    return _POLICY.format(elsewhere="".join(f" {source}" for source in dict.fromkeys(sources)))


def html_of(
    template: str,
    title: str,
    figures: Sequence[LayoutDOM] = (),
    resources: Resources | None = None,
    *,
    fitted: bool = True,
    **variables: object,
) -> str:
    """Write a page from a template.

    Parameters
    ----------
    template : str
        Path of the template, from the views on.
    title : str
    figures : sequence of bokeh models, optional
    resources : Resources, optional
        Where the page finds bokeh's own code, if it has figures.
    fitted : bool, optional
        Whether figures that are wider than the window become as wide as the window.
    **variables
        Variables of the template besides those of all pages.
    """
    # Each axis and tooltip of bokeh's begins with this script: a page has it once.
    shared = link("formatting.js")
    settings = {"widgets": text_of("theme/widgets.css"), "fitted": fitted}
    variables = {
        "policy": policy_of(resources if figures else None),
        "theme": text_of("theme/theme.css"),
        "shared": shared,
        "shared_in_figures": escape(json.dumps(f"{shared}\n")[1:-1], quote=False),
        # Before anything is painted the page becomes light or dark, at its end the figures do.
        "schemes": script("theme/scheme.js", "offer_schemes", ""),
        "scheme": script("theme/theme.js", "start", json.dumps(settings)),
        **variables,
    }
    page = _templates().get_template(template)
    if not figures:
        return page.render(title=title, **variables)
    with _in_one_document(figures) as models, _without_background(models):
        html: str = file_html(
            list(figures),
            resources,
            title=title,
            template=page,
            template_variables=variables,
            suppress_callback_warning=True,
        )
    return html


def script(module: str, function: str, arguments: str) -> str:
    """Script of a page that calls a function of a module."""
    return f"(function () {{\n{call(module, function, arguments)}\n}})()"


@cache
def _templates() -> Environment:
    """Templates, which are compiled once: it takes a tenth of a second. They escape texts."""
    return Environment(autoescape=True, loader=FunctionLoader(text_of), trim_blocks=True)


@contextmanager
def _in_one_document(roots: Sequence[LayoutDOM]) -> Iterator[Collection[Model]]:
    """Put several roots into a document, unless they are in one; returns all their models.

    Bokeh would do so one by one, and look through all models of all roots with each: as roots
    share their range of time, a page of eight figures would be looked through 36 times.
    """
    if len(roots) == 1 or any(root.document is not None for root in roots):
        yield {model for root in roots for model in root.references()}
        return
    document = Document()
    try:
        with document.models.freeze():
            for root in roots:
                document.add_root(root)
        yield list(document.models)
    finally:
        # The user may show the figures elsewhere.
        document.clear()


_BACKGROUNDS = {"background_fill_color", "border_fill_color"}
_WHITE = "#ffffff"


@contextmanager
def _without_background(models: Collection[Model]) -> Iterator[None]:
    """Make white figures clear in this block; other colors are the user's choice.

    The user may show the figures elsewhere.
    """
    cleared = []
    try:
        for model in models:
            for name in _BACKGROUNDS & model.properties():
                if getattr(model, name) == _WHITE:
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


def summary_page(summary: Summary, title: str, heading: str = "Comparison") -> str:
    """Write a page with a heading and a table with verdicts."""
    # Only the table may be wider than a small screen; the keyboard scrolls what has the focus.
    body = (
        summary._repr_html_()
        .replace("→", "→<wbr>")
        .replace("<table>", '<div role="region" aria-label="Functions" tabindex="0"><table>')
        .replace("</table>", "</table></div>")
    )
    # A row that ends with a verdict has the color of the verdict.
    first, *rows = body.split("<tr>")
    ends = {f">{verdict}</td></tr>": verdict for verdict in ("slower", "faster")}
    for row in rows:
        verdict = next((verdict for end, verdict in ends.items() if end in row), "")
        first += f'<tr class="{verdict}">{row}' if verdict else f"<tr>{row}"
    style = text_of("theme/head.css") + text_of("theme/summary.css")
    return html_of("theme/summary.html", title, heading=heading, summary=first, style=style)
