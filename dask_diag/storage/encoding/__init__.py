"""Columns as bytes that compress well, and back, equal to the bit.

Every column becomes integers: a label its code, a clock reading its nanoseconds. They are stored as
small differences, whose bytes hardly change from row to row.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings, Values
from dask_diag.model.table import Table
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.choices import TableChoices
from dask_diag.storage.encoding.floats import decode_floats, encode_floats
from dask_diag.storage.encoding.integers import (
    NUMBERS,
    ColumnsDone,
    Spec,
    decode_numbers,
    encode_numbers,
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
from dask_diag.storage.encoding.references import RecentTasks

__all__ = ["NotStorableError", "Spec", "decode_table", "encode_table"]


def encode_table(
    table: Table,
    out: ByteWriter,
    choices: TableChoices | None = None,
    tasks: RecentTasks | None = None,
) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them.

    If there are `tasks`, its key may be stored as a row of them.
    """
    done, columns = ColumnsDone(len(table), choices, tasks), {}
    for name in table.columns:
        try:
            columns[name] = _encode_column(name, table[name], done, out)
        except NotStorableError as error:
            raise NotStorableError(f"column {name!r}: {error}") from None
    return {"rows": len(table), "columns": columns}


def decode_table(spec: Spec, source: ByteReader, tasks: RecentTasks | None = None) -> Table:
    """The table that `encode_table` encoded; whatever is wrong with it raises some error."""
    done = ColumnsDone(spec["rows"], tasks=tasks)
    return Table(
        {
            name: _DECODERS[column["kind"]](name, column, done, source)
            for name, column in spec["columns"].items()
        }
    )


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
    native = np.ascontiguousarray(column, dtype=column.dtype.newbyteorder("="))
    encode = encode_floats if native.dtype == np.float64 else encode_numbers
    return {"dtype": column.dtype.str, **encode(name, native, done, out)}


_DECODERS: Mapping[str, Callable[[str, Spec, ColumnsDone, ByteReader], Values]] = {
    "integers": decode_numbers,
    "floats": decode_floats,
    "labels": decode_labels,
    "texts": decode_texts,
    "tasks": decode_keys_of_tasks,
}
