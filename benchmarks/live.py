"""What a live view costs: ``python -m benchmarks.live [SECONDS] [PAIRS]``.

A fixed amount of numpy work on two threads, recorded, is timed alone, with a viewer and no page,
with a visible page in Chromium, and with a hidden one; beside it the same work on distributed's
``LocalCluster(processes=False)`` with its dashboard open, recorded by nothing. All take turns. The
ratios are of each turn's wall time to that of the same turn alone. Wants a quiet machine.
"""

from __future__ import annotations

import contextlib
import re
import selectors
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
from playwright.sync_api import Browser, sync_playwright

BARS = {"a viewer": 1.01, "a visible page": 1.02, "a hidden page": 1.005, "LocalCluster": None}
WORK = """
import sys, time, contextlib
import dask, numpy as np

seconds, path, kind = float(sys.argv[1]), sys.argv[2], sys.argv[3]

def work(n):
    values = np.full(100_000, float(n))
    for _ in range(40):
        values = np.sqrt(values * values + 1)
    return values.mean()

graph = dask.delayed(sum)([dask.delayed(work)(n) for n in range(int(seconds * 120))])
if kind == "LocalCluster":
    from dask.distributed import Client, LocalCluster
    settings = dict(processes=False, n_workers=1, threads_per_worker=2)
    cluster = LocalCluster(dashboard_address=":0", **settings)
    block, get = Client(cluster), {}
    print(cluster.dashboard_link, flush=True)
else:
    from dask_diag import record
    block = record(path, overwrite=True, waits=False)
    get = {"scheduler": "threads", "num_workers": 2}
    print(path, flush=True)
with block:
    sys.stdin.readline()
    started = time.perf_counter()
    graph.compute(**get)
    print(time.perf_counter() - started, flush=True)
"""


def main(seconds: float = 20.0, pairs: int = 10) -> None:
    """Time all in turns, and print the median of the ratios with their quartiles."""
    walls: dict[str, list[float]] = {name: [] for name in ("alone", *BARS)}
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = driver.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        for _ in range(pairs):
            for name, taken in walls.items():
                taken.append(wall_of(name, seconds, Path(folder) / "run.diag", browser))
        browser.close()
    print(f"{pairs} turns of {seconds:g} s of work; wall alone {np.median(walls['alone']):.2f} s")
    print(f"{'with':<16}{'median':>8}{'quartiles':>16}{'bar':>8}")
    for name, bar in BARS.items():
        ratios = np.array(walls[name]) / np.array(walls["alone"])
        low, median, high = np.percentile(ratios, [25, 50, 75])
        limit = f"{bar:.3f}" if bar else ""
        print(f"{name:<16}{median:>8.3f}{f'{low:.3f} to {high:.3f}':>16}{limit:>8}")


def wall_of(name: str, seconds: float, path: Path, browser: Browser) -> float:
    """The wall seconds of the work, with this beside it."""
    command = [sys.executable, "-c", WORK, str(seconds), str(path), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        with BESIDE[name](address, path, browser):
            child.stdin.write("go\n")
            child.stdin.flush()
            # The browser's own loop must go on meanwhile.
            wall = float(_line_of(child, browser))
    return wall


def _line_of(child: subprocess.Popen[str], browser: Browser) -> str:
    assert child.stdout is not None
    waiting = selectors.DefaultSelector()
    waiting.register(child.stdout, selectors.EVENT_READ)
    while not waiting.select(timeout=0.2):
        for context in browser.contexts:
            for page in context.pages:
                page.wait_for_timeout(1)
    return child.stdout.readline()


@contextlib.contextmanager
def _alone(address: str, path: Path, browser: Browser) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _viewer(address: str, path: Path, browser: Browser) -> Iterator[str]:
    command = [sys.executable, "-m", "dask_diag", "live", "--no-browser", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as viewer:
        assert viewer.stdout is not None
        found = re.search(r"http://\S+", viewer.stdout.readline())
        assert found
        try:
            yield found[0]
        finally:
            viewer.terminate()


@contextlib.contextmanager
def _page(address: str, path: Path, browser: Browser, hidden: bool = False) -> Iterator[None]:
    with _viewer(address, path, browser) as url, _open(browser, url) as page:
        if hidden:
            page.evaluate(
                "() => { Object.defineProperty(document, 'hidden', {value: true});"
                " Object.defineProperty(document, 'visibilityState', {value: 'hidden'});"
                " document.dispatchEvent(new Event('visibilitychange')) }"
            )
        yield


@contextlib.contextmanager
def _hidden_page(address: str, path: Path, browser: Browser) -> Iterator[None]:
    with _page(address, path, browser, hidden=True):
        yield


@contextlib.contextmanager
def _dashboard(address: str, path: Path, browser: Browser) -> Iterator[None]:
    with _open(browser, address):
        yield


@contextlib.contextmanager
def _open(browser: Browser, address: str):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    try:
        page.goto(address)
        page.wait_for_timeout(1000)
        yield page
    finally:
        page.close()


BESIDE: dict[str, Callable[[str, Path, Browser], contextlib.AbstractContextManager[object]]] = {
    "alone": _alone,
    "a viewer": _viewer,
    "a visible page": _page,
    "a hidden page": _hidden_page,
    "LocalCluster": _dashboard,
}


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((float, int), sys.argv[1:], strict=False)))
