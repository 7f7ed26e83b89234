"""Samples of threads that compute while they run no task: imports, graphs, dask's scheduler.

The thread that entered or registered the profiler is sampled all the time; another one while it
computes. Each tick belongs to what the thread did when it was due. The times at which computations
were called, prepared and stopped are exact: ticks before such a time that could not be sampled then
are counted as not sampled, and never as what came after.
"""

from __future__ import annotations

import sys
import threading
import time
import weakref
from array import array
from collections import deque
from collections.abc import Callable, Container, Iterator, Mapping
from contextlib import contextmanager
from math import inf, nan
from pathlib import Path
from threading import get_ident, get_native_id
from time import perf_counter
from types import CodeType, FrameType
from typing import NamedTuple

from dask_diag.capture.computation import Computation
from dask_diag.capture.session import Session
from dask_diag.capture.task import Line
from dask_diag.hooks.calls import DaskCalls, calls_of_threads, codes_of_dask_calls
from dask_diag.model.codes import Root
from dask_diag.sampling.call_tree import Run, Stacks
from dask_diag.sampling.linux import LinuxThread, why_not_here
from dask_diag.sampling.sampler import running_now, sampler, thread_frames
from dask_diag.sampling.walker import Stack, Walker
from dask_diag.system.periodic import OwnThread, clock_of_thread, ticks_until

OWN_CALLS = Line("(dask_diag)")
"""In place of this package's own calls, and of all that they called."""

_PACKAGE = Path(__file__).parents[1]
_RUNNERS = str(_PACKAGE / "cli")
"""Files that run a program or a cell: its stacks begin with its first line."""
_WRAPPERS = (
    str(_PACKAGE / "hooks"),
    *(str(_PACKAGE / "capture" / f"{name}.py") for name in ("task", "metrics", "log", "keys")),
    str(_PACKAGE / "capture" / "lines" / "steps.py"),
    str(_PACKAGE / "sampling" / "probes.py"),
)
"""Files that pass calls on to the code of the user and of dask."""


class CallerStack(NamedTuple):
    """A stack, and the ids of its frames in which dask was called, innermost first."""

    stack: Stack
    dask_calls: list[int]


class CallerWalker(Walker):
    """Reads stacks up to the outermost call of a thread."""

    def __init__(self) -> None:
        super().__init__(frozenset())

    def stack_of_thread(self, innermost: FrameType) -> CallerStack | None:
        """Return the stack of a thread; None if the thread went on meanwhile."""
        instructions: list[int] = []
        dask_calls: list[int] = []
        add = instructions.append
        frame: FrameType | None = innermost
        while frame is not None:
            code = id(frame.f_code)
            if code in codes_of_dask_calls:
                dask_calls.append(id(frame))
            add(code)
            add(frame.f_lasti)
            frame = frame.f_back
        key = array("q", instructions).tobytes()
        stack = self._stacks.get(key) or self._read_thread(innermost, instructions, key)
        return None if stack is None else CallerStack(stack, dask_calls)

    def below(self, outermost: Line, stack: Stack) -> Stack:
        """The same stack below another line."""
        key = repr((outermost.name, id(stack))).encode()
        return self._stacks.get(key) or self._store(key, Stack((outermost, *stack.lines)))

    def _read_thread(
        self, innermost: FrameType, instructions: list[int], key: bytes
    ) -> Stack | None:
        self._forget_if_full()
        lines: list[Line] = []
        frame: FrameType | None = innermost
        for code, instruction in zip(instructions[::2], instructions[1::2], strict=True):
            if frame is None or id(frame.f_code) != code or frame.f_lasti != instruction:
                return None
            # The key is of its code, whose id must not become that of another.
            self._keep(frame.f_code)
            file = frame.f_code.co_filename
            if file.startswith(_RUNNERS):
                break
            if _is_own(frame.f_code):
                lines = lines if file.startswith(_WRAPPERS) else [OWN_CALLS]
            else:
                lines.append(self._line_of(frame))
            frame = frame.f_back
        return self._store(key, Stack(tuple(lines[::-1]) or (OWN_CALLS,)))


def _is_own(code: CodeType) -> bool:
    return code.co_filename.startswith(str(_PACKAGE))


_CPU_OF_OTHERS = sys.platform == "linux" and hasattr(time, "clock_gettime")


