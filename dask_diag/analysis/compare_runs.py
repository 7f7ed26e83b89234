"""Comparison of several runs before a change with several runs after the change.

A quantity, such as the wall time or the seconds of a function, has one value for each run. Those
values are a sample: the same program ran again, on the same machine. So the mean before and the
mean after are compared by Welch's test, and whatever makes runs differ, busy neighbors included,
is in the spread. Tasks are never taken for a sample here.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from math import nan, sqrt
from typing import NamedTuple

import numpy as np
from toolz import concat, unique

from dask_diag.analysis.activities import activities
from dask_diag.analysis.built_by import seconds_by_text
from dask_diag.analysis.compare import (
    CPU,
    TIME,
    Variation,
    half_width_of_means,
    t_quantile,
    verdict_of,
)
from dask_diag.analysis.groups import lookup, table_of, totals_by
from dask_diag.analysis.phases import phases
from dask_diag.analysis.task_times import seconds_computing
from dask_diag.columns import FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

Measures = dict[str, dict[str, float]]
"""The seconds of one run, by kind and name: see `RunComparison.changes`."""

WALL = "wall"
"""The seconds of the recorded block: of a program, all but the start of the interpreter."""
COMPUTING = "computing"
"""The seconds in which at least one computation ran."""
_RISK_OF_RUNS = 0.012
"""The probability that chance alone makes wall or computing seem slower; and the same of"""
_RISK_OF_PARTS = 0.004
"""all functions together, of all phases together, and of all activities and lines together."""
_NEVER_SLOWER = ("activity", "line")
_EIGHT_OF_TEN = 0.842
"""Standard errors by which a change must exceed what looks like chance, to be found that often."""
_MOST_RUNS = 100
_WORTH_JUDGING = 0.01
"""Least share of the wall that a phase must take longer by to be slower: an empty one varies by
many times itself."""


class RunComparison(NamedTuple):
    """Changes between runs of a program before and after; unknown numbers are NaN.

    Attributes
    ----------
    changes : Table
        A row per quantity, the largest change of each kind first. Columns:

        * ``kind`` and ``name``: ``run`` (``wall``, the wall time, and ``computing``, the time in
          computations; or ``cpu``), ``phase`` (of the wall time), ``function`` (task time),
          ``activity`` (worker time) or ``line`` (task time by the line that built the tasks: the
          name of its file and its text).
        * ``before`` and ``after``: means over runs, in seconds; ``change`` is their difference.
        * ``spread``: the change that differences between runs explain, in seconds.
        * ``verdict``: ``slower`` or ``faster`` if the change exceeds the spread (for a phase, also
          1% of the wall time), otherwise ``unchanged``; ``too few runs`` if neither side has two
          runs; ``added`` or ``removed``. Activities and lines have ``more`` or ``less`` instead of
          ``slower`` and ``faster``.
    runs : tuple of int
        Numbers of runs, before and after.
    others : tuple of float
        Share of the CPUs that other processes used while computations ran, before and after: the
        mean over runs; 0 if unknown.
    """

    changes: Table
    runs: tuple[int, int]
    others: tuple[float, float] = (0.0, 0.0)

    def __repr__(self) -> str:
        before, after = self.runs
        return f"<RunComparison of {before} and {after} runs: {len(self.changes)} changes>"

    def smallest(self) -> float:
        """Smallest slowdown that these runs could show.

        A slowdown of the wall time, or of the time in computations, by that much is found in half
        of such comparisons.

        Returns
        -------
        float
            Share of the time before: 0.1 is 10%. NaN if neither side has two runs.
        """
        rows = [row for row in self.changes.to_dicts() if row["kind"] == "run" and row["before"]]
        return min([row["spread"] / row["before"] for row in rows], default=nan)

    def runs_to_show(self, share: float) -> int:
        """Number of runs on each side that show a slowdown, if they differ as these do.

        Parameters
        ----------
        share : float
            Share of the time before: 0.1 is 10%.

        Returns
        -------
        int
            Runs with which a slowdown by that share is found in eight of ten comparisons; 0 if
            that is not known, or takes more than 100.
        """
        smallest, (before, after) = self.smallest(), self.runs
        # As if the runs of both sides differed alike.
        quantile = t_quantile(_RISK_OF_RUNS / 2, max(before + after - 2, 1))
        deviation = smallest / quantile / sqrt(1 / before + 1 / after)
        for runs in range(2, _MOST_RUNS + 1):
            errors = t_quantile(_RISK_OF_RUNS / 2, 2 * runs - 2) + _EIGHT_OF_TEN
            if errors * deviation * sqrt(2 / runs) <= share:
                return runs
        return 0

    def regressions(self, above: float) -> list[str]:
        """Names of quantities that are slower by at least a share.

        The verdict must be ``slower``, and the confidence interval of the change must reach the
        share. The point estimate need not: for a slowdown by exactly that share, half of the
        estimates are smaller. With more runs, the smallest slowdown that is named approaches the
        share.

        Parameters
        ----------
        above : float
            Share of the time before: 0.1 is 10%.

        Returns
        -------
        list of str
            ``"wall"`` and ``"computing"`` first, then phases, such as ``"phase tasks"``, then
            functions.
        """
        return [
            f"phase {row['name']}" if row["kind"] == "phase" else row["name"]
            for row in self.changes.to_dicts()
            if row["verdict"] == "slower" and row["change"] + row["spread"] >= above * row["before"]
        ]


class _Change(NamedTuple):
    """A quantity of each run, before and after, and the mean wall time before."""

    kind: str
    name: str
    before: FloatArray
    after: FloatArray
    wall: float

    @property
    def change(self) -> float:
        return float(self.after.mean() - self.before.mean())

    def spread(self, risk: float) -> float:
        return half_width_of_means([Variation.of(self.before), Variation.of(self.after)], risk)

    @property
    def least(self) -> float:
        """Seconds by which the quantity must differ to be slower."""
        return _WORTH_JUDGING * self.wall if self.kind == "phase" else 0.0

    @property
    def is_judged(self) -> bool:
        """Whether the quantity can be slower: on both sides, and long enough."""
        is_long = max(self.before.mean(), self.after.mean()) > self.least
        return bool(self.before.any() and self.after.any() and is_long)

    def verdict(self, risk: float) -> str:
        was, is_now = self.before.any(), self.after.any()
        if not (was and is_now):
            return "removed" if was else "added" if is_now else "unchanged"
        # The seconds of lines are those of functions, divided in another way.
        words = ("more", "less") if self.kind in _NEVER_SLOWER else ("slower", "faster")
        # NaN is the larger of the two.
        spread = np.maximum(self.spread(risk), self.least)
        return verdict_of(self.change, spread, *words, "too few runs")


def same_run(recordings: Sequence[Recording]) -> tuple[int, int] | None:
    """Positions of the first two recordings of a single run, such as a file and a copy.

    Taken for two runs they would have no spread, and any change would be beyond it.
    """
    first_of: dict[Hashable, int] = {}
    for index, recording in enumerate(recordings):
        for mark in _marks(recording):
            if first_of.setdefault(mark, index) != index:
                return first_of[mark], index
    return None


def _marks(recording: Recording) -> list[Hashable]:
    """Unique marks of a run; empty if the recording is not of a run."""
    if not recording.run_id:
        return []
    return [(recording.run_id, recording.start), *recording.computations.computation.tolist()]


def measures_of(recording: Recording, of: str = TIME) -> Measures:
    """The compared seconds of a run."""
    if of == CPU:
        cpu = totals_by(recording.tasks.function, np.nan_to_num(recording.tasks.thread_cpu))
        run = {"run": {CPU: sum(cpu.values())}, "phase": {}, "function": cpu, "activity": {}}
        return {**run, "line": _seconds_of_lines(recording, "cpu_seconds")}
    in_phases, in_activities, tasks = phases(recording), activities(recording), recording.tasks

    return {
        "run": {
            WALL: recording.stop - recording.start,
            COMPUTING: seconds_computing(recording.computations),
        },
        "phase": lookup(in_phases["phase"], in_phases["seconds"]),
        "function": totals_by(tasks.function, np.nan_to_num(tasks.stop - tasks.start)),
        "activity": lookup(in_activities["activity"], in_activities["value"]),
        "line": _seconds_of_lines(recording, "seconds"),
    }


def _seconds_of_lines(recording: Recording, of: str) -> dict[str, float]:
    return {name: seconds for name, (_, seconds) in seconds_by_text(recording, of).items()}


def compare_measures(before: Sequence[Measures], after: Sequence[Measures]) -> RunComparison:
    """Compare runs by seconds, as `compare` does."""
    wall = float(np.mean([run["run"].get(WALL, 0.0) for run in before]))
    # A recording without lines says nothing of them, also not that they were added.
    never_slower = _NEVER_SLOWER if all(run["line"] for run in (*before, *after)) else ("activity",)
    rows = []
    for kinds in (("run",), ("phase",), ("function",), never_slower):
        changes = [
            _Change(kind, name, _values(before, kind, name), _values(after, kind, name), wall)
            for kind in kinds
            for name in unique(concat(run[kind] for run in (*before, *after)))
        ]
        if kinds == ("run",):
            risk = _risk_of_runs(changes)
        else:
            risk = _RISK_OF_PARTS / max(1, sum(change.is_judged for change in changes))
            changes.sort(key=lambda change: (kinds.index(change.kind), -abs(change.change)))
        for each in changes:
            means = each.before.mean(), each.after.mean(), each.change
            rows.append((each.kind, each.name, *means, each.spread(risk), each.verdict(risk)))
    numbers = dict.fromkeys(("before", "after", "change", "spread"), float)
    table = table_of(rows, kind=str, name=str, **numbers, verdict=str)
    table = table.in_units(**dict.fromkeys(numbers, "s"))
    return RunComparison(table, (len(before), len(after)))


def _values(runs: Sequence[Measures], kind: str, name: str) -> FloatArray:
    """Seconds in each run; a quantity missing in a run took no time."""
    return np.array([run[kind].get(name, 0.0) for run in runs])


def _risk_of_runs(changes: list[_Change]) -> float:
    """The risk for judging wall and computing (Hochberg 1988).

    They are nearly the same seconds. Where both changed the same way at the full risk, both are
    taken at their word; where only one did, it is one of two that might have.
    """
    verdicts = {change.verdict(_RISK_OF_RUNS) for change in changes}
    agree = verdicts in ({"slower"}, {"faster"})
    return _RISK_OF_RUNS if agree else _RISK_OF_RUNS / len(changes)
