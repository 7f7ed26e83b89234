"""The threads that run tasks, as these find them in one step."""

from __future__ import annotations

import os
import threading
from math import inf
from threading import get_ident, get_native_id

__all__ = ["NO_THREAD", "TaskThread", "ThisThread", "this_thread"]


class TaskThread:
    """A thread that runs tasks.

    Attributes
    ----------
    ident, native_id : int
    tasks : int
        How many it has started that are sampled.
    due : float
        The number of the next one before which something is to be read.
    """

    __slots__ = ("due", "ident", "native_id", "tasks")

    def __init__(self, ident: int, native_id: int) -> None:
        self.ident = ident
        self.native_id = native_id
        self.tasks = 0
        self.due: float = inf


NO_THREAD = TaskThread(0, 0)
"""Of a task that has not started."""


class ThisThread(threading.local):
    """The thread that asks, as `now`: the system takes longer to say its ids than to look it up."""

    def __init__(self) -> None:
        self.now = TaskThread(get_ident(), get_native_id())


this_thread = ThisThread()
"""Where nothing is to be read before a task."""

if hasattr(os, "register_at_fork"):
    # The child of a fork has one thread, of another native id.
    os.register_at_fork(after_in_child=this_thread.__init__)  # type: ignore[misc]
