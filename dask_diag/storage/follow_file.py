"""What an open file has, at some place and at its end."""

from __future__ import annotations

import os
from collections.abc import Sequence

from dask_diag.storage import zip_stream
from dask_diag.storage.zip_stream import Entry

__all__ = ["ends_with_directory_of", "is_intact", "read", "was_closed"]


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
    last = read(file, max(0, size - zip_stream.END_SIZE), zip_stream.END_SIZE)
    return zip_stream.ends_with_directory(memoryview(last))


def ends_with_directory_of(file: int, entries: Sequence[Entry], end: int) -> bool:
    """Whether there is the directory of these entries, and nothing else."""
    # The directory of a long recording is long: it is made when there is one to compare.
    if read(file, end, len(zip_stream.IN_DIRECTORY)) != zip_stream.IN_DIRECTORY:
        return False
    expected = zip_stream.directory(entries, end)
    return read(file, end, len(expected) + 1) == expected


def is_intact(file: int, entries: Sequence[Entry]) -> bool:
    """Whether these entries are there as they were read."""
    for entry in entries:
        data = memoryview(read(file, entry.start, entry.stop - entry.start))
        entry_read = next(zip_stream.read_entries(data), None)
        if entry_read is None or entry_read[0]._replace(start=entry.start) != entry:
            return False
    return True
