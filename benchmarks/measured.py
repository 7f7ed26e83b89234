"""Recordings of many tasks, of a computation that was measured and is repeated."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

NAME = "0123456789abcdef0123456789abcdef"
CLOCKS = {"start", "stop", "submitted", "collected", "time"}


def graph(blocks: int) -> dict[Any, Any]:
    """Two layers of blocks and a sum over each of their rows of 500."""
    indices = [(n // 500, n % 500) for n in range(blocks)]
    dsk: dict[Any, Any] = {("ones-" + NAME, *index): (int,) for index in indices}
    dsk |= {("add-" + NAME, *index): (abs, ("ones-" + NAME, *index)) for index in indices}
    for row in range(blocks // 500):
        dsk["sum-" + NAME, row] = (len, [("add-" + NAME, row, n) for n in range(500)])
    dsk["total-" + NAME, 0] = (sum, [("sum-" + NAME, row) for row in range(blocks // 500)])
    return dsk


def recording_of(rows: int, *profilers: Any) -> Recording:
    """What profilers record of a computation on two threads, repeated up to so many tasks."""
    import dask.threaded

    for profiler in profilers:
        profiler.__enter__()
    dask.threaded.get(graph(50_000), ("total-" + NAME, 0))
    for profiler in reversed(profilers):
        profiler.__exit__(None, None, None)
    one = Recording.combine([profiler.recording for profiler in profilers])
    keys = one.tasks["key"].tolist()
    times = -(-rows // len(one.tasks))
    return Recording.combine(_again(one, keys, number) for number in range(times))


def _again(one: Recording, keys: list[str], number: int) -> Recording:
    later = number * (int(one.stop - one.start) + 1)
    names = [f"1-{number}"]
    tasks = _later(one.tasks, later, names)
    tasks["thread_noncpu"] = tasks["stop"] - tasks["start"] - tasks["thread_cpu"]
    # Another computation has other tokens in its keys.
    tasks["key"] = PrefixStrings.of(key.replace(NAME[:8], f"{number:08x}") for key in keys)
    return replace(
        one,
        stop=one.stop + later,
        tasks=Table(tasks),
        computations=Table(_later(one.computations, later, names)),
        resources=Table(_later(one.resources, later, names)),
        processes=Table({}),
    )


def _later(table: Table, later: float, names: list[str]) -> dict[str, Any]:
    columns = {name: table[name] for name in table.columns}
    for name in CLOCKS & set(columns):
        # A whole number of nanoseconds again, as clocks give them.
        columns[name] = np.rint((columns[name] + later) * 1e9) / 1e9
    if "computation" in columns:
        columns["computation"] = Categorical(np.zeros(len(table), np.uint8), names)
    return columns
