"""Columns that are not wanted: their bytes are passed over and not decoded.

A live view shows a few of the columns of each chunk, and to decode the others would be most of what
it costs.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence

import numpy as np

from dask_diag.storage.encoding.bases import COLUMN
from dask_diag.storage.encoding.integers import Spec
from dask_diag.storage.encoding.keys_of_tasks import KEY, OF_TASK

__all__ = ["needed_columns", "size_of_column"]


def needed_columns(spec: Spec, wanted: Collection[str]) -> set[str]:
    """The columns of a table that are wanted, and those that these are stored relative to."""
    needed = set(wanted)
    # A column is relative to columns before it.
    for name, column in reversed(spec["columns"].items()):
        if name in needed:
            needed |= {KEY if base.startswith(OF_TASK) else base for base in _bases(column)}
    return needed


def _bases(spec: Spec) -> Iterator[str]:
    for name, value in spec.items():
        if name == "base" and str(value).startswith(COLUMN):
            yield value.removeprefix(COLUMN)
        elif name == "sources":
            yield from value
        elif isinstance(value, dict):
            yield from _bases(value)


def size_of_column(spec: Spec, rows: int) -> tuple[int, int]:
    """How many bytes of a column its decoder would take: compressed, and plain."""
    kind = spec["kind"]
    if kind == "texts":
        return _size_of_texts(spec, rows)
    if kind == "tasks":
        size = _size_of_integers(rows, spec["rows"])
        return _sum(size, _size_of_texts(spec["others"], spec["count"])) if spec["others"] else size
    names = [name for name in _INTEGERS[kind] if name in spec]
    return _size_of_integers(rows, *(spec[name] for name in names))


_INTEGERS: Mapping[str, Sequence[str]] = {
    "raw": ("dtype",),
    "integers": ("values",),
    "scaled": ("count", "error"),
    "difference": ("error",),
    "labels": ("codes",),
}
"""What of the specification of each kind says how integers are stored."""


def _size_of_integers(rows: int, *specs: Spec | str) -> tuple[int, int]:
    compressed = plain = 0
    for spec in specs:
        if isinstance(spec, str):
            compressed += np.dtype(spec).itemsize
        elif "constant" in spec:
            compressed += 1
        else:
            compressed += spec["planes"] - spec["plain"]
            plain += spec["plain"]
    return rows * compressed, rows * plain


def _size_of_texts(spec: Spec, rows: int) -> tuple[int, int]:
    sizes = _size_of_integers(rows, spec["heads"]["codes"], spec["lengths"])
    return _sum(sizes, (spec["size"], spec.get("tokens", 0)))


def _sum(one: tuple[int, int], other: tuple[int, int]) -> tuple[int, int]:
    return one[0] + other[0], one[1] + other[1]
