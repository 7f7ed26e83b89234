"""Whether a file that is followed is still written: its changes, and the lock of its writer."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import NamedTuple

__all__ = ["FileStatus", "WriterLock"]


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

    The kernel lists no lock of a process in a PID namespace that this one cannot see, as that of a
    container beside this one, or on another machine. So the list is read once when a recording is
    new: if it grows then although no lock is listed, the list does not speak for its writer.

    Parameters
    ----------
    is_locked : callable
        Whether any process has locked an open file; None if that is not known.
    """

    def __init__(self, is_locked: Callable[[int], bool | None]) -> None:
        self._is_locked = is_locked
        self._is_listed: bool | None = None
        self._not_listed = b""
        """The beginning of the recording that is written by somebody who is not listed."""

    def forget(self) -> None:
        """Another recording, or the same from its beginning, comes now."""
        self._is_listed = None

    def look(self, file: int) -> None:
        """Read the list if it was not read of this recording."""
        if self._is_listed is None:
            self._is_listed = self._is_locked(file)

    def note_growth(self, head: bytes) -> None:
        """Somebody has written to the recording that begins like this."""
        if self._is_listed is False:
            self._not_listed = head

    def is_held(self, file: int, head: bytes) -> bool | None:
        """Whether somebody holds it; None if that is not known."""
        return None if head and head == self._not_listed else self._is_locked(file)
