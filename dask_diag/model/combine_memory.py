"""The series of memory of several recordings, and what allocated in their blocks.

A block is in both tables by its label. What starts at the same time with the same label is the same
block; of it the longest series and the last snapshot are taken.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping, Sequence

import numpy as np

from dask_diag.columns import Categorical
from dask_diag.model.measurements import Measurements
from dask_diag.model.table import NO_ROWS, Table, stack

__all__ = ["combined_memory"]

Block = tuple[str, float]
"""The label of a block, and when it started."""


def combined_memory(parts: Sequence[Measurements]) -> tuple[Table, Table]:
    """`Recording.memory` and `Recording.allocations` of all parts."""
    series: dict[Block, Table] = {}
    allocations: dict[Block, Table] = {}
    for part in parts:
        starts = {}
        for label, rows in _by_label(part.memory):
            starts[label] = float(rows["time"][0])
            block = label, starts[label]
            series[block] = max(series.get(block, NO_ROWS), rows, key=len)
        for label, rows in _by_label(part.allocations):
            # A whole recording has no series.
            block = label, starts.get(label, part.start)
            before = allocations.get(block, rows)
            allocations[block] = max(before, rows, key=lambda table: float(table["time"][0]))
    labels: dict[Block, str] = {}
    for block in dict.fromkeys((*series, *allocations)):
        labels[block] = _unused(block[0], labels.values())
    return _joined(series, labels), _joined(allocations, labels)


def _joined(tables: Mapping[Block, Table], labels: Mapping[Block, str]) -> Table:
    return stack([*(_labelled(labels[block], rows) for block, rows in tables.items()), NO_ROWS])


def _by_label(table: Table) -> Iterator[tuple[str, Table]]:
    if not len(table):
        return
    for code, label in enumerate(table["label"].values):
        rows = table.rows(table["label"].codes == code)
        if len(rows):
            yield label, rows


def _labelled(label: str, rows: Table) -> Table:
    columns = {name: rows[name] for name in rows.columns}
    return Table({**columns, "label": Categorical(np.zeros(len(rows), np.uint8), [label])})


def _unused(label: str, used: Container[str]) -> str:
    """The label, with a number added if it is among those used."""
    name, count = label, 1
    while name in used:
        count += 1
        name = f"{label} ({count})".strip()
    return name
