"""Threads that run a function at set times, and may take a set share of the time."""

from __future__ import annotations

import gc
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable
from math import ceil, inf, nan
from threading import get_ident
from time import perf_counter, thread_time
from typing import NamedTuple

from dask_diag.system.interpreter import has_gil

OWN_THREADS = "dask_diag-"
"""Prefix of the names of all threads of this package."""


class OwnThreads(NamedTuple):
    """Names of live threads of dask_diag by native id; CPU seconds of ended threads by name."""

    live: dict[int, str]
    ended: dict[str, float]

    @classmethod
    def now(cls) -> OwnThreads:
        """Take a snapshot."""
        with _own.lock:
            return cls(dict(_own.live), dict(_own.ended))


class _OwnCpu:
    """Registry of the threads of dask_diag, and of the CPU seconds already reported."""

    def __init__(self) -> None:
        # A signal may interrupt a thread that holds it, and register a profiler.
        self.lock = threading.RLock()
        self.live: dict[int, str] = {}
        self.ended: dict[str, float] = {}
        self.taken = 0.0


_own = _OwnCpu()


def clock_of_thread(native_id: int) -> int:
    """The kernel's clock of a thread: see pthread_getcpuclockid(3)."""
    return (~native_id << 3) | 6


def take_cpu_of_own_threads() -> float:
    """CPU seconds of dask_diag's threads since the previous call; NaN if unknown.

    It is read of each by its own clock, however short the time: there are few of them.
    """
    with _own.lock:
        cpu = sum(_own.ended.values())
        for thread in _own.live:
            if sys.platform != "linux":
                return nan
            try:
                cpu += time.clock_gettime(clock_of_thread(thread))
            except OSError:
                # It has ended just now: it is among the ended ones next time.
                continue
        # Never less than none, as where a thread had just ended.
        new, _own.taken = max(0.0, cpu - _own.taken), max(cpu, _own.taken)
        return new


class OwnThread(threading.Thread):
    """Daemon thread of dask_diag.

    Parameters
    ----------
    purpose : str
        Purpose in one word, which ends the name of the thread.
    target : callable
    args : iterable
        Passed to `target`.
    """

    def __init__(
        self, purpose: str, target: Callable[..., object], args: Iterable[object] = ()
    ) -> None:
        super().__init__(target=target, args=args, name=OWN_THREADS + purpose, daemon=True)

    def run(self) -> None:
        """Run the target, and note the CPU seconds."""
        native_id = threading.get_native_id()
        with _own.lock:
            _own.live[native_id] = self.name
        try:
            super().run()
        finally:
            with _own.lock:
                _own.ended[self.name] = _own.ended.get(self.name, 0.0) + thread_time()
                _own.live.pop(native_id, None)


def _after_fork() -> None:
    """Reset in the child of a fork: threads are gone, and the lock may have been held."""
    _own.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class ShareOfTime:
    """Measures the CPU time of a block, and how long to pause before the next.

    What counts is the CPU time of the thread: the rest of the time others had the CPU or the GIL.
    It may happen that in the block all objects of a large program are looked at for garbage. That
    takes a second, and is no reason for a pause of minutes: such a block says nothing of the next.
    Neither does one beside which another thread began a block.

    Parameters
    ----------
    share : float
        Share of the time, such as 0.02.
    seconds : float
        Seconds that the first block is expected to take.
    blocks : int
        Number of blocks over which the share holds, about: a single one that takes long is made up
        for by shorter pauses after that many, not by a long one.

    Attributes
    ----------
    seconds : float
        CPU seconds that a block takes, on average over the last ones.
    """

    __slots__ = ("_begun", "_blocks", "_share", "seconds")

    def __init__(self, share: float, seconds: float = 0.0, blocks: int = 1) -> None:
        self._share, self._blocks = share, blocks
        self.seconds = seconds
        # Thread, collections and CPU seconds: set in one step, as another thread may begin a block.
        self._begun = 0, 0, 0.0

    @property
    def pause(self) -> float:
        """Seconds from the start of a block to the start of the next."""
        return self.seconds / self._share

    def __enter__(self) -> None:
        self._begun = get_ident(), _full_collections(), thread_time()

    def __exit__(self, *_: object) -> None:
        stop = thread_time()
        thread, collections, start = self._begun
        if thread == get_ident() and _full_collections() == collections:
            self.seconds += (stop - start - self.seconds) / self._blocks


