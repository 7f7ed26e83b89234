"""The file around the chunks: a zip archive, written from front to back and read the same way.

Its entries are stored, not deflated, since chunks are compressed already, and each has a CRC-32.
The directory, which zip has at the end, says that the file is complete, and lets other programs
read it: the file of a process that was killed is read without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator, Sequence
from struct import Struct
from typing import NamedTuple

SCHEMA_VERSION = 7
"""Of what chunks hold and how it is encoded. A reader refuses every other version."""

FORMAT = "dask_diag recording"
ABOUT, CHUNK, PROVISIONAL = "dask_diag.json", "chunk-", "provisional-"
MAX_SIZE = 0xFFFFFFFF - (1 << 24)
"""Bytes that a zip archive without further extensions can have, its directory included."""

SIGNATURE = b"PK\3\4"
IN_DIRECTORY = b"PK\1\2"
"""How the directory begins."""
_END_SIGNATURE = b"PK\5\6"

_HEADER = Struct("<4s5H3I2H")
CHUNK_HEADER_SIZE = _HEADER.size + len(CHUNK) + 8
"""Bytes of a chunk before its content."""
LONGEST_HEADER = _HEADER.size + len(PROVISIONAL) + 8
_DIRECTORY_ENTRY = Struct("<4s6H3I5H2I")
_END = Struct("<4s4H2IH")
END_SIZE = _END.size
"""Bytes at the end of a file that say whether it was closed."""
_END_64 = Struct("<4sQ2H2I4Q")
_LOCATOR_64 = Struct("<4sIQI")
_MAX_COUNT = 0xFFFF
# Version of zip, flags, method (stored), time, date: the same in every entry.
_CONSTANT = (10, 0, 0, 0, 0x21)


class Entry(NamedTuple):
    """What header and directory say of an entry."""

    name: str
    checksum: int
    size: int
    start: int

    @classmethod
    def of(cls, name: str, payload: bytes, start: int) -> Entry:
        """The entry of that name and content, from that byte on."""
        return cls(name, zlib.crc32(payload), len(payload), start)

    @property
    def stop(self) -> int:
        """Where the next one starts."""
        return self.start + len(self.header()) + self.size

    def header(self) -> bytes:
        """What precedes its content."""
        name = self.name.encode("ascii")
        sizes = (self.checksum, self.size, self.size, len(name), 0)
        return _HEADER.pack(SIGNATURE, *_CONSTANT, *sizes) + name

    def in_directory(self) -> bytes:
        """Its lines in the directory."""
        name = self.name.encode("ascii")
        sizes = (self.checksum, self.size, self.size, len(name), 0, 0, 0, 0, 0, self.start)
        return _DIRECTORY_ENTRY.pack(IN_DIRECTORY, 10, *_CONSTANT, *sizes) + name


def about() -> bytes:
    """The first entry of every version: which format this is, and which version."""
    return json.dumps({"format": FORMAT, "version": SCHEMA_VERSION}).encode()


def entry(name: str, payload: bytes, start: int) -> tuple[bytes, Entry]:
    """An entry as bytes, and what the directory will say of it."""
    new = Entry.of(name, payload, start)
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
    """Whether a file was closed by its writer, whatever has become of what comes before."""
    return bytes(data[-_END.size :][:4]) == _END_SIGNATURE


def goes_on(entries: Sequence[Entry], start: int, end: memoryview) -> bool:
    """Whether more follows on bytes that are not as written: more than a writer may leave there.

    One that is killed while it writes leaves a part of an entry, and of what was there before.
    """
    closed = directory(entries, start)
    is_directory = closed.startswith(end[: len(SIGNATURE)])
    return not closed.startswith(end) if is_directory else bytes(end).find(SIGNATURE, 1) > 0


def may_begin(data: bytes) -> bool:
    """Whether it is how a recording begins."""
    return entry(ABOUT, about(), 0)[0].startswith(data)


def size_of_first(data: bytes) -> int:
    """Bytes of the entry whose header comes first; 0 if that is not as written."""
    if len(data) < _HEADER.size:
        return 0
    *_, checksum, size, _, length, _ = _HEADER.unpack_from(data)
    name = data[_HEADER.size : _HEADER.size + length]
    if not name.isascii():
        return 0
    read = Entry(name.decode("ascii"), checksum, size, 0)
    return read.stop if data.startswith(read.header()) else 0


def read_entries(data: memoryview) -> Iterator[tuple[Entry, memoryview]]:
    """The entries and their contents from the front, up to the first that is not as written."""
    start = 0
    while (entry := _read_entry(data, start)) is not None:
        yield entry
        start = entry[0].stop


def _read_entry(data: memoryview, start: int) -> tuple[Entry, memoryview] | None:
    if len(data) - start < _HEADER.size:
        return None
    *_, checksum, size, _, length, _ = _HEADER.unpack_from(data, start)
    begin = start + _HEADER.size + length
    payload = data[begin : begin + size]
    name = bytes(data[start + _HEADER.size : begin])
    if not name.isascii() or len(payload) != size or zlib.crc32(payload) != checksum:
        return None
    read = Entry(name.decode("ascii"), checksum, size, start)
    # Byte by byte what the writer writes: no field of a header is trusted by itself.
    return (read, payload) if data[start:begin] == read.header() else None
