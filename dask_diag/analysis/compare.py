"""Two recordings of the same work: which functions have become slower, as far as that is sure.

The seconds of a function are the sum over its tasks. If the duration of each is one draw from what
such a task may take, the sums of two recordings differ by chance, by no more than Welch's interval
in 99 of 100 cases. A change that is larger is sure. That is the spread between tasks, not between
runs: where the whole machine was slower, so was every task.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from dask_diag.analysis.elapsed import seconds_computing
from dask_diag.analysis.levels import levels_held
from dask_diag.analysis.memory import memory_usage
from dask_diag.analysis.statistics import FEWEST, Sum, interval
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["Comparison", "compare"]

_NAN = float("nan")


class Comparison(NamedTuple):
    """What `compare` finds. What is not known is NaN.

    Attributes
    ----------
    functions : Table
        A row per function, the largest change of seconds first. ``function``; then twice, as
        ``_before`` and ``_after``: ``tasks`` (count), ``seconds`` (sum of its tasks' durations),
        ``cpu`` (the share of them that was CPU time, 0 to 1), ``memory`` (the most bytes seen in
        use while one ran, see `memory_usage`) and ``held`` (the most that the scheduler held of
        its results at a time, in the recording's metric); ``change`` of the seconds, ``spread``
        (seconds by which they may differ by chance), and ``verdict``: ``slower`` or ``faster`` if
        the change is more than the spread, ``same`` if not, ``few`` if there are too few tasks to
        tell, ``new`` or ``gone``.
    total : dict
        The same numbers of all functions together, before and after, and ``elapsed`` (seconds in
        which a computation ran).
    metrics, units : tuple of str
        What the results that the scheduler held were measured by, and in which unit, before and
        after.
    """

    functions: Table
    total: dict[str, Any]
    metrics: tuple[str, str]
    units: tuple[str, str]

    def rising(self, by: float) -> list[str]:
        """What takes longer than before by more than a share (0.1 is a tenth), and surely so.

        Returns
        -------
        list of str
            Names of functions; first ``"total"``, if all functions together do.
        """
        rows = [{"function": "total", **self.total}, *self.functions.to_dicts()]
        return [
            row["function"]
            for row in rows
            if row["verdict"] == "slower" and row["change"] > by * row["seconds_before"]
        ]


class _Side(NamedTuple):
    """A function in one recording; `known` is of the tasks whose duration is known."""

    tasks: int = 0
    seconds: float = 0.0
    cpu: float = _NAN
    memory: float = _NAN
    held: float = _NAN
    known: Sum = Sum(0, 0.0)


_ABSENT = _Side()
_BOTH = ("tasks", "seconds", "cpu", "memory", "held")


class _Pair(NamedTuple):
    """A function in both."""

    function: str
    before: _Side
    after: _Side

    @property
    def change(self) -> float:
        return self.after.seconds - self.before.seconds

    @property
    def present(self) -> list[Sum]:
        return [side.known for side in (self.before, self.after) if side.tasks]

    @property
    def spread(self) -> float:
        """NaN if there are too few tasks."""
        enough = all(known.tasks >= FEWEST for known in self.present)
        return interval(self.present) if enough else _NAN

    @property
    def verdict(self) -> str:
        if not self.before.tasks:
            return "new"
        return _verdict(self.change, self.spread) if self.after.tasks else "gone"


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
    pairs = [_Pair(name, *(side.get(name, _ABSENT) for side in sides)) for name in names]
    pairs.sort(key=lambda pair: -abs(pair.change))
    metrics = before.metric, after.metric
    units = before.metric_unit, after.metric_unit
    return Comparison(_table(pairs), _total(pairs, before, after), metrics, units)


def _by_function(recording: Recording) -> dict[str, _Side]:
    tasks = recording.tasks
    if not len(tasks):
        return {}
    held, _ = levels_held(recording)
    memory = _memory_of_functions(recording)
    function: Categorical = tasks["function"]
    seconds = tasks["stop"] - tasks["start"]
    order = np.argsort(function.codes, kind="stable")
    cuts = np.searchsorted(function.codes[order], np.arange(len(function.values) + 1)).tolist()
    sides = {}
    for name, start, stop in zip(function.values, cuts, cuts[1:], strict=False):
        if start == stop:
            continue
        rows = order[start:stop]
        known = rows[~np.isnan(seconds[rows])]
        total = float(seconds[known].sum())
        variance = float(seconds[known].var(ddof=1)) if len(known) > 1 else _NAN
        sides[name] = _Side(
            tasks=len(rows),
            seconds=total,
            cpu=float(np.nansum(tasks["thread_cpu"][known])) / total if total else _NAN,
            memory=memory.get(name, _NAN),
            held=held[name].peak if name in held else _NAN,
            known=Sum(len(known), variance),
        )
    return sides


def _table(pairs: list[_Pair]) -> Table:
    numbers = {
        f"{name}_{when}": np.array([getattr(getattr(pair, when), name) for pair in pairs], float)
        for name in _BOTH
        for when in ("before", "after")
    }
    return Table(
        {
            "function": Categorical.of(pair.function for pair in pairs),
            **numbers,
            "change": np.array([pair.change for pair in pairs], float),
            "spread": np.array([pair.spread for pair in pairs], float),
            "verdict": Categorical.of(pair.verdict for pair in pairs),
        }
    )


def _total(pairs: list[_Pair], before: Recording, after: Recording) -> dict[str, Any]:
    total: dict[str, Any] = {}
    for when, recording in (("before", before), ("after", after)):
        sides = [getattr(pair, when) for pair in pairs]
        seconds = sum(side.seconds for side in sides)
        cpu = sum(side.cpu * side.seconds for side in sides if not np.isnan(side.cpu))
        total[f"tasks_{when}"] = sum(side.tasks for side in sides)
        total[f"seconds_{when}"] = seconds
        total[f"cpu_{when}"] = cpu / seconds if seconds else _NAN
        total[f"held_{when}"] = (
            levels_held(recording)[1].peak if len(recording.cached_results) else _NAN
        )
        total[f"elapsed_{when}"] = seconds_computing(recording.computations)
        total[f"memory_{when}"] = _most_memory(recording.resources)
    total["change"] = total["seconds_after"] - total["seconds_before"]
    total["spread"] = interval(
        known for pair in pairs if not np.isnan(pair.spread) for known in pair.present
    )
    total["verdict"] = _verdict(total["change"], total["spread"])
    return total


def _verdict(change: float, spread: float) -> str:
    if np.isnan(spread):
        return "few"
    if abs(change) <= spread:
        return "same"
    return "slower" if change > 0 else "faster"


def _memory_of_functions(recording: Recording) -> dict[str, float]:
    if not len(recording.resources) and not len(recording.processes):
        return {}
    usage = memory_usage(recording)
    return dict(zip(usage["function"].tolist(), usage["max_memory"].tolist(), strict=True))


def _most_memory(resources: Table) -> float:
    if not len(resources):
        return _NAN
    return float(np.max(resources["memory"] + resources["memory_children"]))