def _full_collections() -> int:
    """Number of collections of all garbage so far."""
    # Without a GIL each collection is of all garbage, and counts as one of the youngest objects.
    return int(gc.get_stats()[2 if has_gil() else 0]["collections"])


_SHORTEST_INTERVAL = 0.005


class PeriodicThread:
    """Calls `work` with its due time every `interval` seconds, on a thread of dask_diag.

    Parameters
    ----------
    name : str
        Purpose of the thread.
    interval : float
        Seconds.
    work : callable
        Function to call; its result is ignored.
    failed : callable
        Called with the error that ended it, if one did.
    first : float
        Seconds until the first call, if `interval` is longer.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        work: Callable[[float], object],
        failed: Callable[[Exception], object],
        first: float,
    ) -> None:
        self._interval = interval
        self._work = work
        self._failed = failed
        self._start = self._last = perf_counter()
        self._first = min(interval, first)
        self._stopping = threading.Event()
        self._thread = OwnThread(name, self._run)
        try:
            self._thread.start()
        except BaseException:
            # Interrupted, it may have started.
            self._stopping.set()
            raise

    def is_alive(self) -> bool:
        """Whether the thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """Work a last time and end the thread; the caller must hold no lock that `work` needs."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            due = self._start + self._first
            while not self._stopping.wait(max(0.0, due - perf_counter())):
                self._call(due)
                periods = ceil((perf_counter() - self._start) / self._interval)
                due = self._start + max(periods, 1) * self._interval
            none_yet = self._last == self._start
            if none_yet or perf_counter() - self._last >= _SHORTEST_INTERVAL:
                # What was due before did not get the GIL in time.
                self._call(min(due, perf_counter()))
        except Exception as error:
            self._failed(error)

    def _call(self, due: float) -> None:
        self._work(due)
        self._last = perf_counter()


_GOLDEN = 0.6180339887498949


def time_of_tick(number: int, interval: float) -> float:
    """Time of a sample by ``time.perf_counter()``: once in each interval, never evenly.

    Multiples of the golden ratio, without their whole part, are spread as evenly as can be, and
    keep step with nothing: a task that repeats itself is sampled in each part for its share.

    The times are the same on every thread and in every process, without communication: a task
    computes which ticks fell into it, and so which were missed.
    """
    return interval * (number + number * _GOLDEN % 1.0)


def ticks_until(time: float, interval: float) -> int:
    """Number of ticks up to a time; only differences have a meaning."""
    number = int(time / interval)
    return number + (time_of_tick(number, interval) <= time)


class TimeWithoutTicks:
    """Ticks between which most tasks start and stop.

    Attributes
    ----------
    span : tuple of float
        From the one up to the other: replaced in one step, as many threads read it.
    """

    __slots__ = ("span",)

    def __init__(self, start: float, stop: float) -> None:
        self.span = start, stop


ALWAYS = TimeWithoutTicks(-inf, inf)
"""Where nobody counts ticks."""
_without_ticks: dict[float, TimeWithoutTicks] = {}


def time_without_ticks(interval: float) -> TimeWithoutTicks:
    """Latest ticks that `ticks_between` found for an interval."""
    return _without_ticks.setdefault(interval, TimeWithoutTicks(inf, -inf))


def ticks_between(start: float, stop: float, interval: float) -> int:
    """Number of ticks between two times; quick if there are none."""
    without = time_without_ticks(interval)
    before, after = without.span
    if before <= start and stop < after:
        return 0
    number = ticks_until(stop, interval)
    without.span = time_of_tick(number - 1, interval), time_of_tick(number, interval)
    return number - ticks_until(start, interval)
