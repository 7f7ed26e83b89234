"""Sampled call stacks."""

from __future__ import annotations

from dask_diag.schema import column
from dask_diag.schema.column import Schema

__all__ = ["CallTree", "Frames", "Samples"]


class Frames(Schema):
    """A row per line of code that was seen running."""

    name = column.category("The qualified name of its function.")
    file = column.category("The source file; empty for functions not written in Python.")
    line = column.integer("The line.")
    first_line = column.integer("The line where the function starts; 0 if not known.")


class CallTree(Schema):
    """A row per node of the tree of calls."""

    parent = column.integer(
        "Row of its caller in `call_tree`, an earlier one; -1 of an outermost call."
    )
    frame = column.integer("Row of its line in `frames`.")


class Samples(Schema):
    """A row per cycle, root, function, key and call stack."""

    start = column.time("When the cycle started.")
    stop = column.time("When the cycle stopped.")
    root = column.category("What the time belongs to, such as `tasks` or `scheduler`.")
    function = column.category("The function of the tasks that were sampled; empty outside tasks.")
    key = column.category("The task's key, of tasks longer than a quarter of a cycle; else empty.")
    worker = column.category("The worker of a cluster that ran the tasks; empty elsewhere.")
    node = column.integer("Row of the innermost call in `call_tree`; -1 for time not sampled.")
    seconds = column.seconds("Self time: the seconds that the samples represent.")
    cpu_seconds = column.seconds("How many of these were CPU seconds.")
    count = column.integer("How many samples.")
