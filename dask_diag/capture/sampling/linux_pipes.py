"""Whether a thread that waits for files waits for another program, with a pipe between them."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from itertools import islice

from dask_diag.capture.system.linux_processes import LinuxReader

__all__ = ["Pipes"]

_MOST_FILES = 64
"""Of more open files of this process it is not known which are pipes: to ask takes 5 µs each."""
_MOST_POLLED = 8
"""Subprocess polls three at most."""
_POLLED_BYTES = 8
"""Size of a ``struct pollfd``: the file's number is an ``int`` at its start."""
_MOST_KNOWN = 1_000


class Pipes:
    """The pipes of this process, asked for with the GIL held."""

    def __init__(self) -> None:
        self._reader = LinuxReader()
        self._libc = ctypes.PyDLL(None)
        self._libc.pread.restype = ctypes.c_ssize_t
        self._is_elsewhere: dict[bytes, bool] = {}

    def end_elsewhere(self, files: Iterable[int]) -> bool:
        """Whether these are pipes, each with its other end in another process."""
        names = [self._reader.own_file(file) for file in files]
        return bool(names) and all(map(self._ends_elsewhere, names))

    def polled(self, address: int, count: int) -> list[int]:
        """The files in a thread's array for ``poll``; none if they are many or cannot be read."""
        if not 0 < count <= _MOST_POLLED:
            return []
        # Read as a file: the thread may go on meanwhile, and its memory be gone. It is opened each
        # time, as the child of a fork would read its parent's memory.
        memory = self._libc.open(b"/proc/self/mem", os.O_RDONLY | os.O_CLOEXEC)
        if memory < 0:
            return []
        array = ctypes.create_string_buffer(count * _POLLED_BYTES)
        length = self._libc.pread(memory, array, len(array), ctypes.c_int64(address))
        self._libc.close(memory)
        numbers = memoryview(array.raw).cast("i")[::2].tolist()
        return numbers if length == len(array) else []

    def _ends_elsewhere(self, name: bytes) -> bool:
        if not name.startswith(b"pipe:"):
            return False
        # A pipe has a number of its own, and its other end is closed here before one waits.
        if name not in self._is_elsewhere:
            if len(self._is_elsewhere) >= _MOST_KNOWN:
                self._is_elsewhere.clear()
            files = list(islice(self._reader.own_files(), _MOST_FILES + 1))
            ends = sum(self._reader.own_file(file) == name for file in files[:_MOST_FILES])
            self._is_elsewhere[name] = ends == 1 and len(files) <= _MOST_FILES
        return self._is_elsewhere[name]
