"""Tables of recordings that are written by hand: what a test does not name is not known."""

from dataclasses import replace
from functools import lru_cache

import numpy as np

from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.tables import TABLES


def filled_table(name, columns):
    """The table of that name; columns that are not given hold what represents not known."""
    kind = TABLES[name]
    rows = len(next(iter(columns.values()))) if columns else 0
    unknown = set(columns) - set(kind.schema)
    assert not unknown, f"{name} has no {unknown}"
    return kind({n: _column(c.kind, columns.get(n), rows) for n, c in kind.schema.items()})


def _column(kind, values, rows):
    if kind == "float":
        return np.full(rows, np.nan) if values is None else np.asarray(values, float)
    if kind == "integer":
        return np.zeros(rows, np.int64) if values is None else np.asarray(values, np.int64)
    if values is None:
        return _no_texts(kind, rows)
    if isinstance(values, (Categorical, PrefixStrings)):
        return values
    return (PrefixStrings if kind == "text" else Categorical).of(values)


def columns_of(names, *rows):
    """Columns of a table that is written row by row, below the names of its columns."""
    values = zip(*rows, strict=True) if rows else [[]] * len(names.split())
    return dict(zip(names.split(), map(list, values), strict=True))


@lru_cache(maxsize=32)
def _no_texts(kind, rows):
    """They are most of a table that is written by hand, and cannot be changed."""
    return (PrefixStrings if kind == "text" else Categorical).of([""] * rows)


def with_tables(recording, **tables):
    """The same recording with other tables, of which these are the columns."""
    filled = {name: filled_table(name, columns) for name, columns in tables.items()}
    return replace(recording, **filled)


def with_columns(recording, table, times=1, **columns):
    """The same recording; a table has all rows so many times, and other values in some columns."""
    old = getattr(recording, table)
    repeated = {name: old[name].tolist() * times for name in old.columns}
    return with_tables(recording, **{table: repeated | columns})
