"""Keys as text, many at once: one by one, it would take longer than all else that is recorded."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from operator import itemgetter
from typing import Any

import numpy as np

from dask_diag.columns import Labels, Texts

__all__ = ["codes_of", "tuples_as_text"]


def codes_of(items: Sequence[Any]) -> tuple[np.ndarray[Any, Any], list[Any]]:
    """For each item its position among the distinct ones, and those."""
    distinct = list(dict.fromkeys(items))
    position = {item: place for place, item in enumerate(distinct)}
    return np.fromiter(map(position.__getitem__, items), np.int64, len(items)), distinct


def tuples_as_text(keys: Sequence[Any]) -> tuple[Texts, list[Any]] | None:
    """Keys such as ``("x", 1, 2)`` as ``str`` writes them, and the distinct names.

    None if not all are of that shape. That they are is read off what is written: to look at the
    type of each item takes as long.
    """
    if set(map(type, keys)) != {tuple}:
        return None
    try:
        names = list(map(itemgetter(0), keys))
        written = b", ".join(map(_numbers_of, _batches(keys)))
    except (IndexError, ValueError):
        # An empty key, text, or an integer of more digits than Python writes.
        return None
    if written.translate(None, _OF_NUMBERS) or written.count(b"(") != len(keys) or b"()" in written:
        return None
    if set(map(type, names)) != {str}:
        return None
    codes, distinct = codes_of(names)
    if any(", " in name for name in distinct):
        return None
    # Of "(1, 2), (3,)" is left " 1, 2) 3)", which is the tails, one after the other.
    tails = b" " + written[1:].replace(b",)", b")").replace(b"), (", b") ")
    ends = np.flatnonzero(np.frombuffer(tails, dtype=np.uint8) == ord(")"))
    heads = Labels(codes, [f"({name!r}," for name in distinct])
    return Texts.from_encoded(heads, np.diff(ends, prepend=-1), tails), distinct


_OF_NUMBERS = b"0123456789-, ()"
_BATCH = 500
_all_but_first = itemgetter(slice(1, None))


def _batches(keys: Sequence[Any]) -> Iterator[Sequence[Any]]:
    """A few at a time: more tuples at once would set off the collection of garbage."""
    return (keys[start : start + _BATCH] for start in range(0, len(keys), _BATCH))


def _numbers_of(keys: Sequence[Any]) -> bytes:
    return str(list(map(_all_but_first, keys)))[1:-1].encode("ascii")
