"""Take the pictures of `notebook.rst` in JupyterLab: ``python -m docs.notebook_screenshot``."""

from __future__ import annotations

import json
import shutil
import tempfile
from pathlib import Path

from playwright.sync_api import sync_playwright

from tests.jupyterlab import PANEL, Lab, jupyterlab, notebook

PICTURES = Path(__file__).parent / "_static"
WORK = """import time
import dask

def load(n):
    time.sleep(0.3)
    return list(range(20_000))

def squares(numbers):
    return sum(n * n for n in numbers)

work = [dask.delayed(squares)(dask.delayed(load)(n)) for n in range(50)]
_ = dask.compute(*work, num_workers=2)"""
CELLS = [
    "%load_ext dask_diag",
    f"%%diag run\n{WORK}",
    "%%diag --live -q\n" + WORK.replace("(50)", "(200)"),
]
CROP = f"""(number) => {{
    const cell = {PANEL}.content.widgets[number].node
    cell.scrollIntoView()
    const {{x, y, width, height}} = cell.getBoundingClientRect()
    return {{x, y, width, height: Math.min(height, innerHeight - y)}}
}}"""


def main() -> None:
    """Run the cells; the second is pictured when it has ended, the third while it runs."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 1100})
        with jupyterlab(Path(folder)) as (address, notebooks):
            (notebooks / "cells.ipynb").write_text(json.dumps(notebook(CELLS)))
            lab = Lab(page, address, notebooks)
            lab.open("cells.ipynb")
            for number in (0, 1):
                lab.run(number)
            page.wait_for_timeout(1000)
            page.screenshot(path=PICTURES / "notebook.png", clip=page.evaluate(CROP, 1))
            page.evaluate(
                f"""() => {{
                    {PANEL}.content.activeCellIndex = 2
                    jupyterapp.commands.execute("notebook:run-cell")
                }}"""
            )
            page.get_by_text("Open the live page").wait_for()
            page.wait_for_timeout(6000)
            page.screenshot(path=PICTURES / "notebook_live.png", clip=page.evaluate(CROP, 2))
        browser.close()


if __name__ == "__main__":
    main()
