"""Views of the flame graph in a real browser: time order, sandwich, folded, by key, by keyboard."""

from __future__ import annotations

from dataclasses import replace

import pytest

from dask_diag import report

from .opened_pages import settled
from .stacks import recording_of_stacks
from .test_flame_browser import STATE, Flame, flame_of
from .test_flame_orders import SHARED, SLOW, called_from_two, libraries
from .test_views import recording_of

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]


def focus(flame):
    """Give the graph the keyboard."""
    flame.page.evaluate(
        """() => {
            const walk = (view) => {
                if (view.model.type == "Figure" && view.model.y_range.start > view.model.y_range.end)
                    view.canvas_view.events_el.focus()
                for (const child of view.child_views ?? []) walk(child)
            }
            for (const view of Object.values(Bokeh.index)) walk(view)
        }"""
    )


def detail(flame):
    settled(flame.page)
    return flame.page.locator("[role=status]").evaluate(
        """(host) => [...host.shadowRoot.children].filter((child) => child.tagName != "STYLE")
            .map((child) => child.innerText).join(" ")"""
    )


def calls(flame):
    """Row, name and seconds of all that is drawn."""
    return [(c["top"], c["name"], c["total"].split(",")[0]) for c in flame.state["calls"]]


def option(flame, name):
    labels = flame.page.get_by_role("combobox").last.locator("option").all_inner_texts()
    return next(label for label in labels if f" {name} " in f" {' '.join(label.split())} ")


def test_time_order_shows_what_of_it_was_recorded(opened):
    flame = flame_of(opened, called_from_two())
    flame.press("Time order")
    assert [call for call in calls(flame) if call[0] >= 4] == [
        (4, "slow", "1.00 s"),
        (5, "shared", "500 ms"),
        (4, "quick", "500 ms"),
        (5, "shared", "500 ms"),
    ]
    assert "the order within 1.00 s is not recorded" in flame.status
    flame.click("quick")
    assert flame.state["x"] == [1.0, 1.5]
    flame.press("CPU")
    assert flame.totals["all"] == "1.25 s, 100%"
    flame.choose_range(0.0, 0.5)
    assert "quick" not in flame.totals


def test_a_sandwich_has_callers_above_and_a_click_goes_on_to_one(opened):
    flame = flame_of(opened, called_from_two())
    flame.press("Sandwich")
    flame.page.get_by_role("combobox").last.select_option(label=option(flame, "shared"))
    above = {(row, name, total) for row, name, total in calls(flame) if row >= -1}
    assert above == {(0, "shared", "1.00 s"), (-1, "slow", "500 ms"), (-1, "quick", "500 ms")}
    assert flame.state["y"][1] <= -5
    flame.click("quick")
    assert (1, "shared", "500 ms") in calls(flame)
    assert (0, "quick", "500 ms") in calls(flame)
    focus(flame)
    flame.page.keyboard.press("Escape")
    assert (0, "shared", "1.00 s") in calls(flame)


def test_libraries_fold_and_unfold(opened):
    flame = flame_of(opened, libraries())
    before = flame.totals
    flame.press("Fold libraries")
    assert flame.totals["pandas (2 frames)"] == "5.75 s, 98% (100% of caller)"
    assert flame.totals["slow"].startswith("4.25 s")
    assert "merge" not in flame.totals
    assert flame.status.startswith("5.88 s in")
    for order in ("Time order", "Sandwich"):
        flame.press(order)
        assert flame.state["calls"]
    flame.press("By function")
    flame.press("Fold libraries")
    assert flame.totals == before


def test_a_task_is_chosen_by_its_key(opened):
    rows = [((0.0, 1.0), "f", [call], seconds, 0.0) for call, seconds in ((SLOW, 1), (SHARED, 2))]
    flame = flame_of(opened, recording_of_stacks(rows, keys=["('f', 0)", "('f', 1)"]))
    key = flame.page.get_by_placeholder("key of a task")
    key.fill("('f', 1)")
    assert flame.totals["all"] == "2.00 s, 100%"
    assert "slow" not in flame.totals
    assert "of 1 task by key" in flame.status
    key.fill("'f'")
    assert "of 2 tasks by key" in flame.status
    key.fill("none")
    assert "nothing to draw" in flame.status
    key.fill("")
    assert flame.totals["all"] == "3.00 s, 100%"
    key.fill("('f', 0)")
    key.press("Escape")
    flame.press("Reset")
    assert flame.totals["all"] == "3.00 s, 100%"


def test_the_keyboard_walks_zooms_and_goes_back(opened):
    flame = flame_of(opened, called_from_two())
    focus(flame)
    for _ in range(4):
        flame.page.keyboard.press("ArrowDown")
    assert detail(flame).startswith("slow · ~/code/work.py:10 · most time at line 12 · 1.00 s, 67%")
    flame.page.keyboard.press("ArrowRight")
    assert detail(flame).startswith("quick")
    flame.page.keyboard.press("Enter")
    assert flame.state["x"] == [1.0, 1.5]
    flame.page.keyboard.press("Escape")
    assert flame.state["x"] == [0, 1.5]
    flame.page.keyboard.press("Escape")
    assert flame.state["x"] == [0, 1.5]


def test_in_a_report_the_graph_counts_what_the_other_plots_show(open_file, tmp_path):
    stacks = called_from_two()
    tasks = recording_of([("f", 0.0, 3.0, 1.5, "thread-0")])
    tables = {name: getattr(stacks, name) for name in ("frames", "call_tree", "samples")}
    report(replace(tasks, start=0.0, stop=3.0, **tables), tmp_path / "report.html")
    page = open_file(tmp_path / "report.html", 1280, 900)
    flame = Flame(page)
    page.evaluate(
        """() => [...Bokeh.documents[0]._all_models.values()].find((m) => m.name == "tasks")
        .x_range.setv({start: 2, end: 3})"""
    )
    page.wait_for_function(f"({STATE})().status.includes('from 2')")
    page.wait_for_function(f"({STATE})().calls.every((call) => call.name != 'slow')")
    assert flame.totals["all"] == "500 ms, 100%"
    assert "from 2.000 s to 3.000 s" in flame.status
    widths = page.evaluate(
        """() => {
            const {graph} = [...Bokeh.documents[0]._all_models.values()]
                .find((model) => model.flame_state != null).flame_state.models
            return [graph.inner_width, document.querySelector("#flame").clientWidth]
        }"""
    )
    assert widths[0] > 0.95 * widths[1]
