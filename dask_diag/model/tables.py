"""The tables of a Recording: typed by the schema, and of no other shape."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings, Values
from dask_diag.errors import SchemaError
from dask_diag.model import schema as schema_module
from dask_diag.model.table import Table

if TYPE_CHECKING:
    from typing_extensions import Self


_NUMBERS = {"float": "f", "integer": "biu"}
_TEXTS = {"category": Categorical, "text": PrefixStrings}


class RecordingTable(schema_module.Schema, Table):
    """A table whose columns the schema names; all are there, also if there are no rows.

    Parameters
    ----------
    columns : mapping of str to array, Categorical or PrefixStrings
        Every column of the schema, of its kind.

    Raises
    ------
    SchemaError
        If a column is missing, not of the schema, or of another kind.
    """

    __slots__ = ()
    schema_module: ClassVar[Mapping[str, schema_module.Column[Any]]]

    @classmethod
    @cache
    def empty(cls) -> Self:
        """The table without rows; there is one, as no table changes."""
        return cls({name: _no_values(column.kind) for name, column in cls.schema.items()})

    @classmethod
    def of(cls, table: Table) -> Self:
        """A plain table as one of this kind; one without columns as the empty one."""
        if isinstance(table, cls):
            return table
        if not table.columns:
            return cls.empty()
        return cls({name: table[name] for name in table.columns})

    def __getitem__(self, name: str) -> Any:
        return Table.__getitem__(self, name)

    def _repr_html_(self) -> str:
        """As any table, but times count from the first one: the clock started at any time."""
        times = [name for name, column in type(self).schema.items() if column.is_time]
        readings = np.concatenate([self[name] for name in times] or [np.zeros(0)])
        readings = readings[np.isfinite(readings)]
        if not len(readings):
            return super()._repr_html_()
        first = readings.min()
        columns = {name: self[name] for name in self.columns}
        # Nanoseconds are what clocks have.
        columns |= {name: np.round(self[name] - first, 9) for name in times}
        return (
            f"{Table(columns)._repr_html_()}<p>{', '.join(times)}: seconds since the first of "
            f"these times, which is {first:.9g} s of the clock</p>"
        )

    def _check(self, columns: Mapping[str, Values]) -> None:
        expected = type(self).schema
        if columns.keys() != expected.keys():
            missing = ", ".join(name for name in expected if name not in columns) or "none"
            unknown = ", ".join(name for name in columns if name not in expected) or "none"
            raise SchemaError(
                f"table {type(self).__name__}: expected the columns {', '.join(expected)}; "
                f"missing: {missing}; unknown: {unknown}"
            )
        for name, column in columns.items():
            kind = expected[name].kind
            if not _is_of(kind, column):
                given = getattr(column, "dtype", type(column).__name__)
                raise SchemaError(
                    f"table {type(self).__name__}, column {name}: expected {kind}, found {given}"
                )


def _is_of(kind: str, column: object) -> bool:
    if kind in _TEXTS:
        return isinstance(column, _TEXTS[kind])
    return (
        isinstance(column, np.ndarray) and column.ndim == 1 and column.dtype.kind in _NUMBERS[kind]
    )


def _no_values(kind: str) -> Values:
    if kind == "text":
        return PrefixStrings.of([])
    if kind == "category":
        return Categorical([], [])
    return np.zeros(0, float if kind == "float" else np.int64)


class Computations(schema_module.Computations, RecordingTable):
    """See `dask_diag.model.schema.Computations`."""

    __slots__ = ()


class Planned(schema_module.Planned, RecordingTable):
    """See `dask_diag.model.schema.Planned`."""

    __slots__ = ()


class Progress(schema_module.Progress, RecordingTable):
    """See `dask_diag.model.schema.Progress`."""

    __slots__ = ()


class Tasks(schema_module.Tasks, RecordingTable):
    """See `dask_diag.model.schema.Tasks`."""

    __slots__ = ()


class Dependencies(schema_module.Dependencies, RecordingTable):
    """See `dask_diag.model.schema.Dependencies`."""

    __slots__ = ()


class Metrics(schema_module.Metrics, RecordingTable):
    """See `dask_diag.model.schema.Metrics`."""

    __slots__ = ()


class Resources(schema_module.Resources, RecordingTable):
    """See `dask_diag.model.schema.Resources`."""

    __slots__ = ()


class Processes(schema_module.Processes, RecordingTable):
    """See `dask_diag.model.schema.Processes`."""

    __slots__ = ()


class Memory(schema_module.Memory, RecordingTable):
    """See `dask_diag.model.schema.Memory`."""

    __slots__ = ()


class CachedResults(schema_module.CachedResults, RecordingTable):
    """See `dask_diag.model.schema.CachedResults`."""

    __slots__ = ()


class Transfers(schema_module.Transfers, RecordingTable):
    """See `dask_diag.model.schema.Transfers`."""

    __slots__ = ()


class Pools(schema_module.Pools, RecordingTable):
    """See `dask_diag.model.schema.Pools`."""

    __slots__ = ()


class Workers(schema_module.Workers, RecordingTable):
    """See `dask_diag.model.schema.Workers`."""

    __slots__ = ()


class OtherTasks(schema_module.OtherTasks, RecordingTable):
    """See `dask_diag.model.schema.OtherTasks`."""

    __slots__ = ()


class Allocations(schema_module.Allocations, RecordingTable):
    """See `dask_diag.model.schema.Allocations`."""

    __slots__ = ()


class WorkerEvents(schema_module.WorkerEvents, RecordingTable):
    """See `dask_diag.model.schema.WorkerEvents`."""

    __slots__ = ()


class Threads(schema_module.Threads, RecordingTable):
    """See `dask_diag.model.schema.Threads`."""

    __slots__ = ()


class Waits(schema_module.Waits, RecordingTable):
    """See `dask_diag.model.schema.Waits`."""

    __slots__ = ()


class Frames(schema_module.Frames, RecordingTable):
    """See `dask_diag.model.schema.Frames`."""

    __slots__ = ()


class CallTree(schema_module.CallTree, RecordingTable):
    """See `dask_diag.model.schema.CallTree`."""

    __slots__ = ()


class Samples(schema_module.Samples, RecordingTable):
    """See `dask_diag.model.schema.Samples`."""

    __slots__ = ()


class Environment(schema_module.Environment, RecordingTable):
    """See `dask_diag.model.schema.Environment`."""

    __slots__ = ()


TABLES: Mapping[str, type[RecordingTable]] = {
    "computations": Computations,
    "planned": Planned,
    "progress": Progress,
    "tasks": Tasks,
    "dependencies": Dependencies,
    "metrics": Metrics,
    "resources": Resources,
    "processes": Processes,
    "memory": Memory,
    "allocations": Allocations,
    "cached_results": CachedResults,
    "transfers": Transfers,
    "waits": Waits,
    "pools": Pools,
    "workers": Workers,
    "other_tasks": OtherTasks,
    "worker_events": WorkerEvents,
    "threads": Threads,
    "frames": Frames,
    "call_tree": CallTree,
    "samples": Samples,
    "environment": Environment,
}
"""The kinds of table, by the names of a recording's attributes."""
