"""Sections of a report on time: what workers did with it, and which tasks waited for which."""

from __future__ import annotations

from collections.abc import Iterator

from toolz import curry, groupby, reduceby, valmap

from dask_diag.analysis.analysis import Analysis
from dask_diag.formatting import amount, count, counted, percent, seconds
from dask_diag.views.plots.activities.plot import plot_activities
from dask_diag.views.plots.figures import Options
from dask_diag.views.report.components import (
    Bars,
    Figure,
    Fold,
    Grid,
    Key,
    Part,
    Text,
    not_there,
    of_first,
    safe,
)
from dask_diag.views.report.figures import Figures
from dask_diag.views.theme.colors import color_of_activity, stacking_order

__all__ = ["activities_by_function", "longest_chains", "pieces", "worker_time"]

_FUNCTIONS = 20
_CHAIN = 200
_SMALLEST_SHARE = 0.001
"""Of worker time: the legend names activities of more, and those seen in the bars of functions."""
_SMALLEST_PIECE = 0.01
"""Of the longest bar."""
Piece = tuple[str, float, str]
"""Of a bar: a colour, per cent of the longest, and a tooltip."""


def worker_time(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Where worker time went, by activity and by function."""
    if not len(analysis.recording.tasks):
        yield not_there("tasks", "Profiler")
        return
    total = sum(analysis.activities.values())
    yield Text(
        [f"{seconds(total)} of worker time: wall time of the computations times their workers."]
    )
    shares = [(name, value, value / total) for name, value in analysis.activities.items() if total]
    yield Bars(
        "Share of each activity, of the whole run", [("all", seconds(total), pieces(shares))]
    )
    functions = activities_by_function(analysis)
    longest = max((sum(parts.values()) for parts in functions.values()), default=0.0)
    drawn = {
        activity
        for parts in functions.values()
        for activity, value in parts.items()
        if value >= _SMALLEST_PIECE * longest > 0
    }
    named = [share for share in shares if share[2] >= _SMALLEST_SHARE or share[0] in drawn]
    yield Key(
        "Activities",
        [
            (color_of_activity(name), f"{safe(name, 40)} {seconds(value)}, {percent(share)}")
            for name, value, share in named
        ],
        sum(value > 0 for _, value, _ in shares) - len(named),
    )
    yield Bars(
        "Time of tasks by function, of the whole run", list(_bars_by_function(functions, longest))
    )
    figure = plot_activities(analysis, Options(width=980))
    yield Fold(
        "With a choice of functions and of the unit, and by worker",
        [Figure("activities", figure, "Where worker time went")],
    )


def activities_by_function(analysis: Analysis) -> dict[str, dict[str, float]]:
    """The seconds of each activity of each function."""
    rows = analysis.cells.to_dicts()
    of_tasks = [row for row in rows if row["function"] is not None and row["unit"] == "seconds"]
    activities = curry(reduceby, "activity", lambda total, row: total + row["value"], init=0.0)
    functions: dict[str, dict[str, float]] = valmap(activities, groupby("function", of_tasks))
    return functions


def _bars_by_function(
    functions: dict[str, dict[str, float]], longest: float
) -> Iterator[tuple[str, str, list[Piece]]]:
    sums = {name: sum(parts.values()) for name, parts in functions.items()}
    order = sorted(sums, key=lambda name: -sums[name])
    for name in order[:_FUNCTIONS]:
        shares = [(kind, value, value / longest) for kind, value in functions[name].items()]
        yield safe(name, 40), seconds(sums[name]), pieces(shares)
    others = order[_FUNCTIONS:]
    if others:
        total = seconds(sum(sums[name] for name in others))
        yield f"({counted(len(others), 'more function')})", total, []


def pieces(shares: list[tuple[str, float, float]]) -> list[Piece]:
    """A bar of activities: of each its name, seconds, and share of the longest bar."""
    return [
        (color_of_activity(name), 100 * share, f"{safe(name, 40)}: {seconds(value)}")
        for name, value, share in sorted(shares, key=lambda item: stacking_order(item[0]))
    ]


def longest_chains(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The critical path."""
    if not len(analysis.recording.dependencies):
        yield Text(["No dependencies between tasks were recorded."])
        return
    path = analysis.critical_path
    yield Grid(
        "Critical path of each computation",
        (
            *("computation", "wall", "critical path", "scheduler CPU", "all tasks", "workers"),
            "max speedup",
        ),
        [
            (
                safe(row["computation"], 30),
                seconds(row["wall"]),
                seconds(row["length"]),
                seconds(row["scheduler_cpu"]),
                seconds(row["work"]),
                str(row["workers"]),
                f"{amount(row['max_speedup'])}×",
            )
            for row in path.computations.to_dicts()
        ],
    )
    yield Grid(
        "Functions on it",
        ("function", "tasks", "time", "share"),
        [
            (
                safe(row["function"], 60),
                count(row["tasks"]),
                seconds(row["seconds"]),
                percent(row["share"]),
            )
            for row in path.functions.to_dicts()
        ],
    )
    yield Fold(
        f"Task by task ({counted(len(path.tasks), 'task')})",
        [
            Grid(
                "In order" + of_first(len(path.tasks), _CHAIN),
                ("key", "function", "time"),
                [
                    (safe(row["key"]), safe(row["function"], 60), seconds(row["seconds"]))
                    for row in path.tasks.rows(slice(_CHAIN)).to_dicts()
                ],
                texts=2,
            )
        ],
    )
