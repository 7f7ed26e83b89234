"""A thread that computes, and up to when what it does outside tasks has been counted."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from types import FrameType

from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import DaskCalls
from dask_diag.capture.sampling.bins import Run
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.sampling.caller_walker import CallerStack, CallerWalker
from dask_diag.capture.sampling.stack_walker import Stack
from dask_diag.capture.sampling.ticks import ticks_until
from dask_diag.schema import Root

__all__ = ["CallingThread"]

_NAN = float("nan")
_CPU_OF_OTHERS = sys.platform == "linux" and hasattr(time, "clock_gettime")


class CallingThread:
    """A thread that computes, and up to when it has been counted.

    Parameters
    ----------
    native_id : int
    since : float
        From when on it is counted, in seconds of ``time.perf_counter()``.
    interval : float
        Seconds between ticks.

    Attributes
    ----------
    computations : list of Computation
        Those that it has started and that have not been counted to their end.
    ended_calls : set of float
        When dask was called for the computations that have ended, of calls that may still go on.
    noted : DaskCalls or None
        The calls of dask that were known of it at the sample before.
    """

    __slots__ = (
        "_clock",
        "_cpu",
        "_interval",
        "_last",
        "_stack",
        "_state",
        "_ticks",
        "computations",
        "ended_calls",
        "noted",
    )

    def __init__(self, native_id: int, since: float, interval: float) -> None:
        self._clock = (~native_id << 3) | 6
        self._interval = interval
        self._last = since
        self._ticks = ticks_until(since, interval)
        self._cpu = self._cpu_now()
        self._stack: CallerStack | None = None
        self._state: tuple[float, int, int] = (_NAN, 0, 0)
        self.computations: list[Computation] = []
        self.ended_calls: set[float] = set()
        self.noted: DaskCalls | None = None

    def _cpu_now(self) -> float:
        """CPU seconds of the thread; NaN if it has ended or the system does not say."""
        try:
            return time.clock_gettime(self._clock) if _CPU_OF_OTHERS else _NAN
        except OSError:
            return _NAN

    def stack(self, innermost: FrameType, walker: CallerWalker) -> CallerStack | None:
        """Its stack: the one before if it has had no CPU since that was read, as while it waits."""
        # Read before the stack, so that whatever it runs while that is read counts as new. The
        # place is for systems whose clocks are coarse.
        state = self._cpu_now(), id(innermost.f_code), innermost.f_lasti
        if state != self._state:
            self._stack = walker.stack_of_thread(innermost)
            self._state = state
        return self._stack

    def miss_until(self, time: float, root: str, stacks: Stacks) -> None:
        """Count the ticks up to a time that were not sampled; none without a root."""
        ticks = ticks_until(time, self._interval)
        if ticks <= self._ticks:
            return
        if root:
            stacks.miss(time, Run.outside_tasks(root), (ticks - self._ticks) * self._interval)
        self._ticks = ticks

    def settle(self, root_at: Callable[[float], str], stacks: Stacks) -> Computation | None:
        """Count what was missed up to the last computation's latest event; it, if it runs."""
        while self.computations:
            computation = self.computations[0]
            self.miss_until(computation.called, root_at(computation.called), stacks)
            finished = computation.finished
            prepared = computation.prepared
            if prepared is not None:
                self.miss_until(prepared, Root.GRAPH, stacks)
            if finished is None:
                return computation
            root = Root.GRAPH if finished.info.prepared is None else Root.SCHEDULER
            self.miss_until(finished.info.stop or prepared or 0.0, root, stacks)
            self.ended_calls.add(computation.called)
            del self.computations[0]
        return None

    def see(self, now: float, root: str, stack: Stack, stacks: Stacks) -> None:
        """Count the stack that was read now for all ticks since the last one."""
        seconds = (ticks_until(now, self._interval) - self._ticks) * self._interval
        if seconds > 0 and root:
            cpu = seconds * self._cpu_share(now)
            stacks.see(now, Run.outside_tasks(root), stack, seconds, cpu)
        self.skip_until(now)

    def _cpu_share(self, now: float) -> float:
        since = now - self._last
        return min(max((self._cpu_now() - self._cpu) / since, 0.0), 1.0) if since > 0 else _NAN

    def skip_until(self, now: float) -> None:
        """Count from now on: what was up to here is counted elsewhere."""
        self._last, self._cpu = now, self._cpu_now()
        self._ticks = ticks_until(now, self._interval)

    def is_due(self, now: float) -> bool:
        """Whether there was a tick since it was counted last."""
        return ticks_until(now, self._interval) > self._ticks
