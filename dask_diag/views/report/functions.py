"""The section of a report on functions: their time, and its activities.

The page has the same numbers in bins of time, and shows those of the part that the plots show.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from math import floor, isnan, log10
from operator import itemgetter

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.over_time import NO_TASK, activities_over_time
from dask_diag.columns import FloatArray
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.views.colors import OTHER, look_of, stacking_order
from dask_diag.views.escaping import shown
from dask_diag.views.lines import bounded, memory_growth
from dask_diag.views.plots.figures import pack
from dask_diag.views.plots.layers import BINS
from dask_diag.views.report.components import (
    FunctionRow,
    FunctionTable,
    NamedActivity,
    Part,
    Piece,
    not_there,
)
from dask_diag.views.report.figures import Figures

_FUNCTIONS = 20
_DIGITS = 7
"""Digits of the recording's duration to which packed times are exact."""
_SMALLEST_SHARE = 0.001
"""Share of worker time from which an activity is in the key, if not seen in the bars."""
_SMALLEST_PIECE = 0.01
"""Share of the longest bar from which a piece is seen."""
_COLUMNS = ("time", "share", "CPU", "tasks", "longest")
_MEMORY = "memory of a task"
"""Column of the largest growth, in a recording with samples of memory."""

Kind = tuple[str, bool]
"""An activity, and whether of workers without a task."""


def functions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Each function with its time and activities; the workers' time above."""
    if not len(analysis.recording.tasks):
        yield not_there("tasks", "Profiler", analysis.recording)
        return
    records = analysis.functions.to_dicts()
    functions = [record["function"] for record in records[:_FUNCTIONS]]
    others = [record["function"] for record in records[_FUNCTIONS:]]
    left_out = len(others)
    names = [shown(name, 60) for name in functions]
    colors = [figures.colors[name] for name in functions]
    if left_out:
        names.append(f"({counted(left_out, 'more function')})")
        colors.append(OTHER)
    rows = range(len(names))
    bins = activities_over_time(analysis.recording, analysis.occupancies, functions, BINS)
    # Tasks without a known start are in no bin.
    tasks = [record["tasks"] for record in records]
    tasks = [*tasks[:_FUNCTIONS], sum(tasks[_FUNCTIONS:])]
    sums: dict[int, dict[Kind, float]] = {row: {} for row in (*rows, NO_TASK)}
    total_of: dict[Kind, float] = {}
    for (row, activity), values in bins.seconds.items():
        sums[row][activity, row == NO_TASK] = float(values.sum())
    for kinds_of_row in sums.values():
        for kind, value in kinds_of_row.items():
            total_of[kind] = total_of.get(kind, 0.0) + value
    # In the order of stacks; activities that look like a gap are last.
    kinds = sorted(total_of, key=lambda kind: (kind[1], *stacking_order(kind[0])))
    times = [sum(sums[row].values()) for row in rows]
    longest, total = max(times, default=0.0), sum(total_of[kind] for kind in kinds)

    growth = {row["function"]: row for row in memory_growth(analysis)}

    def memory(names: Sequence[str]) -> list[str]:
        of_names = [growth[name] for name in names if name in growth]
        largest = max(of_names, key=itemgetter("peak_growth"), default=None)
        text = "" if largest is None else bounded(largest["bound"], largest["peak_growth"])
        return [text] * bool(growth)

    def cells(rows: Sequence[int]) -> list[str]:
        time = sum(times[row] for row in rows)
        cpu = [value for row in rows if not isnan(value := float(bins.cpu[row].sum()))]
        return [
            seconds(time),
            percent(time / total) if total else "",
            seconds(sum(cpu)) if cpu else "unknown",
            count(sum(tasks[row] for row in rows)),
            seconds(max((float(bins.longest[row].max()) for row in rows), default=0.0)),
        ]

    def bar(values: Mapping[Kind, float], length: float) -> list[Piece]:
        return [
            Piece(
                look_of(kind[0], is_free=kind[1]),
                100 * values[kind] / length,
                f"{look_of(kind[0], is_free=kind[1]).name}: {seconds(values[kind])}",
            )
            for kind in kinds
            if values.get(kind) and length
        ]

    def is_named(kind: Kind) -> bool:
        pieces = (sums[row].get(kind, 0.0) for row in rows)
        is_large = total_of[kind] >= _SMALLEST_SHARE * total > 0
        return is_large or any(piece >= _SMALLEST_PIECE * longest > 0 for piece in pieces)

    key = [
        NamedActivity(
            number,
            look_of(kind[0], is_free=kind[1]),
            f"{seconds(total_of[kind])}, {percent(total_of[kind] / total)}",
        )
        for number, kind in enumerate(kinds)
        if is_named(kind)
    ]
    duration = float(bins.edges[-1] - bins.edges[0])
    tick = 10.0 ** (floor(log10(duration)) - _DIGITS)
    measured = list(rows)
    yield FunctionTable(
        total=seconds(total),
        bar=bar(total_of, total),
        key=key,
        more=sum(value > 0 for value in total_of.values()) - len(key),
        columns=(*_COLUMNS, *[_MEMORY] * bool(growth)),
        rows=[
            FunctionRow(
                row,
                names[row],
                colors[row],
                cells([row]) + memory(functions[row : row + 1] or others),
                bar(sums[row], longest),
            )
            for row in sorted(rows, key=lambda row: -times[row])
        ],
        sums=cells(rows) + memory([*growth]),
        over_time={
            "length": duration / BINS,
            "bins": BINS,
            "tick": tick,
            "activities": [
                {"name": look.name, "color": look.color, "style": look.style}
                for look in (look_of(name, is_free=free) for name, free in kinds)
            ],
            "pieces": [
                (row, kinds.index((activity, row == NO_TASK))) for row, activity in bins.seconds
            ],
            "rows": len(rows),
            "packed": pack(
                {
                    "seconds": _steps(np.array([*bins.seconds.values()]).reshape(-1, BINS), tick),
                    "cpu": _steps(np.nan_to_num(bins.cpu[measured]), tick),
                    "unmeasured": np.flatnonzero(np.isnan(bins.cpu[measured, 0])),
                    "tasks": bins.tasks[measured].reshape(-1),
                    "longest": np.rint(bins.longest[measured] / tick).reshape(-1),
                }
            ),
        },
    )


def _steps(sums: FloatArray, tick: float) -> FloatArray:
    """Ticks in each bin, rounded so that the sum up to any bin is exact to a tick."""
    until = np.rint(np.cumsum(sums, axis=1) / tick)
    return np.diff(until, axis=1, prepend=0.0).reshape(-1)
