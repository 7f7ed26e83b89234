"""Live pages of a run: while it goes on, when its program was killed, and when it is complete."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from playwright.sync_api import Browser, Page

from docs.gallery.windows import WINDOWS
from docs.live_run import address_of, running

__all__ = ["live_pictures"]

SHOWN_AT = 40
"""Per cent of the tasks."""
LONGEST = 120_000
"""Milliseconds."""
HAS_DONE = "percent => document.getElementById('done').getAttribute('aria-valuenow') >= percent"
IS = "word => document.getElementById('kind').textContent === word"
SETTLED = 1500
"""Milliseconds in which a page has drawn the last answer."""


def live_pictures(browser: Browser, folder: Path) -> Iterator[tuple[str, list[bytes]]]:
    """For each state its title, and a picture of each window."""
    with running(folder / "killed.diag", "--live", "--no-browser") as process:
        pages = _opened(browser, address_of(process))
        yield "Live page: running", _screenshots(pages, HAS_DONE, SHOWN_AT)
        process.kill()
        yield "Live page: the program was killed", _screenshots(pages, IS, "truncated")
    with running(folder / "complete.diag", "--live", "--no-browser") as process:
        pages = _opened(browser, address_of(process))
        yield "Live page: complete", _screenshots(pages, IS, "complete")


def _opened(browser: Browser, address: str) -> list[Page]:
    pages = [browser.new_page(**window) for window in WINDOWS]
    for page in pages:
        page.goto(address)
    return pages


def _screenshots(pages: Sequence[Page], condition: str, value: object) -> list[bytes]:
    for page in pages:
        page.wait_for_function(condition, arg=value, timeout=LONGEST)
    pages[0].wait_for_timeout(SETTLED)
    return [page.screenshot() for page in pages]
