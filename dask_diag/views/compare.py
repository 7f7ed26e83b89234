"""A comparison of two recordings: a table for a terminal, and a page of its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import isnan

from dask_diag.analysis.compare import Comparison
from dask_diag.analysis.statistics import CONFIDENCE, MIN_TASKS
from dask_diag.formatting import amount, count, percent, quantity, seconds, size
from dask_diag.views.escaping import shown
from dask_diag.views.text import Record, Summary, counted, table_summary

__all__ = [
    "HEADINGS",
    "change_text",
    "comparison_notes",
    "comparison_rows",
    "comparison_summary",
    "page_of_summary",
]

_FUNCTIONS_SHOWN = 30
HEADINGS = ("function", "tasks", "before", "after", "change", "CPU %", "")


def comparison_summary(comparison: Comparison, before: str, after: str) -> Summary:
    """What changed between two recordings of these names, at most 80 columns wide."""
    total = comparison.total
    heading = (
        f"{shown(before, 30)} → {shown(after, 30)}: "
        f"{seconds(total['elapsed_before'])} → {seconds(total['elapsed_after'])} elapsed"
    )
    rows, notes = list(comparison_rows(comparison)), list(comparison_notes(comparison))
    return table_summary(heading, HEADINGS, rows, notes)


def comparison_rows(comparison: Comparison) -> Iterator[tuple[str, ...]]:
    """The cells of each function, and last of all together."""
    records = comparison.functions.to_dicts()
    for record in records[:_FUNCTIONS_SHOWN]:
        yield _row(record)
    if records:
        yield _row({**comparison.total, "function": "total"})


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
    if len(records) > _FUNCTIONS_SHOWN:
        hidden = counted(len(records) - _FUNCTIONS_SHOWN, "function")
        yield f"{hidden} that changed less not shown"
    yield (
        f"± is the {percent(CONFIDENCE)} confidence interval from task-to-task variation; "
        "machine-wide slowdowns are not covered"
    )
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


_PAGE = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<style>
:root {{ color-scheme: light dark; }}
body {{ font: 15px/1.5 system-ui, sans-serif; margin: 2em auto; max-width: 60em; padding: 0 1em; }}
div {{ overflow-x: auto; }} p, li {{ overflow-wrap: anywhere; }}
table {{ border-collapse: collapse; width: 100%; }}
th, td {{ padding: .25em .7em; border-bottom: 1px solid #8884; white-space: nowrap; }}
th:first-child {{ min-width: 8em; }}
td:first-child {{ white-space: normal; overflow-wrap: anywhere; }}
td {{ font-variant-numeric: tabular-nums; }}
tbody tr:last-child {{ font-weight: 600; }}
tr.slower td:last-child {{ color: #c0392b; font-weight: 600; }}
tr.faster td:last-child {{ color: #1e8449; font-weight: 600; }}
@media (max-width: 40em) {{ body {{ font-size: 12px; margin: 1em auto; }}
  th, td {{ padding: .25em .2em; }} th:first-child {{ min-width: 4em; }}
  th, td {{ white-space: normal; }} td:nth-child(3), td:nth-child(4) {{ white-space: nowrap; }}
  p, li {{ font-size: 13px; }} }}
@media (prefers-color-scheme: dark) {{
  tr.slower td:last-child {{ color: #ff8a78; }} tr.faster td:last-child {{ color: #6fd193; }}
}}
</style></head><body><h1>{heading}</h1>{body}</body></html>
"""


def page_of_summary(summary: Summary, title: str, heading: str = "Comparison") -> str:
    """A page with a table of verdicts, which needs no network."""
    body = summary._repr_html_()
    # Only the table may be wider than a small screen; the keyboard scrolls what has the focus.
    scroller = '<div role="region" aria-label="Functions" tabindex="0"><table>'
    body = (
        body.replace("→", "→<wbr>")
        .replace("<table>", scroller)
        .replace("</table>", "</table></div>")
    )
    for verdict in ("slower", "faster"):
        body = _marked(body, verdict)
    return _PAGE.format(title=html.escape(title), heading=html.escape(heading), body=body)


def _marked(body: str, verdict: str) -> str:
    """Mark the rows that end with a verdict, so that the page's style can colour them."""
    rows = body.split("<tr>")
    ends = f">{verdict}</td></tr>"
    return rows[0] + "".join(
        (f'<tr class="{verdict}">' if ends in row else "<tr>") + row for row in rows[1:]
    )
