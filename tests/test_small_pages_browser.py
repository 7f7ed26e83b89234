"""Pages of tables, in a window of a phone: nothing is cut off, and no word or number is broken."""

from pathlib import Path

import pytest
from bokeh.io.state import curstate

from dask_diag import load, report, visualize
from dask_diag.views.comparison import comparison_page

from .opened_pages import settled
from .recordings import example, known_stacks
from .test_tune_race import Simulated, settings

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"


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

    def open_cell(width, bokeh=True, style="", source=known_stacks, html="div"):
        visualize(source(), show=True, save=False)
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
        if bokeh and html == "div":
            page.wait_for_function("Bokeh.documents.length > 0", timeout=60_000)
        return page

    return open_cell


def test_a_cell_says_that_bokeh_is_missing(cell):
    """Its script is in the output of one cell: it is gone when the page is loaded again."""
    # Its seconds of waiting are over at once.
    later = "<script>const now = Date.now; setTimeout(() => { Date.now = () => now() + 60_000 })</script>"
    page = cell(1200, bokeh=False, source=example, style=later)
    page.wait_for_function("document.body.innerText.includes('output_notebook()')", timeout=60_000)
    assert page.is_visible("img")


def test_the_saved_picture_of_a_cell_is_seen_where_no_script_runs(cell, browser):
    page = cell(1200, source=example)
    page.wait_for_selector(DRAWN_PLOTS, timeout=60_000)
    assert not page.is_visible("img")
    assert "none ran here" not in page.inner_text("body")
    without = browser.new_context(java_script_enabled=False).new_page()
    without.goto(page.url)
    assert without.is_visible("img")
    width, height = without.eval_on_selector("img", "(e) => [e.naturalWidth, e.naturalHeight]")
    assert (width, height > 100) == (760, True)
    assert "none ran here" in without.inner_text("body")
    assert not without.is_visible("[data-root-id]")


def test_a_script_that_runs_before_its_cell_is_in_the_page_draws_the_plots(cell):
    """A notebook that is opened again runs the scripts of its cells, and shows the cells later."""
    vscode = "<style>:root {--vscode-editor-background: #123456}</style>"
    page = cell(1200, source=example, html="template", style=vscode)
    settled(page)
    page.evaluate(
        "document.querySelectorAll('template').forEach((e) => document.body.append(e.content))"
    )
    page.wait_for_function("Object.values(Bokeh.index).length > 0", timeout=60_000)
    page.wait_for_selector(DRAWN_PLOTS, timeout=60_000)
    assert not page.is_visible("img")
    box = "(e) => e.style.getPropertyValue('--box')"
    assert page.eval_on_selector("[style*='--box']", box) == "#123456"


def test_plots_of_a_cell_are_as_wide_as_it_is(cell):
    """A notebook beside JupyterLab's list of files has less than the 1,000 pixels of a plot."""
    page = cell(1200)
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


# How many numbers with a unit there are, and those that are on two lines.
BROKEN = r"""() => {
    for (const fold of document.querySelectorAll("main details")) fold.open = true
    let count = 0
    const broken = []
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT)
    while (texts.nextNode()) {
        const text = texts.currentNode
        if (text.parentElement.closest("pre, code, script, style")) continue
        for (const found of text.data.matchAll(/[\d.]+\s(?:[mµn]?s|[kMGT]?B)(?![\p{L}\d])/gu)) {
            const range = document.createRange()
            range.setStart(text, found.index)
            range.setEnd(text, found.index + found[0].length)
            const lines = new Set([...range.getClientRects()].map(({top}) => Math.round(top)))
            if (lines.size > 0) count += 1
            if (lines.size > 1) broken.push(found[0])
        }
    }
    return [count, broken]
}"""


def write_comparison(path):
    sides = [load(STORIES / f"groupby{side}.diag") for side in ("", "_after")]
    path.write_text(comparison_page(*sides, ("before", "after")), encoding="utf-8")


@pytest.mark.parametrize(
    ("write", "least"),
    [
        (lambda path: report(load(STORIES / "groupby.diag"), path), 100),
        (lambda path: visualize(load(STORIES / "groupby.diag"), path, show=False), 10),
        (write_comparison, 20),
    ],
    ids=["report", "visualize", "comparison"],
)
def test_numbers_and_units_are_on_one_line(open_file, tmp_path, write, least):
    path = tmp_path / "page.html"
    write(path)
    count, broken = open_file(path, 390, 844).evaluate(BROKEN)
    assert count >= least
    assert broken == []


def test_what_is_code_is_as_it_was_written(open_file, tmp_path):
    path = tmp_path / "page.html"
    report(load(STORIES / "groupby.diag"), path)
    code = open_file(path, 390, 844).evaluate("document.querySelector('pre').textContent")
    assert "\u00a0" not in code
