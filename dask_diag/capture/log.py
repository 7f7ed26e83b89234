"""Rows on finished tasks beside their times: dependencies, metrics, transfers, waits and spans."""

from __future__ import annotations

import sys
import threading
from array import array
from bisect import bisect_left
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from itertools import accumulate, chain, compress, count, islice
from operator import attrgetter, sub
from threading import get_ident
from typing import TYPE_CHECKING, ClassVar, TypeVar

from dask_diag.capture.metrics import Metric, Wait
from dask_diag.capture.task import Transfer
from dask_diag.errors import ArgumentTypeError, ArgumentValueError
from dask_diag.system.interpreter import growing_array

if TYPE_CHECKING:
    from typing_extensions import Self

    from dask_diag.hooks.stack import SchedulerState


SEPARATOR = "/"

_path: ContextVar[tuple[int, tuple[str, ...]]] = ContextVar("dask_diag_span", default=(0, ()))
"""The thread that opened the innermost open span, and all open tags."""
_THREADS_INHERIT = bool(getattr(sys.flags, "thread_inherit_context", False))
"""Whether a thread starts in the context of the thread that starts it, which free-threaded builds
do. A thread of a pool would have the span of the moment for its life."""


def _open_tags() -> tuple[str, ...]:
    thread, tags = _path.get()
    return () if _THREADS_INHERIT and thread != get_ident() else tags


@contextmanager
def span(*tags: str) -> Iterator[str]:
    """Name all computations that start in a block; blocks can be nested.

    Parameters
    ----------
    *tags : str
        One or more tags. ``span("load", "parse")`` is ``span("parse")`` inside ``span("load")``, as
        with ``distributed.span``.

    Yields
    ------
    str
        Name of the span: the tags of all enclosing blocks, separated by slashes.

    Raises
    ------
    ArgumentTypeError, ArgumentValueError
        If there is no tag, or a tag is not text or is empty.

    Examples
    --------
    >>> from dask_diag import span
    >>> with span("load"):
    ...     with span("parse") as name:
    ...         print(name)        # computations here are in the span "load/parse"
    load/parse
    """
    if not tags:
        raise ArgumentValueError("span: expected at least one tag, found none")
    for tag in tags:
        if not isinstance(tag, str):
            raise ArgumentTypeError(f"span: expected tags as text, found {tag!r}")
        if not tag:
            raise ArgumentValueError("span: expected tags as text, found an empty text")
    path = (*_open_tags(), *tags)
    token = _path.set((get_ident(), path))
    try:
        with _span_on_clusters(tags):
            yield "/".join(path)
    finally:
        _path.reset(token)


def _span_on_clusters(tags: Sequence[str]) -> AbstractContextManager[object]:
    """Open the span for computations on a cluster, in a process with a client."""
    distributed = sys.modules.get("distributed")
    try:
        if distributed is not None and distributed.default_client():
            context: AbstractContextManager[object] = distributed.span(*tags)
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
    """The name of the innermost open span, after the names of outer spans; empty without a span."""
    return SEPARATOR.join(_open_tags())


