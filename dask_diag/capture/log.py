"""Records of finished tasks besides their times, without the user's objects."""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import chain, compress, count
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dask_diag.capture.metrics import Metric, Wait
from dask_diag.capture.task import Transfer
from dask_diag.errors import ArgumentTypeError, ArgumentValueError

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.hooks.stack import SchedulerState


SEPARATOR = "/"

_path: ContextVar[tuple[str, ...]] = ContextVar("dask_diag_span", default=())


@contextmanager
def span(name: str) -> Iterator[None]:
    """Name every computation that starts in a block; blocks may be nested.

    Parameters
    ----------
    name : str
        The name; in a block inside another it follows that one's, after a slash.

    Raises
    ------
    TypeError, ValueError
        If the name is not a text, or empty.

    Examples
    --------
    >>> from dask_diag import span
    >>> with span("load"):
    ...     with span("parse"):
    ...         pass        # computations here are in the span "load/parse"
    """
    if not isinstance(name, str):
        raise ArgumentTypeError(f"span: expected a name, found {name!r}")
    if not name:
        raise ArgumentValueError("span: expected a name, found an empty text")
    token = _path.set((*_path.get(), name))
    try:
        with _span_on_clusters(name):
            yield
    finally:
        _path.reset(token)


def _span_on_clusters(name: str) -> AbstractContextManager[object]:
    """The same for what is sent to a cluster, in a process that has a client."""
    distributed = sys.modules.get("distributed")
    try:
        if distributed is not None and distributed.default_client():
            context: AbstractContextManager[object] = distributed.span(name)
            return context
    except (ValueError, AttributeError):
        # There is no client.
        pass
    return nullcontext()


def name_of_annotation(annotation: object) -> str:
    """The name of the span that a task was annotated with, by ``dask.annotate`` or distributed."""
    if isinstance(annotation, Mapping) and isinstance(annotation.get("name"), (tuple, list)):
        return SEPARATOR.join(map(str, annotation["name"]))
    return str(annotation)


def current_span() -> str:
    """The name of the span that is open here, with those around it; empty if there is none."""
    return SEPARATOR.join(_path.get())


def dependents_of(
    keys: Sequence[Hashable], state: SchedulerState, requested: Collection[Hashable]
) -> array[int]:
    """How many tasks depend on each of these results before the scheduler releases it.

    0 where it does not: no task depends on it, or the caller requested it.
    """
    dependents = state.get("dependents", {})
    try:
        counts = array("I", map(len, map(dependents.__getitem__, keys)))
    except KeyError:
        counts = array("I", [len(dependents.get(key, ())) for key in keys])
    for row in compress(count(), map(requested.__contains__, keys)):
        counts[row] = 0
    return counts


class Dependencies:
    """On which tasks each task depends, in the order of rows.

    It grows with the rows of a computation: the thread that writes a recording while the
    computation runs does work that would otherwise be done at the end.

    Attributes
    ----------
    counts : array of int
        On how many tasks each row depends.
    rows : array of int
        The rows of these tasks, row after row.
    closed : bool
        Whether it is complete.
    """

    def __init__(self) -> None:
        self.counts = array("I")
        self.rows = array("I")
        self.closed = False
        self._dependencies: Mapping[Hashable, Collection[Hashable]] | None = None
        self._row_of: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def extend(
        self, keys: Sequence[Hashable], dependencies: Mapping[Hashable, Collection[Hashable]]
    ) -> None:
        """Add those of new tasks; `keys` are those of all rows."""
        with self._lock:
            if self.closed:
                return
            if self._dependencies is None and dependencies:
                self._dependencies = dependencies if any(dependencies.values()) else {}
            if self._dependencies:
                start = len(self.counts)
                new = keys[start:]
                self._row_of.update(zip(new, range(start, start + len(new)), strict=True))
                counts, rows = self.of(new)
                self.rows.extend(rows)
                self.counts.extend(counts)

    def of(self, keys: Sequence[Hashable]) -> tuple[list[int], list[int]]:
        """On how many rows each task depends, and on which; a task itself may have no row yet."""
        dependencies, row_of = self._dependencies or {}, self._row_of
        try:
            needed = list(map(dependencies.__getitem__, keys))
        except KeyError:
            needed = [dependencies.get(key, ()) for key in keys]
        rows = list(map(row_of.get, chain.from_iterable(needed)))
        if None in rows:
            # Data that is not the result of a task.
            needed = [[key for key in keys_of_task if key in row_of] for keys_of_task in needed]
            rows = [row for row in rows if row is not None]
        return list(map(len, needed)), rows  # type: ignore[return-value]

    def close(self) -> None:
        """Release the keys; it grows no more."""
        with self._lock:
            self.closed = True
            self._dependencies = None
            self._row_of = {}


