"""The result of `tune`: each setting with a gain and a verdict, and the setting to use."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.findings.rule import Finding
from dask_diag.columns import Categorical
from dask_diag.formatting import count, counted, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.tuning.race import LOOKS, MIN_RUNS, NOT_APPLIED, Contestant, Race, SpeedUp
from dask_diag.tuning.settings import Changes, Setting
from dask_diag.tuning.trials import Trial
from dask_diag.views.cell import make_summary
from dask_diag.views.escaping import shown
from dask_diag.views.page import summary_page
from dask_diag.views.text import Summary, SummaryParts


class Agreement:
    """The expected result of runs, by the runs of the baseline.

    Parameters
    ----------
    baseline : iterable of Trial
        Runs of the baseline, without recorded runs.
    subject : str
        The name of the compared result: ``stdout``.

    Attributes
    ----------
    note : str
        The reason why results cannot be compared; empty if possible.
    """

    def __init__(self, baseline: Iterable[Trial], subject: str) -> None:
        trials = [trial for trial in baseline if not trial.failed]
        self._subject = subject
        self._outputs = {trial.output for trial in trials}
        self._is_checked = any(trial.check is not None for trial in trials)
        self.note = ""
        if any(trial.check for trial in trials):
            self.note = "the --check command refuses the result of the program as it is"
        elif not self._is_checked and len(self._outputs) > 1:
            self.note = (
                f"{subject} already differs between runs of the baseline, so results are not "
                "compared; --check COMMAND can judge them"
            )

    def objection(self, trials: Iterable[Trial]) -> str:
        """The fault of the results of a setting's runs; empty without a fault."""
        results = [trial for trial in trials if not trial.failed]
        if self.note:
            return ""
        if self._is_checked:
            return "--check fails" if any(trial.check for trial in results) else ""
        is_same = {trial.output for trial in results} <= self._outputs
        return "" if is_same else f"{self._subject} differs"


_NO_GAIN = SpeedUp(nan, nan, nan, False)
_AS_FAST = 1.05
"""More workers are worth their memory if they are that many times as fast."""


class Row(NamedTuple):
    """A setting with runs and a verdict.

    Attributes
    ----------
    setting : Setting
    walls : list of float
        Seconds of each run.
    median : float
        The median of the walls; NaN without any.
    gain : SpeedUp or None
        None for the baseline, and for too few runs.
    predicted : float
        The gain expected by the recording of the baseline; NaN if not known.
    verdict : str
    is_faster : bool
        Whether the setting is faster beyond chance, with an equal result.
    is_right : bool
        Whether each run succeeded, with the result of the baseline.
    ended_early : str
        The reason for fewer runs than the maximum; empty after a verdict.
    """

    setting: Setting
    walls: list[float]
    median: float
    gain: SpeedUp | None
    predicted: float
    verdict: str
    is_faster: bool
    is_right: bool = True
    ended_early: str = ""

    @property
    def not_applied(self) -> str:
        """The reason why the setting does not reach the program; empty if it does."""
        _, found, reason = self.verdict.partition(NOT_APPLIED)
        return reason if found else ""


def rows_of(race: Race, predicted: Mapping[Changes, float], agreement: Agreement) -> list[Row]:
    """The baseline, and then the settings, the fastest first."""
    baseline, gains, rows = race.baseline, race.gains(), []
    for contestant in race.contestants:
        setting, gain = contestant.setting, gains.get(contestant.setting.identity)
        objection = agreement.objection(contestant.trials.values())
        if baseline.dropped:
            objection = "but the program fails as it is"
        is_right = not contestant.dropped and not objection
        # Only a round that the baseline finished, too, says something of a gain.
        rounds = len(contestant.walls.keys() & baseline.walls.keys())
        verdict = contestant.dropped or _verdict(gain, rounds)
        row = Row(
            setting,
            list(contestant.walls.values()),
            contestant.median,
            gain,
            predicted.get(setting.identity, nan),
            f"{verdict}, {objection}" if objection else verdict,
            is_faster=gain is not None and gain.is_proven and is_right,
            is_right=is_right,
            ended_early="" if contestant.dropped else _ended_early(gain, contestant),
        )
        rows.append(row)
    rows.sort(key=_speed, reverse=True)
    walls = list(baseline.walls.values())
    return [Row(baseline.setting, walls, baseline.median, None, nan, "baseline", False), *rows]


