"""CPU seconds of threads, by thread and by library."""

from __future__ import annotations

import os
import re
import sys
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cache
from math import nan
from pathlib import PurePosixPath
from struct import calcsize, pack
from threading import get_ident, get_native_id
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.system.periodic import OwnThreads, ShareOfTime, clock_of_thread

if TYPE_CHECKING:
    from dask_diag.system.processes import LinuxReader


PYTHON = "python"
"""In place of a library: Python code started it, by ``_thread`` and not by ``threading``."""

_SHARE_OF_TIME = 0.01
"""To name the threads that were read takes about as long again: together a fiftieth."""


class ThreadReading(NamedTuple):
    """CPU seconds of the process and, by native id, of live threads, up to `time`."""

    time: float
    cpu_process: float
    threads: dict[int, float]
    own: OwnThreads


class _LastReading:
    """Last reading, reused while a new reading would cost too much of the time since."""

    def __init__(self) -> None:
        self.pid = 0
        self.reading = ThreadReading(0.0, 0.0, {}, OwnThreads({}, {}))
        self.work = ShareOfTime(_SHARE_OF_TIME)

    def is_recent(self, now: float) -> bool:
        """Whether the reading is of the process and not yet worth replacing."""
        return os.getpid() == self.pid and now - self.reading.time < self.work.pause


_last = _LastReading()


def read_threads() -> ThreadReading | None:
    """CPU seconds up to now, or to a moment ago; None if unknown by thread."""
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
    """Native ids of live threads; empty if unknown."""
    cpu_by_thread = _source()
    return set() if isinstance(cpu_by_thread, str) else set(cpu_by_thread())


def why_not_by_thread() -> str:
    """Reason for unknown CPU by thread on the machine; empty if known."""
    source = _source()
    return source if isinstance(source, str) else ""


@cache
def _source() -> Callable[[], dict[int, float]] | str:
    """Best function to read CPU by thread, or a reason for having none."""
    reason = ""
    for read in (linux_clocks, psutil_clocks) if sys.platform == "linux" else (psutil_clocks,):
        try:
            if get_native_id() in read():
                return read
            reason = f"on {sys.platform}, psutil and Python number threads differently"
        except (OSError, AttributeError, NotImplementedError) as error:
            reason = f"{type(error).__name__}: {error}"
    return reason


