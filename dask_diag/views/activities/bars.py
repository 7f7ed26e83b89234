"""The numbers behind the pictures of activities, and how they are laid out as bars.

The page has the numbers, not the tasks. ``activities.js`` lays them out again when the reader
chooses functions or a unit; what is here is the page as it opens.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.analysis.activities import UNUSED, cells
from dask_diag.analysis.functions import by_function
from dask_diag.recording import Recording
from dask_diag.units import count
from dask_diag.views.colors import stacking_order

__all__ = [
    "MOST_BARS",
    "UNUSED_WORKERS",
    "Bars",
    "Numbers",
    "bars_by",
    "bars_of_cpu",
    "numbers_of",
]

MOST_BARS = 30
"""As many as can be read; the rest is one bar."""
UNUSED_WORKERS = "unused workers"
"""All that ran no task, as one."""
_MOST_FUNCTIONS = 300
"""As many as a reader can choose from; the rest counts as one function."""

Array = np.ndarray[Any, Any]
Columns = dict[str, Any]


@dataclass(frozen=True)
class Numbers:
    """What was measured, by function, worker, activity and unit.

    Attributes
    ----------
    functions : list of str
        The longest first; those beyond `_MOST_FUNCTIONS` are one, the last.
    unlisted : int
        How many functions that last one is of, beside one.
    workers, units : list of str
        Workers that ran no task at all are one, the last.
    activities : list of (str, bool)
        In stacking order; whether it is one of free workers.
    cells : dict of str to array
        ``function``, ``worker``, ``activity`` and ``unit`` are positions in the lists, the function
        of free workers the one after the last; ``value`` is the sum.
    cpu : dict of str to array
        ``cpu`` and ``noncpu``: seconds of each function, what it metered included.
    """

    functions: list[str]
    unlisted: int
    workers: list[str]
    units: list[str]
    activities: list[tuple[str, bool]]
    cells: Columns
    cpu: Columns


@dataclass(frozen=True)
class Bars:
    """Stacked bars: what is drawn of each piece, and what stands beside each bar."""

    pieces: Columns
    rows: Columns


@dataclass(frozen=True)
class _Bar:
    name: str
    values: Array
    """Of each activity."""
    members: list[int]
    """The positions of the functions, workers or activities that it is of."""

    @property
    def total(self) -> float:
        return float(self.values.sum())


def numbers_of(recording: Recording) -> Numbers:
    """Add up a recording for the page."""
    table = cells(recording)
    of_functions = by_function(recording)
    names = of_functions["function"].tolist() if len(of_functions) else []
    unlisted = max(len(names) - _MOST_FUNCTIONS, 0)
    functions = names[:_MOST_FUNCTIONS]
    if unlisted:
        functions[-1] = f"({count(unlisted + 1)} more functions)"
    of_workers = [UNUSED_WORKERS if w == UNUSED else w for w in table["worker"].tolist()]
    workers = sorted(
        set(of_workers),
        key=lambda name: (name == UNUSED_WORKERS, name.partition("-")[0], len(name), name),
    )
    free = [function is None for function in table["function"].tolist()]
    pairs = list(zip(table["activity"].tolist(), free, strict=True))
    found = sorted(set(pairs), key=lambda pair: (*stacking_order(pair[0]), pair[1]))
    units = list(dict.fromkeys(["seconds", *table["unit"].tolist()]))
    code = {name: min(n, _MOST_FUNCTIONS - 1) for n, name in enumerate(names)}
    return Numbers(
        functions=functions,
        unlisted=unlisted,
        workers=workers,
        units=units,
        activities=found,
        cells={
            "function": _positions(table["function"].tolist(), {**code, None: len(functions)}),
            "worker": _positions(of_workers, _places(workers)),
            "activity": _positions(pairs, _places(found)),
            "unit": _positions(table["unit"].tolist(), _places(units)),
            "value": np.nan_to_num(table["value"], posinf=0.0, neginf=0.0),
        },
        cpu={
            name: _added_up(of_functions, column, list(code.values()), len(functions))
            for name, column in (("cpu", "thread_cpu"), ("noncpu", "thread_noncpu"))
        },
    )


def _places(values: Sequence[Any]) -> dict[Any, int]:
    return {value: place for place, value in enumerate(values)}


def _positions(values: Sequence[Any], place: dict[Any, int]) -> Array:
    return np.array([place[value] for value in values], dtype=np.int32)


def _added_up(table: Any, column: str, codes: Sequence[int], length: int) -> Array:
    values = np.nan_to_num(table[column]) if len(table) else np.zeros(0)
    return np.bincount(np.array(codes, dtype=np.int64), values, minlength=length)


def bars_by(numbers: Numbers, by: str, unit: int = 0) -> Bars:
    """The bars of each function, worker or activity, of all functions.

    Parameters
    ----------
    numbers : Numbers
    by : {"function", "worker", "activity"}
    unit : int, optional
        The unit's position in `Numbers.units`; the first is seconds.
    """
    cells = numbers.cells
    chosen = cells["unit"] == unit
    if by == "function":
        chosen &= cells["function"] < len(numbers.functions)
    names = {
        "function": numbers.functions,
        "worker": numbers.workers,
        "activity": [
            f"{name} (no task ran)" if free else name for name, free in numbers.activities
        ],
    }[by]
    sums = np.zeros((len(names), len(numbers.activities)))
    np.add.at(sums, (cells[by][chosen], cells["activity"][chosen]), cells["value"][chosen])
    bars = [
        _Bar(name, values, [place])
        for place, (name, values) in enumerate(zip(names, sums, strict=True))
        if values.any()
    ]
    if by == "function":
        # Those that are not listed are not one function to be compared with others.
        last = len(names) - 1 if numbers.unlisted else None
        bars.sort(key=lambda bar: (bar.members[0] == last, -bar.total))
    elif by == "activity":
        bars.sort(key=lambda bar: (numbers.activities[bar.members[0]][1], -bar.total))
    return _fitted(_stacked(_with_the_rest_as_one(bars, by, numbers)))


def _fitted(bars: Bars) -> Bars:
    """Draw a bar that stands for many no longer than the others, which are to be compared."""
    rows, pieces = bars.rows, bars.pieces
    if len(rows["y"]) < 2 or (len(rows["members"][-1]) < 2 and rows["name"][-1] != UNUSED_WORKERS):
        return bars
    own = rows["right"][-1] - rows["left"][-1]
    others = max(rows["right"][:-1]) - min(rows["left"][:-1])
    if own <= others:
        return bars
    name = f"{rows['name'][-1]} not to scale"
    rows["name"][-1] = name
    for columns in (rows, pieces):
        for place in np.flatnonzero(np.array(columns["y"]) == rows["y"][-1]).tolist():
            columns["left"][place] *= others / own
            columns["right"][place] *= others / own
            columns["name"][place] = name
    return bars


def _with_the_rest_as_one(bars: list[_Bar], by: str, numbers: Numbers) -> list[_Bar]:
    if len(bars) <= MOST_BARS:
        return bars
    rest = bars[MOST_BARS - 1 :]
    members = [place for bar in rest for place in bar.members]
    members_of_rest = len(rest)
    if by == "function" and len(numbers.functions) - 1 in members:
        members_of_rest += numbers.unlisted
    plural = {"activity": "activities"}.get(by, f"{by}s")
    return [
        *bars[: MOST_BARS - 1],
        _Bar(
            f"({count(members_of_rest)} more {plural})",
            np.sum([bar.values for bar in rest], axis=0),
            members,
        ),
    ]


def _stacked(bars: list[_Bar]) -> Bars:
    """Pieces one after the other, those below zero to the left of it."""
    pieces = _columns("y", "left", "right", "activity", "name", "value", "of_bar", "of_all")
    rows = _columns("y", "name", "total", "left", "right", "of_all", "members")
    whole = sum(float(np.abs(bar.values).sum()) for bar in bars)
    for y, bar in enumerate(bars):
        ends, size = [0.0, 0.0], float(np.abs(bar.values).sum())
        for activity in np.flatnonzero(bar.values).tolist():
            value = float(bar.values[activity])
            start = ends[value < 0]
            ends[value < 0] = stop = start + value
            left, right = min(start, stop), max(start, stop)
            piece = (y, left, right, activity, bar.name, value, value / size, value / whole)
            _append(pieces, piece)
        right, left = ends
        _append(rows, (y, bar.name, bar.total, left, right, bar.total / whole, bar.members))
    return Bars(pieces, rows)


def _columns(*names: str) -> Columns:
    return {name: [] for name in names}


def _append(columns: Columns, row: Sequence[Any]) -> None:
    for column, cell in zip(columns.values(), row, strict=True):
        column.append(cell)


def bars_of_cpu(numbers: Numbers, rows: Columns) -> Bars:
    """For each bar of functions, which share of its seconds was CPU time and which not."""
    pieces = _columns("y", "left", "right", "kind", "name", "value")
    shares: list[float] = []
    for y, name, members in zip(rows["y"], rows["name"], rows["members"], strict=True):
        cpu, noncpu = (max(float(column[members].sum()), 0.0) for column in numbers.cpu.values())
        share = cpu / (cpu + noncpu) if cpu + noncpu else float("nan")
        shares.append(share)
        if cpu + noncpu:
            _append(pieces, (y, 0.0, share, 0, name, cpu))
            _append(pieces, (y, share, 1.0, 1, name, noncpu))
    return Bars(pieces, {"y": rows["y"], "name": rows["name"], "share": shares})
