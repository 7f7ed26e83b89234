"""Graphs of dask: names in keys, and the steps of fused tasks.

Tasks are known by the names of dask's classes and functions. The module imports nothing but Python:
a reader of recordings does not load dask, and `cluster.shipping` sends the text to schedulers.
"""

from __future__ import annotations

import re
from collections.abc import Hashable
from typing import Any

TOKEN = re.compile(r"[0-9a-f]{32}|[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The token that dask puts into names of what has the same inputs."""
NAMED_BY_DASK = re.compile(rf"-(?:{TOKEN.pattern})(?![0-9a-f])")
"""The end of a name that dask gave to work. The user may give a name to other work, too."""
_FUSED = "_execute_subgraph"
"""The name of dask's function that runs the steps of a fused task."""


def name_of_key(key: Hashable) -> Hashable:
    """The name of the layer or expression of a key."""
    return key[0] if type(key) is tuple and key else key


def is_fused(task: Any) -> bool:
    """Whether a task consists of several, which are its steps."""
    # By its type first: the attributes of any other object are the user's.
    is_task = type(task).__name__ == "Task"
    return is_task and getattr(task.func, "__name__", "") == _FUSED


def steps_of(task: Any, key: Hashable = None) -> list[tuple[Hashable, Any, Hashable]]:
    """Steps of a fused task that call functions, also the steps of those that are fused themselves.

    Each is its key, the step, and the innermost key with a block of the tasks around it: `key` is
    that of the task. Other tasks have no steps.
    """
    if not is_fused(task):
        return []
    found: list[tuple[Hashable, Any, Hashable]] = []
    for name, step in task.args[0].items():
        # Without a call for each of them: large graphs have many.
        function = getattr(step, "func", None)
        if getattr(function, "__name__", "") == _FUSED and is_fused(step):
            found += steps_of(step, name if type(name) is tuple else key)
        elif function is not None:
            found.append((name, step, key))
    return found


def names_of_steps(task: Any) -> list[Hashable]:
    """The names of the steps of a fused task, each once; empty for other tasks."""
    return list(dict.fromkeys(name_of_key(key) for key, _, _ in steps_of(task)))


def block_of(task: Any) -> Hashable:
    """The key of the block of a file that a task reads and parses; None for other tasks."""
    first: Any = task.args[0] if task.args else None
    key = getattr(first, "key", None) if type(first).__name__ == "Task" else None
    return key if type(key) is str and key.startswith("read-block-") else None
