"""How many bytes results have, where that is known at little cost.

`dask.sizeof` is not used: it draws samples with the program's own random generators, so a program
would get other random numbers when it is measured.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from sys import getsizeof
from typing import Protocol

__all__ = ["UNKNOWN", "ResultSizes"]

UNKNOWN = float("nan")
"""The size of a result that is not known: this object, and no other NaN."""

_PLAIN = frozenset((type(None), bool, int, float, complex, str, bytes, bytearray))
_SAMPLE = 10
"""Items of a long collection or column of objects that are measured in place of all."""
_DEEPEST = 4
"""Collections inside each other that are looked into."""
_GC_HEADER = getsizeof({}) - {}.__sizeof__()
"""What Python needs for a dict besides; plain values have none."""


class _Dtype(Protocol):
    """What the types of the items of arrays say of themselves."""

    hasobject: bool


class _Result(Protocol):
    """What results say of themselves, each kind some of it: that it is there has been looked at."""

    array: _Result
    codes: Sequence[_Result]
    dtype: _Dtype
    flat: Sequence[object]
    index: _Result
    levels: Sequence[_Result]
    nbytes: int
    ndim: int
    size: int

    def __dask_graph__(self) -> object: ...
    def __getitem__(self, items: slice) -> Sequence[object]: ...
    def __iter__(self) -> Iterator[object]: ...
    def __len__(self) -> int: ...
    def items(self) -> Iterable[tuple[object, _Result]]: ...
    def values(self) -> Iterable[_Result]: ...


Measure = Callable[[_Result, int], float]


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
        self.of_rows = array("d")
        self.add = self.of_rows.append
        # Each profiler has its own, so that the program's types are freed with it.
        self._measures: dict[type, Measure] = {}

    def __call__(self, result: object) -> float:
        """The same as `size_of`, and counted if it is not known."""
        size = self.size_of(result)
        if size is UNKNOWN:
            self.count_unknown(result)
        return size

    def measured_or_counted(self, size: float | None, result: object) -> float:
        """The size of a result that was not measured yet; or, if it is not known, counted now."""
        if size is None:
            return self(result)
        self.count_unknown(result)
        return size

    def size_of(self, result: object) -> float:
        """The bytes of a result, or `UNKNOWN`. It may be called on any thread."""
        kind = type(result)
        if kind in _PLAIN:
            return result.__sizeof__()
        try:
            measure = self._measures.get(kind)
            if measure is None:
                measure = self._measures[kind] = _measure_of(kind)
            if measure is _size_of_numpy_array and not result.dtype.hasobject:  # type: ignore[attr-defined]
                return result.nbytes  # type: ignore[attr-defined, no-any-return]
            # A call of `cast` would be made for each result.
            size = measure(result, 0)  # type: ignore[arg-type]
            # No NaN is equal to itself.
            if size == size:  # noqa: PLR0124
                return size
        except Exception:
            # What it says of itself is no size, or it changes just now.
            pass
        return UNKNOWN

    def count_unknown(self, result: object) -> None:
        """Count a result of no known size, on the thread of the scheduler."""
        kind = type(result).__qualname__
        self.unknown[kind] = self.unknown.get(kind, 0) + 1


def _measure_of(kind: type) -> Measure:
    """How values of a type are measured."""
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
    return _size_of_array if hasattr(kind, "nbytes") else _no_size


def _no_size(value: _Result, depth: int) -> float:
    return UNKNOWN


def _size_of_plain(value: _Result, depth: int) -> int:
    return getsizeof(value)


def _size_of_numpy_array(value: _Result, depth: int) -> float:
    """The same as `_size_of_array` in fewer steps: most results of tasks are such arrays."""
    return _size_of_array(value, depth) if value.dtype.hasobject else value.nbytes


def _size_of_array(value: _Result, depth: int) -> float:
    size = int(value.nbytes)
    if getattr(getattr(value, "dtype", None), "hasobject", False):
        count = int(value.size)
        return size + _size_of_items(value.flat[:: _step(count)], count, depth)
    return size


def _size_unless_lazy(value: _Result, depth: int) -> float:
    """A collection of dask's says how large it is once computed; others may hold one, or not."""
    return UNKNOWN if value.__dask_graph__() is not None else int(value.nbytes)


def _size_of_sequence(value: _Result, depth: int) -> float:
    count = len(value)
    return getsizeof(value) + _size_of_items(value[:: _step(count)], count, depth)


def _size_of_set(value: _Result, depth: int) -> float:
    return getsizeof(value) + _size_of_items([*islice(value, _SAMPLE)], len(value), depth)


def _size_of_dict(value: _Result, depth: int) -> float:
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


def _size_of_table(value: _Result, depth: int) -> float:
    """The columns of a pandas object, and its index."""
    index = getattr(value, "index", None)
    if index is None:
        return _size_of_index(value, depth)
    columns = [value] if value.ndim == 1 else [column for _, column in value.items()]
    return _size_of_index(index, depth) + sum(_size_of_column(column, depth) for column in columns)


def _size_of_index(index: _Result, depth: int) -> float:
    levels = getattr(index, "levels", None)
    if levels is None:
        return _size_of_column(index, depth)
    # Its own `nbytes` would first make a table of all its values.
    return sum(_size_of_column(level, depth) for level in levels) + sum(
        int(codes.nbytes) for codes in index.codes
    )


def _size_of_column(column: _Result, depth: int) -> float:
    size = int(column.nbytes)
    dtype = column.dtype
    if getattr(dtype, "hasobject", False) or getattr(dtype, "storage", "") == "python":
        count = len(column)
        return size + _size_of_items(column.array[:: _step(count)], count, depth)
    return size


def _size_of_items(sample: Sequence[object], count: int, depth: int) -> float:
    """The size of so many items, of which these are some."""
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
            total += measure(item, depth + 1)  # type: ignore[arg-type]
    return total if len(sample) == count else round(total * count / len(sample))


def _step(count: int) -> int:
    """Which items of so many to take, for a sample from all over them."""
    return max(1, -(-count // _SAMPLE))


_SIZE_OF: dict[type, Measure] = {
    **dict.fromkeys(_PLAIN, _size_of_plain),
    **dict.fromkeys((list, tuple), _size_of_sequence),
    **dict.fromkeys((set, frozenset), _size_of_set),
    dict: _size_of_dict,
}
