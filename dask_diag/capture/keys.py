"""Keys of tasks, the functions named by keys, and planned numbers of tasks."""

from __future__ import annotations

import contextlib
import marshal
from collections import Counter
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import cast

from dask.utils import funcname, key_split

from dask_diag.capture.log import NO_LABELS, Labels
from dask_diag.capture.task import TimedTask
from dask_diag.hooks.stack import SchedulerState

_PLAIN_TYPES = {str, int, float, bytes, bool, type(None)}
_TYPES = {*_PLAIN_TYPES, tuple}
"""Types whose values marshal gives back as they were; tuples, if what is in them is."""
_WITH_REFERENCES, _IN_FULL = 4, 2
"""Versions of marshal: the first writes an object once, which it has to look up each time."""
_Packed = list[bytes] | bytes | tuple[Hashable, ...]
"""A column for each item of keys that are tuples as long; all in one; or as they are."""


def _all_marshal(values: Sequence[object]) -> bool:
    """Whether marshal preserves the values: a numpy integer would become bytes.

    What is done here is done for each key of a computation; to count types in a list takes a
    fraction of the instructions of making a set.
    """
    kind = type(values[0])
    if kind is str:
        are_texts = list(map(type, values)).count(str) == len(values)
        return are_texts or all(map(_marshals, values))
    with contextlib.suppress(Exception):
        # The sum of numbers of which one is numpy's is numpy's.
        return type(sum(cast("Sequence[int]", values))) in _TYPES
    return all(map(_marshals, values))


def _marshals(value: object) -> bool:
    return all(map(_marshals, value)) if type(value) is tuple else type(value) in _TYPES


class Keys:
    """Keys of tasks, in the order of their rows, logged without the user's objects.

    Marshal writes what keys are made of (text, numbers, tuples) in a fraction of the memory of the
    objects, column by column in a third of the instructions; keys that hold anything else are
    retained as they are. It never leaves this process.

    Parameters
    ----------
    *parts : list
        One after the other.
    """

    __slots__ = ("_parts",)

    def __init__(self, *parts: list[Hashable]) -> None:
        self._parts = tuple([(len(part), _packed(part)) for part in parts if part])

    def __len__(self) -> int:
        return sum(length for length, _ in self._parts)

    def __iter__(self) -> Iterator[Hashable]:
        return chain.from_iterable(_unpacked(packed) for _, packed in self._parts)

    def after(self, row: int) -> list[Hashable]:
        """The keys from a row on; of parts that end before nothing is unpacked."""
        keys: list[Hashable] = []
        for length, packed in self._parts:
            if row < length:
                keys += _unpacked(packed)[max(row, 0) :]
            row -= length
        return keys


def keys_since(keys: list[Hashable], row: int, count: int) -> tuple[list[Hashable], set[Hashable]]:
    """The keys from a row on, of a growing list; and the keys possibly in flight, too.

    A reader looks first, when there are `count` keys in the list, where keys are before they are in
    the list. There it may find the keys that have been added to the list since; and the last one
    before, if it was not yet removed there.
    """
    start = max(min(count - 1, row), 0)
    copy = keys[start:]
    return copy[row - start :], set(copy[max(count - 1, 0) - start :])


def _packed(keys: list[Hashable]) -> _Packed:
    columns = _columns(keys)
    with contextlib.suppress(ValueError):
        if columns:
            return [
                marshal.dumps(column, _WITH_REFERENCES if type(column[0]) is str else _IN_FULL)
                for column in columns
            ]
        if _all_keys_marshal(keys):
            return marshal.dumps(keys)
    return tuple(keys)


def _all_keys_marshal(keys: list[Hashable]) -> bool:
    """The same as `_all_marshal` of keys of several types or lengths."""
    kinds = set(map(type, keys))
    if kinds <= _TYPES:
        # Key by key it would take twice as long.
        tuples = [key for key in keys if type(key) is tuple]
        kinds = set(map(type, chain.from_iterable(tuples)))
    return kinds <= _PLAIN_TYPES or all(map(_marshals, keys))


def _columns(keys: list[Hashable]) -> list[list[object]]:
    """First items of all keys, second items and so on, if all are plain tuples of one length."""
    if not keys or not _are_tuples(keys):
        return []
    tuples = cast("Sequence[tuple[object, ...]]", keys)
    lengths = list(map(len, tuples))
    if lengths.count(lengths[0]) < len(lengths):
        return []
    columns = [list(map(itemgetter(position), tuples)) for position in range(lengths[0])]
    return columns if all(map(_all_marshal, columns)) else []


