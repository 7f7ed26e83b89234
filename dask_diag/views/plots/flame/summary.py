"""The hottest lines of code, for a terminal at 80 columns or for a notebook."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dask_diag.analysis.call_tree import hottest_lines, tree
from dask_diag.analysis.sample_measures import not_sampled
from dask_diag.analysis.selection import ALL_SAMPLES, Selection
from dask_diag.analysis.source_paths import short_path
from dask_diag.formatting import percent
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.escaping import seconds, shown
from dask_diag.views.sources import recording_of
from dask_diag.views.text import Summary, counted, table_summary

__all__ = ["flame_summary", "flame_summary_parts"]

_COLUMNS = ("line", "self", "%", "total", "%")
_PATH = 26
_ROUNDING = 1e-9


def flame_summary(profilers: Any, count: int = 10, selection: Selection = ALL_SAMPLES) -> Summary:
    """The lines of code in which most of the tasks' time was spent.

    Parameters
    ----------
    profilers : diagnostic, Recording, or a list of them
        Several are combined: they are taken to have watched the same block.
    count : int
        How many lines at most.
    selection : Selection, optional

    Returns
    -------
    Summary
        A string of at most 80 columns; in a notebook it shows as an HTML table.

    Raises
    ------
    DiagnosticError
        If no sample has the key or is of the function that is selected.
    """
    return table_summary(*flame_summary_parts(recording_of(profilers), count, selection))


def flame_summary_parts(
    recording: Recording, count: int = 10, selection: Selection = ALL_SAMPLES
) -> tuple[str, tuple[str, ...], list[tuple[str, ...]], list[str]]:
    """Heading, columns, rows and notes of the summary of stacks."""
    every = tree(recording, selection).rows(slice(1)).to_dicts()[0]
    lines = hottest_lines(recording, count, selection)
    lost = not_sampled(recording, selection)
    notes = [*_notes(every, lost), *map(_note, recording.notices)]
    return _heading(every), _COLUMNS, list(_rows(lines, every)), notes


def _heading(every: dict[str, Any]) -> str:
    return (
        f"{seconds(every['total_wall'])} of tasks, "
        f"{counted(round(every['total_count']), 'sample')} of their stacks"
    )


def _rows(lines: Table, every: dict[str, Any]) -> Iterator[tuple[str, ...]]:
    """Cells for each line, then for all that is not in one of them, then for all."""
    whole, told = every["total_wall"], 0.0
    for line in lines.to_dicts():
        told += line["wall"]
        path = short_path(line["file"])
        place = f"{shown(path, _PATH)}:{line['line']} " if path else ""
        yield (
            f"{place}{shown(line['name'])}",
            *_cells(line["wall"], whole),
            *_cells(line["total_wall"], whole),
        )
    if whole - told > _ROUNDING * whole:
        yield ("(all else)", *_cells(whole - told, whole), "", "")
    if whole:
        yield ("total", *_cells(whole, whole), "", "")


def _cells(part: float, whole: float) -> tuple[str, str]:
    return seconds(part), percent(part / whole)


def _notes(every: dict[str, Any], lost: float) -> Iterator[str]:
    """How it divides into CPU time and waiting, and what could not be seen."""
    wall, cpu, waiting = (every[f"total_{name}"] for name in ("wall", "cpu", "waiting"))
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
