"""Columns as bytes that compress well, and back, equal to the bit.

Every column becomes integers: a label its code, a clock reading its nanoseconds. They are stored as
small differences, whose bytes hardly change from row to row.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings, Values
from dask_diag.model.table import Table
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.floats import (
    decode_difference,
    decode_scaled,
    encode_floats,
)
from dask_diag.storage.encoding.integers import (
    NUMBERS,
    ColumnsDone,
    Spec,
    decode_numbers,
    decode_raw,
    encode_numbers,
    encode_raw,
)
from dask_diag.storage.encoding.keys_of_tasks import (
    KEY,
    decode_keys_of_tasks,
    encode_keys_of_tasks,
)
from dask_diag.storage.encoding.labels import (
    NotStorableError,
    decode_labels,
    decode_texts,
    encode_labels,
    encode_texts,
)
from dask_diag.storage.encoding.skipping import needed_columns, size_of_column
from dask_diag.storage.recent_tasks import RecentTasks

__all__ = ["NotStorableError", "Spec", "decode_table", "encode_table"]


def encode_table(
    table: Table, out: ByteWriter, name: str = "", tasks: RecentTasks | None = None
) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them.

    By its `name` it is known what its columns are like. If there are `tasks`, its key may be stored
    as a row of them.
    """
    done, columns = ColumnsDone(len(table), name, tasks), {}
    for column in table.columns:
        try:
            columns[column] = _encode_column(column, table[column], done, out)
        except NotStorableError as error:
            raise NotStorableError(f"column {column!r}: {error}") from None
    return {"rows": done.rows, "columns": columns}


def decode_table(
    spec: Spec,
    source: ByteReader,
    tasks: RecentTasks | None = None,
    wanted: Collection[str] | None = None,
) -> Table:
    """The table that `encode_table` encoded; whatever is wrong with it raises some error.

    If columns are `wanted` it has no others.
    """
    done = ColumnsDone(spec["rows"], tasks=tasks)
    columns: dict[str, Values] = {}
    needed = spec["columns"] if wanted is None else needed_columns(spec, wanted)
    compressed = plain = 0
    for name, column in spec["columns"].items():
        if name in needed:
            source.skip(compressed, plain)
            compressed = plain = 0
            values = columns[name] = _DECODERS[column["kind"]](name, column, done, source)
            if isinstance(values, np.ndarray) and values.dtype == np.float64:
                done.floats[name] = values
        else:
            # Those next to each other are passed over at once.
            more, more_plain = size_of_column(column, done.rows)
            compressed, plain = compressed + more, plain + more_plain
    source.skip(compressed, plain)
    if wanted is not None:
        columns = {name: values for name, values in columns.items() if name in wanted}
    return Table(columns)


def _encode_column(name: str, column: object, done: ColumnsDone, out: ByteWriter) -> Spec:
    if isinstance(column, Categorical):
        return encode_labels(name, column, done, out)
    if isinstance(column, PrefixStrings):
        if name == KEY and (spec := encode_keys_of_tasks(name, column, done, out)):
            return spec
        return encode_texts(name, column, done, out)
    if not isinstance(column, np.ndarray) or column.ndim != 1 or column.dtype.kind not in NUMBERS:
        found = getattr(column, "dtype", type(column).__name__)
        raise NotStorableError(f"expected a flat array of numbers, labels or texts, found {found}")
    if column.dtype.itemsize > 8:
        raise NotStorableError(f"expected numbers of at most 8 bytes, found {column.dtype}")
    if done.is_short:
        return {"kind": "raw", "dtype": encode_raw(column, out)}
    native = column.astype(column.dtype.newbyteorder("="), copy=False)
    encode = encode_floats if native.dtype == np.float64 else encode_numbers
    return {"dtype": column.dtype.str, **encode(name, native, done, out)}


_DECODERS: Mapping[str, Callable[[str, Spec, ColumnsDone, ByteReader], Values]] = {
    "raw": decode_raw,
    "integers": decode_numbers,
    "scaled": decode_scaled,
    "difference": decode_difference,
    "labels": decode_labels,
    "texts": decode_texts,
    "tasks": decode_keys_of_tasks,
}
