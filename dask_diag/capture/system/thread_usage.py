"""CPU seconds of each thread of this process while a computation runs, and what each thread is."""

from __future__ import annotations

import threading
from typing import NamedTuple

from dask_diag.capture.system.thread_clocks import PYTHON, ThreadReading, live_threads, read_threads

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

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = read_threads()
        self._after: ThreadReading | None = None

    def stop(self) -> None:
        """Read the clocks for the last time."""
        self._after = read_threads()

    def threads(self) -> list[ThreadCpu]:
        """What each thread used until now, or until it was stopped.

        Ask while the threads live: what they are is read now. Empty if it is not known, or if the
        time was too short to read the clocks twice.
        """
        before, after = self._before, self._after or read_threads()
        if before is None or after is None or after is before:
            return []
        threads = [*_of_live_threads(before, after), *_of_ended_own_threads(before, after)]
        process_cpu = after.process_cpu - before.process_cpu
        ended = process_cpu - sum(thread.cpu for thread in threads)
        return [*threads, ThreadCpu("ended", "", 0, ended)] if ended > _CLOCKS_DIFFER else threads


def _of_live_threads(before: ThreadReading, after: ThreadReading) -> list[ThreadCpu]:
    used = _used(before, after)
    thread_of = {thread.native_id: thread for thread in threading.enumerate()}
    unknown = {thread: cpu for thread, cpu in used.items() if thread not in thread_of}
    libraries = _libraries_of(unknown, after)
    threads = []
    for native_id, cpu in used.items():
        thread = thread_of.get(native_id)
        if thread is not None:
            kind = "dask_diag" if native_id in after.own.live else "python"
            threads.append(ThreadCpu(kind, thread.name, thread.ident or 0, cpu))
        elif native_id in libraries:
            library = libraries[native_id]
            is_python = library == PYTHON
            kind, name = ("python", "") if is_python else ("native", library)
            threads.append(ThreadCpu(kind, name, 0, cpu))
    return threads


def _used(before: ThreadReading, after: ThreadReading) -> dict[int, float]:
    """CPU seconds of each live thread that used some, by native id."""
    used = {}
    for thread, cpu in after.threads.items():
        used[thread] = cpu - before.threads.get(thread, 0.0)
        if used[thread] < 0:
            # Another thread had that id before.
            used[thread] = cpu
    return {thread: cpu for thread, cpu in used.items() if cpu > 0}


def _libraries_of(unknown: dict[int, float], after: ThreadReading) -> dict[int, str]:
    """The library of each of these threads, empty if not known; not of those that have ended."""
    for thread in set(_libraries).difference(after.threads):
        _libraries.pop(thread, None)
    new = set(unknown).difference(_libraries)
    if sum(unknown[thread] for thread in new) >= _WORTH_A_LIBRARY:
        # ctypes, which it needs, takes milliseconds to import.
        from dask_diag.capture.system.native_threads import libraries_of_threads

        library_of = libraries_of_threads(new)
        # A thread that ended just now was still listed, and has no library any more.
        live = live_threads()
        new.intersection_update(live)
        _libraries.update({thread: library_of.get(thread, "") for thread in new})
        return {thread: _libraries[thread] for thread in unknown if thread in _libraries}
    return {thread: _libraries.get(thread, "") for thread in unknown}


def _of_ended_own_threads(before: ThreadReading, after: ThreadReading) -> list[ThreadCpu]:
    """Threads of this package say themselves what they used when they end."""
    used = {name: cpu - before.own.ended.get(name, 0.0) for name, cpu in after.own.ended.items()}
    for thread, name in before.own.live.items():
        if thread not in after.own.live and name in used:
            used[name] -= before.threads.get(thread, 0.0)
    return [ThreadCpu("dask_diag", name, 0, cpu) for name, cpu in used.items() if cpu > 0]
