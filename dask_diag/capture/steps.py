"""Steps inside fused tasks that ran before, in another computation: counted, and nothing kept.

Tasks that parse text have another name for other columns. The block of the file that they read,
which is a task inside of them, has the same: by it they are known.

Reads of the chunks of a stored array count in the same way.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from functools import partial
from types import BuiltinFunctionType, FunctionType, MethodType
from typing import TYPE_CHECKING, Any, NamedTuple

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

if TYPE_CHECKING:
    from dask_diag.cluster.stored_chunks import ReadAgain

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
        again: tuple[RepeatedStep, ...] = ()
        if any(type(node) is DataNode for node in dsk.values()):
            # One may be a stored array.
            from dask_diag.cluster.stored_chunks import chunks_read_again

            again = tuple(rows_read_again(chunks_read_again(dsk)))
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


def rows_read_again(found: Iterable[ReadAgain]) -> Iterator[RepeatedStep]:
    """Stored arrays whose chunks were read again, as rows."""
    for one in found:
        names = function_of_key((_head(one.task),)), function_of_key((one.array,))
        yield RepeatedStep(*names, STORED_CHUNKS, one.reads, one.repeats)


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
