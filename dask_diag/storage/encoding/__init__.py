"""Columns as bytes that compress well, and back, equal to the bit.

Every column becomes integers: a label its code, a clock reading its nanoseconds. They are stored as
small differences, whose bytes hardly change from row to row.
"""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings, Values
from dask_diag.model.table import Table
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.bases import COLUMN
from dask_diag.storage.encoding.floats import decode_numbers, encode_numbers
from dask_diag.storage.encoding.integers import Decoder, Encoder, Spec
from dask_diag.storage.encoding.keys_of_tasks import (
    KEY,
    OF_TASK,
    decode_keys_of_tasks,
    encode_keys_of_tasks,
)
from dask_diag.storage.encoding.texts import (
    NotStorableError,
    decode_labels,
    decode_texts,
    encode_labels,
    encode_texts,
)
from dask_diag.storage.recent_tasks import RecentTasks

__all__ = ["NotStorableError", "Spec", "decode_table", "encode_table"]

_NO_TASKS = RecentTasks()


def encode_table(
    table: Table, out: ByteWriter, name: str = "", tasks: RecentTasks | None = None
) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them.

    By its `name` it is known what its columns are like. If there are `tasks`, its keys may be
    stored as rows of them.
    """
    to, columns = Encoder(len(table), name, out), {}
    for to.column in table.columns:
        try:
            columns[to.column] = _encode(table[to.column], tasks, to)
        except NotStorableError as error:
            raise NotStorableError(f"column {to.column!r}: {error}") from None
    return {"rows": to.rows, "columns": columns}


def _encode(column: object, tasks: RecentTasks | None, to: Encoder) -> Spec:
    if isinstance(column, Categorical):
        return {"kind": "labels", **encode_labels(column, to)}
    if isinstance(column, PrefixStrings):
        if tasks and to.column == KEY and (rows := encode_keys_of_tasks(column, tasks, to)):
            return {"kind": "tasks", **rows}
        return {"kind": "texts", **encode_texts(column, to)}
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in "biuf":
        found = getattr(column, "dtype", type(column).__name__)
        raise NotStorableError(f"expected a flat array of numbers, labels or texts, found {found}")
    if column.dtype.itemsize > 8:
        raise NotStorableError(f"expected numbers of at most 8 bytes, found {column.dtype}")
    return {"kind": "numbers", **encode_numbers(column, to)}


def decode_table(
    spec: Spec,
    source: ByteReader,
    tasks: RecentTasks | None = None,
    wanted: Collection[str] | None = None,
) -> Table:
    """The table that `encode_table` encoded; whatever is wrong with it raises some error.

    If columns are `wanted` it has no others: of what these do not need, bytes are passed over. A
    live view shows a few columns, and to decode the others would be most of what it costs.
    """
    decoder, columns = Decoder(spec["rows"], source), {}
    needed = spec["columns"].keys() if wanted is None else _needed(spec["columns"], wanted)
    for decoder.column, column in spec["columns"].items():
        if decoder.column in needed:
            columns[decoder.column] = _decode(column, tasks or _NO_TASKS, decoder)
        else:
            _skip(column, decoder)
    if wanted is not None:
        columns = {name: values for name, values in columns.items() if name in wanted}
    return Table(columns)


def _decode(spec: Spec, tasks: RecentTasks, decoder: Decoder) -> Values:
    kind = spec["kind"]
    if kind == "labels":
        return decode_labels(spec, decoder)
    if kind == "texts":
        return decode_texts(spec, decoder)
    if kind == "tasks":
        return decode_keys_of_tasks(spec, tasks, decoder)
    if kind == "numbers":
        return decode_numbers(spec, decoder)
    raise ValueError(f"expected a kind of column, found {kind!r}")


def _needed(columns: dict[str, Spec], wanted: Collection[str]) -> set[str]:
    """The columns that are wanted, and those that these are stored relative to."""
    needed = set(wanted)
    # A column is relative to columns before it.
    for name, spec in reversed(columns.items()):
        if name in needed:
            needed.update(spec.get("sources", ()))
            for integers in spec["integers"].values():
                base = integers["base"]
                needed.add(KEY if base[1:].startswith(OF_TASK) else base.removeprefix(COLUMN))
    return needed


def _skip(spec: Spec, decoder: Decoder) -> None:
    """Take the bytes of a column that nobody wants."""
    source, rows = decoder.source, decoder.rows
    for integers in spec["integers"].values():
        source.take_planes(rows * max(1, integers["planes"]))
    source.take(spec.get("tails", 0))
    source.take_planes(spec.get("tokens", 0))
