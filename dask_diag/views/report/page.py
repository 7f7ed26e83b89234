"""A report: one page about a recording, which needs no network."""

from __future__ import annotations

import os
import shlex
from pathlib import Path, PurePath

from dask_diag.analysis.facts import Analysis
from dask_diag.files import as_path, check_target, write_text
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.page import Exports, Page
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.header import head, when
from dask_diag.views.report.sections import SECTIONS

_UNSAVED = "recording.diag"
_FORMATS = {
    "perfetto": ("tasks", "tasks and dependencies, for ui.perfetto.dev"),
    "csv": ("tasks", "tasks, all columns as measured"),
    "parquet": ("tasks", "the same, for pandas and other readers"),
    "speedscope": ("samples", "sampled stacks, for speedscope.app"),
    "collapsed": ("samples", "sampled stacks, one in a line"),
    "json": ("", "all tables and findings"),
}
"""Formats with the table that an export needs, and their purposes."""


def exports_of(recording: Recording, file: str | os.PathLike[str] = "") -> Exports:
    """Menu of a recording's report; `file` is the recording's, empty if not known."""
    name = PurePath(file).name or _UNSAVED
    # Not an option, and one word of a command line.
    argument = shlex.quote(f"./{name}" if name.startswith("-") else name)
    commands = [
        (format_, purpose, f"dask-diag export {argument} --format {format_}")
        for format_, (table, purpose) in _FORMATS.items()
        # A name that cannot be printed cannot be copied as a command.
        if argument.isprintable() and (not table or len(recording.tables()[table]))
    ]
    stem = shown(PurePath(name).stem, 80) if file else "dask-report"
    return Exports(stem, len(recording.tasks), commands, bool(file))


def report(
    source: Sources,
    path: str | os.PathLike[str] = "dask-report.html",
    mode: str | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write an HTML report: findings first, then everything that was measured.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined.
    path : str or os.PathLike, default "dask-report.html"
        Page to write.
    mode : {"inline", "cdn"}, default "inline"
        ``"inline"`` puts bokeh's code into the page; ``"cdn"`` makes a small page that needs the
        network.
    overwrite : bool, default False
        Replace an existing file.

    Returns
    -------
    Path
        The file.

    Raises
    ------
    DiagnosticError
        If `source` has no recording, the file exists and `overwrite` is false, or the file cannot
        be written.

    Notes
    -----
    If a section cannot be rendered, the page shows an error message in its place.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, report
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> report(prof, "run.html").name
    'run.html'
    """
    target = as_path(path, "path")
    check_target(target, overwrite)
    return write_report(Analysis(recording_of(source)), target, mode)


def write_report(
    analysis: Analysis,
    path: Path,
    mode: str | None = None,
    *,
    file: str | os.PathLike[str] = "",
) -> Path:
    """Write the page of `report` about a recording whose facts may be known already.

    `file` is where the recording is saved, if known.
    """
    write_text(path, report_page(analysis, mode, file=file))
    return path


def report_page(
    analysis: Analysis, mode: str | None = None, *, file: str | os.PathLike[str] = ""
) -> str:
    """The page of `report` as text; `file` is where the recording is saved, if known."""
    recording = analysis.recording
    warning = incomplete(recording)
    figures = Figures(analysis)
    sections = [section.made(analysis, figures) for section in SECTIONS]
    page = Page(
        title=f"Dask report, {when(recording)}",
        head=head(analysis),
        warnings=[warning] if warning else [],
        sections=[s for s in sections if s.parts or s.error or not s.is_optional],
        exports=exports_of(recording, file),
    )
    try:
        return page.html(mode)
    except Exception:
        # Bokeh could not write a figure. To find out which takes as long as to write the page.
        for section in page.sections:
            section.check_figures()
        return page.html(mode)
