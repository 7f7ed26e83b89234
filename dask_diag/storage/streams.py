"""Bytes, compressed or not, one after the other: what encoded columns are put into."""

from __future__ import annotations

import zlib
from typing import Any

__all__ = ["StreamReader", "StreamWriter"]

RAW, DEFLATED = 0, 1
GREATEST_RATIO = 1032
"""No deflated byte gives more than this, so that what a file makes us allocate is bounded."""

_SAMPLE = 1 << 15
_HARDLY_LARGER = 1.05


class StreamWriter:
    """Collects streams of bytes; each is told by its method and its size in the file.

    Parameters
    ----------
    level : int, optional
        How hard to look for repetitions, from 1 to 9.
    """

    def __init__(self, level: int = 1) -> None:
        self._level = level
        self._pieces: list[bytes] = []

    def put(self, data: bytes) -> list[int]:
        """Add a stream, compressed if that makes it smaller, and return what tells it."""
        method, stored = _packed(data, self._level)
        self._pieces.append(stored)
        return [method, len(stored)]

    def getvalue(self) -> bytes:
        """All streams so far."""
        return b"".join(self._pieces)


class StreamReader:
    """Gives back the streams in the order in which they were put, each of a size that is known."""

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self._at = 0

    def take(self, told: Any, size: int | None = None) -> bytes:
        """The next stream; a ValueError if it is not `size` bytes long.

        Of a stream whose size is not known, only what its stored size can hold is allocated.
        """
        method, stored = told
        if not 0 <= stored <= len(self._data) - self._at:
            raise ValueError(f"expected a stream of {stored} bytes, found the end")
        piece = self._data[self._at : self._at + stored]
        self._at += stored
        limit = GREATEST_RATIO * (stored + 1) if size is None else size
        if limit > GREATEST_RATIO * (stored + 1):
            raise ValueError(f"expected {size} bytes, found {stored} compressed")
        data = bytes(piece) if method == RAW else _inflated(piece, limit)
        if size is not None and len(data) != size:
            raise ValueError(f"expected {size} bytes, found {len(data)}")
        return data


def _inflated(piece: memoryview, limit: int) -> bytes:
    inflate = zlib.decompressobj()
    # A limit of 0 would mean that there is none.
    data = inflate.decompress(piece, limit + 1)
    if not inflate.eof or len(data) > limit:
        raise ValueError("expected the end of a compressed stream")
    return data


def _packed(data: bytes, level: int) -> tuple[int, bytes]:
    """The method and what it makes of the data, tried on what is in the middle."""
    strategy = zlib.Z_DEFAULT_STRATEGY
    if len(data) > 2 * _SAMPLE:
        middle = len(data) // 2
        sample = data[middle : middle + _SAMPLE]
        matched, counted = (len(_deflated(sample, level, how)) for how in _STRATEGIES)
        # To count bytes takes a fraction of the time that it takes to look for repetitions.
        if counted < matched * _HARDLY_LARGER:
            strategy = zlib.Z_HUFFMAN_ONLY
    packed = _deflated(data, level, strategy)
    return (DEFLATED, packed) if len(packed) < len(data) else (RAW, data)


_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)


def _deflated(data: bytes, level: int, strategy: int) -> bytes:
    deflate = zlib.compressobj(level=level, memLevel=9, strategy=strategy)
    return deflate.compress(data) + deflate.flush()
