"""A column of keys stored as rows of tasks, and what else these rows predict."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import IntArray, PrefixStrings, concatenate
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.encoding.floats import counted
from dask_diag.storage.encoding.integers import (
    ColumnsDone,
    Spec,
    decode_integers,
    encode_integers,
)
from dask_diag.storage.encoding.labels import decode_texts, encode_texts
from dask_diag.storage.recent_tasks import NOT_FOUND

__all__ = ["KEY", "OF_TASK", "decode_keys_of_tasks", "encode_keys_of_tasks"]

KEY = "key"
OF_TASK = "tasks."
"""Before the name of a column of the tasks that keys are stored as rows of."""

_LEAST_FOUND = 0.5
_MANY = 2048
_LONG = 16
"""Of so many keys those are searched for that have as many bytes: others take less time in full."""
_BASES = (("collected", 1_000_000), ("collected", 1_000_000_000), ("nbytes", 1))
"""What of its task a result is like, and the scale by which that is counted."""


def encode_keys_of_tasks(
    name: str, column: PrefixStrings, done: ColumnsDone, out: ByteWriter
) -> Spec | None:
    """Append the rows of tasks, and other keys as texts; nothing if tasks have too few of them."""
    if done.tasks is None:
        return None
    if len(column) > _MANY and len(column.encoded[1]) < _LONG * len(column):
        return None
    rows = done.tasks.rows_of(column)
    missing = rows == NOT_FOUND
    if missing.mean() > 1 - _LEAST_FOUND:
        return None
    spec: Spec = {"kind": "tasks", "rows": encode_integers(name, rows, "rows", done, out)}
    _add_bases(rows, done)
    spec["others"] = None
    if missing.any():
        spec["count"] = int(missing.sum())
        others = ColumnsDone(spec["count"])
        spec["others"] = encode_texts(name, column[missing], others, out)
    return spec


def decode_keys_of_tasks(
    name: str, spec: Spec, done: ColumnsDone, source: ByteReader
) -> PrefixStrings:
    """The keys that `encode_keys_of_tasks` encoded."""
    if done.tasks is None:
        raise ValueError("expected tasks before what refers to them")
    rows = decode_integers(name, spec["rows"], "rows", done, source)
    _add_bases(rows, done)
    missing = rows == NOT_FOUND
    if not spec["others"]:
        return done.tasks.keys(rows)
    found = done.tasks.keys(rows[~missing])
    others = decode_texts(name, spec["others"], ColumnsDone(spec["count"]), source)
    place = np.argsort(np.concatenate([np.flatnonzero(~missing), np.flatnonzero(missing)]))
    keys: PrefixStrings = concatenate([found, others])[place]
    return keys


def _add_bases(rows: IntArray, done: ColumnsDone) -> None:
    """What later columns of the same kind may be stored relative to."""
    assert done.tasks is not None
    for column, scale in _BASES:
        values = done.tasks.numbers(column, rows)
        done.integers[scale, f"{OF_TASK}{column}"] = counted(values, scale)
