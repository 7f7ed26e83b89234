"""The one thread that samples stacks and waits of running tasks, at each tick."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Mapping
from threading import get_ident
from time import perf_counter
from types import FrameType
from typing import Any, NamedTuple

from dask_diag.capture.task import running
from dask_diag.system.code import current_frames
from dask_diag.system.periodic import OwnThread, ShareOfTime, ticks_until, time_of_tick

TaskRun = Any
"""A run of a task that can be sampled: a `ProbedTask`, or the `RunningTask` of a worker."""

running_tasks: dict[int, TaskRun] = {}
"""The run of a worker's probed task on each thread, by the thread's ident.

Tasks of this process's own computations are not in it: see `running_now`.
"""


def running_now() -> dict[int, TaskRun]:
    """The run of a probed task on each thread, by the thread's ident: the innermost of several.

    It is to be quick: tasks that wake up meanwhile would be seen to wait for the GIL.
    """
    runs = running_tasks.copy()
    for computation in running.copy().values():
        if not computation.probes:
            continue
        wrappers: tuple[TaskRun, ...] = tuple(computation.wrappers)  # type: ignore[attr-defined]
        for wrapper in wrappers:
            start, ident = wrapper.start, wrapper.runs_on.ident
            if start is None or wrapper.stop is not None or not ident:
                continue
            other = runs.get(ident)
            if other is None or (other.start or 0.0) < start:
                runs[ident] = wrapper
    return runs


class ThreadFrames(NamedTuple):
    """Frames of all other threads at one moment.

    Attributes
    ----------
    tasks : dict
        The tasks that ran just before, by the thread's ident.
    frames : mapping
        The innermost frame of each thread, by its ident. Not to be kept: it holds the user's data.
    now : float
        Time of the reading, in seconds of ``time.perf_counter()``.
    before : float
        Time before the reading. Of a task that started later, the frames may be those of the task
        before it.
    """

    tasks: dict[int, TaskRun]
    frames: Mapping[int, FrameType]
    now: float
    before: float


_shared: dict[int, ThreadFrames | None] = {}
"""Frames read by each thread that shares them; None before the first reading."""


def share_frames() -> None:
    """Make `thread_frames` read once on this thread, until `forget_frames`."""
    _shared[get_ident()] = None


def forget_frames() -> None:
    """Release the frames read on this thread."""
    _shared.pop(get_ident(), None)


def thread_frames() -> ThreadFrames:
    """Frames of all other threads now, or as first read while they are shared."""
    ident = get_ident()
    shared = _shared.get(ident)
    if shared is not None:
        return shared
    tasks, before = running_now(), perf_counter()
    frames = current_frames()
    # The frame of this call would keep all alive in a circle.
    frames.pop(ident, None)
    read = ThreadFrames(tasks, frames, perf_counter(), before)
    if ident in _shared:
        _shared[ident] = read
    return read


if hasattr(os, "register_at_fork"):
    # The child of a fork has none of these threads, and may have others of the same idents.
    os.register_at_fork(after_in_child=_shared.clear)


Listener = Callable[[float], None]
"""Function to call at each tick, with the seconds that the tick represents."""

BUSY_AT_MOST = 0.02
"""Share of the time in which the sampler may compute; if samples take longer, there are fewer."""
AVERAGED = 8
"""Number of cycles over which that holds: the first one, or one that reads a new part of a program,
takes tens of times as long as others, and no sample for half a second would say nothing of it."""


class Subscription(NamedTuple):
    """A user of a listener: its interval in seconds, and the function to call with an error."""

    listener: Listener
    interval: float
    failed: Callable[[Exception], None]


class Ticks:
    """Times at which to call one listener.

    Attributes
    ----------
    due : float
        Time when the next call is due.
    """

    __slots__ = ("_ticks", "due", "interval", "listener")

    def __init__(self, listener: Listener, interval: float, now: float) -> None:
        self.listener = listener
        self.interval = interval
        self._ticks = ticks_until(now, interval)
        self.due = time_of_tick(self._ticks, interval)

    def passed(self, now: float) -> float:
        """Seconds that a call now represents: an interval for each tick since the previous call."""
        before, self._ticks = self._ticks, ticks_until(now, self.interval)
        self.due = time_of_tick(self._ticks, self.interval)
        return (self._ticks - before) * self.interval

    def not_before(self, time: float) -> None:
        """Skip ticks before a time; the next call represents them."""
        self.due = time_of_tick(ticks_until(time, self.interval), self.interval)


class Sampler:
    """Calls its listeners on a thread of its own, while there are any.

    Listeners run with the GIL and must be quick; one that raises is taken out, and
    its users are notified. Users of one listener share its calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: list[Subscription] = []
        self._ticks: list[Ticks] = []
        self._thread: threading.Thread | None = None
        # Held while there is nothing to wake the thread for: it costs less than an Event.
        self._asleep = threading.Lock()

    def add(
        self, listener: Listener, interval: float, failed: Callable[[Exception], None]
    ) -> Subscription:
        """Call `listener` every `interval` seconds, or as often as another user of it wants.

        What is returned is to be given to `remove`.
        """
        user = Subscription(listener, interval, failed)
        with self._lock:
            self._users.append(user)
            self._set_ticks()
            if self._thread is None:
                self._asleep = threading.Lock()
                self._asleep.acquire()
                self._thread = OwnThread("sampler", self._run, (self._asleep,))
                try:
                    self._thread.start()
                except BaseException:
                    # As where the system has no more threads: the next user tries again.
                    self._thread = None
                    self._users.remove(user)
                    self._set_ticks()
                    raise
        return user

    def remove(self, user: Subscription) -> None:
        """Forget a user; after the last one the thread has ended on return."""
        with self._lock:
            self._users = [other for other in self._users if other is not user]
            self._set_ticks()
            thread = self._thread
            if self._users or thread is None:
                return
            self._thread = None
            self._wake()
        if thread is not threading.current_thread():
            thread.join()

    def has(self, user: Subscription) -> bool:
        """Whether a user is called: neither removed, nor taken out after an error or by a fork."""
        return any(other is user for other in self._users)

    def _set_ticks(self) -> None:
        now = perf_counter()
        intervals: dict[Listener, float] = {}
        for listener, interval, _ in self._users:
            intervals[listener] = min(interval, intervals.get(listener, interval))
        ticks_of = {ticks.listener: ticks for ticks in self._ticks}
        self._ticks = [
            ticks_of[listener]
            if listener in ticks_of and ticks_of[listener].interval == interval
            else Ticks(listener, interval, now)
            for listener, interval in intervals.items()
        ]
        if self._thread is not None:
            self._wake()

    def _wake(self) -> None:
        if self._asleep.locked():
            self._asleep.release()

    def _run(self, asleep: threading.Lock) -> None:
        # Each step costs several times as much as it would if tasks did not clear the caches.
        this_thread, work = threading.current_thread(), ShareOfTime(BUSY_AT_MOST, blocks=AVERAGED)
        while self._thread is this_thread:
            ticks = self._ticks
            if not ticks:
                self._end_if_unused()
                continue
            due = ticks[0].due if len(ticks) == 1 else min([tick.due for tick in ticks])
            if asleep.acquire(timeout=max(0.0, due - perf_counter())):
                continue
            now = perf_counter()
            with work:
                self._call([tick for tick in ticks if tick.due <= now], now)
            earliest = now + work.pause
            for tick in ticks:
                if earliest > tick.due:
                    tick.not_before(earliest)

    def _call(self, due: list[Ticks], now: float) -> None:
        share_frames()
        try:
            for tick in due:
                try:
                    tick.listener(tick.passed(now))
                except Exception as error:
                    self._take_out(tick.listener, error)
        finally:
            forget_frames()

    def _end_if_unused(self) -> None:
        with self._lock:
            if not self._ticks and self._thread is threading.current_thread():
                self._thread = None

    def _take_out(self, listener: Listener, error: Exception) -> None:
        with self._lock:
            users = [user for user in self._users if user.listener == listener]
            self._users = [user for user in self._users if user.listener != listener]
            self._set_ticks()
        for user in users:
            user.failed(error)


