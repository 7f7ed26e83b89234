"""Tables as CSV, JSON and Parquet."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import isfinite, isnan
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dask_diag._version import __version__
from dask_diag.analysis.findings.rules import findings
from dask_diag.columns import Array, Categorical, PrefixStrings
from dask_diag.errors import DiagnosticError, import_optional
from dask_diag.files import open_text
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

if TYPE_CHECKING:
    from typing import TypeAlias


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


_NOT_FIRST = ("=", "+", "-", "@", "\t", "\r", "'")
"""What makes a spreadsheet take a text for a formula; and the mark that is put before it."""


def write_csv_file(recording: Recording, path: Path, compressed: bool) -> None:
    """Write the tasks."""
    _write(tasks_of(recording), path, compressed)


def write_csv_folder(recording: Recording, folder: Path) -> None:
    """Write a file for each table, and what else there is."""
    for name, table in tables(recording):
        _write(table, folder / f"{name}.csv", compressed=False)
    text = json.dumps(facts(recording), indent=1)
    (folder / "recording.json").write_text(text + "\n", encoding="utf-8")


def _write(table: Table, path: Path, compressed: bool) -> None:
    # Newlines are the csv writer's own.
    with open_text(path, compressed=compressed, newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(table.columns)
        for columns in zip(*(_cells(table[name]) for name in table.columns), strict=True):
            writer.writerows(zip(*columns, strict=True))


def _cells(column: Column) -> Iterator[list[Value]]:
    if isinstance(column, Categorical):
        column = Categorical(column.codes, [_cell(value) for value in column.values])
        yield from chunks(column)
        return
    if isinstance(column, np.ndarray) and not (column.dtype.kind == "f" and np.isnan(column).any()):
        yield from chunks(column)
        return
    for values in chunks(column):
        yield list(map(_cell, values))


def _cell(value: Value) -> Value:
    """A text that starts no formula: with a mark before it, also where the text had one."""
    if isinstance(value, str):
        return "'" + value if value.startswith(_NOT_FIRST) else value
    return "" if isinstance(value, float) and isnan(value) else value


_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def write_json_file(recording: Recording, path: Path, compressed: bool) -> None:
    """Write everything."""
    with open_text(path, compressed=compressed) as stream:
        for text in _parts(recording):
            stream.write(text)


def _parts(recording: Recording) -> Iterator[str]:
    about = {"format": "dask_diag recording", "version": __version__, **facts(recording)}
    shown_findings = [finding.to_dict() for finding in findings(recording)]
    yield f'{_encode(about)[:-1]},\n"findings":{_encode(shown_findings)},\n"tables":{{'
    for position, (name, table) in enumerate(tables(recording)):
        yield f"{',' if position else ''}\n{_encode(name)}:{{"
        for number, column in enumerate(table.columns):
            yield f"{',' if number else ''}\n{_encode(column)}:["
            yield from _values(table[column])
            yield "]"
        yield "}"
    yield "\n}}\n"


def _values(column: Column) -> Iterator[str]:
    may_be_unknown = isinstance(column, np.ndarray) and column.dtype.kind == "f"
    for position, values in enumerate(chunks(column)):
        items = [_number(value) for value in values] if may_be_unknown else values
        yield (", " if position else "") + _encode(items)[1:-1]


def _number(value: Value) -> Value | None:
    """JSON has no NaN and no infinity."""
    return value if not isinstance(value, float) or isfinite(value) else None


_ROWS = 50_000


def write_parquet_file(recording: Recording, path: Path) -> None:
    """Write the tasks."""
    _write_parquet(tasks_of(recording), path, facts(recording))


def write_parquet_folder(recording: Recording, folder: Path) -> None:
    """Write a file for each table."""
    for name, table in tables(recording):
        _write_parquet(table, folder / f"{name}.parquet", facts(recording))


def _write_parquet(table: Table, path: Path, about: Mapping[str, object]) -> None:
    pyarrow, parquet = _pyarrow()
    types = {name: _type(pyarrow, table[name]) for name in table.columns}
    schema = pyarrow.schema(list(types.items()), metadata={"dask_diag": json.dumps(about)})
    with parquet.ParquetWriter(path, schema) as writer:
        columns = (chunks(table[name], _ROWS) for name in table.columns)
        for values in zip(*columns, strict=True):
            arrays = [
                pyarrow.array(_encoded(part), kind)
                for part, kind in zip(values, types.values(), strict=True)
            ]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))


def _pyarrow() -> tuple[Any, Any]:
    purpose = "the format 'parquet'", "'csv' and 'json' need nothing"
    return import_optional("pyarrow", *purpose), import_optional("pyarrow.parquet", *purpose)


def _type(pyarrow: Any, column: Column) -> object:
    if isinstance(column, PrefixStrings):
        return pyarrow.string()
    if isinstance(column, Categorical):
        are_integers = all(isinstance(value, int) for value in column.values)
        return pyarrow.int64() if are_integers and len(column.values) else pyarrow.string()
    return pyarrow.from_numpy_dtype(column.dtype)


def _encoded(values: list[Value]) -> list[Value]:
    """The values; texts with what UTF-8 has no bytes for are written with escapes."""
    texts = [value for value in values if isinstance(value, str)]
    try:
        "".join(texts).encode()
    except UnicodeEncodeError:
        return [text.encode("utf-8", "backslashreplace").decode() for text in texts]
    return values
