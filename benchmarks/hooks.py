"""How long hooks take for a task in a loop, and between real tasks: ``python -m benchmarks.hooks``.

In a loop all that hooks need is in the processor's caches; tasks of a user clear them. Seconds are
of the wall clock around each call, so they count waits for the GIL too: the median leaves those out
that were rare. The clock itself takes about 0.1 µs of each figure.
"""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import quantiles
from time import perf_counter
from typing import Any

import dask
from dask.threaded import get

from benchmarks.cases import no_ops
from benchmarks.real import THREADS, WORKS
from dask_diag.capture.results import ResultSizes
from dask_diag.capture.task import ProbedTask
from dask_diag.profilers.engine import Watch
from dask_diag.profilers.record import record
from dask_diag.sampling.stacks import StackProbe
from dask_diag.sampling.waits import WaitProbe

TASKS = 5_000
Seconds = dict[str, list[float]]

HOOKS: tuple[tuple[type, str, str], ...] = (
    (Watch, "pretask", "before submission, tasks"),
    (Watch, "posttask", "after collection, tasks"),
    (WaitProbe, "before", "before the task, waits"),
    (WaitProbe, "stop", "after the task, waits"),
    (StackProbe, "stop", "after the task, stacks"),
    (ResultSizes, "size_of", "after the task, size of its result"),
    (ProbedTask, "__call__", "all around the task"),
)


@contextmanager
def timed_hooks() -> Iterator[Seconds]:
    """The seconds of each call of a hook meanwhile, without those of the task in it."""
    seconds: Seconds = {title: [] for _, _, title in HOOKS}
    before = [getattr(owner, name) for owner, name, _ in HOOKS]
    for (owner, name, title), hook in zip(HOOKS, before, strict=True):
        setattr(owner, name, _timed(hook, seconds[title].append, is_task=owner is ProbedTask))
    try:
        yield seconds
    finally:
        for (owner, name, _), hook in zip(HOOKS, before, strict=True):
            setattr(owner, name, hook)


def _timed(
    hook: Callable[..., Any], note: Callable[[float], None], *, is_task: bool
) -> Callable[..., Any]:
    def timed(self: Any, *args: Any) -> Any:
        start = perf_counter()
        result = hook(self, *args)
        took = perf_counter() - start
        note(took - (self.stop - self.start) if is_task else took)
        return result

    return timed


def measure(graph: Any, keys: Any, path: Path) -> Seconds:
    """The seconds of each call, from the second time that a graph is computed."""
    with record(path, overwrite=True):
        get(graph, keys, num_workers=THREADS)
    with timed_hooks() as seconds, record(path, overwrite=True):
        get(graph, keys, num_workers=THREADS)
    return seconds


def main() -> None:
    """Print the quartiles of each hook, for each kind of tasks."""
    graph = no_ops(TASKS)
    works: dict[str, tuple[Any, Any]] = {"tasks that do nothing": (graph, list(graph))}
    for name in ("climatology", "image"):
        (optimized,) = dask.optimize(WORKS[name]("small"))
        works[name] = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    with tempfile.TemporaryDirectory() as folder:
        for name, (graph, keys) in works.items():
            print(f"{name}: quartiles, µs")
            for title, seconds in measure(graph, keys, Path(folder) / "run.diag").items():
                if len(seconds) < 2:
                    # As what waits need, which is done for one task of many.
                    print(f"  {title:36}called {len(seconds)} times")
                    continue
                quartiles = "".join(f"{1e6 * quartile:8.1f}" for quartile in quantiles(seconds))
                print(f"  {title:36}{quartiles}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
