"""Writing of recordings: at once, or chunk by chunk while they are made."""

from __future__ import annotations

import contextlib
import os
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from dask_diag.errors import RecordingFileError
from dask_diag.files import already_there, atomic_file, check_target, os_errors_as
from dask_diag.storage import container
from dask_diag.storage.chunks import encode_chunk
from dask_diag.storage.codec import EarlierChunks, NotStorableError
from dask_diag.storage.container import ABOUT, CHUNK, PROVISIONAL, Entry

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.model.recording import Recording


_locked_files: set[int] = set()
"""Descriptors of the files that this process has locked."""

if sys.platform == "win32":
    import msvcrt

    # On Windows no process can read a locked byte: lock a byte beyond the end of any recording.
    _FAR = 2**31 - 2

    def _lock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)

    def _unlock(file: int) -> None:
        os.lseek(file, _FAR, os.SEEK_SET)
        msvcrt.locking(file, msvcrt.LK_UNLCK, 1)

    def is_locked_by_any(file: int) -> bool | None:
        """Return None: on Windows it is not known whether a process has locked a file."""
        return None

    _IS_LOCKED: type[OSError] = PermissionError
else:
    import fcntl

    # Not lockf: its locks do not keep two writers in one process apart, and end when any reader in
    # the process closes the file.
    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        _set_visible_lock(file, fcntl.F_WRLCK)

    def _unlock(file: int) -> None:
        _set_visible_lock(file, fcntl.F_UNLCK)
        fcntl.flock(file, fcntl.LOCK_UN)

    # A writer also holds a lock of its open file (OFD): Linux tells any process of this machine
    # whether such a lock exists without taking it. Its list of flocks leaves out containers.
    _FIELDS = struct.Struct("hhqqi")
    """Kind, whence, start, length and process of ``struct flock`` on Linux."""
    _GET, _SET = (
        getattr(fcntl, name, None) if sys.platform == "linux" else None
        for name in ("F_OFD_GETLK", "F_OFD_SETLK")
    )

    def _whole_file(kind: int) -> bytes:
        return _FIELDS.pack(kind, os.SEEK_SET, 0, 0, 0)

    def _set_visible_lock(file: int, kind: int) -> None:
        # A file opened for reading cannot have this lock; without it only a live view says less.
        if _SET is not None:
            with contextlib.suppress(OSError):
                fcntl.fcntl(file, _SET, _whole_file(kind))

    def is_locked_by_any(file: int) -> bool | None:
        """Whether a writer has locked an open file with another descriptor; None if not known.

        Trying the lock would refuse a writer that starts at that moment.
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
            f"cannot write {path}: {who} is writing it; choose another name, or wait until it ends"
        ) from None
    except OSError:
        # A file system without locks: an unguarded recording is better than none.
        return
    _locked_files.add(file)


def create_locked(path: Path, overwrite: bool) -> int:
    """Create an empty, locked file and return its descriptor; OSError if that fails."""
    flags = os.O_RDWR | os.O_CREAT | (0 if overwrite else os.O_EXCL) | getattr(os, "O_BINARY", 0)
    while True:
        try:
            file = os.open(path, flags, 0o666)
        except FileExistsError:
            raise already_there(path, RecordingFileError) from None
        try:
            lock(file, path)
            if _is_at(file, path):
                # After locking: before, another writer may have been writing it.
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
        # Closing alone may not unlock: a process that is being started may have the file open.
        with contextlib.suppress(OSError):
            _unlock(file)
    os.close(file)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Keep writers out of an existing file while another file takes its place."""
    if sys.platform == "win32":
        # An open file cannot be replaced, neither by this process nor while another writes it.
        yield
        return
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        # The file does not exist or cannot be read; replacing it shows whether it may be replaced.
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
    """Release the files of the parent in a forked child; else their locks would last as long as it.

    The descriptors stay in use, so that no other file gets one, and with it what is still written.
    """
    for file in tuple(_locked_files):
        with contextlib.suppress(OSError):
            null = os.open(os.devnull, os.O_RDWR)
            os.dup2(null, file, inheritable=False)
            os.close(null)
    _locked_files.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_release_in_child)


_FAST, _SMALL = 1, 4
"""Levels of zlib; level 5 takes twice as long as 4 for 2% fewer bytes."""


def save(recording: Recording, path: str | os.PathLike[str], *, overwrite: bool = False) -> None:
    """Write a recording to a file atomically: a file that cannot be completed is not created.

    Parameters
    ----------
    recording : Recording
        Measurements to write.
    path : str or os.PathLike
        File to write, such as ``"run.diag"``.
    overwrite : bool, default False
        Replace an existing file.

    Raises
    ------
    RecordingFileError
        If the file cannot be written. An existing file is then unchanged.

    See Also
    --------
    record : Writes the file while the program runs.

    Examples
    --------
    >>> from dask_diag import Profiler, load, save
    >>> with Profiler() as prof:
    ...     pass
    >>> save(prof.recording, "run.diag")
    >>> load("run.diag").is_complete
    True
    """
    with (
        atomic_file(
            path, overwrite=overwrite, error=RecordingFileError, while_replacing=locked
        ) as temporary,
        Writer(temporary, shown_as=path, level=_SMALL) as writer,
    ):
        writer.append(recording)


