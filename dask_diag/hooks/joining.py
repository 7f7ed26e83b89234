"""Schedulers of dask that run already: hooks are put into them, and taken out of them again.

A scheduler reads its hooks from its local variables: ``started_cbs`` has the callbacks to call at
the end, and a cell of the inner function ``fire_tasks`` the hooks to call before each task. Those
to call after a task cannot be replaced before Python 3.13; but the scheduler adds each key to the
set of finished keys, which it never reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Hashable, Iterator
from contextlib import contextmanager
from types import CellType, FrameType
from typing import Any, NamedTuple

import dask.local

from dask_diag.hooks.stack import (
    CallbackTuple,
    Graph,
    SchedulerState,
    clear_copy,
    frames_from,
    outermost_scheduler,
)
from dask_diag.system.code import current_frames
from dask_diag.system.interpreter import has_gil

_CODE = dask.local.get_async.__code__
_NEEDED = {"dsk", "fire_tasks", "posttask_cbs", "pretask_cbs", "results", "started_cbs", "state"}


def why_not_joined() -> str:
    """Why computations that run cannot be joined here; empty if they can."""
    if not has_gil():
        return "without a GIL the variables of another thread must not be read"
    missing = _NEEDED.difference(_CODE.co_varnames, _CODE.co_cellvars)
    return f"this version of dask lacks {', '.join(sorted(missing))}" if missing else ""


class RunningScheduler(NamedTuple):
    """A thread that runs a scheduler, whose frame must not be kept."""

    ident: int
    native_id: int
    frame: FrameType


@contextmanager
def running_schedulers() -> Iterator[list[RunningScheduler]]:
    """The schedulers that run in other threads, without those that tasks started."""
    frames = current_frames()
    found = []
    try:
        for thread in threading.enumerate():
            scheduler = outermost_scheduler(frames.get(thread.ident or 0))
            if scheduler is not None and thread.ident and thread.native_id:
                found.append(RunningScheduler(thread.ident, thread.native_id, scheduler))
        yield found
    finally:
        # The frame of this call is among them, and would keep all alive in a circle.
        frames.clear()
        found.clear()


class Variables(NamedTuple):
    """Variables of a scheduler whose graph is in order; `before` has its hooks before tasks."""

    dsk: Graph
    state: SchedulerState
    results: Collection[Hashable]
    started: list[CallbackTuple]
    before: CellType
    after: Collection[Callable[..., object]]

    @classmethod
    def of(cls, frame: FrameType) -> Variables | None:
        """Those of a scheduler's frame; None while its graph is put in order."""
        found: Any = frame.f_locals
        try:
            inner = found["fire_tasks"]
            cell = inner.__closure__[inner.__code__.co_freevars.index("pretask_cbs")]
            names = "dsk", "state", "results", "started_cbs"
            dsk, state, results, started = map(found.__getitem__, names)
            return cls(dsk, state, results, started, cell, found["posttask_cbs"])
        except KeyError:
            return None
        finally:
            # A copy would keep the result of a task.
            clear_copy(found)

    @property
    def goes_on(self) -> bool:
        """Whether tasks are left."""
        return any(map(self.state.get, ("running", "ready", "waiting")))

    def put_in(
        self,
        before: Callable[..., object],
        after: Callable[[Hashable], object],
        end: Callable[..., object],
    ) -> None:
        """Call hooks before and after tasks, and at the end, from now on."""
        finished = _Finished(self.state["finished"])
        finished.call = after
        state: Any = self.state
        former, state["finished"] = state["finished"], finished
        # A task may have ended while they were copied.
        finished.update(former)
        self.before.cell_contents = [*self.before.cell_contents, before]
        self.started.append((None, None, None, None, end))

    def take_out(self, owners: Collection[object]) -> None:
        """Take out the hooks that are methods of some objects."""
        state: Any = self.state
        if isinstance(state.get("finished"), _Finished):
            state["finished"] = set(state["finished"])
        self.started[:] = [
            callback
            for callback in self.started
            if not any(_is_of(hook, owners) for hook in callback)
        ]
        for hooks in (self.before.cell_contents, self.after):
            if isinstance(hooks, list):
                # They are the last ones: a scheduler that calls one after the other skips none.
                hooks[:] = [hook for hook in hooks if not _is_of(hook, owners)]


def _is_of(hook: object, owners: Collection[object]) -> bool:
    owner = getattr(hook, "__self__", None)
    return any(owner is one for one in owners)


class _Finished(set):  # type: ignore[type-arg]
    """The finished keys of a scheduler, which calls a function for each that is added."""

    __slots__ = ("call",)
    call: Callable[[Hashable], object]

    def add(self, key: Hashable) -> None:
        super().add(key)
        self.call(key)


def is_in(ident: int, files: Collection[str]) -> bool:
    """Whether a thread runs code of one of some files now."""
    frames = current_frames()
    try:
        return any(frame.f_code.co_filename in files for frame in frames_from(frames.get(ident)))
    finally:
        frames.clear()
