"""The critical path among the tasks of a report: outlined where the switch is on."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_diag import load, report
from dask_diag.analysis.critical_path import critical_path

from .opened_pages import settled

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"
OUTLINED = """() => {
    const {data} = Bokeh.documents[0].get_model_by_name("tasks on the critical path")
    return [[...data.left], [...data.right], [...data.top]]
}"""
LINES = """() => {
    const {data} = Bokeh.documents[0].get_model_by_name("critical path")
    return [[...data.x0], [...data.x1]]
}"""
SWITCH = "#show-critical-path"


def opened(open_file, tmp_path, story, **settings):
    recording = load(STORIES / f"{story}.diag")
    page = open_file(report(recording, tmp_path / "page.html"), **settings)
    settled(page, 300)
    return recording, page


def test_tasks_on_the_path_are_outlined_in_their_lanes(open_file, tmp_path):
    recording, page = opened(open_file, tmp_path, "qr")
    rows = critical_path(recording).tasks["task"]
    start, stop = (recording.tasks[name][rows] - recording.start for name in ("start", "stop"))
    left, right, top = page.evaluate(OUTLINED)
    assert left == pytest.approx(start.tolist())
    assert right == pytest.approx(stop.tolist())
    lanes = [int(name.split("-")[1]) for name in recording.tasks.worker[rows].tolist()]
    assert top == [320 * lane for lane in lanes]
    # A line from the stop of each to the start of the next.
    assert page.evaluate(LINES) == [right[:-1], left[1:]]
    assert page.locator(SWITCH).get_attribute("aria-pressed") == "true"
    page.locator(SWITCH).focus()
    page.keyboard.press("Enter")
    assert page.evaluate(OUTLINED) == [[], [], []]
    assert page.evaluate(LINES) == [[], []]
    assert page.locator(SWITCH).get_attribute("aria-pressed") == "false"


def test_among_many_tasks_it_is_outlined_when_asked_for(open_file, tmp_path):
    recording, page = opened(open_file, tmp_path, "climatology")
    assert page.evaluate(OUTLINED) == [[], [], []]
    page.click(SWITCH)
    settled(page, 200)
    rows = critical_path(recording).tasks["task"]
    left, right, _ = page.evaluate(OUTLINED)
    # Times of many tasks are in ticks.
    start, stop = (recording.tasks[name][rows] - recording.start for name in ("start", "stop"))
    assert left == pytest.approx(start.tolist(), abs=1e-6)
    assert right == pytest.approx(stop.tolist(), abs=1e-6)
