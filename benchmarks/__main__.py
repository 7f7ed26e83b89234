"""Measure all that has a bar, against a peer where there is one: ``python -m benchmarks``.

Times are medians of several runs taken in turn; ratios are of runs side by side. Instructions are
counted by valgrind, where it is installed (``apt-get install valgrind``).
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from rich import box
from rich.console import Console
from rich.table import Table

SIZES = (1000, 5000, 20000)

# Bytecode is cached, as it is for installed packages: imports are not compiled each time.
ENVIRONMENT = {**os.environ, "PYTHONHASHSEED": "0"}
ENVIRONMENT.pop("PYTHONDONTWRITEBYTECODE", None)


def child(*arguments: str, under: tuple[str, ...] = ()) -> subprocess.CompletedProcess[str]:
    """Run a case in a process of its own."""
    return subprocess.run(
        [*under, sys.executable, "-m", "benchmarks.cases", *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=ENVIRONMENT,
    )


def measured(case: str, package: str) -> dict[str, float]:
    """The numbers of one run."""
    numbers: dict[str, float] = json.loads(child(case, package).stdout.splitlines()[-1])
    return numbers


def in_turn(case: str, runs: int, *packages: str) -> dict[str, list[dict[str, float]]]:
    """The numbers of several runs, one of each in turn, so that a busy machine hits all alike."""
    numbers: dict[str, list[dict[str, float]]] = {name: [] for name in packages}
    for _ in range(runs):
        for name in packages:
            numbers[name].append(measured(case, name))
    return numbers


def instructions(package: str) -> dict[int, int]:
    """Instructions of a whole process, by the number of tasks that it computed."""
    callgrind = ("valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null")
    counts = {}
    # The first run may compile bytecode, which later ones find.
    child("run_no_ops", package, str(SIZES[0]))
    for tasks in SIZES:
        output = child("run_no_ops", package, str(tasks), under=callgrind).stderr
        count = re.search(r"Collected : (\d+)", output)
        if count is None:
            raise RuntimeError(f"expected valgrind to print a count, found: {output[-500:]}")
        counts[tasks] = int(count[1])
    return counts


Row = tuple[str, str, str, str, str]


def instructions_added() -> Iterator[Row]:
    """What a profiler adds to a task, between every two sizes: garbage collection makes it jump."""
    title = "instructions added per no-op task, Profiler"
    if shutil.which("valgrind") is None:
        yield (title, "not measured", "not measured", "valgrind is not installed", "≤ 0.85")
        return
    counts = {package: instructions(package) for package in ("none", "dask", "dask_diag")}
    for small, large in ((SIZES[0], SIZES[-1]), *itertools.pairwise(SIZES)):
        per_task = {
            package: (count[large] - count[small]) / (large - small)
            for package, count in counts.items()
        }
        peer, own = (per_task[package] - per_task["none"] for package in ("dask", "dask_diag"))
        name = f"{title} ({small:,} to {large:,} tasks)"
        yield (name, f"{peer:,.0f}", f"{own:,.0f}", f"{own / peer:.2f}", "≤ 0.85")


def computations_of_two() -> Iterator[Row]:
    """What profilers add to a computation of two tasks, on threads."""
    figures = measured("computations_of_two", "dask_diag")
    for name, milliseconds in (("Profiler", "0.1"), ("record", "0.5")):
        added = f"{1e3 * (figures[name] - figures['plain']):.2f} ms"
        title = f"a computation of two tasks, {name}"
        yield (f"{title}, added", "none", added, "", f"≤ {milliseconds} ms")
        size = f"{figures[f'{name} bytes']:,.0f}"
        yield (f"{title}, bytes retained", "none", size, "", "≤ 1,500")


def slow_down_of_cache() -> Iterator[Row]:
    """How much longer a computation takes that holds many results."""
    runs = in_turn("cache_of_many", 5, "none", "dask_diag")
    once = in_turn("cache_of_many", 1, "none", "dask")

    def ratio(numbers: dict[str, list[dict[str, float]]], package: str) -> float:
        pairs = zip(numbers[package], numbers["none"], strict=True)
        return median(with_it["seconds"] / without["seconds"] for with_it, without in pairs)

    peer, own = ratio(once, "dask"), ratio(runs, "dask_diag")
    name = "slow-down by CacheProfiler, 40,001 tasks, 20,000 held"
    yield (name, f"{peer:.2f}x", f"{own:.2f}x", f"{own / peer:.2f}", "≤ 1.10x")


def bytes_retained() -> Iterator[Row]:
    """What a profiler retains of each task."""
    peer, own = (measured("retained", package)["bytes"] for package in ("dask", "dask_diag"))
    name = "bytes retained per task, Profiler"
    yield (name, f"{peer:.0f}", f"{own:.0f}", f"{own / peer:.2f}", "≤ 100")


def plots() -> Iterator[Row]:
    """Seconds and megabytes of plots."""
    for case, name, bars in (
        ("cache_plot", "cache plot of 1,573 tasks", ("≤ 1 s", "≤ 1 MB")),
        ("task_plot", "task plot of 157,147 tasks", ("≤ 3 s", "≤ 8 MB")),
    ):
        peer, own = (measured(case, package) for package in ("dask", "dask_diag"))
        for unit, short, bar in zip(("seconds", "megabytes"), ("s", "MB"), bars, strict=True):
            yield (
                f"{name}, {unit}",
                f"{peer[unit]:.2f} {short}",
                f"{own[unit]:.2f} {short}",
                f"{own[unit] / peer[unit]:.3f}",
                bar,
            )


def task_stream() -> Iterator[Row]:
    """The task plot of a million tasks."""
    figures = measured("task_stream", "dask_diag")
    for part, unit, bar in (
        ("seconds", "s", "≤ 5 s"),
        ("megabytes", "MB", "≤ 8 MB"),
        ("first_paint", "s", "≤ 3 s"),
    ):
        name = f"task plot of 1,000,000 tasks, {part.replace('_', ' ')}"
        yield (name, "none", f"{figures[part]:.2f} {unit}", "", bar)


def import_time() -> Iterator[Row]:
    """What importing the package adds to importing dask."""
    runs = in_turn("importing", 11, "dask", "dask_diag")
    for part, name, bar in (
        ("package", "import, CPU beyond import dask", "≤ 15 ms"),
        ("names", "import of dask.diagnostics' four classes", ""),
    ):
        peer, own = (
            1e3 * median(run[part] for run in runs[package]) for package in ("dask", "dask_diag")
        )
        yield (name, f"{peer:.1f} ms", f"{own:.1f} ms", f"{own / peer:.2f}", bar)


def meters() -> Iterator[Row]:
    """A call of context_meter.meter, against that of distributed."""
    runs = in_turn("metering", 3, "distributed", "dask_diag")
    for case, bar in (("heard", "≤ 3 µs"), ("unheard", "≤ 1 µs")):
        peer, own = (
            min(run[case] for run in runs[package]) for package in ("distributed", "dask_diag")
        )
        name = f"context_meter.meter, {case} (against distributed)"
        yield (name, f"{peer:.2f} µs", f"{own:.2f} µs", f"{own / peer:.2f}", bar)


def analyses() -> Iterator[Row]:
    """Analyses of many tasks."""
    for case, name, bar in (
        ("breakdown", "breakdown of 1,000,000 tasks", "≤ 5 s, ≤ 1 GB"),
        ("longest_path", "critical path of 1,000,000 tasks", "seconds"),
    ):
        figures = measured(case, "dask_diag")
        figure = f"{figures['seconds']:.2f} s, {figures['megabytes']:.0f} MB"
        yield (name, "none", figure, "", bar)


def explanations() -> Iterator[Row]:
    """What waits=True adds to a computation on 4 threads."""
    for case, ratio in measured("explained", "dask_diag").items():
        yield (f"waits=True, 4 threads, {case}", "none", f"{ratio:.3f}x", "", "≤ 1.02x")


def main() -> None:
    """Print a row for each measurement."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for heading in ("what", "peer (dask.diagnostics)", "dask_diag", "ratio", "bar"):
        table.add_column(heading, justify="left" if heading == "what" else "right")
    for part in (
        instructions_added,
        computations_of_two,
        slow_down_of_cache,
        bytes_retained,
        plots,
        task_stream,
        import_time,
        meters,
        analyses,
        explanations,
    ):
        print(f"measuring: {part.__name__.replace('_', ' ')} ...", file=sys.stderr, flush=True)
        for row in part():
            table.add_row(*row)
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
