"""What hooks cost between real tasks: ``python -m benchmarks.switched [SECONDS [WORK]]``.

Two runs of one computation differ by a tenth on a shared machine, which is more than hooks take. So
within each computation they are on for some blocks of tasks and off for others, at random; seconds
of a block are fitted by the tasks in it, by function, by the run, and by whether hooks were on.
What a profiler does at the end of a computation, or on threads of its own when no task is wrapped,
is not in it: ``benchmarks.real`` has that.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Hashable, Sequence
from random import Random
from time import perf_counter
from typing import Any, NamedTuple

import dask
import numpy as np
from dask.callbacks import Callback
from dask.threaded import get
from dask.utils import key_split

from benchmarks.real import THREADS, WORKS
from dask_diag import CacheProfiler, Profiler, ResourceProfiler, SamplingProfiler
from dask_diag.profilers.record import ProfilerGroup

BLOCK = 40
"""Tasks for which hooks stay on, or off: few beside those of a computation, many beside threads."""
FAR = 4.0
"""Standard deviations from which on a block says nothing: the machine did something else."""
ROUNDS = 6
"""How often blocks that say nothing are found, and seconds fitted without them."""

SIDES: dict[str, Callable[[], Sequence[Any]]] = {
    "Profiler": lambda: [Profiler()],
    "our three": lambda: [Profiler(), ResourceProfiler(), CacheProfiler()],
    "waits": lambda: [Profiler(waits=True)],
    "sampling": lambda: [SamplingProfiler()],
    "record": lambda: ProfilerGroup().profilers,
    "record with waits": lambda: ProfilerGroup(waits=True).profilers,
}


class Block(NamedTuple):
    """So many tasks of one run: how long they took, whether hooks were on, and of which kinds."""

    run: int
    seconds: float
    is_on: bool
    kinds: Sequence[int]


class Switch(Callback):  # type: ignore[misc]
    """Calls the hooks of profilers for the tasks of some blocks only."""

    def __init__(self, profilers: Sequence[Any], kind_of: dict[Hashable, int]) -> None:
        self._profilers = profilers
        self._kind_of = kind_of
        self._random = Random(0)
        self._runs = 0
        self.blocks: list[Block] = []

    def _start_state(self, dsk: Any, state: Any) -> None:
        for profiler in self._profilers:
            profiler.session.start = perf_counter()
            profiler.session.anchor()
        callbacks = [profiler._callback for profiler in self._profilers]
        ((start, start_state, self._before, self._after, self._end),) = self._profilers[0].share(
            callbacks
        )
        start(dsk)
        start_state(dsk, state)
        self._was_on: set[Hashable] = set()
        self._done = 0
        self._runs += 1
        self._next_block()

    def _next_block(self) -> None:
        self._is_on = self._random.random() < 0.5
        self._kinds = [0] * (1 + max(self._kind_of.values()))
        self._since = perf_counter()

    def _pretask(self, key: Hashable, dsk: Any, state: Any) -> None:
        if self._is_on:
            self._was_on.add(key)
            self._before(key, dsk, state)

    def _posttask(self, key: Hashable, value: object, dsk: Any, state: Any, worker: Any) -> None:
        if key in self._was_on:
            self._was_on.remove(key)
            self._after(key, value, dsk, state, worker)
        self._kinds[self._kind_of[key]] += 1
        self._done += 1
        if self._done % BLOCK == 0:
            seconds = perf_counter() - self._since
            self.blocks.append(Block(self._runs, seconds, self._is_on, self._kinds))
            self._next_block()

    def _finish(self, dsk: Any, state: Any, failed: bool) -> None:
        self._end(dsk, state, failed)
        for profiler in self._profilers:
            profiler.clear()


def added(blocks: Sequence[Block]) -> tuple[float, float]:
    """Seconds that hooks add to a task, and their standard error."""
    seconds = np.array([block.seconds for block in blocks])
    runs = np.array([block.run for block in blocks])
    is_on = BLOCK * np.array([[block.is_on] for block in blocks], float)
    kinds = np.array([block.kinds for block in blocks], float)
    # The first run is what the kinds say.
    is_run = BLOCK * (runs[:, None] == np.unique(runs)[1:])
    columns = np.concatenate([is_on, kinds, is_run], axis=1)
    is_near = np.ones(len(blocks), bool)
    for _ in range(ROUNDS):
        fit = np.linalg.lstsq(columns[is_near], seconds[is_near], rcond=None)[0]
        off = seconds - columns @ fit
        deviation = 1.4826 * np.median(np.abs(off[is_near]))
        is_near = np.abs(off) < FAR * deviation
    spread = np.linalg.pinv(columns[is_near].T @ columns[is_near]) * off[is_near].var()
    return float(fit[0]), float(spread[0, 0] ** 0.5)


def main(arguments: list[str]) -> None:
    """Print a line for each set of profilers."""
    longest = float(arguments[0]) if arguments else 20.0
    work = arguments[1] if arguments[1:] else "climatology"
    if work not in WORKS:
        sys.exit(f"expected one of {', '.join(WORKS)}, found {work}")
    (optimized,) = dask.optimize(WORKS[work]("small"))
    graph, keys = dict(optimized.__dask_graph__()), optimized.__dask_keys__()
    names = {name: n for n, name in enumerate(sorted({key_split(key) for key in graph}))}
    kind_of = {key: names[key_split(key)] for key in graph}
    print(f"{work}: {len(graph):,} tasks, hooks on for blocks of {BLOCK}, {longest:.0f} s each")
    for name, profilers in SIDES.items():
        switch = Switch(profilers(), kind_of)
        end = perf_counter() + longest
        while perf_counter() < end:
            gc.collect()
            with switch:
                get(graph, keys, num_workers=THREADS)
        seconds, error = added(switch.blocks)
        off = np.median([block.seconds for block in switch.blocks if not block.is_on]) / BLOCK
        print(
            f"{name:<20}{1e6 * seconds:+8.1f} ± {1e6 * error:.1f} µs a task"
            f"{seconds / off:+9.1%} of {1e6 * off:.0f} µs",
            flush=True,
        )


if __name__ == "__main__":
    main(sys.argv[1:])
