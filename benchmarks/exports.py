"""Measure exports of 1,000,000 tasks: seconds, memory beyond the recording, and size of the files.

``python -m benchmarks.exports``
"""

from __future__ import annotations

import ctypes
import gc
import importlib.util
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import dask.threaded
import numpy as np

from dask_diag import Profiler, Recording, ResourceProfiler, export
from dask_diag.columns import Labels, Texts
from dask_diag.recording import Table

TASKS = 1_000_000
NAME = "0123456789abcdef0123456789abcdef"
PATHS = (
    "run.perfetto.json",
    "run.perfetto.json.gz",
    "run.csv",
    "run.json",
    "run.parquet",
)

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
    """What profilers tell of a compute on two threads, again and again up to all tasks."""
    with Profiler() as profiler, ResourceProfiler(0.01) as resources:
        dask.threaded.get(graph(50_000), ("total-" + NAME, 0))
    return repeated(Recording.combine([profiler.recording, resources.recording]), TASKS)


def repeated(recording: Recording, rows: int) -> Recording:
    """The same compute time and again, later each time, as one of so many tasks or more."""
    tasks, computes, resources = recording.tasks, recording.computes, recording.resources
    keys = tasks["key"].tolist()
    parts = []
    for n in range(-(-rows // len(tasks))):
        later = n * (recording.stop - recording.start)
        names = [f"1-{n}"]
        columns = {name: tasks[name] for name in tasks.columns}
        for name in ("start", "stop", "submitted", "collected"):
            columns[name] = tasks[name] + later
        columns["key"] = Texts.of(key.replace(NAME[:8], f"{n:08x}") for key in keys)
        columns["compute"] = Labels(np.zeros(len(tasks), np.uint8), names)
        one = {name: computes[name] for name in computes.columns}
        one |= {name: computes[name] + later for name in ("start", "stop")}
        one["compute"] = Labels([0], names)
        sampled = {name: resources[name] for name in resources.columns}
        sampled["time"] = resources["time"] + later
        parts.append(
            replace(
                recording,
                stop=recording.stop + later,
                tasks=Table(columns),
                computes=Table(one),
                resources=Table(sampled),
                processes=Table({}),
            )
        )
    return Recording.combine(parts)


def write(recording: Recording, path: Path, told: Any) -> None:
    """Export in a process of its own, and tell seconds and bytes."""
    before = resident()
    begun = time.perf_counter()
    export(recording, path)
    took = time.perf_counter() - begun
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    told.send((took, most - before, path.stat().st_size))


def resident() -> int:
    """Bytes that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def rows() -> Iterator[Row]:
    """What was measured, the figure, and its bar."""
    recording = measured_recording()
    gc.collect()
    # What the allocator keeps would be taken again, and not be seen to be needed.
    ctypes.CDLL(None).malloc_trim(0)
    context = multiprocessing.get_context("fork")
    yield "tasks", f"{len(recording.tasks):,}", ""
    yield "dependencies", f"{len(recording.needs):,}", ""
    yield "the recording's process", f"{resident() / 1e6:,.0f} MB", ""
    with tempfile.TemporaryDirectory() as folder:
        for name in PATHS:
            if name.endswith(".parquet") and importlib.util.find_spec("pyarrow") is None:
                yield name, "pyarrow is missing", ""
                continue
            path = Path(folder) / name
            hear, tell = context.Pipe(duplex=False)
            # A forked process has the recording, and a peak of memory that begins here.
            child = context.Process(target=write, args=(recording, path, tell))
            child.start()
            tell.close()
            try:
                took, memory, size = hear.recv()
            except EOFError:
                yield name, "failed", ""
                continue
            finally:
                child.join()
                path.unlink(missing_ok=True)
            yield f"{name}: seconds", f"{took:.1f} s", "≤ 20 s"
            yield f"{name}: memory beyond", f"{memory / 1e6:,.0f} MB", "≤ 500 MB"
            yield f"{name}: size", f"{size / 1e6:,.0f} MB", ""


def main() -> None:
    """Print a line for each measurement."""
    for what, figure, bar in rows():
        print(f"{what:40}{figure:>20}{bar:>12}", flush=True)


if __name__ == "__main__":
    main()
