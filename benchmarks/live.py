"""What a live view costs: ``python -m benchmarks.live [MINUTES]``, 12 by default.

One recorded program computes equal pieces of numpy work on two threads and notes when each began
and ended. Beside it are a viewer and three browsers: with a page that follows, one that is hidden
and one of all time. They are paused (SIGSTOP) but in their windows of time, between which nothing
runs beside the work. The ratio of a window is the wall time of a piece in it to that in the two
neighbouring windows of nothing: what changes slowly is in both. A table has the median of the
ratios with its 95% interval (bootstrap), which is below the bar, above it, or does not decide.

Who was paused catches up first: it reads what was written meanwhile, which it would have read then,
and a hidden page asks, as its 20 seconds are over. That is not in the ratio, as all that goes on
with time would be counted twice; the last columns have ratio and CPU with it, as an upper bound.
Windows are multiples of the periods of what is in them: the polls of a viewer (4 s), the figures of
a page (3.6 to 5.4 s), the question of a hidden page (20 s). Findings, which may take 0.1% of a
core, come when it catches up. The row of nothing compares windows of nothing with their next ones:
if its interval does not have 1, the machine was not quiet enough.

A viewer may take 1% of a core. Then comes distributed's ``LocalCluster(processes=False)`` with its
dashboard open, recorded by nothing: it cannot be paused, and whole programs take turns.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from time import perf_counter, sleep
from typing import NamedTuple

import numpy as np

from benchmarks.live_processes import Beside, hide, open_page, show_all, viewer_of

NOTHING = "nothing"
_SECONDS_OF_NOTHING = 4.5
_STOPPING = 0.3
"""Seconds until what is paused has given back its CPU and what it had of a cache."""
_TURNS, _SECONDS_OF_A_TURN = 2, 5.0
_SECONDS_OF_TURNS = 60.0
"""That all turns take, with their starts."""
_RESAMPLES = 10_000
_FEWEST = 8
"""Windows that decide: of fewer, the interval of a median is too narrow."""
PIECES = """
import json, sys, threading, time
import dask.threaded, numpy as np

kind, path, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
ended, pieces = threading.Event(), []

def piece(n):
    values = np.full(100_000, float(n))
    for _ in range(80):
        values = np.sqrt(values * values + 1)
    return values.mean()

def noted(n):
    if ended.is_set():
        return 0.0
    began = time.perf_counter()
    result = piece(n)
    pieces.append((began, time.perf_counter()))
    return result

def wait():
    sys.stdin.readline()
    ended.set()

# What notes times cannot be sent to a cluster.
numbers, work = range(int(seconds * 90)), piece if kind == "LocalCluster" else noted
graph = {("work", n): (work, n) for n in numbers} | {"total": (sum, [("work", n) for n in numbers])}
if kind == "LocalCluster":
    from dask.distributed import Client, LocalCluster
    settings = dict(processes=False, n_workers=1, threads_per_worker=2)
    cluster = LocalCluster(dashboard_address=":0", **settings)
    block = client = Client(cluster)
    get, settings = client.get, {}
    print(cluster.dashboard_link, flush=True)
else:
    from dask_diag import record
    block = record(path, overwrite=True, waits=False)
    get, settings = dask.threaded.get, {"num_workers": 2}
    print(path, flush=True)
with block:
    sys.stdin.readline()
    threading.Thread(target=wait, daemon=True).start()
    started = time.perf_counter()
    get(graph, "total", **settings)
    wall = time.perf_counter() - started
