"""Keys of tasks: logged without the user's objects, as text, and the functions that they name."""

from __future__ import annotations

import contextlib
import marshal
from array import array
from collections.abc import Hashable, Iterator, Mapping, Sequence
from itertools import chain
from operator import itemgetter
from typing import Any, cast

from dask.utils import funcname, key_split

from dask_diag.capture.tasks.timed_task import TimedTask

__all__ = [
    "Keys",
    "NamesOfPlainKeys",
    "function_name",
    "function_of",
    "function_of_key",
    "keys_since",
    "name_of_function",
    "text_of_key",
]

_PLAIN = {str, int, float, bytes, bool, tuple, type(None)}


def consist_of_plain_values(keys: Sequence[Hashable]) -> bool:
    """Whether marshal gives back just what it is given: it would write a numpy integer as bytes.

    What is counted is done for each key of a computation; to count in a list takes a fraction of
    the instructions of making a set.
    """
    types = list(map(type, keys))
    if types.count(tuple) == len(keys):
        tuples = cast("Sequence[tuple[object, ...]]", keys)
    elif set(types) <= _PLAIN:
        tuples = [key for key in keys if type(key) is tuple]
    else:
        return False
    lengths = list(map(len, tuples))
    are_alike = lengths.count(lengths[0]) == len(lengths) if lengths else True
    for length in set(lengths[:1] if are_alike else lengths):
        alike = tuples if are_alike else [key for key in tuples if len(key) == length]
        columns = (list(map(itemgetter(position), alike)) for position in range(length))
        if not all(map(_are_plain, columns)):
            return False
    return True


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether all are plain, in the fewest instructions."""
    if type(values[0]) is str:
        are_texts = list(map(type, values)).count(str) == len(values)
        return are_texts or all(map(_is_plain, values))
    with contextlib.suppress(Exception):
        # The sum of numbers of which one is numpy's is numpy's.
        return type(sum(values)) in _PLAIN
    return all(map(_is_plain, values))


def _is_plain(value: object) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN


class Keys:
    """Keys of tasks, in the order of their rows, logged without the user's objects.

    Marshal writes what keys are made of (text, numbers, tuples) in a fraction of the memory of the
    objects; keys that hold anything else are kept as they are. It never leaves this process.

    Parameters
    ----------
    *parts : list
        One after the other.
    """

    def __init__(self, *parts: list[Hashable]) -> None:
        self._parts = [(len(part), _packed(part)) for part in parts]

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
    """The keys from a row on, of a list that grows; and those that may be elsewhere, too.

    A reader looks first, when there are `count` keys in the list, where keys are before they are in
    the list. There it may find the keys that have been added to the list since; and the last one
    before, if it was not yet removed there.
    """
    start = max(min(count - 1, row), 0)
    copy = keys[start:]
    return copy[row - start :], set(copy[max(count - 1, 0) - start :])


def _packed(keys: list[Hashable]) -> bytes | list[Hashable]:
    if consist_of_plain_values(keys):
        with contextlib.suppress(ValueError):
            return marshal.dumps(keys)
    return list(keys)


def _unpacked(packed: bytes | list[Hashable]) -> list[Hashable]:
    keys: list[Hashable] = marshal.loads(packed) if isinstance(packed, bytes) else packed
    return keys


class NamesOfPlainKeys:
    """Function names for the rows whose key has no prefix that names it: ``"c"``, ``7``.

    They must be looked up while the graph is still there.
    """

    def __init__(self, keys: Sequence[Hashable], dsk: Mapping[Hashable, object]) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names: dict[str, int] = {}
        if list(map(type, keys)).count(tuple) == len(keys):
            return
        plain = [(row, key) for row, key in enumerate(keys) if is_plain(key)]
        for row, key in plain:
            name = function_name(_task_of(key, dsk))
            self.rows.append(row)
            self.codes.append(self.names.setdefault(name, len(self.names)))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        names = list(self.names)
        return ((row, names[code]) for row, code in zip(self.rows, self.codes, strict=True))


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
    """The prefix that dask's collections give to the keys of one function."""
    try:
        return str(key_split(key))
    except Exception:
        # An empty tuple, or bytes that are no text.
        return "Other"


def function_of(key: Hashable, task: object) -> str:
    """The function of a task, as a Recording has it."""
    return function_name(task) if is_plain(key) else function_of_key(key)