def psutil_clocks() -> dict[int, float]:
    """CPU seconds of each thread, in the platform's resolution.

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


def cpu_of_thread(native_id: int) -> float:
    """CPU seconds of a live thread; NaN if unknown."""
    try:
        return time.clock_gettime(clock_of_thread(native_id))
    except (OSError, AttributeError):
        return nan


def linux_clocks() -> dict[int, float]:
    """CPU seconds of each thread, to the nanosecond."""
    clock = time.clock_gettime
    cpu = {}
    for thread in _reader().own_threads():
        try:
            cpu[thread] = clock(clock_of_thread(thread))
        except OSError:
            # It has ended since it was listed.
            continue
    return cpu


@cache
def _reader() -> LinuxReader:
    # ctypes takes milliseconds to import.
    from dask_diag.system.processes import LinuxReader

    return LinuxReader()


_WORTH_A_LIBRARY = 0.05
"""CPU seconds of native threads of a computation from which on their library is looked up: that
takes some milliseconds, once for each thread."""

_CLOCKS_DIFFER = 1e-4
"""Seconds: threads go on while one after the other is read."""

_libraries: dict[int, str] = {}
"""The library of each live native thread that was looked up; empty if it is not known."""


class ThreadCpu(NamedTuple):
    """CPU seconds of one thread, or of all ended threads.

    `ident` is Python's, 0 if Python does not know the thread; `kind` is one of
    `dask_diag.model.codes.THREAD_KINDS`, before it is known which threads ran tasks.
    """

    kind: str
    name: str
    ident: int
    cpu: float


class ThreadUsage:
    """CPU of threads from creation, or a reading before, until `stop`.

    A thread that starts meanwhile counts from its start. One that ends is not lost: the process's
    clock has it, and so `ended` has what all live threads together do not.
    """

    __slots__ = ("_after", "_before")

    def __init__(self, before: ThreadReading | None = None) -> None:
        self._before = before or read_threads()
        self._after: ThreadReading | None = None

    def stop(self) -> None:
        """Read the clocks for the last time."""
        self._after = read_threads()

    def threads(self) -> list[ThreadCpu]:
        """CPU of each thread until now, or until `stop`.

        Ask while the threads live: what they are is read now. Empty if it is not known, or if the
        time was too short to read the clocks twice.
        """
        before, after = self._before, self._after or read_threads()
        if before is None or after is None or after is before:
            return []
        threads = [*_of_live_threads(before, after), *_of_ended_own_threads(before, after)]
        cpu_process = after.cpu_process - before.cpu_process
        ended = cpu_process - sum(thread.cpu for thread in threads)
        return [*threads, ThreadCpu("ended", "", 0, ended)] if ended > _CLOCKS_DIFFER else threads


NO_THREADS = ThreadUsage(ThreadReading(0.0, 0.0, {}, OwnThreads({}, {})))
"""In place of those of a computation that has ended."""


def _of_live_threads(before: ThreadReading, after: ThreadReading) -> Iterator[ThreadCpu]:
    used = {}
    for native_id, cpu in after.threads.items():
        spent = cpu - before.threads.get(native_id, 0.0)
        # Less than nothing: another thread had that id before.
        used[native_id] = cpu if spent < 0 else spent
    thread_of = {thread.native_id: thread for thread in threading.enumerate()}
    unknown = {number: cpu for number, cpu in used.items() if cpu > 0 and number not in thread_of}
    libraries = _libraries_of(unknown, after)
    for native_id, cpu in used.items():
        thread = thread_of.get(native_id)
        if cpu > 0 and thread is not None:
            kind = "dask_diag" if native_id in after.own.live else "python"
            yield ThreadCpu(kind, thread.name, thread.ident or 0, cpu)
        elif native_id in libraries:
            library = libraries[native_id]
            is_python = library == PYTHON
            yield ThreadCpu(*(("python", "") if is_python else ("native", library)), 0, cpu)


def _libraries_of(unknown: dict[int, float], after: ThreadReading) -> dict[int, str]:
    """Libraries of live threads; empty if unknown."""
    for thread in set(_libraries).difference(after.threads):
        _libraries.pop(thread, None)
    new = set(unknown).difference(_libraries)
    if sum(unknown[thread] for thread in new) >= _WORTH_A_LIBRARY:
        library_of = libraries_of_threads(new)
        # A thread that ended just now was still listed, and has no library any more.
        new &= live_threads()
        _libraries.update({thread: library_of.get(thread, "") for thread in new})
        return {thread: _libraries[thread] for thread in unknown if thread in _libraries}
    return {thread: _libraries.get(thread, "") for thread in unknown}


def _of_ended_own_threads(before: ThreadReading, after: ThreadReading) -> list[ThreadCpu]:
    """CPU seconds of ended threads of dask_diag, which note CPU when ending."""
    used = {name: cpu - before.own.ended.get(name, 0.0) for name, cpu in after.own.ended.items()}
    for thread, name in before.own.live.items():
        if thread not in after.own.live and name in used:
            used[name] -= before.threads.get(thread, 0.0)
    return [ThreadCpu("dask_diag", name, 0, cpu) for name, cpu in used.items() if cpu > 0]


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
    """Known libraries of threads of the process."""
    wanted = set(threads)
    if sys.platform != "linux" or not wanted:
        return {}
    try:
        with _opened(b"/proc/self/mem") as memory, _opened(b"/proc/self/maps") as maps:
            return dict(_libraries_by_thread(wanted, memory, list(_mappings(maps))))
    except OSError:
        return {}


def library_of_file(path: str) -> str:
    """Name of the library in a file; empty if the file's name does not tell."""
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


