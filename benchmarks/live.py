"""What a live view costs: ``python -m benchmarks.live [SECONDS] [PAIRS] [MINUTES]``.

A fixed amount of numpy work on two threads, recorded, is timed alone, with a viewer and no page,
with a visible page in Chromium, with one that shows all time, and with a hidden one; in every third
turn beside it the same work on distributed's ``LocalCluster(processes=False)`` with its dashboard
open, recorded by nothing. All take turns, in another order each time. The ratios are of each turn's
wall time to that of the same turn alone. The CPU of the viewer, and of all processes of the browser
together, is a share of a core while the work ran: a busy machine disturbs it less than the wall
time. What drives the browser has left by then: to answer it would cost the page as much again. No
turn starts that would not end within MINUTES. Wants a quiet machine.
"""

from __future__ import annotations

import contextlib
import random
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from time import monotonic, sleep
from typing import NamedTuple

import numpy as np
import psutil
from playwright.sync_api import Page, sync_playwright

from benchmarks.pages import chromium

BARS = {
    "a viewer": 1.01,
    "a visible page": 1.02,
    "a page of all time": 1.02,
    "a hidden page": 1.005,
    "LocalCluster": None,
}
MOST_CPU = 0.01
"""Of a core, that a viewer may take."""
SETTLED = 3_000
"""Milliseconds in which a viewer or browser that was just started does what it has to."""
TURNS_OF_CLUSTER = 3
"""A turn of so many has LocalCluster in it: its figure needs not be as exact."""
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


@dataclass
class Viewer:
    """The process of a viewer, and the CPU time that it took while the work ran."""

    url: str
    pid: int

    def cpu(self) -> float:
        """Seconds so far."""
        times = psutil.Process(self.pid).cpu_times()
        return times.user + times.system


class Turn(NamedTuple):
    """The wall seconds of the work, and the shares of a core that others took meanwhile."""

    wall: float
    viewer: float | None
    browser: float


def main(seconds: float = 10.0, pairs: int = 10, minutes: float = 11.5) -> None:
    """Time all in turns, and print the median of the ratios with their quartiles."""
    started, longest = monotonic(), 0.0
    turns: list[dict[str, Turn]] = []
    order = random.Random(0)
    with tempfile.TemporaryDirectory() as folder:
        while len(turns) < pairs and monotonic() - started + longest < 60 * minutes:
            began = monotonic()
            names = ["alone", *BARS]
            if len(turns) % TURNS_OF_CLUSTER:
                names.remove("LocalCluster")
            order.shuffle(names)
            path = Path(folder) / "run.diag"
            turns.append({name: turn_of(name, seconds, path) for name in names})
            longest = max(longest, monotonic() - began)
    print_turns(turns)


def print_turns(turns: list[dict[str, Turn]]) -> None:
    """The ratios beside their bars."""
    alone = np.array([turn["alone"].wall for turn in turns])
    print(f"{len(turns)} turns; wall alone {np.median(alone):.2f} s")
    print(f"{'':<57}{'CPU of the':>8}")
    print(
        f"{'with':<20}{'turns':>6}{'median':>8}{'quartiles':>16}{'bar':>7}"
        f"{'browser':>9}{'viewer':>8}{'bar':>5}"
    )
    for name, bar in BARS.items():
        ratios = [turn[name].wall / turn["alone"].wall for turn in turns if name in turn]
        shares = [turn[name].viewer for turn in turns if name in turn]
        browser = np.median([turn[name].browser for turn in turns if name in turn])
        low, median, high = np.percentile(ratios, [25, 50, 75])
        limit = f"{bar:.3f}" if bar else ""
        line = f"{name:<20}{len(ratios):>6}{median:>8.3f}{f'{low:.3f} to {high:.3f}':>16}{limit:>7}"
        line += f"{browser:>9.2%}"
        if None not in shares:
            line += f"{np.median(np.array(shares, float)):>8.2%}{MOST_CPU:>5.0%}"
        print(line)


