"""Several runs compared with several: a table for a terminal, and what names its page."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isnan

from toolz import groupby

from dask_diag.analysis.compare import CONFIDENCE, MIN_TASKS, Comparison
from dask_diag.analysis.compare_runs import COMPUTING, WALL, RunComparison
from dask_diag.formatting import amount, count, counted, percent, quantity, seconds, size
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary, table_summary

_FUNCTIONS_SHOWN = 30
HEADINGS = ("function", "tasks", "before", "after", "change", "CPU %", "")


def comparison_summary(comparison: Comparison, before: str, after: str) -> Summary:
    """What changed between two recordings of these names, at most 80 columns wide."""
    heading = f"{shown(before, 30)} → {shown(after, 30)}\n{_walls(comparison)}"
    rows, notes = list(comparison_rows(comparison)), list(comparison_notes(comparison))
    return table_summary(heading, HEADINGS, rows, notes)


def _walls(comparison: Comparison) -> str:
    """The wall time, and how much of it was computing: of one run each, so there is no verdict."""
    total = comparison.total
    wall, computing = (
        f"{seconds(total[f'{name}_before'])} → {seconds(total[f'{name}_after'])}"
        + (f" ({change})" if (change := _change_of(total, name)) else "")
        for name in ("wall", "elapsed")
    )
    return f"wall {wall}, of which computing {computing}"


def _change_of(total: Record, name: str) -> str:
    before, after = total[f"{name}_before"], total[f"{name}_after"]
    return change_text(before, after, after - before, float("nan"))


def comparison_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """The cells of each function, and last of all together."""
    records = comparison.functions.to_dicts()
    for record in records[:_FUNCTIONS_SHOWN]:
        yield _row(record)
    if records:
        yield _row({**comparison.total, "function": "total of tasks"})


def _row(record: Record) -> tuple[str, ...]:
    return (
        shown(record["function"]),
        _both(record, "tasks", count),
        seconds(record["seconds_before"]),
        seconds(record["seconds_after"]),
        change_text(
            record["seconds_before"], record["seconds_after"], record["change"], record["spread"]
        ),
        _both(record, "cpu", lambda share: "?" if isnan(share) else count(100 * share)),
        record["verdict"],
    )


def _both(record: Record, name: str, text: Callable[[float], str], to: str = "→") -> str:
    """Before and after, or one of them if their texts are equal."""
    texts = [text(record[f"{name}_{when}"]) for when in ("before", "after")]
    return texts[0] if texts[0] == texts[1] else to.join(texts)


def change_text(before: float, after: float, change: float, spread: float) -> str:
    """A change, and by how much it may be off, in shares of what was before."""
    if not before or not after:
        return ""
    off = "" if isnan(spread) else f" ±{_share(spread / before)}"
    return f"{'+' if change > 0 else ''}{_share(change / before)}{off}"


def _share(value: float) -> str:
    return percent(value) if abs(value) < 10 else f"{amount(value)}x"


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """What a reader must know besides the numbers."""
    records = comparison.functions.to_dicts()
    yield from note_on_unrelated(records)
    if len(records) > _FUNCTIONS_SHOWN:
        hidden = counted(len(records) - _FUNCTIONS_SHOWN, "function")
        yield f"{hidden} that changed less not shown"
    yield (
        f"± is the {percent(CONFIDENCE)} confidence interval from task-to-task variation; "
        "machine-wide slowdowns are not covered"
    )
    if comparison.is_quicker(0) and "slower" in [
        row["verdict"] for row in (*records, comparison.total)
    ]:
        yield "computations took less time: tasks that took longer are no regression"
    few = sum(record["verdict"] == "too few tasks" for record in records)
    if few:
        yield (
            f"not judged: {counted(few, 'function')} with fewer than {MIN_TASKS} tasks in a "
            "recording"
        )
    yield from _peaks(
        comparison, records, "memory", "peak resident memory", size, during="during tasks of "
    )
    yield from _notes_on_cached_results(comparison, records)


def note_on_unrelated(functions: Sequence[Record]) -> Iterator[str]:
    """What to know where both sides ran tasks, and no function ran in both."""
    if {row["verdict"] for row in functions} == {"added", "removed"}:
        yield "no function ran in both: these seem to be recordings of different programs"


def _notes_on_cached_results(comparison: Comparison, records: Sequence[Record]) -> Iterator[str]:
    """The peak of cached results, compared only if both are of one unit."""
    units = [shown(unit, 24) for unit in comparison.units]
    measured = [unit for metric, unit in zip(comparison.metrics, units, strict=True) if metric]
    if len(set(measured)) < 2:
        cached = partial(quantity, unit=next(iter(measured), ""))
        yield from _peaks(comparison, records, "cached", "cached results: peak", cached)
        return
    before, after = (
        quantity(comparison.total[f"cached_{when}"], unit)
        for when, unit in zip(("before", "after"), units, strict=True)
    )
    yield (
        f"cached results: peak {before} before, {after} after; not compared, since the units differ"
    )


def _peaks(
    comparison: Comparison,
    records: Sequence[Record],
    name: str,
    description: str,
    text: Callable[[float], str],
    *,
    during: str = "",
) -> Iterator[str]:
    """The peak of all functions together, and of those in which it changed most."""

    def change(row: Record) -> float:
        return abs(float(row[f"{name}_after"] - row[f"{name}_before"]))

    total = comparison.total
    if isnan(total[f"{name}_before"]) and isnan(total[f"{name}_after"]):
        return
    peak = f"{description} {_both(total, name, text, ' → ')}"
    changed = sorted((row for row in records if change(row) > 0), key=change, reverse=True)
    of_functions = [
        f"{shown(row['function'], 24)} {_both(row, name, text, ' → ')}" for row in changed[:3]
    ]
    if of_functions:
        of_functions[0] = during + of_functions[0]
    yield "; ".join([peak, *of_functions])


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
        *(_runs_row(row) for row in functions[:_SHOWN]),
        *(_runs_row({**row, "name": f"{row['kind']} {row['name']}"}) for row in others),
        _runs_row({**runs[COMPUTING], "name": "computing (seconds with a computation)"}),
        _runs_row({**wall, "name": "wall (of the recorded block)"}),
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


def _runs_row(row: Record) -> tuple[str, ...]:
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
