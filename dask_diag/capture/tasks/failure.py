"""What an exception says, and where it was raised: as text, without what looks like a secret."""

from __future__ import annotations

import sysconfig
from types import TracebackType
from typing import NamedTuple

from dask_diag.capture.tracebacks import traceback_of

__all__ = ["NO_FAILURE", "Failure", "failure_of"]

_LONGEST_READ = 2000
"""Characters of a message that are looked at: one may have a whole array in it."""
_LONGEST = 300
_LIBRARIES = tuple(
    {f"{sysconfig.get_paths()[name]}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")}
)


class Failure(NamedTuple):
    """The message of an exception, and the line of the user's code that led to it."""

    message: str = ""
    location: str = ""


NO_FAILURE = Failure()


def failure_of(error: BaseException) -> Failure:
    """What to record of an exception; nothing of it is kept alive.

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
    from dask_diag.capture.system.redaction.text import redacted_text

    masked = redacted_text(text[:_LONGEST_READ])
    return masked if len(masked) <= _LONGEST else masked[: _LONGEST - 1] + "…"
