"""What this process and all its descendants use: memory, CPU, bytes read and written, threads."""

from __future__ import annotations

import os
import sys
import time
from time import perf_counter
from typing import NamedTuple

import psutil

__all__ = ["ProcessTree", "Usage"]

_SHARE_OF_TIME_FOR_LISTING = 0.05


class Usage(NamedTuple):
    """One reading. Bytes of memory now; CPU seconds, bytes read and written since the first."""

    memory: float
    memory_children: float
    cpu: float
    read: float
    written: float
    threads: float


class _Counted:
    """A process, and how much of its counters has been counted."""

    __slots__ = ("cpu", "is_child", "process", "read", "written")

    def __init__(self, process: psutil.Process, is_child: bool) -> None:
        self.process = process
        self.is_child = is_child
        self.cpu = self.read = self.written = 0.0


class ProcessTree:
    """Reads this process and its descendants, however they come and go.

    Notes
    -----
    A descendant that has ended since the last reading is not lost: the CPU time of children that
    were waited for is read from the operating system, and what was already counted is taken off.
    The processes are listed anew for at most a twentieth of the time, since listing is slow.
    """

    def __init__(self) -> None:
        self._own = psutil.Process()
        self._children: dict[int, _Counted] = {}
        self._children_cpu = self._children_read = self._children_written = 0.0
        self._ended_counted = 0.0
        self._ended_unseen = 0.0
        self._next_listing = 0.0
        self._list_children()
        for child in self._children.values():
            child.cpu, child.read, child.written = _counters(child.process)
        self._ended_before = _cpu_of_ended_children()
        self._own_cpu_before = time.process_time()
        self._own_io_before = _bytes_moved(self._own)

    def read(self) -> Usage:
        """What the tree uses now.

        The CPU time of the calling thread is left out, all of it: it must be one that was started
        to read, and does nothing else.
        """
        reading = time.thread_time()
        own_cpu = time.process_time() - reading - self._own_cpu_before
        ended = _cpu_of_ended_children() - self._ended_before
        if perf_counter() >= self._next_listing:
            self._list_children()
        memory_children = threads_children = 0.0
        for pid, child in list(self._children.items()):
            try:
                with child.process.oneshot():
                    memory_children += child.process.memory_info().rss
                    threads_children += child.process.num_threads()
                self._count(child)
            except psutil.NoSuchProcess:
                del self._children[pid]
                self._ended_counted += child.cpu if child.is_child else 0.0
            except psutil.AccessDenied:
                continue
        self._ended_unseen = max(self._ended_unseen, ended - self._ended_counted)
        read, written = _bytes_moved(self._own)
        with self._own.oneshot():
            memory, threads = self._own.memory_info().rss, self._own.num_threads()
        return Usage(
            memory=memory,
            memory_children=memory_children,
            cpu=own_cpu + self._children_cpu + self._ended_unseen,
            read=read - self._own_io_before[0] + self._children_read,
            written=written - self._own_io_before[1] + self._children_written,
            threads=threads + threads_children,
        )

    def _list_children(self) -> None:
        begun = perf_counter()
        own = os.getpid()
        for process in self._own.children(recursive=True):
            if process.pid not in self._children:
                try:
                    self._children[process.pid] = _Counted(process, process.ppid() == own)
                except psutil.NoSuchProcess:
                    continue
        took = perf_counter() - begun
        self._next_listing = begun + took / _SHARE_OF_TIME_FOR_LISTING

    def _count(self, child: _Counted) -> None:
        cpu, read, written = _counters(child.process)
        self._children_cpu += max(0.0, cpu - child.cpu)
        self._children_read += max(0.0, read - child.read)
        self._children_written += max(0.0, written - child.written)
        child.cpu, child.read, child.written = cpu, read, written


def _counters(process: psutil.Process) -> tuple[float, float, float]:
    try:
        return (_cpu_seconds(process), *_bytes_moved(process))
    except psutil.Error:
        return 0.0, 0.0, 0.0


def _cpu_seconds(process: psutil.Process) -> float:
    """CPU seconds of a process, to the nanosecond on Linux; elsewhere as fine as psutil has it."""
    if sys.platform == "linux":
        try:
            # The kernel's clock of that process: see clock_getcpuclockid(3).
            return time.clock_gettime((~process.pid << 3) | 2)
        except OSError:
            pass
    times = process.cpu_times()
    return float(times.user + times.system)


def _cpu_of_ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system


def _bytes_moved(process: psutil.Process) -> tuple[float, float]:
    """Bytes read and written, caches of the operating system included; NaN where not told."""
    try:
        counters = process.io_counters()
    except (AttributeError, NotImplementedError, psutil.AccessDenied):
        return float("nan"), float("nan")
    return (
        float(getattr(counters, "read_chars", counters.read_bytes)),
        float(getattr(counters, "write_chars", counters.write_bytes)),
    )