def _verdict(gain: SpeedUp | None, rounds: int) -> str:
    if gain is None:
        return f"too few runs ({rounds} of {MIN_RUNS})"
    if gain.is_proven:
        return "faster"
    if gain.low > 1:
        return "perhaps faster"
    return "slower" if gain.high < 1 else "no difference"


def _ended_early(gain: SpeedUp | None, contestant: Contestant) -> str:
    """The reason to end the runs of a setting neither faster nor slower beyond chance."""
    if gain is None or gain.is_proven or gain.high < 1 or len(contestant.walls) >= LOOKS[-1]:
        return ""
    runs = f"after {len(contestant.walls)} runs"
    if contestant.is_decided:
        return f"{runs}: at most {gain.high:.2f}x as fast, not worth more runs"
    return f"{runs}, as time was up: {gain.low:.2f}x to {gain.high:.2f}x as fast"


def winners(rows: Sequence[Row]) -> list[Row]:
    """The settings proven faster, with an equal result; the best first.

    The best is the fastest, or an otherwise equal setting, as fast with fewer workers.
    """
    faster = sorted((row for row in rows if row.is_faster), key=_speed, reverse=True)
    if not faster:
        return []
    fastest = faster[0]
    as_fast = [
        row
        for row in faster
        if row.setting.changes_but_workers == fastest.setting.changes_but_workers
        and (row.setting.workers is None) == (fastest.setting.workers is None)
        and _AS_FAST * _speed(row) >= _speed(fastest)
    ]
    best = min(as_fast, key=lambda row: row.setting.workers or 0)
    return [best, *(row for row in faster if row is not best)]


def best_of(rows: Sequence[Row]) -> Row | None:
    """The best of the settings proven faster, with an equal result."""
    return next(iter(winners(rows)), None)


def _speed(row: Row) -> float:
    return row.gain.estimate if row.gain else 0.0


_COLUMNS = ("setting", "median", "gain", "95%", "predicted", "verdict")
_LONGEST = 400
"""Most characters of a setting's name."""
_TOO_FEW = "too few runs"
_HOW_TO_READ = (
    'median of {runs}; gain: 2x is half the wall time, from runs of the same round; "faster" is a '
    "gain that chance does not explain, over all settings together (risk 0.2%)"
)


def tune_summary(
    rows: Sequence[Row],
    findings: Iterable[tuple[Finding, float]],
    notes: Iterable[str],
    versions: Sequence[str],
) -> Summary:
    """A table of the settings and lines to use the best, at most 80 columns wide.

    Parameters
    ----------
    rows : sequence of Row
        The baseline first.
    findings : iterable of (Finding, float)
        Findings with the measured gain of the remedy, or NaN.
    notes : iterable of str
    versions : sequence of str
        Lines of a table of versions, which stands below.
    """
    texts = [_texts(row) for row in rows if not row.not_applied]
    # The last row is set off: it is what the others are compared with.
    notes = list(notes)
    notices = [*_notices(rows, findings, notes), *(shown(note, 400) for note in notes)]
    notices.append(_HOW_TO_READ.format(runs=_runs(rows)))
    parts = SummaryParts(
        _headline(rows), _COLUMNS, [*texts[1:], texts[0]], notices=notices, is_wrapped=True
    )
    table = make_summary(parts)
    blocks = [block for block in (list(_lines_to_use(rows)), versions) if block]
    if not blocks:
        return table
    text = "\n\n".join("\n".join(block) for block in blocks)
    return Summary(
        f"{table}\n\n{text}",
        lambda: f"{table._repr_html_()}<pre>{html.escape(text)}</pre>",
    )


