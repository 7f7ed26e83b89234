"""The one thread of a process that samples running tasks."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import perf_counter
from typing import NamedTuple

from dask_diag.capture.sampling.threads_now import forget_frames, share_frames
from dask_diag.capture.sampling.ticks import ticks_until, time_of_tick
from dask_diag.capture.system.own_threads import OwnThread
from dask_diag.capture.system.share_of_time import ShareOfTime

__all__ = ["Listener", "Sampler", "Subscription", "sampler"]

Listener = Callable[[float], None]
"""What is called at each of its ticks, with the seconds that this tick represents."""

BUSY_AT_MOST = 0.02
"""Share of the time in which the sampler may compute; if samples take longer, there are fewer."""


class Subscription(NamedTuple):
    """One user of a listener: how often, in seconds, and what to call with an error."""

    listener: Listener
    interval: float
    failed: Callable[[Exception], None]


class Ticks:
    """When to call one listener.

    Attributes
    ----------
    due : float
        When the next call is due.
    """

    __slots__ = ("_ticks", "due", "interval", "listener")

    def __init__(self, listener: Listener, interval: float, now: float) -> None:
        self.listener = listener
        self.interval = interval
        self._ticks = ticks_until(now, interval)
        self.due = time_of_tick(self._ticks, interval)

    def passed(self, now: float) -> float:
        """Seconds that a call now represents: an interval for each tick since the call before."""
        before, self._ticks = self._ticks, ticks_until(now, self.interval)
        self.due = time_of_tick(self._ticks, self.interval)
        return (self._ticks - before) * self.interval

    def not_before(self, time: float) -> None:
        """Leave out what is due before; the next call represents it too."""
        self.due = time_of_tick(ticks_until(time, self.interval), self.interval)


class Sampler:
    """Calls its listeners while there are any, on a thread of its own.

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
        """Call `listener` once every `interval` seconds, or as often as another user of it wants.

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
        """Forget a user; if it was the last one, the thread has ended on return."""
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
        this_thread, work = threading.current_thread(), ShareOfTime(BUSY_AT_MOST)
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
if hasattr(os, "register_at_fork"):
    # The child of a fork has the object, but not the thread.
    os.register_at_fork(after_in_child=sampler.__init__)  # type: ignore[misc]
