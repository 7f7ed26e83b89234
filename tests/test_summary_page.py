"""Pages of text and tables: in the frame of all pages, and nothing in them is markup by chance."""

import re
from pathlib import Path

import pytest

import dask_diag
from dask_diag.views.page import summary_page
from dask_diag.views.text import table_summary

pytestmark = pytest.mark.once

PACKAGE = Path(dask_diag.__file__).parent
HOSTILE = "<script>alert('x')</script>"
ROWS = [(HOSTILE, "1 s → 3 s", "slower"), ("g", "3 s", "faster"), ("total", "4 s", "unchanged")]
SUMMARY = table_summary(f"2 runs {HOSTILE}", ("function", "before", ""), ROWS, [HOSTILE])


def test_rows_are_marked_by_their_verdict_and_names_are_text():
    page = summary_page(SUMMARY, f"title {HOSTILE}", f"heading {HOSTILE}")
    assert "<script" not in page
    assert page.count("&lt;script&gt;") == 5
    assert re.findall(r'<tr class="(\w+)">', page) == ["slower", "faster"]


def test_it_has_the_frame_of_all_pages_and_needs_no_network():
    page = summary_page(SUMMARY, "title")
    assert '<meta name="referrer" content="no-referrer">' in page
    assert "var(--high)" in page
    assert "--high: " in page
    assert "://" not in page


def test_the_head_of_pages_is_in_one_file():
    heads = {
        str(path.relative_to(PACKAGE / "views"))
        for path in (PACKAGE / "views").rglob("*.*")
        if path.suffix in {".py", ".html"} and "<head>" in path.read_text(encoding="utf-8")
    }
    assert heads == {"theme/frame.html"}
    assert not [p for p in (PACKAGE / "tuning").rglob("*.py") if "<head>" in p.read_text()]
