"""What comes next in a file that grows: how much of it to read, and whether that is possible."""

from __future__ import annotations

from dask_diag.storage import zip_stream

__all__ = ["UNREADABLE", "NextEntry"]

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
        first = zip_stream.size_of_first(header)
        if not 0 < first <= available:
            return 0
        return first if self._unreadable_since is not None else max(first, most)

    def note(self, has_read: bool, header: bytes, available: int, now: float) -> None:
        """Note whether it could be read."""
        is_unfinished = len(header) < zip_stream.LONGEST_HEADER
        is_unfinished |= zip_stream.size_of_first(header) > available
        if has_read or is_unfinished or header.startswith(zip_stream.IN_DIRECTORY):
            self._unreadable_since = None
        elif self._unreadable_since is None:
            self._unreadable_since = now

    def is_damaged(self, now: float, changed: float) -> bool:
        """Whether it is no entry that is just being written, of a file that changed last then."""
        since = self._unreadable_since
        return since is not None and since < changed and now - since >= UNREADABLE
