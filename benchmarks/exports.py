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
from pathlib import Path
from typing import Any

from benchmarks.measured import recording_of
from dask_diag import Profiler, Recording, ResourceProfiler, export

TASKS = 1_000_000
PATHS = (
    "run.perfetto.json",
    "run.perfetto.json.gz",
    "run.csv",
    "run.json",
    "run.parquet",
)

Row = tuple[str, str, str]


def write(recording: Recording, path: Path, results: Any) -> None:
    """Export in a process of its own, and send seconds and bytes."""
    before = resident()
    start = time.perf_counter()
    export(recording, path)
    took = time.perf_counter() - start
    most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    results.send((took, most - before, path.stat().st_size))


def resident() -> int:
    """Bytes that this process has."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize()


def rows() -> Iterator[Row]:
    """What was measured, the figure, and its bar."""
    recording = recording_of(TASKS, Profiler(), ResourceProfiler(0.01))
    gc.collect()
    # What the allocator retains would be used again, and not be counted.
    ctypes.CDLL(None).malloc_trim(0)
    context = multiprocessing.get_context("fork")
    yield "tasks", f"{len(recording.tasks):,}", ""
    yield "dependencies", f"{len(recording.dependencies):,}", ""
    yield "the recording's process", f"{resident() / 1e6:,.0f} MB", ""
    with tempfile.TemporaryDirectory() as folder:
        for name in PATHS:
            if name.endswith(".parquet") and importlib.util.find_spec("pyarrow") is None:
                yield name, "pyarrow is missing", ""
                continue
            path = Path(folder) / name
            receiver, sender = context.Pipe(duplex=False)
            # A forked process has the recording, and a peak of memory that begins here.
            child = context.Process(target=write, args=(recording, path, sender))
            child.start()
            sender.close()
            try:
                took, memory, size = receiver.recv()
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
