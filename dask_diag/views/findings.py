"""Findings as text, the reason for no findings, and the warning on an incomplete recording."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import Any

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import FIND_OUT, MEASURED, NO_FIX, Finding
from dask_diag.analysis.findings.rules import saved_together
from dask_diag.analysis.headline import why_no_tasks
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import STATES, UNKNOWN_WORKER
from dask_diag.model.recording import Recording
from dask_diag.views.escaping import shown

_ADDRESSES = ("https://", "http://", "file://")
"""Nothing else becomes a link: an address may not be a script."""
_INTERVALS_SHOWN = 3
"""A longer list says nothing."""
EXPLAIN = "dask-diag explain"
_WORKERS_SHOWN = 2
_NAMES_SHOWN = 4
_MUCH_OFF_CPU, _OF_THE_WALL = 0.5, 0.1
"""Shares of the time of tasks, and of the wall time, that need an explanation."""


def saving(finding: Finding) -> str:
    """Seconds that a fix could save, or saved, and how they are known; empty if unknown."""
    said = finding.saving_in_words
    if said and finding.certainty == MEASURED:
        return f"saved {said}, measured by tune"
    return said and f"could save {said}"


def savings_overlap(findings: Sequence[Finding], analysis: Analysis) -> str:
    """A sentence if findings together claim more than the wall time; else nothing."""
    claimed = sum(f.potential_saving for f in findings if not isnan(f.potential_saving))
    wall = analysis.recording.stop - analysis.recording.start
    if claimed <= wall:
        return ""
    return (
        f"These savings overlap: {seconds(claimed)} in sum, together at most "
        f"{seconds(saved_together(analysis, findings))} of {seconds(wall)}. Fix one, and record "
        "again."
    )


def fix(advice: str) -> str:
    """Advice as a sentence; without a fix, the sentence says so."""
    if advice.startswith(NO_FIX):
        return f"{advice[:1].upper()}{advice[1:]}."
    return f"Fix: {advice}."


def folded(findings: Sequence[Any]) -> tuple[Sequence[Any], Sequence[Any], str]:
    """Findings to show first; findings of low severity to fold below others, and their title."""
    low = [finding for finding in findings if finding.severity == "low"]
    others = [finding for finding in findings if finding.severity != "low"]
    if not others or not low:
        return findings, [], ""
    names = ", ".join(finding.code for finding in low)
    return others, low, f"{counted(len(low), 'finding')} of low severity: {names}"


def in_a_line(finding: Finding) -> str:
    """Code, possible saving and fix."""
    title = ": ".join(filter(None, (finding.code, saving(finding))))
    return f"{title}. {fix(finding.advice)}"


def explained_by(findings: Sequence[Finding]) -> str:
    """The command that explains the first finding; empty without findings."""
    return f"More: {EXPLAIN} {findings[0].code}" if findings else ""


def location(finding: Finding, recording: Recording) -> str:
    """Times and workers of a finding, if few, and functions that its evidence does not name.

    Times are shown from the start of the recording on. A list of all workers would say nothing.
    """
    where, start = finding.where, recording.start
    bounds = [(_time(a - start), _time(b - start)) for a, b in where.intervals]
    # Bounds with equal texts say nothing.
    times = [f"{first} to {last}" for first, last in bounds if first != last]
    parts = [", ".join(times)] if 0 < len(times) <= _INTERVALS_SHOWN else []
    workers = [name for name in where.workers if name not in ("", UNKNOWN_WORKER)]
    # On clusters a task has the lane of a worker's thread, such as worker-0/1.
    lanes = set(recording.tasks.worker.tolist()) - {*where.workers, ""}
    others_worked = any(lane.rpartition("/")[0] not in where.workers for lane in lanes)
    if 0 < len(workers) <= _WORKERS_SHOWN and others_worked:
        parts.append(f"on {', '.join(map(shown, workers))}")
    others = [shown(name) for name in where.functions if name not in finding.evidence]
    if others:
        parts.append(f"in {_some(others[:_NAMES_SHOWN], len(others))}")
    if where.lines:
        parts.append(f"built at {', '.join(map(shown, where.lines))}")
    return "; ".join(parts)


def address_of_page(finding: Finding) -> str:
    """Address of a finding's page, if the configuration ``diag.docs`` has the documentation's."""
    # A summary names no address, and does without dask.
    import dask.config

    docs = str(dask.config.get("diag.docs", None) or "").rstrip("/")
    return f"{docs}/findings/{finding.code}.html" if docs.startswith(_ADDRESSES) else ""


def _time(value: float) -> str:
    return seconds(value) if value > 0 else "0 s"


def _some(texts: list[str], total: int) -> str:
    """Texts, and the number of others."""
    more = f" and {count(total - len(texts))} more" if total > len(texts) else ""
    return f"{', '.join(texts)}{more}"


def incomplete(recording: Recording) -> str:
    """A warning to read before any number, if the recording is truncated or damaged."""
    if recording.is_complete:
        return ""
    return (
        f"This recording is {recording.state}: {_lower(STATES[recording.state])} The numbers cover "
        "only what could be loaded."
    )


def no_findings(analysis: Analysis) -> str:
    """Sentence for no findings: nothing was wrong only if everything was seen."""
    recording = analysis.recording
    if not len(recording.tasks):
        return f"No findings: {why_no_tasks(recording)}."
    if not recording.is_complete:
        return (
            f"No findings in what could be loaded; the recording is {recording.state}, and the "
            "lost part was not examined."
        )
    return f"Nothing stood out.{_how_to_know_more(analysis)}"


def _how_to_know_more(analysis: Analysis) -> str:
    """Advice to record waits, if tasks were much off the CPU and no wait was recorded."""
    off_cpu, lasted = analysis.off_cpu_in_tasks, analysis.in_tasks
    wall = analysis.recording.stop - analysis.recording.start
    is_little = off_cpu < _MUCH_OFF_CPU * lasted or off_cpu < _OF_THE_WALL * wall
    if is_little or not lasted or len(analysis.recording.waits):
        return ""
    return f" Tasks were off the CPU for {percent(off_cpu / lasted)} of their time: {FIND_OUT}."


def _lower(sentence: str) -> str:
    return sentence[:1].lower() + sentence[1:]
