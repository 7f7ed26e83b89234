"""One part of a recording as bytes, and parts put together again."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any, NamedTuple

from dask_diag.model.recording import Recording
from dask_diag.model.table import Table, stack
from dask_diag.storage.columns import NotStorableError, decode_table, encode_table
from dask_diag.storage.streams import (
    DEFLATED,
    StreamReader,
    StreamWriter,
    pack_block,
    unpack_block,
)

__all__ = ["Part", "decode_part", "encode_part", "joined"]

_LARGEST_COUNT_OF_TABLES = 1000


class Part(NamedTuple):
    """The fields of a recording, as a part of it has them."""

    values: dict[str, Any]
    tables: dict[str, Table]


def encode_part(
    recording: Recording, number: int, level: int, choices: dict[Any, Any] | None = None
) -> bytes:
    """A part as bytes; tables without columns are left out, and without rows in later parts.

    `choices` are those of the parts before (see `StreamWriter`).
    """
    values, tables, streams = {}, {}, StreamWriter(level, choices)
    for field in fields(recording):
        value = getattr(recording, field.name)
        try:
            if not isinstance(value, Table):
                values[field.name] = _plain(value)
            elif len(value) or (value.columns and number == 0):
                tables[field.name] = encode_table(field.name, value, streams)
        except NotStorableError as error:
            raise NotStorableError(f"{field.name}: {error}") from None
    told = {"part": number, "values": values, "tables": tables}
    head = json.dumps(told, ensure_ascii=False).encode("utf-8", "surrogatepass")
    return pack_block(head, DEFLATED, level) + streams.getvalue()


def decode_part(data: memoryview, number: int) -> Part:
    """The part that `encode_part` made bytes of; whatever is wrong with it raises some error."""
    head, rest = unpack_block(data)
    told = json.loads(head.decode("utf-8", "surrogatepass"))
    if told["part"] != number:
        raise ValueError(f"expected part {number}, found {told['part']!r}")
    if len(told["tables"]) > _LARGEST_COUNT_OF_TABLES:
        raise ValueError("expected a part of a recording")
    streams = StreamReader(rest)
    return Part(
        {name: _original(value) for name, value in told["values"].items()},
        {name: decode_table(table, streams) for name, table in told["tables"].items()},
    )


def joined(parts: Sequence[Part], notices: Sequence[str]) -> Recording:
    """The recording whose consecutive parts these are; what is no table is as the last has it."""
    known = {field.name: field for field in fields(Recording)}
    values = {name: value for name, value in parts[-1].values.items() if name in known}
    names = dict.fromkeys(name for part in parts for name in part.tables)
    for name in names:
        if name in known:
            values[name] = stack([part.tables[name] for part in parts if name in part.tables])
    unknown = [name for name in (*parts[-1].values, *names) if name not in known]
    told = [f"this dask_diag does not know {', '.join(unknown)}: left out"] if unknown else []
    for name, value in values.items():
        expected = _CHECKED.get(str(known[name].type))
        if expected and not isinstance(value, expected):
            raise ValueError(f"expected {name} to be {known[name].type}, found {value!r}")
    recording = Recording(**values)
    return replace(recording, notices=(*recording.notices, *told, *notices))


_CHECKED: dict[str, Any] = {
    "float": (float, int),
    "str": str,
    "tuple[str, ...]": tuple,
}
_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "dict": dict}


def _plain(value: Any) -> Any:
    """A field's value in terms of JSON, in which tuples and lists stay apart."""
    if type(value) in (str, int, float, bool, type(None)):
        return value
    if type(value) is dict:
        return {"dict": [[_plain(key), _plain(item)] for key, item in value.items()]}
    if type(value) in (tuple, list):
        return {type(value).__name__: [_plain(item) for item in value]}
    if hasattr(value, "item") and getattr(value, "shape", None) == ():
        return _plain(value.item())
    raise NotStorableError(
        f"expected text, numbers, tuples, lists or dicts of them, found {value!r}"
    )


def _original(value: Any) -> Any:
    if isinstance(value, dict):
        ((kind, items),) = value.items()
        if kind == "dict":
            return {_original(key): _original(item) for key, item in items}
        return _CONTAINERS[kind](_original(item) for item in items)
    return value
