"""Chunks of a recording as bytes, and a recording of chunks."""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

import numpy as np

from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack
from dask_diag.model.tables import GROUPS, TABLES
from dask_diag.storage.codec import (
    KEY,
    NUMBERS,
    ByteReader,
    ByteWriter,
    EarlierChunks,
    NotStorableError,
    Spec,
    decode_table,
    encode_table,
)

_SIZE_BYTES = 8
_MAX_TABLES = 1000
_REFERRING, _REFERRED = "cached_results", "tasks"
"""The table with keys of tasks, and the table of tasks, which comes first in a chunk."""


Columns = Mapping[str, Collection[str]]
"""The wanted columns of each table; other tables are not wanted."""


class Chunk(NamedTuple):
    """The fields of a recording in a chunk: values, and tables that have rows."""

    values: dict[str, Any]
    tables: dict[str, Table]


def encode_chunk(recording: Recording, level: int, earlier: EarlierChunks | None = None) -> bytes:
    """A chunk as bytes, compressed by a level from 1 to 9; tables without rows are left out.

    A chunk that stays in the file may refer to `earlier` chunks, to which it is then added.
    """
    # A provisional chunk refers to no other: it is soon overwritten, and must be fast.
    like, tasks = (earlier.head, earlier.tasks) if earlier else (b"", None)
    values: dict[str, object] = {}
    tables: dict[str, Spec] = {}
    columns = ByteWriter()
    for field in fields(recording):
        value = getattr(recording, field.name)
        try:
            if not isinstance(value, Table):
                values[field.name] = _as_json(value)
            elif len(value):
                recent = tasks if field.name == _REFERRING else None
                tables[field.name] = encode_table(value, columns, field.name, recent)
                if tasks is not None and field.name == _REFERRED:
                    tasks = tasks.plus(value)
        except NotStorableError as error:
            raise NotStorableError(f"{field.name}: {error}") from None
    head = {"values": values, "tables": tables}
    # Without escapes: two lone surrogates would come back from their escapes as one character.
    text = json.dumps(head, ensure_ascii=False).encode("utf-8", "surrogatepass")
    first = len(text).to_bytes(_SIZE_BYTES, "little") + text
    data = columns.getvalue(first, level, like)
    if earlier and tasks is not None:
        earlier.advance(text, tasks)
    return data


def decode_chunk(
    data: memoryview, earlier: EarlierChunks | None = None, columns: Columns | None = None
) -> Chunk:
    """Decode a chunk of `encode_chunk`; any damage raises some error.

    After an error `earlier` is unchanged. With `columns`, other columns and tables are not decoded;
    `columns` must be the same for all chunks of a file.
    """
    refers = earlier is not None and (columns is None or _REFERRING in columns)
    earlier = earlier or EarlierChunks()
    source = ByteReader(data, like=earlier.head)
    size = int.from_bytes(source.take(_SIZE_BYTES), "little")
    text = bytes(source.take(size))
    head = json.loads(text.decode("utf-8", "surrogatepass"))
    if len(head["tables"]) > _MAX_TABLES:
        raise ValueError(f"expected at most {_MAX_TABLES} tables, found {len(head['tables'])}")
    values = {name: _from_json(value) for name, value in head["values"].items()}
    tables, tasks = {}, earlier.tasks
    for name, spec in head["tables"].items():
        wanted = None if columns is None else {*columns.get(name, ())}
        if wanted is not None and refers and name == _REFERRED:
            wanted |= {KEY, *NUMBERS}
        table = decode_table(spec, source, tasks if name == _REFERRING else None, wanted)
        if columns is None or name in columns:
            tables[name] = table
        if refers and name == _REFERRED:
            tasks = tasks.plus(table)
    earlier.advance(text, tasks)
    return Chunk(values, tables)


def joined(chunks: Sequence[Chunk], notices: Sequence[str]) -> Recording:
    """The recording of consecutive chunks; fields other than tables are those of the last chunk."""
    fields_of = {field.name: field for field in fields(Recording)}
    values = {name: value for name, value in chunks[-1].values.items() if name in fields_of}
    names = dict.fromkeys(name for chunk in chunks for name in chunk.tables)
    unknown = [name for name in (*chunks[-1].values, *names) if name not in fields_of]
    for name in names:
        if name in TABLES:
            table = stack([chunk.tables[name] for chunk in chunks if name in chunk.tables])
            columns = TABLES[name].schema
            unknown += [f"{name}.{column}" for column in table.columns if column not in columns]
            values[name] = TABLES[name](
                {
                    # Earlier versions of dask_diag had no groups.
                    column.name: np.full(len(table), -1)
                    if column.refers_to == GROUPS and column.name not in table.columns
                    else table[column.name]
                    for column in columns.values()
                }
            )
    notice = f"left out {', '.join(unknown)}: unknown to this version of dask_diag; upgrade it"
    left_out = [notice] if unknown else []
    for name, value in values.items():
        expected = _CHECKED.get(str(fields_of[name].type))
        if expected and not isinstance(value, expected):
            raise ValueError(f"expected {name} to be {fields_of[name].type}, found {value!r}")
    recording = Recording(**values)
    added = (*left_out, *notices)
    return replace(recording, notices=(*recording.notices, *added)) if added else recording


_CHECKED: dict[str, type | tuple[type, ...]] = {
    "float": (float, int),
    "str": str,
    "tuple[str, ...]": tuple,
}


def _as_json(value: object) -> object:
    """The value of a field for JSON, which has no tuples."""
    if isinstance(value, np.generic):
        value = value.item()
    if type(value) in (str, int, float):
        return value
    if type(value) is tuple:
        return {"tuple": [_as_json(item) for item in value]}
    raise NotStorableError(f"expected text, numbers or tuples of them, found {value!r}")


def _from_json(value: object) -> object:
    return tuple(map(_from_json, value["tuple"])) if isinstance(value, dict) else value
