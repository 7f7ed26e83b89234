"""Planted programs on how work is divided into tasks."""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import dask
import dask.array as da
import dask.bag as db
from dask.base import get_scheduler
from dask.callbacks import Callback

from tests.diagnosis.program import SLEEPING, Program, threads
from tests.diagnosis.work import add, compute, make_array, pause


def get(dsk: dict[Any, Any], keys: Any) -> Any:
    """Compute a graph with the configured scheduler, as ``dask.compute`` would."""
    scheduler = get_scheduler()
    assert scheduler is not None
    return scheduler(dsk, keys, num_workers=dask.config.get("num_workers", None))


def computed(tasks: dict[Any, Any]) -> int:
    """The sum of all results of a graph."""
    return sum(get(tasks, list(tasks)))


def many_small_chunks(_: None, remedied: bool) -> float:
    values = da.arange(2_000_000, chunks=100_000 if remedied else 1_000)
    return float((values * 2 + 1).sum().compute())


def no_operations(_: None, remedied: bool) -> int:
    # Sums of sums: as many additions, in fewer tasks.
    size = 40 if remedied else 1
    dsk: dict[Any, Any] = {
        ("work", n): (add, *range(n * size, (n + 1) * size)) for n in range(6000 // size)
    }
    dsk["total"] = (add, *dsk)
    return int(get(dsk, "total"))


def callback(_: None, remedied: bool) -> int:
    """A callback that writes the names of all tasks that are done after each of them."""
    done: list[str] = []

    def write(key: Any, *_: Any) -> None:
        done.append(str(key))
        if not remedied or len(done) % 500 == 0:
            page.write_text(json.dumps(sorted(done), indent=1))

    with tempfile.TemporaryDirectory() as folder, Callback(posttask=write):
        page = Path(folder, "page.json")
        return computed({("work", n): (add, n, n) for n in range(1500)})


def chain(_: None, remedied: bool) -> int:
    step = None if remedied else ("work",)
    dsk = {
        ("work", n): (pause, 0.06, *([("work", n - 1)] if n and step else [])) for n in range(20)
    }
    return computed(dsk)


def straggler(_: None, remedied: bool) -> int:
    dsk: dict[Any, Any] = {("work", n): (pause, 0.04) for n in range(20)}
    dsk["late", 0] = (pause, 0.01)
    parts = 20 if remedied else 1
    for part in range(parts):
        dsk["work", 100 + part] = (pause, 1.2 / parts, ("late", 0))
    return computed(dsk) - parts


def two_stragglers(_: None, remedied: bool) -> int:
    parts = 20 if remedied else 1
    dsk: dict[Any, Any] = {("work", n): (pause, 0.04) for n in range(40)}
    dsk |= {("work", 100 + n): (pause, 1.2 / parts) for n in range(2 * parts)}
    return computed(dsk) - 2 * parts


def uneven_end(_: None, remedied: bool) -> int:
    parts = 24 if remedied else 3
    return computed({("work", n): (pause, 1.8 / parts) for n in range(parts)}) // parts


def one_chunk(_: None, remedied: bool) -> int:
    parts = 10 if remedied else 1
    return computed({("work", n): (pause, 1.2 / parts) for n in range(parts)}) // parts


def computed_one_by_one(_: None, remedied: bool) -> float:
    values = da.ones((100_000,), chunks=1)
    parts = [values[n * 100 : n * 100 + 1].sum() for n in range(10)]
    if remedied:
        return float(sum(dask.compute(*parts)))
    return float(sum(part.compute() for part in parts))


def increment(value: int) -> int:
    return value + 1


def increment_often(value: int, times: int) -> int:
    return value + times


def many_steps(_: None, remedied: bool) -> int:
    steps = 24
    values = db.from_sequence(range(250), npartitions=250)
    if remedied:
        return int(values.map(increment_often, steps).sum().compute())
    for _ in range(steps):
        values = values.map(increment)
    return int(values.sum().compute())


def healthy_threads(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute, 0.05) for n in range(24)})


def healthy_array(_: None, remedied: bool) -> float:
    values = da.from_delayed(dask.delayed(make_array)(4_000_000), (4_000_000,), float).rechunk(
        500_000
    )
    return float((values**3 + values**2).sum().compute())


def healthy_synchronous(_: None, remedied: bool) -> int:
    return computed({("work", n): (compute, 0.03) for n in range(20)})


"""True of programs that sleep for want of something to wait for."""

PROGRAMS = (
    Program(
        "many small chunks",
        many_small_chunks,
        "tasks-too-small",
        true=frozenset({"scheduler-bound", "graph-preparation"}),
    ),
    Program(
        "no-op tasks",
        no_operations,
        "tasks-too-small",
        true=frozenset({"scheduler-bound", "graph-preparation"}),
        remaining=frozenset({"scheduler-bound", "tasks-too-small"}),
        settings=threads(8),
    ),
    Program(
        "a callback after each task",
        callback,
        "scheduler-bound",
        remaining=frozenset({"tasks-too-small"}),
    ),
    # Tasks of these sleep, so that what else the machine does hardly matters.
    Program("chain of tasks", chain, "serial-chain", remaining=SLEEPING),
    Program("straggler", straggler, "straggler", true=SLEEPING, remaining=SLEEPING),
    Program(
        "two stragglers",
        two_stragglers,
        "straggler",
        SLEEPING,
        SLEEPING,
        settings=threads(4),
    ),
    Program("three tasks for two workers", uneven_end, "imbalance", SLEEPING, SLEEPING),
    Program("one chunk", one_chunk, "chunks-too-large", remaining=SLEEPING),
    Program(
        "computed one by one",
        computed_one_by_one,
        "graph-preparation",
        remaining=frozenset({"graph-preparation"}),
    ),
    Program(
        "many steps on small partitions",
        many_steps,
        "graph-preparation",
        true=frozenset({"tasks-too-small", "scheduler-bound"}),
        remaining=frozenset({"graph-preparation", "tasks-too-small", "scheduler-bound"}),
    ),
    Program("healthy: threads", healthy_threads),
    Program("healthy: array", healthy_array),
    # One task at a time leaves a CPU idle.
    Program(
        "healthy: synchronous",
        healthy_synchronous,
        true=frozenset({"too-few-threads"}),
        settings={"scheduler": "synchronous"},
    ),
)
