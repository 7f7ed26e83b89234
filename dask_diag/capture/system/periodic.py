"""A thread that does something at set times, until it is stopped, which takes no time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from math import ceil
from time import perf_counter

from dask_diag.capture.system.own_threads import OwnThread

__all__ = ["PeriodicThread"]

_SHORTEST_INTERVAL = 0.005


class PeriodicThread:
    """Calls `work` with the time at which it was due, every `interval` seconds, on its own thread.

    Parameters
    ----------
    name : str
        What the thread is for.
    interval : float
        Seconds.
    work : callable
        What it returns is not looked at.
    failed : callable
        Called with the error that ended it, if one did.
    first : float
        Seconds until the first call, if `interval` is longer.
    """

    def __init__(
        self,
        name: str,
        interval: float,
        work: Callable[[float], object],
        failed: Callable[[Exception], object],
        first: float,
    ) -> None:
        self._interval = interval
        self._work = work
        self._failed = failed
        self._start = self._last = perf_counter()
        self._first = min(interval, first)
        self._stopping = threading.Event()
        self._thread = OwnThread(name, self._run)
        try:
            self._thread.start()
        except BaseException:
            # Interrupted, it may have started.
            self._stopping.set()
            raise

    def stop(self) -> None:
        """Work a last time and end the thread, at once."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            due = self._start + self._first
            while not self._stopping.wait(max(0.0, due - perf_counter())):
                self._call(due)
                periods = ceil((perf_counter() - self._start) / self._interval)
                due = self._start + max(periods, 1) * self._interval
            none_yet = self._last == self._start
            if none_yet or perf_counter() - self._last >= _SHORTEST_INTERVAL:
                # What was due before did not get the GIL in time.
                self._call(min(due, perf_counter()))
        except Exception as error:
            self._failed(error)

    def _call(self, due: float) -> None:
        self._work(due)
        self._last = perf_counter()
