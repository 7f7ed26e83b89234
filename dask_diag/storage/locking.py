"""One writer of a file at a time, whichever process it is in.

The operating system holds the lock with the open file, so that it ends with the process, however
that ends. Readers are not kept out.
"""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path

from dask_diag.atomic_files import already_there
from dask_diag.errors import RecordingFileError

__all__ = ["close", "create_locked", "is_locked_by_any", "lock", "locked"]

_locked_files: set[int] = set()
"""Descriptors of the files that this process has locked."""

if sys.platform == "win32":
    import msvcrt

    # Windows keeps others from reading what is locked: a byte where files hardly ever reach.
    _FAR = 2**31 - 2

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def _unlock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

    def is_locked_by_any(file: int) -> bool | None:
        """Whether any process has locked an open file; None, as it is not known here."""
        return None

    _IS_LOCKED: type[OSError] = PermissionError
else:
    import fcntl

    # Not lockf: its locks do not keep two writers in one process apart, and end when anyone in the
    # process closes the file, as a reader does.
    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _set_visible_lock(file, fcntl.F_WRLCK)

    def _unlock(file: int) -> None:
        _set_visible_lock(file, fcntl.F_UNLCK)
        fcntl.flock(file, fcntl.LOCK_UN)

    # A writer holds a second lock, of its open file, too: Linux says whether there is one without
    # taking it, to any process of this machine. Its list of flocks leaves out those of containers.
    _FIELDS = struct.Struct("hhqqi")
    """Kind, whence, start, length and process of ``struct flock`` on Linux."""
    _GET, _SET = (
        getattr(fcntl, name, None) if sys.platform == "linux" else None
        for name in ("F_OFD_GETLK", "F_OFD_SETLK")
    )

    def _whole_file(kind: int) -> bytes:
        return _FIELDS.pack(kind, os.SEEK_SET, 0, 0, 0)

    def _set_visible_lock(file: int, kind: int) -> None:
        # Who only reads cannot have one; without it a view says less, and nothing else is lost.
        if _SET is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(file, _SET, _whole_file(kind))

    def is_locked_by_any(file: int) -> bool | None:
        """Whether any writer has locked an open file, but by this; None if it is not known.

        To try the lock would say it, too, but a writer that comes just then would be refused.
        """
        if _GET is None:
            return None
        try:
            answer = fcntl.fcntl(file, _GET, _whole_file(fcntl.F_WRLCK))
        except OSError:
            return None
        return bool(_FIELDS.unpack(answer)[0] != fcntl.F_UNLCK)

    _IS_LOCKED = BlockingIOError


def lock(file: int, path: Path) -> None:
    """Keep other writers out of an open file until `close`.

    Raises
    ------
    RecordingFileError
        If another writer has locked it.
    """
    try:
        _lock(file)
    except _IS_LOCKED:
        who = "this process" if _is_locked_here(file) else "another process"
        raise RecordingFileError(
            f"cannot write {path}: {who} is writing it; choose another name, or wait for its end"
        ) from None
    except OSError:
        # A file system without locks: better a recording that is not guarded than none.
        return
    _locked_files.add(file)


def create_locked(path: Path, overwrite: bool) -> int:
    """The descriptor of a file that is empty and locked; OSError if it cannot be made."""
    flags = os.O_RDWR | os.O_CREAT | (0 if overwrite else os.O_EXCL) | getattr(os, "O_BINARY", 0)
    while True:
        try:
            file = os.open(path, flags, 0o666)
        except FileExistsError:
            raise already_there(path, RecordingFileError) from None
        try:
            lock(file, path)
            if _is_at(file, path):
                # Not earlier: it may have held what another writer writes.
                os.ftruncate(file, 0)
                return file
        except BaseException:
            close(file)
            raise
        close(file)


def close(file: int) -> None:
    """Unlock a file and close it."""
    if file in _locked_files:
        _locked_files.discard(file)
        # Not left to the closing: a process that is just being started may have the file, too.
        with contextlib.suppress(OSError):
            _unlock(file)
    os.close(file)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep writers out of a file, if there is one, while another takes its place."""
    if sys.platform == "win32":
        # An open file cannot be replaced, neither by this process nor while another writes it.
        yield
        return
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # There is none, or it must not be read; replacing it shows whether it may be replaced.
        yield
        return
    try:
        lock(file, path)
        yield
    finally:
        close(file)


def _is_at(file: int, path: Path) -> bool:
    """Whether an open file was not replaced or removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def _is_locked_here(file: int) -> bool:
    status = os.fstat(file)
    for locked_file in tuple(_locked_files):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(locked_file), status):
                return True
    return False


def _release_in_child() -> None:
    """In a forked child: a lock lasts until every process has closed the file, this child included.

    The descriptor stays in use, so that no other file gets it, and with it what is still written.
    """
    for file in tuple(_locked_files):
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, file, inheritable=False)
            os.close(null)
    _locked_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)
