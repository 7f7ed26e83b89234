"""What older files lack: the columns that were added to tables, and what stands for "not known"."""

from __future__ import annotations

import numpy as np

from dask_diag.columns import Labels
from dask_diag.table import Table

__all__ = ["with_columns_added_since"]

_ADDED = {2: {"samples": {"key": ""}}}
"""By the version that added them, and by table: columns of labels, and that of all older rows."""


def with_columns_added_since(version: int, name: str, table: Table) -> Table:
    """The table of that name in a file of that version, with the columns that it has today."""
    columns = {column: table[column] for column in table.columns}
    for added, tables in _ADDED.items():
        if added > version and columns:
            for column, label in tables.get(name, {}).items():
                columns[column] = Labels(np.zeros(len(table), np.uint8), [label])
    return Table(columns)
