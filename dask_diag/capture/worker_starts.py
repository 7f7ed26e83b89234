"""Worker processes that start, and run the main module again, and the end of broken pools."""

from __future__ import annotations

import ast
import signal
import sys
from collections.abc import Iterable, Iterator
from time import perf_counter, sleep
from types import FrameType

_LONGEST_WAIT = 0.5
"""Seconds for which the exit status of a process is waited for that has ended already."""
_PAUSE = 0.005


def runs_main_again() -> bool:
    """Whether this is a starting worker process, in the import of the main module.

    What the program does there is not for it. Without ``if __name__ == "__main__"`` it comes to
    what computes, and multiprocessing raises an error that says so.
    """
    processes = sys.modules.get("multiprocessing.process")
    if processes is None:
        return False
    # As multiprocessing itself knows it.
    return bool(getattr(processes.current_process(), "_inheriting", False))


def end_of_pool(error: BaseException | None, submit: object, frame: FrameType) -> str:
    """End of the worker process that broke a pool; empty if none did, or if it is not known.

    Parameters
    ----------
    error : exception or None
        The error that ended the computation.
    submit : callable
        The pool's method.
    frame : frame
        From where the main module is looked for that called.

    Returns
    -------
    str
        ``exit 1``, ``SIGKILL``, or ``unguarded``: see the column `pool_end` of computations.
    """
    if type(error).__name__ != "BrokenProcessPool":
        return ""
    pool = getattr(submit, "__self__", None)
    status = _first_status(list((getattr(pool, "_processes", None) or {}).values()))
    if status is None:
        return ""
    if status < 0:
        try:
            return signal.Signals(-status).name
        except ValueError:
            return f"signal {-status}"
    if status == 1 and _method_of(pool) in ("spawn", "forkserver") and _is_unguarded(frame):
        return "unguarded"
    return f"exit {status}"


def _first_status(processes: list[object]) -> int | None:
    """Exit status of a process that ended by itself: the pool ends the others by SIGTERM.

    The pool's own thread is about to ask for it. Of a process of a forkserver only one can.
    """
    until = perf_counter() + _LONGEST_WAIT
    while True:
        ended = [getattr(getattr(p, "_popen", None), "returncode", None) for p in processes]
        by_themselves = [code for code in ended if code not in (None, -signal.SIGTERM)]
        if by_themselves:
            return int(by_themselves[0])
        if None not in ended or perf_counter() > until:
            return None
        sleep(_PAUSE)


def _method_of(pool: object) -> str:
    context = getattr(pool, "_mp_context", None)
    return str(context.get_start_method()) if context is not None else ""


def _is_unguarded(frame: FrameType | None) -> bool:
    """Whether worker processes that run the main module come to what it has called, too."""
    from dask_diag.system.code import parsed

    main = sys.modules.get("__main__")
    path = getattr(main, "__file__", None)
    if path is None:
        # They run nothing again of a prompt, a notebook or -c.
        return False
    called_at = 0
    while frame is not None:
        if frame.f_code.co_name == "<module>" and frame.f_globals is vars(main):
            called_at = frame.f_lineno
        frame = frame.f_back
    try:
        with open(path, "rb") as file:
            tree = parsed(file.read().decode())
    except (OSError, UnicodeDecodeError):
        return False
    if tree is None:
        return False
    guarded = list(_guarded_lines(tree.body))
    # Another thread may have called: then it counts whether there is any guard.
    return not any(called_at in lines for lines in guarded) if called_at else not guarded


def _guarded_lines(body: Iterable[ast.stmt]) -> Iterator[range]:
    """The lines that are run in the program's own process alone."""
    for statement in body:
        if isinstance(statement, ast.If) and "'__main__'" in ast.unparse(statement.test):
            last = statement.body[-1]
            yield range(statement.lineno, (last.end_lineno or last.lineno) + 1)
