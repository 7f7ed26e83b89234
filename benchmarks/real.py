"""What profiling costs on work like that of users: ``python -m benchmarks.real [SIZE] [WORK ...]``.

Each work is computed on two threads without a profiler and within each set of profilers, in turn;
of each the quickest of several rounds counts, which is the one that other programs disturbed least.
Beside wall seconds there are CPU seconds of the process, with those of the profilers' own threads.
SIZE is how large the works are: ``small`` (the default), ``large``, for quiet machines, and
``tiny``, to see that it runs.
"""

from __future__ import annotations

import contextlib
import gc
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.threaded import get

ROUNDS = {"tiny": 1, "small": 5, "large": 5}
THREADS = 2
_TOKEN = "0123456789abcdef0123456789abcdef"

Graph = dict[Any, Any]
Side = Callable[[], AbstractContextManager[object]]


class Cost(NamedTuple):
    """Wall and CPU seconds of a computation, and how many tasks it had."""

    wall: float
    cpu: float


def climatology(size: str) -> Any:
    """The mean of each month, of years of a grid: tasks of a fraction of a millisecond."""
    import dask.array as da

    days = {"tiny": 120, "small": 400, "large": 3_650}[size]
    grid = da.random.default_rng(0).random((days, 180, 360), chunks=(20, 90, 120))
    anomaly = grid - grid.mean(axis=0)
    return da.stack([anomaly[month::12].mean(axis=0) for month in range(12)])


def image(size: str) -> Any:
    """Three filters of an image, whose chunks overlap."""
    import dask.array as da

    width = {"tiny": 800, "small": 2_000, "large": 4_000}[size]
    pixels = da.random.default_rng(0).random((width, width), chunks=(250, 250))
    for _ in range(3):
        pixels = pixels.map_overlap(_smooth, depth=2)
    return pixels.mean()


def _smooth(block: Any) -> Any:
    neighbours = (np.roll(block, shift, axis) for shift in (1, -1) for axis in (0, 1))
    return (block + sum(neighbours)) / 5


def short(size: str) -> Any:
    """Tasks of some microseconds, each of which another one depends on."""
    from dask.delayed import Delayed

    count = {"tiny": 1_000, "small": 6_000, "large": 30_000}[size]
    graph: Graph = {("first-" + _TOKEN, n): (_count, n) for n in range(count)}
    graph |= {("second-" + _TOKEN, n): (_count, ("first-" + _TOKEN, n)) for n in range(count)}
    graph["total"] = (len, [("second-" + _TOKEN, n) for n in range(count)])
    return Delayed("total", graph)


def _count(start: int) -> int:
    total = start
    for number in range(150):
        total += number
    return total


WORKS: dict[str, Callable[[str], Any]] = {
    function.__name__: function for function in (climatology, image, short)
}


def sides(path: Path) -> dict[str, Side]:
    """What is measured, by name: entering each begins to profile."""
    import dask.diagnostics as peer

    import dask_diag as own

    def together(*profilers: Callable[[], Any]) -> Side:
        def enter() -> AbstractContextManager[object]:
            stack = ExitStack()
            for profiler in profilers:
                stack.enter_context(profiler())
            return stack

        return enter

    three = ("Profiler", "ResourceProfiler", "CacheProfiler")
    return {
        "plain": contextlib.nullcontext,
        "dask's three": together(*(getattr(peer, name) for name in three)),
        "Profiler": together(own.Profiler),
        "our three": together(*(getattr(own, name) for name in three)),
        "waits": together(lambda: own.Profiler(waits=True)),
        "sampling": together(own.SamplingProfiler),
        "record": together(lambda: own.record(path, overwrite=True, waits=False)),
        "record with waits": together(lambda: own.record(path, overwrite=True, waits=True)),
    }


BARS = {
    "Profiler": ("≤ 3%", "≤ 5%"),
    "our three": ("≤ 5%", ""),
    "waits": ("≤ 5%", "≤ 10%"),
    "sampling": ("≤ 5%", "≤ 10%"),
    "record with waits": ("≤ 8%", "≤ 25%"),
}
"""Of each side: on work like a user's, and on short tasks."""


def cost(graph: Graph, keys: Any, side: Side) -> Cost:
    """What one computation takes, the start and the end of the profilers included."""
    gc.collect()
    wall, cpu = time.perf_counter(), time.process_time()
    with side():
        get(graph, keys, num_workers=THREADS)
    return Cost(time.perf_counter() - wall, time.process_time() - cpu)


def measure(work: str, size: str, path: Path) -> tuple[int, dict[str, Cost]]:
    """How many tasks a work has; and the quickest wall and CPU seconds of each side."""
    collection = WORKS[work](size)
    (optimized,) = dask.optimize(collection)
    graph, keys = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    runs: dict[str, list[Cost]] = {}
    measured = sides(path)
    cost(graph, keys, measured["plain"])
    for _ in range(ROUNDS[size]):
        for name, side in measured.items():
            runs.setdefault(name, []).append(cost(graph, keys, side))
    quickest = {
        name: Cost(min(run.wall for run in each), min(run.cpu for run in each))
        for name, each in runs.items()
    }
    return len(graph), quickest


def main(arguments: list[str]) -> None:
    """Print a line for each work and side."""
    size = arguments[0] if arguments else "small"
    if size not in ROUNDS or not set(arguments[1:]) <= set(WORKS):
        sys.exit(f"expected one of {', '.join(ROUNDS)}, then any of {', '.join(WORKS)}")
    for work in arguments[1:] or WORKS:
        with tempfile.TemporaryDirectory() as folder:
            tasks, costs = measure(work, size, Path(folder) / "run.diag")
        plain = costs.pop("plain")
        each = f"{1e6 * plain.cpu / tasks:.0f} µs of CPU each"
        print(f"{work}: {tasks:,} tasks, {each}, {plain.wall:.2f} s", flush=True)
        for name, side in costs.items():
            added = 1e6 * (side.cpu - plain.cpu) / tasks
            wall, cpu = (side.wall / plain.wall - 1, side.cpu / plain.cpu - 1)
            bar = BARS.get(name, ("", ""))[work == "short"]
            print(
                f"  {name:<20}{wall:+8.1%} wall {cpu:+8.1%} CPU {added:+8.1f} µs of CPU a task"
                f"{bar:>8}",
                flush=True,
            )


if __name__ == "__main__":
    main(sys.argv[1:])
