"""The bar above a report in a real browser: its entries, and which one is marked."""

from functools import partial

import pytest

from dask_diag import report

from .recordings import known_stacks

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

ENTRIES = ["Findings", "Timeline", "Functions", "Memory", "Flame graph", "Details"]
MARKED = "[...document.querySelectorAll('nav [aria-current]')].map((link) => link.textContent)"


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    path = tmp_path_factory.mktemp("navigation") / "report.html"
    report(known_stacks(), path)
    return path


@pytest.fixture
def opened(open_file, written):
    return partial(open_file, written)


def wait_until_marked(page, title):
    page.wait_for_function(f"{MARKED}.join() === {title!r}", timeout=5000)


def test_there_are_six_entries_for_all_sections(opened):
    page = opened()
    assert page.locator("nav a").all_text_contents() == ENTRIES
    sections = page.evaluate("[...document.querySelectorAll('main > section')].map((s) => s.id)")
    listed = page.evaluate(
        "[...document.querySelectorAll('nav a')].flatMap((a) => a.dataset.sections.split(' '))"
    )
    assert listed == sections
    assert len(sections) > len(ENTRIES)


def test_the_entry_of_the_section_in_view_is_marked(opened):
    page = opened()
    wait_until_marked(page, "Findings")
    for section, title in [("cache", "Memory"), ("summary", "Functions"), ("code", "Details")]:
        page.evaluate(f"document.getElementById({section!r}).scrollIntoView()")
        wait_until_marked(page, title)
    page.evaluate("window.scrollTo(0, 0)")
    wait_until_marked(page, "Findings")


def test_at_the_end_of_the_page_the_last_entry_is_marked(opened):
    page = opened(height=1200)
    page.evaluate("window.scrollTo(0, 1e6)")
    assert page.evaluate("window.scrollY") > 0
    wait_until_marked(page, "Details")


def test_on_a_phone_the_bar_scrolls_sideways_to_the_marked_entry(opened):
    page = opened(390, 844)
    page.evaluate("document.getElementById('environment').scrollIntoView()")
    wait_until_marked(page, "Details")
    left, right = page.evaluate(
        """() => { const {left, right} = document.querySelector("nav [aria-current]")
        .getBoundingClientRect(); return [left, right] }"""
    )
    assert left >= 0
    assert right <= 390
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
