"""Readings of CPU, memory and I/O of processes, now."""

from __future__ import annotations

import ctypes
import os
import sys
import time
from collections.abc import Callable, Iterator
from functools import cache
from math import nan
from time import perf_counter
from typing import NamedTuple, TypeVar

import psutil

from dask_diag.system.control_groups import own_memory_limits
from dask_diag.system.periodic import ShareOfTime


class Counters(NamedTuple):
    """Bytes of memory and threads now; bytes read and written since the process began (or NaN)."""

    memory: float
    threads: float
    read: float
    written: float


class MemoryOfProcess(NamedTuple):
    """Bytes of memory: resident, proportional (shared pages divided), and unique.

    What cannot be known is NaN.
    """

    rss: float
    pss: float
    uss: float


NoSuchProcess = (ProcessLookupError, psutil.Error)
"""Errors of reading a process that has ended."""


class ProcessReader:
    """Reads numbers of a process by pid: with psutil, on any platform."""

    def children(self, pid: int) -> list[int]:
        """Live processes started by a process."""
        return [child.pid for child in psutil.Process(pid).children()]

    def descendants(self, pid: int) -> Iterator[int]:
        """Children, and children of children; a child that ends meanwhile may hide children."""
        try:
            children = self.children(pid)
        except NoSuchProcess:
            return
        for child in children:
            yield child
            yield from self.descendants(child)

    def cpu(self, pid: int) -> float:
        """CPU seconds since the start, in the platform's resolution."""
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    def counters(self, pid: int) -> Counters:
        """Memory, threads, and bytes moved."""
        process = psutil.Process(pid)
        with process.oneshot():
            memory, threads = process.memory_info().rss, process.num_threads()
            try:
                moved = process.io_counters()
            except (AttributeError, NotImplementedError, psutil.AccessDenied):
                return Counters(memory, threads, nan, nan)
        return Counters(memory, threads, moved.read_bytes, moved.write_bytes)

    def resident(self, pid: int) -> float:
        """Bytes of resident memory, shared or not."""
        return float(psutil.Process(pid).memory_info().rss)

    def memory(self, pid: int) -> MemoryOfProcess:
        """Memory with shared pages divided, if the platform has it: may take long."""
        process = psutil.Process(pid)
        try:
            full = process.memory_full_info()
        except (psutil.AccessDenied, NotImplementedError):
            return MemoryOfProcess(self.resident(pid), nan, nan)
        return MemoryOfProcess(full.rss, getattr(full, "pss", nan), getattr(full, "uss", nan))


class LinuxReader(ProcessReader):
    """Reads ``/proc`` without giving up the GIL.

    Beside threads that hold the GIL, a sample takes psutil 40 ms in place of 0.1 ms: a file that is
    read gives the GIL up, and waits 5 ms for it. psutil also reads all processes of the machine to
    find children. Bytes moved are those of read and write calls, caches included.
    """

    def __init__(self) -> None:
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._libc.read.restype = self._libc.readlink.restype = ctypes.c_ssize_t
        self._libc.opendir.restype = ctypes.c_void_p
        self._libc.readdir.restype = ctypes.c_void_p
        self._libc.readdir.argtypes = self._libc.closedir.argtypes = [ctypes.c_void_p]
        self._buffer = ctypes.create_string_buffer(65536)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def children(self, pid: int) -> list[int]:
        """Live processes started by a process."""
        return [
            int(child)
            for thread in self._numbers_in(f"/proc/{pid}/task")
            for child in self._text(f"/proc/{pid}/task/{thread}/children", missing=b"").split()
        ]

    def own_threads(self) -> list[int]:
        """Native ids of the threads of the process."""
        return list(self._numbers_in("/proc/self/task"))

    def own_files(self) -> Iterator[int]:
        """Numbers of the open files of the process."""
        return self._numbers_in("/proc/self/fd")

    def own_file(self, number: int) -> bytes:
        """Path or ``pipe:[123]`` of an open file of the process; empty if closed."""
        path = b"/proc/self/fd/%d" % number
        length = self._libc.readlink(path, self._buffer, len(self._buffer))
        return ctypes.string_at(self._buffer, max(length, 0))

    def cpu(self, pid: int) -> float:
        """CPU seconds since the start, to the nanosecond."""
        try:
            # The kernel's clock of that process: see clock_getcpuclockid(3).
            return time.clock_gettime((~pid << 3) | 2)
        except OSError as error:
            raise ProcessLookupError(pid) from error

    def counters(self, pid: int) -> Counters:
        """Memory, threads, and bytes moved."""
        memory = self.resident(pid)
        after_name = self._text(f"/proc/{pid}/stat").rpartition(b")")[2].split()
        moved = self._text(f"/proc/{pid}/io", missing=b"").split()
        read, written = (float(moved[1]), float(moved[3])) if len(moved) > 3 else (nan, nan)
        return Counters(memory, float(after_name[17]), read, written)

    def resident(self, pid: int) -> float:
        """Bytes of resident memory, shared or not."""
        return float(int(self._text(f"/proc/{pid}/statm").split()[1]) * self._page)

    def _text(self, path: str, missing: bytes | None = None) -> bytes:
        length, descriptor = 0, self._libc.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC)
        if descriptor >= 0:
            try:
                length = self._libc.read(descriptor, self._buffer, len(self._buffer))
            finally:
                self._libc.close(descriptor)
        if length > 0:
            return self._buffer.raw[:length]
        if missing is None:
            raise ProcessLookupError(path)
        return missing

    def _numbers_in(self, path: str) -> Iterator[int]:
        folder = self._libc.opendir(path.encode())
        if not folder:
            raise ProcessLookupError(path)
        try:
            while entry := self._libc.readdir(folder):
                # struct dirent: inode and offset (8 bytes each), length (2), type (1), name.
                name = ctypes.string_at(entry + 19)
                if name.isdigit():
                    yield int(name)
        finally:
            self._libc.closedir(folder)


