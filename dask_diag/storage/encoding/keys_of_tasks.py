"""Keys of results as rows of tasks, and what else these rows predict."""

from __future__ import annotations

from dask_diag.columns import IntArray, PrefixStrings
from dask_diag.storage.encoding.floats import counted
from dask_diag.storage.encoding.integers import Decoder, Encoder, Spec
from dask_diag.storage.recent_tasks import RecentTasks

__all__ = ["KEY", "OF_TASK", "decode_keys_of_tasks", "encode_keys_of_tasks"]

KEY = "key"
OF_TASK = "tasks."
"""Before the name of a column of the tasks that keys are stored as rows of."""

_ROWS = "rows"
_MANY = 2048
_LONG = 16
"""Of so many keys those are searched for that have as many bytes: others take less time in full."""
_BASES = (("collected", 1_000_000), ("collected", 1_000_000_000), ("nbytes", 1))
"""What of its task a result is like, and the scale by which that is counted."""


def encode_keys_of_tasks(column: PrefixStrings, tasks: RecentTasks, to: Encoder) -> Spec | None:
    """Append rows of tasks; nothing if a key is not among those of the tasks."""
    if len(column) > _MANY and len(column.encoded[1]) < _LONG * len(column):
        return None
    rows = tasks.rows_of(column)
    if rows is None:
        return None
    spec = to.encode(rows, _ROWS)
    _add_bases(rows, tasks, to)
    return {"integers": {_ROWS: spec}}


def decode_keys_of_tasks(spec: Spec, tasks: RecentTasks, source: Decoder) -> PrefixStrings:
    """The keys that `encode_keys_of_tasks` encoded."""
    rows = source.decode(spec["integers"][_ROWS], _ROWS)
    _add_bases(rows, tasks, source)
    return tasks.keys(rows)


def _add_bases(rows: IntArray, tasks: RecentTasks, columns: Encoder | Decoder) -> None:
    """What later columns of the same unit may be stored relative to."""
    if not columns.is_short:
        for column, scale in _BASES:
            count = counted(tasks.numbers(column, rows), scale)
            columns.integers[scale, f"{OF_TASK}{column}"] = count
