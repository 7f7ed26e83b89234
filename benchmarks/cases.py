"""The measurements, each run in a process of its own: ``python -m benchmarks.cases CASE WHO``.

WHO is ``ours``, ``dask`` (dask.diagnostics) or ``none``. The numbers are printed as JSON.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import sys
import tempfile
import time
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any


def diagnostics_of(who: str) -> Any:
    """The module under test."""
    if who == "ours":
        import dask_diag

        return dask_diag
    import dask.diagnostics

    return dask.diagnostics


def profiler(who: str, name: str = "Profiler", **kwargs: Any) -> Any:
    """A profiler, or nothing in its place."""
    if who == "none":
        return contextlib.nullcontext()
    return getattr(diagnostics_of(who), name)(**kwargs)


def no_op() -> None:
    """Do nothing."""


def no_ops(tasks: int) -> dict[Any, Any]:
    """A graph of independent tasks that do nothing."""
    return {("no-op", n): (no_op,) for n in range(tasks)}


def run_no_ops(who: str, tasks: str) -> dict[str, float]:
    """Compute a graph of no-ops; valgrind counts the instructions of the process."""
    from dask.local import get_sync

    graph = no_ops(int(tasks))
    with profiler(who):
        get_sync(graph, list(graph))
    return {}


def cache_of_many(who: str) -> dict[str, float]:
    """Compute 40,001 tasks while 20,000 of their results are held."""
    from dask.local import get_sync

    half = 20_000
    graph: dict[Any, Any] = {("first", n): (no_op,) for n in range(half)}
    graph |= {("second", n): (id, ("first", n)) for n in range(half)}
    graph["end-0"] = (len, [("second", n) for n in range(half)])
    begun = time.perf_counter()
    with profiler(who, "CacheProfiler"):
        get_sync(graph, "end-0")
    return {"seconds": time.perf_counter() - begun}


def retained(who: str) -> dict[str, float]:
    """Bytes that a profiler keeps per task when the graph has been let go."""
    from dask.local import get_sync

    tasks = 20_000
    kept = profiler(who)
    with kept:
        get_sync(no_ops(10), ("no-op", 0))
    tracemalloc.start()
    gc.collect()
    before = tracemalloc.get_traced_memory()[0]
    graph = no_ops(tasks)
    with kept:
        get_sync(graph, list(graph))
    del graph
    gc.collect()
    return {"bytes": (tracemalloc.get_traced_memory()[0] - before) / tasks}


def sum_of_blocks(blocks: int) -> Any:
    """The array whose plots are drawn."""
    import dask.array as da

    return (da.ones(10 * blocks, chunks=10) + 1).sum(split_every=8)


def plot(who: str, name: str, blocks: int) -> dict[str, float]:
    """Seconds and megabytes of a plot; the page refers to bokeh's runtime and does not hold it."""
    array = sum_of_blocks(blocks)
    with profiler(who, name) as profiled:
        array.compute(scheduler="threads", optimize_graph=False)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "plot.html"
        # bokeh is loaded by a first plot, which is not counted.
        profiler(who, name).visualize(show=False, save=True, filename=str(path), mode="cdn")
        begun = time.perf_counter()
        profiled.visualize(show=False, save=True, filename=str(path), mode="cdn")
        return {
            "seconds": time.perf_counter() - begun,
            "megabytes": path.stat().st_size / 1e6,
        }


def cache_plot(who: str) -> dict[str, float]:
    """The cache plot of 1,573 tasks."""
    return plot(who, "CacheProfiler", 500)


def task_plot(who: str) -> dict[str, float]:
    """The task plot of 157,147 tasks."""
    return plot(who, "Profiler", 50_000)


def importing(who: str) -> dict[str, float]:
    """Seconds to import the package once dask has been imported."""
    import dask  # noqa: F401

    begun = time.perf_counter()
    diagnostics_of(who)
    return {"seconds": time.perf_counter() - begun}


CASES: dict[str, Callable[..., dict[str, float]]] = {
    case.__name__: case
    for case in (run_no_ops, cache_of_many, retained, cache_plot, task_plot, importing)
}

if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    print(json.dumps(CASES[sys.argv[1]](*sys.argv[2:])))
