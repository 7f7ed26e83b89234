"""Several runs compared with several: a table for a terminal, and what names its page."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

from toolz import groupby

from dask_diag.analysis.compare_runs import COMPUTING, WALL, RunComparison
from dask_diag.formatting import counted, percent, seconds
from dask_diag.views.compare import change_text, note_on_unrelated
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary, table_summary

__all__ = ["run_comparison_summary", "run_comparison_title"]

_SHOWN = 20
"""Functions; of activities all are, since there are few."""
_HEADINGS = ("mean of the runs", "before", "after", "change", "")


def run_comparison_summary(comparison: RunComparison) -> Summary:
    """What changed from some runs to others, at most 80 columns wide."""
    rows = groupby("kind", comparison.changes.to_dicts())
    runs = {row["name"]: row for row in rows["run"]}
    before, after = comparison.runs
    wall = runs[WALL]
    headline = (
        f"{counted(before, 'run')} before, {counted(after, 'run')} after: "
        f"wall {seconds(wall['before'])} → {seconds(wall['after'])}, {_verdict(wall)}"
    )
    functions = rows.get("function", [])
    others = [*rows.get("phase", []), *rows.get("activity", [])]
    lines = [
        *(_row(row) for row in functions[:_SHOWN]),
        *(_row({**row, "name": f"{row['kind']} {row['name']}"}) for row in others),
        _row({**runs[COMPUTING], "name": "computing (seconds with a computation)"}),
        _row({**wall, "name": "wall (of the recorded block)"}),
    ]
    notes = [*note_on_unrelated(functions), *_notes(len(functions), wall)]
    return table_summary(headline, _HEADINGS, lines, notes)


def run_comparison_title(comparison: RunComparison) -> str:
    """What the window of its page is called."""
    before, after = comparison.runs
    return f"{counted(before, 'run')} → {counted(after, 'run')}"


def _verdict(row: Record) -> str:
    change = _change(row)
    return f"{row['verdict']} ({change})" if change else str(row["verdict"])


def _row(row: Record) -> tuple[str, ...]:
    return (
        shown(row["name"]),
        seconds(row["before"]),
        seconds(row["after"]),
        _change(row),
        row["verdict"],
    )


def _change(row: Record) -> str:
    return change_text(row["before"], row["after"], row["change"], row["spread"])


def _notes(functions: int, wall: Record) -> Iterator[str]:
    if functions > _SHOWN:
        yield f"{counted(functions - _SHOWN, 'function')} that changed less not shown"
    if isnan(wall["spread"]):
        yield (
            "no verdicts: with one run on each side the spread between runs is unknown; "
            "dask-diag run --repeat 5 records several"
        )
        return
    yield (
        "± is the change that the differences between runs explain; all verdicts together are "
        "wrong in 2 of 100 comparisons of an unchanged program"
    )
    if wall["before"]:
        yield (
            f"a change of the wall by less than {percent(wall['spread'] / wall['before'])} looks "
            "like chance: more runs, or a quieter machine, show smaller ones"
        )
