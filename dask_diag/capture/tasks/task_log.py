"""What is logged of tasks besides their times: small, and without the user's objects."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Hashable, Iterable, Mapping, Sequence
from operator import attrgetter
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from dask_diag.capture.span import name_of_annotation
from dask_diag.capture.tasks.metered import Metric, Wait
from dask_diag.capture.tasks.remote_task import Transfer

if TYPE_CHECKING:
    from typing_extensions import Self

__all__ = ["Log", "Metrics", "SpansOfTasks", "Transfers", "Waits"]

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
