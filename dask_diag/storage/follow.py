"""Following a recording while it is written, from any process: each poll reads the new bytes.

A complete file is read once more, as bytes that were read before may have changed.

The lock of the writer is never taken, not even to test it: a writer that starts at that moment
would be refused. The kernel says whether a file is locked.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable, Sequence
from pathlib import Path
from time import monotonic
from typing import NamedTuple

from dask_diag.errors import RecordingFileError
from dask_diag.files import as_path
from dask_diag.storage import container
from dask_diag.storage.chunks import Chunk, Columns
from dask_diag.storage.container import Entry
from dask_diag.storage.read import ChunkScan, check_first_entry, open_without_blocking
from dask_diag.storage.write import is_locked_by_any


def read(file: int, start: int, size: int) -> bytes:
    """Read bytes of an open file; fewer than `size` at its end."""
    parts = []
    while size > 0:
        os.lseek(file, start, os.SEEK_SET)
        part = os.read(file, size)
        if not part:
            break
        parts.append(part)
        start += len(part)
        size -= len(part)
    return b"".join(parts)


class FollowState:
    """States of a file that is followed."""

    WAITING = "waiting"
    """The file does not exist, or is empty."""
    GROWING = "growing"
    COMPLETE = "complete"
    TRUNCATED = "truncated"
    """The writer ended without closing the file."""
    DAMAGED = "damaged"
    """The file was closed and has changed since."""
    NOT_A_RECORDING = "not a recording"


class Update(NamedTuple):
    """The result of a poll.

    Attributes
    ----------
    fresh : bool
        Whether the chunks begin a recording, another or the same again: earlier chunks are void.
    chunks : list of Chunk
        New rows that stay.
    provisional : Chunk or None
        Provisional rows, in place of those of the poll before.
    state : str
        One of `FollowState`.
    behind : bool
        Whether more can be read at once.
    quiet : float
        Seconds for which the file has not changed.
    problem : str
        Why the file is no recording, or why a growing one cannot be read.
    """

    fresh: bool
    chunks: list[Chunk]
    provisional: Chunk | None
    state: str
    behind: bool = False
    quiet: float = 0.0
    problem: str = ""


QUIET = 2.0
"""Seconds without a change after which the writer of an unlocked file has ended."""
UNREADABLE = 5.0
"""Seconds after which an entry that cannot be read is damaged, if more was written since."""
_MOST_AT_ONCE = 4 << 20
"""Most bytes that a poll reads, if no entry is larger: bounds the memory of catching up."""
_LONGEST_HEADER = 1 << 10


class Follower:
    """Reads a recording as it grows.

    Parameters
    ----------
    path : str or os.PathLike
        The file need not exist yet, and may be replaced at any time.
    clock : callable, optional
        Seconds.
    is_locked : callable, optional
        Function of an open file: whether a process has locked it; None if not known.
    columns, provisional_columns : mapping, optional
        See `ChunkScan`.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        clock: Callable[[], float] = monotonic,
        is_locked: Callable[[int], bool | None] = is_locked_by_any,
        columns: Columns | None = None,
        provisional_columns: Columns | None = None,
    ) -> None:
        self._path = as_path(path, error=RecordingFileError)
        self._clock = clock
        self._is_locked = is_locked
        self._columns = columns, provisional_columns
        # Device, inode, size and time of the last change.
        self._status: tuple[int, int, int, int] | None = None
        self._changed = clock()
        # Some file systems do not share locks among machines. So the kernel is asked when a
        # recording is new: if the file grows without a lock, the absence of a lock says nothing
        # about its writer. This is the beginning of such a recording.
        self._head_without_lock = b""
        self._forget()

    def _forget(self) -> None:
        """Start again from the first byte."""
        self._head = b""
        self._scan: ChunkScan | None = None
        self._state = FollowState.WAITING
        self._behind = True
        self._is_settled = False
        self._has_grown = False
        self._unreadable_since: float | None = None
        self._is_lock_seen: bool | None = None

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def poll(self) -> Update:
        """Read new chunks. Any fault of the file is a state, and never raised."""
        try:
            file = open_without_blocking(
                os.fspath(self._path), os.O_RDONLY | getattr(os, "O_BINARY", 0)
            )
        except FileNotFoundError:
            self._status = None
            self._forget()
            return self._nothing(FollowState.WAITING)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                # This process has too many files open, which says nothing about this one.
                return self._update(self._clock())._replace(behind=False)
            why = f"cannot read {self._path}: {error.strerror or error}"
            return self._nothing(FollowState.NOT_A_RECORDING, why)
        try:
            return self._poll(file)
        except RecordingFileError as error:
            self._forget()
            return self._nothing(FollowState.NOT_A_RECORDING, str(error))
        except OSError as error:
            self._forget()
            return self._nothing(FollowState.WAITING, error.strerror or str(error))
        finally:
            os.close(file)

    def _nothing(self, state: str, problem: str = "") -> Update:
        return Update(False, [], None, state, problem=problem)

    def _update(self, now: float, is_fresh: bool = False, chunks: Sequence[Chunk] = ()) -> Update:
        provisional = None if self._scan is None else self._scan.provisional
        since, problem = self._unreadable_since, ""
        if since is not None and since < self._changed and now - since >= UNREADABLE:
            # The entry is damaged, and not being written: the file has changed since.
            problem = "damaged" if self._state == FollowState.GROWING else ""
        quiet = now - self._changed
        return Update(
            is_fresh, list(chunks), provisional, self._state, self._behind, quiet, problem
        )

    def _poll(self, file: int) -> Update:
        now, status = self._clock(), os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RecordingFileError(f"cannot read {self._path}: it is not a regular file")
        if not self._is_as_read(file):
            self._note_change(_status_of(file), now)
        elif not self._behind and self._is_settled:
            if self._state in (FollowState.WAITING, FollowState.GROWING):
                self._judge(file, now)
            return self._update(now)
        else:
            self._is_settled = not self._behind
        is_fresh = self._check_head(file)
        chunks = self._read_chunks(file, self._scan, now) if self._scan else []
        if self._head and self._read_head(file) != self._head:
            # Another recording took the place of this one: the next poll reads that.
            self._forget()
            return self._nothing(FollowState.WAITING)
        self._judge(file, now)
        return self._update(now, is_fresh, chunks)

    def _is_as_read(self, file: int) -> bool:
        """Whether the file is the same, and has not changed since its status was read."""
        return _status_of(file) == self._status

    def _note_change(self, new: tuple[int, int, int, int], now: float) -> None:
        before, size = self._status, new[2]
        if self._head and before is not None and new[:2] == before[:2] and size > before[2]:
            self._has_grown = True
            if self._is_lock_seen is False:
                self._head_without_lock = self._head
        was_over = self._state not in (FollowState.WAITING, FollowState.GROWING)
        if was_over or (self._scan and size < self._scan.end):
            # The change is not an append: bytes that were read may have changed, too.
            self._forget()
        self._status, self._changed, self._behind = new, now, True
        # A write within the same tick of the file system's clock does not show: read once more.
        self._is_settled = False

    def _check_head(self, file: int) -> bool:
        """Whether the file has another recording than before, which is then followed."""
        head = self._read_head(file)
        if self._head and head == self._head:
            return False
        self._forget()
        first = next(container.read_entries(memoryview(head)), None)
        if first is None and container.may_begin(head):
            self._behind = False
            return False
        entry = check_first_entry(self._path, memoryview(head), first)
        if len(head) < entry.stop + container.CHUNK_HEADER_SIZE:
            self._behind = False
            return False
        self._head = head
        self._scan = ChunkScan(entry, *self._columns)
        self._state = FollowState.GROWING
        return True

    def _read_head(self, file: int) -> bytes:
        """The first entry and the header of the first chunk, whose checksum identifies the file."""
        head = read(file, 0, _LONGEST_HEADER)
        first = next(container.read_entries(memoryview(head)), None)
        return head[: first[0].stop + container.CHUNK_HEADER_SIZE] if first else head

    def _read_chunks(self, file: int, scan: ChunkScan, now: float) -> list[Chunk]:
        """Read the next chunks, and the provisional one after the last."""
        header = read(file, scan.end, container.LONGEST_HEADER)
        next_size = container.size_of_first(header)
        is_there = next_size <= self._size - scan.end
        size = next_size if is_there else 0
        if size and self._unreadable_since is None:
            # An entry that could not be read is read again alone, not with all bytes after it.
            size = max(size, _MOST_AT_ONCE)
        data = read(file, scan.end, size)
        chunks = scan.read(memoryview(data))
        has_read = bool(chunks or scan.provisional)
        self._behind = bool(chunks) and scan.provisional is None and len(data) == size
        is_unfinished = len(header) < container.LONGEST_HEADER or not is_there
        if has_read or is_unfinished or header.startswith(container.IN_DIRECTORY):
            self._unreadable_since = None
        elif self._unreadable_since is None:
            self._unreadable_since = now
        return chunks

    @property
    def _size(self) -> int:
        return 0 if self._status is None else self._status[2]

    def _judge(self, file: int, now: float) -> None:
        """Find the state of the file, if it has not changed since it was read."""
        if self._behind or not self._is_as_read(file):
            return
        if self._scan is not None:
            if self._ends_with_directory(file, self._scan.entries):
                if self._has_grown and not _is_intact(file, self._scan.entries):
                    # An entry has changed after it was read: read again from the first byte.
                    self._forget()
                else:
                    self._state = FollowState.COMPLETE
                return
            if self._is_lock_seen is None:
                is_seen = self._is_locked(file)
                # The writer may have ended before the kernel was asked: then the answer is void.
                self._is_lock_seen = is_seen if self._is_as_read(file) else None
        is_quiet = now - self._changed >= QUIET
        end = read(file, max(0, self._size - container.END_SIZE), container.END_SIZE)
        is_closed = bool(self._head) and container.ends_with_directory(memoryview(end))
        if not self._size or not (is_quiet or is_closed):
            return
        is_hidden = self._head and self._head == self._head_without_lock
        is_locked = None if is_hidden else self._is_locked(file)
        if is_locked or not self._is_as_read(file):
            return
        if is_closed and (is_quiet or is_locked is not None):
            self._state = FollowState.DAMAGED
        elif not is_closed and is_locked is not None:
            self._state = FollowState.TRUNCATED

    def _ends_with_directory(self, file: int, entries: Sequence[Entry]) -> bool:
        """Whether the file ends with exactly the directory of these entries."""
        end = entries[-1].stop
        # The directory of a long recording is long: it is made only if a directory begins there.
        if read(file, end, len(container.IN_DIRECTORY)) != container.IN_DIRECTORY:
            return False
        expected = container.directory(entries, end)
        return read(file, end, len(expected) + 1) == expected


def _status_of(file: int) -> tuple[int, int, int, int]:
    status = os.fstat(file)
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns


def _is_intact(file: int, entries: Sequence[Entry]) -> bool:
    """Whether entries are still as they were read."""
    for entry in entries:
        data = memoryview(read(file, entry.start, entry.stop - entry.start))
        if next((found for found, _ in container.read_entries(data, entry.start)), None) != entry:
            return False
    return True
