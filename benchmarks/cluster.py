"""Measure what recording a cluster costs: ``python -m benchmarks.cluster [million [N]]``.

Blocks with and without a profiler take turns on one cluster, so that a busy machine hits both
alike; ratios are of CPU seconds, attaching and the last pull included. ``million`` records a
million tasks into a file instead, or as many as the next argument says, which takes half an
hour on a busy machine: it submits no more after 40 minutes, and says on stderr how far it is. The
keys of a map share a token; with ``pure``, as a last argument, each has its own, which are sixteen
bytes that nothing makes smaller: its bar is that of the others and these.
"""

from __future__ import annotations

import contextlib
import gc
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import dask
import psutil
from distributed import Client, wait

from benchmarks.clusters import await_forgotten, cluster
from dask_diag import Profiler, load, record
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.storage.codec import ByteWriter, RecentTasks, encode_table

TASKS = 5_000
PAIRS = 10
MILLION = 1_000_000
AT_ONCE = 20_000
"""Tasks of a million that the client submits before it waits for them."""
MOST_SECONDS = 2_400.0
"""After which a million is not gone on with."""
QUICKLY = {
    "distributed.scheduler.worker-saturation": float("inf"),
    "distributed.scheduler.work-stealing": False,
}
"""Tasks that do nothing take a half of the time if they are sent as soon as they come."""

ROWS_OF_A_CHUNK = 1_000
"""Of a second, about."""

Row = tuple[str, str, str]


def no_op(n: int) -> None:
    """Do nothing."""


def cpu_seconds(client: Client, processes: bool) -> tuple[float, float]:
    """CPU of this process, which has client and scheduler, and of those of the workers."""
    workers = sum(client.run(time.process_time).values()) if processes else 0.0
    return time.process_time(), workers


def block(client: Client, tasks: int, profiler: Any, processes: bool) -> tuple[float, float]:
    """CPU seconds of a map of tasks that do nothing, outside of workers and in them.

    They are read when all is forgotten: that goes on while a profiler is left, and would be
    counted there only. Where these are one process, attaching to each of them is not in it: that
    is no cost of tasks.
    """
    before = cpu_seconds(client, processes)
    with profiler:
        if not processes:
            before = cpu_seconds(client, processes)
        client.gather(client.map(no_op, range(tasks), pure=False))
        if not processes:
            await_forgotten(client)
            after = cpu_seconds(client, processes)
    if processes:
        await_forgotten(client)
        after = cpu_seconds(client, processes)
    return after[0] - before[0], after[1] - before[1]


def pairs(
    client: Client, tasks: int, count: int, processes: bool
) -> list[tuple[tuple[float, float], tuple[float, float]]]:
    """CPU seconds with and without a profiler, in turn, and each first in every other pair."""
    measured = []
    for pair in range(count + 1):
        kinds: list[Callable[[], Any]] = [Profiler, contextlib.nullcontext]
        order = [0, 1] if pair % 2 else [1, 0]
        seconds = {n: block(client, tasks, kinds[n](), processes) for n in order}
        measured.append((seconds[0], seconds[1]))
    # The first one fills caches.
    return measured[1:]


def overhead() -> Iterator[Row]:
    """What a profiler adds to 5,000 tasks on two worker processes."""
    with cluster(2, processes=True) as client:
        measured = pairs(client, TASKS, PAIRS, processes=True)
    for index, where in enumerate(("client and scheduler", "workers")):
        ratios = sorted(with_it[index] / without[index] for with_it, without in measured)
        plain = median(without[index] for _, without in measured)
        added = median(with_it[index] - without[index] for with_it, without in measured)
        yield (
            f"CPU of {where}, {TASKS:,} no-ops on 2 × 1",
            f"{median(ratios):.3f}x ({ratios[0]:.2f} to {ratios[-1]:.2f}; "
            f"{1e6 * added / TASKS:.0f} of {1e6 * plain / TASKS:.0f} µs a task)",
            "≤ 1.03x",
        )


def attaching() -> Iterator[Row]:
    """How long it takes to join a cluster, and to leave it."""
    joining, leaving = [], []
    with cluster(2, processes=True) as client:
        for _ in range(11):
            profiler = Profiler()
            start = time.perf_counter()
            profiler.__enter__()
            joined = time.perf_counter()
            client.submit(no_op, 0, pure=False).result()
            stop = time.perf_counter()
            profiler.__exit__(None, None, None)
            joining.append(joined - start)
            leaving.append(time.perf_counter() - stop)
    yield "attach, 2 workers", f"{1e3 * median(joining):.0f} ms", "≤ 50 ms"
    yield "the last pull and detach", f"{1e3 * median(leaving):.0f} ms", ""


