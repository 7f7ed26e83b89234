"""The switch between a light and a dark page, in a real browser."""

from dataclasses import replace

import pytest

from benchmarks.made_up import many_tasks
from dask_diag import report, visualize

from .recordings import known_stacks

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 27)"}
LABELS = {"light": "#1c1e21", "dark": "#e6e8ea"}
LOOK = """() => [getComputedStyle(document.body).backgroundColor,
    [...new Set([...Bokeh.documents[0]._all_models.values()]
        .filter((m) => "major_label_text_color" in m.properties)
        .map((m) => m.major_label_text_color))],
    [...new Set([...Bokeh.documents[0]._all_models.values()]
        .filter((m) => m.hatch_pattern?.value === "left_diagonal_line")
        .map((m) => m.hatch_color.value))]]"""
STRIPES = "#e5b93c"
"""Tasks off the CPU: stripes over the function's colour, the same in both."""
NO_STORAGE = """Object.defineProperty(window, "localStorage", {
    get() { throw new DOMException("refused", "SecurityError") } })"""


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    """A report and a page of `visualize`, by name."""
    folder = tmp_path_factory.mktemp("scheme")
    made = replace(known_stacks(), tasks=many_tasks(20).tasks)
    report(made, folder / "report.html")
    visualize(made, filename=folder / "visualize.html", show=False)
    return folder


@pytest.fixture(params=["report", "visualize"])
def written(request, pages):
    return pages / f"{request.param}.html"


def set_system(page, scheme):
    """Change the system's choice; afterwards the page has been notified, which takes a frame."""
    page.emulate_media(color_scheme=scheme)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def assert_looks(page, scheme):
    assert page.evaluate(LOOK) == [BACKGROUNDS[scheme], [LABELS[scheme]], [STRIPES]]
    other = "Light" if scheme == "dark" else "Dark"
    assert page.locator("#scheme").text_content() == other


@pytest.mark.parametrize(("system", "other"), [("light", "dark"), ("dark", "light")])
def test_the_switch_changes_page_and_figures_and_is_remembered(
    open_file, browser, written, system, other
):
    page = open_file(written, scheme=system, context=browser.new_context())
    assert_looks(page, system)
    page.locator("#scheme").focus()
    page.keyboard.press("Enter")
    assert_looks(page, other)
    assert_looks(open_file(written, context=page.context), other)
    page.locator("#scheme").click()
    assert_looks(page, system)


def test_until_the_reader_chooses_the_page_follows_the_system(open_file, written):
    page = open_file(written)
    set_system(page, "dark")
    assert_looks(page, "dark")
    page.locator("#scheme").click()
    set_system(page, "light")
    set_system(page, "dark")
    assert_looks(page, "light")


def test_where_storage_is_refused_the_switch_still_works(open_file, browser, written):
    context = browser.new_context()
    context.add_init_script(NO_STORAGE)
    page = open_file(written, context=context)
    page.locator("#scheme").click()
    assert_looks(page, "dark")
    assert_looks(open_file(written, context=context), "light")
