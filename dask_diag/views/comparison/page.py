"""The page of a comparison: wall time first, then functions, timelines and stacks, side by side."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from bokeh.resources import Resources

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.compare import compare
from dask_diag.formatting import seconds
from dask_diag.model.recording import Recording
from dask_diag.views.comparison.sections import (
    Sides,
    changes_of_parts,
    duration,
    flame,
    functions,
    timelines,
    wall,
)
from dask_diag.views.escaping import shown
from dask_diag.views.findings import incomplete
from dask_diag.views.part_names import name_of_part
from dask_diag.views.report.components import Part
from dask_diag.views.report.header import Head
from dask_diag.views.report.page import made_section, rendered

__all__ = ["comparison_page"]

_NAME = 40
_NOTEWORTHY = 0.05
"""Of the wall: a smaller change is not worth a place in the heading."""


class _Section(NamedTuple):
    name: str
    title: str
    parts: Callable[[Sides], Iterator[Part]]
    is_on_top: bool = False
    is_folded: bool = False
    entry: str = ""


_SECTIONS = (
    _Section("wall", "Wall time", wall, is_on_top=True),
    _Section("functions", "Functions", functions),
    _Section("timeline", "Timeline", timelines),
    _Section("flame", "Flame graph", flame),
)


def comparison_page(before: Recording, after: Recording, names: tuple[str, str]) -> str:
    """A page on what changed between two recordings of these names; it needs no network.

    Parameters
    ----------
    before, after : Recording
    names : tuple of str
        What the page calls them.
    """
    labels = shown(names[0], _NAME), shown(names[1], _NAME)
    sides = Sides(compare(before, after), (Analysis(before), Analysis(after)), labels)
    sections = [made_section(section, sides) for section in _SECTIONS]
    title = f"{labels[0]} → {labels[1]}"
    head = _head(sides, title)
    warnings = [
        f"{label}: {text}"
        for label, recording in zip(labels, (before, after), strict=True)
        if (text := incomplete(recording))
    ]
    return rendered(sections, Resources(mode="inline"), title, head, warnings)


def _head(sides: Sides, title: str) -> Head:
    """The wall before and after with the largest change, and below it the others."""
    before, after = map(duration, sides.analyses)
    first, *others = _changes(sides, before, after)
    return Head(f"{seconds(before)} → {seconds(after)}; {first}.", " · ".join([*others, title]))


def _changes(sides: Sides, before: float, after: float) -> Iterator[str]:
    """The part of the wall that changed most, then the time of tasks, and of which function."""
    changes = changes_of_parts(sides)
    if changes and abs(after - before) >= _NOTEWORTHY * before:
        part, was, now = changes[0]
        more = "more" if now > was else "less"
        yield f"largest change: {seconds(abs(now - was))} {more} ({name_of_part(part)})"
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