Log = TypeVar("Log", bound="TaskLog")


class SpansOfTasks:
    """The spans that tasks were annotated with: for each such task its row."""

    def __init__(self, keys: Sequence[Hashable], annotated: Mapping[Hashable, object]) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names: dict[str, int] = {}
        if not annotated:
            return
        for row, key in enumerate(keys):
            if key in annotated:
                name = name_of_annotation(annotated[key])
                self.rows.append(row)
                self.codes.append(self.names.setdefault(name, len(self.names)))


class TaskLog:
    """Entries about tasks, in order of rows: the task's row, and so many values in each column."""

    _WIDTHS: ClassVar[Mapping[str, int]]
    names: dict[Any, int]

    def __init__(self) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names = {}

    def of_first(self, rows: int) -> Self:
        """A copy of the entries about the first rows; more may be added meanwhile."""
        return self.between(0, bisect_left(self.rows, rows))

    def between(self, start: int, stop: int) -> Self:
        """A copy of the entries from one on up to another."""
        part = type(self)()
        part.names = dict(self.names)
        part.rows = self.rows[start:stop]
        for name, width in self._WIDTHS.items():
            setattr(part, name, getattr(self, name)[start * width : stop * width])
        return part


class Metrics(TaskLog):
    """What tasks metered, an entry for each time."""

    _WIDTHS: ClassVar = {"codes": 1, "values": 1, "cpu": 1}

    def __init__(self) -> None:
        super().__init__()
        self.values = array("d")
        self.cpu = array("d")

    def add(self, row: int, metrics: Iterable[Metric]) -> None:
        """Log what the task of a row metered."""
        for label, unit, value, cpu in metrics:
            self.rows.append(row)
            self.codes.append(self.names.setdefault((label, unit), len(self.names)))
            self.values.append(value)
            self.cpu.append(cpu)


class Waits(TaskLog):
    """What tasks waited for, an entry for each task, activity and label."""

    _WIDTHS: ClassVar = {"codes": 1, "seconds": 1, "samples": 1}

    def __init__(self) -> None:
        super().__init__()
        self.seconds = array("d")
        self.samples = array("I")

    def add(self, row: int, waits: Iterable[Wait]) -> None:
        """Log what the task of a row waited for."""
        for wait in waits:
            self.rows.append(row)
            name = wait.activity, wait.label
            self.codes.append(self.names.setdefault(name, len(self.names)))
            self.seconds.append(wait.seconds)
            self.samples.append(wait.samples)


class Transfers(TaskLog):
    """What moving tasks and results between processes took, an entry for each task."""

    COLUMNS = Transfer.__slots__
    _WIDTHS: ClassVar = {"values": len(COLUMNS)}
    _read = attrgetter(*COLUMNS)

    def __init__(self) -> None:
        super().__init__()
        self.values = array("d")

    def add(self, row: int, transfer: Transfer) -> None:
        """Log the times and sizes of the task of a row."""
        self.values.extend(self._read(transfer))
        self.rows.append(row)
