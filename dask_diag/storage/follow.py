"""A recording while it is written, from any process: each poll reads what was added since.

When the file is complete it is read once more: a part that was read may have changed meanwhile.

Nothing is asked of the writer, and its lock is never taken, not even to see whether it is: a writer
that comes just then would be refused. The kernel is asked whether there is one.
"""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path
from time import monotonic

from dask_diag.atomic_files import as_path
from dask_diag.errors import RecordingFileError
from dask_diag.storage import zip_stream
from dask_diag.storage.chunks import Chunk, Columns, decode_chunk
from dask_diag.storage.follow_file import ends_with_directory_of, is_intact, was_closed
from dask_diag.storage.follow_file import read as _read
from dask_diag.storage.follow_next import NextEntry
from dask_diag.storage.follow_update import FollowState, Update
from dask_diag.storage.follow_writer import FileStatus, WriterLock
from dask_diag.storage.locking import is_locked_by_any
from dask_diag.storage.preceding import Preceding
from dask_diag.storage.reading import check_first_entry, open_without_blocking
from dask_diag.storage.zip_stream import CHUNK, PROVISIONAL, Entry

__all__ = ["QUIET", "FollowState", "Follower", "Update"]

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
        self._entries: list[Entry] = []
        self._end = 0
        self._preceding = Preceding()
        self._provisional: Chunk | None = None
        self._decoded_before: tuple[bytes, Chunk] | None = None
        self._last_entry: Entry | None = None
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
        chunks = self._read_chunks(file, now) if self._head else []
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
        if was_over or new.size < self._end:
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
        first = next(zip_stream.read_entries(memoryview(head)), None)
        if first is None and zip_stream.may_begin(head):
            self._behind = False
            return False
        entry = check_first_entry(self._path, memoryview(head), first)
        if len(head) < entry.stop + zip_stream.CHUNK_HEADER_SIZE:
            self._behind = False
            return False
        self._head = head
        self._entries = [entry]
        self._end = entry.stop
        self._state = FollowState.GROWING
        return True

    def _read_head(self, file: int) -> bytes:
        """The first entry and the header of the second, which has the checksum of a first chunk.

        No two recordings have the same.
        """
        head = _read(file, 0, _LONGEST_HEADER)
        first = next(zip_stream.read_entries(memoryview(head)), None)
        return head[: first[0].stop + zip_stream.CHUNK_HEADER_SIZE] if first else head

    def _read_chunks(self, file: int, now: float) -> list[Chunk]:
        """The next chunks, and what is provisional after the last."""
        chunks: list[Chunk] = []
        header = _read(file, self._end, zip_stream.LONGEST_HEADER)
        available = self._size - self._end
        size = self._next.size_to_read(header, available, _MOST_AT_ONCE)
        data = memoryview(_read(file, self._end, size))
        entries = list(zip_stream.read_entries(data))
        self._provisional, self._last_entry = None, None
        start = self._end
        self._behind = bool(entries) and len(data) == size
        for entry, payload in entries:
            chunk = self._decoded(entry, payload)
            if chunk is None:
                self._behind = False
                break
            if entry.name.startswith(PROVISIONAL):
                self._provisional = chunk
                self._last_entry = entry._replace(start=start + entry.start)
                # Nothing lasting follows: the next chunk takes its place.
                self._behind = False
                break
            chunks.append(chunk)
            self._entries.append(entry._replace(start=start + entry.start))
            self._end = self._entries[-1].stop
        self._next.note(bool(chunks or self._provisional), header, available, now)
        return chunks

    @property
    def _size(self) -> int:
        return 0 if self._status is None else self._status.size

    def _decoded(self, entry: Entry, payload: memoryview) -> Chunk | None:
        """The chunk, if it is the next one or what is provisional after the last."""
        number = len(self._entries) - 1
        if entry.name not in (f"{CHUNK}{number:08}", f"{PROVISIONAL}{number - 1:08}"):
            return None
        try:
            if entry.name.startswith(PROVISIONAL):
                return self._provisional_of(payload)
            return decode_chunk(payload, self._preceding, self._columns)
        except Exception:
            # As when loading: another program wrote it, and what it means is not clear.
            return None

    def _provisional_of(self, payload: memoryview) -> Chunk:
        """The same as before if its bytes are: most that is read once more has not changed."""
        if self._decoded_before is None or payload != self._decoded_before[0]:
            chunk = decode_chunk(payload, columns=self._provisional_columns)
            self._decoded_before = bytes(payload), chunk
        return self._decoded_before[1]

    def _state_of(self, file: int, now: float) -> str:
        """What the file is, if it has not changed since it was read."""
        end = self._end if self._last_entry is None else self._last_entry.stop
        if self._behind or FileStatus.of(os.fstat(file)) != self._status:
            return self._state
        size = self._size
        if self._head and ends_with_directory_of(file, self._all_entries(), end):
            if self._has_grown and not is_intact(file, self._all_entries()):
                # A part of it has changed behind the reader: it is read again, up to there.
                self._forget()
            else:
                self._state = FollowState.COMPLETE
            return self._state
        if self._head:
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

    def _all_entries(self) -> list[Entry]:
        """The entries of a file that was closed, or of one that a killed process left."""
        return self._entries if self._last_entry is None else [*self._entries, self._last_entry]
