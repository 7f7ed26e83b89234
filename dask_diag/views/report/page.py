"""A report: one page about a recording, which needs no network."""

from __future__ import annotations

import json
import os
import shlex
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from pathlib import Path, PurePath
from typing import NamedTuple, Protocol

from bokeh.document import Document
from bokeh.resources import Resources

from dask_diag.analysis.facts import Analysis
from dask_diag.files import as_path, check_target, write_text
from dask_diag.model.recording import Recording
from dask_diag.views.assets import text_of
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.page import page_of, page_without_figures, policy_of, script
from dask_diag.views.plots.tasks import CRITICAL_OUTLINES, CRITICAL_PATH, OUTLINES, PATH, RECTANGLES
from dask_diag.views.report.components import Figure, Fold, Grid, Lanes, Part, Pinned, Wide
from dask_diag.views.report.figures import SHADES, WORKERS, Figures
from dask_diag.views.report.functions import FunctionTable
from dask_diag.views.report.header import Head, head, when
from dask_diag.views.report.plots import CriticalPath
from dask_diag.views.report.sections import LONGEST_TASKS, SECTIONS
from dask_diag.views.sources import Sources, recording_of

_UNSAVED = "recording.diag"
_OF_TASKS = {
    "perfetto": "tasks and dependencies, for ui.perfetto.dev",
    "csv": "tasks, all columns as measured",
    "parquet": "the same, for pandas and other readers",
}
_OF_SAMPLES = {
    "speedscope": "sampled stacks, for speedscope.app",
    "collapsed": "sampled stacks, one in a line",
}
_OF_EVERYTHING = {"json": "all tables and findings"}


class Exports(NamedTuple):
    """What the menu of a report offers.

    Attributes
    ----------
    name : str
        What files that are saved from the page begin with.
    tasks : int
        How many the recording has; the page may have less.
    commands : list of (str, str, str)
        A format, what it is for, and the command line that writes it.
    is_saved : bool
        Whether the name of the recording's file is known.
    """

    name: str
    tasks: int
    commands: list[tuple[str, str, str]]
    is_saved: bool


def exports_of(recording: Recording, file: str | os.PathLike[str] = "") -> Exports:
    """The menu of a recording's report; `file` is the recording's, empty if it is not known."""
    name = PurePath(file).name or _UNSAVED
    # Not an option, and one word of a command line.
    argument = shlex.quote(f"./{name}" if name.startswith("-") else name)
    commands = [
        (format_, purpose, f"dask-diag export {argument} --format {format_}")
        for format_, purpose in _formats(recording)
        # What cannot be printed cannot be copied as a command either.
        if argument.isprintable()
    ]
    stem = shown(PurePath(name).stem, 80) if file else "dask-report"
    return Exports(stem, len(recording.tasks), commands, bool(file))


def _formats(recording: Recording) -> Iterator[tuple[str, str]]:
    if len(recording.tasks):
        yield from _OF_TASKS.items()
    if len(recording.samples):
        yield from _OF_SAMPLES.items()
    yield from _OF_EVERYTHING.items()


_FRAME = "report/report.html"
_PINNED = {
    "row": "pinned",
    "plot": "tasks",
    "rectangles": RECTANGLES,
    "outlines": OUTLINES,
    "path": PATH,
}
"""The row of a pinned task, and the names of the models that it is shown in."""
_CRITICAL = {
    "plot": "tasks",
    "rectangles": RECTANGLES,
    "outlines": CRITICAL_OUTLINES,
    "path": CRITICAL_PATH,
}
"""The models that show the critical path."""
_MENU = "export"


class _AnySection(Protocol):
    """What a page needs to know of a section; `parts` makes what it shows."""

    @property
    def name(self) -> str: ...
    @property
    def title(self) -> str: ...
    @property
    def is_on_top(self) -> bool: ...
    @property
    def is_folded(self) -> bool: ...
    @property
    def entry(self) -> str: ...
    @property
    def parts(self) -> Callable[..., Iterator[Part]]: ...


@dataclass
class MadeSection:
    """A section as the page shows it: its parts, or the error that it ended in."""

    name: str
    title: str
    is_on_top: bool = False
    is_folded: bool = False
    entry: str = ""
    parts: list[Part] = field(default_factory=list)
    error: str = ""