class CallingThread:
    """A thread that computes, and the time up to which its ticks are counted.

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
        Computations of the thread that are not counted to their end.
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
        self._clock = clock_of_thread(native_id)
        self._interval = interval
        self._last = since
        self._ticks = ticks_until(since, interval)
        self._cpu = self._cpu_now()
        self._stack: CallerStack | None = None
        self._state: tuple[float, int, int] = (nan, 0, 0)
        self.computations: list[Computation] = []
        self.ended_calls: set[float] = set()
        self.noted: DaskCalls | None = None

    def _cpu_now(self) -> float:
        """CPU seconds of the thread; NaN if the system does not say."""
        try:
            return time.clock_gettime(self._clock) if _CPU_OF_OTHERS else nan
        except OSError:
            return nan

    def stack(self, innermost: FrameType, walker: CallerWalker) -> CallerStack | None:
        """Return the stack; the previous one if the thread used no CPU since."""
        # Read before the stack, so that whatever it runs while that is read counts as new. The
        # place is for systems whose clocks are coarse.
        state = self._cpu_now(), id(innermost.f_code), innermost.f_lasti
        if state != self._state:
            self._stack = walker.stack_of_thread(innermost)
            self._state = state
        return self._stack

    def miss_until(self, time: float, root: str, stacks: Stacks) -> None:
        """Count ticks up to a time as not sampled; none without a root."""
        ticks = ticks_until(time, self._interval)
        if ticks <= self._ticks:
            return
        if root:
            stacks.miss(time, Run.outside_tasks(root), (ticks - self._ticks) * self._interval)
        self._ticks = ticks

    def count_missed(self, root_at: Callable[[float], str], stacks: Stacks) -> Computation | None:
        """Count missed ticks up to the last event of each computation; return a running one."""
        while self.computations:
            computation = self.computations[0]
            self.miss_until(computation.called, root_at(computation.called), stacks)
            finished = computation.finished
            prepared = computation.prepared
            if prepared is not None:
                self.miss_until(prepared, Root.GRAPH, stacks)
            if finished is None:
                return computation
            root = Root.GRAPH if finished.prepared is None else Root.SCHEDULER
            self.miss_until(finished.stop or prepared or 0.0, root, stacks)
            self.ended_calls.add(computation.called)
            del self.computations[0]
        return None

    def see(self, now: float, root: str, stack: Stack, stacks: Stacks) -> None:
        """Count a stack that was read now for all ticks since the last sample."""
        seconds = (ticks_until(now, self._interval) - self._ticks) * self._interval
        if seconds > 0 and root:
            cpu = seconds * self._cpu_share(now)
            stacks.see(now, Run.outside_tasks(root), stack, seconds, cpu)
        self.skip_until(now)

    def _cpu_share(self, now: float) -> float:
        since = now - self._last
        return min(max((self._cpu_now() - self._cpu) / since, 0.0), 1.0) if since > 0 else nan

    def skip_until(self, now: float) -> None:
        """Count ticks from now on: earlier ones are counted elsewhere."""
        self._last, self._cpu = now, self._cpu_now()
        self._ticks = ticks_until(now, self._interval)

    def is_due(self, now: float) -> bool:
        """Whether there was a tick since the last sample."""
        return ticks_until(now, self._interval) > self._ticks


class OtherThread:
    """A Python thread that runs no task, and the seconds in which it was busy.

    Parameters
    ----------
    native_id : int or None
        None of a thread that is not counted.
    name : str

    Attributes
    ----------
    line : Line
        Its name, as the outermost line of its stacks.
    """

    __slots__ = ("_before", "_linux", "line")

    def __init__(self, native_id: int | None, name: str) -> None:
        self._linux = None if native_id is None else LinuxThread(native_id)
        self._before = self._now()
        self.line = Line(f"(thread {name})")

    @classmethod
    def of(cls, thread: threading.Thread | None) -> OtherThread:
        """A live thread; threads of profilers, and those of libraries, do not count."""
        if thread is None or isinstance(thread, OwnThread):
            return cls(None, "")
        return cls(thread.native_id, thread.name)

    def _now(self) -> tuple[float, float]:
        """CPU seconds so far, and seconds without a CPU."""
        try:
            linux = self._linux
            return (0.0, 0.0) if linux is None else (linux.cpu(), linux.waited_for_cpu())
        except OSError:
            return self._before

    def busy_since(self) -> tuple[float, float]:
        """Seconds since the sample before in which it ran or wanted a CPU; of them CPU seconds."""
        (cpu_before, waited_before), self._before = self._before, self._now()
        cpu, waited = self._before
        return cpu - cpu_before + max(0.0, waited - waited_before), cpu - cpu_before


class CallerProbe:
    """Samples calling threads for one profiler, from its creation to `stop`.

    What is known of threads changes while `_sampling` is held: by the sampler's thread, or by a
    thread that ends or restarts the counts.

    Parameters
    ----------
    interval : float
        Seconds between samples.
    session : Session
        Session of the profiler.
    stacks : Stacks
        Stacks that count the samples.
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
        self._stacks = stacks
        self._first_call = inf
        self._started: deque[tuple[int, int, Computation]] = deque()
        own = threading.current_thread()
        if isinstance(own, OwnThread):
            # It has entered the profiler in a program that it is attached to.
            own = threading.main_thread()
        self._own_thread = weakref.ref(own)
        self._own_ident = own.ident or get_ident()
        native_id = own.native_id or get_native_id()
        self._threads = {self._own_ident: CallingThread(native_id, perf_counter(), interval)}
        self._others: dict[int, OtherThread] = {}
        self._reads_others = not why_not_here()
        self._sampling = threading.Lock()
        self._subscription = sampler.add(self.sample, interval, failed)

    def restart(self, stacks: Stacks) -> None:
        """Count samples into `stacks` from now on, as if nothing had been computed before."""
        with self._while_not_sampling() as is_held:
            if is_held:
                self._count_all_missed()
                now = perf_counter()
                for thread in self._threads.values():
                    thread.skip_until(now)
            self._stacks = stacks
            self._first_call = inf

    def begin(self, computation: Computation) -> None:
        """Sample the thread of a computation until that stops."""
        self._started.append((computation.thread, computation.native_id, computation))

    def stop(self) -> None:
        """Sample no more, and release all code."""
        sampler.remove(self._subscription)
        with self._while_not_sampling() as is_held:
            if is_held:
                self._count_all_missed()
                self._threads = {}
                # Each has files open.
                self._others = {}
                self._walker.forget()

    @contextmanager
    def _while_not_sampling(self) -> Iterator[bool]:
        # The child of a fork has no sampler, and the lock may have been held.
        is_held = self._sampling.acquire(timeout=1.0)
        try:
            yield is_held
        finally:
            if is_held:
                self._sampling.release()

    def _count_all_missed(self) -> None:
        """Count ticks up to the end of each computation that has ended."""
        self._take_started()
        for ident, thread in self._threads.items():
            thread.count_missed(self._root_at(ident), self._stacks)

    def sample(self, passed: float) -> None:
        """Sample every due thread."""
        with self._sampling:
            self._take_started()
            self._take_callers()
            tasks, frames, now, _ = thread_frames()
            for ident in tuple(self._threads):
                self._sample_thread(ident, frames.get(ident), now, ident in tasks)
            self._sample_others(tasks, frames, now)

    def _take_started(self) -> None:
        while self._started:
            ident, native_id, computation = self._started.popleft()
            self._thread(ident, native_id, computation.called).computations.append(computation)
            self._first_call = min(self._first_call, computation.called)

    def _take_callers(self) -> None:
        """Add threads inside a call of dask before their computation starts."""
        callers = tuple(calls_of_threads.copy().items())
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
            thread.count_missed(self._root_at(ident), self._stacks)
            del self._threads[ident]
        elif is_in_task:
            thread.count_missed(self._root_at(ident), self._stacks)
            thread.skip_until(now)
        elif thread.is_due(now):
            stack = thread.stack(innermost, self._walker)
            if stack is not None:
                self._count(ident, thread, stack, now)

    def _sample_others(
        self, tasks: Container[int], frames: Mapping[int, FrameType], now: float
    ) -> None:
        """Sample the threads that use a CPU and run neither a task nor a scheduler."""
        before, self._others = self._others, {}
        if not tasks or not self._reads_others:
            return
        others = [ident for ident in frames if ident not in tasks and ident not in self._threads]
        if not before.keys() >= set(others):
            live = {thread.ident: thread for thread in threading.enumerate()}
        for ident in others:
            thread = before.get(ident)
            if thread is None:
                thread = OtherThread.of(live.get(ident))
            self._others[ident] = thread
            busy, cpu = thread.busy_since()
            if cpu > 0 and (stack := self._walker.stack_of_thread(frames[ident])) is not None:
                below = self._walker.below(thread.line, stack.stack)
                self._stacks.see(now, Run.outside_tasks(Root.THREADS), below, busy, cpu)

    def _own_thread_lives(self) -> bool:
        thread = self._own_thread()
        return thread is not None and thread.is_alive()

    def _count(self, ident: int, thread: CallingThread, stack: CallerStack, now: float) -> None:
        root_at = self._root_at(ident)
        computation = thread.count_missed(root_at, self._stacks)
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
        """Stop sampling a thread outside calls of dask, unless the profiler was entered on it."""
        if calls_of_threads.get(ident) is noted:
            calls_of_threads.pop(ident, None)
        if ident != self._own_ident:
            del self._threads[ident]

    def _root_at(self, ident: int) -> Callable[[float], str]:
        """Return a function from a time outside computations to its root."""

        def root_at(time: float) -> str:
            if ident != self._own_ident:
                return ""
            return Root.BEFORE if time <= self._first_call else Root.BETWEEN

        return root_at


def _times_of(calls: DaskCalls | None, stack: CallerStack) -> set[float]:
    """Times at which the functions of dask on a stack were called."""
    if calls is None:
        return set()
    times = (calls.times.get(frame) for frame in stack.dask_calls)
    return {time for time in times if time is not None}
