"""What dask's local schedulers hand to callbacks: a graph, and the state of its computation."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable, Mapping
from typing import Any, TypedDict

from dask._task_spec import DataNode, GraphNode, Task

__all__ = [
    "CallbackTuple",
    "Graph",
    "GraphNode",
    "SchedulerState",
    "Task",
    "contents_of_node",
    "is_node",
    "is_node_type",
]

Graph = dict[Hashable, Any]
"""A graph as the scheduler has it: nodes, data and, while tasks run, their wrappers, by key."""


class SchedulerState(TypedDict, total=False):
    """What the scheduler knows of a computation; see ``dask.local.start_state_from_dask``."""

    cache: Mapping[Hashable, object]
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


def is_node(value: object) -> bool:
    """Whether it is a task, or data, or a reference to them, as graphs have them."""
    # An `isinstance` would ask the value itself, which may be any object.
    return is_node_type(type(value))


def is_node_type(kind: type) -> bool:
    """Whether it is the type of such nodes."""
    return issubclass(kind, GraphNode)


def contents_of_node(node: object) -> tuple[object, ...]:
    """What a task or data holds: a function and its arguments, or a value."""
    if isinstance(node, Task):
        return (node.func, *node.args, *node.kwargs.values())
    return (node.value,) if isinstance(node, DataNode) else ()
