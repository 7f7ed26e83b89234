"""Streams of bytes: what encoded columns are put into, and the few blocks that they are kept in.

Streams that are compressed alike are compressed together: it is not the bytes that take long, but
each call, since another thread has the interpreter meanwhile.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable, Container
from struct import Struct
from typing import Any

__all__ = ["StreamReader", "StreamWriter", "pack_block", "unpack_block"]

RAW, DEFLATED, COUNTED = 0, 1, 2
"""How a stream is stored: as it is, with repetitions found, with its bytes merely counted."""

_GREATEST_RATIO = 1032
"""No deflated byte gives more than this, so that what a file makes us allocate is bounded."""
_MOST_LEFT_OUT = 1 << 20
"""Of how many rows, of all columns of a part, nothing need be stored: a bound for the same end."""

_BLOCK = Struct("<BQQ")
_SAMPLE = 1 << 15
_HARDLY_LARGER = 1.05
_HARDLY_SMALLER = 0.97
_WORTH_CHOOSING = 256
_NOT_YET = object()


class StreamWriter:
    """Collects streams of bytes; each is told by how it is stored, and its size.

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
        self._left_out = 0
        self._streams: dict[int, list[bytes]] = {how: [] for how in _METHODS}

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
        """Add a stream, and return what tells it."""
        how = self.choose(len(data), lambda: _best_for(data, self._level), _METHODS)
        self._streams[how].append(data)
        return [how, len(data)]

    def leaves_out(self, rows: int) -> bool:
        """Whether nothing need be stored of so many rows that are all alike."""
        self._left_out += rows
        return self._left_out <= _MOST_LEFT_OUT

    def getvalue(self) -> bytes:
        """All streams so far, in a block for each method."""
        return b"".join(
            pack_block(b"".join(streams), how, self._level)
            for how, streams in self._streams.items()
        )


class StreamReader:
    """Gives back the streams in the order in which they were put, each of a size that is known.

    Parameters
    ----------
    data : memoryview
        What `StreamWriter.getvalue` returned.
    """

    def __init__(self, data: memoryview) -> None:
        self._left: dict[int, memoryview] = {}
        self._left_out = 0
        for how in _METHODS:
            block, data = unpack_block(data)
            self._left[how] = memoryview(block)

    def take(self, told: Any, size: int | None = None) -> memoryview:
        """The next stream; a ValueError if there is none, or it is not `size` bytes long."""
        how, length = told
        left = self._left[how]
        if not 0 <= length <= len(left) or size not in (None, length):
            raise ValueError(f"expected {size} bytes, found {length} of {len(left)}")
        self._left[how] = left[length:]
        return left[:length]

    def make_up(self, rows: int) -> int:
        """How many rows nothing was stored of; a ValueError if that cannot be."""
        self._left_out += rows
        if self._left_out > _MOST_LEFT_OUT:
            raise ValueError(f"expected streams for {rows} rows")
        return rows


def pack_block(data: bytes, how: int, level: int) -> bytes:
    """Bytes as a block that tells its sizes, compressed if that makes them smaller."""
    packed = data if how == RAW else _deflated(data, level, _STRATEGIES[how])
    if len(packed) >= len(data):
        how, packed = RAW, data
    return _BLOCK.pack(how, len(data), len(packed)) + packed


def unpack_block(data: memoryview) -> tuple[bytes, memoryview]:
    """The bytes that a block holds, and what follows on it; a ValueError if it holds no such."""
    if len(data) < _BLOCK.size:
        raise ValueError("expected a block, found the end")
    how, size, stored = _BLOCK.unpack_from(data)
    packed, rest = data[_BLOCK.size : _BLOCK.size + stored], data[_BLOCK.size + stored :]
    if len(packed) != stored or size > _GREATEST_RATIO * (stored + 1):
        raise ValueError(f"expected {size} bytes in {stored}, found {len(packed)}")
    found = bytes(packed) if how == RAW else _inflated(packed, size)
    if len(found) != size:
        raise ValueError(f"expected {size} bytes, found {len(found)}")
    return found, rest


def _inflated(piece: memoryview, limit: int) -> bytes:
    inflate = zlib.decompressobj()
    # A limit of 0 would mean that there is none.
    data = inflate.decompress(piece, limit + 1)
    if not inflate.eof or len(data) > limit:
        raise ValueError("expected the end of a compressed stream")
    return data


def _best_for(data: bytes, level: int) -> int:
    """How to store a stream, tried on what is in the middle."""
    if len(data) < _WORTH_CHOOSING:
        return DEFLATED
    middle = max(0, len(data) - _SAMPLE) // 2
    sample = data[middle : middle + _SAMPLE]
    sizes = {how: len(_deflated(sample, level, each)) for how, each in _STRATEGIES.items()}
    if min(sizes.values()) > _HARDLY_SMALLER * len(sample):
        return RAW
    # To count bytes takes a fraction of the time that it takes to look for repetitions.
    return COUNTED if sizes[COUNTED] < sizes[DEFLATED] * _HARDLY_LARGER else DEFLATED


_STRATEGIES = {DEFLATED: zlib.Z_DEFAULT_STRATEGY, COUNTED: zlib.Z_HUFFMAN_ONLY}
_METHODS = (RAW, *_STRATEGIES)


def _deflated(data: bytes, level: int, strategy: int) -> bytes:
    deflate = zlib.compressobj(level=level, memLevel=9, strategy=strategy)
    return deflate.compress(data) + deflate.flush()