def _are_tuples(keys: Sequence[Hashable]) -> bool:
    return list(map(type, keys)).count(tuple) == len(keys)


def _unpacked(packed: _Packed) -> list[Hashable]:
    if isinstance(packed, list):
        return list(zip(*map(marshal.loads, packed), strict=True))
    keys: Sequence[Hashable] = marshal.loads(packed) if isinstance(packed, bytes) else packed
    return list(keys)


def names_of_plain_keys(keys: Sequence[Hashable], dsk: Mapping[Hashable, object]) -> Labels:
    """Function names for the rows with keys without a prefix: ``"c"``, ``7``.

    They must be looked up while the graph is still there.
    """
    plain = [] if _are_tuples(keys) else [row for row, key in enumerate(keys) if is_plain(key)]
    if not plain:
        return NO_LABELS
    labels = Labels()
    for row in plain:
        labels.add(row, function_name(_task_of(keys[row], dsk)))
    return labels


def _task_of(key: Hashable, dsk: Mapping[Hashable, object]) -> object:
    """The task of a key, also while a `TimedTask` wraps it."""
    entry = dsk.get(key)
    if not isinstance(entry, TimedTask):
        return entry
    task = entry.task
    # Once its result is collected the task is back in the graph, and another may be in the wrapper.
    return task if dsk.get(key) is entry else dsk.get(key)


def function_name(task: object) -> str:
    """The name of a task's function, whatever the user made of it."""
    func = getattr(task, "func", None)
    return type(task).__name__.lower() if func is None else name_of_function(func)


def name_of_function(func: object) -> str:
    """The name of a function, whatever the user made of it."""
    try:
        return str(funcname(func))
    except Exception:
        return type(func).__name__


def text_of_key(key: Hashable) -> str:
    """A key as text, whatever the user made of it."""
    try:
        return str(key)
    except Exception:
        return f"<{type(key).__name__}>"


def is_plain(key: Hashable) -> bool:
    """Whether a key does not name its function, as ``"c"`` and ``7``."""
    return type(key) is not tuple and (type(key) is not str or "-" not in key)


def function_of_key(key: Hashable) -> str:
    """The prefix of keys by which dask's collections name functions."""
    try:
        return str(key_split(key))
    except Exception:
        # An empty tuple, or bytes that are no text.
        return "Other"


def function_of(key: Hashable, task: object) -> str:
    """The function of a task, as a Recording has it."""
    return function_name(task) if is_plain(key) else function_of_key(key)


class PlannedTasks:
    """The tasks of a computation before it starts; counted by function when first asked.

    The scheduler's thread only copies references to the keys: the first reader counts them.

    Parameters
    ----------
    keys : list of hashable
    submitted : int, optional
        Number of other tasks, submitted before.
    """

    __slots__ = ("_functions", "_keys", "total")

    def __init__(self, keys: list[Hashable], submitted: int = 0) -> None:
        self.total = len(keys) + submitted
        self._keys = keys
        self._functions: Mapping[str, int] | None = None

    def by_function(self, dsk: Mapping[Hashable, object]) -> Mapping[str, int]:
        """Number of tasks of each function; the graph `dsk` is read at the first call."""
        if self._functions is None:
            self._functions = count_functions(self._keys, dsk)
            self._keys = []
        return self._functions


def tasks_not_submitted(state: SchedulerState) -> list[Hashable]:
    """The keys of the tasks not submitted yet; before any was handed out, these are all.

    Where the scheduler runs on meanwhile, a task may be missing, or be there twice.
    """
    # Copied in one step.
    return [*list(state.get("waiting", ())), *list(state.get("ready", ()))]


def count_functions(keys: Sequence[Hashable], dsk: Mapping[Hashable, object]) -> Mapping[str, int]:
    """Number of keys of each function, as `tasks.function` names functions."""
    # Collections give all keys of one function the same first item: few have to be split.
    tuples = [key for key in keys if type(key) is tuple and key]
    heads = Counter(map(itemgetter(0), tuples))
    counts: Counter[str] = Counter()
    for head, count in heads.items():
        counts[function_of_key((head,))] += count
    if len(tuples) < len(keys):
        others = [key for key in keys if type(key) is not tuple or not key]
        counts.update(function_of(key, dsk.get(key)) for key in others)
    return dict(counts)