def turn_of(name: str, seconds: float, path: Path) -> Turn:
    """The work, with this beside it."""
    command = [sys.executable, "-c", WORK, str(seconds), str(path), name]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        address = child.stdout.readline().strip()
        with BESIDE[name](address, path) as viewer:
            before, of_browser = viewer.cpu() if viewer else 0.0, browser_cpu()
            child.stdin.write("go\n")
            child.stdin.flush()
            wall = float(child.stdout.readline())
            share = (viewer.cpu() - before) / wall if viewer else None
            of_browser = (browser_cpu() - of_browser) / wall
    return Turn(wall, share, of_browser)


def browser_cpu() -> float:
    """Seconds so far, of all processes of Chromium that this one started."""
    seconds = 0.0
    for process in psutil.Process().children(recursive=True):
        with contextlib.suppress(psutil.Error):
            if "chrom" in process.name():
                times = process.cpu_times()
                seconds += times.user + times.system
    return seconds


@contextlib.contextmanager
def _alone(address: str, path: Path) -> Iterator[None]:
    yield


@contextlib.contextmanager
def _viewer(address: str, path: Path) -> Iterator[Viewer]:
    command = [sys.executable, "-m", "dask_diag", "live", "--no-browser", str(path)]
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:
        assert process.stdout is not None
        printed = re.search(r"http://\S+", process.stdout.readline())
        assert printed
        sleep(SETTLED / 1e3)
        try:
            yield Viewer(printed[0], process.pid)
        finally:
            process.terminate()


@contextlib.contextmanager
def _visible_page(address: str, path: Path) -> Iterator[Viewer]:
    with _viewer(address, path) as viewer, _open(viewer.url):
        yield viewer


@contextlib.contextmanager
def _page_of_all_time(address: str, path: Path) -> Iterator[Viewer]:
    with _viewer(address, path) as viewer, _open(viewer.url, _show_all):
        yield viewer


@contextlib.contextmanager
def _hidden_page(address: str, path: Path) -> Iterator[Viewer]:
    with _viewer(address, path) as viewer, _open(viewer.url, _hide):
        yield viewer


@contextlib.contextmanager
def _dashboard(address: str, path: Path) -> Iterator[None]:
    with _open(address):
        yield


def _show_all(page: Page) -> None:
    page.click("#everything")


def _hide(page: Page) -> None:
    page.evaluate(
        "() => { Object.defineProperty(document, 'hidden', {value: true});"
        " Object.defineProperty(document, 'visibilityState', {value: 'hidden'});"
        " document.dispatchEvent(new Event('visibilitychange')) }"
    )


@contextlib.contextmanager
def _open(address: str, act: Callable[[Page], None] | None = None) -> Iterator[None]:
    """A page in a browser of its own, as a reader has it: nobody drives it any more."""
    options = ["--headless=new", "--no-sandbox", "--no-first-run", "--window-size=1280,800"]
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [chromium() or "", *options, "--remote-debugging-port=0"]
        with subprocess.Popen(
            [*command, f"--user-data-dir={profile}", "about:blank"],
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                said = next(line for line in process.stderr if "DevTools listening on" in line)
                with sync_playwright() as driver:
                    browser = driver.chromium.connect_over_cdp(said.split()[-1])
                    page = browser.contexts[0].pages[0]
                    page.goto(address)
                    page.wait_for_timeout(SETTLED)
                    if act is not None:
                        act(page)
                yield
            finally:
                process.terminate()


Beside = Callable[[str, Path], contextlib.AbstractContextManager[Viewer | None]]
BESIDE: dict[str, Beside] = {
    "alone": _alone,
    "a viewer": _viewer,
    "a visible page": _visible_page,
    "a page of all time": _page_of_all_time,
    "a hidden page": _hidden_page,
    "LocalCluster": _dashboard,
}


if __name__ == "__main__":
    main(*(kind(value) for kind, value in zip((float, int, float), sys.argv[1:], strict=False)))
