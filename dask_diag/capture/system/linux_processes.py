"""One process's numbers from Linux's ``/proc``, read with the GIL held, in microseconds.

A thread that reads files gives up the GIL at every step and may wait 5 ms to get it
back: with a busy thread beside it, psutil takes a second to list the children of a process.
"""

from __future__ import annotations

import ctypes
import os
import time
from collections.abc import Callable, Iterator
from typing import NamedTuple

__all__ = ["Counters", "LinuxReader", "Memory"]

_NAN = float("nan")


class Counters(NamedTuple):
    """Bytes of memory and threads now; bytes read and written since the process began (or NaN)."""

    memory: float
    threads: float
    read: float
    written: float


class Memory(NamedTuple):
    """Bytes of memory: resident, proportional (shared pages divided), and of it alone.

    What cannot be known is NaN.
    """

    rss: float
    pss: float
    uss: float


class LinuxReader:
    """Reads ``/proc`` without giving up the GIL.

    Bytes are those that went through read and write calls, caches included.
    """

    def __init__(self) -> None:
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._libc.read.restype = self._libc.readlink.restype = ctypes.c_ssize_t
        self._libc.opendir.restype = ctypes.c_void_p
        self._libc.readdir.restype = ctypes.c_void_p
        self._libc.readdir.argtypes = self._libc.closedir.argtypes = [ctypes.c_void_p]
        # It releases the GIL, for what the kernel takes milliseconds to find.
        self._slow_read = ctypes.CDLL(None, use_errno=True).read
        self._slow_read.restype = ctypes.c_ssize_t
        self._buffer = ctypes.create_string_buffer(65536)
        self._page = os.sysconf("SC_PAGE_SIZE")

    def children(self, pid: int) -> list[int]:
        """The processes that it started and that have not ended."""
        return [
            int(child)
            for thread in self._entries(f"/proc/{pid}/task")
            for child in self._text(f"/proc/{pid}/task/{thread}/children", missing=b"").split()
        ]

    def idle(self) -> dict[int, float]:
        """For how many seconds each CPU had nothing to do since the machine started."""
        ticks = os.sysconf("SC_CLK_TCK")
        idle = {}
        for line in self._text("/proc/stat").splitlines():
            name, *numbers = line.split(None, 6)
            if name.startswith(b"cpu") and name != b"cpu":
                # user, nice, system, idle, and idle while waiting for a disk
                idle[int(name[3:])] = (int(numbers[3]) + int(numbers[4])) / ticks
        return idle

    def own_threads(self) -> list[int]:
        """The native ids of the threads of this process."""
        return [int(thread) for thread in self._entries("/proc/self/task")]

    def own_files(self) -> Iterator[int]:
        """The numbers of the open files of this process."""
        return map(int, self._entries("/proc/self/fd"))

    def own_file(self, number: int) -> bytes:
        """What an open file of this process is: a path, ``pipe:[123]``; nothing if it is closed."""
        path = b"/proc/self/fd/%d" % number
        length = self._libc.readlink(path, self._buffer, len(self._buffer))
        return ctypes.string_at(self._buffer, max(length, 0))

    def cpu(self, pid: int) -> float:
        """CPU seconds since it began, to the nanosecond."""
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
        read, written = (float(moved[1]), float(moved[3])) if len(moved) > 3 else (_NAN, _NAN)
        return Counters(memory, float(after_name[17]), read, written)

    def resident(self, pid: int) -> float:
        """Bytes of memory that are resident, shared or not."""
        return float(int(self._text(f"/proc/{pid}/statm").split()[1]) * self._page)

    def memory(self, pid: int) -> Memory:
        """Memory, and how much of it is shared: the kernel looks at every page."""
        rolled_up = self._text(f"/proc/{pid}/smaps_rollup", missing=b"", read=self._slow_read)
        sizes: dict[bytes, float] = {}
        for line in rolled_up.splitlines()[1:]:
            name, size, *_ = line.split()
            sizes[name] = 1024.0 * int(size)
        if b"Pss:" not in sizes:
            return Memory(self.resident(pid), _NAN, _NAN)
        private = sum(size for name, size in sizes.items() if name.startswith(b"Private_"))
        return Memory(sizes[b"Rss:"], sizes[b"Pss:"], private)

    def _text(
        self, path: str, missing: bytes | None = None, read: Callable[..., int] | None = None
    ) -> bytes:
        descriptor = self._libc.open(path.encode(), os.O_RDONLY | os.O_CLOEXEC)
        if descriptor < 0:
            if missing is not None:
                return missing
            raise ProcessLookupError(path)
        try:
            length = (read or self._libc.read)(descriptor, self._buffer, len(self._buffer))
        finally:
            self._libc.close(descriptor)
        if length <= 0:
            if missing is not None:
                return missing
            raise ProcessLookupError(path)
        return self._buffer.raw[:length]

    def _entries(self, path: str) -> Iterator[str]:
        folder = self._libc.opendir(path.encode())
        if not folder:
            raise ProcessLookupError(path)
        try:
            while entry := self._libc.readdir(folder):
                # struct dirent: inode and offset (8 bytes each), length (2), type (1), name.
                name = ctypes.string_at(entry + 19).decode()
                if name.isdigit():
                    yield name
        finally:
            self._libc.closedir(folder)
