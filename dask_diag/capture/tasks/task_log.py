"""What is logged of the tasks of a computation: small, and without the user's objects."""

from __future__ import annotations

import contextlib
import marshal
import threading
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, ClassVar

from dask.utils import funcname, key_split

from dask_diag.capture.tasks.metered import Metric, Wait
from dask_diag.capture.tasks.remote_task import Transfer
from dask_diag.capture.tasks.timed_task import TimedTask

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = [
    "Dependencies",
    "Keys",
    "Metrics",
    "NamesOfPlainKeys",
    "SpansOfTasks",
    "Transfers",
    "Waits",
    "function_name",
    "function_of",
    "function_of_key",
    "name_of_function",
    "text_of_key",
]

_PLAIN = {str, int, float, bytes, bool, tuple, type(None)}


def consist_of_plain_values(keys: Sequence[Any], types: set[type]) -> bool:
    """Whether marshal gives back just what it is given: it would write a numpy integer as bytes."""
    if not types <= _PLAIN:
        return False
    tuples = keys if types == {tuple} else [key for key in keys if type(key) is tuple]
    lengths = set(map(len, tuples))
    for length in lengths:
        alike = tuples if len(lengths) == 1 else [key for key in tuples if len(key) == length]
        columns = (list(map(itemgetter(position), alike)) for position in range(length))
        if not all(map(_are_plain, columns)):
            return False
    return True


def _are_plain(values: Sequence[Any]) -> bool:
    """Whether all are plain, in the fewest instructions: texts can be joined, numbers summed."""
    with contextlib.suppress(TypeError):
        "".join(values)
        return True
    with contextlib.suppress(TypeError):
        return type(sum(values)) in _PLAIN
    return all(map(_is_plain, values))


def _is_plain(value: Any) -> bool:
    return all(map(_is_plain, value)) if type(value) is tuple else type(value) in _PLAIN


class Keys:
    """Keys of tasks, in the order of their rows, kept without the user's objects.

    Marshal writes what keys are made of (text, numbers, tuples) in a fraction of the memory of the
    objects; keys that hold anything else are kept as they are. It never leaves this process.
    """

    def __init__(self, keys: list[Any], types: set[type]) -> None:
        packed = marshal.dumps(keys) if consist_of_plain_values(keys, types) else list(keys)
        self._packed: bytes | list[Any] = packed

    def __iter__(self) -> Any:
        packed = self._packed
        return iter(marshal.loads(packed) if isinstance(packed, bytes) else packed)


class NamesOfPlainKeys:
    """Function names for the rows whose key has no prefix to tell it: ``"c"``, ``7``.

    They must be looked up while the graph is still there.
    """

    def __init__(self, keys: list[Any], types: set[type], dsk: Mapping[Any, Any]) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names: dict[str, int] = {}
        if types == {tuple}:
            return
        plain = [(row, key) for row, key in enumerate(keys) if is_plain(key)]
        for row, key in plain:
            name = function_name(dsk.get(key))
            self.rows.append(row)
            self.codes.append(self.names.setdefault(name, len(self.names)))

    def __iter__(self) -> Iterator[tuple[int, str]]:
        names = list(self.names)
        return ((row, names[code]) for row, code in zip(self.rows, self.codes, strict=True))


class Dependencies:
    """Which tasks need which: how many each row needs, and then the rows that they are.

    It grows with the rows of a computation: who writes a recording while the computation runs does
    in its
    own thread what else would be done at the end.
    """

    def __init__(self) -> None:
        self.counts = array("I")
        self.rows = array("I")
        self.closed = False
        self._dependencies: Mapping[Any, Any] | None = None
        self._row_of: dict[Any, int] = {}
        self._lock = threading.Lock()

    def extend(self, keys: Sequence[Any], dependencies: Mapping[Any, Any]) -> None:
        """Take up those of `keys`, which are all that have a row, that are new."""
        with self._lock:
            if self.closed:
                return
            if self._dependencies is None and dependencies:
                self._dependencies = dependencies if any(dependencies.values()) else {}
            if self._dependencies:
                taken = len(self.counts)
                new = keys[taken:]
                self._row_of.update(zip(new, range(taken, taken + len(new)), strict=True))
                counts, rows = self.of(new)
                self.rows.extend(rows)
                self.counts.extend(counts)

    def of(self, keys: Sequence[Any]) -> tuple[list[int], list[int]]:
        """How many rows each task needs, and which, of tasks that need not have a row yet."""
        dependencies, row_of = self._dependencies or {}, self._row_of
        try:
            needed = list(map(dependencies.__getitem__, keys))
        except KeyError:
            needed = [dependencies.get(key, ()) for key in keys]
        rows = list(map(row_of.get, chain.from_iterable(needed)))
        if None in rows:
            # Data that is no task's result.
            needed = [[need for need in each if need in row_of] for each in needed]
            rows = [row for row in rows if row is not None]
        return list(map(len, needed)), rows  # type: ignore[return-value]

    def rows_of(self, keys: Iterable[Any]) -> list[int]:
        """The rows of tasks by their keys, as far as all are known; none once it is closed."""
        rows = list(map(self._row_of.get, keys))
        return rows[: rows.index(None)] if None in rows else rows  # type: ignore[return-value]

    def close(self) -> None:
        """Let go of the keys; it grows no more."""
        with self._lock:
            self.closed = True
            self._dependencies = None
            self._row_of = {}


