"""State of waiting threads, read from Linux with the GIL held."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
import time
from collections.abc import Callable, Iterable
from functools import cache, partial
from itertools import islice
from math import nan

from dask_diag.capture.metrics import runs_in_collections
from dask_diag.model.codes import Activity
from dask_diag.system.periodic import clock_of_thread
from dask_diag.system.processes import LinuxReader

_MOST_FILES = 200
"""Most open files to search for pipes: each takes 5 µs, once for a pipe."""
_MOST_POLLED = 8
"""Subprocess polls three at most."""
_POLLED_BYTES = 8
"""Size of a ``struct pollfd``: the file's number is an ``int`` at its start."""
_MOST_KNOWN = 1_000


class Pipes:
    """Pipes of this process, read with the GIL held."""

    def __init__(self) -> None:
        self._reader = LinuxReader()
        self._libc = ctypes.PyDLL(None)
        self._libc.pread.restype = ctypes.c_ssize_t
        self._is_elsewhere: dict[bytes, bool] = {}

    def end_elsewhere(self, files: Iterable[int]) -> bool:
        """Whether all files are pipes, each with its other end in another process."""
        names = [self._reader.own_file(file) for file in files]
        return bool(names) and all(map(self._ends_elsewhere, names))

    def polled(self, address: int, count: int) -> list[int]:
        """Files in a thread's array for ``poll``; empty if there are many or it is unreadable."""
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


_OPEN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0)
_LONGEST = 256

_WAITS = {
    Activity.IO_WAIT: (
        "read write pread64 pwrite64 readv writev preadv pwritev preadv2 pwritev2 recvfrom recvmsg "
        "recvmmsg sendto sendmsg sendmmsg accept accept4 connect poll ppoll select pselect6 "
        "epoll_wait epoll_pwait epoll_pwait2 open openat openat2 close stat fstat lstat newfstatat "
        "statx getdents64 fsync fdatasync sync_file_range sendfile splice tee copy_file_range "
        "unlink unlinkat rename renameat renameat2 mkdir rmdir io_getevents io_uring_enter "
        "msync truncate ftruncate fallocate"
    ),
    Activity.CHILD_WAIT: "wait4 waitid",
    Activity.SLEEP: "nanosleep clock_nanosleep pause rt_sigtimedwait restart_syscall",
    Activity.DEVICE_WAIT: "ioctl",
    Activity.LOCK_WAIT: "semop semtimedop fcntl flock futex_waitv",
    Activity.PAGE_FAULT: "mmap munmap mremap mprotect madvise brk mlock",
}
_NUMBERS = {
    "x86_64": (
        "read=0 write=1 open=2 close=3 stat=4 fstat=5 lstat=6 poll=7 mmap=9 mprotect=10 munmap=11 "
        "brk=12 ioctl=16 pread64=17 pwrite64=18 readv=19 writev=20 select=23 "
        "mremap=25 msync=26 madvise=28 pause=34 nanosleep=35 sendfile=40 connect=42 accept=43 "
        "sendto=44 recvfrom=45 sendmsg=46 recvmsg=47 wait4=61 semop=65 fcntl=72 flock=73 fsync=74 "
        "fdatasync=75 truncate=76 ftruncate=77 rename=82 mkdir=83 rmdir=84 unlink=87 "
        "rt_sigtimedwait=128 mlock=149 futex=202 io_getevents=208 getdents64=217 "
        "restart_syscall=219 semtimedop=220 clock_nanosleep=230 epoll_wait=232 waitid=247 "
        "openat=257 newfstatat=262 unlinkat=263 renameat=264 pselect6=270 ppoll=271 splice=275 "
        "tee=276 sync_file_range=277 epoll_pwait=281 fallocate=285 accept4=288 preadv=295 "
        "pwritev=296 recvmmsg=299 sendmmsg=307 renameat2=316 copy_file_range=326 preadv2=327 "
        "pwritev2=328 statx=332 io_uring_enter=426 openat2=437 epoll_pwait2=441 futex_waitv=449"
    ),
    "aarch64": (
        "io_getevents=4 epoll_pwait=22 fcntl=25 ioctl=29 flock=32 unlinkat=35 renameat=38 "
        "truncate=45 ftruncate=46 fallocate=47 openat=56 close=57 getdents64=61 read=63 write=64 "
        "readv=65 writev=66 pread64=67 pwrite64=68 preadv=69 pwritev=70 sendfile=71 pselect6=72 "
        "ppoll=73 splice=76 tee=77 newfstatat=79 fstat=80 fsync=82 fdatasync=83 "
        "sync_file_range=84 waitid=95 futex=98 nanosleep=101 clock_nanosleep=115 "
        "restart_syscall=128 rt_sigtimedwait=137 semtimedop=192 semop=193 accept=202 connect=203 "
        "sendto=206 recvfrom=207 sendmsg=211 recvmsg=212 brk=214 munmap=215 mremap=216 mmap=222 "
        "mprotect=226 msync=227 mlock=228 madvise=233 accept4=242 recvmmsg=243 wait4=260 "
        "sendmmsg=269 renameat2=276 copy_file_range=285 preadv2=286 pwritev2=287 statx=291 "
        "io_uring_enter=426 openat2=437 epoll_pwait2=441 futex_waitv=449"
    ),
}
_FILE_COUNT = {"select": 0, "pselect6": 0, "poll": 1, "ppoll": 1}
"""Calls that wait for files, and which argument says how many: for none, they sleep."""
_FILE_CALLS = ("read", "write", "readv", "writev")
_POLL_CALLS = ("poll", "ppoll")
"""Calls that may wait for the program at the other end of a pipe."""


