"""Take pictures of a page in Chromium: ``python docs/screenshot.py PAGE PICTURE``.

With ``--numbers`` its parts are marked, as `reading_a_report.rst` explains them; with ``--dark`` it
is as a reader sees it who prefers dark pages.
"""

from __future__ import annotations

import argparse
import shutil
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

DRAWN = "document.documentElement.dataset.figures === 'drawn'"
PARTS = (
    "h1",
    "header p",
    ".wall",
    ".finding >> nth=0",
    *(f".bk-Figure >> nth={n}" for n in range(4)),
)
MARK = """([left, top, number]) => {
    const mark = document.createElement("div");
    mark.textContent = number;
    mark.style.cssText = `position: absolute; left: ${left}px; top: ${top}px; width: 24px;
        line-height: 24px; border-radius: 12px; background: #b00020; color: #ffffff;
        font: bold 14px/24px sans-serif; text-align: center; z-index: 1000`;
    document.body.append(mark);
}"""


def main(page_file: str, picture: str, numbers: bool, dark: bool) -> None:
    """Wait until every plot is drawn, and take the picture of the first of them."""
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(
            viewport={"width": 1052 if numbers else 1020, "height": 1420},
            color_scheme="dark" if dark else "light",
        )
        page.goto(Path(page_file).resolve().as_uri())
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(1000)
        if numbers:
            mark_parts(page)
        page.screenshot(path=picture)
        browser.close()


def mark_parts(page: Page) -> None:
    """Put a number at the left of each part."""
    page.add_style_tag(content="body { padding-left: 32px }")
    page.wait_for_timeout(1000)
    for number, part in enumerate(PARTS, 1):
        box = page.locator(part).first.bounding_box()
        if box is None:
            raise RuntimeError(f"the page has no {part}")
        page.evaluate(MARK, [max(box["x"] - 30, 4), box["y"] + 2, number])


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("page")
    parser.add_argument("picture")
    parser.add_argument("--numbers", action="store_true")
    parser.add_argument("--dark", action="store_true")
    arguments = parser.parse_args()
    main(arguments.page, arguments.picture, arguments.numbers, arguments.dark)