class SpansOfTasks:
    """The spans that tasks were annotated with: for each such task its row."""

    def __init__(self, keys: Sequence[Any], annotated: Mapping[Any, Any]) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names: dict[str, int] = {}
        if not annotated:
            return
        for row, key in enumerate(keys):
            if key in annotated:
                name = str(annotated[key])
                self.rows.append(row)
                self.codes.append(self.names.setdefault(name, len(self.names)))


class TaskLog:
    """What is told of tasks, time by time: the task's row, and so many values in each column."""

    _WIDTHS: ClassVar[Mapping[str, int]]
    names: dict[Any, int]

    def __init__(self) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names = {}

    def between(self, start: int, stop: int) -> Self:
        """What was told from one time on up to another."""
        part = type(self)()
        part.names = dict(self.names)
        part.rows = self.rows[start:stop]
        for name, width in self._WIDTHS.items():
            setattr(part, name, getattr(self, name)[start * width : stop * width])
        return part


class Metrics(TaskLog):
    """What tasks metered: for each time, the task's row and what it was."""

    _WIDTHS: ClassVar = {"codes": 1, "values": 1, "cpu": 1}

    def __init__(self) -> None:
        super().__init__()
        self.values = array("d")
        self.cpu = array("d")

    def add(self, row: int, metrics: Iterable[Metric]) -> None:
        """Keep what the task of a row metered."""
        for label, unit, value, cpu in metrics:
            self.rows.append(row)
            self.codes.append(self.names.setdefault((label, unit), len(self.names)))
            self.values.append(value)
            self.cpu.append(cpu)


class Waits(TaskLog):
    """What tasks waited for: for each time, the task's row and what it was."""

    _WIDTHS: ClassVar = {"codes": 1, "seconds": 1, "samples": 1}

    def __init__(self) -> None:
        super().__init__()
        self.seconds = array("d")
        self.samples = array("I")

    def add(self, row: int, waits: Iterable[Wait]) -> None:
        """Keep what the task of a row waited for."""
        for wait in waits:
            self.rows.append(row)
            self.codes.append(self.names.setdefault(wait.activity, len(self.names)))
            self.seconds.append(wait.seconds)
            self.samples.append(wait.samples)


class Transfers(TaskLog):
    """What moving tasks and results between processes took: each task's row, and its times."""

    COLUMNS = Transfer.__slots__
    _WIDTHS: ClassVar = {"values": len(COLUMNS)}
    _read = attrgetter(*COLUMNS)

    def __init__(self) -> None:
        super().__init__()
        self.values = array("d")

    def add(self, row: int, transfer: Transfer) -> None:
        """Keep the times and sizes of the task of a row."""
        self.values.extend(self._read(transfer))
        self.rows.append(row)


def function_name(task: Any) -> str:
    """The name of a task's function, whatever the user made of it."""
    if isinstance(task, TimedTask):
        task = task.task
    func = getattr(task, "func", None)
    return type(task).__name__.lower() if func is None else name_of_function(func)


def name_of_function(func: Any) -> str:
    """The name of a function, whatever the user made of it."""
    try:
        return str(funcname(func))
    except Exception:
        return type(func).__name__


def text_of_key(key: Any) -> str:
    """A key as text, whatever the user made of it."""
    try:
        return str(key)
    except Exception:
        return f"<{type(key).__name__}>"


def is_plain(key: Any) -> bool:
    """Whether a key does not tell its function, as ``"c"`` and ``7``."""
    return type(key) is not tuple and (type(key) is not str or "-" not in key)


def function_of_key(key: Any) -> str:
    """The prefix that dask's collections give to the keys of one function."""
    try:
        return str(key_split(key))
    except Exception:
        # An empty tuple, or bytes that are no text.
        return "Other"


def function_of(key: Any, task: Any) -> str:
    """The function of a task, as a Recording has it."""
    return function_name(task) if is_plain(key) else function_of_key(key)
