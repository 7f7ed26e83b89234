"""The summary: one table for a terminal at 80 columns, or for a notebook."""

from __future__ import annotations

import html
import io
from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

import numpy as np
from rich import box
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from dask_diag.analysis.activities import activities
from dask_diag.analysis.functions import by_function
from dask_diag.analysis.levels import levels_held
from dask_diag.analysis.outside import cpu_outside_tasks
from dask_diag.recording import Recording, Table
from dask_diag.views.names import seconds, shown
from dask_diag.views.sources import recording_of

__all__ = ["Summary", "counted", "summary", "table_summary"]

_WIDTH = 80
_FUNCTIONS_SHOWN = 20
_WORTH_TELLING = 0.1
_HEADINGS = ("function", "tasks", "wall", "CPU", "non-CPU", "CPU %", "longest")


class Summary(str):
    """Text that shows itself as it is, and as a table in a notebook."""

    _html: str

    def __new__(cls, text: str, as_html: str) -> Summary:
        """Make one of its two forms."""
        self = super().__new__(cls, text)
        self._html = as_html
        return self

    def __repr__(self) -> str:
        return self[:]

    def _repr_html_(self) -> str:
        return self._html


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
    heading = _heading(recording)
    rows = list(_rows(by_function(recording)))
    notes = list(_notes(recording))
    return table_summary(heading, _HEADINGS, rows, notes)


def table_summary(
    heading: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notes: Sequence[str]
) -> Summary:
    """A heading, a table whose first column is text and whose last row is a total, and notes."""
    return Summary(_as_text(heading, columns, rows, notes), _as_html(heading, columns, rows, notes))


def _heading(recording: Recording) -> str:
    tasks, computes = recording.tasks, recording.computes
    spent = _spent_computing(computes)
    parts = [counted(len(computes), "compute")]
    if len(tasks):
        parts[0] += f", {counted(len(tasks), 'task')}"
        used = _workers_used(tasks)
        parts += [f"on {counted(used, 'worker')}"] if used else []
    return f"{' '.join(parts)}, {seconds(spent)}"


def _workers_used(tasks: Table) -> int:
    return len(np.unique(tasks["worker"].codes[~np.isnan(tasks["start"])]))


def _spent_computing(computes: Table) -> float:
    """Seconds in which at least one compute ran."""
    if not len(computes):
        return 0.0
    order = np.argsort(computes["start"])
    starts, stops = computes["start"][order], computes["stop"][order]
    reached = np.maximum.accumulate(stops)
    begins = np.maximum(starts[1:], reached[:-1])
    first = stops[0] - starts[0]
    return float(first + np.maximum(stops[1:] - begins, 0.0).sum())


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
        return (name, f"{tasks:,}", "unknown", "", "", "", "")
    share = f"{sum(cpu) / sum(wall):.0%}" if sum(wall) else ""
    times = (sum(wall), sum(cpu), sum(noncpu))
    return (name, f"{tasks:,}", *map(seconds, times), share, seconds(max(longest)))


def _notes(recording: Recording) -> Iterator[str]:
    yield from _notes_on_activities(recording)
    yield from _notes_on_outcomes(recording.tasks)
    yield from _notes_on_computes(recording.computes)
    yield from _notes_on_cpu_outside_tasks(recording)
    yield from _notes_on_resources(recording.resources)
    yield from _notes_on_cache(recording)
    yield from (shown(notice, 400) for notice in recording.notices)


def _notes_on_activities(recording: Recording) -> Iterator[str]:
    """How the worker-seconds divide, in shares of a hundredth or more."""
    if not len(recording.tasks):
        return
    rows = activities(recording).to_dicts()
    total = sum(row["value"] for row in rows)
    shares = [
        f"{shown(row['activity'], 24)} {row['value'] / total:.0%}"
        for row in rows
        if row["value"] >= 0.01 * total
    ]
    yield f"of {seconds(total)} of worker time: {', '.join(shares)}"


def _notes_on_outcomes(tasks: Table) -> Iterator[str]:
    if not len(tasks):
        return
    failed = tasks.rows(tasks["outcome"].where("failed"))
    if len(failed):
        first = failed.rows(slice(1)).to_dicts()[0]
        yield (
            f"failed: {counted(len(failed), 'task')}, first {shown(first['key'])} with "
            f"{shown(first['error'])}"
        )
    unfinished = tasks.rows(tasks["outcome"].where("unfinished"))
    if len(unfinished):
        begun = int((~np.isnan(unfinished["start"])).sum())
        yield (
            f"unfinished: {counted(len(unfinished), 'task')}, of which {begun} "
            f"{'is' if begun == 1 else 'are'} known to have started"
        )


