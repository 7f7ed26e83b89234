"""The file around the chunks: a zip archive, written and read from front to back.

Entries are stored, not deflated, since chunks are compressed already, and have a CRC-32. The
directory at the end shows that the file is complete, and lets other programs read the file; the
file of a process that was killed has no directory.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

SCHEMA_VERSION = 8
"""The version of chunks and their encoding that is written."""
READ_VERSIONS = (7, 8)
"""The versions that are read; others are refused. Version 7 had other names of some columns."""

FORMAT = "dask_diag recording"
ABOUT, CHUNK, PROVISIONAL = "dask_diag.json", "chunk-", "provisional-"
MAX_SIZE = 0xFFFFFFFF - (1 << 24)
"""Most bytes of a zip archive without further extensions, its directory included."""

SIGNATURE = b"PK\3\4"
IN_DIRECTORY = b"PK\1\2"
"""The first bytes of the directory."""
_END_SIGNATURE = b"PK\5\6"

_HEADER = Struct("<4s5H3I2H")
CHUNK_HEADER_SIZE = _HEADER.size + len(CHUNK) + 8
"""Bytes of a chunk's header."""
LONGEST_HEADER = _HEADER.size + len(PROVISIONAL) + 8
_DIRECTORY_ENTRY = Struct("<4s6H3I5H2I")
_END = Struct("<4s4H2IH")
END_SIZE = _END.size
"""Bytes at the end of a file that show whether its writer closed it."""
_END_64 = Struct("<4sQ2H2I4Q")
_LOCATOR_64 = Struct("<4sIQI")
_MAX_COUNT = 0xFFFF
# Version of zip, flags, method (stored), time, date: the same in every entry.
_CONSTANT = (10, 0, 0, 0, 0x21)


class Entry(NamedTuple):
    """An entry of the archive, as in its header and in the directory."""

    name: str
    checksum: int
    size: int
    start: int

    @property
    def stop(self) -> int:
        """The position after the entry."""
        return self.start + len(self.header()) + self.size

    def header(self) -> bytes:
        """The bytes before the content."""
        name = self.name.encode("ascii")
        sizes = (self.checksum, self.size, self.size, len(name), 0)
        return _HEADER.pack(SIGNATURE, *_CONSTANT, *sizes) + name

    def in_directory(self) -> bytes:
        """The bytes of the entry in the directory."""
        name = self.name.encode("ascii")
        sizes = (self.checksum, self.size, self.size, len(name), 0, 0, 0, 0, 0, self.start)
        return _DIRECTORY_ENTRY.pack(IN_DIRECTORY, 10, *_CONSTANT, *sizes) + name


def about() -> bytes:
    """The first entry of every version: the format and its version."""
    return json.dumps({"format": FORMAT, "version": SCHEMA_VERSION}).encode()


def entry(name: str, payload: bytes, start: int) -> tuple[bytes, Entry]:
    """An entry as bytes, and for the directory."""
    new = Entry(name, zlib.crc32(payload), len(payload), start)
    return new.header() + payload, new


def directory(entries: Sequence[Entry], start: int) -> bytes:
    """The end of a complete file."""
    lines = b"".join(entry.in_directory() for entry in entries)
    count, size = len(entries), len(lines)
    end_64 = b""
    if count >= _MAX_COUNT:
        end_64 = _END_64.pack(b"PK\6\6", _END_64.size - 12, 45, 45, 0, 0, count, count, size, start)
        end_64 += _LOCATOR_64.pack(b"PK\6\7", 0, start + size, 1)
        count = _MAX_COUNT
    return lines + end_64 + _END.pack(_END_SIGNATURE, 0, 0, count, count, size, start, 0)


def ends_with_directory(data: memoryview) -> bool:
    """Whether the writer of a file closed it, even if bytes have changed since."""
    return bytes(data[-_END.size :][:4]) == _END_SIGNATURE


def goes_on(entries: Sequence[Entry], start: int, end: memoryview) -> bool:
    """Whether more follows on the entries than a writer can leave that was killed.

    A writer that is killed leaves a part of an entry or of the directory, before bytes that it had
    written earlier.
    """
    closed = directory(entries, start)
    is_directory = closed.startswith(end[: len(SIGNATURE)])
    return not closed.startswith(end) if is_directory else bytes(end).find(SIGNATURE, 1) > 0


def may_begin(data: bytes) -> bool:
    """Whether a recording begins with these bytes."""
    return entry(ABOUT, about(), 0)[0].startswith(data)


def size_of_first(data: bytes) -> int:
    """Bytes of the entry whose header comes first; 0 if the header is not as written."""
    first = _entry_at(memoryview(data), 0, 0)
    return first.stop if first else 0


def read_entries(data: memoryview, start: int = 0) -> Iterator[tuple[Entry, memoryview]]:
    """The entries and their contents, up to the first that is not as written.

    Parameters
    ----------
    data : memoryview
        Bytes of a file.
    start : int, optional
        The position in the file of the first of them.
    """
    position = 0
    while (entry := _entry_at(data, position, start + position)) is not None:
        stop = entry.stop - start
        payload = data[stop - entry.size : stop]
        if len(payload) != entry.size or zlib.crc32(payload) != entry.checksum:
            return
        yield entry, payload
        position = stop


def _entry_at(data: memoryview, position: int, start: int) -> Entry | None:
    """The entry whose header is at a position, if the header is as written."""
    if len(data) - position < _HEADER.size:
        return None
    *_, checksum, size, _, length, _ = _HEADER.unpack_from(data, position)
    header = bytes(data[position : position + _HEADER.size + length])
    name = header[_HEADER.size :]
    if not name.isascii():
        return None
    entry = Entry(name.decode("ascii"), checksum, size, start)
    # Byte by byte what the writer writes: no field of a header is trusted by itself.
    return entry if header == entry.header() else None
