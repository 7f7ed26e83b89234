"""Take a picture of a page in Chromium: ``python docs/screenshot.py PAGE PICTURE``."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

from playwright.sync_api import sync_playwright

IDLE = "window.Bokeh && Bokeh.documents.length > 0 && Bokeh.documents[0].is_idle"


def main(page_file: str, picture: str) -> None:
    """Wait until every plot is drawn, and take the picture of the first of them."""
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1020, "height": 1420})
        page.goto(Path(page_file).resolve().as_uri())
        page.wait_for_function(IDLE)
        page.wait_for_timeout(1000)
        page.screenshot(path=picture)
        browser.close()


if __name__ == "__main__":
    main(*sys.argv[1:])
