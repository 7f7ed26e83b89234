"""A viewer and pages in browsers beside a measured program, which can be paused and measured."""

from __future__ import annotations

import contextlib
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.pages import chromium

__all__ = ["Beside", "hide", "open_page", "show_all", "viewer_of"]

SETTLED = 3_000
"""Milliseconds in which a page that was just opened does what it has to."""


class Beside:
    """A process and its descendants, which run beside the work.

    Parameters
    ----------
    process : subprocess.Popen
    url : str, optional
        Of a viewer.
    """

    def __init__(self, process: subprocess.Popen[str], url: str = "") -> None:
        self.url = url
        self._process = psutil.Process(process.pid)

    def pause(self) -> None:
        """Stop them where they are: they take no CPU."""
        for process in self._all():
            with contextlib.suppress(psutil.Error):
                process.suspend()

    def resume(self) -> None:
        """Let them go on."""
        for process in self._all():
            with contextlib.suppress(psutil.Error):
                process.resume()

    def cpu(self) -> float:
        """CPU seconds so far."""
        seconds = 0.0
        for process in self._all():
            with contextlib.suppress(psutil.Error):
                times = process.cpu_times()
                seconds += times.user + times.system
        return seconds

    def _all(self) -> list[psutil.Process]:
        with contextlib.suppress(psutil.Error):
            return [self._process, *self._process.children(recursive=True)]
        return []


@contextlib.contextmanager
def _ended(process: subprocess.Popen[str], beside: Beside) -> Iterator[Beside]:
    try:
        yield beside
    finally:
        # One that is paused would not end.
        beside.resume()
        process.terminate()


@contextlib.contextmanager
def viewer_of(path: Path) -> Iterator[Beside]:
    """A viewer of a file, and the address of its page."""
    command = [sys.executable, "-m", "dask_diag", "live", "--no-browser", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        address = re.search(r"http://\S+", process.stdout.readline())
        assert address
        with _ended(process, Beside(process, address[0])) as viewer:
            yield viewer


@contextlib.contextmanager
def open_page(address: str, act: Callable[[Page], None] | None = None) -> Iterator[Beside]:
    """A page in a browser of its own, as a reader has it: nobody drives it any more.

    What drives it has left by then: to answer that would cost the page as much again.
    """
    options = ["--headless=new", "--no-sandbox", "--no-first-run", "--window-size=1280,800"]
    # It would take a browser that was paused for one that hangs.
    options += ["--disable-gpu-watchdog", "--disable-hang-monitor"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium() or "", *options, "--remote-debugging-port=0"]
        with (
            subprocess.Popen(
                [*command, f"--user-data-dir={profile}", "about:blank"],
                stderr=subprocess.PIPE,
                text=True,
            ) as process,
            _ended(process, Beside(process)) as browser,
        ):
            assert process.stderr is not None
            said = next(line for line in process.stderr if "DevTools listening on" in line)
            with sync_playwright() as driver:
                connected = driver.chromium.connect_over_cdp(said.split()[-1])
                page = connected.contexts[0].pages[0]
                page.goto(address)
                page.wait_for_timeout(SETTLED)
                if act is not None:
                    act(page)
            yield browser


def show_all(page: Page) -> None:
    """A live page that shows all time."""
    page.click("#everything")


def hide(page: Page) -> None:
    """A page that takes itself for one that nobody sees."""
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: true});"
        " Object.defineProperty(document, 'visibilityState', {value: 'hidden'});"
        " document.dispatchEvent(new Event('visibilitychange')) }"
    )
