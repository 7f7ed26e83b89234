"""A comparison of two recordings: a table for a terminal, and a page of its own."""

from __future__ import annotations

import html
from collections.abc import Callable, Iterator
from functools import partial
from math import isnan
from typing import Any

from dask_diag.analysis.compare import Comparison
from dask_diag.analysis.spread import CONFIDENCE, FEWEST
from dask_diag.units import amount, count, percent, quantity, size
from dask_diag.views.names import seconds, shown
from dask_diag.views.text import Summary, counted, table_summary

__all__ = ["comparison_page", "comparison_summary"]

_FUNCTIONS_SHOWN = 30
_HEADINGS = ("function", "tasks", "before", "after", "change", "CPU %", "")
_WORDS = {
    "slower": "slower",
    "faster": "faster",
    "same": "in spread",
    "few": "few tasks",
    "new": "new",
    "gone": "gone",
}


def comparison_summary(found: Comparison, before: str, after: str) -> Summary:
    """What changed between two recordings of these names, at most 80 columns wide."""
    total = found.total
    heading = (
        f"{shown(before, 30)} → {shown(after, 30)}: "
        f"{seconds(total['elapsed_before'])} → {seconds(total['elapsed_after'])} elapsed"
    )
    records = found.functions.to_dicts()
    rows = [_row(record) for record in records[:_FUNCTIONS_SHOWN]]
    if rows:
        rows.append(_row({**total, "function": "total"}))
    return table_summary(heading, _HEADINGS, rows, list(_notes(found, records)))


def _row(record: dict[str, Any]) -> tuple[str, ...]:
    return (
        shown(record["function"]),
        _both(record, "tasks", count),
        seconds(record["seconds_before"]),
        seconds(record["seconds_after"]),
        _change(record),
        _both(record, "cpu", lambda share: "?" if isnan(share) else count(100 * share)),
        _WORDS[record["verdict"]],
    )


def _both(record: dict[str, Any], name: str, text: Callable[[float], str], to: str = "→") -> str:
    """Before and after, or one of them if they are told alike."""
    texts = [text(record[f"{name}_{when}"]) for when in ("before", "after")]
    return texts[0] if texts[0] == texts[1] else to.join(texts)


def _change(record: dict[str, Any]) -> str:
    """In shares of the seconds before."""
    before = record["seconds_before"]
    if not before or not record["seconds_after"]:
        return ""
    spread = "" if isnan(record["spread"]) else f" ±{_share(record['spread'] / before)}"
    sign = "+" if record["change"] > 0 else ""
    return f"{sign}{_share(record['change'] / before)}{spread}"


def _share(value: float) -> str:
    return percent(value) if abs(value) < 10 else f"{amount(value)}x"


def _notes(found: Comparison, records: list[dict[str, Any]]) -> Iterator[str]:
    total = found.total
    if len(records) > _FUNCTIONS_SHOWN:
        rest = counted(len(records) - _FUNCTIONS_SHOWN, "function")
        yield f"{rest} that changed less not shown"
    yield (
        "± is by how much tasks that vary like these differ by chance "
        f"({percent(CONFIDENCE)}); what a busier machine did to all tasks is not in it"
    )
    few = sum(record["verdict"] == "few" for record in records)
    if few:
        yield (
            f"judged in the total alone: {counted(few, 'function')} with fewer than {FEWEST} tasks "
            "on a side"
        )
    yield from _most(
        total,
        records,
        "memory",
        "resident memory at most",
        size,
        when="while tasks of one function ran: ",
    )
    metrics = set(found.metrics)
    metric = metrics.pop() if len(metrics) == 1 else ""
    held = partial(quantity, metric=metric)
    yield from _most(total, records, "held", "held by the scheduler at most", held)


def _most(
    total: dict[str, Any],
    records: list[dict[str, Any]],
    name: str,
    what: str,
    text: Callable[[float], str],
    *,
    when: str = "",
) -> Iterator[str]:
    """The most of something in all, and of the functions of which it changed most."""

    def change(row: dict[str, Any]) -> float:
        return abs(float(row[f"{name}_after"] - row[f"{name}_before"]))

    if isnan(total[f"{name}_before"]) and isnan(total[f"{name}_after"]):
        return
    told = f"{what} {_both(total, name, text, ' → ')}"
    changed = sorted((row for row in records if change(row) > 0), key=change, reverse=True)
    of_functions = [
        f"{shown(row['function'], 24)} {_both(row, name, text, ' → ')}" for row in changed[:3]
    ]
    if of_functions:
        of_functions[0] = when + of_functions[0]
    yield "; ".join([told, *of_functions])


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
</style></head><body><h1>Comparison</h1>{body}</body></html>
"""


def comparison_page(found: Comparison, before: str, after: str) -> str:
    """The same as a page that needs no network."""
    body = comparison_summary(found, before, after)._repr_html_()
    # Only the table may be wider than a small screen; the keyboard scrolls what has the focus.
    scroller = '<div role="region" aria-label="Functions" tabindex="0"><table>'
    body = (
        body.replace("→", "→<wbr>")
        .replace("<table>", scroller)
        .replace("</table>", "</table></div>")
    )
    for verdict in ("slower", "faster"):
        body = _marked(body, verdict)
    title = html.escape(f"{shown(before)} → {shown(after)}")
    return _PAGE.format(title=title, body=body)


def _marked(body: str, verdict: str) -> str:
    """Rows that end with a verdict, by which they can be coloured."""
    rows = body.split("<tr>")
    ends = f">{_WORDS[verdict]}</td></tr>"
    return rows[0] + "".join(
        (f'<tr class="{verdict}">' if ends in row else "<tr>") + row for row in rows[1:]
    )
