"""The frames of all threads, read without a deadlock."""

from __future__ import annotations

import gc
import operator
import sys
from collections.abc import Callable
from functools import partial
from itertools import takewhile
from types import FrameType
from typing import Any

__all__ = ["current_frames"]

_COLLECTS_WHILE_IT_READS = sys.version_info[:2] == (3, 11)
"""
Whether Python may collect garbage while it reads the frames: Python 3.11 makes frame objects then,
and holds the lock of its list of threads. What is collected may wait for that lock, as a
`threading.local` does, or for a thread that starts and waits for it: the program stands still.
"""

_is_not_false = partial(operator.is_not, False)


def current_frames() -> dict[int, FrameType]:
    """The innermost frame of each thread, by its ident, as `sys._current_frames` has it."""
    if not _COLLECTS_WHILE_IT_READS:
        return sys._current_frames()
    # Four calls with no step of Python between them: no other thread can run and find the
    # collector off, or switch it off itself and have it on again. The first says whether it is on.
    steps: tuple[Callable[[], Any], ...]
    steps = (gc.isenabled, gc.disable, sys._current_frames, gc.enable)
    try:
        results = list(takewhile(_is_not_false, map(operator.call, steps)))
    except BaseException:
        gc.enable()
        raise
    frames: dict[int, FrameType] = results[2] if results else sys._current_frames()
    return frames
