"""How soon a report is seen in Chromium: ``python -m benchmarks.pages``.

Wall seconds from opening the file, and CPU seconds of the page's process, which other programs
change less: until its text is painted, until tasks are drawn, and until all figures are. A page
that is busy answers late: CPU time until tasks are drawn can have that of what it draws next.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
from pathlib import Path
from typing import Any

from benchmarks.made_up import many_tasks

RUNS = 3
SIZES = {60_000: "≤ 1 s", 1_000_000: "≤ 3 s"}
"""Numbers of tasks, and how soon they are to be drawn on a quiet machine."""
STEPS = ("text", "tasks", "all")
TASKS = """() => window.Bokeh?.documents.some((doc) => [...doc._all_models.values()].some(
    (model) => model.type == "Title" && model.text.includes("in view")))"""
SEEN = f"""(() => {{
    const are_drawn = {TASKS}
    const painted = () => {{ window.tasks_seen = performance.now() / 1e3 }}
    // What is posted in a frame comes when it is painted, and before what has a timer.
    const {{port1, port2}} = new MessageChannel()
    port1.onmessage = painted
    const look = () => {{
        if (are_drawn()) port2.postMessage(null)
        else requestAnimationFrame(look)
    }}
    requestAnimationFrame(look)
}})()"""
"""Notes when the frame with the tasks is painted: what is drawn next would delay a question."""
ALL = "document.documentElement.dataset.figures === 'drawn'"
FRAME = """() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(
    () => done(performance.now()))))"""
TEXT = "performance.getEntriesByName('first-contentful-paint')[0].startTime"


def main() -> None:
    """Print a row for each number of tasks."""
    from dask_diag import report

    if chromium() is None:
        sys.exit("no Chromium is installed (apt-get install chromium)")
    print("median of", RUNS, "openings; wall s (CPU s of the page's process)")
    with tempfile.TemporaryDirectory() as folder:
        for size, bar in SIZES.items():
            page = report(many_tasks(size), Path(folder) / f"{size}.html")
            opened = [opened_once(page) for _ in range(RUNS)]
            text = ", ".join(
                f"{step} {median(opened, step, 0):.2f} ({median(opened, step, 1):.2f})"
                for step in STEPS
            )
            print(f"{size:>9,} tasks, {page.stat().st_size / 1e6:.1f} MB: {text}; tasks {bar}")


def chromium() -> str | None:
    """Where it is installed; None if it is not."""
    names = ("chromium", "chromium-browser", "google-chrome")
    return next(filter(None, map(shutil.which, names)), None)


def opened_once(page: Path) -> dict[str, tuple[float, float]]:
    """`seconds_until_drawn` in a browser that is started for it."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        browser = driver.chromium.launch(
            executable_path=chromium(), args=["--no-sandbox", "--disable-gpu"]
        )
        try:
            return seconds_until_drawn(browser, page)
        finally:
            browser.close()


def seconds_until_drawn(browser: Any, path: Path) -> dict[str, tuple[float, float]]:
    """Open a page; wall and CPU seconds until each step, of those that it has."""
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.add_init_script(SEEN)
    session = page.context.new_cdp_session(page)
    session.send("Performance.enable")

    def cpu() -> float:
        metrics = session.send("Performance.getMetrics")["metrics"]
        return next(float(metric["value"]) for metric in metrics if metric["name"] == "ProcessTime")

    page.goto(path.as_uri(), wait_until="commit")
    page.wait_for_function(
        "performance.getEntriesByName('first-contentful-paint').length", timeout=120_000
    )
    steps = {"text": (page.evaluate(TEXT) / 1e3, cpu())}
    for step, drawn in (("tasks", TASKS), ("all", ALL)):
        page.wait_for_function(drawn, polling=20, timeout=120_000)
        # The frame after the one in which it was asked for is on the screen.
        steps[step] = (page.evaluate(FRAME) / 1e3, cpu())
    seen = page.evaluate("window.tasks_seen")
    steps["tasks"] = (seen, steps["tasks"][1])
    return steps


def median(opened: list[dict[str, tuple[float, float]]], step: str, part: int) -> float:
    """Of all openings, of wall (0) or CPU (1)."""
    return statistics.median(steps[step][part] for steps in opened)


if __name__ == "__main__":
    main()