def _lines_to_use(rows: Sequence[Row]) -> Iterator[str]:
    """The best setting as lines for a shell, and for a file of dask's configuration."""
    row = best_of(rows)
    if row is None:
        return
    best = row.setting
    if best.python:
        yield f"To use it, run the program with {best.python}."
    if best.shell_lines():
        yield "To use it, in a shell:"
        yield from (f"    {line}" for line in best.shell_lines())
    for name, value in best.parameters.items():
        yield f"Use {value} for {{{name}}} in the arguments."
    if best.config:
        yield "or, for dask's own settings, in ~/.config/dask/dask.yaml:"
        yield from (f"    {line}" for line in best.configuration().splitlines())


def _headline(rows: Sequence[Row]) -> str:
    """A sentence on the best setting and the gain."""
    not_applied = sum(bool(row.not_applied) for row in rows)
    best, tried = best_of(rows), counted(len(rows) - 1 - not_applied, "setting")
    unjudged = sum(row.verdict.startswith(_TOO_FEW) for row in rows)
    if best is None and unjudged:
        return f"No setting is known to be faster: {unjudged} of {tried} had too few runs"
    tried = f"{tried} tried" + (f", {count(not_applied)} could not be" if not_applied else "")
    if best is None:
        return f"No setting is faster: {tried}"
    return (
        f"{_name(best)}: {_times(best)} as fast, {seconds(rows[0].median)} → "
        f"{seconds(best.median)} ({tried})"
    )


def _runs(rows: Sequence[Row]) -> str:
    """Numbers of runs of the settings with runs."""
    numbers = sorted({len(row.walls) for row in rows if row.walls}) or [0]
    least = f"{numbers[0]} to " if numbers[1:] else ""
    return f"{least}{counted(numbers[-1], 'run')}"


