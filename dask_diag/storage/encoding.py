"""Columns as bytes that compress well, and back, equal to the bit.

Every column becomes integers, one array or two: a label its code, a clock reading its nanoseconds.
They are stored as small differences, whose bytes hardly change from row to row.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from itertools import product

import numpy as np

from dask_diag.columns import IntArray, Values
from dask_diag.model.table import Table
from dask_diag.storage.blocks import ByteReader, ByteWriter
from dask_diag.storage.integers import (
    FEW,
    STEP,
    VALUE,
    Spec,
    decode_integers,
    encode_integers,
    skip_integers,
)
from dask_diag.storage.parts import SCALES, NotStorableError, counted, join, split
from dask_diag.storage.preceding import KEY, NUMBERS, RecentTasks

__all__ = ["BASES", "OF_TASK", "NotStorableError", "decode_table", "encode_table"]

OF_TASK = "tasks."
"""Before the name of a column of the tasks, in the rows that keys are stored as."""
BASES: Mapping[str, str] = {
    "start": STEP,
    "stop": "start",
    "submitted": "start",
    "collected": "stop",
    "time": STEP,
    # Rows of tasks.
    "task": STEP,
    "depends_on": STEP,
    "cached_results.key": STEP,
    # A result is there when its task is collected, and as large as the task says.
    "cached_results.start": f"{OF_TASK}collected",
    "metric": f"{OF_TASK}nbytes",
    # Results are released together.
    "cached_results.stop": STEP,
    # A worker has one process and one thread, so their codes are the same.
    "pid": "worker",
    "thread": "worker",
    # Tasks that are ready together are sent one after the other.
    "queued": "submitted",
}
"""What columns are stored relative to: it is known what they mean, so nothing is searched for.

Those of one table are named with it. A file says what was chosen: its reader needs no such list.
"""
_RELATIVE = frozenset({"bits", "codes", "count", "rows"})
"""The integers that have bases: what a number is off has none."""
_Encoded = dict[object, dict[str, IntArray]]
"""Those of the columns so far: nanoseconds are only compared with nanoseconds."""


def encode_table(
    table: Table, out: ByteWriter, name: str = "", tasks: RecentTasks | None = None
) -> Spec:
    """Append a table's bytes to `out`, and return the specification that decodes them.

    By its `name` it is known what its columns are like. If there are `tasks`, its keys may be
    stored as rows of them.
    """
    specs: dict[str, Spec] = {}
    encoded: _Encoded = {}
    for column in table.columns:
        try:
            spec, parts, tails = split(column, table, tasks)
        except NotStorableError as error:
            raise NotStorableError(f"column {column!r}: {error}") from None
        base = BASES.get(f"{name}.{column}", BASES.get(column, VALUE))
        integers = {}
        for part, values in parts.items():
            before = _before(encoded, part, spec)
            its_base = base if part in _RELATIVE else VALUE
            integers[part] = encode_integers(values, its_base, before, out)
            before[column] = values
        if tasks and "rows" in parts:
            _remember(encoded, tasks, parts["rows"])
        specs[column] = {**spec, "integers": integers}
        if tails:
            out.append(tails)
            specs[column]["tails"] = len(tails)
    return {"rows": len(table), "columns": specs}


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
    rows, specs = spec["rows"], spec["columns"]
    needed = _needed(specs, specs if wanted is None else wanted)
    encoded: _Encoded = {}
    columns: dict[str, Values] = {}
    for column, column_spec in specs.items():
        parts = {}
        for part, integers in column_spec["integers"].items():
            if column in needed:
                before = _before(encoded, part, column_spec)
                parts[part] = before[column] = decode_integers(integers, rows, before, source)
            else:
                skip_integers(integers, rows, source)
        if tasks and "rows" in parts:
            _remember(encoded, tasks, parts["rows"])
        tails = bytes(source.take(column_spec["tails"])) if "tails" in column_spec else b""
        if column in needed:
            columns[column] = join(column_spec, parts, tails, columns, tasks)
    return Table({name: columns[name] for name in columns if wanted is None or name in wanted})


def _before(encoded: _Encoded, part: str, spec: Spec) -> dict[str, IntArray]:
    """The columns so far whose integers are in the same unit."""
    return encoded.setdefault((part, spec.get("scale")), {})


def _remember(encoded: _Encoded, tasks: RecentTasks, rows: IntArray) -> None:
    """What the tasks in these rows are like: so are their results."""
    if len(rows) > FEW:
        for name, scale in product(NUMBERS, SCALES):
            count = counted(np.asarray(tasks.column(name, rows), float), scale)
            _before(encoded, "count", {"scale": scale})[f"{OF_TASK}{name}"] = count


def _needed(specs: dict[str, Spec], wanted: Collection[str]) -> set[str]:
    """The columns that are wanted, and those before them that these are stored relative to."""
    needed = set(wanted)
    # From the last column to the first, as a base comes before what is relative to it.
    for name, spec in reversed(specs.items()):
        if name in needed:
            needed.update(spec.get("sources", ()))
            bases = [integers["base"] for integers in spec["integers"].values()]
            needed.update(KEY if base.startswith(OF_TASK) else base for base in bases)
    return needed
