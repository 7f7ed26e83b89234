"""Bytes, compressed or not, one after the other: what encoded columns are put into."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container
from typing import Any

__all__ = ["StreamReader", "StreamWriter"]

RAW, DEFLATED = 0, 1
GREATEST_RATIO = 1032
"""No deflated byte gives more than this, so that what a file makes us allocate is bounded."""

_SAMPLE = 1 << 15
_HARDLY_LARGER = 1.05
_HARDLY_SMALLER = 0.97
_WORTH_CHOOSING = 256
_NOT_YET = object()


class StreamWriter:
    """Collects streams of bytes; each is told by its method and its size in the file.

    Parameters
    ----------
    level : int, optional
        How hard to look for repetitions, from 1 to 9.
    choices : dict, optional
        What was chosen for streams that were written before, and are to be for these; it grows.
    """

    def __init__(self, level: int = 1, choices: dict[Any, Any] | None = None) -> None:
        self._level = level
        self._choices = choices
        self._column: Any = ()
        self._chosen = 0
        self._pieces: list[bytes] = []

    def begin(self, column: Any) -> None:
        """Tell that what is put from now on is of that column."""
        self._column = column
        self._chosen = 0

    def choose(self, rows: int, best: Callable[[], Any], possible: Container[Any]) -> Any:
        """What is best for a stream of so many rows, which takes as long to tell as to write.

        Of columns that are written part by part it is told once: the parts are alike.
        """
        if self._choices is None or rows < _WORTH_CHOOSING:
            return best()
        name = self._column, self._chosen
        self._chosen += 1
        known = self._choices.get(name, _NOT_YET)
        if known not in possible:
            known = self._choices[name] = best()
        return known

    def put(self, data: bytes) -> list[int]:
        """Add a stream, compressed if that makes it smaller, and return what tells it."""
        how = self.choose(len(data), lambda: _best_for(data, self._level), _DEFLATES)
        packed = data if how is None else _deflated(data, self._level, how)
        smaller = len(packed) < len(data)
        self._pieces.append(packed if smaller else data)
        return [DEFLATED if smaller else RAW, len(self._pieces[-1])]

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


def _best_for(data: bytes, level: int) -> int | None:
    """The strategy to deflate with, or None if it is no use, tried on what is in the middle."""
    if len(data) < _WORTH_CHOOSING:
        return zlib.Z_DEFAULT_STRATEGY
    middle = max(0, len(data) - _SAMPLE) // 2
    sample = data[middle : middle + _SAMPLE]
    matched, counted = (len(_deflated(sample, level, how)) for how in _STRATEGIES)
    if min(matched, counted) > _HARDLY_SMALLER * len(sample):
        return None
    # To count bytes takes a fraction of the time that it takes to look for repetitions.
    return zlib.Z_HUFFMAN_ONLY if counted < matched * _HARDLY_LARGER else zlib.Z_DEFAULT_STRATEGY


_STRATEGIES = (zlib.Z_DEFAULT_STRATEGY, zlib.Z_HUFFMAN_ONLY)
_DEFLATES = frozenset((None, *_STRATEGIES))


def _deflated(data: bytes, level: int, strategy: int) -> bytes:
    deflate = zlib.compressobj(level=level, memLevel=9, strategy=strategy)
    return deflate.compress(data) + deflate.flush()
