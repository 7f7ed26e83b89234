"""Time and place of calls of dask: for the user, a computation is a call of ``dask.compute``.

Callbacks hear of it when its graph is made, until its last task is collected. While a diagnostic is
active, the first and the last function that a call of dask calls note the time.

The place of the call needs no note: the caller is on the stack of the scheduler's thread when a
computation starts. It is read once then, from the inside out up to the user's first line: some ten
frames, of which the name of the file is read.
"""

from __future__ import annotations

import os
import sys
import threading
from array import array
from collections.abc import Callable
from functools import update_wrapper
from time import perf_counter, thread_time
from types import CodeType, FrameType
from typing import Any, NamedTuple

import dask.base

from dask_diag.capture.failures import passes_errors_on, take_out_own_frames
from dask_diag.capture.task import this_thread
from dask_diag.hooks.stack import frames_from, is_in_task
from dask_diag.system.code import LIBRARY, USER, name_of_cell, owner_of_file


class DaskCalls(NamedTuple):
    """A thread that called dask: when, by the id of the frame of the function of dask."""

    native_id: int
    times: dict[int, float]


calls_of_threads: dict[int, DaskCalls] = {}
"""The threads that called dask to compute, outside tasks, by ident; calls may have ended since."""
returned_calls: dict[int, array[float]] = {}
"""Where calls that return are noted, by ``id()``: the time of each call, and that of its return."""
_called = threading.local()
_CALLED_FIRST = {
    "compute": "unpack_collections",
    "persist": "unpack_collections",
    "compute_as_if_collection": "get_scheduler",
}
"""First call of each function of ``dask.base`` that runs computations.

``compute`` and ``persist`` end with a call of the second result of ``unpack_collections``. When the
third one returns is not known.
"""


def start_noting_calls() -> None:
    """Note the time of calls of dask from now on."""
    for name, (original, noting) in _replaced.items():
        if getattr(dask.base, name) is original:
            setattr(dask.base, name, noting)


def stop_noting_calls() -> None:
    """Undo `start_noting_calls`."""
    calls_of_threads.clear()
    for name, (original, noting) in _replaced.items():
        if getattr(dask.base, name) is noting:
            setattr(dask.base, name, original)


def when_called(scheduler: FrameType | None) -> float | None:
    """Time of the call of dask that runs the scheduler in a frame, in seconds of ``perf_counter``.

    None where the scheduler was called without one, as ``dask.get`` is, or before a diagnostic was
    active.
    """
    times = _times_of_calls()
    for frame in frames_from(scheduler or sys._getframe(1)) if times else ():
        if id(frame) in times and frame.f_code in _CALLERS:
            return times[id(frame)]
    return None


def call_site(scheduler: FrameType | None) -> str:
    """The line with the call of dask that runs the scheduler in a frame, as ``file.py:12``.

    It is empty if no line of the program, or of a library, is on the stack.
    That is the innermost line of the user's, also if a library called dask for it; without one it
    is the innermost line of a library. The folder of a file is left out, as it may name a person.
    """
    location = ""
    for frame in frames_from(scheduler or sys._getframe(1)):
        file = frame.f_code.co_filename
        owner = owner_of_file(file)
        if owner == USER:
            return _location(file, frame)
        if owner == LIBRARY and not location:
            location = _location(file, frame)
    return location


def _location(file: str, frame: FrameType) -> str:
    """A file's name, or the name of a notebook's cell in IPython, and a frame's line."""
    place = file, frame.f_lineno
    return _locations.get(place) or _note_location(place)


_locations: dict[tuple[str, int], str] = {}
"""One text for all computations of a line."""
_MOST_LOCATIONS = 1000


def _note_location(place: tuple[str, int]) -> str:
    file, line = place
    name = name_of_cell(file) or os.path.basename(file)
    if len(_locations) >= _MOST_LOCATIONS:
        _locations.clear()
    return _locations.setdefault(place, f"{name}:{line}")


def _times_of_calls() -> dict[int, float]:
    """Times of the open calls of dask on this thread, by the ids of the frames."""
    times: dict[int, float] = _called.__dict__.setdefault("times", {})
    return times


_MOST_CALLS = 16
"""Noted calls from which on those that have ended are looked for: it takes a walk of the stack."""


def _note_call(caller: FrameType) -> float:
    """Note the time, and return it, for a function of dask that has just been called.

    It goes by the id of its frame: to hold the frame would keep the user's arrays. Ids of frames
    that are not on the stack any more may be used again.
    """
    times = _times_of_calls()
    if len(times) > _MOST_CALLS:
        for frame in set(times).difference(map(id, frames_from(caller))):
            del times[frame]
    times[id(caller)] = now = perf_counter()
    thread = this_thread.now
    # Whoever reads it sees by a new object that the thread has called again.
    if thread.ident in calls_of_threads or not is_in_task(caller):
        calls_of_threads[thread.ident] = DaskCalls(thread.native_id, times)
    return now


def spend_on_noting(began: float) -> None:
    """Count the CPU time of this thread since `began`."""
    _called.cpu = take_cpu_of_noting() + thread_time() - began


def take_cpu_of_noting() -> float:
    """Take the CPU seconds of noting calls on this thread, since the previous call."""
    cpu: float = _called.__dict__.pop("cpu", 0.0)
    return cpu


def _noting(name: str) -> tuple[Callable[..., object], Callable[..., object]]:
    """A function of ``dask.base``, and a replacement with notes of calls."""
    original: Callable[..., object] = getattr(dask.base, name)

    def noting(*args: object, **kwargs: object) -> object:
        caller = sys._getframe(1)
        called, is_outside = 0.0, False
        if _CALLERS.get(caller.f_code) == name:
            began = thread_time()
            called = _note_call(caller)
            # Computations inside of tasks are not recorded.
            is_outside = name == "unpack_collections" and not is_in_task(caller)
            spend_on_noting(began)
        try:
            made: Any = original(*args, **kwargs)
        except BaseException as error:
            take_out_own_frames(error)
            raise
        if not is_outside:
            return made
        collections, repack = made
        return collections, _noting_return(repack, called)

    passes_errors_on.add(id(noting.__code__))
    return original, update_wrapper(noting, original)


def _noting_return(repack: Callable[[object], object], called: float) -> Callable[[object], object]:
    """The function that puts results together, which notes when it has."""

    def noting(results: object) -> object:
        try:
            made = repack(results)
        except BaseException as error:
            take_out_own_frames(error)
            raise
        times = array("d", (called, perf_counter()))
        for log in returned_calls.copy().values():
            log.extend(times)
        return made

    passes_errors_on.add(id(noting.__code__))
    return noting


_CALLERS: dict[CodeType, str] = {
    getattr(dask.base, caller).__code__: first
    for caller, first in _CALLED_FIRST.items()
    if hasattr(dask.base, caller) and hasattr(dask.base, first)
}
codes_of_dask_calls = frozenset(map(id, _CALLERS))
"""The ids of the code of functions of dask that run computations."""
_replaced = {name: _noting(name) for name in set(_CALLERS.values())}
