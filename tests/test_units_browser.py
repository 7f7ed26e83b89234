"""On a phone no number is on one line and its unit on the next."""

from __future__ import annotations

from pathlib import Path

import pytest

from dask_diag import load, report, visualize
from dask_diag.views.comparison import comparison_page

pytestmark = [pytest.mark.browser, pytest.mark.leaves_files]

STORIES = Path(__file__).parent.parent / "docs" / "stories"
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
