"""``compare``, and comparisons as tables for a terminal or a notebook: of recordings, of runs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from math import isnan, nan
from typing import overload

import numpy as np
from toolz import groupby

from dask_diag.analysis.compare import (
    CONFIDENCE,
    CPU,
    MIN_TASKS,
    TIME,
    Comparison,
    compare_recordings,
)
from dask_diag.analysis.compare_runs import (
    COMPUTING,
    WALL,
    RunComparison,
    compare_measures,
    measures_of,
    same_run,
)
from dask_diag.analysis.cpu import share_of_others
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import amount, count, counted, percent, quantity, seconds, size
from dask_diag.model.recording import Recording, Source, Sources, is_source, recordings_of
from dask_diag.views.built_by import name_of_line
from dask_diag.views.cell import make_summary
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary, SummaryParts

_FUNCTIONS_SHOWN = 30
_LINES_SHOWN = 5
LINE_HEADINGS = ("line that built it", "before", "after", "change")
HEADINGS = ("function", "tasks", "before", "after", "change", "CPU %", "verdict")


_OF_INTEREST = 0.1
"""Share of the time by which most are to fail a build."""
_MUCH = 0.1
"""Least share of the CPUs used by other processes that a reader must know of first."""


class _Comparison(Comparison):
    def _repr_html_(self) -> str:
        return comparison_summary(self, "before", "after")._repr_html_()


class _RunComparison(RunComparison):
    def _repr_html_(self) -> str:
        return run_comparison_summary(self)._repr_html_()


@overload
def compare(before: Source, after: Source, *, of: str = TIME) -> Comparison: ...
@overload
def compare(before: Iterable[Source], after: Sources, *, of: str = TIME) -> RunComparison: ...
@overload
def compare(before: Source, after: Iterable[Source], *, of: str = TIME) -> RunComparison: ...
def compare(before: Sources, after: Sources, *, of: str = TIME) -> Comparison | RunComparison:
    """Compare a program before and after a change.

    Pass one recording per side, or a list of recordings per side, one for each run of the program.

    Parameters
    ----------
    before, after : Recording, profiler, or list of these
        With a list on either side, runs are compared with runs. Verdicts then need at least two
        runs on one side.
    of : {"time", "cpu"}, default "time"
        What to compare: times, or only the CPU time of tasks, which other processes change less.

    Returns
    -------
    Comparison or RunComparison
        For two recordings, a `Comparison`: functions, judged by the durations of their tasks. For
        lists, a `RunComparison`: wall time, phases, functions, lines and activities, by their means
        over runs. Both have ``regressions(share)``, the names of everything that is slower by more
        than a share, and show in a notebook what ``dask-diag compare`` prints.

    Raises
    ------
    DiagnosticError
        If a side has no recording, two recordings in lists are of the same run, or `of` is unknown.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, compare
    >>> def measured(chunks):
    ...     with Profiler() as prof:
    ...         da.ones(1000, chunks=chunks).sum().compute()
    ...     return prof.recording
    >>> comparison = compare(measured(100), measured(500))
    >>> comparison.total["tasks_before"] > comparison.total["tasks_after"]
    True
    >>> compare([measured(100), measured(100)], [measured(500)]).runs
    (2, 1)
    """
    if of not in (TIME, CPU):
        raise DiagnosticError(f"of: expected {TIME!r} or {CPU!r}, found {of!r}")
    sides = _recordings("before", before), _recordings("after", after)
    if is_source(before) and is_source(after):
        return _Comparison(*compare_recordings(sides[0][0], sides[1][0], of))
    if same_run([*sides[0], *sides[1]]):
        raise DiagnosticError(
            "expected one recording for each run, found two of the same run; leave out the copy"
        )
    compared = compare_measures(*([measures_of(run, of) for run in side] for side in sides))
    of_before, of_after = (float(np.mean([share_of_others(run) for run in side])) for side in sides)
    return _RunComparison(*compared._replace(others=(of_before, of_after)))


def _recordings(name: str, source: Sources) -> list[Recording]:
    try:
        return recordings_of(source)
    except DiagnosticError as error:
        raise DiagnosticError(f"{name}: {error}") from None


def comparison_summary(comparison: Comparison, before: str, after: str) -> Summary:
    """Summary of the changes between two named recordings."""
    heading = f"{shown(before, 30)} → {shown(after, 30)}\n{_walls(comparison)}"
    warning = "" if comparison.of == CPU else note_on_others(*others_of(comparison))
    heading = f"{warning}\n{heading}" if warning else heading
    rows, notes = list(comparison_rows(comparison)), list(comparison_notes(comparison))
    above = LINE_HEADINGS, rows_of_lines(comparison)[:_LINES_SHOWN]
    return make_summary(SummaryParts(heading, HEADINGS, rows, notices=notes, above=above))


def rows_of_lines(comparison: Comparison) -> list[tuple[str, ...]]:
    """Cells of each line that built tasks, and its change; none if a side has no lines."""
    rows = comparison.lines.to_dicts()
    sums = [sum(row[f"seconds_{when}"] for row in rows) for when in ("before", "after")]
    return [
        (
            name_of_line(row),
            *map(seconds, both),
            change_text(*both, both[1] - both[0], nan),
        )
        for row in rows * all(sums)
        for both in [(row["seconds_before"], row["seconds_after"])]
    ]


def others_of(comparison: Comparison) -> tuple[float, float]:
    """Shares of the CPUs that other processes used, before and after."""
    return comparison.total["others_before"], comparison.total["others_after"]


def note_on_others(before: float, after: float) -> str:
    """Warning if other processes used much of the CPUs on one side, by their shares; else empty."""
    if max(before, after) < _MUCH:
        return ""
    return (
        f"Other processes used {percent(before)} of the CPUs before and {percent(after)} after: do "
        "not trust the changes of times, record again on an idle machine"
    )


def _walls(comparison: Comparison) -> str:
    """Wall time and computing time; single runs get no verdict."""
    texts = []
    for name in ("wall", "elapsed"):
        before, after = (comparison.total[f"{name}_{when}"] for when in ("before", "after"))
        change = change_text(before, after, after - before, nan)
        texts.append(f"{seconds(before)} → {seconds(after)}{f' ({change})' if change else ''}")
    return f"wall time {texts[0]}, in computations {texts[1]}"


def comparison_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """Cells of each function, and of the total."""
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
    """Texts of before and after; equal texts once."""
    texts = [text(record[f"{name}_{when}"]) for when in ("before", "after")]
    return texts[0] if texts[0] == texts[1] else to.join(texts)


def change_text(before: float, after: float, change: float, spread: float) -> str:
    """A change with its uncertainty, as shares of the value before."""
    if not before or not after:
        return ""
    off = "" if isnan(spread) else f" ±{_share(spread / before)}"
    return f"{'+' if change > 0 else ''}{_share(change / before)}{off}"


def _share(value: float) -> str:
    return percent(value) if abs(value) < 10 else f"{amount(value)}x"


def comparison_notes(comparison: Comparison) -> Iterator[str]:
    """Sentences needed to read the numbers."""
    records = comparison.functions.to_dicts()
    yield from note_on_unrelated(records)
    if comparison.of == CPU:
        yield "before and after are the CPU time of tasks"
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
    """Warning if both sides ran tasks, and no function in both."""
    if {row["verdict"] for row in functions} == {"added", "removed"}:
        yield "no function ran in both: these seem to be recordings of different programs"


def _notes_on_cached_results(comparison: Comparison, records: Sequence[Record]) -> Iterator[str]:
    """Peak of cached results, compared only within one unit."""
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
    """Peak of all functions together, and of the functions with the largest changes."""

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
"""Functions; activities are few, and all shown."""
_HEADINGS = ("mean of the runs", "before", "after", "change", "verdict")


def run_comparison_summary(comparison: RunComparison) -> Summary:
    """Summary of the changes from runs before to runs after."""
    rows = groupby("kind", comparison.changes.to_dicts())
    runs = {row["name"]: row for row in rows["run"]}
    before, after = comparison.runs
    is_cpu = CPU in runs
    whole, what = (runs[CPU], "CPU time of tasks") if is_cpu else (runs[WALL], "wall time")
    _, of_before, of_after, change, verdict = _runs_row(whole)
    warning = "" if is_cpu else note_on_others(*comparison.others)
    headline = (
        (f"{warning}\n" if warning else "")
        + f"{counted(before, 'run')} before, {counted(after, 'run')} after: "
        f"{what} {of_before} → {of_after}, {verdict}{f' ({change})' if change else ''}"
    )
    totals = (
        {CPU: what}
        if is_cpu
        else {COMPUTING: "time in computations", WALL: f"{what} of the recorded block"}
    )
    functions = rows.get("function", [])
    others = [*rows.get("phase", []), *rows.get("activity", [])]
    lines = [
        *(_runs_row(row) for row in functions[:_SHOWN]),
        *(_runs_row({**row, "name": f"{row['kind']} {row['name']}"}) for row in others),
        *(_runs_row({**runs[key], "name": name}) for key, name in totals.items()),
    ]
    notes = [*note_on_unrelated(functions), *_notes(comparison, len(functions), whole, what)]
    of_lines = [_runs_row(row) for row in rows.get("line", [])[:_LINES_SHOWN]]
    above = (LINE_HEADINGS[0], *_HEADINGS[1:]), of_lines
    return make_summary(SummaryParts(headline, _HEADINGS, lines, notices=notes, above=above))


def run_comparison_title(comparison: RunComparison) -> str:
    """Title of the page of a comparison of runs."""
    before, after = comparison.runs
    return f"{counted(before, 'run')} → {counted(after, 'run')}"


def _runs_row(row: Record) -> tuple[str, ...]:
    before, after = row["before"], row["after"]
    change = change_text(before, after, row["change"], row["spread"])
    return (shown(row["name"]), seconds(before), seconds(after), change, row["verdict"])


def what_would_show(comparison: RunComparison, share: float) -> str:
    """Advice on how to record runs that show a change by a share."""
    runs = comparison.runs_to_show(share)
    if runs:
        return f"about {runs} runs on each side show one of {percent(share)}"
    return f"a quieter machine, or --of cpu, may show one of {percent(share)}"


def _notes(comparison: RunComparison, functions: int, whole: Record, what: str) -> Iterator[str]:
    if functions > _SHOWN:
        yield f"{counted(functions - _SHOWN, 'function')} that changed less not shown"
    if isnan(whole["spread"]):
        yield (
            "no verdicts: with one run on each side the spread between runs is unknown; "
            "dask-diag run --repeat 5 records several"
        )
        return
    yield (
        "± is the change that the differences between runs explain; all verdicts together are "
        "wrong in 2 of 100 comparisons of an unchanged program"
    )
    if whole["spread"] and whole["before"]:
        share = whole["spread"] / whole["before"]
        smaller = _OF_INTEREST if share > _OF_INTEREST else share / 2
        yield (
            f"a change of the {what} by less than {percent(share)} looks like chance: "
            + what_would_show(comparison, smaller)
        )
