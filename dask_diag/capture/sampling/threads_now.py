"""What the threads of this process run now: their tasks, and their frames at one moment.

All that sample at one tick share one reading of the frames: it costs each of them CPU time that the
sampler would else have for more samples, and time in which it keeps the GIL.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple, Protocol

__all__ = ["ThreadFrames", "forget_frames", "running_tasks", "share_frames", "thread_frames"]


class RunningTask(Protocol):
    """One run of a task, with the task probe of each probe."""

    def task_probe(self, kind: type) -> Any:
        """The task probe of a kind of probe; None if there is none, or the task has not started."""


running_tasks: dict[int, RunningTask] = {}
"""The run of a probed task on each thread, by the thread's ident."""


class ThreadFrames(NamedTuple):
    """What all threads but the one that asks executed at one moment.

    Attributes
    ----------
    tasks : dict
        The tasks that ran just before, by the thread's ident.
    frames : mapping
        The innermost frame of each thread, by its ident. Not to be kept: it holds the user's data.
    now : float
        When they were read, in seconds of ``time.perf_counter()``.
    """

    tasks: dict[int, RunningTask]
    frames: Mapping[int, FrameType]
    now: float


_shared: dict[int, ThreadFrames | None] = {}
"""Of a thread that shares its frames: what it has read, if it has."""


def share_frames() -> None:
    """From now on `thread_frames` reads once on this thread, until `forget_frames`."""
    _shared[get_ident()] = None


def forget_frames() -> None:
    """Release what was read on this thread, and share no more."""
    _shared.pop(get_ident(), None)


def thread_frames() -> ThreadFrames:
    """The frames of all other threads, as they are now; or as they were, if they are shared."""
    ident = get_ident()
    shared = _shared.get(ident)
    if shared is not None:
        return shared
    tasks = running_tasks.copy()
    frames = sys._current_frames()
    # The frame of this call would keep all alive in a circle.
    frames.pop(ident, None)
    read = ThreadFrames(tasks, frames, perf_counter())
    if ident in _shared:
        _shared[ident] = read
    return read


if hasattr(os, "register_at_fork"):
    # The child of a fork has none of these threads, and may have others of the same idents.
    os.register_at_fork(after_in_child=_shared.clear)
