"""Take pictures of a live view: ``python docs/live_screenshot.py PAGE_PICTURE TOP_PICTURE``."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console

from dask_diag.live.screen import screen
from dask_diag.live.viewer import Viewer

PROGRAM = """
import time
import dask
import numpy as np

def load(block):
    time.sleep(0.05)
    return np.ones(200_000) * block

def clean(values):
    for _ in range(40):
        values = np.sqrt(values * values + 1)
    return values

def fit(values):
    time.sleep(7)
    return values

delayed = dask.delayed
blocks = [delayed(clean)(delayed(load)(block)) for block in range(600)]
blocks[250] = delayed(fit)(blocks[250])
means = [delayed(np.mean)(block) for block in blocks]
delayed(sum)(means).compute(scheduler="threads", num_workers=4)
"""
SHOWN_AT = 40
"""Per cent of the tasks."""
WIDTH, HEIGHT = 80, 22


def main(page_picture: str, top_picture: str) -> None:
    """Run a program, and look at it while it runs."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.diag"
        command = [sys.executable, "-m", "dask_diag", "run", "--live", "--no-browser"]
        process = subprocess.Popen(
            [*command, "-o", str(path), "-c", PROGRAM], stderr=subprocess.PIPE, text=True
        )
        try:
            _look(process, path, page_picture, top_picture)
        finally:
            process.kill()
            process.communicate()


def _look(process: subprocess.Popen[str], path: Path, page_picture: str, top_picture: str) -> None:
    assert process.stderr is not None
    found = re.search(r"http://\S+", process.stderr.readline())
    assert found is not None
    with sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1020, "height": 940})
        page.goto(found[0])
        page.wait_for_function(
            "percent => document.getElementById('done').getAttribute('aria-valuenow') >= percent",
            arg=SHOWN_AT,
            timeout=120_000,
        )
        page.screenshot(path=page_picture)
        browser.close()
    viewer = Viewer(path)
    viewer.poll()
    with open("/dev/null", "w", encoding="utf-8") as nothing:
        console = Console(file=nothing, width=WIDTH, record=True, highlight=False)
        console.print(screen(viewer, WIDTH, HEIGHT))
    picture = console.export_svg(title="dask-diag top run.diag")
    # Fonts of the network, which a picture in a page does not load.
    Path(top_picture).write_text(re.sub(r"@font-face \{.*?\}", "", picture, flags=re.DOTALL))


if __name__ == "__main__":
    main(*sys.argv[1:])
