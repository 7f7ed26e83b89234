"""Tasks as arrays that grow chunk by chunk, and those of them in an interval of time."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dask_diag.columns import Array, Categorical, IntArray
from dask_diag.schema import Tasks

__all__ = ["Growing", "Names", "TaskArrays"]

_COLUMNS: Mapping[str, str] = {
    "start": "f8",
    "stop": "f8",
    "cpu": "f8",
    "function": "i4",
    "worker": "i4",
}


class Growing:
    """A column to which rows are added: each is copied a few times at most, however many come.

    Parameters
    ----------
    dtype : str
    """

    def __init__(self, dtype: str) -> None:
        self._array = np.zeros(1024, dtype)
        self._length = 0

    def __len__(self) -> int:
        return self._length

    @property
    def values(self) -> Array:
        """All rows."""
        return self._array[: self._length]

    def extend(self, values: Array) -> None:
        """Add rows."""
        length = self._length + len(values)
        if length > len(self._array):
            larger = np.zeros(max(length, 2 * len(self._array)), self._array.dtype)
            larger[: self._length] = self.values
            self._array = larger
        self._array[self._length : length] = values
        self._length = length


class Names:
    """Labels of all chunks, each with one code."""

    def __init__(self) -> None:
        self.codes: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.codes)

    @property
    def names(self) -> list[str]:
        """By their codes."""
        return list(self.codes)

    def of(self, column: Categorical) -> IntArray:
        """The codes of a chunk's rows."""
        used = np.unique(column.codes).tolist()
        table = np.zeros(len(column.values) + 1, np.int64)
        for code in used:
            name = str(column.values[code])
            table[code] = self.codes.setdefault(name, len(self.codes))
        return table[column.codes]


class TaskArrays:
    """The tasks that have been collected and are known to have run.

    They come in the order of collection, which is nearly that of time: chunk by chunk it is known
    which have to be looked at for an interval.
    """

    def __init__(self) -> None:
        self.functions = Names()
        self.workers = Names()
        self._columns = {name: Growing(dtype) for name, dtype in _COLUMNS.items()}
        self._chunks = {name: Growing("f8") for name in ("first", "rows", "start", "stop")}

    def __len__(self) -> int:
        return len(self._columns["start"])

    def __getitem__(self, name: str) -> Array:
        return self._columns[name].values

    def extend(self, tasks: Tasks) -> None:
        """Add a chunk's tasks."""
        ran = ~(np.isnan(tasks.start) | np.isnan(tasks.stop))
        start, stop = tasks.start[ran], tasks.stop[ran]
        if not len(start):
            return
        columns: Mapping[str, Array] = {
            "start": start,
            "stop": stop,
            "cpu": tasks.thread_cpu[ran],
            "function": self.functions.of(tasks.function)[ran],
            "worker": self.workers.of(tasks.worker)[ran],
        }
        chunk = (len(self), len(start), start.min(), stop.max())
        for column, number in zip(self._chunks.values(), chunk, strict=True):
            column.extend(np.array([number]))
        for name, values in columns.items():
            self._columns[name].extend(values)

    def between(self, start: float, stop: float) -> dict[str, Array]:
        """The tasks that ran in an interval, at any time."""
        chunks = {name: column.values for name, column in self._chunks.items()}
        touched = np.flatnonzero((chunks["stop"] >= start) & (chunks["start"] <= stop))
        if not len(touched):
            return {name: column.values[:0] for name, column in self._columns.items()}
        # Chunks that are looked at lie next to each other, but for a few long tasks.
        low = int(chunks["first"][touched[0]])
        high = int(chunks["first"][touched[-1]] + chunks["rows"][touched[-1]])
        inside = (self["stop"][low:high] >= start) & (self["start"][low:high] <= stop)
        return {name: self[name][low:high][inside] for name in self._columns}
