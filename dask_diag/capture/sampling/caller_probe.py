"""Samples the threads that compute while they run no task: what comes before, graphs, dask's loop.

The thread that entered or registered the profiler is sampled all the time; another one while it
computes. Each tick belongs to what the thread did when it was due. The times at which computations
were called, prepared and stopped are exact: ticks before such a time that could not be sampled then
are counted as not sampled, and never as what came after.
"""

from __future__ import annotations

import threading
import weakref
from collections import deque
from collections.abc import Callable
from math import inf
from threading import get_ident, get_native_id
from time import perf_counter
from types import FrameType

from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import DaskCalls, calls_of_threads
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.sampling.caller_walker import CallerStack, CallerWalker
from dask_diag.capture.sampling.calling_thread import CallingThread
from dask_diag.capture.sampling.sampler import sampler
from dask_diag.capture.sampling.threads_now import running_now, thread_frames
from dask_diag.capture.session import Session
from dask_diag.schema import Root

__all__ = ["CallerProbe"]


class CallerProbe:
    """Samples the threads that compute, for one profiler, from its creation to `stop`.

    Only the sampler's thread changes what is known of threads.

    Parameters
    ----------
    interval : float
        Seconds between samples.
    session : Session
        What the profiler has captured.
    stacks : Stacks
        Where samples are counted.
    failed : callable
        Called with the error that ended sampling, if one did.
    """

    def __init__(
        self,
        interval: float,
        session: Session,
        stacks: Stacks,
        failed: Callable[[Exception], None],
    ) -> None:
        self._interval = interval
        self._session = session
        self._walker = CallerWalker()
        self.restart(stacks)
        self._started: deque[tuple[int, int, Computation]] = deque()
        self._own_thread = weakref.ref(threading.current_thread())
        self._own_ident = get_ident()
        self._threads = {self._own_ident: CallingThread(get_native_id(), perf_counter(), interval)}
        self._sampling = threading.Lock()
        self._subscription = sampler.add(self.sample, interval, failed)

    def restart(self, stacks: Stacks) -> None:
        """Count samples there from now on, and as if nothing had been computed before."""
        self._stacks = stacks
        self._first_call = inf

    def begin(self, computation: Computation) -> None:
        """Sample this thread, which starts a computation, until it stops."""
        self._started.append((get_ident(), get_native_id(), computation))

    def stop(self) -> None:
        """Sample no more, and release all code."""
        sampler.remove(self._subscription)
        # The child of a fork has no sampler, and the lock may have been held.
        if self._sampling.acquire(timeout=1.0):
            try:
                self._take_started()
                for ident, thread in self._threads.items():
                    thread.settle(self._root_at(ident), self._stacks)
                self._threads = {}
                self._walker.forget()
            finally:
                self._sampling.release()

    def sample(self, passed: float) -> None:
        """Sample every thread that is due."""
        with self._sampling:
            self._take_started()
            self._take_callers()
            if not self._threads:
                return
            tasks, frames, now = thread_frames()
            for ident in tuple(self._threads):
                self._sample_thread(ident, frames.get(ident), now, ident in tasks)

    def _take_started(self) -> None:
        while self._started:
            ident, native_id, computation = self._started.popleft()
            self._thread(ident, native_id, computation.called).computations.append(computation)
            self._first_call = min(self._first_call, computation.called)

    def _take_callers(self) -> None:
        """The threads that are in a call of dask whose computation has not started yet."""
        callers = tuple(calls_of_threads.items())
        in_tasks = running_now() if callers else {}
        for ident, calls in callers:
            if ident not in self._threads and ident not in in_tasks:
                called = max(calls.times.values(), default=perf_counter())
                self._thread(ident, calls.native_id, called)

    def _thread(self, ident: int, native_id: int, since: float) -> CallingThread:
        thread = self._threads.get(ident)
        if thread is None:
            since = max(since, self._session.start or since)
            thread = self._threads[ident] = CallingThread(native_id, since, self._interval)
        return thread

    def _sample_thread(
        self, ident: int, innermost: FrameType | None, now: float, is_in_task: bool
    ) -> None:
        thread = self._threads[ident]
        if innermost is None or (ident == self._own_ident and not self._own_thread_lives()):
            thread.settle(self._root_at(ident), self._stacks)
            del self._threads[ident]
        elif is_in_task:
            thread.settle(self._root_at(ident), self._stacks)
            thread.skip_until(now)
        elif thread.is_due(now):
            stack = thread.stack(innermost, self._walker)
            if stack is not None:
                self._count(ident, thread, stack, now)

    def _own_thread_lives(self) -> bool:
        thread = self._own_thread()
        return thread is not None and thread.is_alive()

    def _count(self, ident: int, thread: CallingThread, stack: CallerStack, now: float) -> None:
        root_at = self._root_at(ident)
        computation = thread.settle(root_at, self._stacks)
        noted = calls_of_threads.get(ident)
        calls = _times_of(noted, stack)
        open_calls = calls - thread.ended_calls
        if computation is not None:
            root = Root.GRAPH if computation.prepared is None else Root.SCHEDULER
        elif open_calls:
            called = min(open_calls)
            self._first_call = min(self._first_call, called)
            thread.miss_until(called, root_at(called), self._stacks)
            root = Root.GRAPH
        else:
            root = root_at(now)
        thread.ended_calls &= calls
        thread.see(now, root, stack.stack, self._stacks)
        # The thread may have called dask since its stack was read: what was noted meanwhile stays.
        if not calls and computation is None and noted is thread.noted:
            self._end_calls(ident, noted)
        thread.noted = noted

    def _end_calls(self, ident: int, noted: DaskCalls | None) -> None:
        """Sample a thread no more that is in no call of dask, unless it is the profiler's."""
        if calls_of_threads.get(ident) is noted:
            calls_of_threads.pop(ident, None)
        if ident != self._own_ident:
            del self._threads[ident]

    def _root_at(self, ident: int) -> Callable[[float], str]:
        """What the time of a thread belongs to, at a time outside computations."""

        def root_at(time: float) -> str:
            if ident != self._own_ident:
                return ""
            return Root.BEFORE if time <= self._first_call else Root.BETWEEN

        return root_at


def _times_of(calls: DaskCalls | None, stack: CallerStack) -> set[float]:
    """When the functions of dask on a stack were called."""
    if calls is None:
        return set()
    times = (calls.times.get(frame) for frame in stack.dask_calls)
    return {time for time in times if time is not None}
