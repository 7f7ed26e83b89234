"""The sections of a report: each is a function from a recording to its parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.rules import CODES, find
from dask_diag.analysis.groups import rows_of_workers, worker_order
from dask_diag.analysis.task_times import stop_times, worker_stop_times
from dask_diag.analysis.what_if import predictions as table_of
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import short_key
from dask_diag.views.findings import address_of_page, location, lost, no_findings, page_of
from dask_diag.views.lines import labelled_lines
from dask_diag.views.names import computing_lines, first_line
from dask_diag.views.report import plots
from dask_diag.views.report.components import (
    Code,
    Findings,
    Fold,
    Grid,
    Part,
    ShownFinding,
    Text,
    not_there,
    of_first,
    safe,
)
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.functions import functions
from dask_diag.views.summary import notice_text, profiling_lines
from dask_diag.views.what_if import HEADINGS, notes, prediction_rows

LONGEST_TASKS = "longest-tasks"
"""The table that follows the time that the plots show: ``longest_tasks.js``."""
_TASKS = 50
_SHOWN = 10
"""Of them, until the reader asks for all."""


def single_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Tasks that failed and those that took longest; a button of each shows it in the timeline."""
    yield from _failed_tasks(analysis, figures)
    yield from _longest_tasks(analysis, figures)


def _failed_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    recording = analysis.recording
    tasks, stop = recording.tasks, stop_times(recording)
    failed = np.flatnonzero(tasks.outcome.where(Outcome.FAILED))
    if not len(failed):
        return
    rows = failed[:_TASKS]
    start = np.where(np.isnan(tasks.start), tasks.submitted, tasks.start) - recording.start
    length = np.nan_to_num(stop - recording.start - start)
    yield Grid(
        "Tasks that failed" + of_first(len(failed), _TASKS),
        ("key", "function", "exception", "message", "raised at"),
        [
            (
                safe(short_key(row["key"])),
                safe(row["function"], 40),
                safe(row["error"], 60),
                safe(row["error_message"], 300),
                safe(row["error_location"], 400),
            )
            for row in tasks.rows(rows).to_dicts()
        ],
        texts=5,
        few=_SHOWN,
        intervals=[(float(start[row]), float(start[row] + length[row])) for row in rows.tolist()],
        tasks=figures.task_numbers[rows].tolist(),
    )


def _longest_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    recording = analysis.recording
    tasks, stop = recording.tasks, stop_times(recording)
    took = np.nan_to_num(stop - tasks.start, nan=-1.0)
    rows = np.argsort(-took, kind="stable")[:_TASKS]
    rows = rows[took[rows] >= 0]
    if not len(rows):
        if len(tasks):
            yield Text(["No task is known to have started."])
        else:
            yield not_there("tasks", "Profiler", recording)
        return
    start = tasks.start - recording.start
    table = zip(tasks.rows(rows).to_dicts(), start[rows].tolist(), took[rows].tolist(), strict=True)
    yield Text(
        ["A task's button pins it and shows it in the timeline; a second time all is shown again."]
    )
    yield Grid(
        f"The longest {count(len(rows))} of {count(len(tasks))} tasks of the whole run",
        ("key", "function", "worker", "outcome", "started", "took", "CPU"),
        [
            (
                safe(short_key(row["key"])),
                safe(row["function"], 40),
                safe(row["worker"], 40),
                row["outcome"],
                seconds(began),
                seconds(length),
                percent(row["thread_cpu"] / length) if length else "",
            )
            for row, began, length in table
        ],
        texts=4,
        few=_SHOWN,
        follows=LONGEST_TASKS,
        intervals=[(float(start[row]), float(start[row] + took[row])) for row in rows.tolist()],
        tasks=figures.task_numbers[rows].tolist(),
    )


_WORKERS = 200
_COLUMNS = (
    *(
        "worker",
        "host",
        "address",
        "version",
        "left because of",
        "joined",
        "left",
        "pid",
        "threads",
    ),
    *("clock offset", "tasks", "CPU", "busy"),
)
_TEXTS = 5


