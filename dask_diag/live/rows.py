"""The rows of a chunk that a live view shows: a few columns of a few tables.

Call stacks, for example, are most of a chunk and are not decoded.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from dask_diag import schema
from dask_diag.model.table import Table
from dask_diag.model.tables import TABLES
from dask_diag.storage.chunks import Chunk, Columns

__all__ = ["COLUMNS", "PROVISIONAL_COLUMNS", "LiveRows", "rows_of"]

_COMPUTATIONS = frozenset({"computation", "called", "start", "prepared", "stop", "workers"})
_PLANNED = frozenset({"computation", "function", "tasks"})
COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "tasks": frozenset(
        {"computation", "function", "worker", "start", "stop", "thread_cpu", "outcome"}
    ),
    "resources": frozenset({"time", "cpu", "cpu_others", "memory", "memory_children"}),
    "environment": frozenset({"name", "value"}),
}
"""Of rows that stay."""
PROVISIONAL_COLUMNS: Columns = {
    "computations": _COMPUTATIONS,
    "planned": _PLANNED,
    "progress": frozenset(schema.Progress.schema),
    "tasks": frozenset({"key", "function", "worker", "start", "stop"}),
    "cached_results": frozenset({"metric"}),
}
"""Of rows that are true for now."""
_SHOWN: Mapping[str, set[str]] = {
    name: {*COLUMNS.get(name, ()), *PROVISIONAL_COLUMNS.get(name, ())}
    for name in COLUMNS.keys() | PROVISIONAL_COLUMNS.keys()
}
Kind = TypeVar("Kind", bound=Table)


class _Computations(Table, schema.Computations):
    """Some columns of computations."""


class _Planned(Table, schema.Planned):
    """Some columns of planned tasks."""


class _Progress(Table, schema.Progress):
    """Some columns of progress."""


class _Tasks(Table, schema.Tasks):
    """Some columns of tasks."""


class _Resources(Table, schema.Resources):
    """Some columns of resources."""


class _CachedResults(Table, schema.CachedResults):
    """Some columns of cached results."""


class _Environment(Table, schema.Environment):
    """Some columns of the environment."""


class LiveRows(NamedTuple):
    """What of a chunk is shown; tables have at least the columns that are."""

    start: float
    stop: float
    epoch: float
    notices: tuple[str, ...]
    computations: _Computations
    planned: _Planned
    progress: _Progress
    tasks: _Tasks
    resources: _Resources
    cached_results: _CachedResults
    environment: _Environment


def rows_of(chunk: Chunk) -> LiveRows:
    """The rows of a chunk; one that is not as a recording is some error."""
    start, stop, epoch = (float(chunk.values[name]) for name in ("start", "stop", "epoch"))
    return LiveRows(
        start,
        stop,
        epoch,
        notices=tuple(map(str, chunk.values.get("notices", ()))),
        computations=_some(_Computations, "computations", chunk),
        planned=_some(_Planned, "planned", chunk),
        progress=_some(_Progress, "progress", chunk),
        tasks=_some(_Tasks, "tasks", chunk),
        resources=_some(_Resources, "resources", chunk),
        cached_results=_some(_CachedResults, "cached_results", chunk),
        environment=_some(_Environment, "environment", chunk),
    )


def _some(kind: type[Kind], name: str, chunk: Chunk) -> Kind:
    table = chunk.tables.get(name) or TABLES[name].empty()
    return kind({column: table[column] for column in table.columns if column in _SHOWN[name]})