def why_not_here() -> str:
    """Reason why waits cannot be classified on this machine; empty if they can."""
    if sys.platform != "linux":
        return f"it needs Linux's /proc, and this is {sys.platform}"
    if sys.implementation.name != "cpython":
        return f"it needs CPython, and this is {sys.implementation.name}"
    if platform.machine() not in _NUMBERS:
        machines = ", ".join(_NUMBERS)
        return f"it supports {machines}, and this is {platform.machine()}"
    for name in ("schedstat", "syscall"):
        try:
            with open(f"/proc/thread-self/{name}", "rb") as file:
                file.read()
        except OSError as error:
            return f"/proc/thread-self/{name} cannot be read here: {error.strerror}"
    return ""


class LinuxThread:
    """A thread of this process, whose state another thread reads.

    Its files in ``/proc`` are opened when first read and closed when this object goes: to open one
    takes three times as long as to read it. Not all of them can be read at once.

    Parameters
    ----------
    ident : int
        Native id of the thread.

    Attributes
    ----------
    read_schedstat : callable
        Reads the file of that name, of which `seconds_waited` makes a number: where it is read for
        each task, most are never made into one.
    """

    __slots__ = ("_clock", "_kernel", "_schedstat", "_syscall", "read_schedstat")

    def __init__(self, ident: int) -> None:
        self._kernel = _kernel()
        self._clock = clock_of_thread(ident)
        self._syscall = _File(b"/proc/self/task/%d/syscall" % ident, self._kernel)
        self._schedstat = _File(b"/proc/self/task/%d/schedstat" % ident, self._kernel)
        self.read_schedstat = self._schedstat.read

    def waits_for(self) -> str | None:
        """Activity of the thread; empty if it runs, None if it has ended.

        ``gil-wait``, ``lock-wait``, ``io-wait``, ``child-wait``, ``sleep``, ``device-wait``,
        ``page-fault``, or ``unexplained`` for anything else.
        """
        call = self._syscall.read().split()
        return self._kernel.activity_of(call) if call else None

    def waited_for_cpu(self) -> float:
        """Seconds in which the thread was runnable without a processor; NaN if unknown."""
        return seconds_waited(self.read_schedstat())

    def cpu(self) -> float:
        """CPU seconds of the thread, exactly.

        Raises
        ------
        OSError
            If it has ended.
        """
        return time.clock_gettime(self._clock)


def seconds_waited(schedstat: bytes) -> float:
    """Seconds in which a thread was runnable without a processor, from its ``schedstat``."""
    numbers = schedstat.split()
    return int(numbers[1]) / 1e9 if len(numbers) > 1 else nan


