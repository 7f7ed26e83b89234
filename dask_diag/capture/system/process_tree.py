"""What this process and all its descendants use: memory, CPU, bytes read and written, threads."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from time import perf_counter
from typing import NamedTuple

from dask_diag.capture.system.processes import NoSuchProcess, ProcessReader, process_reader
from dask_diag.capture.system.share_of_time import ShareOfTime

__all__ = ["Descendants", "ProcessTree", "TreeUsage"]

_SHARE_OF_TIME_FOR_LISTING = 0.02
_SAME_TIME = 5e-4
"""Seconds between two readings that are as good as one."""
_TRIES = 4


class TreeUsage(NamedTuple):
    """One reading: bytes of memory at `time`; CPU seconds, bytes read and written up to then."""

    time: float
    memory: float
    memory_children: float
    cpu: float
    read: float
    written: float
    threads: float


class _Counted:
    """How much of a child's counters has been counted."""

    __slots__ = ("cpu", "read", "written")

    def __init__(self) -> None:
        self.cpu = self.read = self.written = 0.0


class Descendants:
    """Lists the descendants of a process, again for at most a fiftieth of the time."""

    def __init__(self, reader: ProcessReader, pid: int) -> None:
        self._reader = reader
        self._pid = pid
        self._work = ShareOfTime(_SHARE_OF_TIME_FOR_LISTING)
        self._next_listing = 0.0

    def listed(self) -> list[int]:
        """Those that are there now; empty if it is too soon to list them again."""
        start = perf_counter()
        if start < self._next_listing:
            return []
        with self._work:
            pids = list(self._below(self._pid))
        self._next_listing = start + self._work.pause
        return pids

    def _below(self, pid: int) -> Iterator[int]:
        try:
            children = self._reader.children(pid)
        except NoSuchProcess:
            return
        for child in children:
            yield child
            yield from self._below(child)


class ProcessTree:
    """Reads this process and its descendants, however they come and go.

    Notes
    -----
    A descendant that has ended since the last reading is not lost: the CPU time of children that
    were waited for is read from the operating system, and what was already counted is taken off.
    A child that came and went between two listings counts when it has ended.

    Attributes
    ----------
    memory_of : dict of int to float
        Bytes of each process at the last reading, by its pid; at first, as reading begins.
    cpu_of : dict of int to float
        CPU seconds of each process at the last reading, by its pid: of this process since reading
        began, without that of the thread that reads; of others since they were started.
    """

    def __init__(self) -> None:
        self._reader = process_reader()
        self._pid = os.getpid()
        self._descendants = Descendants(self._reader, self._pid)
        self._children: dict[int, _Counted] = {}
        self._children_cpu = self._children_read = self._children_written = 0.0
        self._ended_counted = self._ended_unseen = 0.0
        self._cpu_so_far = 0.0
        self.memory_of: dict[int, float] = {}
        self.cpu_of: dict[int, float] = {}
        self._list_children()
        for pid, child in list(self._children.items()):
            try:
                child.cpu = self._reader.cpu(pid)
                counters = self._reader.counters(pid)
            except NoSuchProcess:
                del self._children[pid]
            else:
                self.memory_of[pid] = counters.memory
                self.cpu_of[pid] = child.cpu
                child.read, child.written = counters.read, counters.written
        own = self._reader.counters(self._pid)
        self._read_before, self._written_before = own.read, own.written
        self.memory_of[self._pid] = own.memory
        self._ended_before = _cpu_of_ended_children()
        self._own_cpu_before = time.process_time()

    def read(self) -> TreeUsage:
        """What the tree uses now.

        The CPU time of the calling thread is left out, all of it: it must be one that was started
        to read, and does nothing else.
        """
        self._list_children()
        time, cpu = self._cpu_at_a_time()
        own = self._reader.counters(self._pid)
        threads_children = 0.0
        self.memory_of = {self._pid: own.memory}
        for pid, child in self._children.items():
            try:
                counters = self._reader.counters(pid)
            except NoSuchProcess:
                continue
            self.memory_of[pid] = counters.memory
            threads_children += counters.threads
            self._children_read += max(0.0, counters.read - child.read)
            self._children_written += max(0.0, counters.written - child.written)
            child.read, child.written = counters.read, counters.written
        return TreeUsage(
            time=time,
            memory=own.memory,
            memory_children=sum(self.memory_of.values()) - own.memory,
            cpu=cpu,
            read=own.read - self._read_before + self._children_read,
            written=own.written - self._written_before + self._children_written,
            threads=own.threads + threads_children,
        )

    def _cpu_at_a_time(self) -> tuple[float, float]:
        """The time, and CPU seconds up to then, read without another thread having a turn."""
        for _ in range(_TRIES):
            before = perf_counter()
            cpu = self._cpu()
            time = perf_counter()
            if time - before < _SAME_TIME:
                break
        return time, cpu

    def _cpu(self) -> float:
        """CPU seconds of the tree so far. It never falls: clocks differ by a microsecond or so."""
        reading = time.thread_time()
        own = time.process_time() - reading - self._own_cpu_before
        ended = _cpu_of_ended_children() - self._ended_before
        self.cpu_of = {self._pid: own}
        for pid, child in list(self._children.items()):
            try:
                cpu = self._reader.cpu(pid)
            except NoSuchProcess:
                del self._children[pid]
                self._ended_counted += child.cpu
            else:
                self._children_cpu += max(0.0, cpu - child.cpu)
                child.cpu = cpu
                self.cpu_of[pid] = cpu
        self._ended_unseen = max(self._ended_unseen, ended - self._ended_counted)
        self._cpu_so_far = max(self._cpu_so_far, own + self._children_cpu + self._ended_unseen)
        return self._cpu_so_far

    def _list_children(self) -> None:
        for pid in self._descendants.listed():
            self._children.setdefault(pid, _Counted())


def _cpu_of_ended_children() -> float:
    times = os.times()
    return times.children_user + times.children_system
