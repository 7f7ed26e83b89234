"""What sampling costs, compared with py-spy and pyinstrument: ``python -m benchmarks.sampling``.

A fixed amount of work, about a second on four threads, is done in turn with and without a profiler.
Whatever else the machine does only makes it slower, so lower quartiles are compared: of wall time,
and of the CPU time of the process. There are two kinds of work: Python code, which needs the
GIL, and hashing, which releases it.
"""

from __future__ import annotations

import hashlib
import importlib.util
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from statistics import quantiles
from typing import Any

THREADS = 4
ROUNDS = 8
BARS = {"SamplingProfiler, 10ms": "≤ 1%", "SamplingProfiler, 1ms": "≤ 3%"}
NOT_MEASURED = "not measured: "

Row = tuple[str, str, str]
"""What was measured, the figure, and the bar that it should keep."""
Run = tuple[float, float]
"""Wall and CPU seconds of one run."""


def count(rounds: int) -> int:
    """Compute in Python, some calls deep."""
    return sum(_count_some(n) for n in range(rounds))


def _count_some(n: int) -> int:
    total = 0
    for k in range(100):
        total += k * n % 7
    return total


def hash_blocks(rounds: int) -> str:
    """Compute without the GIL."""
    block = bytes(1_000_000)
    digest = hashlib.sha256()
    for _ in range(rounds):
        digest.update(block)
    return digest.hexdigest()


WORK: dict[str, tuple[Callable[[int], Any], int]] = {
    "Python code": (count, 35_000),
    "hashing": (hash_blocks, 350),
}


def run(name: str) -> Run:
    """Do a work once, on four threads."""
    from dask.threaded import get

    function, rounds = WORK[name]
    graph = {(function.__name__, n): (function, rounds) for n in range(2 * THREADS)}
    wall, cpu = time.perf_counter(), time.process_time()
    get(graph, list(graph), num_workers=THREADS)
    return time.perf_counter() - wall, time.process_time() - cpu


def slow_downs(name: str, profiled: dict[str, Callable[[], Any]]) -> dict[str, str]:
    """What each of several profilers adds to a work."""
    run(name)
    plain: list[Run] = []
    within: dict[str, list[Run]] = {label: [] for label in profiled}
    for _ in range(ROUNDS):
        plain.append(run(name))
        for label, profiler in profiled.items():
            with profiler():
                within[label].append(run(name))
    return {label: slower(runs, plain) for label, runs in within.items()}


def slower(within: list[Run], plain: list[Run]) -> str:
    """By how much the quiet runs took longer, in words."""
    wall, cpu = (
        quantiles(with_it, n=4)[0] / quantiles(without, n=4)[0] - 1
        for with_it, without in zip(
            zip(*within, strict=True), zip(*plain, strict=True), strict=True
        )
    )
    return f"{wall:+.1%} wall, {cpu:+.1%} CPU"


def pyinstrument(interval: float) -> Any:
    """Pyinstrument, which samples the thread that starts it."""
    from pyinstrument import Profiler

    return Profiler(interval=interval)


def rows() -> Iterator[Row]:
    """A row for each profiler, interval and kind of work."""
    from dask_diag import Profiler, SamplingProfiler

    profiled: dict[str, Callable[[], Any]] = {
        "Profiler": Profiler,
        "SamplingProfiler, 10ms": lambda: SamplingProfiler("10ms"),
        "SamplingProfiler, 1ms": lambda: SamplingProfiler("1ms"),
    }
    if importlib.util.find_spec("pyinstrument") is not None:
        profiled["pyinstrument, 10ms (only the calling thread)"] = lambda: pyinstrument(0.01)
        profiled["pyinstrument, 1ms (only the calling thread)"] = lambda: pyinstrument(0.001)
    else:
        yield "pyinstrument", NOT_MEASURED + "pip install pyinstrument", ""
    for name in WORK:
        for label, figure in slow_downs(name, profiled).items():
            yield (
                f"{name}, {THREADS} threads: {label}",
                figure,
                BARS.get(label, ""),
            )
        yield from py_spy(name)


def py_spy(name: str) -> Iterator[Row]:
    """What py-spy adds, which samples from another process."""
    command = shutil.which("py-spy") or str(Path(sys.executable).with_name("py-spy"))
    for rate, interval in ((100, "10ms"), (1000, "1ms")):
        what = f"{name}, {THREADS} threads: py-spy, {interval}"
        if not Path(command).exists():
            yield what, NOT_MEASURED + "pip install py-spy", ""
            continue
        within: list[Run] = []
        plain: list[Run] = []
        try:
            for _ in range(2):
                plain += runs_of_child(name)
                within += runs_of_child(name, command, rate)
        except subprocess.CalledProcessError as error:
            reason = (error.stderr or "").strip().splitlines()[-1:] or ["it failed"]
            yield what, NOT_MEASURED + reason[0][:60], ""
            continue
        yield what, slower(within, plain), ""


def runs_of_child(name: str, py_spy: str = "", rate: int = 0) -> list[Run]:
    """A work done several times in a process of its own."""
    work = [sys.executable, "-m", "benchmarks.sampling", name]
    with tempfile.TemporaryDirectory() as folder:
        record = ["record", "--rate", str(rate), "--format", "raw", "--output", f"{folder}/stacks"]
        command = [py_spy, *record, "--", *work] if py_spy else work
        done = subprocess.run(command, capture_output=True, text=True, check=True)
    # py-spy writes to the same stream.
    (output,) = (line for line in done.stdout.splitlines() if line.startswith("[["))
    return [(wall, cpu) for wall, cpu in json.loads(output)]


def main() -> None:
    """Print a line for each measurement; or do a work, and print how long it took."""
    if len(sys.argv) > 1:
        run(sys.argv[1])
        print(json.dumps([run(sys.argv[1]) for _ in range(3)]))
        return
    for what, figure, bar in rows():
        print(f"{what:<70}{figure:<26}{bar}", flush=True)


if __name__ == "__main__":
    main()
