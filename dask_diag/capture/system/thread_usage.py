"""CPU seconds of each thread of this process while a computation runs, and what each thread is."""

from __future__ import annotations

import threading
from typing import NamedTuple

from dask_diag.capture.system.native_threads import PYTHON, libraries_of_threads
from dask_diag.capture.system.thread_clocks import ThreadReading, read_threads

__all__ = ["ThreadCpu", "ThreadUsage"]

_WORTH_A_LIBRARY = 0.05
"""CPU seconds of native threads of a computation from which on their library is looked up: that
takes some milliseconds, once for each thread."""

_CLOCKS_DIFFER = 1e-4
"""Seconds: threads go on while one after the other is read."""

_libraries: dict[int, str] = {}
"""The library of each live native thread that was looked up; empty if it is not known."""


class ThreadCpu(NamedTuple):
    """CPU seconds of one thread, or of all that have ended.

    `ident` is Python's, 0 if Python does not know the thread; `kind` is one of
    `dask_diag.schema.THREAD_KINDS`, before it is known which threads ran tasks.
    """

    kind: str
    name: str
    ident: int
    cpu: float


class ThreadUsage:
    """What threads use from when it is made until it is stopped.

    A thread that starts meanwhile counts from its start. One that ends is not lost: the process's
    clock has it, and so `ended` has what all live threads together do not.
    """

    __slots__ = ("_before", "_threads")

    def __init__(self) -> None:
        self._before = read_threads()
        self._threads: list[ThreadCpu] | None = None

    def stop(self) -> None:
        """Read the clocks for the last time."""
        self._threads = self.threads()

    def threads(self) -> list[ThreadCpu]:
        """What each thread used until now, or until it was stopped.

        Empty if that is not known, or if the time was too short to read the clocks twice.
        """
        if self._threads is not None:
            return self._threads
        before, now = self._before, read_threads()
        if before is None or now is None or now is before:
            return []
        for gone in set(_libraries).difference(now.threads):
            _libraries.pop(gone, None)
        threads = [*_of_live_threads(before, now), *_of_ended_own_threads(before, now)]
        process_cpu = now.process_cpu - before.process_cpu
        ended = process_cpu - sum(thread.cpu for thread in threads)
        return [*threads, ThreadCpu("ended", "", 0, ended)] if ended > _CLOCKS_DIFFER else threads


def _used(before: ThreadReading, now: ThreadReading) -> dict[int, float]:
    """CPU seconds of each live thread that used some, by native id."""
    used = {}
    for thread, cpu in now.threads.items():
        used[thread] = cpu - before.threads.get(thread, 0.0)
        if used[thread] < 0:
            # Another thread had that id before.
            used[thread] = cpu
    return {thread: cpu for thread, cpu in used.items() if cpu > 0}


def _of_ended_own_threads(before: ThreadReading, now: ThreadReading) -> list[ThreadCpu]:
    """Threads of this package say themselves what they used when they end."""
    used = {name: cpu - before.own.ended.get(name, 0.0) for name, cpu in now.own.ended.items()}
    for thread, name in before.own.live.items():
        if thread not in now.own.live and name in used:
            used[name] -= before.threads.get(thread, 0.0)
    return [ThreadCpu("dask_diag", name, 0, cpu) for name, cpu in used.items() if cpu > 0]


def _of_live_threads(before: ThreadReading, now: ThreadReading) -> list[ThreadCpu]:
    used = _used(before, now)
    known = {thread.native_id: thread for thread in threading.enumerate()}
    native = {native_id: cpu for native_id, cpu in used.items() if native_id not in known}
    libraries = _libraries_of(native)
    threads = []
    for native_id, cpu in used.items():
        thread = known.get(native_id)
        if thread is not None:
            kind = "dask_diag" if native_id in now.own.live else "python"
            threads.append(ThreadCpu(kind, thread.name, thread.ident or 0, cpu))
        elif libraries.get(native_id) == PYTHON:
            threads.append(ThreadCpu("python", "", 0, cpu))
        else:
            threads.append(ThreadCpu("native", libraries.get(native_id, ""), 0, cpu))
    return threads


def _libraries_of(native: dict[int, float]) -> dict[int, str]:
    new = set(native).difference(_libraries)
    if sum(native[thread] for thread in new) >= _WORTH_A_LIBRARY:
        found = libraries_of_threads(new)
        _libraries.update({thread: found.get(thread, "") for thread in new})
    return dict(_libraries)
