"""Every table and column of a `Recording`, and the fixed words in them, named once.

Tables are typed from it (`dask_diag.model.tables`), builders fill what it names, storage writes it,
and the documentation's page of columns is made of it. What runs beside the user's tasks needs the
words only: the tables are made when first used.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from dask_diag.schema.codes import (
    ACTIVITIES,
    FINDINGS,
    OUTCOMES,
    PHASES,
    PROFILING,
    PROGRESS_PHASES,
    ROOTS,
    STATES,
    TASK_ACTIVITIES,
    THREAD_KINDS,
    UNKNOWN_WORKER,
    WAITS,
    WORKER_ACTIVITIES,
    WORKER_EVENTS,
    Activity,
    Outcome,
    ProgressPhase,
    Root,
    State,
    WorkerEvent,
)

if TYPE_CHECKING:
    from dask_diag.schema.tables import (
        REFERENCES,
        TABLES,
        Allocations,
        CachedResults,
        CallTree,
        Column,
        Computations,
        Dependencies,
        Environment,
        Frames,
        Memory,
        Metrics,
        OtherTasks,
        Planned,
        Pools,
        Processes,
        Progress,
        Resources,
        Samples,
        Schema,
        Tasks,
        Threads,
        Transfers,
        Waits,
        WorkerEvents,
        Workers,
    )

__all__ = [
    "ACTIVITIES",
    "FINDINGS",
    "OUTCOMES",
    "PHASES",
    "PROFILING",
    "PROGRESS_PHASES",
    "REFERENCES",
    "ROOTS",
    "STATES",
    "TABLES",
    "TASK_ACTIVITIES",
    "THREAD_KINDS",
    "UNKNOWN_WORKER",
    "WAITS",
    "WORKER_ACTIVITIES",
    "WORKER_EVENTS",
    "Activity",
    "Allocations",
    "CachedResults",
    "CallTree",
    "Column",
    "Computations",
    "Dependencies",
    "Environment",
    "Frames",
    "Memory",
    "Metrics",
    "OtherTasks",
    "Outcome",
    "Planned",
    "Pools",
    "Processes",
    "Progress",
    "ProgressPhase",
    "Resources",
    "Root",
    "Samples",
    "Schema",
    "State",
    "Tasks",
    "Threads",
    "Transfers",
    "Waits",
    "WorkerEvent",
    "WorkerEvents",
    "Workers",
]


# Hidden from mypy, to which a name that is not in the schema is an error.
if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        if name in __all__:
            return getattr(importlib.import_module("dask_diag.schema.tables"), name)
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