def many_workers() -> Iterator[Row]:
    """What a profiler adds to a task, where there are more workers."""
    for workers in (2, 16, 64):
        with cluster(workers, processes=False) as client:
            measured = pairs(client, TASKS, PAIRS // 2, processes=False)
        added = median(with_it[0] - without[0] for with_it, without in measured)
        plain = median(without[0] for _, without in measured)
        yield (
            f"CPU added, {workers} workers in one process",
            f"{1e6 * added / TASKS:.0f} of {1e6 * plain / TASKS:.0f} µs a task",
            "does not grow",
        )


def memory_of_scheduler() -> Iterator[Row]:
    """What the scheduler has collected and not handed out yet."""
    with cluster(2, processes=False) as client, Profiler() as prof:
        plugin = client.cluster.scheduler.plugins["dask_diag"]
        peak = 0
        futures = client.map(no_op, range(4 * TASKS), pure=False)
        while not all(future.done() for future in futures[-10:]):
            peak = max(peak, held(plugin))
            time.sleep(0.02)
        client.gather(futures)
        del futures
        while client.cluster.scheduler.tasks:
            time.sleep(0.01)
        prof.clusters.pull()
        prof.clusters.pull()
        yield "held by the scheduler, at peak", f"{peak / 1e3:.0f} kB", "≤ 64 MB"
        yield "the same, after the pull", f"{held(plugin) / 1e3:.0f} kB", "0 kB"


def held(plugin: Any) -> int:
    """Bytes of all sessions."""
    return sum(session.size + session.sealed_size for session in plugin.sessions.by_name.values())


def million(count: int, pure: bool) -> Iterator[Row]:
    """Many tasks in a file."""
    with (
        tempfile.TemporaryDirectory() as folder,
        dask.config.set(QUICKLY),
        cluster(2, processes=True) as client,
    ):
        path = Path(folder) / "run.diag"
        plain = run_batches(client, min(count, AT_ONCE), pure=False, peak=lambda: 0)
        before = resident_bytes()
        with record(path, waits=False) as run:
            plugin = client.cluster.scheduler.plugins["dask_diag"]
            ran = run_batches(client, count, pure, partial(held, plugin))
            # One pull brings what there is, the next one says that it came.
            run.tasks.clusters.pull()
            run.tasks.clusters.pull()
            pulled = held(plugin), len(plugin.runs.tasks)
            after = resident_bytes()
        size = os.stat(path).st_size
        del run
        recording = load(path)
        tasks = recording.tasks
        yield "tasks that ran", f"{ran.tasks:,}", f"{count:,}"
        yield "tasks in the file", f"{len(tasks):,}", f"{ran.tasks:,}"
        yield "distinct keys", f"{len(set(tasks.key.tolist())):,}", f"{ran.tasks:,}"
        yield "notices", f"{len(recording.notices)}", "0"
        yield "tasks a second", f"{ran.tasks / ran.seconds:,.0f}", ""
        yield (
            f"the same of {plain.tasks:,}, not recorded",
            f"{plain.tasks / plain.seconds:,.0f}",
            "",
        )
        of_tokens = ", of which 16 are its own token" if pure else ""
        yield f"bytes a task{of_tokens}", f"{size / len(tasks):.1f}", "≤ 15"
        memory = " and ".join(f"{rss / 1e6:.0f} MB" for rss in (before, after))
        yield "client and scheduler (RSS), before and after", memory, ""
        yield "held by the scheduler, at peak", f"{ran.peak / 1e6:.1f} MB", "≤ 64 MB"
        yield "the same, after the pull", f"{pulled[0]:,} bytes, {pulled[1]} tasks", "0 bytes"
        yield from bytes_by_column(recording)
        yield "wall time", f"{ran.seconds:.0f} s", f"≤ {MOST_SECONDS:.0f} s"


class Ran(NamedTuple):
    """How many tasks ran, in how many seconds; the peak of what was asked for meanwhile."""

    tasks: int
    seconds: float
    peak: int


def run_batches(client: Client, count: int, pure: bool, peak: Callable[[], int]) -> Ran:
    """Run tasks that do nothing, a batch at a time, until all are done and forgotten."""
    start, most = time.perf_counter(), 0
    done = 0
    while done < count and time.perf_counter() - start < MOST_SECONDS:
        futures = client.map(no_op, range(done, min(done + AT_ONCE, count)), pure=pure)
        wait(futures, timeout=MOST_SECONDS)
        done += len(futures)
        del futures
        while client.cluster.scheduler.tasks:
            time.sleep(0.01)
        most = max(most, peak())
        rate = done / (time.perf_counter() - start)
        print(f"{done:,} of {count:,}: {rate:,.0f} tasks a second", file=sys.stderr, flush=True)
    return Ran(done, time.perf_counter() - start, most)


def resident_bytes() -> int:
    """The memory of this process, after what can be freed is."""
    gc.collect()
    return int(psutil.Process().memory_info().rss)


def bytes_by_column(recording: Recording) -> Iterator[Row]:
    """What each column takes in chunks as `record` writes them, without their heads."""
    count = len(recording.tasks)
    for name in ("tasks", "cached_results"):
        table = getattr(recording, name)
        sizes: dict[str, int] = {}
        for first in range(0, len(table), ROWS_OF_A_CHUNK):
            chunk = slice(first, first + ROWS_OF_A_CHUNK)
            rows, before = table.filter(chunk), 0
            # Results are released in another order than they came, when all of a map are there.
            near = slice(max(0, first - AT_ONCE), first + 2 * AT_ONCE)
            of_results = RecentTasks().plus(recording.tasks.filter(near))
            tasks = of_results if name == "cached_results" else None
            for index, column in enumerate(rows.columns, 1):
                out, columns = ByteWriter(), rows.columns[:index]
                encode_table(Table({c: rows[c] for c in columns}), out, name, tasks)
                size = len(out.getvalue(b"", 1))
                sizes[column] = sizes.get(column, 0) + size - before
                before = size
        costly = {column: size / count for column, size in sizes.items() if size / count >= 0.05}
        columns = ", ".join(f"{column} {size:.1f}" for column, size in costly.items())
        yield f"bytes a task in {name}", f"{sum(sizes.values()) / count:.1f}", ""
        yield "", columns, ""


def main() -> None:
    """Print a line for each measurement."""
    parts = [overhead, attaching, many_workers, memory_of_scheduler]
    if "million" in sys.argv:
        counts = [int(text) for text in sys.argv if text.isdigit()]
        parts = [partial(million, counts[0] if counts else MILLION, "pure" in sys.argv)]
    for part in parts:
        for what, figure, bar in part():
            print(f"{what:48}{figure:>60}{bar:>16}", flush=True)


if __name__ == "__main__":
    main()
