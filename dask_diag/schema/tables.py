"""The tables of a `Recording`."""

from __future__ import annotations

from collections.abc import Mapping

from dask_diag.schema import column
from dask_diag.schema.column import Column, Schema
from dask_diag.schema.processes import (
    Allocations,
    Memory,
    OtherTasks,
    Pools,
    Processes,
    Resources,
    Threads,
    WorkerEvents,
    Workers,
)
from dask_diag.schema.stacks import CallTree, Frames, Samples
from dask_diag.schema.tasks import (
    CachedResults,
    Computations,
    Dependencies,
    Metrics,
    Planned,
    Progress,
    Tasks,
    Transfers,
    Waits,
)

__all__ = [
    "REFERENCES",
    "TABLES",
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
    "Planned",
    "Pools",
    "Processes",
    "Progress",
    "Resources",
    "Samples",
    "Schema",
    "Tasks",
    "Threads",
    "Transfers",
    "Waits",
    "WorkerEvents",
    "Workers",
]


class Environment(Schema):
    """A row per fact about where the recording was made."""

    section = column.category("`versions`, `machine`, `configuration` or `calling code`.")
    name = column.text("What it is.")
    value = column.text("Its value, as text; what looks like a secret is masked.")


TABLES: Mapping[str, type[Schema]] = {
    "computations": Computations,
    "planned": Planned,
    "progress": Progress,
    "tasks": Tasks,
    "dependencies": Dependencies,
    "metrics": Metrics,
    "resources": Resources,
    "processes": Processes,
    "memory": Memory,
    "allocations": Allocations,
    "cached_results": CachedResults,
    "transfers": Transfers,
    "waits": Waits,
    "pools": Pools,
    "workers": Workers,
    "other_tasks": OtherTasks,
    "worker_events": WorkerEvents,
    "threads": Threads,
    "frames": Frames,
    "call_tree": CallTree,
    "samples": Samples,
    "environment": Environment,
}
"""The tables of a `Recording`, by the names of its attributes."""

REFERENCES: Mapping[str, tuple[str, ...]] = {
    "dependencies": ("task", "depends_on"),
    "metrics": ("task",),
    "transfers": ("task",),
    "waits": ("task",),
}
"""The tables that refer to tasks, and which of their columns are rows of `tasks`."""