def workers(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Each worker: where it ran and when, and what it did; nothing if there was no cluster."""
    table = analysis.recording.workers
    rows = table.rows(~table.address.where("")).to_dicts()
    if not rows:
        return
    rows.sort(key=lambda row: (row["host"], worker_order(row["worker"])))
    done = _Done(analysis)
    yield Grid(
        "Workers of clusters" + of_first(len(rows), _WORKERS),
        _COLUMNS,
        [_cells(row, done, analysis.recording.start) for row in rows[:_WORKERS]],
        texts=_TEXTS,
    )


class _Done:
    """What each worker did."""

    def __init__(self, analysis: Analysis) -> None:
        recording = analysis.recording
        lanes = recording.tasks.worker
        self._rows = rows_of_workers(lanes)
        self._cpu = np.nan_to_num(recording.tasks.thread_cpu)
        self._is_cpu_known = ~np.isnan(recording.tasks.thread_cpu)
        self._took = np.nan_to_num(worker_stop_times(recording) - recording.tasks.start)
        self._stop = recording.stop
        self._start = recording.start

    def of(self, worker: Mapping[str, float]) -> tuple[str, str, str]:
        """How many tasks, their CPU, and what share of its threads' time they had."""
        rows = self._rows.get(str(worker["worker"]), np.zeros(0, np.int64))
        left_at = self._stop if isnan(worker["left"]) else worker["left"]
        thread_seconds = worker["threads"] * max(left_at - max(worker["joined"], self._start), 0.0)
        has_cpu = bool(self._is_cpu_known[rows].any()) or not len(rows)
        return (
            count(len(rows)),
            seconds(float(self._cpu[rows].sum())) if has_cpu else "not known",
            percent(float(self._took[rows].sum()) / thread_seconds) if thread_seconds else "",
        )


def _cells(row: Mapping[str, float], done: _Done, start: float) -> tuple[str, ...]:
    measured = str(row["version"]) if row["measured"] else f"{row['version']} (did not measure)"
    return (
        safe(row["worker"], 60),
        safe(row["host"], 60),
        safe(row["address"], 60),
        safe(measured.strip(), 60),
        safe(row["reason"], 60),
        seconds(row["joined"] - start) if row["joined"] > start else "before",
        "" if isnan(row["left"]) else seconds(row["left"] - start),
        str(row["pid"] or ""),
        count(int(row["threads"])),
        _offset(row["clock_offset"], row["clock_error"]),
        *done.of(row),
    )


def _offset(offset: float, error: float) -> str:
    """How a worker's clock differs from this process's; nothing where they share one."""
    return f"{seconds(offset)} ± {seconds(error)}" if offset or error else "same clock"


_TASKS_SIMULATED = 100_000
"""Up to so many tasks the simulator's dozen replays take a few seconds."""


def predictions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The wall time with more workers, quicker functions, and without waits."""
    tasks = len(analysis.recording.tasks)
    if not tasks:
        yield not_there("tasks", "Profiler", analysis.recording)
        return
    if tasks > _TASKS_SIMULATED:
        yield Text([f"Not simulated for {counted(tasks, 'task')}; dask-diag what-if does."])
        return
    table = table_of(analysis.simulator)
    rows = [tuple(map(safe, row)) for row in prediction_rows(table)]
    yield Grid("Predicted wall time", HEADINGS, rows)
    for note in notes(analysis.recording, table):
        yield Text([note])


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
    Section("workers", "Workers", workers, is_optional=True, entry="Functions"),
    Section("memory", "Memory", plots.memory, entry="Memory"),
    Section("cache", "Cached results", plots.cache, entry="Memory"),
    Section("flame", "Flame graph", plots.flame),
    Section("tasks", "Tasks", single_tasks, entry="Details"),
    Section(
        "critical-path",
        "Critical path",
        plots.longest_chains,
        is_folded=True,
        entry="Details",
    ),
    Section("what-if", "What if", predictions, is_folded=True, entry="Details"),
    Section("code", "Calling code", _calling_code, is_folded=True, entry="Details"),
    Section("environment", "Environment", _versions, is_folded=True, entry="Details"),
)
