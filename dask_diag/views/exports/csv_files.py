"""Tables as comma-separated values: exact, and nothing in them that a spreadsheet would run."""

from __future__ import annotations

import csv
import json
from collections.abc import Iterator
from math import isnan
from pathlib import Path

import numpy as np

from dask_diag.atomic_files import open_text
from dask_diag.columns import Categorical
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.views.exports.cells import Column, Value, chunks, facts, tables, tasks_of

__all__ = ["write_file", "write_folder"]

_NOT_FIRST = ("=", "+", "-", "@", "\t", "\r", "'")
"""What makes a spreadsheet take a text for a formula; and the mark that is put before it."""


def write_file(recording: Recording, path: Path, compressed: bool) -> None:
    """Write the tasks."""
    _write(tasks_of(recording), path, compressed)


def write_folder(recording: Recording, folder: Path) -> None:
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
