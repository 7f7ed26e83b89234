"""Reports and live pages, light and dark, wide and as on a phone, in one picture."""

from __future__ import annotations

import base64
import shutil
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, sync_playwright

from dask_diag import load, report
from docs.gallery.live_pages import live_pictures
from docs.gallery.stories import Story
from docs.gallery.windows import DRAWN, WINDOWS

__all__ = ["write_contact_sheet"]

DOCS = Path(__file__).parents[1]
SHOWN = ("qr", "climatology", "groupby", "images", "word_count")
HEIGHT = 300
"""Pixels of a picture on the sheet."""


def write_contact_sheet(stories: Sequence[Story]) -> None:
    """Take a picture of the first screen of each report and live page, and one of all of them."""
    shown = [story for story in stories if story.name in SHOWN]
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        rows = [_row(story.title, _pictures(browser, Path(folder), story)) for story in shown]
        rows += [_row(title, images) for title, images in live_pictures(browser, Path(folder))]
        page = browser.new_page(viewport={"width": 1500, "height": 900})
        page.set_content(f"<body style='margin:16px;font:14px sans-serif'>{''.join(rows)}</body>")
        page.screenshot(path=DOCS / "_static" / "contact_sheet.png", full_page=True)
        browser.close()


def _pictures(browser: Browser, folder: Path, story: Story) -> Iterator[bytes]:
    path = folder / f"{story.name}.html"
    report(load(DOCS / "stories" / f"{story.name}.diag"), path, overwrite=True)
    for window in WINDOWS:
        page = browser.new_page(**window)
        page.goto(path.as_uri())
        page.wait_for_function(DRAWN)
        page.wait_for_timeout(500)
        yield page.screenshot()
        page.close()


def _row(title: str, pictures: Iterable[bytes]) -> str:
    sources = (base64.b64encode(picture).decode() for picture in pictures)
    images = "".join(
        f"<img style='height:{HEIGHT}px;margin-right:8px' src='data:image/png;base64,{source}'>"
        for source in sources
    )
    return f"<h3>{title}</h3><div style='white-space:nowrap'>{images}</div>"
