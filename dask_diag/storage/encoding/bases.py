"""What the columns of a recording are stored relative to: a column hardly differs from its base.

It is known what each column means, so nothing is searched for. A file says what was chosen: its
reader needs no such table, and a column that is not named here is only longer than need be.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

__all__ = ["BASES", "COLUMN", "DIFFERENCES", "STEP", "VALUE"]

VALUE, STEP, COLUMN = "", "+", "="
"""Integers as they are, as steps from row to row, as differences to a column: ``=start``."""

BASES: Mapping[str, Mapping[str, str]] = {
    "tasks": {
        "key": STEP,
        "start": STEP,
        "stop": "=start",
        "submitted": "=start",
        "collected": "=stop",
        # A worker has one process and one thread, so their codes are the same.
        "pid": "=worker",
        "thread": "=worker",
        # Tasks that are ready together are sent one after the other.
        "queued": "=submitted",
    },
    # A result is there when its task is collected, and as large as the task says.
    "cached_results": {
        "key": STEP,
        "metric": "=tasks.nbytes",
        "start": "=tasks.collected",
        "stop": STEP,
    },
    "dependencies": {"task": STEP, "depends_on": STEP},
    "metrics": {"task": STEP},
    "transfers": {"task": STEP, "start": STEP, "stop": "=start"},
    "waits": {"task": STEP},
    "resources": {"time": STEP},
    "processes": {"time": STEP},
    "memory": {"time": STEP},
    "samples": {"start": STEP, "stop": "=start"},
}
"""Of the integers of a column. If the column of a base is not there, these are stored as steps."""

DIFFERENCES: Mapping[str, Mapping[str, Sequence[str]]] = {
    "tasks": {"thread_noncpu": ("stop", "start", "thread_cpu")},
}
"""Floats that are one column minus others, up to a rounding error here and there."""
