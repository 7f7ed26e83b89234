"""The bytes of a chunk: a block that is compressed, and after it what does not get smaller.

One block and not one for each column: compressing releases the GIL, and while a computation runs
each call makes the writing thread compete with the tasks for it again.
"""

from __future__ import annotations

import zlib
from struct import Struct

__all__ = ["ByteReader", "ByteWriter"]

_SIZES = Struct("<QQ")
_GREATEST_RATIO = 1032
"""No deflated byte gives more than this, which bounds what a file makes its reader allocate."""


class ByteWriter:
    """Collects bytes in the order in which a `ByteReader` takes them."""

    def __init__(self) -> None:
        self._compressed: list[bytes] = []
        self._plain: list[bytes] = []

    def append(self, data: bytes, plain: bool = False) -> None:
        """Add bytes; `plain` are not worth the time that it takes to compress them."""
        (self._plain if plain else self._compressed).append(data)

    def getvalue(self, first: bytes, level: int, like: bytes = b"") -> bytes:
        """All bytes, `first` before the others, compressed with that level, from 1 to 9.

        What is the same as in `like` takes next to nothing; the reader has to have it, too.
        """
        data = b"".join([first, *self._compressed])
        if like:
            compressor = zlib.compressobj(level, zdict=like)
            block = compressor.compress(data) + compressor.flush()
        else:
            block = zlib.compress(data, level)
        return b"".join([_SIZES.pack(len(data), len(block)), block, *self._plain])


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
        size, stored = _SIZES.unpack_from(data)
        block, self._plain = data[_SIZES.size :][:stored], data[_SIZES.size :][stored:]
        if size > _GREATEST_RATIO * len(block):
            raise ValueError(f"expected at most {_GREATEST_RATIO} bytes for each of {len(block)}")
        unpacked = _unpacked(block, size, like) if like else zlib.decompress(block, bufsize=size)
        self._compressed = memoryview(unpacked)
        if len(self._compressed) != size:
            raise ValueError(f"expected {size} bytes, found {len(self._compressed)}")

    def take(self, size: int, plain: bool = False) -> memoryview:
        """The next bytes of those that were compressed, or of those that were not."""
        left = self._plain if plain else self._compressed
        if type(size) is not int or not 0 <= size <= len(left):
            raise ValueError(f"expected {size!r} bytes, found {len(left)}")
        if plain:
            self._plain = left[size:]
        else:
            self._compressed = left[size:]
        return left[:size]

    def skip(self, compressed: int, plain: int) -> None:
        """Take bytes of both kinds that nobody wants."""
        if compressed:
            self.take(compressed)
        if plain:
            self.take(plain, plain=True)


def _unpacked(block: memoryview, size: int, like: bytes) -> bytes:
    """A block that was compressed with what it is like."""
    decompressor = zlib.decompressobj(zdict=like)
    data = decompressor.decompress(block, size + 1)
    if not decompressor.eof or decompressor.unused_data:
        raise ValueError(f"expected a block of {size} bytes")
    return data
