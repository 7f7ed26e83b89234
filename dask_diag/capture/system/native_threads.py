"""Which library runs a thread that Python did not start: BLAS, OpenMP, Arrow.

On Linux with glibc the top of a thread's stack holds its native id and, below it, the code that the
thread was started with. The outermost of that code which is not the C library's names the library.
"""

from __future__ import annotations

import ctypes
import os
import re
import sys
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from pathlib import PurePosixPath
from struct import calcsize, pack
from typing import NamedTuple

from dask_diag.capture.system.thread_clocks import PYTHON

__all__ = ["PYTHON", "libraries_of_threads", "library_of_file"]

_LIBRARIES = {
    "openblas": "openblas",
    "mkl": "mkl",
    "blis": "blis",
    "flexiblas": "flexiblas",
    "iomp": "openmp",
    "gomp": "openmp",
    "libomp": "openmp",
}
"""What is in a file's name, and what threadpoolctl calls the library."""
_SYSTEM = re.compile(r"(ld-|ld64|libc[.-]|libc\+\+|libpthread|libstdc\+\+|libgcc|libm[.-]|\[)")
"""Files whose code is around that of a thread's library."""
_PYTHON = re.compile(r"(lib)?python[\d.]*\w*(\.so.*)?$")
_DESCRIPTOR = 4096
"""Bytes at the top of a stack in which the C library describes the thread."""
_TOP = 65536
"""Bytes at the top of a stack in which the code is looked for that the thread was started with."""
_LONGEST_READ = 1 << 16
_WORD = calcsize("P")
_PAGE = 4096
"""Bytes of which the sizes of stacks, and of what guards them, are multiples."""


class _Mapping(NamedTuple):
    start: int
    stop: int
    access: str
    file: str


def libraries_of_threads(threads: Iterable[int]) -> dict[int, str]:
    """The library of each of these threads of this process for which it can be known."""
    wanted = set(threads)
    if sys.platform != "linux" or not wanted:
        return {}
    try:
        with _Files() as files:
            return dict(_libraries_of(wanted, files))
    except OSError:
        return {}


def library_of_file(path: str) -> str:
    """What the library is called whose code is in a file; empty if the file says nothing of it."""
    name = PurePosixPath(path).name
    if not name or _SYSTEM.match(name):
        return ""
    if _PYTHON.match(name):
        return PYTHON
    for part, library in _LIBRARIES.items():
        if part in name:
            return library
    stem = re.match(r"(?:lib)?([^.]*?)(?:-[0-9a-f]{8})?(?:\.|$)", name)
    return stem[1] if stem else ""


def _libraries_of(wanted: set[int], files: _Files) -> Iterator[tuple[int, str]]:
    mappings = list(files.mappings())
    code = [mapping for mapping in mappings if "x" in mapping.access]
    for mapping in mappings:
        if not wanted:
            break
        if not mapping.access.startswith("rw") or mapping.file:
            continue
        top = files.memory(max(mapping.start, mapping.stop - _DESCRIPTOR), mapping.stop)
        for thread in [thread for thread in wanted if _has_number(top, thread)]:
            top = files.memory(max(mapping.start, mapping.stop - _TOP), mapping.stop)
            library = _outermost_library(top, code)
            if library:
                yield thread, library
                wanted.discard(thread)


def _has_number(memory: bytes, number: int) -> bool:
    """Whether there is such an ``int``."""
    packed = pack("i", number)
    index = memory.find(packed)
    while index >= 0 and index % len(packed):
        index = memory.find(packed, index + 1)
    return index >= 0


def _outermost_library(stack: bytes, code: list[_Mapping]) -> str:
    """Of what is nearest to the top, which has the highest addresses."""
    starts = [mapping.start for mapping in code]
    first, last = starts[0], code[-1].stop
    words = memoryview(stack[len(stack) % _WORD :]).cast("P")
    for word in reversed(words):
        # The size of the stack is there, too: it would be code of an interpreter that is at low
        # addresses, as Debian's are.
        if first <= word < last and word % _PAGE:
            mapping = code[bisect_right(starts, word) - 1]
            library = library_of_file(mapping.file) if word < mapping.stop else ""
            if library:
                return library
    return ""


class _Files:
    """The memory of this process. Read as a file, it may be unmapped meanwhile by its thread."""

    def __init__(self) -> None:
        self._libc = ctypes.PyDLL(None, use_errno=True)
        self._libc.pread.restype = ctypes.c_ssize_t
        self._libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
        self._buffer = ctypes.create_string_buffer(_LONGEST_READ)

    def __enter__(self) -> _Files:
        self._memory = self._open(b"/proc/self/mem")
        try:
            self._maps = self._open(b"/proc/self/maps")
        except OSError:
            self._libc.close(self._memory)
            raise
        return self

    def __exit__(self, *args: object) -> None:
        self._libc.close(self._memory)
        self._libc.close(self._maps)

    def _open(self, path: bytes) -> int:
        descriptor: int = self._libc.open(path, os.O_RDONLY | os.O_CLOEXEC)
        if descriptor < 0:
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        return descriptor

    def memory(self, start: int, stop: int) -> bytes:
        """What is there; nothing if it is not there any more."""
        return self._read(self._memory, stop - start, start)

    def mappings(self) -> Iterator[_Mapping]:
        """What is mapped, in order of addresses."""
        parts = []
        offset = 0
        while part := self._read(self._maps, _LONGEST_READ, offset):
            parts.append(part)
            offset += len(part)
        for line in b"".join(parts).decode(errors="replace").splitlines():
            addresses, access, _, _, _, *file = line.split(None, 5)
            start, stop = (int(address, 16) for address in addresses.split("-"))
            yield _Mapping(start, stop, access, file[0] if file else "")

    def _read(self, descriptor: int, length: int, offset: int) -> bytes:
        got = self._libc.pread(descriptor, self._buffer, length, offset)
        return ctypes.string_at(self._buffer, max(got, 0))
