"""Tables as CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import fields
from math import isfinite, isnan
from pathlib import Path
from typing import Any

import numpy as np

from dask_diag._version import __version__
from dask_diag.analysis.built_by import BuiltBy
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rules import find
from dask_diag.columns import Categorical, PrefixStrings, Values
from dask_diag.errors import DiagnosticError, import_optional
from dask_diag.files import open_text
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

ROWS = 20_000
"""Rows that are plain values at the same time."""
_ROWS_OF_PARQUET = 50_000
Value = str | int | float | None
"""The value of a column in a row."""
_POSITIONS = {"tasks": "task", "frames": "frame", "call_tree": "node", "lines": "row"}
"""Tables that others refer to by position, and the name of that position."""
_CONTROLS = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r", "'")
"""Beginnings of a text that a spreadsheet would take for a formula; and the mark before it."""


def tables(recording: Recording) -> Iterator[tuple[str, Table]]:
    """The name of each table that has rows, and the table, numbered if others refer to it."""
    for field in fields(recording):
        table = getattr(recording, field.name)
        if isinstance(table, Table) and len(table):
            columns = with_lines(recording) if field.name == "tasks" else table
            yield field.name, _numbered(field.name, columns)


def tasks_of(recording: Recording) -> Table:
    """The table of tasks, numbered, with the line that built most of each.

    Raises
    ------
    DiagnosticError
        If tasks were not measured.
    """
    if not len(recording.tasks):
        raise DiagnosticError(
            "no tasks were recorded, and a single file has only tasks: name a directory to write "
            "the other tables, or record with Profiler, dask_diag.record or `dask-diag run`"
        )
    return _numbered("tasks", with_lines(recording))


def with_lines(recording: Recording) -> Table:
    """The table of tasks, and the line that built most of each."""
    tasks = recording.tasks
    columns = {name: tasks[name] for name in tasks.columns}
    return Table({**columns, "line": BuiltBy.of(recording).main_lines()})


def _numbered(name: str, table: Table) -> Table:
    if name not in _POSITIONS or _POSITIONS[name] in table.columns:
        return table
    columns = {column: table[column] for column in table.columns}
    return Table({_POSITIONS[name]: np.arange(len(table)), **columns})


def facts(recording: Recording) -> dict[str, object]:
    """The values of a recording besides its tables."""
    values = {field.name: getattr(recording, field.name) for field in fields(recording)}
    return {name: value for name, value in values.items() if not isinstance(value, Table)}


def chunks(
    column: Values, rows: int = ROWS, *, converted: Callable[[Any], Value] | None = None
) -> Iterator[list[Any]]:
    """The values of a column, a number of rows at a time.

    Parameters
    ----------
    column : array, Categorical or PrefixStrings
    rows : int
    converted : callable, optional
        Converts texts, labels and numbers that are not finite; other numbers stay.
    """
    parts: Iterator[list[Any]]
    if isinstance(column, PrefixStrings):
        parts = map(list, column.chunks(rows))
    else:
        if isinstance(column, Categorical):
            plain = [v.item() if isinstance(v, np.generic) else v for v in column.values]
            column = Categorical(
                column.codes, [converted(v) for v in plain] if converted else plain
            )
            converted = None
        elif column.dtype.kind != "f" or np.isfinite(column).all():
            converted = None
        parts = (column[n : n + rows].tolist() for n in range(0, len(column), rows))
    yield from parts if converted is None else ([converted(v) for v in part] for part in parts)


def write_csv(table: Table, path: Path, recording: Recording, compressed: bool) -> None:
    """Write a table as comma-separated values."""
    # The csv writer has newlines of its own.
    with open_text(path, compressed=compressed, newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table.columns)
        columns = (chunks(table[name], converted=_cell) for name in table.columns)
        for values in zip(*columns, strict=True):
            writer.writerows(zip(*values, strict=True))


def _cell(value: Value) -> Value:
    """A text that starts no formula, by a mark before it, or moves a cursor; nothing for NaN."""
    if isinstance(value, str):
        value = _CONTROLS.sub(lambda match: ascii(match[0])[1:-1], value)
        return "'" + value if value.startswith(_FORMULAS) else value
    return "" if isinstance(value, float) and isnan(value) else value


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def texts_of_json(recording: Recording) -> Iterator[str]:
    """The texts of a file with everything."""
    about = {"format": "dask_diag recording", "version": __version__, **facts(recording)}
    found = [finding.to_dict() for finding in find(Analysis(recording))]
    yield f'{_encode(about)[:-1]},\n"findings":{_encode(found)},\n"tables":{{'
    for position, (name, table) in enumerate(tables(recording)):
        yield f"{',' if position else ''}\n{_encode(name)}:{{"
        for number, column in enumerate(table.columns):
            yield f"{',' if number else ''}\n{_encode(column)}:["
            comma = ""
            for values in chunks(table[column], converted=_known):
                yield comma + _encode(values)[1:-1]
                comma = ", "
            yield "]"
        yield "}"
    yield "\n}}\n"


def _known(value: Value) -> Value:
    """The value, or None in place of NaN and infinity, which JSON does not have."""
    return value if not isinstance(value, float) or isfinite(value) else None


def write_parquet(table: Table, path: Path, recording: Recording, compressed: bool) -> None:
    """Write a table; parquet compresses it."""
    purpose = "the format 'parquet'", "'csv' and 'json' work without it"
    pyarrow, parquet = (import_optional(n, *purpose) for n in ("pyarrow", "pyarrow.parquet"))

    def kind(column: Values) -> object:
        if isinstance(column, np.ndarray):
            return pyarrow.from_numpy_dtype(column.dtype)
        values = column.values if isinstance(column, Categorical) else ()
        are_integers = values and all(isinstance(value, int) for value in values)
        return pyarrow.int64() if are_integers else pyarrow.string()

    types = {name: kind(table[name]) for name in table.columns}
    about = {"dask_diag": json.dumps(facts(recording))}
    schema = pyarrow.schema(list(types.items()), metadata=about)
    with parquet.ParquetWriter(path, schema) as writer:
        columns = (
            chunks(table[name], _ROWS_OF_PARQUET, converted=_in_utf8) for name in table.columns
        )
        for parts in zip(*columns, strict=True):
            arrays = map(pyarrow.array, parts, types.values())
            writer.write_table(pyarrow.Table.from_arrays(list(arrays), schema=schema))


def _in_utf8(value: Value) -> Value:
    """The value, with escapes for characters that UTF-8 has no bytes for."""
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    return value
