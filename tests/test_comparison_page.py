"""The page of a comparison: wall first, pairs of bars, both timelines on one axis, stacks of both."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from bokeh.models import Plot

from dask_diag import load
from dask_diag.analysis.call_tree import merged_tree, tree
from dask_diag.analysis.compare import compare
from dask_diag.analysis.facts import Analysis
from dask_diag.formatting import seconds
from dask_diag.views.comparison import Sides, comparison_page, flame, functions, timelines, wall
from dask_diag.views.report.components import Bars, Figure, Grid, Key, WallBar

from .stacks import known_stacks
from .test_compare import recording

pytestmark = pytest.mark.once

STORIES = Path(__file__).parent.parent / "docs" / "stories"


def sides_of(before, after):
    return Sides(compare(before, after), (Analysis(before), Analysis(after)), ("a", "b"))


SIDES = [recording(f=[1.0] * 8, g=[2.0] * 6), recording(f=[2.0] * 8, g=[2.0] * 6)]


def test_both_walls_are_bars_on_one_scale_and_each_part_says_its_change():
    before, after = SIDES
    after = replace(after, stop=after.start + 3 * (before.stop - before.start))
    first, second, table = wall(sides_of(before, after))
    assert isinstance(first, WallBar)
    assert second.scale == 1.0
    assert first.scale == pytest.approx(1 / 3)
    assert isinstance(table, Grid)
    assert any(row[3].startswith("+") for row in table.rows)


def test_each_function_has_a_bar_before_and_one_after():
    bars = next(iter(functions(sides_of(*SIDES))))
    assert isinstance(bars, Bars)
    assert [name for name, _, _ in bars.rows] == ["f", "", "g", ""]
    lengths = [sum(piece.percent for piece in pieces) for _, _, pieces in bars.rows]
    assert lengths == pytest.approx([50, 100, 75, 75])


def test_both_timelines_have_one_axis_and_one_assignment_of_colours():
    plots = [part.model for part in timelines(sides_of(*SIDES)) if isinstance(part, Figure)]
    assert len(plots) == 2
    assert plots[0].x_range is plots[1].x_range
    assert plots[0].y_range.end == plots[1].y_range.end
    assert plots[0].x_range.bounds[1] == max(side.stop - side.start for side in SIDES)


def test_the_key_is_hatched_as_the_plots_are_and_calls_are_as_wide_as_the_page():
    sides = sides_of(*(load(STORIES / f"climatology{name}.diag") for name in ("", "_after")))
    (key,) = (part for part in timelines(sides) if isinstance(part, Key))
    assert key.swatch("no task: scheduler at work") == "hatch-up"
    assert key.swatch("tasks off the CPU") == ""
    (calls,) = (part.model for part in flame(sides) if isinstance(part, Figure))
    assert {graph.sizing_mode for graph in calls.select({"type": Plot}) if graph.visible} == {
        "stretch_width"
    }


def test_calls_of_both_are_one_tree_that_has_the_seconds_of_each():
    before, after = known_stacks(), known_stacks()
    longer = {name: after.samples[name] for name in after.samples.columns}
    longer["seconds"] = 3 * after.samples.seconds
    after = replace(after, samples=type(after.samples)(longer))
    nodes = merged_tree(before, after)
    one = tree(before)
    assert len(nodes) == len(one)
    np.testing.assert_allclose(nodes["total_before"][0], one["total_wall"][0])
    np.testing.assert_allclose(nodes["total_after"], 3 * nodes["total_before"])
    ends, parents = nodes["end"], nodes["parent"]
    assert all(parents[node] < node < ends[parents[node]] for node in range(1, len(nodes)))
    (_, figure) = flame(sides_of(before, after))
    assert isinstance(figure, Figure)


def test_calls_that_only_one_has_are_in_the_tree():
    before = known_stacks()
    empty = replace(before, samples=before.samples.rows(slice(0)))
    nodes = merged_tree(before, empty)
    assert not nodes["total_after"].any()
    assert len(nodes) == len(tree(before))


def test_the_first_sentence_says_what_changed():
    page = comparison_page(*SIDES, ("a.diag", "b.diag"))
    heading = page.split("<h1>")[1].split("</h1>")[0]
    assert "tasks took 8.00 s longer" in heading
    below = page.split("</h1>")[1].split("</p>")[0]
    assert "f is slower by 8.00 s" in below
    assert "could not be made" not in page


def test_the_first_sentence_has_the_wall_of_the_bars_below_and_its_largest_change():
    before, after = (
        replace(side, stop=side.start + wall) for side, wall in zip(SIDES, (50, 150), strict=True)
    )
    page = comparison_page(before, after, ("a.diag", "b.diag"))
    heading = page.split("<h1>")[1].split("</h1>")[0]
    walls = [seconds(side.stop - side.start) for side in (before, after)]
    assert heading.startswith(f"{walls[0]} → {walls[1]}; largest change: ")
    assert "s more (after the last computation)" in heading
