"""The bytes of a chunk: two blocks, each compressed in the way that suits what is in it.

Two blocks and not one for each column: compressing releases the GIL, and while a computation runs
each call makes the writing thread compete with the tasks for it again.
"""

from __future__ import annotations

import zlib
from struct import Struct

__all__ = ["ByteReader", "ByteWriter"]

_SIZES = Struct("<QQQ")
_GREATEST_RATIO = 1032
"""No deflated byte gives more than this, which bounds what a file makes its reader allocate."""


class ByteWriter:
    """Collects bytes in the order in which a `ByteReader` takes them."""

    def __init__(self) -> None:
        self._data: list[bytes] = []
        self._planes: list[bytes] = []

    def append(self, data: bytes) -> None:
        """Add bytes in which sequences of bytes may repeat."""
        self._data.append(data)

    def append_planes(self, planes: bytes) -> None:
        """Add bytes that are noise or runs of one byte: no other sequence is searched for."""
        self._planes.append(planes)

    def getvalue(self, first: bytes, level: int, like: bytes = b"") -> bytes:
        """All bytes, `first` before the others, compressed with that level, from 1 to 9.

        What is the same as in `like` takes next to nothing; the reader has to have it, too.
        """
        data, planes = b"".join([first, *self._data]), b"".join(self._planes)
        compressor = zlib.compressobj(level, zdict=like)
        block = compressor.compress(data) + compressor.flush()
        runs = zlib.compressobj(1, strategy=zlib.Z_RLE)
        sizes = _SIZES.pack(len(data), len(block), len(planes))
        return b"".join([sizes, block, runs.compress(planes), runs.flush()])


class ByteReader:
    """Takes from the front what was appended, each time as many bytes; else there is a ValueError.

    Parameters
    ----------
    data : memoryview
        What `ByteWriter.getvalue` returned. If it is damaged, some error is raised.
    like : bytes, optional
        As `ByteWriter.getvalue` had it.
    """

    def __init__(self, data: memoryview, like: bytes = b"") -> None:
        size, stored, size_of_planes = _SIZES.unpack_from(data)
        blocks = data[_SIZES.size :]
        self._data = _unpacked(blocks[:stored], size, like)
        self._planes = _unpacked(blocks[stored:], size_of_planes)

    def take(self, size: int) -> memoryview:
        """The next bytes of those that were appended."""
        data, self._data = _split(self._data, size)
        return data

    def take_planes(self, size: int) -> memoryview:
        """The next bytes of the planes."""
        planes, self._planes = _split(self._planes, size)
        return planes


def _split(data: memoryview, size: int) -> tuple[memoryview, memoryview]:
    if type(size) is not int or not 0 <= size <= len(data):
        raise ValueError(f"expected {size!r} bytes, found {len(data)}")
    return data[:size], data[size:]


def _unpacked(block: memoryview, size: int, like: bytes = b"") -> memoryview:
    if size > _GREATEST_RATIO * len(block):
        raise ValueError(f"expected at most {_GREATEST_RATIO} bytes for each of {len(block)}")
    if like:
        decompressor = zlib.decompressobj(zdict=like)
        data = decompressor.decompress(block, size + 1)
        is_all = decompressor.eof and not decompressor.unused_data
    else:
        # Several times as fast, as it knows how much memory to take.
        data, is_all = zlib.decompress(block, bufsize=size), True
    if not is_all or len(data) != size:
        raise ValueError(f"expected a block of {size} bytes, found {len(data)}")
    return memoryview(data)
