"""Exceptions as text, and tracebacks without this package's frames."""

from __future__ import annotations

import sys
import sysconfig
from types import TracebackType
from typing import NamedTuple

passes_errors_on: set[int] = set()
"""The ``id()`` of the code of functions that raise errors of the user's again."""

_traceback = vars(BaseException)["__traceback__"]


def traceback_of(error: BaseException) -> TracebackType | None:
    """The traceback of an error, whose class may refuse to have attributes read."""
    traceback: TracebackType | None = _traceback.__get__(error)
    return traceback


def take_out_own_frames(error: BaseException) -> None:
    """Remove this package's frames from the traceback of a handled error.

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
    """The first entry, from this entry on, of a frame outside this package."""
    while entry is not None and id(entry.tb_frame.f_code) in passes_errors_on:
        entry = entry.tb_next
    return entry


if sys.version_info >= (3, 11):

    def _have_raised_again(error: BaseException, traceback: TracebackType | None) -> None:
        """Do nothing: a bare ``raise`` takes the error's own traceback."""

else:
    import ctypes

    def _have_raised_again(error: BaseException, traceback: TracebackType | None) -> None:
        """Replace the traceback with which a bare ``raise`` raises an error.

        Up to Python 3.10 it takes the one that was noted beside the error when it was caught.
        """
        handled = (type(error), error, traceback)
        for value in handled:
            # What is called below keeps the references that it is given.
            ctypes.pythonapi.Py_IncRef(ctypes.py_object(value))
        ctypes.pythonapi.PyErr_SetExcInfo(*map(ctypes.py_object, handled))


_LONGEST_READ = 2000
"""Characters of a message that are looked at: one may have a whole array in it."""
_LONGEST = 300
_LIBRARIES = tuple(
    {f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class Failure(NamedTuple):
    """The message of an exception, and the line of the user's code."""

    message: str = ""
    location: str = ""


NO_FAILURE = Failure()


def failure_of(error: BaseException) -> Failure:
    """Message and location of an exception; nothing of the exception is kept alive.

    The line is the innermost that belongs to no library, or else the innermost. Whatever fails
    here, as the message of an exception may, is left out.
    """
    return Failure(_text(error), _location(traceback_of(error)))


def _text(error: BaseException) -> str:
    try:
        return _masked(str(error))
    except Exception:
        return ""


def _location(traceback: TracebackType | None) -> str:
    try:
        chosen = None
        while traceback is not None:
            if chosen is None or _is_users(traceback) or not _is_users(chosen):
                chosen = traceback
            traceback = traceback.tb_next
        if chosen is None:
            return ""
        code, line = chosen.tb_frame.f_code, chosen.tb_lineno
        return f"{code.co_filename}:{line} in {code.co_name}"
    except Exception:
        return ""


def _is_users(traceback: TracebackType) -> bool:
    """Whether a line is of the user's program; of the libraries' dask_diag is one."""
    file = traceback.tb_frame.f_code.co_filename
    module = str(traceback.tb_frame.f_globals.get("__name__", ""))
    return not (
        file.startswith((*_LIBRARIES, "<frozen"))
        or module.partition(".")[0] in ("dask_diag", "dask", "distributed")
    )


def _masked(text: str) -> str:
    from dask_diag.system.secrets import redacted_text

    masked = redacted_text(text[:_LONGEST_READ])
    return masked if len(masked) <= _LONGEST else masked[: _LONGEST - 1] + "…"
