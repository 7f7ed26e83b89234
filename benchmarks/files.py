"""Measure recording files: ``python -m benchmarks.files``.

Size and seconds are of 1,000,000 tasks as a profiler records them; streaming is what `record` adds
to profilers that run anyway: CPU time of its thread per task, less what it does in place of the
compute's own; and wall time per task, which on a busy machine is hardly told from noise. Each is
the best of several runs.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from dask.local import get_sync

import dask_diag
from dask_diag import Profiler, Recording
from dask_diag.capture import compute
from dask_diag.capture.all_profilers import AllProfilers
from dask_diag.capture.packed import Needs
from dask_diag.capture.record import record
from dask_diag.columns import Labels, Texts
from dask_diag.recording import Table

TASKS = 1_000_000
STREAMED = 100_000
NAME = "0123456789abcdef0123456789abcdef"
RUNS = 3

Row = tuple[str, str, str]


def graph(blocks: int) -> dict[Any, Any]:
    """Two layers of blocks and a sum over each of their rows of 500."""
    places = [(n // 500, n % 500) for n in range(blocks)]
    dsk: dict[Any, Any] = {("ones-" + NAME, *place): (int,) for place in places}
    dsk |= {("add-" + NAME, *place): (abs, ("ones-" + NAME, *place)) for place in places}
    for row in range(blocks // 500):
        dsk["sum-" + NAME, row] = (len, [("add-" + NAME, row, n) for n in range(500)])
    dsk["total-" + NAME, 0] = (sum, [("sum-" + NAME, row) for row in range(blocks // 500)])
    return dsk


def measured_recording() -> Recording:
    """What a profiler tells of a compute on two threads, again and again up to all tasks."""
    import dask.threaded

    with Profiler() as profiler:
        dask.threaded.get(graph(50_000), ("total-" + NAME, 0))
    return repeated(profiler.recording, TASKS)


def repeated(recording: Recording, rows: int) -> Recording:
    """The same computes one after the other; keys of each have another name, times are later."""
    tasks, length = recording.tasks, len(recording.tasks)
    times = -(-rows // length)
    parts = []
    keys = tasks["key"].tolist()
    clocks = ("start", "stop", "submitted", "collected")
    for n in range(times):
        columns = {name: tasks[name] for name in tasks.columns}
        later = n * (int(recording.stop - recording.start) + 1)
        for name in clocks:
            # A whole number of nanoseconds again, as clocks give them.
            columns[name] = np.rint((tasks[name] + later) * 1e9) / 1e9
        spent = columns["stop"] - columns["start"]
        columns["thread_noncpu"] = spent - tasks["thread_cpu"]
        columns["key"] = Texts.of(key.replace(NAME[:8], f"{n:08x}") for key in keys)
        columns["compute"] = Labels([0] * length, [f"1-{n}"])
        parts.append(replace(recording, tasks=Table(columns)))
    return Recording.combine(parts)


def files(recording: Recording, path: Path) -> tuple[float, float, float]:
    """Bytes a task, and seconds to save and to load, the best of several runs."""
    saving, loading = [], []
    for _ in range(RUNS):
        begun = time.perf_counter()
        recording.save(path, overwrite=True)
        saved = time.perf_counter()
        dask_diag.load(path)
        saving.append(saved - begun)
        loading.append(time.perf_counter() - saved)
    return path.stat().st_size / len(recording.tasks), min(saving), min(loading)


class TimedRecord(record):
    """Tells the CPU seconds of its writing, without those of work that it only does earlier."""

    cpu = 0.0

    def _flush(self, last: bool = False) -> None:
        before = TimedNeeds.cpu
        begun = time.thread_time()
        super()._flush(last)
        self.cpu += time.thread_time() - begun - (TimedNeeds.cpu - before)


class TimedNeeds(Needs):
    """Tells the CPU seconds in which needs were collected, in whichever thread."""

    cpu = 0.0

    def extend(self, *args: Any) -> None:
        """Take up tasks that are new."""
        begun = time.thread_time()
        super().extend(*args)
        TimedNeeds.cpu += time.thread_time() - begun


def streaming(path: Path) -> tuple[float, float]:
    """CPU and wall microseconds a task, the best of several runs in turn."""
    dsk = graph(STREAMED // 2)
    compute.Needs = TimedNeeds  # type: ignore[misc]
    cpu, wall, without = [], [], []
    for _ in range(RUNS):
        begun = time.perf_counter()
        with AllProfilers():
            get_sync(dsk, ("total-" + NAME, 0))
        without.append(time.perf_counter() - begun)
        begun = time.perf_counter()
        with TimedRecord(path, overwrite=True) as run:
            get_sync(dsk, ("total-" + NAME, 0))
        wall.append(time.perf_counter() - begun)
        cpu.append(run.cpu)
    return 1e6 * min(cpu) / len(dsk), 1e6 * (min(wall) - min(without)) / len(dsk)


def rows() -> Iterator[Row]:
    """What was measured, the figure, and its bar."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.diag"
        recording = measured_recording()
        for what, each in (
            ("", recording),
            (", without needs", replace(recording, needs=recording.needs.rows(slice(0)))),
        ):
            size, save, load = files(each, path)
            yield f"bytes a task{what}", f"{size:.1f}", "≤ 20"
            yield f"save {TASKS:,} tasks{what}", f"{save:.2f} s", "≤ 3 s"
            yield f"load {TASKS:,} tasks{what}", f"{load:.2f} s", "≤ 1 s"
        del recording
        cpu, wall = streaming(path)
        yield "streaming, CPU of its thread", f"{cpu:.1f} µs a task", "≤ 2 µs"
        yield "streaming, added to the wall time", f"{wall:.1f} µs a task", "≤ 2 µs"


def main() -> None:
    """Print a line for each measurement."""
    for what, figure, bar in rows():
        print(f"{what:40}{figure:>20}{bar:>12}", flush=True)


if __name__ == "__main__":
    os.environ.setdefault("PYTHONHASHSEED", "0")
    main()
