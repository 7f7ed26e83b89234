"""Measure recording files: ``python -m benchmarks.files``.

Size and seconds are of 1,000,000 tasks as a profiler records them; streaming is what `record` adds
to profilers that run anyway: CPU time of its thread per task, less what it does in place of the
computation's own; and wall time per task, which on a busy machine is hardly told from noise. Each
is
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

from dask.local import get_sync

import dask_diag
from benchmarks.measured import NAME, graph, recording_of
from dask_diag import Profiler, Recording
from dask_diag.capture import computation as computation
from dask_diag.capture.tasks.task_log import Dependencies
from dask_diag.profilers.group import ProfilerGroup
from dask_diag.profilers.record import record

TASKS = 1_000_000
STREAMED = 100_000
RUNS = 3

Row = tuple[str, str, str]


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


class TimedNeeds(Dependencies):
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
    computation.Dependencies = TimedNeeds  # type: ignore[misc]
    cpu, wall, without = [], [], []
    for _ in range(RUNS):
        begun = time.perf_counter()
        with ProfilerGroup():
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
        recording = recording_of(TASKS, Profiler())
        for what, each in (
            ("", recording),
            (
                ", without needs",
                replace(recording, dependencies=recording.dependencies.rows(slice(0))),
            ),
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
