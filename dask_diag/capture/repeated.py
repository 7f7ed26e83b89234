"""What tasks of a graph do again: steps inside of fused tasks, and reads of stored chunks.

Steps are known by the hashes of their keys; nothing else of them is kept. Tasks that parse text
have another name for other columns. The block of the file that they read, which is a task inside of
them, has the same: by it they are known.

Reads of a stored array count by the slices that tasks take of it: chunks are read again as the
borders of dask's chunks cross theirs.

Of computations inside of tasks, the inputs are looked at: whether an earlier one had the same.

On a cluster the scheduler has the graph: `shipping` sends the text of this module there.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from math import prod
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import Any, NamedTuple

from dask.utils import funcname

from dask_diag.model.graph import NAMED_BY_DASK, block_of, is_fused, name_of_key, steps_of

MOST_KEYS = 100_000
"""Keys that are remembered, as hashes: about 8 MB. Later ones are not counted."""
_HAVE_STEPS = "dict", "Task"
"""Classes of the first argument of fused tasks, and of tasks that parse a block of a file."""


class RepeatedStep(NamedTuple):
    """Steps of one name in the tasks of one name, and how many of them ran before.

    `calls` are the names of the functions that the step calls, separated by spaces; empty for a
    stored array, of which the reads of chunks count.
    """

    task: Any
    step: Any
    calls: str
    runs: int
    repeats: int


def steps_again(tasks: Iterable[tuple[Hashable, Any]], seen: set[int]) -> list[RepeatedStep]:
    """Count steps of tasks that ran before, and remember them.

    Those of tasks without a repeat are left out. Computations that overlap may both be the first:
    each adds its keys after it has counted.
    """
    new = set[int]()
    groups: dict[tuple[object, object], list[Any]] = {}
    for key, task in tasks:
        # Without calls: it is asked for each task.
        if task.__class__.__name__ != "Task" or not task.args:
            continue
        if task.args[0].__class__.__name__ not in _HAVE_STEPS:
            continue
        # Of a task that is not fused only the block counts that it reads.
        steps = _steps(key, task) if is_fused(task) or block_of(task) is not None else ()
        head = steps and _head(key)
        for name, step, block in steps:
            read, names = block_of(step), (head, _head(name))
            group = groups.get(names)
            if group is None:
                # The user may give a name to other work, too.
                group = groups[names] = [0, 0, step, bool(NAMED_BY_DASK.search(str(names[1])))]
            group[0] += 1
            if group[3]:
                hashed = hash(_step_key(name, block) if read is None else read)
                group[1] += hashed in seen
                new.add(hashed)
    if not groups:
        return []
    if len(seen) < MOST_KEYS:
        seen |= new
    repeated = {names[0] for names, group in groups.items() if group[1]}
    return [
        RepeatedStep(*names, " ".join(_calls_of(step)), runs, repeats)
        for names, (runs, repeats, step, _) in groups.items()
        if names[0] in repeated
    ]


def repeated_input(graph: Mapping[Hashable, Any], seen: set[int]) -> Hashable:
    """The key of an input if an earlier computation had most inputs of this one; else None.

    Inputs are tasks, and steps of fused tasks, without inputs of their own. They are remembered.
    """
    inputs = {
        hash(block_of(step) or step_key): step_key
        for key, task in graph.items()
        for name, step, block in _steps(key, task)
        for step_key in (_step_key(name, block),)
        if type(step).__name__ == "Task"
        and not step.dependencies
        and NAMED_BY_DASK.search(str(step_key))
    }
    again = [step_key for hashed, step_key in inputs.items() if hashed in seen]
    if len(seen) < MOST_KEYS:
        seen.update(inputs)
    return again[0] if len(again) > len(inputs) / 2 else None


def _steps(key: Hashable, task: Any) -> Sequence[tuple[Hashable, Any, Hashable]]:
    """Steps of a fused task; of other tasks the task itself."""
    return steps_of(task, key) if is_fused(task) else [(key, task, key)]


def _step_key(name: Hashable, block: Hashable) -> Hashable:
    """A key of its own for a step of a block: those have names only; the block is the task's."""
    inside = block[1:] if type(name) is str and isinstance(block, tuple) else ()
    return (name, *inside) if inside else name


def _head(key: Hashable) -> Any:
    """The name in a key, without the index that dask adds to names inside of a block."""
    head = name_of_key(key)
    return head.partition("_.")[0] if type(head) is str else head


def _calls_of(step: Any) -> list[str]:
    """The names of the functions that a step calls, as its function or through an argument."""
    values = (*step.args, *step.kwargs.values())
    arguments = [one.value if type(one).__name__ == "DataNode" else one for one in values]
    functions = [step.func, *(one for one in arguments if isinstance(one, _FUNCTIONS))]
    names = map(_name_of, functions)
    return list(dict.fromkeys(name.rpartition(".")[2].replace(" ", "_") for name in names))


_FUNCTIONS = FunctionType, BuiltinFunctionType, MethodType, partial


def _name_of(function: object) -> str:
    try:
        return str(funcname(function))
    except Exception:
        return type(function).__name__


_ORIGINAL = "original-"
"""Begins the key of an array that tasks take parts of."""
_TIMES = 2
"""Least times that a stored chunk is read, on average, to be noted."""
_MOST_WRAPPERS = 8
"""Objects around a stored array, such as those of xarray, that are looked into."""


def chunks_read_again(graph: Mapping[Hashable, Any]) -> Iterator[RepeatedStep]:
    """Stored arrays whose chunks the tasks of a graph read several times."""
    # Without calls: it is asked for each task.
    size = len(_ORIGINAL)
    originals = [key for key in graph if type(key) is str and key[:size] == _ORIGINAL]
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
            yield RepeatedStep(name, source[size:], "", reads, reads - chunks)


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
    for step in task.args[0].values() if is_fused(task) else ():
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
