"""Take pictures of a run: ``python docs/live_screenshot.py PAGE_PNG TOP_SVG RUN_SVG``."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from live_run import PROGRAM, RUN, address_of, running
from playwright.sync_api import sync_playwright
from rich.console import RenderableType
from terminal_pictures import SECONDS_A_FRAME, frames_of, moving_picture

from dask_diag.live.model import LiveModel
from dask_diag.live.screen import screen

SHOWN_AT = 40
"""Per cent of the tasks."""
WIDTH, HEIGHT = 80, 22


def main(page_picture: str, top_picture: str, run_picture: str) -> None:
    """Run a program, and look at it while it runs: as a page, in a terminal, and as its output."""
    with tempfile.TemporaryDirectory() as made:
        # As programs name it, whose folder may be a link.
        folder = str(Path(made).resolve())
        with running(Path(folder) / "page.diag", "--live", "--no-browser") as process:
            _take_page(process, page_picture)
        take_top(Path(folder) / "run.diag", top_picture)
        (Path(folder) / "program.py").write_text(PROGRAM)
        command = [*RUN, "--force", "-o", "own.diag", "program.py"]
        frames = frames_of(command, "dask-diag run program.py", WIDTH, folder)
        Path(run_picture).write_text(moving_picture(frames, "dask-diag run program.py", WIDTH))


def take_top(path: Path, picture: str) -> None:
    """Run the program, which writes a file that is not there yet, and show it in a terminal."""
    with running(path):
        while not path.exists():
            time.sleep(0.1)
        frames = _frames(path)
    Path(picture).write_text(moving_picture(frames, "dask-diag top run.diag", WIDTH))


def _take_page(process: subprocess.Popen[str], page_picture: str) -> None:
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1020, "height": 940})
        page.goto(address_of(process))
        page.wait_for_function(
            "percent => document.getElementById('done').getAttribute('aria-valuenow') >= percent",
            arg=SHOWN_AT,
            timeout=120_000,
        )
        page.screenshot(path=page_picture)
        browser.close()


def _frames(path: Path) -> list[RenderableType]:
    """What ``dask-diag top`` shows until the run ends."""
    viewer, frames = LiveModel(path), []
    while not viewer.is_over:
        viewer.poll()
        frames.append(screen(viewer, WIDTH, HEIGHT))
        time.sleep(SECONDS_A_FRAME)
    return frames


if __name__ == "__main__":
    main(*sys.argv[1:])
