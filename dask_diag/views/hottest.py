"""The hottest lines of code, for a terminal at 80 columns or for a notebook."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from dask_diag.analysis.call_tree import (
    ALL_SAMPLES,
    Selection,
    not_sampled,
    numbered,
    short_path,
    totals,
)
from dask_diag.analysis.lines import computing_lines, waiting_lines
from dask_diag.formatting import counted, percent, seconds
from dask_diag.model.codes import Root
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.views.cell import table_summary
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary

_COLUMNS = ("line", "self", "%", "total", "%")
_PATH = 26
_ROUNDING = 1e-9
_WAITS = 3


def flame_summary(source: Sources, count: int = 10, selection: Selection = ALL_SAMPLES) -> Summary:
    """Lines of code in which tasks, or another root, spent most of their time.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with stack samples. Several are combined, as recordings of the same block.
    count : int, default 10
        Maximum number of lines.
    selection : Selection, optional
        Samples to use. Default: all tasks.

    Returns
    -------
    Summary
        A string of at most 80 columns; an HTML table in a notebook.

    Raises
    ------
    DiagnosticError
        If no sample has the selected key or function.
    """
    return table_summary(*flame_summary_parts(recording_of(source), count, selection))


def flame_summary_parts(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Heading, columns, rows and notes of the summary of stacks."""
    if selection.root is None:
        selection = replace(selection, root=Root.TASKS)
    total = totals(recording, selection)
    lines = computing_lines(recording, count, selection)
    lost = not_sampled(recording, selection)
    waits = waiting_lines(recording, _WAITS, selection)
    notes = [*_notes(total, lost), *_waits(waits, total), *map(_note, recording.notices)]
    return _heading(total, selection.root), _COLUMNS, list(_rows(lines, total)), notes


def _heading(total: Mapping[str, float], root: str | None) -> str:
    return (
        f"{seconds(total['wall'])} of {root}, "
        f"{counted(round(total['count']), 'sample')} of their stacks"
    )


def _rows(lines: Table, total: Mapping[str, float]) -> Iterator[tuple[str, ...]]:
    """Cells for each line that did not wait, for all else, for waiting, and for all."""
    wall, waiting = total["wall"], total["waiting"]
    listed = waiting
    for line in lines.to_dicts():
        hot = line["wall"] - line["waiting"]
        listed += hot
        yield _name_of(line), *_cells(hot, wall), *_cells(line["total_wall"], wall)
    if wall - listed > _ROUNDING * wall:
        yield ("(all else)", *_cells(wall - listed, wall), "", "")
    if waiting > _ROUNDING * wall:
        yield ("(waiting)", *_cells(waiting, wall), "", "")
    if wall:
        yield ("total", *_cells(wall, wall), "", "")


def _name_of(line: Record) -> str:
    path = short_path(line["file"])
    location = f"{numbered(shown(path, _PATH), line['line'])} " if path else ""
    return f"{location}{shown(line['name'])}"


def _waits(lines: Table, total: Mapping[str, float]) -> Iterator[str]:
    """The lines that waited longest, in a note each."""
    for line in lines.to_dicts():
        inner = "" if line["inner"] == line["name"] else f" in {shown(line['inner'], 40)}"
        time, share = _cells(line["waiting"], total["wall"])
        yield f"waited {time} ({share}): {_name_of(line)}{inner}"


def _cells(part: float, total: float) -> tuple[str, str]:
    return seconds(part), percent(part / total)


def _notes(total: Mapping[str, float], lost: float) -> Iterator[str]:
    """Shares of CPU time and waiting, and the time that was not sampled."""
    wall, cpu, waiting = (total[name] for name in ("wall", "cpu", "waiting"))
    if not wall:
        return
    kinds = {"CPU": cpu, "waiting": waiting, "not known to be either": wall - cpu - waiting}
    yield ", ".join(
        f"{name} {percent(part / wall)}" for name, part in kinds.items() if part > _ROUNDING * wall
    )
    if lost:
        yield f"could not be sampled: {seconds(lost)}, {percent(lost / wall)}"


def _note(notice: str) -> str:
    return shown(notice, 400)
