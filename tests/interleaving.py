"""Threads that take turns as a test says: no interleaving is left to chance."""

from __future__ import annotations

import sys
import threading
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
    """A lock that calls `released` each time it was released, with the function that did so."""

    def __init__(self, lock, released):
        self._lock, self._released = lock, released

    def __enter__(self):
        return self._lock.__enter__()

    def __exit__(self, *args):
        self._lock.__exit__(*args)
        self._released(sys._getframe(1).f_code.co_name)

    def acquire(self, *args, **kwargs):
        return self._lock.acquire(*args, **kwargs)

    def release(self):
        self._lock.release()


@contextmanager
def at_every_line(work, *, inside="", files=PACKAGE):
    """Call `work` at every line of the package that this thread runs in the block.

    What it sees is what another thread can see there. With `inside` only lines are meant of that
    function and of those that it calls.
    """
    working = False

    def trace(frame, event, arg):
        nonlocal working
        if working or not frame.f_code.co_filename.startswith(files):
            return None
        if inside and not _is_inside(frame, inside):
            return None
        working = True
        try:
            work()
        finally:
            working = False
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        yield
    finally:
        sys.settrace(before)


def _is_inside(frame, name):
    while frame is not None:
        if frame.f_code.co_name == name:
            return True
        frame = frame.f_back
    return False
