"""The source of the program in a real browser: what is beside each line is what was recorded."""

from __future__ import annotations

import pytest

from dask_diag import report

from .recordings import recording_with_lines
from .test_pinned_browser import TASK_AT

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

ROWS = """() => [...document.querySelectorAll("#by-line tr[data-line]")].map((row) => {
    const cell = (name) => row.querySelector(`[data-${name}]`).textContent
    return [row.querySelector("code").textContent.trim(), cell("share"), cell("value"),
            parseFloat(row.querySelector(".bar span")?.style.width ?? "0").toFixed(0)].join(" | ")
})"""
OUTLINED = "() => Bokeh.documents[0].get_model_by_name('pinned tasks').get_length() ?? 0"


def test_lines_show_their_share_and_their_tasks_and_tasks_their_lines(open_file, tmp_path):
    page = open_file(report(recording_with_lines(), tmp_path / "run.html"))
    page.wait_for_function("document.documentElement.dataset.figures === 'drawn'")
    assert page.evaluate(ROWS)[:3] == [
        "z = y.map_blocks(slow) | 42% | 6.00 s | 100",
        "w = z.map_blocks(quick) | 21% | 3.00 s | 50",
        "m = w.mean(axis=0) | 14% | 2.00 s | 33",
    ]
    assert page.locator("#by-line mark").all_text_contents()[:2] == [
        "y.map_blocks(slow)",
        "z.map_blocks(quick)",
    ]
    page.get_by_role("button", name="Line of the script").click()
    assert "a = tidy(raw) | 7% | 1.00 s | 17" in page.evaluate(ROWS)
    page.get_by_role("button", name="Innermost line").click()
    page.locator("#by-line").get_by_role("button", name="CPU", exact=True).click()
    assert page.evaluate(ROWS)[0] == "z = y.map_blocks(slow) | 11% | 1.00 s | 33"
    # Pointing at a line, by mouse or keyboard, outlines its tasks; a click keeps them.
    line = page.get_by_role("button", name="24", exact=True)
    line.focus()
    page.wait_for_function(f"({OUTLINED})() === 5")
    page.get_by_role("button", name="21", exact=True).click()
    page.wait_for_function(f"({OUTLINED})() === 2")
    # Pointing at a task marks its lines, until the mouse moves on.
    place = "() => document.querySelectorAll('#by-line .built-pinned').length"
    for time, lines in ((1.0, 3), (11.5, 1)):
        x, y = page.evaluate(TASK_AT, [time, 100])
        page.mouse.move(x - 3, y)
        page.mouse.move(x, y)
        page.wait_for_function(f"({place})() === {lines}")
    page.mouse.move(2, 2)
    page.wait_for_function(f"({place})() === 0")
    # A pinned task names the lines that built it.
    page.locator("[data-task]").first.click()
    page.wait_for_function("document.querySelector('#pinned').textContent.includes('built by')")
    pinned = page.locator("#pinned").inner_text()
    assert "built by analysis.py:24, analysis.py:25, analysis.py:26" in pinned
    assert page.locator("#by-line .built-pinned").count() == 3
    page.keyboard.press("Escape")
    page.wait_for_function("document.querySelectorAll('#by-line .built-pinned').length === 0")
