"""One writer of a file at a time, whichever process it is in.

The operating system keeps the lock with the open file, so that it goes with a process however that
ends, and readers are not kept out.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Iterator
from pathlib import Path

from dask_diag.errors import RecordingFileError

__all__ = ["close", "lock", "locked"]

_ours: set[int] = set()
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

    _TAKEN: type[OSError] = PermissionError
else:
    import fcntl

    # Not lockf: its locks do not keep two writers in one process apart, and end when anyone in the
    # process closes the file, as one does who reads it.
    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)

    def _unlock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_UN)

    _TAKEN = BlockingIOError


def lock(file: int, path: Path) -> None:
    """Keep other writers out of an open file until `close`.

    Raises
    ------
    RecordingFileError
        If another has locked it.
    """
    try:
        _lock(file)
    except _TAKEN:
        who = "this process" if _is_ours(file) else "another process"
        raise RecordingFileError(
            f"cannot write {path}: {who} is writing it; choose another name, or wait for its end"
        ) from None
    except OSError:
        # A file system without locks: better a recording that is not guarded than none.
        return
    _ours.add(file)


def close(file: int) -> None:
    """Let others write it, and close it."""
    if file in _ours:
        _ours.discard(file)
        # Said and not left to the closing: a process that is just being started may have it, too.
        with contextlib.suppress(OSError):
            _unlock(file)
    os.close(file)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep writers out of a file, if it is there, while another takes its place."""
    if sys.platform == "win32":
        # What is open there cannot be replaced, neither by us nor while another writes it.
        yield
        return
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # It is not there, or not ours to read; whether it can be replaced is told by replacing it.
        yield
        return
    try:
        lock(file, path)
        yield
    finally:
        close(file)


def _is_ours(file: int) -> bool:
    status = os.fstat(file)
    for one in tuple(_ours):
        with contextlib.suppress(OSError):
            if os.path.samestat(os.fstat(one), status):
                return True
    return False


def _release() -> None:
    """In a forked child: a lock lasts until all let go of the file, and the child may outlive us.

    The descriptor stays taken, so that nothing that is opened later gets what is written to it.
    """
    for file in tuple(_ours):
        with contextlib.suppress(OSError):
            nothing = os.open(os.devnull, os.O_RDWR)
            os.dup2(nothing, file, inheritable=False)
            os.close(nothing)
    _ours.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release)
