"""How many bytes of data a graph gives to its tasks, beside the results of other tasks.

In threads tasks use such data where it is. Worker processes are sent it with each task.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from types import BuiltinMethodType, CodeType, FunctionType, MethodType
from typing import Any, TypeVar

from dask_diag.capture.dask_internals import (
    Graph,
    SchedulerState,
    contents_of_node,
    is_node,
    is_node_type,
)
from dask_diag.capture.result_sizes import ResultSizes

__all__ = ["bytes_in_graph"]

Item = TypeVar("Item")

_MOST_DATA, _MOST_TASKS = 200, 50
"""How many are looked at in place of all, from all over the graph: a task takes some 20 µs."""
_DEEPEST = 8
"""Tasks, functions and collections inside each other that are looked into."""
_IN_MEMORY = frozenset({"builtins", "collections", "numpy", "pandas", "pyarrow"})
"""Packages whose objects hold the bytes that they say they have. Others may refer to a file."""


def bytes_in_graph(dsk: Graph, state: SchedulerState) -> float:
    """The bytes of the data that tasks are given, each time that one is.

    What is of no known size is left out, such as objects of the program's own classes. Of a large
    graph it is an estimate, from some of its data and tasks. Nothing is copied or pickled.

    Parameters
    ----------
    dsk, state
        The graph and the scheduler's state before the first task.
    """
    dependents, data = state.get("dependents", {}), state.get("cache", {})
    sizes = _Sizes()

    def of_data(key: object) -> float:
        return sizes.of(data[key]) * len(dependents.get(key, ()))

    def of_task(key: object) -> float:
        # Data in the graph are counted with the tasks that depend on them.
        return 0.0 if key in data else sizes.of(dsk[key])

    in_tasks = _sum_over(dsk, len(dsk), _MOST_TASKS, of_task)
    return in_tasks + _sum_over(data, len(data), _MOST_DATA, of_data)


def _sum_over(
    items: Iterable[Item], count: int, most: int, measure: Callable[[Item], float]
) -> float:
    """The sum over all items, from some of them."""
    some = [*islice(items, 0, None, max(1, -(-count // most)))]
    return sum(map(measure, some)) * count / max(len(some), 1)


class _Sizes:
    """Measures what is pickled with a task.

    What many tasks have in common, such as their function, is looked into once: a graph holds it
    while it is measured, so that no other object has its ``id()``.
    """

    def __init__(self) -> None:
        self._size_of = ResultSizes().size_of
        self._known: dict[int, float] = {}
        # By type, as `isinstance` asks the value itself, which may be any object.
        self._measures: dict[type, Callable[[Any, int], float]] = {
            FunctionType: self._of_function,
            dict: self._of_dict,
            partial: self._of_partial,
            MethodType: self._of_method,
            BuiltinMethodType: self._of_method,
        }

    def of(self, value: object, depth: int = 0) -> float:
        """Of a value, or of the data that a task or a function refers to."""
        kind = type(value)
        measure = self._measures.get(kind)
        if measure is None:
            measure = self._measures[kind] = self._measure_of(kind)
        if measure is _of_others or depth > _DEEPEST:
            return 0.0
        known = self._known.get(id(value))
        if known is None:
            # It may refer to itself.
            self._known[id(value)] = 0.0
            known = self._known[id(value)] = measure(value, depth)
        return known

    def _measure_of(self, kind: type) -> Callable[[Any, int], float]:
        if kind.__module__.partition(".")[0] in _IN_MEMORY:
            return self._of_data
        return self._of_node if is_node_type(kind) else _of_others

    def _of_data(self, value: object, depth: int) -> float:
        size = self._size_of(value)
        # NaN, which is not known, is not more.
        return size if size > 0 else 0.0

    def _of_dict(self, value: dict[object, object], depth: int) -> float:
        first = next(iter(value.values()), None)
        # The tasks of a fused one are such a dict.
        return (
            self._of_all(value.values(), depth) if is_node(first) else self._of_data(value, depth)
        )

    def _of_partial(self, value: partial[object], depth: int) -> float:
        return self._of_all((value.func, *value.args, *value.keywords.values()), depth)

    def _of_method(self, value: MethodType, depth: int) -> float:
        return self.of(value.__self__, depth + 1)

    def _of_node(self, value: object, depth: int) -> float:
        return self._of_all(contents_of_node(value), depth)

    def _of_function(self, function: FunctionType, depth: int) -> float:
        return self._of_all(_contents_of_function(function), depth)

    def _of_all(self, values: Iterable[object], depth: int) -> float:
        total = 0.0
        for value in values:
            total += self.of(value, depth + 1)
        return total


def _of_others(value: object, depth: int) -> float:
    """Objects of the program's own classes have no known size."""
    return 0.0


def _contents_of_function(function: FunctionType) -> Iterator[object]:
    """What a function refers to, if it is pickled by value: of modules there is only the name."""
    if function.__module__ != "__main__" and "<" not in function.__qualname__:
        return
    for cell in function.__closure__ or ():
        try:
            yield cell.cell_contents
        except ValueError:
            # It has no value yet.
            continue
    yield from function.__defaults__ or ()
    yield from (function.__kwdefaults__ or {}).values()
    for name in _names_in(function.__code__):
        if name in function.__globals__:
            yield function.__globals__[name]


def _names_in(code: CodeType) -> set[str]:
    """The names that code may read from its module, that of functions inside it included."""
    inside = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*map(_names_in, inside))
