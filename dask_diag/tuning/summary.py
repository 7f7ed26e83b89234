"""The table of a tuned program, for a terminal, and the lines that set what to use."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Sequence
from math import isnan

from dask_diag.analysis.findings import Finding
from dask_diag.formatting import counted, seconds
from dask_diag.tuning.gains import MIN_RUNS
from dask_diag.tuning.rows import Row, best_of
from dask_diag.views.escaping import shown
from dask_diag.views.summary_text import SummaryParts
from dask_diag.views.text import Summary, make_summary

__all__ = ["tune_summary"]

_COLUMNS = ("setting", "runs", "median", "gain", "95%", "predicted", "verdict")
_LONGEST = 400
"""Characters of a setting's name."""
_TOO_FEW = "too few runs"
_HOW_TO_READ = (
    'gain: 2x is half the wall time, from runs of the same round; "faster" is a gain that chance '
    "does not explain, over all settings together (risk 0.2%)"
)


def tune_summary(
    rows: Sequence[Row], findings: Iterable[tuple[Finding, float]], notes: Iterable[str]
) -> Summary:
    """What was tried and what to use, at most 80 columns wide.

    Parameters
    ----------
    rows : sequence of Row
        The baseline first.
    findings : iterable of (Finding, float)
        With the gain that was measured of what answers it, or NaN.
    notes : iterable of str
    """
    texts = [_texts(row) for row in rows]
    # The last row is set off: it is what the others are compared with.
    notes = list(notes)
    notices = [*_notices(rows, findings, notes), *(shown(note, 400) for note in notes)]
    notices.append(_HOW_TO_READ)
    parts = SummaryParts(
        _headline(rows), _COLUMNS, [*texts[1:], texts[0]], notices=notices, is_wrapped=True
    )
    table, lines = make_summary(parts), list(_lines_to_use(rows))
    if not lines:
        return table
    text = "\n".join(lines)
    return Summary(f"{table}\n\n{text}", f"{table._repr_html_()}<pre>{html.escape(text)}</pre>")


def _lines_to_use(rows: Sequence[Row]) -> Iterator[str]:
    """The best setting as lines for a shell, and for a file of dask's configuration."""
    row = best_of(rows)
    if row is None:
        return
    best = row.setting
    if best.shell_lines():
        yield "To use it, in a shell:"
        yield from (f"    {line}" for line in best.shell_lines())
    for name, value in best.parameters.items():
        yield f"Use {value} for {{{name}}} in the arguments."
    if best.config:
        yield "or, for dask's own settings, in ~/.config/dask/dask.yaml:"
        yield from (f"    {line}" for line in best.configuration().splitlines())


def _headline(rows: Sequence[Row]) -> str:
    """Which setting is the best, and how much faster it is."""
    best, tried = best_of(rows), counted(len(rows) - 1, "setting")
    unjudged = sum(row.verdict.startswith(_TOO_FEW) for row in rows)
    if best is None and unjudged:
        return f"No setting is known to be faster: {unjudged} of {tried} had too few runs"
    if best is None:
        return f"No setting is faster: {tried} tried"
    return (
        f"{_name(best)}: {_times(best)} as fast, {seconds(rows[0].median)} → "
        f"{seconds(best.median)} ({tried} tried)"
    )


def _texts(row: Row) -> tuple[str, ...]:
    return (
        _name(row),
        str(len(row.walls)),
        "" if isnan(row.median) else seconds(row.median),
        _times(row),
        f"{row.gain.low:.2f}-{row.gain.high:.2f}" if row.gain else "",
        "" if isnan(row.predicted) else f"{row.predicted:.2f}x",
        _short(row.verdict),
    )


def _name(row: Row) -> str:
    return shown(row.setting.name, _LONGEST)


def _times(row: Row) -> str:
    return f"{row.gain.estimate:.2f}x" if row.gain else ""


def _short(verdict: str) -> str:
    """A verdict without its reasons, which are among the notices."""
    return verdict.partition(":")[0].partition(" (")[0].partition(", ")[0]


def _notices(
    rows: Sequence[Row], findings: Iterable[tuple[Finding, float]], notes: Sequence[str]
) -> Iterator[str]:
    """Verdicts that need more words than a cell has, and gains of what answers findings."""
    few = False
    ended = [f"{_name(row)} ({row.ended_early})" for row in rows if row.ended_early]
    if ended:
        yield f"ended early: {'; '.join(ended)}"
    for row in rows:
        if row.gain is None and row.verdict.startswith(_TOO_FEW) and "," not in row.verdict:
            few = True
        elif row.verdict != _short(row.verdict) and not any(
            note.startswith(f"{row.setting.name} {row.verdict}") for note in notes
        ):
            yield f"{_name(row)}: {shown(row.verdict, 200)}"
    if few:
        yield (
            f"{_TOO_FEW}: a setting is judged after {MIN_RUNS} rounds that the baseline finished, "
            "too; a larger --budget has more"
        )
    for finding, gain in findings:
        if not isnan(gain):
            yield f"{finding.code}: the settings it advises make the program {gain:.2f}x as fast"