sampler = Sampler()


class StandingSubscription:
    """A user of the sampler from its first computation on, for as long as its profiler is active.

    To subscribe for each computation would wake the sampler's thread, or start it, each time.

    Parameters
    ----------
    is_active : callable
        Whether the profiler is active, and so may see more computations.
    failed : callable
        Called with an error of the listener.
    ended : callable, optional
        Called when sampling has ended.
    """

    def __init__(
        self,
        is_active: Callable[[], bool],
        failed: Callable[[Exception], None],
        ended: Callable[[], object] = bool,
    ) -> None:
        self._is_active = is_active
        self._failed = failed
        self._ended = ended
        self._user: Subscription | None = None
        self._open: set[int] = set()
        # A signal may interrupt a thread that holds it, and compute.
        self._lock = threading.RLock()

    def begin(self, computation: int, listener: Listener, interval: float) -> None:
        """Call a listener from now on."""
        with self._lock:
            self._open.add(computation)
            if self._user is None or not sampler.has(self._user):
                self._user = sampler.add(listener, interval, self._failed)

    def end(self, computation: int) -> None:
        """End a computation; of the last one after its profiler has ended, sampling ends, too."""
        with self._lock:
            self._open.discard(computation)
        if not self._is_active():
            self.end_if_unused()

    def end_if_unused(self) -> None:
        """End sampling, unless a computation runs."""
        with self._lock:
            if self._open or self._user is None:
                return
            user, self._user = self._user, None
        sampler.remove(user)
        self._ended()


if hasattr(os, "register_at_fork"):
    # The child of a fork has the object, but not the thread.
    os.register_at_fork(after_in_child=sampler.__init__)  # type: ignore[misc]
