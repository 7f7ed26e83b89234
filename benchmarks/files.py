"""Measure recording files: ``python -m benchmarks.files``.

Size and seconds are of 1,000,000 tasks as a profiler records them. Streaming is what `record` adds
to its profilers: CPU time of its thread per task, without that of collecting dependencies, which
the computation does otherwise; and wall time per task, which is within the noise of a busy machine.
Each figure is the best of several runs; seconds are CPU seconds.
"""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from dask.local import get_sync

from benchmarks.measured import NAME, graph, recording_of
from dask_diag import Profiler, Recording
from dask_diag.capture import computation
from dask_diag.capture.log import DependencyLog
from dask_diag.profilers.record import ProfilerGroup, record
from dask_diag.storage.read import load
from dask_diag.storage.write import save

TASKS = 1_000_000
STREAMED = 100_000
RUNS = 3

Row = tuple[str, str, str]


def files(recording: Recording, path: Path) -> tuple[float, float, float]:
    """Bytes a task, and CPU seconds to save and to load, the best of several runs."""
    saving, loading = [], []
    for _ in range(RUNS):
        start = time.process_time()
        save(recording, path, overwrite=True)
        saved = time.process_time()
        load(path)
        saving.append(saved - start)
        loading.append(time.process_time() - saved)
    return path.stat().st_size / len(recording.tasks), min(saving), min(loading)


class TimedRecord(record):
    """Sums the CPU seconds of writing, without those of collecting dependencies."""

    cpu = 0.0

    def _flush(self) -> None:
        with self._timed():
            super()._flush()

    def _flush_last(self) -> None:
        with self._timed():
            super()._flush_last()

    @contextmanager
    def _timed(self) -> Iterator[None]:
        before, start = TimedDependencies.cpu, time.thread_time()
        yield
        self.cpu += time.thread_time() - start - (TimedDependencies.cpu - before)


class TimedDependencies(DependencyLog):
    """Sums the CPU seconds in which dependencies were collected, in any thread."""

    cpu = 0.0

    def extend(self, *args: Any) -> None:
        """Collect those of new tasks."""
        start = time.thread_time()
        super().extend(*args)
        TimedDependencies.cpu += time.thread_time() - start


def streaming(path: Path) -> tuple[float, float]:
    """CPU and wall microseconds a task, the best of several runs in turn."""
    dsk = graph(STREAMED // 2)
    computation.Dependencies = TimedDependencies  # type: ignore[misc]
    cpu, wall, without = [], [], []
    for _ in range(RUNS):
        start = time.perf_counter()
        with ProfilerGroup(waits=False):
            get_sync(dsk, ("total-" + NAME, 0))
        without.append(time.perf_counter() - start)
        start = time.perf_counter()
        with TimedRecord(path, overwrite=True, waits=False) as run:
            get_sync(dsk, ("total-" + NAME, 0))
        wall.append(time.perf_counter() - start)
        cpu.append(run.cpu)
    return 1e6 * min(cpu) / len(dsk), 1e6 * (min(wall) - min(without)) / len(dsk)


def rows() -> Iterator[Row]:
    """What was measured, the figure, and its bar."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.diag"
        recording = recording_of(TASKS, Profiler())
        for what, variant in (
            ("", recording),
            (
                ", without dependencies",
                replace(recording, dependencies=recording.dependencies.filter(slice(0))),
            ),
        ):
            size, saving, loading = files(variant, path)
            yield f"bytes a task{what}", f"{size:.1f}", "≤ 15"
            yield f"save {TASKS:,} tasks{what}", f"{saving:.2f} s", "≤ 1 s"
            yield f"load {TASKS:,} tasks{what}", f"{loading:.2f} s", "≤ 0.3 s"
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
