"""Tracebacks of the user's errors without the frames of this package that they passed through.

What calls the user's code registers its code in `passes_errors_on`, catches what comes, calls
`take_out_own_frames` and raises it again, bare::

    try:
        result = task(values)
    except BaseException as error:
        take_out_own_frames(error)
        raise

A frame is entered into a traceback once, when the error comes to it, and not when it is raised
again: so the frame of the function above is gone. It is freed, too, with what it holds.
"""

from __future__ import annotations

import sys
from types import TracebackType

__all__ = ["passes_errors_on", "take_out_own_frames", "traceback_of"]

passes_errors_on: set[int] = set()
"""The ``id()`` of the code of functions that raise errors of the user's again."""

_traceback = vars(BaseException)["__traceback__"]


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an error, whose class may refuse to have attributes read."""
    traceback: TracebackType | None = _traceback.__get__(error)
    return traceback


def take_out_own_frames(error: BaseException) -> None:
    """Take the frames that passed an error on out of its traceback, while it is handled.

    All of them: an object that several tasks raise has the frames of each. The class of the error
    may refuse to have attributes read or set: it is not asked.
    """
    before = sys.exc_info()[2]
    first = _next_of_others(before)
    if first is not before:
        BaseException.with_traceback(error, first)
        _have_raised_again(error, first)
    entry = first
    while entry is not None:
        following = _next_of_others(entry.tb_next)
        if following is not entry.tb_next:
            entry.tb_next = following
        entry = following


def _next_of_others(entry: TracebackType | None) -> TracebackType | None:
    """The entry, or the next after it that is not of a frame that passed the error on."""
    while entry is not None and id(entry.tb_frame.f_code) in passes_errors_on:
        entry = entry.tb_next
    return entry


if sys.version_info >= (3, 11):

    def _have_raised_again(error: BaseException, traceback: TracebackType | None) -> None:
        """Have a bare ``raise`` raise it with this traceback: it takes the error's own."""

else:
    import ctypes

    def _have_raised_again(error: BaseException, traceback: TracebackType | None) -> None:
        """Have a bare ``raise`` raise it with this traceback.

        Up to Python 3.10 it takes the one that was noted beside the error when it was caught.
        """
        handled = (type(error), error, traceback)
        for value in handled:
            # What is called below keeps the references that it is given.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        ctypes.pythonapi.PyErr_SetExcInfo(*map(ctypes.py_object, handled))
