"""The summary: one table for a terminal at 80 columns, or for a notebook."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from math import isnan

import numpy as np

from dask_diag.analysis.built_by import BY, BuiltBy, table_of_lines
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.findings.rules import find
from dask_diag.analysis.groups import lookup, rows_by, workers_of, workers_of_clusters
from dask_diag.analysis.headline import (
    computations_of_tasks_alone,
    headline,
    not_ended,
    why_no_tasks,
)
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import OUTCOMES, PROFILING, UNKNOWN_WORKER, Outcome
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.views.built_by import HEADINGS as LINE_HEADINGS
from dask_diag.views.built_by import line_rows, on_work_built_before, with_total
from dask_diag.views.cell import findings_html, make_summary
from dask_diag.views.escaping import shown
from dask_diag.views.findings import (
    explained_by,
    fix,
    incomplete,
    location,
    no_findings,
    saving,
    savings_overlap,
)
from dask_diag.views.lines import labelled_lines, shares_of_wall_time, worker_time_line
from dask_diag.views.saved_picture import timeline_html
from dask_diag.views.text import FindingText, Record, Summary, SummaryParts

_DIAGNOSTIC = "late-samples"
"""The finding on a profiler; if severe, numbers are unreliable."""


def is_about_profilers(finding: Finding) -> bool:
    """Whether a finding is on a profiler and changes few numbers."""
    return finding.code == _DIAGNOSTIC and finding.severity == "low"


def without_profilers(notices: tuple[str, ...]) -> list[str]:
    """Notices that are needed to read the numbers."""
    return [notice for notice in notices if not notice.startswith(PROFILING)]


def notice_text(notice: str) -> str:
    """Text of a notice, without the mark of notices on profilers."""
    return shown(notice.removeprefix(PROFILING), 400)


def profiling_lines(analysis: Analysis, verbose: bool) -> Iterator[tuple[str, str]]:
    """Cost of profiling, for a recording with computations.

    Parameters
    ----------
    analysis : Analysis
    verbose : bool
        Whether to add the calibration of hooks and the delay of samples, or else to say that there
        is more.
    """
    if not len(analysis.recording.computations):
        return
    more = "" if verbose else "; more with --verbose"
    yield "Profiling", f"{_cost(analysis, verbose)}{more}"
    if verbose:
        yield from _hooks(analysis)
        yield from _delays(analysis)


def _cost(analysis: Analysis, verbose: bool) -> str:
    hooks, threads = analysis.cpu_of_hooks, analysis.cpu_of_own_threads
    computations, unknown = analysis.recording.computations, []
    if np.isnan(computations.cpu_hooks).any():
        in_workers = " in worker processes" if "processes" in analysis.schedulers else ""
        unknown.append(f"hooks{in_workers}")
    elif verbose and np.isnan(computations.cpu_ends).any():
        unknown.append("hooks at the start and the end of computations")
    if isnan(threads):
        unknown.append("threads")
    known = {"hooks": hooks, "threads": threads}
    costs = [f"{seconds(cpu)} in {name}" for name, cpu in known.items() if not isnan(cpu)]
    texts = []
    if costs:
        most, share = analysis.most_cpu_of_profilers, percent(analysis.share_of_profilers)
        parts = f" (about {' and '.join(costs)}, and what these slow down)" if verbose else ""
        texts.append(f"at most {seconds(most)} of CPU, {share} of the wall time{parts}")
    if unknown:
        measured = "measured on clusters" if analysis.on_cluster else "known"
        texts.append(f"not {measured}: {' and '.join(unknown)}")
    return "; ".join(texts)


def _hooks(analysis: Analysis) -> Iterator[tuple[str, str]]:
    tasks, computations = len(analysis.recording.tasks), len(analysis.recording.computations)
    parts = []
    if not isnan(analysis.cpu_at_ends):
        each = seconds(analysis.cpu_at_ends / computations)
        parts.append(f"{each} of CPU a computation, measured")
    if tasks and not isnan(analysis.cpu_of_task_hooks):
        parts.append(
            f"{seconds(analysis.cpu_of_task_hooks / tasks)} of CPU a task, as calibrated before "
            "the first computation"
        )
    if parts:
        yield "Hooks", "; ".join(parts)


def _delays(analysis: Analysis) -> Iterator[tuple[str, str]]:
    delay = analysis.recording.resources.delay
    delay = delay[~np.isnan(delay)]
    if len(delay):
        yield (
            "Sampling",
            f"{counted(len(delay), 'sample')} of CPU and memory, later than planned by "
            f"{seconds(float(np.median(delay)))} (median), max {seconds(float(delay.max()))}",
        )


_FUNCTIONS_SHOWN, _WITH_VERBOSE = 10, 30
_LINES_SHOWN = 5
HEADINGS = ("function", "tasks", "task time", "CPU", "CPU %", "longest")


def summary(source: Sources, *, verbose: bool = False, by: str = "function") -> Summary:
    """Table of the measurements by function, with totals, findings, failures and notices.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined.
    verbose : bool, default False
        Show everything: worker time, phases, waits, hottest lines, cached results, other threads,
        more functions, and the profilers' own overhead.
    by : {"function", "line", "script"}, default "function"
        Rows of the table: functions, below the five lines of your program that built most task
        time; or all these lines, as in `lines`.

    Returns
    -------
    Summary
        A string of at most 80 columns, to print; an HTML table in a notebook. Its method
        ``for_terminal(width, color)`` returns other widths, and colors.

    Raises
    ------
    DiagnosticError
        If `by` is unknown.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, summary
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> print(summary(prof))        # doctest: +SKIP
    """
    if by not in ("function", *BY):
        raise DiagnosticError(f"by: expected one of function, {', '.join(BY)}, found {by!r}")
    recording = recording_of(source)
    parts = summary_parts(Analysis(recording), verbose)
    if by != "function":
        table = table_of_lines(recording, BuiltBy.of(recording, by))
        rows = with_total(recording, table, line_rows(table))
        parts = replace(parts, above=((), ()), columns=LINE_HEADINGS, rows=rows)
    return make_summary(parts)


def summary_parts(analysis: Analysis, verbose: bool = False) -> SummaryParts:
    """Content of the summary of a recording."""
    findings, notices = list(find(analysis)), analysis.recording.notices
    shown_findings = [finding for finding in findings if verbose or not is_about_profilers(finding)]
    shown_notices = list(notices) if verbose else without_profilers(notices)
    wall, shares = shares_of_wall_time(analysis)
    return SummaryParts(
        headline=f"{sentence(analysis, findings)}\n{outcome(analysis)}",
        warning=incomplete(analysis.recording),
        findings=[_in_words(finding, analysis.recording) for finding in shown_findings],
        note_on_findings=savings_overlap(shown_findings, analysis),
        more=explained_by(shown_findings),
        bar_title=f"Wall time {seconds(wall)}",
        bar=shares,
        above=(LINE_HEADINGS, line_rows(analysis.lines, _LINES_SHOWN)),
        columns=HEADINGS,
        rows=list(function_rows(analysis, verbose)),
        lines=[
            *(worker_time_line(analysis) if verbose else ()),
            *on_work_built_before(analysis.lines),
            *labelled_lines(analysis, verbose),
            *profiling_lines(analysis, verbose),
        ],
        notices=[notice_text(notice) for notice in shown_notices],
        picture=partial(timeline_html, analysis.recording),
    )


class FindingList(list[Finding]):
    """Findings of a recording, which a notebook shows as cards."""

    def __init__(self, found: Iterable[Finding], recording: Recording) -> None:
        super().__init__(found)
        self._recording = recording

    def __repr__(self) -> str:
        titles = [_in_words(finding, self._recording).title for finding in self]
        return f"<{counted(len(self), 'finding')}{': ' if titles else ''}{'; '.join(titles)}>"

    def _repr_html_(self) -> str:
        texts = [_in_words(finding, self._recording) for finding in self]
        note = savings_overlap(self, Analysis(self._recording))
        return findings_html(texts, note) or f"<p>{no_findings(Analysis(self._recording))}</p>"


def findings(source: Sources) -> FindingList:
    """Causes of lost time, and of misleading numbers, in a recording; the worst first.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined. Findings about waits for the GIL and for CPUs need
        ``Profiler(waits=True)``; findings about memory need a `ResourceProfiler`. `record` has
        both.

    Returns
    -------
    list of Finding
        Empty if nothing is worth reporting. A notebook shows it as cards.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, findings
    >>> with Profiler(waits=True) as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> for finding in findings(prof):          # doctest: +SKIP
    ...     print(finding.code, finding.evidence, finding.advice)
    """
    recording = recording_of(source)
    return FindingList(find(Analysis(recording)), recording)


def _in_words(finding: Finding, recording: Recording) -> FindingText:
    """Code, severity and saving of a finding; evidence, advice and place."""
    evidence, advice = shown(finding.evidence, 600), shown(finding.advice, 400)
    where = location(finding, recording)
    text = f"{evidence}. {fix(advice)}"
    text = f"{text} Where: {where}." if where else text
    return FindingText(finding.code, finding.severity, saving(finding), text)


def sentence(analysis: Analysis, findings: Sequence[Finding]) -> str:
    """The headline, below what did not run if a computation was interrupted or raised."""
    recording = analysis.recording
    computations, tasks = recording.computations, recording.tasks
    errors = dict.fromkeys(error for error in computations.error.tolist() if error)
    if not errors or not len(tasks):
        return headline(analysis, findings)
    done = int(tasks.outcome.eq(Outcome.OK).sum())
    ended = " and ".join(
        "interrupted" if error == "KeyboardInterrupt" else f"ended by {shown(error)}"
        for error in errors
    )
    number = len(computations) - int(computations.error.eq("").sum())
    which = f"{number} of {count(len(computations))} computations " if len(computations) > 1 else ""
    total = len(tasks) + _never_run(recording)
    return (
        f"{count(done)} of {counted(total, 'task')}, {which}{ended}. {headline(analysis, findings)}"
    )


def _never_run(recording: Recording) -> int:
    """Number of tasks of computations that an error ended before their tasks were submitted."""
    failed = recording.computations.filter(~recording.computations.error.eq(""))
    names = failed.computation.tolist()
    planned, tasks = recording.planned, recording.tasks
    total = int(planned.tasks[planned.computation.is_in(names)].sum())
    return max(total - int(tasks.computation.is_in(names).sum()), 0)


def outcome(analysis: Analysis) -> str:
    """Wall time in computations, tasks, workers and outcome, in one line."""
    recording = analysis.recording
    tasks, computations = recording.tasks, recording.computations
    number = len(computations) + len(computations_of_tasks_alone(recording))
    if not number:
        return _without_computations(recording)
    time = f"{seconds(analysis.computing)} in " if len(computations) else ""
    time = f"{time}{counted(number, 'computation')}{_not_ended(recording, number)}"
    if not len(tasks):
        return time
    threads, used = _threads_used(recording)
    workers = f" on {counted(used, 'worker')}" if used else ""
    if threads > used:
        workers = f"{workers} with {counted(threads, 'thread')}"
    return f"{time}: {counted(len(tasks), 'task')}{workers}, {_outcome(recording)}"


def _without_computations(recording: Recording) -> str:
    only_memory = len(recording.memory) and not len(recording.environment)
    if only_memory and recording.is_complete:
        return "A MemorySampler records memory, and no computations"
    why = why_no_tasks(recording)
    return f"{why[:1].upper()}{why[1:]}"


def _not_ended(recording: Recording, number: int) -> str:
    running = len(not_ended(recording))
    if running and number == 1:
        return ", which had not ended"
    return f", of which {count(running)} had not ended" if running else ""


def _outcome(recording: Recording) -> str:
    outcomes = recording.tasks.outcome
    counts = {name: int(outcomes.eq(name).sum()) for name in OUTCOMES}
    done = counts.pop(Outcome.OK)
    others = [f"{count(n)} {name}" for name, n in counts.items() if n]
    # Of a computation that had not ended more tasks may be done than were written.
    at_least = [f"{count(done)} known to be done"] if not_ended(recording) else []
    never = _never_run(recording)
    others += [f"{count(never)} more not run"] if never else []
    return ", ".join([*at_least, *others]) or "all done"


def _threads_used(recording: Recording) -> tuple[int, int]:
    """Number of known threads that started a task, of which none seceded, and of their workers."""
    tasks = recording.tasks
    is_known = ~np.isnan(tasks.start) & ~tasks.worker.eq(UNKNOWN_WORKER)
    on_cluster = workers_of_clusters(recording)
    threads_of = lookup(on_cluster.worker, on_cluster.threads)
    lanes = tasks.worker[is_known]
    rows_of = rows_by(workers_of(lanes))
    used = {name: len(np.unique(lanes.codes[rows])) for name, rows in rows_of.items()}
    return sum(min(n, threads_of.get(name, n)) for name, n in used.items()), len(used)


def function_rows(analysis: Analysis, verbose: bool) -> Iterator[tuple[str, ...]]:
    """Cells for each function, then for those not shown, then for all."""
    records = analysis.functions.to_dicts()
    most = _WITH_VERBOSE if verbose else _FUNCTIONS_SHOWN
    for record in records[:most]:
        yield _row(shown(analysis.shown_names[record["function"]]), [record])
    if others := records[most:]:
        yield _row(f"({counted(len(others), 'more function')})", others)
    if records:
        yield _row("total", records)


def _row(name: str, records: Sequence[Record]) -> tuple[str, ...]:
    tasks = sum(record["tasks"] for record in records)
    wall, cpu, longest = (
        [record[column] for record in records if not isnan(record[column])]
        for column in ("wall", "thread_cpu", "longest")
    )
    if not wall:
        return (name, count(tasks), "unknown", "", "", "")
    share = percent(sum(cpu) / sum(wall)) if sum(wall) else ""
    if not cpu:
        # These workers did not measure CPU time.
        return (name, count(tasks), seconds(sum(wall)), "unknown", "", seconds(max(longest)))
    times = (sum(wall), sum(cpu))
    return (name, count(tasks), *map(seconds, times), share, seconds(max(longest)))
