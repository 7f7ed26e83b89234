"""How right the simulator is, and how quick: ``python -m benchmarks.simulate [WORKLOAD ...]``.

Workloads are recorded and replayed as they were. Graphs of tasks that sleep are recorded on one
worker, and the wall time on others is predicted and measured: what else the machine does counts
little for them. Seconds of the simulator are CPU seconds.
"""

from __future__ import annotations

import random
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from importlib.util import find_spec
from typing import Any

import numpy as np

from benchmarks.made_up import many_tasks
from benchmarks.workloads import WORKLOADS
from dask_diag import Profiler, Recording, simulate
from dask_diag.model.table import Table

SCHEDULERS = (("synchronous", 1), ("threads", 1), ("threads", 2), ("threads", 4), ("processes", 2))
WORKERS = (2, 4, 8, 16)
GRAPHS = 3
RUNS = 2
NEEDS = {"groupby": "pandas"}

Row = tuple[str, str, str, str]
"""What, measured, simulated, and their ratio."""


def replays(names: list[str]) -> Iterator[Row]:
    """Each workload on each scheduler, replayed without a change."""
    for name in names:
        module = NEEDS.get(name, "numpy")
        if find_spec(module) is None:
            yield name, f"not measured: pip install {module}", "", ""
            continue
        for scheduler, workers in SCHEDULERS:
            with Profiler() as prof:
                WORKLOADS[name]().compute(scheduler=scheduler, num_workers=workers)
            what = f"{name}, {len(prof.recording.tasks):,} tasks, {scheduler} {workers}"
            yield compared(what, wall(prof.recording), simulate(prof.recording).seconds)


def predictions() -> Iterator[Row]:
    """Random graphs of tasks that sleep, predicted from one worker; the quicker of two runs."""
    for seed in range(GRAPHS):
        graph = sleeping(seed)
        single = recorded(graph, 1)
        for workers in WORKERS:
            measured = min(wall(recorded(graph, workers)) for _ in range(RUNS))
            predicted = simulate(single, workers=workers).seconds
            yield compared(f"sleeping graph {seed}, 1 → {workers} workers", measured, predicted)


def sleeping(seed: int, count: int = 150) -> dict[Any, Any]:
    """A graph of tasks that sleep 5 to 45 ms."""
    chance = random.Random(seed)
    graph: dict[Any, Any] = {}
    for n in range(count):
        needs = chance.sample(range(n), min(n, chance.choice([0, 0, 1, 1, 2, 3])))
        graph["sleep", n] = (pause, 0.005 + 0.04 * chance.random(), *(("sleep", k) for k in needs))
    return graph


def pause(seconds: float, *_: Any) -> None:
    """Sleep."""
    time.sleep(seconds)


def recorded(graph: dict[Any, Any], workers: int) -> Recording:
    """What a profiler records of a graph."""
    import dask.threaded

    with Profiler() as prof:
        dask.threaded.get(graph, list(graph), num_workers=workers)
    return prof.recording


def wall(recording: Recording) -> float:
    """Seconds that were recorded."""
    return recording.stop - recording.start


def compared(what: str, measured: float, simulated: float) -> Row:
    """A row of two times."""
    return what, f"{measured:.3f} s", f"{simulated:.3f} s", f"{simulated / measured:.3f}"


def million() -> Iterator[Row]:
    """The simulator's own CPU seconds."""
    recording = with_dependencies(many_tasks(1_000_000))
    for workers in (None, 16):
        start = time.process_time()
        simulate(recording, workers=workers)
        seconds = time.process_time() - start
        what = f"1,000,000 tasks, {workers or 'as many'} workers (bar: 5 s)"
        yield what, "", f"{seconds:.2f} s of CPU", ""


def with_dependencies(recording: Recording) -> Recording:
    """Each task needs two that ended long before it."""
    count = len(recording.tasks)
    task = np.repeat(np.arange(2_000, count), 2)
    earlier = task - np.random.default_rng(0).integers(1_000, 2_000, len(task))
    return replace(recording, dependencies=Table({"task": task, "depends_on": earlier}))


def main() -> None:
    """Print a line for each measurement."""
    names = sys.argv[1:] or list(WORKLOADS)
    print(f"{'':<48}{'measured':>12}{'simulated':>18}{'ratio':>8}")
    for rows in (replays(names), predictions(), million()):
        for what, measured, simulated, ratio in rows:
            print(f"{what:<48}{measured:>12}{simulated:>18}{ratio:>8}", flush=True)


if __name__ == "__main__":
    main()