def _texts(row: Row) -> tuple[str, ...]:
    return (
        _name(row),
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
    """A verdict without the reasons, given by the notices."""
    return verdict.partition(":")[0].partition(" (")[0].partition(", ")[0]


def _notices(
    rows: Sequence[Row], findings: Iterable[tuple[Finding, float]], notes: Sequence[str]
) -> Iterator[str]:
    """Verdicts too long for a cell, and gains of remedies of findings."""
    for reason in dict.fromkeys(row.not_applied for row in rows if row.not_applied):
        names = [_name(row) for row in rows if row.not_applied == reason]
        yield f"not applied, {reason}: {'; '.join(names)}"
    few = False
    ended = [f"{_name(row)} ({row.ended_early})" for row in rows if row.ended_early]
    if ended:
        yield f"ended early: {'; '.join(ended)}"
    for row in rows:
        if row.gain is None and row.verdict.startswith(_TOO_FEW) and "," not in row.verdict:
            few = True
        elif (
            not row.not_applied
            and row.verdict != _short(row.verdict)
            and not any(note.startswith(f"{row.setting.name} {row.verdict}") for note in notes)
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


_ROW, _BAR, _END = 44, 28, 97.0
"""Pixels: from row to row, and from a row's top to its bar. Percent: where the longest run ends."""


def tune_page(rows: Sequence[Row], summary: Summary, title: str) -> str:
    """A page that needs no network."""
    body = f"{summary._repr_html_()}<h2>Runs</h2>{_chart(rows)}"
    return summary_page(Summary(summary, lambda: body), title, "Settings tried")


def _chart(tried: Sequence[Row]) -> str:
    """A row for each setting, from zero seconds on, a dot per run and a line up to the median.

    Lengths are shares of the window: a picture of a fixed width is cut off on a phone.
    """
    rows = [row for row in tried if row.walls]
    if not rows:
        return "<p>No run was measured.</p>"
    longest = max(max(row.walls) for row in rows)
    height = _ROW * len(rows) + 24
    marks = [mark for number, row in enumerate(rows) for mark in _marks(row, number, longest)]
    axis = (
        f'<text x="0" y="{height - 4}">0 s</text>'
        f'<text x="{_END}%" y="{height - 4}" text-anchor="end">{seconds(longest)}</text>'
    )
    return (
        f'<div><svg width="100%" height="{height}" role="img" '
        'aria-label="Wall time of each run" fill="currentColor" font-size="13">'
        f"{''.join(marks)}{axis}</svg></div>"
    )


def _marks(row: Row, number: int, longest: float) -> Iterator[str]:
    top, bar = _ROW * number, _ROW * number + _BAR
    name = html.escape(shown(row.setting.name, 36))
    yield f'<text x="0" y="{top + 16}">{name}: median {seconds(row.median)}</text>'
    yield (
        f'<line x1="0" x2="{_END * row.median / longest:.2f}%" y1="{bar}" y2="{bar}" '
        'stroke="#1567b1" stroke-width="8" stroke-opacity="0.35"/>'
    )
    for wall in row.walls:
        yield (
            f'<circle cx="{_END * wall / longest:.2f}%" cy="{bar}" r="4" fill="#1567b1">'
            f"<title>{seconds(wall)}</title></circle>"
        )


@dataclass(frozen=True, repr=False)
class TuneResult:
    """Settings tried on a program, with their gains.

    Attributes
    ----------
    rows : tuple of Row
        The baseline first, then the settings, the fastest first.
    recording : Recording
        Recording of the baseline.
    findings : tuple of (Finding, float)
        Findings of that recording, each with the measured gain of the setting that it advised; NaN
        if none was tried. If there is one, `potential_saving` of the finding is measured as well.
    notes : tuple of str
        Sentences that a reader of the numbers should know.
    is_interrupted : bool
        Whether Ctrl-C ended the trials.
    versions : tuple of str
        Lines of a table of the versions that differ between interpreters.
    """

    rows: tuple[Row, ...]
    recording: Recording
    findings: tuple[tuple[Finding, float], ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    versions: tuple[str, ...] = ()

    @property
    def best(self) -> Setting | None:
        """The setting to use; None if no setting is faster beyond chance with the same result."""
        best = best_of(self.rows)
        return best.setting if best is not None else None

    @property
    def table(self) -> Table:
        """A row per setting.

        Returns
        -------
        Table
            ``setting``, ``runs``, ``median`` (s), ``gain`` (2 is half the time) with its 95%
            interval ``low`` to ``high``, ``predicted`` and ``verdict``; unknown numbers are NaN.
        """
        gains = [row.gain or _NO_GAIN for row in self.rows]
        return Table(
            {
                "setting": Categorical.of(row.setting.name for row in self.rows),
                "runs": np.array([len(row.walls) for row in self.rows]),
                "median": np.array([row.median for row in self.rows], float),
                "gain": np.array([gain.estimate for gain in gains], float),
                "low": np.array([gain.low for gain in gains], float),
                "high": np.array([gain.high for gain in gains], float),
                "predicted": np.array([row.predicted for row in self.rows], float),
                "verdict": Categorical.of(row.verdict for row in self.rows),
            }
        ).in_units(median="s")

    def summary(self) -> Summary:
        """The table and the settings to use, for a terminal or a notebook."""
        return tune_summary(self.rows, self.findings, self.notes, self.versions)

    def page(self, title: str = "Settings tried") -> str:
        """The summary and a chart of all runs, as HTML that needs no network.

        Parameters
        ----------
        title : str, default "Settings tried"
            Title of the page.

        Returns
        -------
        str
        """
        return tune_page(self.rows, self.summary(), title)

    def __repr__(self) -> str:
        return f"<TuneResult: {_headline(self.rows)}>"

    def _repr_html_(self) -> str:
        return self.summary()._repr_html_()
