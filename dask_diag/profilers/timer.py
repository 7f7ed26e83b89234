"""A thread that does something every so many seconds, and stops at once."""

from __future__ import annotations

import threading
from collections.abc import Callable

from dask_diag.capture.system.own_threads import OwnThread

__all__ = ["Timer"]


class Timer:
    """Calls `work` every `dt` seconds on a thread of its own, until it is stopped.

    Thread and event belong together: to stop a timer stops that one, and none that was started
    meanwhile.
    """

    def __init__(self, dt: float, work: Callable[[], object]) -> None:
        self._dt = dt
        self._work = work
        self._stopping = threading.Event()
        self._thread = OwnThread("progress", self._run)
        try:
            self._thread.start()
        except BaseException:
            # Interrupted, it may have started.
            self._stopping.set()
            raise

    def is_alive(self) -> bool:
        """Whether its thread runs."""
        return self._thread.is_alive()

    def stop(self) -> None:
        """End the thread; not to be called with a lock that `work` takes."""
        self._stopping.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping.wait(self._dt):
            self._work()