def _libraries_by_thread(
    wanted: set[int], read: Read, mappings: list[_Mapping]
) -> Iterator[tuple[int, str]]:
    code = [mapping for mapping in mappings if "x" in mapping.access]
    for mapping in mappings:
        if not wanted:
            break
        if not mapping.access.startswith("rw") or mapping.file:
            continue
        length = mapping.stop - mapping.start
        top = read(min(length, _DESCRIPTOR), mapping.stop)
        for thread in [thread for thread in wanted if _has_number(top, thread)]:
            library = _outermost_library(read(min(length, _TOP), mapping.stop), code)
            if library:
                yield thread, library
                wanted.discard(thread)


def _has_number(memory: bytes, number: int) -> bool:
    """Whether memory has an aligned ``int``."""
    packed = pack("i", number)
    index = memory.find(packed)
    while index >= 0 and index % len(packed):
        index = memory.find(packed, index + 1)
    return index >= 0


def _outermost_library(stack: bytes, code: list[_Mapping]) -> str:
    """Library of the code address nearest to the top, at the highest addresses."""
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


Read = Callable[[int, int], bytes]
"""Reads so many bytes up to an offset of a file; fewer at its end, none where memory is gone."""


@contextmanager
def _opened(path: bytes) -> Iterator[Read]:
    """Open a file of the process, and read with the GIL held: getting it back may take 5 ms.

    Memory is read as a file: a thread may unmap memory meanwhile.
    """
    import ctypes

    libc = ctypes.PyDLL(None, use_errno=True)
    libc.pread.restype = ctypes.c_ssize_t
    libc.pread.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int64]
    buffer = ctypes.create_string_buffer(_LONGEST_READ)
    descriptor: int = libc.open(path, os.O_RDONLY | os.O_CLOEXEC)
    if descriptor < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))

    def read(length: int, stop: int) -> bytes:
        got = libc.pread(descriptor, buffer, length, stop - length)
        return ctypes.string_at(buffer, max(got, 0))

    try:
        yield read
    finally:
        libc.close(descriptor)


def _mappings(read: Read) -> Iterator[_Mapping]:
    """Mapped areas, in order of addresses."""
    text = b""
    while part := read(_LONGEST_READ, len(text) + _LONGEST_READ):
        text += part
    for line in text.decode(errors="replace").splitlines():
        addresses, access, _, _, _, *file = line.split(None, 5)
        start, stop = (int(address, 16) for address in addresses.split("-"))
        yield _Mapping(start, stop, access, file[0] if file else "")


_WORTH_READING = 0.05
"""CPU seconds of other threads after which each of them is read: as many are needed to look up the
library of native ones."""


class WorkerThreads:
    """CPU of threads of the process, except the thread of tasks, in one computation.

    Nothing is raised: an error is for `fault`, and nothing is known then.

    Attributes
    ----------
    fault : str
        An error of reading clocks, of any computation; empty if there was none.
    """

    __slots__ = ("_computation", "_others", "_usage", "fault")

    def __init__(self) -> None:
        self._computation = 0
        self._others = 0.0
        self._usage: ThreadUsage | None = None
        self.fault = ""

    def start(self, computation: int) -> None:
        """Count from now on, for the first task of a computation."""
        if computation == self._computation:
            return
        self._computation, self._usage = computation, None
        try:
            self._usage, self._others = ThreadUsage(), _cpu_of_others()
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"

    def threads(self) -> tuple[ThreadCpu, ...]:
        """CPU of each thread since `start`; empty if hardly more than last returned."""
        others = _cpu_of_others()
        if self._usage is None or others - self._others < _WORTH_READING:
            return ()
        this, threads = get_ident(), []
        try:
            threads = [thread for thread in self._usage.threads() if thread.ident != this]
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        if threads:
            self._others = others
        return tuple(threads)


def _cpu_of_others() -> float:
    """CPU seconds so far of all threads of the process but the calling thread."""
    return process_time() - thread_time()
