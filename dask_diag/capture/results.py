"""Sizes of results and of the data in a graph."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from itertools import chain, islice
from sys import getsizeof
from types import BuiltinMethodType, CodeType, FunctionType, MethodType, ModuleType
from typing import Any, TypeVar
from weakref import WeakKeyDictionary

from dask_diag.hooks.stack import (
    Graph,
    SchedulerState,
    Task,
    contents_of_node,
    is_node,
    is_node_type,
)
from dask_diag.system.interpreter import growing_array

UNKNOWN = float("nan")
"""The size of a result that is not known: this object, and no other NaN."""

_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))
_SAMPLE = 10
"""Items of a long collection or column of objects that are measured in place of all."""
_DEEPEST = 4
"""Collections inside each other that are looked into."""
_GC_HEADER = getsizeof({}) - {}.__sizeof__()
"""What Python needs for a dict besides; plain values have none."""


Result = Any
"""A result of a task, or what is in it; its type was checked before it is measured."""

Measure = Callable[[Result, int], float]
"""Function of a value, and of how many collections it is inside of, that returns its bytes."""


class ResultSizes:
    """Measures results in bytes, as they are in memory.

    Numbers, texts, arrays and tables say how large they are; of long collections, and of columns of
    objects, some items are measured. Of everything else the size is not known. No result is
    pickled, copied or retained, and no iterator is advanced.

    Attributes
    ----------
    unknown : dict
        How many results had no known size, by the name of their type.
    of_rows : array of float
        The sizes of the results of a computation's rows, where they are added.
    add : callable
        Adds the size of the next row's result.
    are_integers : bool
        Whether all sizes that are known are whole numbers: they always are.
    """

    __name__ = "nbytes"
    are_integers = True

    def __init__(self) -> None:
        self.unknown: dict[str, int] = {}
        self.of_rows = growing_array("d")
        self.add = self.of_rows.append
        # Each profiler has its own, so that the program's types are freed with it.
        self._measures: dict[type, Measure] = {}

    def __call__(self, result: object) -> float:
        """Measure a result; count an unknown size."""
        size = self.size_of(result)
        if size is UNKNOWN:
            self.count_unknown(result)
        return size

    def measured_or_counted(self, size: float | None, result: object) -> float:
        """Measure a result if not measured yet; count an unknown size."""
        if size is None:
            return self(result)
        self.count_unknown(result)
        return size

    def size_of(self, result: Result) -> float:
        """The bytes of a result, or `UNKNOWN`. It may be called on any thread."""
        kind = type(result)
        if kind in _PLAIN:
            return result.__sizeof__()  # type: ignore[no-any-return]
        try:
            measure = self._measures.get(kind)
            if measure is None:
                measure = self._measures[kind] = _measure_of(kind)
            if measure is _size_of_numpy_array and not result.dtype.hasobject:
                return result.nbytes  # type: ignore[no-any-return]
            size = measure(result, 0)
            # No NaN is equal to itself.
            if size == size:  # noqa: PLR0124
                return size
        except Exception:
            # The object gives no size, or changes meanwhile: it is counted as unknown.
            pass
        return UNKNOWN

    def count_unknown(self, result: object) -> None:
        """Count a result of no known size, on the thread of the scheduler."""
        kind = type(result).__qualname__
        self.unknown[kind] = self.unknown.get(kind, 0) + 1


_found: WeakKeyDictionary[type, Measure] = WeakKeyDictionary()
"""The functions of types that were looked at: that takes longer than to measure most values."""


def _measure_of(kind: type) -> Measure:
    """Function that measures values of a type."""
    measure = _found.get(kind)
    if measure is None:
        measure = _found[kind] = _find_measure(kind)
    return measure


def _find_measure(kind: type) -> Measure:
    if kind in _SIZE_OF:
        return _SIZE_OF[kind]
    if kind.__name__ == "ndarray" and kind.__module__ == "numpy":
        # Results of reductions are dicts of arrays: to find out again what each of them is would
        # take longer than to measure it.
        return _SIZE_OF.setdefault(kind, _size_of_numpy_array)
    if issubclass(kind, tuple) and hasattr(kind, "_fields"):
        # A namedtuple, as functions of numpy.linalg return.
        return _size_of_sequence
    if kind.__module__.partition(".")[0] == "pandas" and hasattr(kind, "memory_usage"):
        return _size_of_table
    if hasattr(kind, "__dask_graph__"):
        return _size_unless_lazy
    if kind.__module__.partition(".")[0] == "awkward" and hasattr(kind, "layout"):
        return _size_of_awkward_array
    return _size_of_array if hasattr(kind, "nbytes") else _no_size


def _no_size(value: Result, depth: int) -> float:
    return UNKNOWN


def _size_of_plain(value: Result, depth: int) -> int:
    return getsizeof(value)


def _size_of_numpy_array(value: Result, depth: int) -> float:
    """Do as `_size_of_array` in fewer steps: most results of tasks are arrays."""
    return _size_of_array(value, depth) if value.dtype.hasobject else value.nbytes


def _size_of_array(value: Result, depth: int) -> float:
    size = int(value.nbytes)
    if getattr(getattr(value, "dtype", None), "hasobject", False):
        count = int(value.size)
        return size + _size_of_items(value.flat[:: _step(count)], count, depth)
    return size


def _size_unless_lazy(value: Result, depth: int) -> float:
    """Bytes of an object with ``__dask_graph__``; not known of a collection of dask."""
    return UNKNOWN if value.__dask_graph__() is not None else int(value.nbytes)


def _size_of_awkward_array(value: Result, depth: int) -> int:
    """Bytes of an array, or 0 of a typetracer, which stands for one without data."""
    return 0 if value.layout.backend.name == "typetracer" else int(value.nbytes)


def _size_of_sequence(value: Result, depth: int) -> float:
    count = len(value)
    return getsizeof(value) + _size_of_items(value[:: _step(count)], count, depth)


def _size_of_set(value: Result, depth: int) -> float:
    return getsizeof(value) + _size_of_items([*islice(value, _SAMPLE)], len(value), depth)


def _size_of_dict(value: Result, depth: int) -> float:
    count = len(value)
    if count > _SAMPLE or depth >= _DEEPEST:
        items = [*chain.from_iterable(islice(value.items(), _SAMPLE))]
        return getsizeof(value) + _size_of_items(items, 2 * count, depth)
    # Results of reductions are such dicts. Between real tasks each call that is not made saves
    # half a microsecond, and one of `getsizeof`, which says the same, a whole one.
    total: float = value.__sizeof__() + _GC_HEADER
    for name, item in value.items():
        kind = type(item)
        measure = _SIZE_OF.get(kind) or _measure_of(kind)
        if measure is _size_of_numpy_array and not item.dtype.hasobject:
            total += item.nbytes
        else:
            total += measure(item, depth + 1)
        if type(name) in _PLAIN:
            total += name.__sizeof__()
        else:
            total += _size_of_items([name], 1, depth)
    return total


def _size_of_table(value: Result, depth: int) -> float:
    """The columns of a pandas object, and its index."""
    index = getattr(value, "index", None)
    if index is None:
        return _size_of_index(value, depth)
    columns = [value] if value.ndim == 1 else [column for _, column in value.items()]
    return _size_of_index(index, depth) + sum(_size_of_column(column, depth) for column in columns)


def _size_of_index(index: Result, depth: int) -> float:
    levels = getattr(index, "levels", None)
    if levels is None:
        return _size_of_column(index, depth)
    # Its own `nbytes` would first make a table of all its values.
    return sum(_size_of_column(level, depth) for level in levels) + sum(
        int(codes.nbytes) for codes in index.codes
    )


def _size_of_column(column: Result, depth: int) -> float:
    size = int(column.nbytes)
    dtype = column.dtype
    if getattr(dtype, "hasobject", False) or getattr(dtype, "storage", "") == "python":
        count = len(column)
        return size + _size_of_items(column.array[:: _step(count)], count, depth)
    return size


def _size_of_items(sample: Sequence[Result], count: int, depth: int) -> float:
    """The size of so many items, from a sample."""
    if not count:
        return 0
    if depth >= _DEEPEST:
        return UNKNOWN
    total: float = 0
    for item in sample:
        kind = type(item)
        if kind in _PLAIN:
            total += item.__sizeof__()
        else:
            measure = _SIZE_OF.get(kind) or _measure_of(kind)
            total += measure(item, depth + 1)
    return total if len(sample) == count else round(total * count / len(sample))


def _step(count: int) -> int:
    """Distance between the items of a sample from all over so many items."""
    return max(1, -(-count // _SAMPLE))


_SIZE_OF: dict[type, Measure] = {
    **dict.fromkeys(_PLAIN, _size_of_plain),
    **dict.fromkeys((list, tuple), _size_of_sequence),
    **dict.fromkeys((set, frozenset), _size_of_set),
    dict: _size_of_dict,
}


Item = TypeVar("Item")

_MOST_DATA, _MOST_TASKS = 200, 50
"""How many are looked at in place of all, from all over the graph: a task takes some 20 µs."""
_DEEPEST_IN_GRAPH = 8
"""Tasks, functions and collections inside each other that are looked into."""
_IN_MEMORY = frozenset({"builtins", "collections", "numpy", "pandas", "pyarrow"})
"""Packages whose objects hold the bytes that they say they have. Others may refer to a file."""


def bytes_in_graph(dsk: Graph, state: SchedulerState) -> float:
    """The bytes of the data in the graph, for each task which takes the data.

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
    """The sum over all items, from a sample."""
    if count <= most:
        return sum(map(measure, items))
    some = [*islice(items, 0, None, -(-count // most))]
    return sum(map(measure, some)) * count / max(len(some), 1)


class _Sizes:
    """Measures the data pickled with a task.

    What many tasks have in common, such as their function, is looked into once: a graph holds it
    while it is measured, so that no other object has its ``id()``.
    """

    def __init__(self) -> None:
        self._size_of: Callable[[Result], float] | None = None
        self._known: dict[int, float] = {}

    def of(self, value: object, depth: int = 0) -> float:
        """Bytes of a value, or of the data that a task or a function refers to."""
        kind = type(value)
        if kind in _PLAIN:
            return float(value.__sizeof__())
        if depth > _DEEPEST_IN_GRAPH:
            return 0.0
        known = self._known.get(id(value))
        if known is None:
            # It may refer to itself.
            self._known[id(value)] = known = 0.0
            parts = _parts_of(value)
            # Objects of the program's own classes have no known size.
            if not (_is_in_memory(kind) if parts is None else parts):
                return 0.0
            if parts is None:
                self._size_of = self._size_of or ResultSizes().size_of
                # NaN, which is not known, is not more.
                known = size if (size := self._size_of(value)) > 0 else 0.0
            else:
                # Most parts are numbers and texts.
                known = sum(
                    [
                        part.__sizeof__() if type(part) in _PLAIN else self.of(part, depth + 1)
                        for part in parts
                    ]
                )
            self._known[id(value)] = known
        return known


def _is_in_memory(kind: type) -> bool:
    return kind.__module__.partition(".")[0] in _IN_MEMORY


def _parts_of(value: Result) -> Iterable[object] | None:
    """Objects that a task or a function refers to; None for data."""
    # By type, as `isinstance` asks the value itself, which may be any object.
    kind = type(value)
    if kind is Task:
        # As most are; others are nodes, too.
        return contents_of_node(value)
    if kind is FunctionType:
        is_named = value.__module__ != "__main__" and "<" not in value.__qualname__
        # It is pickled by name.
        return () if is_named else _contents_of_function(value)
    if kind is partial:
        return (value.func, *value.args, *value.keywords.values())
    if kind in (MethodType, BuiltinMethodType):
        # A function that is built in has a module in place of an object.
        return () if type(value.__self__) is ModuleType else (value.__self__,)
    if kind is dict:
        # The tasks of a fused one are such a dict.
        return value.values() if is_node(next(iter(value.values()), None)) else None
    return contents_of_node(value) if is_node_type(kind) else None


def _contents_of_function(function: FunctionType) -> Iterator[object]:
    """Objects to which a function refers that is pickled by value."""
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
    """The names read from the module by code, with nested functions."""
    inside = [const for const in code.co_consts if isinstance(const, CodeType)]
    return {*code.co_names}.union(*map(_names_in, inside))
