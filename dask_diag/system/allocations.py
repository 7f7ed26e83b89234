"""Lines of code that allocated the memory in use at the peak, by tracemalloc.

tracemalloc is the standard library's. It traces what was allocated while it was on, by Python and
by numpy, and slows down Python meanwhile: docs/numbers.rst has by how much. The peak is that of the
blocks in use: the memory of the process also has what was released and is retained, and the traces.
"""

from __future__ import annotations

import random
import threading
import tracemalloc
from collections.abc import Callable
from math import inf
from operator import itemgetter
from time import perf_counter
from typing import NamedTuple

from dask_diag.system.code import OF_DASK, OWN, USER, owner_of_file
from dask_diag.system.periodic import PeriodicThread, ShareOfTime

_LARGE = 4096
"""Bytes from which on each block is counted."""
_MOST_SMALL = 100_000

Traceback = tuple[tuple[str, int], ...]
"""Files and lines, the innermost call first."""
Trace = tuple[int, int, Traceback, int]
"""Domain, bytes, traceback, and how many frames there were."""


class AllocatedLine(NamedTuple):
    """Line of code, or a name for all lines of dask or of dask_diag."""

    file: str
    line: int
    name: str = ""


ANY_OWN_LINE = AllocatedLine("", 0, "(dask_diag)")
ANY_LINE_OF_DASK = AllocatedLine("", 0, "(dask itself)")


class LineSums:
    """Sums the blocks of a snapshot by the allocating line of the user's code.

    That is the innermost line that is neither dask's nor this package's, nor of a library, if there
    is one among the calls that were traced; else the innermost line of a library.
    """

    def read(self, snapshot: tracemalloc.Snapshot) -> dict[AllocatedLine, tuple[int, int]]:
        """Bytes and blocks by line."""
        traces = _traces_of(snapshot)
        large = [trace for trace in traces if trace[1] >= _LARGE]
        small = [trace for trace in traces if trace[1] < _LARGE]
        counted = small
        if len(small) > _MOST_SMALL:
            # Its own generator: a seed of the user's program means the same as without it.
            counted = random.Random(0).choices(small, k=_MOST_SMALL)
        sums: dict[AllocatedLine, tuple[int, int]] = {}
        self._add(sums, large, large)
        self._add(sums, counted, small)
        return sums

    def _add(
        self, sums: dict[AllocatedLine, tuple[int, int]], traces: list[Trace], of: list[Trace]
    ) -> None:
        """Add blocks to `sums`; `of` has the blocks of which they are a sample."""
        by_traceback: dict[int, tuple[Traceback, list[int]]] = {}
        for _, size, traceback, *_ in traces:
            # Equal ones are one object in a snapshot: no hash of its files is needed.
            number = id(traceback)
            if number in by_traceback:
                total = by_traceback[number][1]
                total[0] += size
                total[1] += 1
            else:
                by_traceback[number] = traceback, [size, 1]
        of_bytes = of_blocks = 1.0
        if of is not traces:
            of_bytes = sum(map(itemgetter(1), of)) / sum(map(itemgetter(1), traces))
            of_blocks = len(of) / len(traces)
        for traceback, (size, blocks) in by_traceback.values():
            line = self.line_of(traceback)
            before = sums.get(line, (0, 0))
            sums[line] = before[0] + round(size * of_bytes), before[1] + round(blocks * of_blocks)

    def line_of(self, traceback: Traceback) -> AllocatedLine:
        """Line of the user's code in a traceback."""
        best, best_owner = ANY_OWN_LINE, OWN
        for file, line in traceback:
            owner = owner_of_file(file)
            if owner < best_owner:
                best = ANY_LINE_OF_DASK if owner == OF_DASK else AllocatedLine(file, line)
                best_owner = owner
            if owner == USER or (owner == OWN and best_owner == OWN):
                # What this package allocates when the user's code calls it is its own.
                break
        return best


def _traces_of(snapshot: tracemalloc.Snapshot) -> list[Trace]:
    """Raw traces of a snapshot: making objects of them would take longer than all else."""
    traces: list[Trace] | None = getattr(snapshot.traces, "_traces", None)
    if traces is not None:
        return traces
    return [
        (0, trace.size, tuple((frame.filename, frame.lineno) for frame in trace.traceback)[::-1], 0)
        for trace in snapshot.traces
    ]


