"""The file around the parts: a zip archive, written from front to back and read the same way.

Its entries are stored uncompressed, since what is in them is compressed already, and each has a
CRC-32. The directory, which zip has at the end, is only there to say that the file is whole and for
other programs: what a process wrote that was killed is read without it.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Iterator
from struct import Struct
from typing import NamedTuple

__all__ = [
    "ABOUT",
    "BEGINS",
    "FORMAT",
    "LARGEST",
    "PART",
    "SCHEMA_VERSION",
    "SO_FAR",
    "Entry",
    "about",
    "directory",
    "entries",
    "entry",
    "has_end",
]

SCHEMA_VERSION = 1
"""Of what the parts hold and how it is encoded. A reader refuses what is newer than it knows."""

FORMAT = "dask_diag recording"
ABOUT, PART, SO_FAR = "dask_diag.json", "part-", "so-far-"
LARGEST = 0xFFFFFFFF - (1 << 24)
"""Bytes that a zip archive without further extensions can have, its directory included."""

BEGINS = b"PK\3\4"
_END_SIGNATURE = b"PK\5\6"

_HEADER = Struct("<4s5H3I2H")
_IN_DIRECTORY = Struct("<4s6H3I5H2I")
_END = Struct("<4s4H2IH")
_END_64 = Struct("<4sQ2H2I4Q")
_LOCATOR_64 = Struct("<4sIQI")
_MOST_IN_PLAIN_DIRECTORY = 0xFFFF
# Nothing that is read depends on these: version of zip, flags, method, time, date.
_FIXED = (10, 0, 0, 0, 0x21)


class Entry(NamedTuple):
    """What the directory tells of an entry."""

    name: str
    checksum: int
    size: int
    start: int

    @classmethod
    def of(cls, name: str, payload: bytes, start: int) -> Entry:
        """The entry of that name, with this in it, from that byte on."""
        return cls(name, zlib.crc32(payload), len(payload), start)

    @property
    def stop(self) -> int:
        """Where the next one starts."""
        return self.start + _HEADER.size + len(self.name) + self.size


def about() -> bytes:
    """What the first entry says, of every version: which format this is, and which version."""
    return json.dumps({"format": FORMAT, "version": SCHEMA_VERSION}).encode()


def entry(name: str, payload: bytes, start: int) -> tuple[bytes, Entry]:
    """An entry's bytes, and what the directory is to tell of it."""
    told = Entry.of(name, payload, start)
    return _header(told) + payload, told


def _header(told: Entry) -> bytes:
    encoded = told.name.encode("ascii")
    sizes = (told.checksum, told.size, told.size, len(encoded), 0)
    return _HEADER.pack(BEGINS, *_FIXED, *sizes) + encoded


def directory(told: list[Entry], start: int) -> bytes:
    """The end of a whole file."""
    lines = b"".join(map(_line, told))
    count, size = len(told), len(lines)
    end_64 = b""
    if count >= _MOST_IN_PLAIN_DIRECTORY:
        rest = (0, 0, count, count, size, start)
        end_64 = _END_64.pack(b"PK\6\6", _END_64.size - 12, 45, 45, *rest)
        end_64 += _LOCATOR_64.pack(b"PK\6\7", 0, start + size, 1)
        count = _MOST_IN_PLAIN_DIRECTORY
    return lines + end_64 + _END.pack(_END_SIGNATURE, 0, 0, count, count, size, start, 0)


def has_end(data: memoryview) -> bool:
    """Whether the last thing in a file is what whole files end with, whatever comes before."""
    return bytes(data[-_END.size :][:4]) == _END_SIGNATURE


def _line(told: Entry) -> bytes:
    encoded = told.name.encode("ascii")
    sizes = (told.checksum, told.size, told.size, len(encoded), 0, 0, 0, 0, 0, told.start)
    return _IN_DIRECTORY.pack(b"PK\1\2", 10, *_FIXED, *sizes) + encoded


def entries(data: memoryview) -> Iterator[tuple[Entry, memoryview]]:
    """The entries from the front, up to where none follows that is as it was written."""
    at = 0
    while True:
        found = _entry_at(data, at)
        if found is None:
            return
        yield found
        at = found[0].stop


def _entry_at(data: memoryview, at: int) -> tuple[Entry, memoryview] | None:
    if len(data) - at < _HEADER.size:
        return None
    *_, checksum, size, _, length, _ = _HEADER.unpack_from(data, at)
    begin = at + _HEADER.size + length
    payload = data[begin : begin + size]
    name = bytes(data[at + _HEADER.size : begin])
    if not name.isascii() or len(payload) != size or zlib.crc32(payload) != checksum:
        return None
    told = Entry(name.decode("ascii"), checksum, size, at)
    # Byte by byte what we would have written: no field of it is read and then trusted.
    return (told, payload) if data[at:begin] == _header(told) else None
