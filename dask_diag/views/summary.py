"""The summary: one table for a terminal at 80 columns, or for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import numpy as np

from dask_diag.analysis.elapsed import seconds_computing
from dask_diag.analysis.findings import Finding, findings
from dask_diag.analysis.functions import by_function
from dask_diag.formatting import count, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import shown
from dask_diag.views.sources import recording_of
from dask_diag.views.summary_notes import notes_on
from dask_diag.views.text import Summary, counted, table_summary

__all__ = ["summary", "summary_parts"]

_FUNCTIONS_SHOWN = 20
_HEADINGS = ("function", "tasks", "wall", "CPU", "non-CPU", "CPU %", "longest")


def summary(profilers: Any) -> Summary:
    """What was measured, by function, with totals, failures and what the reader must know.

    Parameters
    ----------
    profilers : diagnostic, Recording, or a list of them
        Several are combined: they are taken to have watched the same block.

    Returns
    -------
    Summary
        A string of at most 80 columns; in a notebook it shows as an HTML table.
    """
    recording = recording_of(profilers)
    found = list(map(_told, findings(recording)))
    return table_summary(*summary_parts(recording), found)


def summary_parts(
    recording: Recording,
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Heading, columns, rows and notes of the summary of a recording."""
    rows = list(_rows(by_function(recording)))
    return _heading(recording), _HEADINGS, rows, list(notes_on(recording))


def _told(finding: Finding) -> str:
    """A finding in words: what, how bad, why, and what to do."""
    lost = "" if isnan(finding.seconds_lost) else f", about {seconds(finding.seconds_lost)} lost"
    evidence, advice = shown(finding.evidence, 600), shown(finding.advice, 400)
    return f"{finding.code} ({finding.severity}{lost}): {evidence}. To do: {advice}."


def _heading(recording: Recording) -> str:
    tasks, computations = recording.tasks, recording.computations
    spent = seconds_computing(computations)
    parts = [counted(len(computations), "computation")]
    if len(tasks):
        parts[0] += f", {counted(len(tasks), 'task')}"
        used = _workers_used(tasks)
        parts += [f"on {counted(used, 'worker')}"] if used else []
    return f"{' '.join(parts)}, {seconds(spent)}"


def _workers_used(tasks: Table) -> int:
    return len(np.unique(tasks["worker"].codes[~np.isnan(tasks["start"])]))


def _rows(table: Table) -> Iterator[tuple[str, ...]]:
    """Cells for each function, then for those not shown, then for all."""
    records = table.to_dicts()
    for record in records[:_FUNCTIONS_SHOWN]:
        yield _row(shown(record["function"]), [record])
    if len(records) > _FUNCTIONS_SHOWN:
        rest = records[_FUNCTIONS_SHOWN:]
        yield _row(f"({counted(len(rest), 'more function')})", rest)
    if records:
        yield _row("total", records)


def _row(name: str, records: Sequence[dict[str, Any]]) -> tuple[str, ...]:
    tasks = sum(record["tasks"] for record in records)
    wall, cpu, noncpu, longest = (
        [record[column] for record in records if not isnan(record[column])]
        for column in ("wall", "thread_cpu", "thread_noncpu", "longest")
    )
    if not wall:
        return (name, count(tasks), "unknown", "", "", "", "")
    share = percent(sum(cpu) / sum(wall)) if sum(wall) else ""
    times = (sum(wall), sum(cpu), sum(noncpu))
    return (name, count(tasks), *map(seconds, times), share, seconds(max(longest)))
