"""What profiling costs on work like that of users: ``python -m benchmarks.real [SIZE] [WORK ...]``.

Each work is computed on two threads without a profiler and within each set of profilers, in turn,
there and back. Wall seconds are those of the quickest round, which other programs disturbed least:
the bars are for them, on quiet cores. Beside them stand figures that a busy machine disturbs less:
the median over rounds of the CPU seconds of the process over those without a profiler just before
or after, CPU and context switches that a task has more of, and of that CPU what the scheduler's
thread and the profilers' own threads used: tasks have the rest.
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
from statistics import median
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.threaded import get

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

ROUNDS = {"tiny": 1, "small": 5, "large": 5}
THREADS = 2
_TOKEN = "0123456789abcdef0123456789abcdef"

Graph = dict[Any, Any]
Side = Callable[[], AbstractContextManager[object]]


class Cost(NamedTuple):
    """What a computation took: seconds; of CPU the scheduler's, and the profilers' own."""

    wall: float
    cpu: float
    cpu_scheduler: float
    own_cpu: float
    switches: int


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
    "Profiler": (0.03, 0.05),
    "our three": (0.05, None),
    "waits": (0.05, 0.10),
    "sampling": (0.05, 0.10),
    "record with waits": (0.08, 0.25),
}
"""The most wall time of each side over plain: on work like a user's, and on short tasks."""


def cost(graph: Graph, keys: Any, side: Side) -> Cost:
    """What one computation takes, the start and the end of the profilers included."""
    gc.collect()
    own_cpu, switches = own_cpu_so_far(), switches_so_far()
    wall, cpu, cpu_scheduler = time.perf_counter(), time.process_time(), time.thread_time()
    with side():
        get(graph, keys, num_workers=THREADS)
    return Cost(
        time.perf_counter() - wall,
        time.process_time() - cpu,
        time.thread_time() - cpu_scheduler,
        own_cpu_so_far() - own_cpu,
        switches_so_far() - switches,
    )


def own_cpu_so_far() -> float:
    """CPU seconds of the profilers' threads that have ended."""
    from dask_diag.system.periodic import OwnThreads

    return sum(OwnThreads.now().ended.values())


def switches_so_far() -> int:
    """How often a thread of this process was switched out; 0 where the system does not say."""
    if resource is None:
        return 0
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_nvcsw + used.ru_nivcsw


def measure(work: str, size: str, path: Path) -> tuple[int, dict[str, list[Cost]]]:
    """How many tasks a work has; and what each side cost in each round."""
    collection = WORKS[work](size)
    (optimized,) = dask.optimize(collection)
    graph, keys = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    measured = sides(path)
    rounds: dict[str, list[Cost]] = {name: [] for name in measured}
    cost(graph, keys, measured["plain"])
    for number in range(ROUNDS[size]):
        # There and back, so that what changes meanwhile hits all alike.
        for name in list(measured)[:: -1 if number % 2 else 1]:
            rounds[name].append(cost(graph, keys, measured[name]))
    return len(graph), rounds


HEADER = (
    f"{'':<20}{'wall':>8}{'bar':>8}{'CPU':>9}{'a task':>11}{'scheduler':>11}{'own':>11}"
    f"{'switches':>10}"
)


def line(name: str, bar: float | None, tasks: int, plain: list[Cost], within: list[Cost]) -> str:
    """What a side cost over plain."""
    wall = min(run.wall for run in within) / min(run.wall for run in plain) - 1
    pairs = list(zip(within, plain, strict=True))
    cpu = median(run.cpu / other.cpu for run, other in pairs) - 1
    added = 1e6 * median(run.cpu - other.cpu for run, other in pairs) / tasks
    scheduler = median(run.cpu_scheduler - other.cpu_scheduler for run, other in pairs)
    own = 1e6 * median(run.own_cpu for run in within) / tasks
    switches = median(run.switches - other.switches for run, other in pairs) / tasks
    shown = "" if bar is None else f"≤ {bar:.0%}"
    verdict = "  over" if bar is not None and wall > bar else ""
    return (
        f"{name:<20}{wall:+8.1%}{shown:>8}{cpu:+9.1%}{added:+8.1f} µs"
        f"{1e6 * scheduler / tasks:+8.1f} µs{own:8.1f} µs{switches:+10.2f}{verdict}"
    )


def main(arguments: list[str]) -> None:
    """Print a line for each work and side."""
    size = arguments[0] if arguments else "small"
    if size not in ROUNDS or not set(arguments[1:]) <= set(WORKS):
        sys.exit(f"expected one of {', '.join(ROUNDS)}, then any of {', '.join(WORKS)}")
    for work in arguments[1:] or WORKS:
        with tempfile.TemporaryDirectory() as folder:
            tasks, rounds = measure(work, size, Path(folder) / "run.diag")
        plain = rounds.pop("plain")
        wall, cpu = min(run.wall for run in plain), min(run.cpu for run in plain)
        print(f"{work}: {tasks:,} tasks, {1e6 * cpu / tasks:.0f} µs of CPU each, {wall:.2f} s")
        print(HEADER)
        for name, within in rounds.items():
            bar = BARS.get(name, (None, None))[work == "short"]
            print(line(name, bar, tasks, plain, within), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
