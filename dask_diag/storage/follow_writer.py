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
