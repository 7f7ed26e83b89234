"""A recording while it is written, from any process: each poll reads what was added since.

When the file is complete it is read once more: a part that was read may have changed meanwhile.

Nothing is asked of the writer, and its lock is never taken, not even to see whether it is: a writer
that comes just then would be refused. The kernel is asked whether there is one.
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
    """Up to so many bytes."""
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


def was_closed(file: int, size: int) -> bool:
    """Whether its writer has closed it, whatever has become of what comes before."""
    last = read(file, max(0, size - container.END_SIZE), container.END_SIZE)
    return container.ends_with_directory(memoryview(last))


def ends_with_directory_of(file: int, entries: Sequence[Entry], end: int) -> bool:
    """Whether there is the directory of these entries, and nothing else."""
    # The directory of a long recording is long: it is made when there is one to compare.
    if read(file, end, len(container.IN_DIRECTORY)) != container.IN_DIRECTORY:
        return False
    expected = container.directory(entries, end)
    return read(file, end, len(expected) + 1) == expected


def is_intact(file: int, entries: Sequence[Entry]) -> bool:
    """Whether these entries are there as they were read."""
    for entry in entries:
        data = memoryview(read(file, entry.start, entry.stop - entry.start))
        if next((found for found, _ in container.read_entries(data, entry.start)), None) != entry:
            return False
    return True


UNREADABLE = 5.0
"""Seconds after which what cannot be read, though more was written since, is damaged."""


class NextEntry:
    """The first entry that was not read yet; it may be there in part, or be damaged."""

    def __init__(self) -> None:
        self._unreadable_since: float | None = None

    def size_to_read(self, header: bytes, available: int, most: int) -> int:
        """Bytes in which there is an entry; 0 if the next one is not there as a whole.

        What could not be read is not read again with all that follows it, each time more.
        """
        first = container.size_of_first(header)
        if not 0 < first <= available:
            return 0
        return first if self._unreadable_since is not None else max(first, most)

    def note(self, has_read: bool, header: bytes, available: int, now: float) -> None:
        """Note whether it could be read."""
        is_unfinished = len(header) < container.LONGEST_HEADER
        is_unfinished |= container.size_of_first(header) > available
        if has_read or is_unfinished or header.startswith(container.IN_DIRECTORY):
            self._unreadable_since = None
        elif self._unreadable_since is None:
            self._unreadable_since = now

    def is_damaged(self, now: float, changed: float) -> bool:
        """Whether it is no entry that is just being written, of a file that changed last then."""
        since = self._unreadable_since
        return since is not None and since < changed and now - since >= UNREADABLE


class FollowState:
    """What a file that is followed can be."""

    WAITING = "waiting"
    """There is none yet, or nothing in it."""
    GROWING = "growing"
    COMPLETE = "complete"
    TRUNCATED = "truncated"
    """Its writer ended without closing it."""
    DAMAGED = "damaged"
    """It was closed and has changed since."""
    NOT_A_RECORDING = "not a recording"


class Update(NamedTuple):
    """What a poll found.

    Attributes
    ----------
    fresh : bool
        Whether the chunks are those of another recording, or of the same from its beginning: all
        that came before is to be forgotten.
    chunks : list of Chunk
        New rows that stay.
    provisional : Chunk or None
        Rows that are true for now, in place of those of the poll before.
    state : str
        One of `FollowState`.
    behind : bool
        Whether there is more to be read at once.
    quiet : float
        Seconds for which the file has not changed.
    problem : str
        Why it is not a recording; of one that grows, what keeps it from being read.
    """

    fresh: bool
    chunks: list[Chunk]
    provisional: Chunk | None
    state: str
    behind: bool = False
    quiet: float = 0.0
    problem: str = ""


class FileStatus(NamedTuple):
    """What changes when a file is written or replaced."""

    device: int
    inode: int
    size: int
    modified: int

    @classmethod
    def of(cls, status: os.stat_result) -> FileStatus:
        """Of an open file."""
        return cls(status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)

    def has_grown(self, before: FileStatus | None) -> bool:
        """Whether somebody has appended to the same file."""
        return before is not None and self[:2] == before[:2] and self.size > before.size


class WriterLock:
    """The lock of a recording's writer, if this process can see it.

    Some file systems do not share locks among the machines that write to them. So the kernel is
    asked once when a recording is new: if it grows then although nobody has locked it, the answer
    does not speak for its writer.

    Parameters
    ----------
    is_locked : callable
        Whether any process has locked an open file; None if that is not known.
    """

    def __init__(self, is_locked: Callable[[int], bool | None]) -> None:
        self._is_locked = is_locked
        self._is_seen: bool | None = None
        self._not_seen = b""
        """The beginning of the recording that is written by somebody whose lock is not seen."""

    def forget(self) -> None:
        """Another recording, or the same from its beginning, comes now."""
        self._is_seen = None

    def look(self, file: int) -> None:
        """Ask if it was not asked of this recording."""
        if self._is_seen is None:
            self._is_seen = self._is_locked(file)

    def note_growth(self, head: bytes) -> None:
        """Somebody has written to the recording that begins like this."""
        if self._is_seen is False:
            self._not_seen = head

    def is_held(self, file: int, head: bytes) -> bool | None:
        """Whether somebody holds it; None if that is not known."""
        return None if head and head == self._not_seen else self._is_locked(file)


QUIET = 2.0
"""Seconds without a change after which a file that nobody has locked is not written any more."""
_MOST_AT_ONCE = 4 << 20
"""Bytes that one poll reads, if no entry is larger: what catching up takes of memory is bounded."""
_LONGEST_HEADER = 1 << 10


class Follower:
    """Reads a recording as it grows.

    Parameters
    ----------
    path : str or os.PathLike
        The file need not be there yet, and may be replaced at any time.
    clock : callable, optional
        Seconds.
    is_locked : callable, optional
        Whether any process has locked an open file; None if that is not known.
    columns, provisional_columns : mapping, optional
        Of each table the columns to decode, of rows that stay and of those that are provisional;
        all by default.
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
        self._lock = WriterLock(is_locked)
        self._columns = columns
        self._provisional_columns = provisional_columns
        self._status: FileStatus | None = None
        self._changed = clock()
        self._forget()

    def _forget(self) -> None:
        """Begin with the file's first byte again."""
        self._head = b""
        self._scan: ChunkScan | None = None
        self._state = FollowState.WAITING
        self._behind = True
        self._is_settled = False
        self._has_grown = False
        self._next = NextEntry()
        self._lock.forget()

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    def poll(self) -> Update:
        """Read what is new. Whatever is wrong with the file is a state, and never raised."""
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
                # It says nothing of the file that this process has too many others open.
                return self._nothing_new()
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

    def _nothing_new(self) -> Update:
        quiet = self._clock() - self._changed
        return Update(False, [], self._provisional, self._state, quiet=quiet)

    def _poll(self, file: int) -> Update:
        now, status = self._clock(), os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            raise RecordingFileError(f"cannot read {self._path}: it is not a regular file")
        new = FileStatus.of(status)
        if new != self._status:
            self._note_change(new, now)
        elif not self._behind and self._is_settled:
            return self._unchanged(file, now)
        else:
            self._is_settled = not self._behind
        is_fresh = self._check_head(file)
        chunks = self._read_chunks(file, self._scan, now) if self._scan else []
        if self._head and self._read_head(file) != self._head:
            # Another recording took its place while it was read: the next poll has that one.
            self._forget()
            return self._nothing(FollowState.WAITING)
        state = self._state_of(file, now)
        quiet, problem = now - self._changed, self._problem(now)
        return Update(is_fresh, chunks, self._provisional, state, self._behind, quiet, problem)

    def _problem(self, now: float) -> str:
        """What is wrong with a file that grows."""
        is_growing = self._state == FollowState.GROWING
        return "damaged" if is_growing and self._next.is_damaged(now, self._changed) else ""

    def _note_change(self, new: FileStatus, now: float) -> None:
        if self._head and new.has_grown(self._status):
            self._has_grown = True
            self._lock.note_growth(self._head)
        was_over = self._state not in (FollowState.WAITING, FollowState.GROWING)
        if was_over or (self._scan and new.size < self._scan.end):
            # Nobody appends to it: what was read may have changed, too.
            self._forget()
        self._status, self._changed, self._behind = new, now, True
        # What was written within a tick of the file system's clock after it was read does not show:
        # it is read once more.
        self._is_settled = False

    def _unchanged(self, file: int, now: float) -> Update:
        if self._state in (FollowState.WAITING, FollowState.GROWING):
            self._state = self._state_of(file, now)
        return self._nothing_new()._replace(problem=self._problem(now))

    def _check_head(self, file: int) -> bool:
        """Note which recording it is, if that is another than before."""
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
        self._scan = ChunkScan(entry, self._columns, self._provisional_columns)
        self._state = FollowState.GROWING
        return True

    def _read_head(self, file: int) -> bytes:
        """The first entry and the header of the second, which has the checksum of a first chunk.

        No two recordings have the same.
        """
        head = read(file, 0, _LONGEST_HEADER)
        first = next(container.read_entries(memoryview(head)), None)
        return head[: first[0].stop + container.CHUNK_HEADER_SIZE] if first else head

    def _read_chunks(self, file: int, scan: ChunkScan, now: float) -> list[Chunk]:
        """Read the next chunks, and what is provisional after the last."""
        header = read(file, scan.end, container.LONGEST_HEADER)
        available = self._size - scan.end
        size = self._next.size_to_read(header, available, _MOST_AT_ONCE)
        data = read(file, scan.end, size)
        chunks = scan.read(memoryview(data))
        has_read = bool(chunks or scan.provisional)
        self._behind = bool(chunks) and scan.provisional is None and len(data) == size
        self._next.note(has_read, header, available, now)
        return chunks

    @property
    def _size(self) -> int:
        return 0 if self._status is None else self._status.size

    @property
    def _provisional(self) -> Chunk | None:
        return None if self._scan is None else self._scan.provisional

    def _state_of(self, file: int, now: float) -> str:
        """The state of the file, if it has not changed since it was read."""
        if self._behind or FileStatus.of(os.fstat(file)) != self._status:
            return self._state
        size = self._size
        if self._scan is not None:
            entries = self._scan.entries
            if ends_with_directory_of(file, entries, entries[-1].stop):
                if self._has_grown and not is_intact(file, entries):
                    # A part of it has changed behind the reader: it is read again, up to there.
                    self._forget()
                else:
                    self._state = FollowState.COMPLETE
                return self._state
            self._look_for_writer(file)
        is_quiet = now - self._changed >= QUIET
        is_closed = bool(self._head) and was_closed(file, size)
        if not size or not (is_quiet or is_closed):
            return self._state
        is_locked = self._lock.is_held(file, self._head)
        if is_locked or FileStatus.of(os.fstat(file)) != self._status:
            return self._state
        if is_closed:
            if is_quiet or is_locked is not None:
                self._state = FollowState.DAMAGED
        elif is_locked is not None:
            self._state = FollowState.TRUNCATED
        return self._state

    def _look_for_writer(self, file: int) -> None:
        self._lock.look(file)
        if FileStatus.of(os.fstat(file)) != self._status:
            # Who wrote may have been done before the kernel was asked: it says nothing of them.
            self._lock.forget()
