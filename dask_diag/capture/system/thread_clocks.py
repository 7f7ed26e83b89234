"""CPU seconds of the process and of each of its threads, read at most for a fiftieth of the time.

On Linux every thread has a clock that another thread can read without opening a file, and without
giving up the GIL; elsewhere psutil reads.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from threading import get_native_id
from time import perf_counter, process_time
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.capture.system.own_threads import OwnThreads
from dask_diag.capture.system.share_of_time import ShareOfTime

if TYPE_CHECKING:
    from dask_diag.capture.system.linux_processes import LinuxReader

__all__ = [
    "PYTHON",
    "ThreadReading",
    "live_threads",
    "read_threads",
    "take_cpu_of_own_threads",
    "why_not_by_thread",
]

PYTHON = "python"
"""In place of a library: Python code started it, by ``_thread`` and not by ``threading``."""

_SHARE_OF_TIME = 0.01
"""To name the threads that were read takes about as long again: together a fiftieth."""


class ThreadReading(NamedTuple):
    """CPU seconds so far of the process and of its live threads, by native id, at `time`."""

    time: float
    process_cpu: float
    threads: dict[int, float]
    own: OwnThreads


class _LastReading:
    """The last reading serves again while a new one would cost too much of the time since."""

    def __init__(self) -> None:
        self.pid = 0
        self.reading = ThreadReading(0.0, 0.0, {}, OwnThreads({}, {}))
        self.work = ShareOfTime(_SHARE_OF_TIME)

    def is_recent(self, now: float) -> bool:
        """Whether it is of this process and not yet worth replacing."""
        return os.getpid() == self.pid and now - self.reading.time < self.work.pause


_last = _LastReading()


def read_threads() -> ThreadReading | None:
    """CPU seconds up to now, or to a moment ago; None if they are not known by thread."""
    start = perf_counter()
    if _last.is_recent(start):
        return _last.reading
    cpu_by_thread = _source()
    if isinstance(cpu_by_thread, str):
        return None
    with _last.work:
        # The process first: a thread that ends in between is then not lost.
        reading = ThreadReading(start, process_time(), cpu_by_thread(), OwnThreads.now())
    _last.pid, _last.reading = os.getpid(), reading
    return reading


def live_threads() -> set[int]:
    """The native ids of the threads that live now; none if threads are not known."""
    cpu_by_thread = _source()
    return set() if isinstance(cpu_by_thread, str) else set(cpu_by_thread())


def why_not_by_thread() -> str:
    """Why CPU is not known by thread on this machine; empty if it is."""
    source = _source()
    return source if isinstance(source, str) else ""


@cache
def _source() -> Callable[[], dict[int, float]] | str:
    """The best way to read CPU by thread, or why there is none."""
    reason = ""
    for read in (linux_clocks, psutil_clocks) if sys.platform == "linux" else (psutil_clocks,):
        try:
            if get_native_id() in read():
                return read
            reason = f"on {sys.platform}, threads have other numbers than Python gives them"
        except (OSError, AttributeError, NotImplementedError) as error:
            reason = f"{type(error).__name__}: {error}"
    return reason


def psutil_clocks() -> dict[int, float]:
    """CPU seconds of each thread, as fine as the platform counts them.

    Raises
    ------
    OSError
        If psutil cannot read them.
    """
    # It takes 15 ms to import, which worker processes need not where there are better clocks.
    import psutil

    try:
        threads = psutil.Process().threads()
    except psutil.Error as error:
        raise OSError(f"{type(error).__name__}: {error}") from error
    return {thread.id: thread.user_time + thread.system_time for thread in threads}


def linux_clocks() -> dict[int, float]:
    """CPU seconds of each thread, to the nanosecond."""
    clock = time.clock_gettime
    cpu = {}
    for thread in _reader().own_threads():
        try:
            cpu[thread] = clock(_clock_of(thread))
        except OSError:
            # It has ended since it was listed.
            continue
    return cpu


def _clock_of(thread: int) -> int:
    """The kernel's clock of a thread: see pthread_getcpuclockid(3)."""
    return (~thread << 3) | 6


class _Taken:
    """The CPU seconds of this package's own threads that have been taken."""

    def __init__(self) -> None:
        # A signal may interrupt who holds it, and register a profiler.
        self.lock = threading.RLock()
        self.cpu = 0.0


_taken = _Taken()


def take_cpu_of_own_threads() -> float:
    """CPU seconds of this package's own threads since this was last asked; NaN if not known.

    It is read of each by its own clock, however short the time: there are few of them.
    """
    with _taken.lock:
        own = OwnThreads.now()
        cpu = sum(own.ended.values())
        for thread in own.live:
            if sys.platform != "linux":
                return float("nan")
            # One that has ended just now is among the ended ones next time.
            with suppress(OSError):
                cpu += time.clock_gettime(_clock_of(thread))
        # Never less than none, as where one had just ended.
        new, _taken.cpu = max(0.0, cpu - _taken.cpu), max(cpu, _taken.cpu)
        return new


def _after_fork() -> None:
    """The child of a fork has no such threads; the lock may have been held."""
    _taken.__init__()  # type: ignore[misc]


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


@cache
def _reader() -> LinuxReader:
    # ctypes takes milliseconds to import.
    from dask_diag.capture.system.linux_processes import LinuxReader

    return LinuxReader()