def _notes_on_computes(computes: Table) -> Iterator[str]:
    if not len(computes):
        return
    errors = [error for error in computes["error"].tolist() if error]
    if errors:
        names = ", ".join(shown(name) for name in dict.fromkeys(errors))
        yield f"ended by an error: {counted(len(errors), 'compute')} ({names})"
    order = np.argsort(computes["start"])
    reached = np.maximum.accumulate(computes["stop"][order])
    overlapping = int((computes["start"][order][1:] < reached[:-1]).sum())
    if overlapping:
        yield f"overlapping in time with an earlier one: {counted(overlapping, 'compute')}"


def _notes_on_cpu_outside_tasks(recording: Recording) -> Iterator[str]:
    outside = cpu_outside_tasks(recording)
    in_tasks = float(np.nansum(recording.tasks["thread_cpu"])) if len(recording.tasks) else 0.0
    if outside > _WORTH_TELLING * (outside + in_tasks):
        yield (
            f"{seconds(outside)} of CPU time beside that of the tasks' own threads: the scheduler, "
            "and threads that tasks started, such as those of BLAS"
        )


def _notes_on_resources(resources: Table) -> Iterator[str]:
    if not len(resources):
        return
    memory = resources["memory"] + resources["memory_children"]
    yield (
        f"resources: CPU {np.mean(resources['cpu']):.0f}% on average, at most "
        f"{resources['cpu'].max():.0f}%; memory at most {memory.max() / 1e6:,.0f} MB, of it "
        f"{resources['memory_children'][memory.argmax()] / 1e6:,.0f} MB in child processes "
        f"({counted(len(resources), 'sample')}, the most delayed by "
        f"{seconds(_most_delayed(resources))})"
    )


def _most_delayed(resources: Table) -> float:
    late = resources["late"]
    return float(np.nanmax(late)) if not np.isnan(late).all() else float("nan")


def _notes_on_cache(recording: Recording) -> Iterator[str]:
    levels, total = levels_held(recording)
    if not levels:
        return
    top = ", ".join(f"{shown(name, 24)} {amount(level.peak)}" for name, level in _first(levels, 3))
    yield (
        f"held by the scheduler ({shown(recording.metric, 24)}): at most {amount(total.peak)}; "
        f"by function {top}"
    )


def _first(mapping: dict[str, Any], count: int) -> list[tuple[str, Any]]:
    return list(mapping.items())[:count]


def amount(value: float) -> str:
    """A number in at most five characters or so, with SI prefixes for large ones."""
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(value) >= size:
            return f"{value / size:.3g}{prefix}"
    return f"{value:.3g}"


def counted(count: int, noun: str) -> str:
    """A count with its noun, in the plural where it must be."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")


def _as_text(
    heading: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notes: Sequence[str]
) -> str:
    stream = io.StringIO()
    console = Console(
        file=stream, width=_WIDTH, color_system=None, highlight=False, force_jupyter=False
    )
    console.print(Text(heading))
    if rows:
        table = RichTable(box=box.SIMPLE_HEAD, pad_edge=False, expand=True)
        for position, name in enumerate(columns):
            ends = {"justify": "left", "ratio": 1} if position == 0 else {"justify": "right"}
            table.add_column(name, no_wrap=True, overflow="ellipsis", **ends)
        for row in rows[:-1]:
            table.add_row(*map(Text, row))
        table.add_section()
        table.add_row(*map(Text, rows[-1]))
        console.print(table)
    listed = RichTable.grid(padding=(0, 1, 0, 0))
    for note in notes:
        listed.add_row("-", Text(note))
    console.print(listed)
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines())


def _as_html(
    heading: str, columns: Sequence[str], rows: Sequence[tuple[str, ...]], notes: Sequence[str]
) -> str:
    def cells(tag: str, texts: Sequence[str]) -> str:
        return "".join(
            f'<{tag} style="text-align:{"right" if n else "left"}">{html.escape(text)}</{tag}>'
            for n, text in enumerate(texts)
        )

    table = ""
    if rows:
        body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
        table = (
            f"<table><thead><tr>{cells('th', columns)}</tr></thead><tbody>{body}</tbody></table>"
        )
    items = "".join(f"<li>{html.escape(note)}</li>" for note in notes)
    return f"<p>{html.escape(heading)}</p>{table}" + (f"<ul>{items}</ul>" if items else "")
