"""The columns of a recording as plain values, some rows at a time."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields
from typing import TYPE_CHECKING

import numpy as np

from dask_diag.columns import Array, Categorical, PrefixStrings
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

if TYPE_CHECKING:
    from typing import TypeAlias

__all__ = ["ROWS", "Column", "Value", "chunks", "facts", "tables", "tasks_of"]

ROWS = 20_000
"""Rows that are plain values at the same time."""
Column: TypeAlias = Array | Categorical | PrefixStrings
Value = str | int | float
"""What a column has in a row."""
_POSITIONS = {"tasks": "task", "frames": "frame", "call_tree": "node"}
"""The tables that others refer to by position, and what that is called."""


def tables(recording: Recording) -> Iterator[tuple[str, Table]]:
    """The name of each table that has rows, and the table, numbered if others refer to it."""
    for field in fields(recording):
        table = getattr(recording, field.name)
        if isinstance(table, Table) and len(table):
            yield field.name, _numbered(field.name, table)


def tasks_of(recording: Recording) -> Table:
    """The table of tasks, numbered.

    Raises
    ------
    DiagnosticError
        If tasks were not measured.
    """
    if not len(recording.tasks):
        raise DiagnosticError(
            "no tasks were recorded, which such a file is of: name a folder to write the other "
            "tables, or record with Profiler, dask_diag.record or `dask-diag run`"
        )
    return _numbered("tasks", recording.tasks)


def _numbered(name: str, table: Table) -> Table:
    if name not in _POSITIONS or _POSITIONS[name] in table.columns:
        return table
    columns = {column: table[column] for column in table.columns}
    return Table({_POSITIONS[name]: np.arange(len(table)), **columns})


def facts(recording: Recording) -> dict[str, object]:
    """What a recording has besides tables."""
    values = {field.name: getattr(recording, field.name) for field in fields(recording)}
    return {name: value for name, value in values.items() if not isinstance(value, Table)}


def chunks(column: Column, rows: int = ROWS) -> Iterator[list[Value]]:
    """The values of a column, so many at a time."""
    if isinstance(column, PrefixStrings):
        yield from map(list, column.chunks(rows))
        return
    if isinstance(column, Categorical):
        column = Categorical(column.codes, list(map(_plain, column.values)))
    for first in range(0, len(column), rows):
        yield column[first : first + rows].tolist()


def _plain(value: object) -> object:
    return value.item() if isinstance(value, np.generic) else value
