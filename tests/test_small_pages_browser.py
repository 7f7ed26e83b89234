"""Pages of tables, in a window of a phone: nothing is cut off, and no word or number is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from bokeh.io.state import curstate

from dask_diag import load, visualize
from dask_diag.analysis.compare_runs import compare_runs
from dask_diag.views.compare import run_comparison_summary
from dask_diag.views.comparison import comparison_page
from dask_diag.views.page import summary_page

from .opened_pages import settled
from .recordings import example
from .stacks import known_stacks
from .test_compare import recording
from .test_tune_race import Simulated, settings

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"

LINES_OF_CELLS = """(cells) => cells.map((cell) => {
    const range = document.createRange();
    range.selectNodeContents(cell);
    return [cell.textContent, new Set([...range.getClientRects()].map((r) => Math.round(r.top))).size];
})"""

# Of each plot its title, and where that ends in the window.
TITLES = """() => {
    const titles = []
    const walk = (view) => {
        if (view.model.type === "Figure" && view.model.title?.text) {
            const canvas = document.createElement("canvas").getContext("2d")
            canvas.font = `bold ${view.model.title.text_font_size} sans-serif`
            const longest = Math.max(...view.model.title.text.split("\\n")
                .map((line) => canvas.measureText(line).width))
            titles.push([view.model.title.text, view.el.getBoundingClientRect().x + view.frame.bbox.left
                + longest])
        }
        for (const child of view.child_views ?? []) walk(child)
    }
    for (const view of Object.values(Bokeh.index)) walk(view)
    return titles
}"""


@pytest.fixture
def opened(open_file, tmp_path):
    """Open the text of a page in a window of this width."""

    def open_page(text, width=390):
        path = tmp_path / "page.html"
        path.write_text(text, encoding="utf-8")
        return open_file(path, width, 844, until=None)

    return open_page


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


@pytest.mark.parametrize("width", [390, 1280])
def test_verdicts_of_settings_are_in_the_window(opened, width):
    names = ("a", "a" * 40, "array.chunk-size=64MiB")
    summary = Simulated(dict.fromkeys(names, 8.1)).tune(settings(*names)).page("tuned")
    page = opened(summary, width)
    cells = page.eval_on_selector_all(
        "tr > :last-child",
        """(cells) => cells.map((cell) => {
            const range = document.createRange();
            range.selectNodeContents(cell);
            const row = cell.parentNode.firstChild.getBoundingClientRect();
            const text = range.getBoundingClientRect();
            return [cell.textContent, text.right, text.top - row.top];
        })""",
    )
    assert len(cells) == 6
    assert [cell for cell in cells if not width / 2 < cell[1] <= width] == []
    # Beside the name of the setting.
    assert [cell for cell in cells if not 0 <= cell[2] < 30] == []
    assert page.get_by_role("cell").count() == 35
    assert page.get_by_role("columnheader").count() == 7
    assert "`" not in page.inner_text("main")


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
    # Each bar has its number beside it, and one name is above both.
    middles = [
        page.eval_on_selector_all(
            f"#functions {selector}",
            """(elements) => elements.map((element) => {
                const {top, bottom} = element.getBoundingClientRect()
                return (top + bottom) / 2
            })""",
        )
        for selector in (".bar", ".bar-text")
    ]
    assert len(middles[0]) == 4
    assert middles[0] == pytest.approx(middles[1], abs=4)
    cells = page.eval_on_selector_all("#functions td:not(:first-child)", LINES_OF_CELLS)
    # A line may end between a change and its spread; a number keeps its unit.
    assert [cell for cell in cells if cell[1] > len(cell[0].split(" "))] == []
    assert page.evaluate("document.documentElement.scrollWidth") <= 390


def test_the_headline_of_compared_recordings_is_short_on_a_phone(opened):
    both = [load(STORIES / f"climatology{name}.diag") for name in ("", "_after")]
    page = opened(comparison_page(*both, ("climatology.diag", "climatology_after.diag")))
    ((text, lines),) = page.eval_on_selector_all("h1", LINES_OF_CELLS)
    assert "largest change" in text
    assert lines <= 3
    assert "tasks took" in page.inner_text("header p")


def test_titles_of_plots_are_in_the_window_of_a_phone(open_file, tmp_path):
    path = tmp_path / "page.html"
    visualize(load(STORIES / "qr.diag"), filename=path, show=False)
    page = open_file(path, 390, 844)
    titles = page.evaluate(TITLES)
    ((text, right),) = [one for one in titles if "of it CPU" in one[0].replace("\n", " ")]
    assert text.count("\n") == 1
    assert right <= 390
    page.set_viewport_size({"width": 1280, "height": 800})
    page.wait_for_function(f"({TITLES})().every(([text]) => !text.includes('\\n'))")


DRAWN_PLOTS = ".bk-GridPlot, .bk-Column, .bk-Figure"


@pytest.fixture
def cell(opened, monkeypatch):
    """Open a notebook with one cell, as wide as that, which shows the plots."""
    published = []
    monkeypatch.setattr(curstate(), "_notebook", False)
    monkeypatch.setattr("dask_diag.views.visualize.in_notebook", lambda: True)
    monkeypatch.setattr(
        "IPython.display.publish_display_data", lambda data, **more: published.append(data)
    )

    def open_cell(width, fold="", bokeh=True, style="", source=known_stacks, html="div"):
        visualize(source(), show=True, save=False, fold=fold)
        outputs = "".join(
            f"<{html}>{data.get('text/html', '')}</{html}>"
            f"<script>{data.get('application/javascript', '')}</script>"
            for data in published[0 if bokeh else 1 :]
        )
        page = opened(
            f"<!doctype html><head>{style}</head><body><p>Out: 7</p>"
            f"<div id='cell' style='width: {width}px; overflow: auto'>{outputs}</div>"
            "<p id='next'>the next cell</p></body>",
            1280,
        )
        if bokeh and html == "div" and not fold:
            page.wait_for_function("Bokeh.documents.length > 0", timeout=60_000)
        return page

    return open_cell


def test_a_cell_says_that_bokeh_is_missing(cell):
    """Its script is in the output of one cell: it is gone when the page is loaded again."""
    page = cell(1200, "Plots", bokeh=False, source=example)
    page.wait_for_function("document.body.innerText.includes('output_notebook()')", timeout=60_000)
    assert page.is_visible("img")
    assert not page.is_visible("summary")


@pytest.mark.parametrize("fold", ["", "Plots"])
def test_the_saved_picture_of_a_cell_is_seen_where_no_script_runs(cell, fold, browser, tmp_path):
    page = cell(1200, fold, source=example)
    if fold:
        page.wait_for_selector("summary")
        assert page.evaluate("Bokeh.documents.length") == 0
        page.click("summary")
    page.wait_for_selector(DRAWN_PLOTS, timeout=60_000)
    assert not page.is_visible("img")
    assert "none ran here" not in page.inner_text("body")
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto(page.url)
    assert without.is_visible("img")
    width, height = without.eval_on_selector("img", "(e) => [e.naturalWidth, e.naturalHeight]")
    assert (width, height > 100) == (760, True)
    assert "none ran here" in without.inner_text("body")
    assert not without.is_visible("summary")
    assert not without.is_visible("[data-root-id]")


def test_a_script_that_runs_before_its_cell_is_in_the_page_draws_the_plots(cell):
    """A notebook that is opened again runs the scripts of its cells, and shows the cells later."""
    page = cell(1200, source=example, html="template")
    settled(page)
    page.evaluate(
        "document.querySelectorAll('template').forEach((e) => document.body.append(e.content))"
    )
    page.wait_for_function("Object.values(Bokeh.index).length > 0", timeout=60_000)
    page.wait_for_selector(DRAWN_PLOTS, timeout=60_000)
    assert not page.is_visible("img")


def test_plots_of_a_cell_are_folded_and_drawn_when_opened(cell):
    """The cell's value is above them, and stays in the window: D25 of the review."""
    page = cell(1200, "Plots")
    top_of_next = "document.getElementById('next').getBoundingClientRect().top"
    assert page.evaluate(top_of_next) < 150
    page.click("summary")
    page.wait_for_function(f"{top_of_next} > 300", timeout=60_000)
    page.wait_for_function(
        "[...document.querySelectorAll('details *')].some((e) => e.getBoundingClientRect().height > 200)"
    )


