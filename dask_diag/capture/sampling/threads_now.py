"""What the threads of this process run now: their tasks, and their frames at one moment.

All that sample at one tick share one reading of the frames: it costs each of them CPU time that the
sampler would else have for more samples, and time in which it keeps the GIL.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple, Protocol

from dask_diag.capture.system.frames import current_frames
from dask_diag.capture.tasks.remote_task import running

__all__ = [
    "TaskProbe",
    "ThreadFrames",
    "forget_frames",
    "running_now",
    "running_tasks",
    "share_frames",
    "thread_frames",
]


class TaskProbe(Protocol):
    """One run of a task, as one probe samples it.

    Attributes
    ----------
    start : float
        When the task started.
    """

    start: float


TaskProbes = Mapping[type, Any]
"""The task probe of each probe that has sampled a run, by the probe's type."""


class RunNow(Protocol):
    """One run of a task, with the task probe of each probe."""

    @property
    def start(self) -> float | None:
        """When the task started; None if it has not."""

    def task_probe(self, kind: type) -> Any:
        """The task probe of a kind of probe; None if there is none, or the task has not started."""

    def goes_on(self, task_probe: TaskProbe) -> bool:
        """Whether the run that this task probe samples has not ended."""


running_tasks: dict[int, RunNow] = {}
"""The run of a worker's probed task on each thread, by the thread's ident.

Tasks of this process's own computations are not in it: see `running_now`.
"""


class _Thread(Protocol):
    """A thread that runs tasks."""

    ident: int


class _Wrapper(RunNow, Protocol):
    """Of a task of this process's own computations: its thread's ident is 0 until it starts."""

    @property
    def runs_on(self) -> _Thread:
        """The thread that runs it."""

    stop: float | None


class _Computation(Protocol):
    """Who has not asked for samples has wrappers that do not say on which thread they are."""

    probes: Mapping[type, object]
    wrappers: list[_Wrapper]


_computations: Mapping[int, _Computation] = running  # type: ignore[assignment]


def running_now() -> dict[int, RunNow]:
    """The run of a probed task on each thread, by the thread's ident: the innermost of several.

    It is to be quick: tasks that wake up meanwhile would be seen to wait for the GIL.
    """
    runs = running_tasks.copy()
    for computation in tuple(_computations.values()):
        for wrapper in tuple(computation.wrappers) if computation.probes else ():
            start, ident = wrapper.start, wrapper.runs_on.ident
            if start is None or wrapper.stop is not None or not ident:
                continue
            other = runs.get(ident)
            if other is None or (other.start or 0.0) < start:
                runs[ident] = wrapper
    return runs


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

    tasks: dict[int, RunNow]
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
    tasks = running_now()
    frames = current_frames()
    # The frame of this call would keep all alive in a circle.
    frames.pop(ident, None)
    read = ThreadFrames(tasks, frames, perf_counter())
    if ident in _shared:
        _shared[ident] = read
    return read


if hasattr(os, "register_at_fork"):
    # The child of a fork has none of these threads, and may have others of the same idents.
    os.register_at_fork(after_in_child=_shared.clear)
