"""Steps inside fused tasks that ran before, in another computation: counted, and nothing kept.

Tasks that parse text have another name for other columns. The block of the file that they read,
which is a task inside of them, has the same: by it they are known.

Chunks of a stored array are read again where the borders of dask's chunks cross theirs: this is
counted by the slices that tasks take of the array.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from dask_diag.capture.keys import function_of_key, name_of_function
from dask_diag.hooks.stack import (
    DataNode,
    Graph,
    Task,
    block_of,
    execute_subgraph,
    is_fused,
    steps_of,
)
from dask_diag.model.codes import STORED_CHUNKS, TOKEN

MOST_KEYS = 100_000
"""Keys of steps that are remembered, as hashes: about 8 MB. Later ones are not counted."""


class RepeatedStep(NamedTuple):
    """Steps of one name in the tasks of one function, and how many of them ran before.

    `calls` are the names of the functions that the step calls, separated by spaces.
    """

    function: str
    step: str
    calls: str
    runs: int
    repeats: int


class SeenSteps:
    """Hashes of the keys of steps in fused tasks, of all computations of a session."""

    __slots__ = ("_known", "_seen")

    def __init__(self) -> None:
        self._seen: set[int] = set()
        self._known: dict[tuple[RepeatedStep, ...], tuple[RepeatedStep, ...]] = {}

    def count(self, dsk: Graph) -> tuple[RepeatedStep, ...]:
        """Count steps that ran before; those of functions without any are left out.

        Computations that overlap may both be the first: each adds its keys after it has counted.
        """
        # Without calls: most graphs have none, and it is asked for each task.
        found = [
            (key, task)
            for key, task in dsk.items()
            if type(task) is Task
            and (task.func is execute_subgraph or (task.args and type(task.args[0]) is Task))
        ]
        originals = [key for key in dsk if type(key) is str and key.startswith(_ORIGINAL)]
        again = tuple(_read_again(dsk, originals)) if originals else ()
        if not found:
            return again
        seen, new = self._seen, set[int]()
        groups: dict[tuple[object, object], list[Any]] = {}
        for key, task in found:
            is_whole = not is_fused(task)
            for name, step, block in [(key, task, key)] if is_whole else steps_of(task, key):
                # The steps of a block have names only: the block is the task's.
                inside = block[1:] if type(name) is str and isinstance(block, tuple) else ()
                step_key = (name, *inside) if inside else name
                read = block_of(step)
                if is_whole and read is None:
                    continue
                names = _head(key), _head(step_key)
                group = groups.get(names)
                if group is None:
                    group = groups[names] = [0, 0, step, bool(TOKEN.search(str(names[1])))]
                group[0] += 1
                if group[3]:
                    hashed = hash(step_key if read is None else read)
                    group[1] += hashed in seen
                    new.add(hashed)
        if len(seen) < MOST_KEYS:
            seen |= new
        rows = (*_rows(groups), *again)
        # Computations in a loop have equal counts: they share one object.
        return self._known.setdefault(rows, rows)


def _rows(groups: Mapping[tuple[object, object], list[Any]]) -> Iterator[RepeatedStep]:
    repeated = {names[0] for names, group in groups.items() if group[1]}
    for (head, step_head), (runs, repeats, step, _) in groups.items():
        if head in repeated:
            names = function_of_key((head,)), function_of_key((step_head,))
            yield RepeatedStep(*names, " ".join(_calls_of(step)), runs, repeats)


_ORIGINAL = "original-"
"""Begins the key of an array that tasks take parts of."""
_TIMES = 2
"""Least times that a stored chunk is read, on average, to be noted."""
_MOST_WRAPPERS = 8
"""Objects around a stored array, such as those of xarray, that are looked into."""


def _read_again(dsk: Graph, originals: Sequence[str]) -> Iterator[RepeatedStep]:
    """Stored arrays whose chunks are read several times, with the number of reads of chunks."""
    stored = {key: grid for key in originals if (grid := _grid_of(dsk[key]))}
    if not stored:
        return
    slices: dict[tuple[object, str], list[tuple[Any, ...]]] = {}
    for key, task in dsk.items():
        for source, part in _parts_of(task, stored):
            slices.setdefault((_head(key), source), []).append(part)
    for (head, source), parts in slices.items():
        reads, chunks = _reads(parts, *stored[source])
        if reads >= _TIMES * chunks > 0:
            names = function_of_key((head,)), function_of_key((source[len(_ORIGINAL) :],))
            yield RepeatedStep(*names, STORED_CHUNKS, reads, reads - chunks)


def _parts_of(task: Any, stored: Collection[str]) -> Iterator[tuple[str, tuple[Any, ...]]]:
    """Stored arrays of which a task, or a step in it, takes a part, and the slices."""
    if type(task) is not Task:
        return
    source, part = None, None
    for one in task.args:
        value = one.value if type(one) is DataNode else one
        if type(value) is tuple:
            part = value if value and type(value[0]) is slice else part
        elif getattr(one, "key", None) in stored:
            source = one.key
    if source is not None and part is not None:
        yield source, part
    elif is_fused(task):
        for step in task.args[0].values():
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


def _head(key: Hashable) -> object:
    """The name in a key, without the index that dask adds to names inside of a block."""
    head = key[0] if type(key) is tuple and key else key
    return head.partition("_.")[0] if type(head) is str else head


def _calls_of(step: Task) -> list[str]:
    """The names of the functions that a step calls, as its function or through an argument."""
    values = (*step.args, *step.kwargs.values())
    arguments = [value.value if type(value) is DataNode else value for value in values]
    functions = [step.func, *(one for one in arguments if isinstance(one, _FUNCTIONS))]
    names = [name_of_function(function) for function in functions]
    return list(dict.fromkeys(name.rpartition(".")[2].replace(" ", "_") for name in names))


_FUNCTIONS = FunctionType, BuiltinFunctionType, MethodType, partial
