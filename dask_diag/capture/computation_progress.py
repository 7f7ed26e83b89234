"""How far computations are: read from the scheduler's state when somebody asks, never per task."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from types import FrameType
from typing import NamedTuple

from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import calls_of_threads, codes_of_dask_calls
from dask_diag.capture.system.frames import current_frames
from dask_diag.schema import ProgressPhase

__all__ = ["ProgressInfo", "open_calls", "progress_of"]


class ProgressInfo(NamedTuple):
    """A row of `Recording.progress`."""

    computation: str
    phase: str
    since: float
    total: int
    finished: int
    ready: int
    waiting: int
    running: int


def progress_of(computation: Computation) -> ProgressInfo | None:
    """How far it is; None if it has ended."""
    state, planned, dsk = computation.state, computation.planned, computation.dsk
    if planned is None:
        phase, since, total = ProgressPhase.ORDERING, computation.start, len(dsk)
    else:
        phase, since = ProgressPhase.TASKS, computation.prepared or computation.start
        total = planned.total
    finished = len(state.get("finished", ()))
    info = ProgressInfo(
        computation=computation.name,
        phase=phase,
        since=since,
        total=total,
        finished=finished,
        # The scheduler goes on while this is read: what is in two places is counted once.
        running=(running := min(len(state.get("running", ())), total - finished)),
        ready=(ready := min(len(state.get("ready", ())), total - finished - running)),
        waiting=total - finished - running - ready if planned else 0,
    )
    # At its end its state is released: what was read may be of that.
    return info if computation.finished is None else None


def open_calls(started: Collection[float]) -> Iterator[ProgressInfo]:
    """The calls of dask that go on and have not come to a computation yet.

    Parameters
    ----------
    started : collection of float
        When dask was called for computations that have started.
    """
    threads = tuple(calls_of_threads.items())
    if not threads:
        return
    frames = current_frames()
    try:
        for ident, calls in threads:
            times = _open_times(frames.pop(ident, None), calls.times)
            # A computation inside another's call, as an optimization may start one, is its own.
            if times and max(times) not in started:
                yield ProgressInfo("", ProgressPhase.GRAPH, max(times), 0, 0, 0, 0, 0)
    finally:
        # The frame of this call is among them, and would keep all alive in a circle.
        frames.clear()


def _open_times(frame: FrameType | None, times: dict[int, float]) -> list[float]:
    """When the functions of dask on a stack were called, of those that were noted."""
    called = []
    while frame is not None:
        if id(frame.f_code) in codes_of_dask_calls and id(frame) in times:
            called.append(times[id(frame)])
        frame = frame.f_back
    return called
