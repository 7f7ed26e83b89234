"""Lines that built work, as rows of a table, and the program's source with their shares."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from math import isnan

import numpy as np

from dask_diag.analysis.built_by import (
    BUILT_BEFORE,
    HOW_TO_RECORD_BUILDING,
    BuiltBy,
    SourceLine,
    table_of_lines,
)
from dask_diag.analysis.groups import rows_by
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.cell import make_summary
from dask_diag.views.escaping import shown
from dask_diag.views.names import recorded_lines
from dask_diag.views.text import Record, Summary, SummaryParts

HEADINGS = ("line that built it", "share", "tasks", "task time", "built in")
Rows = list[tuple[str, ...]]
_NO_LINES = "This recording has no lines that built its tasks"
_WORTH_A_WORD = 0.1
"""Least share of task time of work that was built before, to say how to record building."""


def line_rows(table: Table, most: int | None = None) -> list[tuple[str, ...]]:
    """Cells for the largest lines, then for those not shown."""
    total, records = float(np.sum(table["seconds"])), table.to_dicts()
    rows = [_row(name_of_line(record), [record], total) for record in records[:most]]
    more = records[len(rows) :]
    return rows + [_row(f"({counted(len(more), 'more line')})", more, total)] * bool(more)


def with_total(recording: Recording, table: Table, rows: Rows) -> Rows:
    """Rows, and those of all tasks together."""
    if not rows:
        return []
    name, share, _, *times = _row("total", table.to_dicts(), float(table["seconds"].sum()))
    return [*rows, (name, share, count(len(recording.tasks)), *times)]


def name_of_line(record: Record) -> str:
    """The place and the text of a row of `dask_diag.lines`."""
    return shown(SourceLine.of_row(record).in_words, 80)


def _row(name: str, records: Sequence[Record], total: float) -> tuple[str, ...]:
    time = sum(record["seconds"] for record in records)
    built = [r["built_seconds"] for r in records if not isnan(r["built_seconds"])]
    # Several lines may have built parts of one fused task.
    tasks = count(records[0]["tasks"]) if len(records) == 1 else ""
    share = percent(time / total) if total else ""
    return (name, share, tasks, seconds(time), seconds(sum(built)) if built else "unknown")


def on_work_built_before(table: Table) -> Iterator[tuple[str, str]]:
    """A line on work whose lines are unknown as it was built before, if it took long."""
    total = float(np.sum(table["seconds"]))
    for row in table.to_dicts():
        if SourceLine.of_row(row) == BUILT_BEFORE and row["seconds"] >= _WORTH_A_WORD * total > 0:
            share = percent(row["seconds"] / total)
            yield (
                "Built before",
                f"{share} of task time is work that was built before the recording: "
                f"{HOW_TO_RECORD_BUILDING}",
            )


def lines_summary(recording: Recording, by: str = "line", has_source: bool = False) -> Summary:
    """Result of `dask_diag.lines` as text, if asked for with the program's source."""
    table = table_of_lines(recording, BuiltBy.of(recording, by))
    rows = source_rows(recording, table) if has_source else line_rows(table)
    return make_summary(
        SummaryParts(
            headline="Task time by the line that built the tasks" if rows else _NO_LINES,
            columns=HEADINGS,
            rows=with_total(recording, table, rows),
            lines=list(on_work_built_before(table)),
        )
    )


def sources_of(recording: Recording) -> dict[str, dict[int, str]]:
    """Text of known lines of each file or cell, by number."""
    sources: dict[str, dict[int, str]] = {}
    for (file, line), text in recorded_lines(recording).items():
        sources.setdefault(file, {})[line] = text
    for cell, line, text in recording.lines.tuples("cell", "line", "text"):
        sources.setdefault(cell, {})[line] = text
    return sources


def source_rows(recording: Recording, table: Table) -> Rows:
    """The known source of the program, line by line, with the cells of lines that built work."""
    rows: Rows = []
    total, sources = float(table["seconds"].sum()), sources_of(recording)
    for file, of_file in rows_by(table["file"]).items():
        listed = table.filter(of_file).to_dicts()
        if not file:
            rows += [_row(name_of_line(row), [row], total) for row in listed]
            continue
        records = {row["line"]: row for row in listed}
        source = {line: row["text"] for line, row in records.items()} | sources.get(file, {})
        rows.append((os.path.basename(file),))
        for line, text in sorted(source.items()):
            name = shown(f"{line:5}  {text.expandtabs()}", 100)
            rows.append(_row(name, [records[line]], total) if line in records else (name,))
    return rows