class Writer:
    """Writes a recording to a file chunk by chunk.

    Appended chunks can be loaded even if the process is killed; a file that was not closed loads as
    truncated.

    Parameters
    ----------
    path : str or os.PathLike
        File to write.
    overwrite : bool, default False
        Replace an existing file.
    shown_as : str or os.PathLike, optional
        Name of the file in errors. Default: `path`.
    level : int, default 1
        Compression level, from 1 (fast) to 9 (small).

    Raises
    ------
    RecordingFileError
        If the file cannot be written, for example because another writer has opened it. All
        methods raise it.

    Notes
    -----
    Not thread-safe. Chunks are not buffered: they reach the operating system at once, but a power
    failure before `close` can lose them. After an error, no more chunks can be appended; earlier
    chunks remain in the file.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        overwrite: bool = False,
        shown_as: str | os.PathLike[str] | None = None,
        level: int = _FAST,
    ) -> None:
        self._path = check_target(path, overwrite, RecordingFileError)
        self._shown_as = Path(os.fsdecode(shown_as or self._path))
        self._level = level
        self._earlier = EarlierChunks()
        self._entries: list[Entry] = []
        self._end = 0
        with os_errors_as("write", self._shown_as, RecordingFileError):
            self._file: int | None = create_locked(self._path, overwrite)
        try:
            with self._closed_on_error():
                self._put([(ABOUT, container.about())])
        except RecordingFileError:
            with contextlib.suppress(OSError):
                self._path.unlink()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *args: object) -> None:
        self.close()

    def append(self, chunk: Recording, provisional: Recording | None = None) -> None:
        """Append a chunk.

        Parameters
        ----------
        chunk : Recording
            New rows. References to tasks count rows from the first chunk on. Fields that are not
            tables replace those of earlier chunks.
        provisional : Recording, optional
            Rows of running tasks and computations, which the next chunk replaces. Default: none.
        """
        if self._file is None:
            raise RecordingFileError(f"cannot write {self._shown_as}: it has been closed")
        number = len(self._entries) - 1
        with self._closed_on_error():
            payload = encode_chunk(chunk, self._level, self._earlier)
            new = [(f"{CHUNK}{number:08}", payload)]
            if provisional is not None:
                content = encode_chunk(provisional, self._level)
                new.append((f"{PROVISIONAL}{number:08}", content))
            self._put(new)

    def close(self) -> None:
        """Mark the file as complete and close it; further calls do nothing."""
        if self._file is None:
            return
        with self._closed_on_error():
            # First: provisional rows after a part of the directory would seem to be damage.
            os.ftruncate(self._file, self._end)
            self._write(container.directory(self._entries, self._end))
            os.fsync(self._file)
            is_removed = not os.fstat(self._file).st_nlink
            file, self._file = self._file, None
            close(file)
        if is_removed:
            raise RecordingFileError(f"cannot write {self._shown_as}: it was removed meanwhile")

    def abandon(self) -> None:
        """Close the file without marking it as complete, so that it loads as truncated."""
        self._close_after_last_chunk()

    def _put(self, named: list[tuple[str, bytes]]) -> None:
        """Write entries, of which only the first stays when more are written."""
        data, start = [], self._end
        entries = []
        for name, payload in named:
            content, entry = container.entry(name, payload, start)
            data.append(content)
            entries.append(entry)
            start = entry.stop
        if start > container.MAX_SIZE:
            raise RecordingFileError(
                f"cannot write {self._shown_as}: a file holds at most {container.MAX_SIZE:,} "
                "bytes; split the run into several recordings"
            )
        self._write(b"".join(data))
        self._entries.append(entries[0])
        self._end = entries[0].stop

    def _write(self, data: bytes) -> None:
        """Replace the bytes after the chunks that stay."""
        assert self._file is not None
        os.lseek(self._file, self._end, os.SEEK_SET)
        unwritten = memoryview(data)
        while unwritten:
            unwritten = unwritten[os.write(self._file, unwritten) :]
        os.ftruncate(self._file, self._end + len(data))

    @contextlib.contextmanager
    def _closed_on_error(self) -> Iterator[None]:
        try:
            with os_errors_as("write", self._shown_as, RecordingFileError):
                yield
        except (NotStorableError, ValueError) as error:
            # json raises ValueError for an integer with too many digits.
            self._close_after_last_chunk()
            raise RecordingFileError(f"cannot write {self._shown_as}: {error}") from None
        except BaseException:
            self._close_after_last_chunk()
            raise

    def _close_after_last_chunk(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            with contextlib.suppress(OSError):
                os.ftruncate(file, self._end)
            with contextlib.suppress(OSError):
                close(file)
