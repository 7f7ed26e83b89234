"""The sections of a report: each is a function from a recording to its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings import CODES, Finding, find
from dask_diag.formatting import counted
from dask_diag.model.recording import Recording
from dask_diag.views.findings import address_of_page, location, lost, no_findings, page_of
from dask_diag.views.profiling_lines import notice_text, profiling_lines
from dask_diag.views.recorded_code import computing_lines, first_line
from dask_diag.views.report import cluster, critical_path, plots, tasks
from dask_diag.views.report.components import (
    Code,
    Findings,
    Fold,
    Grid,
    Part,
    ShownFinding,
    Text,
    safe,
)
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.functions import functions
from dask_diag.views.report.predictions import predictions
from dask_diag.views.summary_lines import labelled_lines

__all__ = ["OF_WHOLE_RUN", "SECTIONS", "Section"]

OF_WHOLE_RUN = "Of the whole run, whatever part of the time the plots show."

_CODE = 20_000


class Section(NamedTuple):
    """A part of the page with a heading of its own."""

    name: str
    title: str
    parts: Callable[[Analysis, Figures], Iterator[Part]]
    is_on_top: bool = False
    """It is on the first screen: its title is for those who do not see it."""
    is_optional: bool = False
    """It is left out of pages that it has nothing for."""
    is_folded: bool = False
    """It can be folded, and is on a phone."""
    entry: str = ""
    """The entry of the navigation that it shares with its neighbours; else it has its own."""


def _findings(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    shown_findings = [_shown(finding, analysis.recording) for finding in find(analysis)]
    if shown_findings:
        yield Findings(shown_findings)
    else:
        yield Text([no_findings(analysis)])
        yield Fold(f"The {counted(len(CODES), 'rule')} that were tried", [Text([", ".join(CODES)])])


def _shown(finding: Finding, recording: Recording) -> ShownFinding:
    start = recording.start
    return ShownFinding(
        code=finding.code,
        severity=finding.severity,
        lost=lost(finding),
        evidence=safe(finding.evidence, 600),
        advice=safe(finding.advice, 400),
        where=location(finding, recording),
        intervals=[(left - start, right - start) for left, right in finding.where.intervals],
        page=page_of(finding),
        address=address_of_page(finding),
    )


def _summary(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    yield Text([OF_WHOLE_RUN])
    lines = [*labelled_lines(analysis), *profiling_lines(analysis, verbose=True)]
    yield Text([f"{label}: {text}" for label, text in lines], listed=True)
    yield Text([notice_text(notice) for notice in analysis.recording.notices], listed=True)


def _calling_code(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    rows = _facts(analysis.recording, "calling code")
    if not rows:
        yield Text(["The code that computed was not recorded, or its source is not there."])
    for path, text in rows:
        computing = computing_lines(analysis.recording, path)
        yield Code(safe(path), _lines(text), first_line(path), computing)


def _lines(text: str) -> str:
    """The user's code, what cannot be printed spelled out."""
    lines = [safe(line.expandtabs(), 500) for line in text[:_CODE].split("\n")]
    return "\n".join(lines) + ("\n…" if len(text) > _CODE else "")


def _versions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    recording = analysis.recording
    if not len(recording.environment):
        yield Text(["Where this was recorded is not in the recording."])
        return
    for section in ("versions", "machine"):
        yield Grid(section.capitalize(), ("", ""), _escaped_facts(recording, section), texts=2)
    configuration = _escaped_facts(recording, "configuration")
    yield Fold(
        f"dask's configuration ({counted(len(configuration), 'entry', 'entries')})",
        [Grid("Configuration", ("name", "value"), configuration, texts=2)],
    )


def _escaped_facts(recording: Recording, section: str) -> list[tuple[str, str]]:
    return [(safe(name), safe(value, 300)) for name, value in _facts(recording, section)]


def _facts(recording: Recording, section: str) -> list[tuple[str, str]]:
    table = recording.environment
    rows = table.rows(table.section.where(section))
    return list(zip(rows.name.tolist(), rows.value.tolist(), strict=True))


SECTIONS = (
    Section("findings", "Findings", _findings, is_on_top=True),
    Section("timeline", "Timeline", plots.timeline, is_on_top=True),
    Section("functions", "By function", functions, entry="Functions"),
    Section("summary", "Summary", _summary, is_folded=True, entry="Functions"),
    Section("workers", "Workers", cluster.workers, is_optional=True, entry="Functions"),
    Section("memory", "Memory", plots.memory, entry="Memory"),
    Section("cache", "Cached results", plots.cache, entry="Memory"),
    Section("flame", "Flame graph", plots.flame),
    Section("tasks", "Tasks", tasks.single_tasks, entry="Details"),
    Section(
        "critical-path",
        "Critical path",
        critical_path.longest_chains,
        is_folded=True,
        entry="Details",
    ),
    Section("what-if", "What if", predictions, is_folded=True, entry="Details"),
    Section("code", "Calling code", _calling_code, is_folded=True, entry="Details"),
    Section("environment", "Environment", _versions, is_folded=True, entry="Details"),
)
