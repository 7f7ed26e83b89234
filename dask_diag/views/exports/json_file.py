"""All tables in one JSON file, column by column, and the findings."""

from __future__ import annotations

import json
from collections.abc import Iterator
from math import isfinite
from pathlib import Path

import numpy as np

from dask_diag._version import __version__
from dask_diag.analysis.findings import findings
from dask_diag.atomic_files import open_text
from dask_diag.model.recording import Recording
from dask_diag.views.exports.cells import Column, Value, chunks, facts, tables

__all__ = ["write_file"]

_encode = json.JSONEncoder(separators=(",", ":"), allow_nan=False).encode


def write_file(recording: Recording, path: Path, compressed: bool) -> None:
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
