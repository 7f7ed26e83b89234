"""Threads that take turns as a test says: no interleaving is left to chance."""

from __future__ import annotations

import sys
import threading
from collections import Counter
from contextlib import contextmanager
from pathlib import Path

import dask_diag

PACKAGE = str(Path(dask_diag.__file__).parent)
PATIENCE = 10
"""Seconds to wait for another thread before a test fails; passed only by a defect."""


class Thread(threading.Thread):
    """A thread that hands on its result, or its exception, when it is joined."""

    def __init__(self, work, *args):
        super().__init__(daemon=True)
        self._work, self._args = work, args
        self._error = self._result = None
        self.start()

    def run(self):
        try:
            self._result = self._work(*self._args)
        except BaseException as error:
            self._error = error

    def result(self):
        self.join(PATIENCE)
        assert not self.is_alive(), "the thread still runs: is it blocked?"
        if self._error is not None:
            raise self._error
        return self._result


def await_event(event):
    """Wait for another thread; fail if it does not come."""
    assert event.wait(PATIENCE), "what was waited for did not happen"


class HookedLock:
    """A lock that says whether it is held, and calls `released` with the function that released it.

    A reader on the thread that holds it would see what it keeps others from seeing.
    """

    def __init__(self, lock, released=None):
        self._lock, self._released = lock, released
        self.held = 0

    def __enter__(self):
        self._lock.__enter__()
        self.held += 1

    def __exit__(self, *args):
        self.held -= 1
        self._lock.__exit__(*args)
        if self._released is not None:
            self._released(sys._getframe(1).f_code.co_name)

    def acquire(self, *args, **kwargs):
        got = self._lock.acquire(*args, **kwargs)
        self.held += got
        return got

    def release(self):
        self.held -= 1
        self._lock.release()


@contextmanager
def at_every_line(work, *, inside="", outside=(), files=PACKAGE, times=2):
    """Call `work` at every line of the package that this thread runs in the block.

    What it sees is what another thread can see there. The first exception that it raises is raised
    at the end of the block, with the line: raised at once, it would be one of the code under test.

    Parameters
    ----------
    work : callable
    inside : str, optional
        Only lines of that function, and of those that it calls.
    outside : tuple of str, optional
        No lines of these functions, as ``file.py:function``: they have a lock that `work` takes.
    files : str or tuple of str, optional
        How the names of the files begin.
    times : int, optional
        How often at a line that runs several times.
    """
    working, errors, runs = False, [], Counter()

    def trace(frame, event, arg):
        nonlocal working
        if working or errors or not frame.f_code.co_filename.startswith(files):
            return None
        if event != "line":
            return trace
        line = frame.f_code, frame.f_lineno
        if runs[line] >= times:
            return trace
        if inside and not _is_inside(frame, lambda code: code.co_name == inside):
            return None
        if outside and _is_inside(frame, lambda code: _name_of(code).endswith(outside)):
            return None
        runs[line] += 1
        working = True
        try:
            work()
        except Exception as error:
            location = f"at {frame.f_code.co_filename}:{frame.f_lineno} ({event})"
            errors.append((location, error))
        finally:
            working = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)
    if errors:
        location, error = errors[0]
        raise AssertionError(f"{location}: {error!r}") from error


def at_each_line(make, files=PACKAGE, outside=()):
    """Once for each line of a function that reads: another thread works when it gets there.

    Parameters
    ----------
    make : callable
        Makes a function that reads, one that works, and one that checks what was read. When there
        is no more line it is called a last time, to work after all lines.
    files, outside
        As in `at_every_line`.

    Returns
    -------
    int
        At how many lines it was.
    """
    number = 0
    reached = True
    while reached:
        number += 1
        read, work, check = make()
        reached, result = _at_line(number, read, work, files, outside)
        if not reached:
            work()
        check(result)
    return number - 1


def _at_line(number, read, work, files, outside):
    """Whether there are so many lines, each counted once; and what was read."""
    lines, errors = set(), []

    def trace(frame, event, arg):
        if event == "line" and len(lines) < number:
            lines.add((frame.f_code, frame.f_lineno))
            if len(lines) == number:
                locked = _is_inside(frame, lambda code: _name_of(code).endswith(outside))
                if outside and locked:
                    errors.append(None)
                    return trace
                try:
                    work()
                except Exception as error:
                    error.args = (f"at {frame.f_code.co_filename}:{frame.f_lineno}: {error}",)
                    errors.append(error)
                # The lines that follow are not counted: to trace them takes longer than to run them.
                sys.settrace(None)
                return None
        return trace

    def enter(frame, event, arg):
        called = frame.f_code.co_filename.startswith(files) and len(lines) < number
        return trace if called else None

    before = sys.gettrace()
    sys.settrace(enter)
    try:
        result = read()
    finally:
        sys.settrace(before)
    if errors == [None]:
        # There it cannot work: it does afterwards.
        work()
    elif errors:
        raise errors[0]
    return len(lines) == number, result


def _is_inside(frame, is_meant):
    while frame is not None:
        if is_meant(frame.f_code):
            return True
        frame = frame.f_back
    return False


def _name_of(code):
    return f"{code.co_filename}:{code.co_name}"
