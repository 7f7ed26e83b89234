"""Tables as Parquet files, written with pyarrow."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.import_optional import import_optional
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.exports.cells import Column, Value, chunks, facts, tables, tasks_of

__all__ = ["write_file", "write_folder"]

_ROWS = 50_000


def write_file(recording: Recording, path: Path) -> None:
    """Write the tasks."""
    _write(tasks_of(recording), path, facts(recording))


def write_folder(recording: Recording, folder: Path) -> None:
    """Write a file for each table."""
    for name, table in tables(recording):
        _write(table, folder / f"{name}.parquet", facts(recording))


def _write(table: Table, path: Path, about: Mapping[str, object]) -> None:
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
