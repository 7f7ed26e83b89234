"""The section of a report on functions: their time, and what it was spent on.

The page has the same numbers in bins of time, and shows those of the part that the plots show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from math import floor, isnan, log10
from typing import ClassVar, NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import NO_TASK, activities_over_time
from dask_diag.columns import FloatArray
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.views.colors import OTHER, color_of_activity, stacking_order
from dask_diag.views.names import name_of_part
from dask_diag.views.plots.figures import pack
from dask_diag.views.plots.layers import hatch_of
from dask_diag.views.report.components import Part, Piece, class_of_hatch, not_there, safe
from dask_diag.views.report.figures import Figures


class FunctionRow(NamedTuple):
    """A function in a table: its colour in the plots, cells, and bar; `row` is its number."""

    row: int
    name: str
    color: str
    cells: Sequence[str]
    bar: Sequence[Piece]


class NamedActivity(NamedTuple):
    """What a key says of one activity; `number` is its place in the page."""

    number: int
    name: str
    text: str
    color: str
    hatch: str


@dataclass(frozen=True)
class FunctionTable(Part):
    """All functions with a bar each, which the page makes again for a part of the time.

    Attributes
    ----------
    total : str
        The seconds of all workers.
    bar : list of Piece
        Of them.
    key : list of NamedActivity
        What the colours of bars mean.
    more : int
        How many activities are not named.
    columns : list of str
        Names of the cells.
    rows : list of FunctionRow
        The longest first.
    sums : list of str
        The cells of all functions together.
    over_time : dict
        What ``functions.js`` takes.
    """

    total: str
    bar: Sequence[Piece]
    key: Sequence[NamedActivity]
    more: int
    columns: Sequence[str]
    rows: Sequence[FunctionRow]
    sums: Sequence[str]
    over_time: Mapping[str, object] = field(repr=False)
    kind: ClassVar[str] = "functions"


_FUNCTIONS = 20
_BINS = 600
"""As many as the plot of workers has: what is in the table is the area that is seen there."""
_DIGITS = 7
"""Of the recording's duration: packed times are exact to that."""
_SMALLEST_SHARE = 0.001
"""Of worker time: the key names activities of more, and those seen in the bars of functions."""
_SMALLEST_PIECE = 0.01
"""Of the longest bar."""
_COLUMNS = ("time", "share", "CPU", "tasks", "longest")
_WITHOUT_TASK = "no task: "

Kind = tuple[str, bool]
"""An activity, and whether it is one of workers without a task."""


def functions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Each function with its time, and what that was spent on; the workers' time above."""
    if not len(analysis.recording.tasks):
        yield not_there("tasks", "Profiler", analysis.recording)
        return
    yield _Made(analysis, figures).table()