def report(
    profilers: Sources,
    path: str | os.PathLike[str] = "dask-report.html",
    mode: str | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write a page that shows findings first, and then everything that was measured.

    Parameters
    ----------
    profilers : diagnostic, Recording, or a list of them
        Several are combined, as recordings of the same block.
    path : str or path, optional
        The page to write.
    mode : str, optional
        ``"inline"``, the default, puts bokeh's own code into the page; ``"cdn"`` makes a small page
        that needs the network.
    overwrite : bool, optional
        Whether a file that is there may be replaced.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DiagnosticError
        If something is given that has no recording, if the file is there and `overwrite` is false,
        or if it cannot be written.

    Notes
    -----
    A section that cannot be made is a message in the page, and the others are as they would be.
    """
    target = as_path(path, "path")
    check_target(target, overwrite)
    return write_report(Analysis(recording_of(profilers)), target, mode)


def write_report(
    analysis: Analysis,
    path: Path,
    mode: str | None = None,
    *,
    file: str | os.PathLike[str] = "",
) -> Path:
    """Write the page of `report` about a recording whose facts may be known already.

    `file` is where the recording is saved, if that is known.
    """
    write_text(path, report_page(analysis, mode, file=file))
    return path


def report_page(
    analysis: Analysis, mode: str | None = None, *, file: str | os.PathLike[str] = ""
) -> str:
    """The page of `report`, as text; `file` is where the recording is saved, if that is known."""
    resources = Resources(mode=mode or "inline")
    recording = analysis.recording
    title = f"Dask report, {when(recording)}"
    warning = incomplete(recording)
    said = head(analysis), [warning] if warning else []
    exports = exports_of(recording, file)
    try:
        return rendered(_sections(analysis), resources, title, *said, exports=exports)
    except Exception:
        # Bokeh could not write a figure: which one takes as long to find out as the page.
        sections = _sections(analysis)
        for section in sections:
            _leave_out_broken(section)
        return rendered(sections, resources, title, *said, exports=exports)


def _sections(analysis: Analysis) -> list[MadeSection]:
    figures = Figures(analysis)
    made = [(section, made_section(section, analysis, figures)) for section in SECTIONS]
    return [one for section, one in made if one.parts or one.error or not section.is_optional]


def rendered(
    sections: list[MadeSection],
    resources: Resources,
    title: str,
    page_head: Head | None,
    warnings: Sequence[str],
    *,
    exports: Exports | None = None,
    fitted: bool = True,
) -> str:
    """The page of such sections; what it says first is above them.

    Figures that are `fitted` are no wider than the window.
    """
    figures = [figure for section in sections for figure in _figures(section.parts)]
    variables: dict[str, object] = {
        "sections": sections,
        "entries": _entries(sections),
        "warnings": warnings,
        "head": page_head,
        "style": text_of("theme/head.css") + text_of("report/report.css"),
        "pinned": _PINNED["row"],
        "exports": exports,
        "menu": _MENU,
        "actions": _actions(sections, exports, bool(figures)),
    }
    if not figures:
        return page_without_figures(_FRAME, title, **variables)
    for figure in figures:
        figure.model.name = figure.name
    models = [figure.model for figure in figures]
    return page_of(
        models, resources, _FRAME, title, fitted=fitted, policy=policy_of(resources), **variables
    )


def _actions(sections: list[MadeSection], exports: Exports | None, has_figures: bool) -> str:
    """The script of the page; without a menu and pins it is smaller."""
    parts = [part for section in sections for part in _flat(section.parts)]
    has_pins = any(isinstance(part, Pinned) for part in parts)
    tables = [part.over_time for part in parts if isinstance(part, FunctionTable)]
    has_longest = any(isinstance(part, Grid) and part.follows for part in parts)
    paths = [part.paths for part in parts if isinstance(part, CriticalPath)]
    names = {name: _PINNED[name] for name in ("plot", "rectangles")}
    menu = exports and {"menu": _MENU, "name": exports.name, "recorded": exports.tasks, **names}
    longest = {"table": LONGEST_TASKS, **names}
    settings = {
        "marks": {"plot": WORKERS, "shades": SHADES} if has_figures else None,
        "pins": _PINNED if has_pins and has_figures else None,
        "exports": menu,
        "critical": {**_CRITICAL, "paths": paths[0]} if paths and has_figures else None,
        "functions": {"plot": WORKERS, **tables[0]} if tables and has_figures else None,
        "longest": longest if has_longest and has_figures else None,
    }
    is_plain = all(setting is None for name, setting in settings.items() if name != "marks")
    # Nothing in it ends a script.
    text = json.dumps(settings).replace("<", "\\u003c")
    script_of_page = (
        ("report/plain.js", "start_page") if is_plain else ("report/report.js", "start")
    )
    return script(*script_of_page, text)


def _entries(sections: list[MadeSection]) -> list[tuple[str, list[str]]]:
    """The navigation: titles, and the names of the sections behind each."""
    groups = groupby(sections, lambda section: section.entry or section.title)
    return [(title, [section.name for section in group]) for title, group in groups]


def made_section(section: _AnySection, *arguments: object) -> MadeSection:
    """A section of what it is made of; if it fails, the error in its place."""
    made = MadeSection(
        section.name, section.title, section.is_on_top, section.is_folded, section.entry
    )
    try:
        made.parts += section.parts(*arguments)
    except Exception as error:
        _put_error(made, error)
    return made


def _put_error(made: MadeSection, error: Exception) -> None:
    made.parts = []
    made.error = shown(f"{type(error).__name__}: {error}", 600)


def _leave_out_broken(made: MadeSection) -> None:
    """Have the error in place of a section with a figure that cannot be put into a page."""
    for figure in _figures(made.parts):
        document = Document()
        try:
            document.add_root(figure.model)
            document.to_json()
        except Exception as error:
            _put_error(made, error)
            return
        finally:
            document.clear()


def _figures(parts: Sequence[Part]) -> Iterator[Figure]:
    return (part for part in _flat(parts) if isinstance(part, Figure))


def _flat(parts: Sequence[Part]) -> Iterator[Part]:
    """Parts, and those in them."""
    for part in parts:
        yield part
        if isinstance(part, (Fold, Lanes, Wide)):
            yield from _flat(part.parts)
