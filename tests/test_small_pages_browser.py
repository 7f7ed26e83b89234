"""Pages of tables, in a window of a phone: nothing is cut off, and no word or number is broken."""

from __future__ import annotations

import pytest

from dask_diag.analysis.compare_runs import compare_runs
from dask_diag.views.compare_runs import run_comparison_summary
from dask_diag.views.comparison.page import comparison_page
from dask_diag.views.summary_page import summary_page

from .test_browser import browser  # noqa: F401
from .test_compare import recording
from .test_tune_race import Simulated, settings

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

LINES_OF_CELLS = """(cells) => cells.map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return [cell.textContent, new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size];
})"""


@pytest.fixture
def opened(browser, tmp_path):  # noqa: F811
    """Open the text of a page in a window of this width."""

    def open_page(text, width=390):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        page = browser.new_page(viewport={"width": width, "height": 844})
        page.goto(path.as_uri())
        return page

    yield open_page
    for context in browser.contexts:
        context.close()


@pytest.mark.parametrize("width", [390, 1280])
def test_all_runs_of_a_tuned_program_are_in_the_window(opened, width):
    page = opened(Simulated({"a": 5.0}).tune(settings("a", "b")).page("tuned"), width)
    dots = page.eval_on_selector_all(
        "circle", "(dots) => dots.map((dot) => dot.getBoundingClientRect().right)"
    )
    assert len(dots) >= 9
    assert width / 2 < max(dots) <= width
    hidden = page.eval_on_selector("svg", "(svg) => svg.parentNode.scrollWidth - svg.clientWidth")
    assert hidden <= 0


def test_numbers_of_compared_runs_stay_on_one_line(opened):
    runs = [[recording(f=[wall] * 8, stack=[0.0612] * 8)] * 3 for wall in (1.0, 2.0)]
    summary = run_comparison_summary(compare_runs(*runs))
    cells = opened(summary_page(summary, "runs")).eval_on_selector_all(
        "tbody td:not(:first-child)", LINES_OF_CELLS
    )
    assert cells
    assert [cell for cell in cells if cell[1] > 1] == []


def test_cells_of_compared_functions_are_not_broken_on_a_phone(opened):
    name = "finalize-hlgfinalizecompute"
    sides = [recording(**{name: [wall] * 900, "g": [2.0] * 6}) for wall in (1.0, 1.25)]
    page = opened(comparison_page(*sides, ("a", "b")))
    cells = page.eval_on_selector_all("#functions td:not(:first-child)", LINES_OF_CELLS)
    assert [cell for cell in cells if cell[1] > 1] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
