"""The frames of all threads, read so that the program neither stands still nor crashes."""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import TypeVar, cast

__all__ = ["current_frames"]

_COLLECTS_WHILE_IT_READS = sys.version_info[:2] == (3, 11)
"""
Whether Python may collect garbage while it reads frames. Python 3.11 makes an object of each frame
when it is first asked for, also by ``f_back``, and may collect before it does. What is collected
may wait for the lock of the list of threads, as a `threading.local` does, which is held meanwhile:
the program stands still. Or it lets other threads run, and the frame that was to be made is gone.
"""

T = TypeVar("T")

_MOST_CALLS = 10_000
_is_not_false = partial(operator.is_not, False)
_make_callers = operator.attrgetter(".".join(["f_back"] * _MOST_CALLS))
"""Asks for a frame's caller, for that one's, and so on; the outermost frame's has none."""


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its ident, as `sys._current_frames` has it.

    That of each caller can be read from it at any time.
    """
    if not _COLLECTS_WHILE_IT_READS:
        return sys._current_frames()
    read = _without_collecting(sys._current_frames)
    frames = read[0] if read else sys._current_frames()
    for frame in frames.values():
        try:
            _without_collecting(partial(_make_callers, frame))
        except AttributeError:
            # This is how the outermost frame is reached.
            continue
    return frames


def _without_collecting(read: Callable[[], T]) -> list[T]:
    """What a function returns, alone in a list; an empty one if nothing is ever collected."""
    # Four calls with no step of Python between them: no other thread can run and find the
    # collector off, or switch it off itself and have it on again. The first says whether it is on.
    steps: tuple[Callable[[], object], ...] = (gc.isenabled, gc.disable, read, gc.enable)
    try:
        results = list(takewhile(_is_not_false, map(operator.call, steps)))
    except BaseException:
        gc.enable()
        raise
    return cast("list[T]", results[2:3])
