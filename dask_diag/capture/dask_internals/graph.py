"""What dask's local schedulers hand to callbacks: a graph, and the state of its computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypedDict

from dask._task_spec import GraphNode, Task

__all__ = ["CallbackTuple", "Graph", "GraphNode", "SchedulerState", "Task", "runs_nothing"]

Graph = dict[Hashable, Any]
"""A graph as the scheduler has it: nodes, data and, while tasks run, their wrappers, by key."""


class SchedulerState(TypedDict, total=False):
    """What the scheduler knows of a computation; see ``dask.local.start_state_from_dask``."""

    dependencies: Mapping[Hashable, Collection[Hashable]]
    dependents: Mapping[Hashable, Collection[Hashable]]
    finished: Collection[Hashable]
    ready: Collection[Hashable]
    released: Collection[Hashable]
    running: Collection[Hashable]
    waiting: Collection[Hashable]
    dask_diag: Any


CallbackTuple = tuple[Callable[..., object] | None, ...]
"""A callback as dask has it: the functions for the start, each task and the end."""


def runs_nothing(state: SchedulerState) -> bool:
    """Whether a computation has no task out just now; it is the scheduler that asks."""
    return not state.get("running", True)