@pytest.mark.parametrize("fold", ["", "Plots"])
def test_plots_of_a_cell_are_as_wide_as_it_is(cell, fold):
    """A notebook beside JupyterLab's list of files has less than the 1,000 pixels of a plot."""
    page = cell(1200, fold)
    if fold:
        page.click("summary")
    figures = """() => {
        const within = (view) => [...(view.model.type === "Figure" ? [view] : []),
                                  ...(view.child_views ?? []).flatMap(within)];
        return Object.values(Bokeh.index).flatMap(within).map(({el}) => el.offsetWidth);
    }"""
    widths = f"Math.max(...({figures})())"
    page.wait_for_function(f"{widths} === 1000", timeout=60_000)
    for width in (700, 400, 900):
        page.evaluate(f"document.getElementById('cell').style.width = '{width}px'")
        page.wait_for_function(f"Math.abs({widths} - {width}) <= 20", timeout=60_000)
        cut_off = "(({scrollWidth, clientWidth}) => scrollWidth - clientWidth)(document.getElementById('cell'))"
        page.wait_for_function(f"{cut_off} <= 0", timeout=20_000)


def test_what_is_chosen_is_read_in_a_dark_notebook(cell):
    page = cell(1200, style="<style>body { color: #ffffff }</style>")
    colors = """() => {
        const within = (root) => [...root.querySelectorAll("*")].flatMap((element) =>
            [element, ...(element.shadowRoot ? within(element.shadowRoot) : [])]);
        const chosen = within(document).find((element) => element.tagName === "SELECT");
        const style = chosen && getComputedStyle(chosen);
        return style ? [style.color, style.backgroundColor] : null;
    }"""
    expected = "rgb(28, 30, 33),rgb(255, 255, 255)"
    page.wait_for_function(f"String(({colors})()) === '{expected}'", timeout=60_000)
