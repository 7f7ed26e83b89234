"""The measurements, each run in a process of its own: ``python -m benchmarks.cases CASE PACKAGE``.

PACKAGE is ``dask_diag``, ``dask`` (dask.diagnostics), ``distributed`` or ``none``. The numbers are
printed as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
import os
import resource
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any


def diagnostics_of(package: str) -> Any:
    """The module under test."""
    if package == "dask_diag":
        import dask_diag

        return dask_diag
    import dask.diagnostics

    return dask.diagnostics


def profiler(package: str, name: str = "Profiler", **kwargs: Any) -> Any:
    """A profiler, or nothing in its place."""
    if package == "none":
        return contextlib.nullcontext()
    return getattr(diagnostics_of(package), name)(**kwargs)


def no_op() -> None:
    """Do nothing."""


def no_ops(tasks: int) -> dict[Any, Any]:
    """A graph of independent tasks that do nothing."""
    return {("no-op", n): (no_op,) for n in range(tasks)}


def run_no_ops(package: str, tasks: str) -> dict[str, float]:
    """Compute a graph of no-ops; valgrind counts the instructions of the process."""
    from dask.local import get_sync

    graph = no_ops(int(tasks))
    with profiler(package):
        get_sync(graph, list(graph))
    return {}


BLOCK = 200
"""Computations that are timed together."""


def computations_of_two(package: str) -> dict[str, float]:
    """What a computation of two tasks takes longer with profilers, and what they retain of it."""
    from dask.delayed import delayed

    from dask_diag import Profiler, record

    result = delayed(abs)(delayed(abs)(-1))

    def block() -> None:
        for _ in range(BLOCK):
            result.compute(scheduler="threads")

    sides: dict[str, Callable[[], contextlib.AbstractContextManager[object]]] = {
        "plain": contextlib.nullcontext,
        "Profiler": Profiler,
        "record": lambda: record(Path(folder) / "run.diag", overwrite=True),
    }
    seconds: dict[str, list[float]] = {name: [] for name in sides}
    retained: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(11):
            for name, side in sides.items():
                with side():
                    start = time.perf_counter()
                    block()
                    seconds[name].append((time.perf_counter() - start) / BLOCK)
        for name, side in sides.items():
            with side():
                block()
                tracemalloc.start()
                block()
                gc.collect()
                retained[name] = tracemalloc.get_traced_memory()[0] / BLOCK
                tracemalloc.stop()
    return {
        **{name: median(taken) for name, taken in seconds.items()},
        **{f"{name} bytes": size - retained["plain"] for name, size in retained.items()},
    }


def cache_of_many(package: str) -> dict[str, float]:
    """Compute 40,001 tasks while 20,000 of their results are held."""
    from dask.local import get_sync

    half = 20_000
    graph: dict[Any, Any] = {("first", n): (no_op,) for n in range(half)}
    graph |= {("second", n): (id, ("first", n)) for n in range(half)}
    graph["end-0"] = (len, [("second", n) for n in range(half)])
    start = time.perf_counter()
    with profiler(package, "CacheProfiler"):
        get_sync(graph, "end-0")
    return {"seconds": time.perf_counter() - start}


def retained(package: str) -> dict[str, float]:
    """Bytes that a profiler retains per task when the graph has been released."""
    from dask.local import get_sync

    tasks = 20_000
    recorder = profiler(package)
    with recorder:
        get_sync(no_ops(10), ("no-op", 0))
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    graph = no_ops(tasks)
    with recorder:
        get_sync(graph, list(graph))
    del graph
    gc.collect()
    return {"bytes": (tracemalloc.get_traced_memory()[0] - before) / tasks}


def sum_of_blocks(blocks: int) -> Any:
    """The array whose plots are drawn."""
    import dask.array as da

    return (da.ones(10 * blocks, chunks=10) + 1).sum(split_every=8)


def plot(package: str, name: str, blocks: int) -> dict[str, float]:
    """Seconds and megabytes of a plot; the page refers to bokeh's runtime and does not hold it."""
    array = sum_of_blocks(blocks)
    with profiler(package, name) as profiled:
        array.compute(scheduler="threads", optimize_graph=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.html"
        # bokeh is loaded by a first plot, which is not counted.
        profiler(package, name).visualize(show=False, save=True, filename=str(path), mode="cdn")
        start = time.perf_counter()
        profiled.visualize(show=False, save=True, filename=str(path), mode="cdn")
        return {
            "seconds": time.perf_counter() - start,
            "megabytes": path.stat().st_size / 1e6,
        }


def cache_plot(package: str) -> dict[str, float]:
    """The cache plot of 1,573 tasks."""
    return plot(package, "CacheProfiler", 500)


def task_plot(package: str) -> dict[str, float]:
    """The task plot of 157,147 tasks."""
    return plot(package, "Profiler", 50_000)


def task_stream(package: str) -> dict[str, float]:
    """The task plot of 1,000,000 tasks on 16 workers, from file to first paint in Chromium."""
    from benchmarks.made_up import many_tasks
    from dask_diag import visualize

    recording = many_tasks(1_000_000)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.html"
        visualize(many_tasks(16), filename=path, plots=["tasks"], show=False)
        runtime = path.stat().st_size
        start = time.perf_counter()
        visualize(recording, filename=path, plots=["tasks"], show=False)
        seconds = time.perf_counter() - start
        return {
            "seconds": seconds,
            "megabytes": (path.stat().st_size - runtime) / 1e6,
            "first_paint": first_paint(path),
        }


def first_paint(path: Path) -> float:
    """Seconds from opening a page to the tasks being drawn; NaN where there is no Chromium."""
    from benchmarks.pages import chromium, opened_once

    if chromium() is None or find_spec("playwright") is None:
        return float("nan")
    return opened_once(path)["tasks"][0]


def importing(package: str) -> dict[str, float]:
    """CPU seconds to import the package once dask has been, and to get the names that both have."""
    import dask  # noqa: F401

    start = time.process_time()
    module = diagnostics_of(package)
    imported = time.process_time()
    for name in ("Profiler", "ResourceProfiler", "CacheProfiler", "ProgressBar"):
        getattr(module, name)
    return {"package": imported - start, "names": time.process_time() - start}


def metering(package: str) -> dict[str, float]:
    """Microseconds of a call of `context_meter.meter` that is heard, and of one that is not."""
    if package == "distributed":
        from distributed.metrics import context_meter
    else:
        from dask_diag import context_meter
    import dask.local

    def call(times: int) -> float:
        meter = context_meter.meter
        start = time.perf_counter()
        for _ in range(times):
            with meter("I/O"):
                pass
        return 1e6 * (time.perf_counter() - start) / times

    unheard = min(call(20_000) for _ in range(5))
    if package == "distributed":
        metrics: list[Any] = []
        with context_meter.add_callback(lambda *metric: metrics.append(metric)):
            heard = min(call(20_000) for _ in range(5))
    else:
        graph: dict[Any, Any] = {("meter", n): (call, 20_000) for n in range(5)}
        with profiler(package):
            heard = min(dask.local.get_sync(graph, list(graph)))
    return {"heard": heard, "unheard": unheard}


def analysing(package: str, name: str) -> dict[str, float]:
    """Seconds to analyse 1,000,000 tasks, and the most memory that the process had in megabytes."""
    from benchmarks.measured import recording_of
    from dask_diag import Profiler, activities, critical_path

    recording = recording_of(1_000_000, Profiler())
    start = time.perf_counter()
    {"breakdown": activities, "critical": critical_path}[name](recording)
    seconds = time.perf_counter() - start
    # In kilobytes on Linux.
    return {
        "seconds": seconds,
        "megabytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e3,
    }


def breakdown(package: str) -> dict[str, float]:
    """The breakdown by function."""
    return analysing(package, "breakdown")


def longest_path(package: str) -> dict[str, float]:
    """The critical path."""
    return analysing(package, "critical")


def python_loop(times: int) -> int:
    """Count, with the GIL."""
    total = 0
    for n in range(times):
        total += n
    return total


def checksums(times: int) -> None:
    """Compute checksums, without the GIL."""
    data = bytes(4_000_000)
    for _ in range(times):
        hashlib.sha256(data).digest()


def explained(package: str) -> dict[str, float]:
    """How much more a computation on 4 threads takes with ``waits=True``, the median of pairs.

    CPU seconds are measured as well as wall seconds: other processes disturb them less.
    """
    import dask.threaded

    def seconds_taken(function: Any, times: int, waits: bool) -> tuple[float, float]:
        graph = {("work", n): (function, times) for n in range(40)}
        wall, cpu = time.perf_counter(), time.process_time()
        with profiler(package, waits=waits):
            dask.threaded.get(graph, list(graph), num_workers=4)
        return time.perf_counter() - wall, time.process_time() - cpu

    ratio = {}
    for function, name, times in (
        (python_loop, "Python code", 500_000),
        (checksums, "without the GIL", 6),
    ):
        pairs = [
            (seconds_taken(function, times, True), seconds_taken(function, times, False))
            for _ in range(15)
        ]
        for index, clock in enumerate(("wall time", "CPU time")):
            ratios = [with_it[index] / without[index] for with_it, without in pairs]
            ratio[f"{name}, {clock}"] = median(ratios)
    return ratio


CASES: dict[str, Callable[..., dict[str, float]]] = {
    case.__name__: case
    for case in (
        run_no_ops,
        computations_of_two,
        cache_of_many,
        retained,
        cache_plot,
        task_plot,
        task_stream,
        importing,
        metering,
        breakdown,
        longest_path,
        explained,
    )
}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
