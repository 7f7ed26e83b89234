"""What the scheduler's side of capture has of each task that the scheduler has.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import TYPE_CHECKING, NamedTuple

from dask.utils import funcname

from dask_diag.capture.cluster.scheduler_sessions import Computation

if TYPE_CHECKING:
    from distributed.scheduler import TaskState

__all__ = ["Cached", "Task", "name_of_plain"]


class Cached(NamedTuple):
    """A result in distributed memory. Its task may be in a later graph, too."""

    computation: Computation
    nbytes: float
    start: float
    function: str


class Task:
    """What is known of a task beside what the scheduler knows, and of its current run."""

    __slots__ = (
        *("attempt", "cached", "computation", "counted_in", "is_done", "is_out"),
        *("queued", "queued_at"),
        *("row", "sent", "span", "worker"),
    )

    def __init__(self, computation: Computation) -> None:
        self.computation = computation
        self.attempt = 0
        self.queued = 0.0
        self.queued_at: float | None = None
        self.row = -1
        self.sent = 0.0
        self.worker = ""
        self.is_out = False
        self.cached: Cached | None = None
        self.counted_in: Computation | None = None
        self.is_done = False
        self.span = computation.span

    def copy(self) -> Task:
        """The same, of a run that no one waits for, while the task may be run again."""
        copy = Task(self.computation)
        for name in self.__slots__:
            setattr(copy, name, getattr(self, name))
        return copy


def name_of_plain(key: Hashable, state: TaskState | None) -> str:
    """The name of a task's function where its key has none, as ``"c"`` and ``7``; else empty."""
    if type(key) is tuple or (type(key) is str and "-" in key):
        return ""
    try:
        function = getattr(state.run_spec, "func", None) if state is not None else None
        return "" if function is None else str(funcname(function))
    except Exception:
        # Whatever the user made of it: the key has to do.
        return ""
