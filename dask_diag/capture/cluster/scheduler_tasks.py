"""What the scheduler's side of capture has of each task that the scheduler has.

This module is shipped: see `scheduler_plugin`.
"""

from __future__ import annotations

from typing import NamedTuple

from dask_diag.capture.cluster.scheduler_sessions import Computation

__all__ = ["Cached", "Task"]


class Cached(NamedTuple):
    """A result in distributed memory. Its task may be in a later graph, too."""

    computation: Computation
    nbytes: float
    start: float


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
