"""Where files are written and read, and what is said when they cannot be."""

from __future__ import annotations

import contextlib
import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dask_diag.errors import RecordingFileError
from dask_diag.storage.locking import close, lock, locked

__all__ = ["create", "place", "read_from", "target", "telling"]

_BINARY = getattr(os, "O_BINARY", 0)


def target(path: Any, overwrite: bool) -> Path:
    """Where a file is to be, links followed; an error if it cannot be there."""
    try:
        given = os.fsdecode(path)
    except TypeError:
        found = type(path).__name__
        raise RecordingFileError(
            f"expected a path, as text or os.PathLike, found {found}"
        ) from None
    if not given:
        raise RecordingFileError("cannot write '': expected the name of a file")
    try:
        found_there = Path(os.path.realpath(given))
        mode = found_there.stat().st_mode
    except FileNotFoundError:
        if given.endswith(("/", os.sep)):
            message = f"cannot write {given!r}: expected the name of a file"
            raise RecordingFileError(message) from None
        return found_there
    except (OSError, ValueError) as error:
        raise _cannot("write", given, error) from error
    if stat.S_ISDIR(mode):
        example = found_there / "run.diag"
        raise RecordingFileError(
            f"cannot write {found_there}: it is a directory; name a file in it, such as {example}"
        )
    if not stat.S_ISREG(mode):
        raise RecordingFileError(f"cannot write {found_there}: it is no ordinary file")
    if not overwrite:
        raise _exists(found_there)
    return found_there


def create(path: Path, overwrite: bool) -> int:
    """The descriptor of a file that is empty and locked; OSError if it cannot be made."""
    how = 0 if overwrite else os.O_EXCL
    while True:
        try:
            file = os.open(path, os.O_RDWR | os.O_CREAT | how | _BINARY, 0o666)
        except FileExistsError:
            raise _exists(path) from None
        try:
            lock(file, path)
            if _is_at(file, path):
                # Only now: what is in it may be what another writes.
                os.ftruncate(file, 0)
                return file
        except BaseException:
            close(file)
            raise
        close(file)


def _is_at(file: int, path: Path) -> bool:
    """Whether it was not replaced or removed before it was locked."""
    try:
        return os.path.samestat(os.fstat(file), os.stat(path))
    except FileNotFoundError:
        return False


def place(temporary: Path, path: Path, overwrite: bool) -> None:
    """Give a finished file its name; another process sees nothing there or all of it."""
    if overwrite or not _linked(temporary, path):
        with locked(path):
            os.replace(temporary, path)
    with contextlib.suppress(OSError):
        # The name, too, is to outlast a loss of power, where the system offers that.
        folder = os.open(path.parent, os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)


def _linked(temporary: Path, path: Path) -> bool:
    """Whether the file got its name in one step with the check that nothing had it."""
    try:
        os.link(temporary, path)
    except FileExistsError:
        raise _exists(path) from None
    except OSError:
        # A file system without links: the check comes first.
        if path.exists():
            raise _exists(path) from None
        return False
    temporary.unlink()
    return True


def read_from(path: Any, begins: bytes, largest: int) -> bytes:
    """What is in a file, or just how it begins where that is not as expected."""
    with telling("read", path):
        try:
            given = os.fsdecode(path)
        except TypeError:
            found = type(path).__name__
            message = f"expected a path, as text or os.PathLike, found {found}"
            raise RecordingFileError(message) from None
        if not given:
            raise RecordingFileError("cannot read '': expected the name of a file")
        # Not to wait for who writes into a pipe.
        file = os.open(given, os.O_RDONLY | _BINARY | getattr(os, "O_NONBLOCK", 0))
        with os.fdopen(file, "rb") as content:
            status = os.fstat(file)
            if not stat.S_ISREG(status.st_mode):
                raise RecordingFileError(f"cannot read {given}: it is no ordinary file")
            head = content.read(64)
            if not head.startswith(begins) or status.st_size > largest:
                return head
            return head + content.read(max(0, status.st_size - len(head)))


@contextlib.contextmanager
def telling(doing: str, path: Any) -> Iterator[None]:
    """Turn what the operating system says into our own error."""
    try:
        yield
    except (OSError, ValueError) as error:
        raise _cannot(doing, path, error) from error


def _cannot(doing: str, path: Any, error: Exception) -> RecordingFileError:
    why = getattr(error, "strerror", None) or str(error)
    return RecordingFileError(f"cannot {doing} {path}: {why}{_advice(doing, path, error)}")


def _advice(doing: str, path: Any, error: Exception) -> str:
    if isinstance(error, IsADirectoryError):
        return "; name a file in it"
    if isinstance(error, PermissionError):
        return f"; choose a file that you may {doing}"
    if doing == "write" and isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return f"; make the directory {Path(path).parent} first"
    return ""


def _exists(path: Path) -> RecordingFileError:
    return RecordingFileError(
        f"will not overwrite {path}; pass overwrite=True to replace it, or choose another name"
    )