_FRAMES = 4
"""How many calls are traced: numpy's and dask's own, up to the user's. Each costs time."""
_LONGEST_INTERVAL = 0.02
_SMALLEST_STEP = 1e6
_STEP = 0.01
_LARGE_STEP = 100e6
_LARGE_SHARE = 0.1
"""By how much memory that does not stop to rise is higher at the next snapshot."""
_SHARE_OF_TIME = 0.1
"""Of the time that may go into snapshots: one of many small blocks takes seconds."""
_MUCH_MORE = 1.25
"""Times what was in use at the last snapshot, from which on the next one does not wait."""


class AllocationSnapshot(NamedTuple):
    """Allocations in use at a time.

    Attributes
    ----------
    time : float
    memory, peak : float
        Bytes in use then, and the most that were in use since tracing started, of what is traced.
        Snapshots take memory themselves, which counts in the peak.
    lines : dict
        Bytes and blocks by line.
    """

    time: float
    memory: float
    peak: float
    lines: dict[AllocatedLine, tuple[int, int]]


class AllocationTracer:
    """Takes a snapshot of allocations whenever more memory is in use than before.

    So the last one is near the peak. Snapshots have at most a tenth of the time, but for those of a
    quarter more than at the last one, of which there are few: where they take long, a peak that is
    a little higher may come between two.

    Parameters
    ----------
    interval : float
        Seconds between checks of the memory; 0.02 if it is more.
    failed : callable
        Called with the error that ended it, if one did.
    """

    def __init__(self, interval: float, failed: Callable[[Exception], object]) -> None:
        self._failed = failed
        self._sums = LineSums()
        self._work = ShareOfTime(_SHARE_OF_TIME)
        self._last: AllocationSnapshot | None = None
        _tracing.start()
        try:
            self._first, self._peak = tracemalloc.get_traced_memory()
            self._before: float = self._first
            self._next = self._first + _SMALLEST_STEP
            self._next_if_rising = self._first + _LARGE_STEP
            self._pause = 0.0
            self._much_more = inf
            interval = min(interval, _LONGEST_INTERVAL)
            self._thread = PeriodicThread("allocations", interval, self._check, failed, interval)
        except Exception:
            _tracing.stop()
            raise

    def stop(self) -> None:
        """Check a last time, and stop tracing unless tracing was on before."""
        self._thread.stop()
        try:
            # It waits for nothing any more: its share of time, the end of a rise, a step of bytes.
            self._pause, self._before = 0.0, inf
            if self._last is not None:
                self._next = min(self._next, (1 + _STEP) * self._last.memory)
            self._check(perf_counter())
        except Exception as error:
            self._failed(error)
        _tracing.stop()

    @property
    def last(self) -> AllocationSnapshot | None:
        """Last snapshot, if any."""
        last = self._last
        return None if last is None else last._replace(peak=self._peak)

    def _check(self, due: float) -> None:
        if not tracemalloc.is_tracing():
            return
        memory, self._peak = tracemalloc.get_traced_memory()
        rises = memory >= self._before + _SMALLEST_STEP
        self._before = memory
        if perf_counter() < self._pause and memory < self._much_more:
            return
        # While it rises it is soon higher: a snapshot now would only delay the next one.
        if memory >= (self._next_if_rising if rises else self._next):
            self._read(memory)

    def _read(self, memory: float) -> None:
        start = perf_counter()
        with self._work:
            lines = self._sums.read(tracemalloc.take_snapshot())
        self._last = AllocationSnapshot(start, memory, self._peak, lines)
        grown = memory - self._first
        self._next = memory + max(_SMALLEST_STEP, _STEP * grown)
        self._next_if_rising = memory + max(_LARGE_STEP, _LARGE_SHARE * grown)
        self._much_more = _MUCH_MORE * memory
        self._pause = perf_counter() + self._work.pause


class _Tracing:
    """Switches tracemalloc on and off; tracing started elsewhere stays on."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.users = 0
        self._is_own = False

    def start(self) -> None:
        with self._lock:
            self.users += 1
            if not tracemalloc.is_tracing():
                tracemalloc.start(_FRAMES)
                self._is_own = True

    def stop(self) -> None:
        with self._lock:
            self.users -= 1
            if not self.users and self._is_own:
                tracemalloc.stop()
                self._is_own = False


_tracing = _Tracing()


def traces() -> bool:
    """Whether memory is traced for a profiler of this package."""
    return _tracing.users > 0
