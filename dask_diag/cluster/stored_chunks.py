"""Chunks of a stored array that tasks read again, as the borders of dask's chunks cross theirs.

They are counted by the slices that tasks take of the array. On a cluster the scheduler has the
graph: `shipping` sends the text of this module there.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from dask_diag.cluster.wire import name_of_key, steps_inside


class ReadAgain(NamedTuple):
    """A stored array, and how many of its chunks tasks with a name read, and how many again."""

    task: Any
    array: str
    reads: int
    repeats: int


_ORIGINAL = "original-"
"""Begins the key of an array that tasks take parts of."""
_TIMES = 2
"""Least times that a stored chunk is read, on average, to be noted."""
_MOST_WRAPPERS = 8
"""Objects around a stored array, such as those of xarray, that are looked into."""


def chunks_read_again(graph: Mapping[Hashable, Any]) -> Iterator[ReadAgain]:
    """Stored arrays whose chunks the tasks of a graph read several times."""
    originals = [key for key in graph if type(key) is str and key.startswith(_ORIGINAL)]
    stored = {key: grid for key in originals if (grid := _grid_of(graph[key]))}
    if not stored:
        return
    slices: dict[tuple[Any, str], list[tuple[Any, ...]]] = {}
    for key, task in graph.items():
        for source, part in _parts_of(task, stored):
            slices.setdefault((name_of_key(key), source), []).append(part)
    for (name, source), parts in slices.items():
        reads, chunks = _reads(parts, *stored[source])
        if reads >= _TIMES * chunks > 0:
            yield ReadAgain(name, source[len(_ORIGINAL) :], reads, reads - chunks)


def _parts_of(task: Any, stored: Collection[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Stored arrays of which a task, or a step in it, takes a part, and the slices."""
    if type(task).__name__ != "Task":
        return
    source, part = None, None
    for one in task.args:
        value = one.value if type(one).__name__ == "DataNode" else one
        if type(value) is tuple:
            part = value if value and type(value[0]) is slice else part
        elif type(key := getattr(one, "key", None)) is str and key in stored:
            source = key
    if source is not None and part is not None:
        yield source, part
        return
    for step in steps_inside(task).values():
        yield from _parts_of(step, stored)


def _grid_of(node: Any) -> tuple[tuple[int, ...], tuple[int, ...]] | None:
    """The shape of a stored array, and of its chunks; None for other arrays."""
    array = getattr(node, "value", None)
    shape = getattr(array, "shape", None)
    for _ in range(_MOST_WRAPPERS):
        chunks = getattr(array, "chunks", None)
        if type(chunks) is tuple and chunks and all(type(one) is int and one for one in chunks):
            # What has selected a part of the stored array has other borders.
            is_whole = getattr(array, "shape", None) == shape and len(chunks) == len(shape or ())
            return (shape, chunks) if is_whole else None  # type: ignore[return-value]
        inner = getattr(array, "array", None)
        array = getattr(array, "_array", None) if inner is None else inner
    return None


def _reads(
    parts: Sequence[tuple[Any, ...]], shape: Sequence[int], chunks: Sequence[int]
) -> tuple[int, int]:
    """How many chunks are read for these slices, and how many different ones there are."""
    reads = 0
    touched: list[set[int]] = [set() for _ in shape]
    known: dict[tuple[int, int, int], range] = {}
    for part in parts:
        if len(part) != len(shape):
            return 0, 0
        number = 1
        for axis, (one, size, length) in enumerate(zip(part, shape, chunks, strict=True)):
            if type(one) is not slice:
                return 0, 0
            start, stop, _ = one.indices(size)
            of_axis = known.get((axis, start, stop))
            if of_axis is None:
                of_axis = known[axis, start, stop] = range(start // length, -(-stop // length))
                touched[axis].update(of_axis)
            number *= len(of_axis)
        reads += number
    return reads, prod(map(len, touched))