def dependents_of(
    keys: Sequence[Hashable], state: SchedulerState, requested: Collection[Hashable]
) -> array[int]:
    """Number of tasks that depend on each result before the scheduler releases the result.

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


class DependencyLog:
    """On which tasks each task depends, in the order of rows.

    It grows with the rows of a computation: the thread that writes a recording while the
    computation runs does work that would otherwise be done at the end.

    Attributes
    ----------
    stops : array of int
        Positions in `rows` where the dependencies of each row end, after a 0.
    rows : array of int
        The rows that each row depends on, row after row.
    closed : bool
        Whether all rows are there.
    """

    __slots__ = ("_dependencies", "_lock", "_row_of", "closed", "rows", "stops")

    def __init__(self) -> None:
        self.stops = growing_array("I", [0])
        self.rows = growing_array("I")
        self.closed = False
        self._dependencies: Mapping[Hashable, Collection[Hashable]] | None = None
        self._row_of: dict[Hashable, int] = {}
        self._lock = threading.Lock()

    def extend(
        self, keys: Sequence[Hashable], dependencies: Mapping[Hashable, Collection[Hashable]]
    ) -> None:
        """Add the dependencies of new rows; `keys` has the keys of all rows.

        Nothing is added for a graph of tasks that are all independent.
        """
        with self._lock:
            if self.closed:
                return
            if self._dependencies is None and dependencies:
                self._dependencies = dependencies if any(dependencies.values()) else {}
            if not self._dependencies:
                return
            start, row_of = len(self.stops) - 1, self._row_of
            new = keys[start:]
            row_of.update(zip(new, range(start, start + len(new)), strict=True))
            try:
                needed = list(map(self._dependencies.__getitem__, new))
            except KeyError:
                needed = [self._dependencies.get(key, ()) for key in new]
            rows = list(map(row_of.get, chain.from_iterable(needed)))
            if None in rows:
                # Data that is not the result of a task has no row.
                needed = [[key for key in keys_of_task if key in row_of] for keys_of_task in needed]
                rows = [row for row in rows if row is not None]
            counts = accumulate(map(len, needed), initial=self.stops[-1])
            self.rows.extend(rows)
            self.stops.extend(islice(counts, 1, None))

    def between(self, first: int, stop: int, in_flight: Sequence[Hashable]) -> RowDependencies:
        """The dependencies of the rows from `first` to `stop`, then those of tasks in flight."""
        stops = self.stops[first : stop + 1]
        counts = array("I", map(sub, stops[1:], stops))
        rows = self.rows[stops[0] : stops[-1]] if stops else array("I")
        dependencies, row_of = self._dependencies, self._row_of
        if dependencies:
            for key in in_flight:
                # Tasks may have been collected, and others submitted, since rows were counted.
                needed = [row_of.get(other, stop) for other in dependencies.get(key, ())]
                known = [row for row in needed if row < stop]
                counts.append(len(known))
                rows.extend(known)
        return counts, rows

    def close(self) -> None:
        """Release the keys; no more rows are added."""
        with self._lock:
            self.closed = True
            self._dependencies = None
            self._row_of = {}
            self.stops, self.rows = array("I", [0]), array("I")


NO_DEPENDENCIES = DependencyLog()
"""In place of that of a computation that has ended."""
NO_DEPENDENCIES.close()

RowDependencies = tuple["array[int]", "array[int]"]
"""The number of rows that each row depends on (of the first rows, if the others have none), and
these rows."""


class Labels:
    """Texts of some rows: in order of rows, and each distinct text once."""

    __slots__ = ("codes", "names", "rows")

    def __init__(self) -> None:
        self.rows = array("I")
        self.codes = array("I")
        self.names: dict[str, int] = {}

    def __iter__(self) -> Iterator[tuple[int, str]]:
        names = list(self.names)
        return ((row, names[code]) for row, code in zip(self.rows, self.codes, strict=True))

    def add(self, row: int, name: str) -> None:
        """Label a row, after all labelled rows."""
        self.rows.append(row)
        self.codes.append(self.names.setdefault(name, len(self.names)))


NO_LABELS = Labels()
"""In place of those of a computation without: it is shared, and nothing is added to it."""


def spans_of_tasks(keys: Sequence[Hashable], annotated: Mapping[Hashable, object]) -> Labels:
    """The spans in the annotations of tasks."""
    if not annotated:
        return NO_LABELS
    spans = Labels()
    for row, key in enumerate(keys):
        if key in annotated:
            spans.add(row, name_of_annotation(annotated[key]))
    return spans


class TaskLog:
    """Entries about tasks, in order of rows: the task's row, a label, and `width` numbers."""

    __slots__ = ("codes", "labels", "rows", "values")

    width: ClassVar[int] = 2

    def __init__(self) -> None:
        self.rows = growing_array("I")
        self.codes = growing_array("I")
        self.labels: dict[tuple[str, str], int] = {}
        self.values = growing_array("d")

    def _append(self, row: int, label: tuple[str, str], numbers: Iterable[float]) -> None:
        self.rows.append(row)
        self.codes.append(self.labels.setdefault(label, len(self.labels)))
        self.values.extend(numbers)

    def between(self, first: int, stop: int) -> Self:
        """A copy of the entries about the rows from `first` to `stop`; more may be added meanwhile.

        The entries of a row are complete before the row has a key.
        """
        part = type(self)()
        part.labels = dict(self.labels)
        start, end = bisect_left(self.rows, first), bisect_left(self.rows, stop)
        part.rows, part.codes = self.rows[start:end], self.codes[start:end]
        part.values = self.values[start * self.width : end * self.width]
        return part

    def share(self) -> None:
        """Have in common with other logs what is alike; nothing is added any more."""
        self.rows, self.codes = shared(self.rows), shared(self.codes)
        if len(self.labels) == 1:
            (label,) = self.labels
            self.labels = _single_labels.setdefault(label, {label: 0})


_single_labels: dict[tuple[str, str], dict[tuple[str, str], int]] = {}
_shared: dict[bytes, array[int]] = {}
_MOST_SHARED, _SHORT = 1000, 64


def shared(numbers: array[int]) -> array[int]:
    """One short array for all that are equal, to which nothing is added any more."""
    if len(numbers) > _SHORT:
        return numbers
    if len(_shared) >= _MOST_SHARED:
        _shared.clear()
    return _shared.setdefault(numbers.tobytes(), numbers)


class MetricLog(TaskLog):
    """Metrics of tasks, an entry for each time that a task metered."""

    __slots__ = ()

    def add(self, row: int, metrics: Iterable[Metric]) -> None:
        """Log the metrics of the task of a row."""
        for label, unit, *numbers in metrics:
            self._append(row, (label, unit), numbers)


class WaitLog(TaskLog):
    """Waits of tasks, an entry for each task, activity and label."""

    __slots__ = ()

    def add(self, row: int, waits: Iterable[Wait]) -> None:
        """Log the waits of the task of a row."""
        for activity, *numbers, label in waits:
            self._append(row, (activity, label), numbers)


class TransferLog(TaskLog):
    """Transfers of tasks and results between processes, an entry for each task."""

    __slots__ = ()

    width = len(Transfer.__slots__)
    _read = attrgetter(*Transfer.__slots__)

    def add(self, row: int, transfer: Transfer) -> None:
        """Log the times and sizes of the task of a row."""
        self.values.extend(self._read(transfer))
        self.rows.append(row)


NO_METRICS, NO_WAITS, NO_TRANSFERS = MetricLog(), WaitLog(), TransferLog()
"""In place of those of a computation without: they are shared, and nothing is added to them."""

L = TypeVar("L", bound=TaskLog)


def joined_logs(kind: type[L], parts: Iterable[tuple[int, L]]) -> L:
    """The entries of several logs, whose rows begin at the row that is given with each."""
    log = kind()
    for first, part in parts:
        if not part.rows:
            continue
        code_of = [log.labels.setdefault(label, len(log.labels)) for label in part.labels]
        log.rows.extend([first + row for row in part.rows])
        log.codes.extend([code_of[code] for code in part.codes])
        log.values.extend(part.values)
    return log