print(json.dumps([wall, pieces]), flush=True)
"""


class Condition(NamedTuple):
    """What runs beside the work in a window, and the wall time that it may add."""

    name: str
    bar: float | None
    catching_up: float
    seconds: float
    every: int = 1
    """A round of so many has it."""


CONDITIONS = (
    Condition("a viewer", 1.01, 2.0, 8.0),
    Condition("a visible page", 1.02, 3.0, 10.8),
    Condition("a hidden page", 1.005, 2.0, 20.0),
    Condition("a page of all time", 1.02, 3.0, 10.8, every=5),
)


class Window(NamedTuple):
    """A time in which something ran beside the work, and the CPU seconds that that took.

    It began to catch up at `began`; from `start` to `stop` is what counts.
    """

    name: str
    began: float
    start: float
    stop: float
    viewer: tuple[float, float] = (0.0, 0.0)
    browser: tuple[float, float] = (0.0, 0.0)


def main(minutes: float = 12.0) -> None:
    """Measure for so long, and print the tables."""
    started = perf_counter()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.diag"
        print_windows(*measured(path, started + 60 * minutes - _SECONDS_OF_TURNS))
        print_turns([(turn("alone", path), turn("LocalCluster", path)) for _ in range(_TURNS)])


def measured(path: Path, until: float) -> tuple[list[Window], np.ndarray]:
    """Windows with and without all that is beside, in turn; and when the pieces began and ended."""
    lasts = 2 * (until - perf_counter())
    with program("alone", path, lasts) as (child, _), contextlib.ExitStack() as stack:
        tell(child)
        viewer = stack.enter_context(viewer_of(path))
        acts = {"a visible page": None, "a hidden page": hide, "a page of all time": show_all}
        pages = {
            name: stack.enter_context(open_page(viewer.url, act)) for name, act in acts.items()
        }
        everything = [*pages.values(), viewer]
        for beside in everything:
            beside.pause()
        windows, rounds = [nothing()], 0
        while True:
            for condition in CONDITIONS:
                if (rounds + 1) % condition.every:
                    continue
                if perf_counter() + condition.catching_up + condition.seconds + 5 > until:
                    tell(child)
                    pieces = np.array(json.loads(line_of(child))[1])
                    # On a quick machine the work may have run out.
                    last = pieces[:, 1].max()
                    return [window for window in windows if window.stop <= last], pieces
                page = pages.get(condition.name)
                windows += [window(condition, viewer, page), nothing()]
            rounds += 1


def nothing() -> Window:
    """A window without anything beside the work."""
    began = perf_counter()
    sleep(_STOPPING + _SECONDS_OF_NOTHING)
    return Window(NOTHING, began, began + _STOPPING, perf_counter())


def window(condition: Condition, viewer: Beside, page: Beside | None) -> Window:
    """A window with a viewer, and with a page if there is one."""
    beside = [viewer, *([page] if page else [])]
    times, spent = [perf_counter()], [[process.cpu() for process in beside]]
    for process in beside:
        process.resume()
    for seconds in (condition.catching_up, condition.seconds):
        sleep(seconds)
        times.append(perf_counter())
        spent.append([process.cpu() for process in beside])
    for process in reversed(beside):
        process.pause()
    took = [[last - spent[i][n] for i in (0, 1)] for n, last in enumerate(spent[2])]
    whole_and_counted = [(part[0], part[1]) for part in took]
    return Window(condition.name, times[0], times[1], times[2], *whole_and_counted)


def seconds_of_a_piece(pieces: np.ndarray, start: float, stop: float) -> float:
    """Wall seconds for each piece of work that was done in a time; parts of pieces count."""
    began, ended = pieces.T
    inside = np.minimum(ended, stop) - np.maximum(began, start)
    return (stop - start) / float((np.maximum(inside, 0) / (ended - began)).sum())


def ratios_of(
    windows: Sequence[Window], pieces: np.ndarray, name: str, with_catching_up: bool
) -> list[float]:
    """Of each window of a kind, to the neighbouring ones of nothing."""
    is_nothing = name == NOTHING
    if is_nothing:
        windows = [window for window in windows if window.name == NOTHING]
    lasted = [
        seconds_of_a_piece(pieces, window.began if with_catching_up else window.start, window.stop)
        for window in windows
    ]
    # Those of nothing are each other's neighbours: every second one counts.
    inner = range(1, len(windows) - 1, 2 if is_nothing else 1)
    return [
        lasted[n] / float(np.sqrt(lasted[n - 1] * lasted[n + 1]))
        for n in inner
        if windows[n].name == name
    ]


def interval(values: Sequence[float]) -> tuple[float, float]:
    """The 95% interval of their median."""
    drawn = np.random.default_rng(0).choice(values, (_RESAMPLES, len(values)))
    low, high = np.percentile(np.median(drawn, axis=1), [2.5, 97.5])
    return float(low), float(high)


def print_windows(windows: Sequence[Window], pieces: np.ndarray) -> None:
    """The ratios beside their bars, and CPU as shares of a core."""
    print(f"{len(pieces):,} pieces; {'of the counted time':>31}{'':>24}{'with catching up':>38}")
    print(
        f"{'beside the work':<19}{'windows':>8}{'median':>8}{'95% interval':>16}{'bar':>7}"
        f"{'':>10}{'browser':>9}{'viewer':>8}{'ratio':>8}{'browser':>9}{'viewer':>8}"
    )
    for name, bar in [
        (NOTHING, None),
        *((condition.name, condition.bar) for condition in CONDITIONS),
    ]:
        ratios = ratios_of(windows, pieces, name, with_catching_up=False)
        if len(ratios) < 2:
            continue
        low, high = interval(ratios)
        between = f"{low:.4f} to {high:.4f}"
        line = f"{name:<19}{len(ratios):>8}{np.median(ratios):>8.4f}{between:>18}"
        if bar:
            holds = "holds" if high <= bar else "too much" if low > bar else "open"
            holds = holds if len(ratios) >= _FEWEST else "too few"
            own = [window for window in windows if window.name == name]
            with_catching_up = np.median(ratios_of(windows, pieces, name, with_catching_up=True))
            line += (
                f"{bar:>7.3f}{holds:>10}{_shares(own, 1)}{with_catching_up:>8.4f}{_shares(own, 0)}"
            )
        print(line)


def _shares(windows: Sequence[Window], counted: int) -> str:
    """Of a core, that browser and viewer took in all windows of a kind together."""
    lasted = sum(window.stop - (window.start if counted else window.began) for window in windows)
    browser = sum(window.browser[counted] for window in windows) / lasted
    viewer = sum(window.viewer[counted] for window in windows) / lasted
    return f"{browser:>9.2%}{viewer:>8.2%}"


def turn(kind: str, path: Path) -> float:
    """The wall seconds of a program of its own; on a cluster, its dashboard is open."""
    with program(kind, path, _SECONDS_OF_A_TURN) as (child, said), contextlib.ExitStack() as stack:
        if kind == "LocalCluster":
            stack.enter_context(open_page(said))
        tell(child)
        return float(json.loads(line_of(child))[0])


def print_turns(turns: Sequence[tuple[float, float]]) -> None:
    """The ratios of whole programs."""
    ratios = [cluster / alone for alone, cluster in turns]
    print(
        f"LocalCluster and its dashboard, of the wall time without: {np.median(ratios):.2f} "
        f"({min(ratios):.2f} to {max(ratios):.2f}; {len(ratios)} turns)"
    )


@contextlib.contextmanager
def program(kind: str, path: Path, seconds: float) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """The program, which waits for a line before it starts, and what it said."""
    command = [sys.executable, "-c", PIECES, kind, str(path), str(seconds)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    ) as child:
        try:
            yield child, line_of(child)
        finally:
            child.kill()


def tell(child: subprocess.Popen[str]) -> None:
    """Let the program go on: to start, and then to leave out what is left."""
    assert child.stdin is not None
    child.stdin.write("go on\n")
    child.stdin.flush()


def line_of(child: subprocess.Popen[str]) -> str:
    """The next line that the program prints."""
    assert child.stdout is not None
    return child.stdout.readline().strip()


if __name__ == "__main__":
    main(*map(float, sys.argv[1:]))
