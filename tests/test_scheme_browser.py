"""The switch between a light and a dark report, in a real browser."""

from __future__ import annotations

import pytest

from dask_diag import report

from .stacks import known_stacks
from .test_browser import DRAWN, browser, is_a_problem  # noqa: F401

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

BACKGROUNDS = {"light": "rgb(255, 255, 255)", "dark": "rgb(22, 24, 27)"}
LABELS = {"light": "#1c1e21", "dark": "#e6e8ea"}
LOOK = """() => [getComputedStyle(document.body).backgroundColor,
    [...new Set([...Bokeh.documents[0]._all_models.values()]
        .filter((m) => "major_label_text_color" in m.properties)
        .map((m) => m.major_label_text_color))]]"""
NO_STORAGE = """Object.defineProperty(window, "localStorage", {
    get() { throw new DOMException("refused", "SecurityError") } })"""


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("scheme") / "report.html"
    report(known_stacks(), path)
    return path


@pytest.fixture
def context_of(browser, written):  # noqa: F811
    """A function that makes a context; in all that it opened there was no error."""
    problems = []

    def make(scheme, script=""):
        context = browser.new_context(color_scheme=scheme)
        context.add_init_script(script or "0")
        context.on("console", lambda m: is_a_problem(m) and problems.append(m.text))
        context.on("weberror", lambda error: problems.append(str(error.error)))
        return context

    yield make
    assert problems == []
    for context in browser.contexts:
        context.close()


def opened(context, path):
    page = context.new_page()
    page.goto(path.as_uri())
    page.wait_for_function(DRAWN, timeout=60_000)
    return page


def set_system(page, scheme):
    """Change the system's choice; afterwards the page has been notified, which takes a frame."""
    page.emulate_media(color_scheme=scheme)
    page.evaluate("new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


def assert_looks(page, scheme):
    assert page.evaluate(LOOK) == [BACKGROUNDS[scheme], [LABELS[scheme]]]
    other = "Light" if scheme == "dark" else "Dark"
    assert page.locator("#scheme").text_content() == other


@pytest.mark.parametrize(("system", "other"), [("light", "dark"), ("dark", "light")])
def test_the_switch_changes_page_and_figures_and_is_remembered(context_of, written, system, other):
    context = context_of(system)
    page = opened(context, written)
    assert_looks(page, system)
    page.locator("#scheme").focus()
    page.keyboard.press("Enter")
    assert_looks(page, other)
    assert_looks(opened(context, written), other)
    page.locator("#scheme").click()
    assert_looks(page, system)


def test_until_the_reader_chooses_the_page_follows_the_system(context_of, written):
    page = opened(context_of("light"), written)
    set_system(page, "dark")
    assert_looks(page, "dark")
    page.locator("#scheme").click()
    set_system(page, "light")
    set_system(page, "dark")
    assert_looks(page, "light")


def test_where_storage_is_refused_the_switch_still_works(context_of, written):
    context = context_of("light", NO_STORAGE)
    page = opened(context, written)
    page.locator("#scheme").click()
    assert_looks(page, "dark")
    assert_looks(opened(context, written), "light")