class _File:
    """A small file, read repeatedly without releasing the GIL.

    What is passed to the system is made once, in C's types: to convert it took as long as to read.
    """

    __slots__ = ("_buffer", "_descriptors", "_kernel", "_path", "_read")

    def __init__(self, path: bytes, kernel: _Kernel) -> None:
        self._path = path
        self._kernel = kernel
        self._buffer = (ctypes.c_char * _LONGEST)()
        # More than one, if several threads were the first to read.
        self._descriptors: list[int] = []
        self._read: Callable[[], int] | None = None

    def read(self) -> bytes:
        """Return the content; empty if the file cannot be read."""
        length = (self._read or self._open())()
        # All that read at the same time read the same file.
        return self._buffer[:length] if length > 0 else b""  # type: ignore[return-value]

    def _open(self) -> Callable[[], int]:
        descriptor = self._kernel.open(self._path, _OPEN)
        read: Callable[[], int] = partial(
            self._kernel.pread,
            ctypes.c_int(descriptor),
            self._buffer,
            ctypes.c_size_t(_LONGEST),
            ctypes.c_long(0),
        )
        if descriptor >= 0:
            self._descriptors.append(descriptor)
            self._read = read
        return read

    def __del__(self) -> None:
        for descriptor in self._descriptors:
            self._kernel.close(descriptor)


class _Kernel:
    """Calls of the C library, and the meaning of system calls' numbers."""

    def __init__(self) -> None:
        libc = ctypes.PyDLL(None)
        self.open, self.pread, self.close = libc.open, libc.pread, libc.close
        self.pread.restype = ctypes.c_ssize_t
        self._lock_begins, self._lock_ends = _python_runtime()
        pairs = (pair.split("=") for pair in _NUMBERS[platform.machine()].split())
        # Numbers of the system calls that exist on this machine, as text.
        numbers = {name: number.encode() for name, number in pairs}
        self._activity = {
            numbers[name]: activity
            for activity, names in _WAITS.items()
            for name in names.split()
            if name in numbers
        }
        self._file_count = {numbers[n]: at for n, at in _FILE_COUNT.items() if n in numbers}
        self._futex = numbers["futex"]
        self._file_calls, self._poll_calls = (
            {numbers[name] for name in names if name in numbers}
            for names in (_FILE_CALLS, _POLL_CALLS)
        )
        self._pipes = Pipes()

    def activity_of(self, call: list[bytes]) -> str:
        """Activity of a system call, given as its number and arguments."""
        number = call[0]
        if number == b"running":
            return ""
        if number == self._futex:
            return Activity.GIL_WAIT if self._is_pythons(int(call[1], 16)) else Activity.LOCK_WAIT
        if number == b"-1":
            return Activity.PAGE_FAULT
        files = self._file_count.get(number)
        if files is not None and int(call[1 + files], 16) == 0:
            return Activity.SLEEP
        if self._pipes.end_elsewhere(self._files_of(call)):
            return Activity.CHILD_WAIT
        return self._activity.get(number, Activity.UNEXPLAINED)

    def _files_of(self, call: list[bytes]) -> list[int]:
        """Files of a call that may wait for a program at the other end of a pipe."""
        if call[0] in self._file_calls:
            # The other half of the register may hold anything.
            return [int(call[1], 16) & 0x7FFFFFFF]
        if call[0] in self._poll_calls:
            return self._pipes.polled(int(call[1], 16), int(call[2], 16))
        return []

    def _is_pythons(self, address: int) -> bool:
        return self._lock_begins <= address < self._lock_ends


runs_in_collections.add(id(_File.__del__.__code__))


@cache
def _kernel() -> _Kernel:
    return _Kernel()


class _Symbol(ctypes.Structure):
    """A symbol of the dynamic linker: ``Elf64_Sym``."""

    _fields_ = (
        ("name", ctypes.c_uint32),
        ("info", ctypes.c_ubyte),
        ("other", ctypes.c_ubyte),
        ("section", ctypes.c_uint16),
        ("value", ctypes.c_uint64),
        ("size", ctypes.c_uint64),
    )


def _python_runtime() -> tuple[int, int]:
    """Address range of the interpreter's state, where the words of the GIL lie."""
    begins = ctypes.addressof(ctypes.c_char.in_dll(ctypes.pythonapi, "_PyRuntime"))
    information = (ctypes.c_void_p * 4)()
    symbol = ctypes.POINTER(_Symbol)()
    try:
        has_symbol = ctypes.PyDLL(None).dladdr1(
            ctypes.c_void_p(begins), information, ctypes.byref(symbol), 1
        )
        size = symbol.contents.size if has_symbol and symbol else 0
    except AttributeError:
        size = 0
    return begins, begins + (int(size) or 1_000_000)
