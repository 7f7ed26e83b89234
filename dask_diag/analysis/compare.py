"""Two recordings of the same work: which functions take longer, beyond chance.

The seconds of a function are the sum over its tasks. A change of that sum is reported if it exceeds
what the variation between tasks explains: see `pairing` for how that is measured. It is the
variation between tasks, not between runs: if the whole machine was slower, so was every task.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.memory import memory_usage
from dask_diag.analysis.pairing import NO_TASKS, TimedTasks, paired_seconds, timed_tasks
from dask_diag.analysis.statistics import (
    CONFIDENCE,
    MIN_TASKS,
    Variation,
    half_width,
    half_width_of_pairs,
)
from dask_diag.analysis.step_functions import cached_levels, seconds_computing
from dask_diag.columns import Categorical, FloatArray
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table
from dask_diag.model.tables import Resources

__all__ = ["Comparison", "compare"]

Totals = dict[str, Any]
"""Numbers by their names, and the verdict on them."""

_NAN = float("nan")


class Comparison(NamedTuple):
    """What changed from one recording to another. What is not known is NaN.

    Attributes
    ----------
    functions : Table
        A row per function, the largest change of seconds first. ``function``; then twice, as
        ``_before`` and ``_after``: ``tasks`` (count), ``seconds`` (sum of its tasks' durations),
        ``cpu`` (the share of them that was CPU time, 0 to 1), ``memory`` (the most bytes sampled
        while one ran, see `memory_usage`) and ``cached`` (the peak of its results that the
        scheduler cached, in the recording's metric); ``change`` of the seconds, ``spread``
        (seconds that variation between tasks explains), and ``verdict``: ``slower`` or ``faster``
        if the change is more than the spread, ``unchanged`` if not, ``too few tasks`` if the
        spread is not known, ``added`` or ``removed``.
    total : dict
        The same numbers of all functions together, before and after; ``wall`` (seconds of the
        recorded block) and ``elapsed`` (seconds of these in which a computation ran).
    metrics, units : tuple of str
        The metric of cached results and its unit, before and after.
    """

    functions: Table
    total: Totals
    metrics: tuple[str, str]
    units: tuple[str, str]

    def regressions(self, above: float) -> list[str]:
        """What takes longer than before by more than a share (0.1 is a tenth), beyond chance.

        Returns
        -------
        list of str
            Names of functions; first ``"total"``, if all functions together do. None if the
            program computes in less time by that share, beyond chance: with more tasks at once
            each may take longer.
        """
        if self.is_quicker(above):
            return []
        rows = [{"function": "total", **self.total}, *self.functions.to_dicts()]
        return [
            row["function"]
            for row in rows
            if row["verdict"] == "slower" and row["change"] > above * row["seconds_before"]
        ]

    def is_quicker(self, by: float) -> bool:
        """Whether computations take less time than before by more than a share, beyond chance."""
        total = self.total
        if not total["seconds_before"]:
            return False
        # The time of computations varies no more than that of their tasks.
        share = by + total["spread"] / total["seconds_before"]
        return bool(total["elapsed_after"] < (1 - share) * total["elapsed_before"])


class _Side(NamedTuple):
    """A function in one recording."""

    tasks: int = 0
    seconds: float = 0.0
    cpu: float = _NAN
    memory: float = _NAN
    cached: float = _NAN
    timed: TimedTasks = NO_TASKS


_ABSENT = _Side()
_MEASURES = ("tasks", "seconds", "cpu", "memory", "cached")


@dataclass(frozen=True)
class _FunctionChange:
    """A function in both recordings."""

    function: str
    before: _Side
    after: _Side

    @property
    def change(self) -> float:
        return self.after.seconds - self.before.seconds

    @cached_property
    def pairs(self) -> tuple[FloatArray, FloatArray] | None:
        """The seconds of each task before and after; None if they cannot be paired."""
        return paired_seconds(self.before.timed, self.after.timed)

    @cached_property
    def variations(self) -> list[Variation]:
        """Of the tasks before and of those after."""
        sides = (self.before, self.after)
        return [Variation.of(side.timed.seconds) for side in sides if side.tasks]

    @property
    def has_known_variation(self) -> bool:
        return all(variation.size >= MIN_TASKS for variation in self.variations)

    @property
    def is_judged(self) -> bool:
        return bool(self.before.tasks and self.after.tasks) and self.has_known_variation

    def spread(self, risk: float) -> float:
        if not self.has_known_variation:
            return _NAN
        if self.pairs is not None:
            return half_width_of_pairs(*self.pairs, risk)
        return half_width(self.variations, risk)

    def verdict(self, risk: float) -> str:
        if not self.before.tasks:
            return "added"
        return _verdict(self.change, self.spread(risk)) if self.after.tasks else "removed"


def compare(before: Recording, after: Recording) -> Comparison:
    """Compare two recordings, function by function.

    Parameters
    ----------
    before, after : Recording

    Returns
    -------
    Comparison
    """
    expect_recording(before)
    expect_recording(after)
    sides = _by_function(before), _by_function(after)
    names = dict.fromkeys((*sides[0], *sides[1]))
    changes = [
        _FunctionChange(name, *(side.get(name, _ABSENT) for side in sides)) for name in names
    ]
    changes.sort(key=lambda change: -abs(change.change))
    # A build fails if any of them is slower: each may err by chance only so rarely that all of
    # them together keep the confidence (Bonferroni). The total of one function is no other test.
    tests = sum(row.is_judged for row in changes) + (len(changes) > 1)
    risk = (1 - CONFIDENCE) / max(1, tests)
    total = _total(changes, before, after, risk)
    metrics = before.metric, after.metric
    units = before.metric_unit, after.metric_unit
    return Comparison(_table(changes, risk), total, metrics, units)


def _by_function(recording: Recording) -> dict[str, _Side]:
    """Each function that has tasks, by its name."""
    tasks = recording.tasks
    levels, _ = cached_levels(recording)
    memory = _memory_of_functions(recording)
    timed = timed_tasks(tasks)
    sides = {}
    for name, rows in rows_by(tasks.function).items():
        rows_timed = rows[~np.isnan(timed.seconds[rows])]
        seconds = float(timed.seconds[rows_timed].sum())
        sides[name] = _Side(
            tasks=len(rows),
            seconds=seconds,
            cpu=_share(tasks.thread_cpu[rows_timed], timed.seconds[rows_timed]),
            memory=memory.get(name, _NAN),
            cached=levels[name].peak if name in levels else _NAN,
            timed=timed.rows(rows_timed),
        )
    return sides


def _share(parts: FloatArray, wholes: FloatArray) -> float:
    """The share of all parts in their wholes, where a part is known; else NaN."""
    is_known = ~np.isnan(parts)
    total = float(wholes[is_known].sum())
    return float(parts[is_known].sum()) / total if total else _NAN


def _table(changes: list[_FunctionChange], risk: float) -> Table:
    measures = {
        f"{name}_{when}": np.array([getattr(getattr(row, when), name) for row in changes], float)
        for name in _MEASURES
        for when in ("before", "after")
    }
    return Table(
        {
            "function": Categorical.of(row.function for row in changes),
            **measures,
            "change": np.array([row.change for row in changes], float),
            "spread": np.array([row.spread(risk) for row in changes], float),
            "verdict": Categorical.of(row.verdict(risk) for row in changes),
        }
    )


def _total(
    changes: list[_FunctionChange], before: Recording, after: Recording, risk: float
) -> Totals:
    total: Totals = {}
    for when, recording in (("before", before), ("after", after)):
        sides = [getattr(row, when) for row in changes]
        seconds = np.array([side.seconds for side in sides])
        cpu = np.array([side.cpu for side in sides]) * seconds
        total[f"tasks_{when}"] = sum(side.tasks for side in sides)
        total[f"seconds_{when}"] = float(seconds.sum())
        total[f"cpu_{when}"] = _share(cpu, seconds)
        total[f"cached_{when}"] = (
            cached_levels(recording)[1].peak if len(recording.cached_results) else _NAN
        )
        total[f"wall_{when}"] = recording.stop - recording.start
        total[f"elapsed_{when}"] = seconds_computing(recording.computations)
        total[f"memory_{when}"] = _peak_memory(recording.resources)
    total["change"] = total["seconds_after"] - total["seconds_before"]
    total["spread"] = _spread_of_total(changes, risk)
    total["verdict"] = _verdict(total["change"], total["spread"])
    return total


def _spread_of_total(changes: list[_FunctionChange], risk: float) -> float:
    """The seconds that chance explains of all changes together; NaN if that is not known.

    The differences of all paired tasks are judged as those of one function: one of which there is
    a single task counts with what it differs by, so that it never makes a change of the total
    that is more than its own share of the standard error.
    """
    paired = [row.pairs for row in changes if row.pairs is not None]
    before, after = (
        np.concatenate([pair[side] for pair in paired] or [np.zeros(0)]) for side in (0, 1)
    )
    variations: list[Variation] = []
    unpaired = [row for row in changes if row.pairs is None]
    # Where the noise is not known, all of the change may be noise.
    unknown = 0.0
    if len(before) >= MIN_TASKS:
        variations.append(Variation.of(after - before))
    else:
        unknown = abs(float((after - before).sum()))
    for row in unpaired:
        if row.has_known_variation:
            variations += row.variations
        else:
            unknown += abs(row.change)
    if len(before) >= MIN_TASKS and len(variations) == 1:
        return half_width_of_pairs(before, after, risk) + unknown
    return half_width(variations, risk) + unknown if variations else _NAN


def _verdict(change: float, spread: float) -> str:
    if np.isnan(spread):
        return "too few tasks"
    if abs(change) <= spread:
        return "unchanged"
    return "slower" if change > 0 else "faster"


def _memory_of_functions(recording: Recording) -> dict[str, float]:
    if not len(recording.resources) and not len(recording.processes):
        return {}
    usage = memory_usage(recording)
    return dict(zip(usage["function"].tolist(), usage["max_memory"].tolist(), strict=True))


def _peak_memory(resources: Resources) -> float:
    if not len(resources):
        return _NAN
    return float(np.max(resources.memory + resources.memory_children))