class _Made:
    """The table of a recording while it is made."""

    def __init__(self, analysis: Analysis, figures: Figures) -> None:
        records = analysis.functions.to_dicts()
        self._names = [record["function"] for record in records[:_FUNCTIONS]]
        self._left_out = len(records) - len(self._names)
        self._colors = figures.colors
        self._of_bins = activities_over_time(
            analysis.recording, analysis.occupancies, self._names, _BINS
        )
        # Tasks that are not known to have started are in no bin.
        tasks = [record["tasks"] for record in records]
        self._tasks = [*tasks[:_FUNCTIONS], sum(tasks[_FUNCTIONS:])]

    @cached_property
    def _sums(self) -> dict[int, dict[Kind, float]]:
        """The seconds of each row by kind."""
        rows: dict[int, dict[Kind, float]] = {row: {} for row in (*self._rows, NO_TASK)}
        for (row, activity), values in self._of_bins.seconds.items():
            rows[row][activity, row == NO_TASK] = float(values.sum())
        return rows

    @property
    def _rows(self) -> range:
        return range(len(self._names) + bool(self._left_out))

    @cached_property
    def _all(self) -> dict[Kind, float]:
        """The seconds of all workers by kind, in the order in which bars stack them."""
        total: dict[Kind, float] = {}
        for kinds in self._sums.values():
            for kind, value in kinds.items():
                total[kind] = total.get(kind, 0.0) + value
        # What looks like a gap is last.
        order = sorted(total, key=lambda kind: (kind[1], *stacking_order(kind[0])))
        return {kind: total[kind] for kind in order}

    def table(self) -> FunctionTable:
        """All of it."""
        times = [sum(self._sums[row].values()) for row in self._rows]
        longest, total = max(times, default=0.0), sum(self._all.values())
        key = self._key(longest, total)
        order = sorted(self._rows, key=lambda row: -times[row])
        return FunctionTable(
            total=seconds(total),
            bar=self._bar(self._all, total),
            key=key,
            more=sum(value > 0 for value in self._all.values()) - len(key),
            columns=_COLUMNS,
            rows=[
                FunctionRow(
                    row,
                    self._name(row),
                    self._colors[self._names[row]] if row < len(self._names) else OTHER,
                    self._cells([row], times[row], total),
                    self._bar(self._sums[row], longest),
                )
                for row in order
            ],
            sums=self._cells(list(self._rows), sum(times), total),
            over_time=self._in_the_page(),
        )

    def _name(self, row: int) -> str:
        is_one = row < len(self._names)
        return safe(self._names[row], 60) if is_one else f"({_more(self._left_out)})"

    def _cells(self, rows: Sequence[int], time: float, total: float) -> list[str]:
        cpu = [value for row in rows if not isnan(value := float(self._of_bins.cpu[row].sum()))]
        return [
            seconds(time),
            percent(time / total) if total else "",
            seconds(sum(cpu)) if cpu else "unknown",
            count(sum(self._tasks[row] for row in rows)),
            seconds(max((float(self._of_bins.longest[row].max()) for row in rows), default=0.0)),
        ]

    def _bar(self, kinds: Mapping[Kind, float], longest: float) -> list[Piece]:
        return [
            Piece(
                color_of_activity(kind[0]),
                100 * kinds[kind] / longest,
                f"{_name_of(kind)}: {seconds(kinds[kind])}",
                _hatch_of(kind),
            )
            for kind in self._all
            if kinds.get(kind) and longest
        ]

    def _key(self, longest: float, total: float) -> list[NamedActivity]:
        least = _SMALLEST_PIECE * longest
        of_functions = [kinds for row, kinds in self._sums.items() if row != NO_TASK]
        return [
            NamedActivity(
                index,
                _name_of(kind),
                f"{seconds(value)}, {percent(value / total)}",
                color_of_activity(kind[0]),
                _hatch_of(kind),
            )
            for index, (kind, value) in enumerate(self._all.items())
            if value >= _SMALLEST_SHARE * total > 0
            or any(kinds.get(kind, 0.0) >= least > 0 for kinds in of_functions)
        ]

    def _in_the_page(self) -> dict[str, object]:
        """The bins, as ``functions.js`` takes them; times are whole numbers of `tick` seconds."""
        made = self._of_bins
        duration = float(made.edges[-1] - made.edges[0])
        tick = 10.0 ** (floor(log10(duration)) - _DIGITS)
        kinds = list(self._all)
        pieces = [(row, kinds.index((activity, row == NO_TASK))) for row, activity in made.seconds]
        rows = list(self._rows)
        return {
            "length": duration / _BINS,
            "bins": _BINS,
            "tick": tick,
            "activities": [
                {
                    "name": _name_of(kind),
                    "color": color_of_activity(kind[0]),
                    "hatch": _hatch_of(kind),
                }
                for kind in kinds
            ],
            "pieces": pieces,
            "rows": len(rows),
            "packed": pack(
                {
                    "seconds": _steps(np.array([*made.seconds.values()]).reshape(-1, _BINS), tick),
                    "cpu": _steps(np.nan_to_num(made.cpu[rows]), tick),
                    "unmeasured": np.flatnonzero(np.isnan(made.cpu[rows, 0])),
                    "tasks": made.tasks[rows].reshape(-1),
                    "longest": np.rint(made.longest[rows] / tick).reshape(-1),
                }
            ),
        }


def _steps(sums: FloatArray, tick: float) -> FloatArray:
    """What is in each bin, rounded so that the sum up to any of them is exact to a tick."""
    until = np.rint(np.cumsum(sums, axis=1) / tick)
    return np.diff(until, axis=1, prepend=0.0).reshape(-1)


def _name_of(kind: Kind) -> str:
    activity, is_free = kind
    name = safe(name_of_part(activity), 40)
    return name if not is_free or name.startswith("no task") else _WITHOUT_TASK + name


def _hatch_of(kind: Kind) -> str:
    activity, is_free = kind
    return class_of_hatch(hatch_of(activity)) if is_free and activity != Activity.IDLE else ""


def _more(functions: int) -> str:
    return counted(functions, "more function")
