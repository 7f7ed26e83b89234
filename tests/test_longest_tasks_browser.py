"""A part of the time that is chosen: the table of the longest tasks has those that ran then."""

import numpy as np
import pytest

from benchmarks.made_up import many_tasks
from dask_diag import load, report
from dask_diag.formatting import count, percent
from dask_diag.views.escaping import short_key

from .opened_pages import settled
from .test_range_browser import CHOOSE, STORIES, value_of

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

ROWS = """() => [...document.querySelectorAll("#longest-tasks tbody tr")].map((row) =>
    [...row.cells].map((cell) => cell.textContent.replaceAll("\\u00a0", " ")))"""
SHOWN = "(({start, end}) => [start, end])(Bokeh.documents[0].get_model_by_name('workers').x_range)"
CAPTION = "() => document.querySelector('#longest-tasks caption').textContent"
BUTTON = "#longest-tasks tbody tr:nth-child({}) button"


def opened(open_file, recording, tmp_path, **settings):
    page = open_file(report(recording, tmp_path / "page.html"), **settings)
    page.locator("#longest-tasks").scroll_into_view_if_needed()
    return page


def chosen(page, start, stop):
    """Show a part of the time, and wait until the table is of that."""
    page.evaluate(CHOOSE, [start, stop])
    page.wait_for_function("document.querySelector('#longest-tasks [data-part]').hidden === false")
    settled(page, 300)


def ran(recording, start, stop):
    """The tasks that ran between two times, the longest first: rows, and seconds."""
    tasks = recording.tasks
    began, ended = tasks.start - recording.start, tasks.stop - recording.start
    rows = np.flatnonzero((began <= stop) & (ended >= start))
    took = (ended - began)[rows]
    order = np.argsort(-took, kind="stable")
    return rows[order], took[order]


def has_rows_of(page, recording, start, stop):
    """Whether the table has the longest tasks between two times, with what was measured of them."""
    rows, took = ran(recording, start, stop)
    cells = page.evaluate(ROWS)
    assert len(cells) == min(50, len(rows))
    assert f"{count(len(cells))} of {count(len(rows))} tasks that ran" in page.evaluate(CAPTION)
    # Those alike to a tick of the page may be in any order.
    lengths = [value_of(row[5]) for row in cells]
    assert lengths == pytest.approx(took[: len(cells)].tolist(), rel=0.006, abs=2e-6)
    tasks = recording.tasks
    by_key = {short_key(tasks.key[row]): row for row in rows.tolist()}
    for key, function, worker, outcome, began, length, cpu in cells:
        row = by_key[key]
        assert (function, worker) == (tasks.function[row], tasks.worker[row])
        assert outcome == tasks.outcome[row]
        assert value_of(began) == pytest.approx(
            tasks.start[row] - recording.start, rel=0.006, abs=1e-6
        )
        measured = tasks.stop[row] - tasks.start[row]
        assert value_of(length) == pytest.approx(measured, rel=0.006, abs=2e-6)
        if length != cpu:
            share = float(percent(tasks.thread_cpu[row] / measured).lstrip("<").rstrip("%"))
            assert float(cpu.lstrip("<").rstrip("%")) == pytest.approx(share, abs=2)


@pytest.mark.parametrize(("story", "start", "stop"), [("climatology", 1.2, 1.6), ("qr", 0.9, 1.0)])
def test_it_has_the_longest_tasks_of_a_range(open_file, tmp_path, story, start, stop):
    recording = load(STORIES / f"{story}.diag")
    page = opened(open_file, recording, tmp_path)
    all_rows, caption = page.evaluate(ROWS), page.evaluate(CAPTION)
    assert caption.endswith(f"of {count(len(recording.tasks))} tasks of the whole run")
    chosen(page, start, stop)
    has_rows_of(page, recording, start, stop)
    page.click("#longest-tasks [data-whole]")
    page.wait_for_function("document.querySelector('#longest-tasks [data-part]').hidden")
    assert page.evaluate(ROWS) == all_rows
    assert page.evaluate(CAPTION) == caption


def test_it_has_those_of_a_range_of_many(open_file, tmp_path):
    recording = many_tasks(200_000)
    page = opened(open_file, recording, tmp_path)
    chosen(page, 5.0, 5.5)
    has_rows_of(page, recording, 5.0, 5.5)


def test_a_task_that_is_looked_up_leaves_the_others_in_the_table(open_file, tmp_path):
    recording = load(STORIES / "climatology.diag")
    page = opened(open_file, recording, tmp_path)
    chosen(page, 1.2, 1.6)
    rows = page.evaluate(ROWS)
    page.focus(BUTTON.format(2))
    page.keyboard.press("Enter")
    settled(page, 300)
    left, right = page.evaluate(SHOWN)
    assert 1.2 - 0.1 < left < right < 1.6 + 0.1
    assert right - left < 0.4
    # That of a row which was not there when the page was opened, too.
    assert page.locator("#pinned").is_visible()
    assert page.evaluate(ROWS) == rows
    page.focus(BUTTON.format(3))
    page.keyboard.press("Enter")
    settled(page, 300)
    assert page.evaluate(SHOWN) != [left, right]
    assert page.evaluate(ROWS) == rows


def test_a_range_without_a_task_says_so(open_file, tmp_path):
    recording = load(STORIES / "climatology.diag")
    page = opened(open_file, recording, tmp_path)
    chosen(page, 0.01, 0.1)
    assert page.evaluate(ROWS) == []
    assert page.evaluate(CAPTION) == "No task ran from 0.0100 s to 0.1000 s"
    assert not page.is_visible("#longest-tasks [data-show-all]")
