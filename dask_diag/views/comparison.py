"""The page of a comparison of two recordings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import islice
from math import isnan
from typing import NamedTuple

from toolz import curry, groupby, reduceby, valmap

from dask_diag.analysis.compare import Comparison, compare_recordings
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.functions import functions_by_time
from dask_diag.formatting import seconds
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording
from dask_diag.views.colors import FunctionColors, Look, look_of, stacking_order
from dask_diag.views.compare import (
    HEADINGS,
    LINE_HEADINGS,
    comparison_notes,
    comparison_rows,
    note_on_others,
    others_of,
    rows_of_lines,
)
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.page import Head, Page, Section
from dask_diag.views.plots.figures import Options, time_range
from dask_diag.views.plots.flame import differential_panel
from dask_diag.views.plots.time_axis import TimeAxis
from dask_diag.views.report.components import (
    Bars,
    Figure,
    Grid,
    Key,
    Part,
    Piece,
    Text,
    not_there,
)
from dask_diag.views.report.figures import Figures
from dask_diag.views.report.header import wall_bar
from dask_diag.views.text import unbroken

_BARS = 12
_LINES_SHOWN = 20
_SMALLEST, _SEEN = 0.01, 0.001
"""Shares of the longest bar of the shortest bar and the shortest piece that are drawn."""
_WHEN = ("before", "after")
_MOVING = (Activity.DESERIALIZE, Activity.SERIALIZE)
_ROUNDING = 1e-6


class Sides(NamedTuple):
    """Two recordings and their comparison."""

    comparison: Comparison
    analyses: tuple[Analysis, Analysis]
    names: tuple[str, str]


def wall(sides: Sides) -> Iterator[Part]:
    """The wall time of both recordings, on one scale, and the change of each part."""
    bars = [wall_bar(analysis) for analysis in sides.analyses]
    walls = [duration(analysis) for analysis in sides.analyses]
    longest = max(walls) or 1.0
    for bar, wall, name in zip(bars, walls, sides.names, strict=True):
        if bar is not None:
            yield replace(bar, caption=f"{name}: {seconds(wall)}", scale=wall / longest)
    rows = [(look_of(name).name, *_before_after(*both)) for name, *both in changes_of_parts(sides)]
    if rows:
        yield Grid("Parts of the wall time", ("part", "before", "after", "change"), rows)


def changes_of_parts(sides: Sides) -> list[tuple[str, float, float]]:
    """Parts of the wall time with seconds before and after, the largest change first."""
    before, after = (
        dict(table.tuples("part", "seconds"))
        for table in (analysis.wall_time for analysis in sides.analyses)
    )
    both = [(name, before.get(name, 0.0), after.get(name, 0.0)) for name in {**before, **after}]
    changed = [row for row in both if row[1] or row[2]]
    return sorted(changed, key=lambda row: -abs(row[2] - row[1]))


def duration(analysis: Analysis) -> float:
    """Seconds of a recording."""
    return analysis.recording.stop - analysis.recording.start


def _before_after(before: float, after: float) -> tuple[str, str, str]:
    sign = "+" if after > before else "-" if after < before else ""
    return seconds(before), seconds(after), f"{sign}{seconds(abs(after - before))}"


def functions(sides: Sides) -> Iterator[Part]:
    """A pair of bars for each function that changed most, and all numbers."""
    rows = list(comparison_rows(sides.comparison))
    if not rows:
        yield not_there("tasks", "Profiler", sides.analyses[0].recording)
        return
    both = [_parts_by_function(sides, side) for side in range(2)]
    longest = max(sum(parts.values()) for of in both for parts in of.values()) or 1.0
    changed_most = [row["function"] for row in sides.comparison.functions.to_dicts()]
    names = [
        name
        for name in changed_most
        if max(sum(of.get(name, {}).values()) for of in both) >= _SMALLEST * longest
    ][:_BARS]
    bars = list(_pairs(names, both, longest))
    yield Bars("Task time by function", bars)
    drawn = {piece.look for _, _, _, pieces in bars for piece in pieces}
    present = {kind for of in both for name in names for kind in of.get(name, {})}
    looks = map(look_of, sorted(present, key=stacking_order))
    yield Key("Activities", [look for look in looks if look in drawn])
    # On a phone a line of a cell may end after an arrow.
    cells = [
        (name, *(unbroken(text).replace("→", "→\u200b") for text in numbers))
        for name, *numbers in rows
    ]
    if lines := rows_of_lines(sides.comparison)[:_LINES_SHOWN]:
        yield Grid("Lines that built the tasks", LINE_HEADINGS, lines)
    yield Grid("All functions", (*HEADINGS[:-1], "verdict"), cells, marks=[row[-1] for row in rows])
    yield Text([shown(note, 400) for note in comparison_notes(sides.comparison)], listed=True)


def _parts_by_function(sides: Sides, side: int) -> dict[str, dict[str, float]]:
    """Seconds of the table by function and activity; by CPU time if nothing else is known.

    The bars are as long as the table says: what moved data of the tasks is no time of theirs.
    """
    known = _activities_by_function(sides.analyses[side])
    when = _WHEN[side]
    parts: dict[str, dict[str, float]] = {}
    for row in sides.comparison.functions.to_dicts():
        name, took, share = row["function"], row[f"seconds_{when}"], row[f"cpu_{when}"]
        of_tasks = {
            kind: value for kind, value in known.get(name, {}).items() if kind not in _MOVING
        }
        if took and not of_tasks:
            cpu = 0.0 if isnan(share) else share * took
            of_tasks = {Activity.CPU: cpu, Activity.NONCPU: took - cpu}
        missing = took - sum(of_tasks.values())
        if missing > _ROUNDING * took:
            of_tasks[Activity.OTHER] = of_tasks.get(Activity.OTHER, 0.0) + missing
        parts[name] = of_tasks
    return parts


def _activities_by_function(analysis: Analysis) -> dict[str, dict[str, float]]:
    """Seconds by function and activity."""
    rows = analysis.cells.to_dicts()
    of_tasks = [row for row in rows if row["function"] is not None and row["unit"] == "seconds"]
    activities = curry(reduceby, "activity", lambda total, row: total + row["value"], init=0.0)
    functions: dict[str, dict[str, float]] = valmap(activities, groupby("function", of_tasks))
    return functions


Bar = tuple[str, str, str, list[Piece]]


def _pairs(
    names: list[str], both: list[dict[str, dict[str, float]]], longest: float
) -> Iterator[Bar]:
    for name in names:
        for of, label, when in zip(both, (shown(name, 40), ""), _WHEN, strict=True):
            parts = of.get(name, {})
            yield label, when, seconds(sum(parts.values())), _pieces(parts, longest)


def _pieces(parts: dict[str, float], longest: float) -> list[Piece]:
    looks = ((look_of(name), parts[name]) for name in sorted(parts, key=stacking_order))
    return [
        Piece(look, 100 * value / longest, f"{look.name}: {seconds(value)}")
        for look, value in looks
        if value >= _SEEN * longest
    ]


def timelines(sides: Sides) -> Iterator[Part]:
    """States of the workers of both recordings, over one time axis."""
    recordings = [analysis.recording for analysis in sides.analyses]
    if not any(len(recording.tasks) for recording in recordings):
        yield not_there("tasks", "Profiler", recordings[0])
        return
    axis = TimeAxis(time_range(max(map(duration, sides.analyses)) or 1.0))
    colors = FunctionColors(functions_by_time(recordings))
    figures = [Figures(analysis, axis, colors) for analysis in sides.analyses]
    top = max(part.workers().model.y_range.end for part in figures)
    looks: dict[Look, None] = {}
    for part, name, when in zip(figures, sides.names, _WHEN, strict=True):
        plot = part.workers()
        plot.model.y_range.end = top
        yield Text([f"{name}:"])
        yield Figure(f"workers-{when}", plot.model, f"Plot of what the workers did {when}")
        looks |= dict.fromkeys(layer.look for layer in part.layers)
    yield Key("Workers", list(looks))


def flame(sides: Sides) -> Iterator[Part]:
    """Stacks of both recordings in one flame graph, colored by the change."""
    recordings = [analysis.recording for analysis in sides.analyses]
    if not all(len(recording.samples) for recording in recordings):
        yield not_there("stack samples of both", "SamplingProfiler", recordings[0])
        return
    yield Text(
        [
            "Each call is as wide as its time before and after together; red took longer after, "
            "blue took longer before, gray did not change. The time for which the scheduler's "
            "thread waited for tasks is left out."
        ]
    )
    panel = differential_panel(recordings[0], recordings[1], Options(sizing_mode="stretch_width"))
    yield Figure("flame", panel, "Calls, colored by what changed")


_NAME = 40
_NOTEWORTHY = 0.05
"""Share of the wall time of the smallest change that the heading names."""


_SECTIONS = (
    Section("wall", "Wall time", wall, is_on_top=True),
    Section("functions", "Functions", functions),
    Section("timeline", "Timeline", timelines),
    Section("flame", "Flame graph", flame),
)


def comparison_page(before: Recording, after: Recording, names: tuple[str, str]) -> str:
    """Write a page on the changes between two recordings; it needs no network.

    Parameters
    ----------
    before, after : Recording
    names : tuple of str
        Names of the recordings in the page.
    """
    labels = shown(names[0], _NAME), shown(names[1], _NAME)
    sides = Sides(compare_recordings(before, after), (Analysis(before), Analysis(after)), labels)
    sections = [section.made(sides) for section in _SECTIONS]
    title = f"{labels[0]} → {labels[1]}"
    head = _head(sides, title)
    warnings = [
        f"{label}: {text}"
        for label, recording in zip(labels, (before, after), strict=True)
        if (text := incomplete(recording))
    ]
    if others := note_on_others(*others_of(sides.comparison)):
        warnings.append(f"{others}.")
    return Page(title, head, warnings, sections).html()


def _head(sides: Sides, title: str) -> Head:
    """Head with the wall time before and after, and the changes."""
    before, after = map(duration, sides.analyses)
    first, *others = _changes(sides, before, after)
    return Head(f"{seconds(before)} → {seconds(after)}; {first}.", " · ".join([*others, title]))


def _changes(sides: Sides, before: float, after: float) -> Iterator[str]:
    """The part of the wall time that changed most, the time of tasks, and a function."""
    changes = changes_of_parts(sides)
    if changes and abs(after - before) >= _NOTEWORTHY * before:
        part, was, now = changes[0]
        more = "more" if now > was else "less"
        yield f"largest change: {seconds(abs(now - was))} {more} ({look_of(part).name})"
    total = sides.comparison.total
    if total["verdict"] == "too few tasks":
        yield "too few tasks to judge their time"
    elif total["verdict"] == "unchanged":
        yield "no change of the tasks' time beyond chance"
    else:
        longer = "longer" if total["change"] > 0 else "less"
        yield f"tasks took {seconds(abs(total['change']))} {longer}"
    judged = (row for row in sides.comparison.functions.to_dicts() if row["verdict"] in _JUDGED)
    for row in islice(judged, 1):
        verdict = _JUDGED[row["verdict"]]
        yield f"{shown(row['function'], _NAME)} {verdict} by {seconds(abs(row['change']))}"


_JUDGED = {"slower": "is slower", "faster": "is faster"}
