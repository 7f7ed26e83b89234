"""What profilers themselves take of a computation, as it starts and as it ends: it is measured.

Their hooks for its tasks are too short for that: what these take is calibrated.
"""

from __future__ import annotations

from threading import get_ident
from time import perf_counter, thread_time
from typing import NamedTuple

from dask_diag.capture.dask_internals import take_cpu_of_noting

__all__ = ["OwnCost", "Readings"]


class Readings(NamedTuple):
    """What a thread's CPU clock and the wall clock show, in seconds."""

    cpu: float
    time: float

    @classmethod
    def now(cls) -> Readings:
        """What they show now."""
        return cls(thread_time(), perf_counter())


class OwnCost:
    """What hooks took of one computation so far, on the thread that runs its scheduler.

    Attributes
    ----------
    seconds : float
        Wall time of hooks before its first task could be submitted.
    """

    __slots__ = ("_began", "_cpu", "_thread", "seconds")

    def __init__(self) -> None:
        self._thread = get_ident()
        self._began: Readings | None = None
        # To see that the computation starts took some, too.
        self._cpu = take_cpu_of_noting()
        self.seconds = 0.0

    def begin(self, began: Readings) -> None:
        """A hook began then."""
        self._began = began

    def end(self, is_before_tasks: bool = False) -> None:
        """It has ended."""
        if self._began is not None:
            now = Readings.now()
            self._cpu += now.cpu - self._began.cpu
            if is_before_tasks:
                self.seconds += now.time - self._began.time
        self._began = None

    @property
    def cpu(self) -> float:
        """CPU seconds; on the computation's own thread, those of the hook that runs included."""
        began = self._began
        if began is None or get_ident() != self._thread:
            return self._cpu
        return self._cpu + thread_time() - began.cpu