def process_reader() -> ProcessReader:
    """Best reader of the platform."""
    if sys.platform == "linux" and os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return LinuxReader()
    return ProcessReader()


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
    """Counted part of a child's counters."""

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
        """List live descendants; empty if too soon for another listing."""
        start = perf_counter()
        if start < self._next_listing:
            return []
        with self._work:
            pids = list(self._reader.descendants(self._pid))
        self._next_listing = start + self._work.pause
        return pids


class ProcessTree:
    """Reads the process and descendants, whenever descendants start and end.

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
        self._read_before = self._written_before = self._own_cpu_before = 0.0
        self._ended_counted = self._ended_unseen = self._cpu_so_far = 0.0
        self._ended_before = cpu_of_ended_children()
        self.memory_of: dict[int, float] = {}
        self.cpu_of: dict[int, float] = {}
        before = self.read()
        # What was used up to here counts no more, but for what each child is known to have used.
        self._read_before, self._written_before = before.read, before.written
        self._children_cpu = self._ended_unseen = self._cpu_so_far = 0.0
        self._own_cpu_before = time.process_time()
        del self.cpu_of[self._pid]

    def read(self) -> TreeUsage:
        """Read the usage of the tree.

        The CPU time of the calling thread is left out, all of it: it must be one that was started
        to read, and does nothing else.
        """
        for pid in self._descendants.listed():
            self._children.setdefault(pid, _Counted())
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
        """CPU seconds of the tree so far, never falling, though clocks differ by microseconds."""
        reading = time.thread_time()
        own = time.process_time() - reading - self._own_cpu_before
        ended = cpu_of_ended_children() - self._ended_before
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


def cpu_of_ended_children() -> float:
    """CPU seconds of ended children that this process has waited for."""
    times = os.times()
    return times.children_user + times.children_system


T = TypeVar("T")

_SHARE_OF_TIME = 0.02
_LONGEST_WAIT = 0.05
_SECONDS_A_BYTE = 40e-12
"""What it took to read a byte in small pages, on a slow machine."""


class MemoryReading(NamedTuple):
    """Bytes at `time`, summed over `processes`; `pss` and `uss` are NaN if not read."""

    time: float
    rss: float
    pss: float
    uss: float
    processes: float


class MemoryTree:
    """Reads the memory of the process and descendants, whenever descendants start and end.

    Notes
    -----
    To find which pages are shared the kernel reads each, and meanwhile the process cannot map
    others. So that is read for at most a fiftieth of the time; what is resident is always read.
    """

    def __init__(self) -> None:
        self._reader = process_reader()
        self._pid = os.getpid()
        self._descendants = Descendants(self._reader, self._pid)
        self._children = set(self._descendants.listed())
        self._next_shares = 0.0
        expected = _SECONDS_A_BYTE * sum(self._of_processes(self._reader.resident))
        self._shares = ShareOfTime(_SHARE_OF_TIME, expected)

    def read(self, waited_for: bool = False) -> MemoryReading:
        """Read the memory and, if due, the shares of shared pages.

        If someone waits for the reading, what is shared is always read, unless that takes long.
        """
        self._children.update(self._descendants.listed())
        time = perf_counter()
        is_time = self._shares.seconds < _LONGEST_WAIT if waited_for else time >= self._next_shares
        if is_time:
            with self._shares:
                memories = self._of_processes(self._reader.memory)
            self._next_shares = time + self._shares.pause
        else:
            resident = self._of_processes(self._reader.resident)
            memories = [MemoryOfProcess(rss, nan, nan) for rss in resident]
        rss, pss, uss = map(sum, zip(*memories, strict=True))
        return MemoryReading(time, rss, pss, uss, len(memories))

    def _of_processes(self, read: Callable[[int], T]) -> list[T]:
        results = [read(self._pid)]
        for pid in list(self._children):
            try:
                results.append(read(pid))
            except NoSuchProcess:
                self._children.discard(pid)
        return results


try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]


def memory_limit() -> float:
    """Bytes; NaN if not known."""
    limits = [limit for limit in (_memory_of_machine(), *_limits()) if limit > 0]
    return float(min(limits, default=nan))


@cache
def _memory_of_machine() -> float:
    return float(psutil.virtual_memory().total)


def _limits() -> Iterator[float]:
    """Limits by the shell, and by control groups such as containers."""
    if resource is not None:
        for name, kind in (("RLIMIT_AS", "vms"), ("RLIMIT_DATA", "data")):
            soft = resource.getrlimit(getattr(resource, name))[0] if hasattr(resource, name) else -1
            if soft != resource.RLIM_INFINITY:
                # Such a limit counts what is mapped. So much of it is not in memory, as stacks of
                # threads, and cannot be had for data.
                now = psutil.Process().memory_info()
                mapped = max(getattr(now, kind, 0) - now.rss, 0)
                yield float(max(soft - mapped, min(soft, now.rss)))
    yield from own_memory_limits()
