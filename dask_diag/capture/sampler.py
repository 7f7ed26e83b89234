"""The one thread of a process that looks at running tasks from time to time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from time import perf_counter, thread_time
from typing import NamedTuple

__all__ = ["Listener", "Listening", "Sampler", "sampler"]

Listener = Callable[[float], None]
"""What is called at each of its beats, with the seconds for which this beat stands."""

BUSY_AT_MOST = 0.02
"""Share of the time in which the sampler may compute; if looks take longer, there are fewer."""
_GOLDEN = 0.6180339887498949


class Listening(NamedTuple):
    """One user of a listener: how often, in seconds, and whom to tell of an error."""

    listener: Listener
    interval: float
    failed: Callable[[Exception], None]


class Beats:
    """When to call one listener: once in each interval, never at an even beat.

    Multiples of the golden ratio, without their whole part, are spread as evenly as can be, and
    keep step with nothing: a task that repeats itself is seen in each part for its share.
    """

    __slots__ = ("_interval", "_number", "due", "listener")

    def __init__(self, listener: Listener, interval: float, now: float) -> None:
        self.listener = listener
        self._interval = interval
        self._number = int(now / interval)
        self.due = 0.0
        self._wait_for(self._number + 1)

    def passed(self, now: float) -> float:
        """Seconds for which a call now stands: of this interval, and of those that were missed."""
        number = max(int(now / self._interval), self._number)
        seconds = (number - self._number + 1) * self._interval
        self._wait_for(number + 1)
        return seconds

    def not_before(self, time: float) -> None:
        """Leave out what is due before."""
        number = int(time / self._interval)
        if number > self._number:
            self.due = self._interval * (number + number * _GOLDEN % 1.0)

    def _wait_for(self, number: int) -> None:
        self._number = number
        self.due = self._interval * (number + number * _GOLDEN % 1.0)


class Sampler:
    """Calls its listeners while there are any, on a thread of its own.

    Listeners run with the interpreter's lock and must be quick; one that raises is taken out, and
    its users are told. Users of one listener share its calls.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: list[Listening] = []
        self._beats: list[Beats] = []
        self._thread: threading.Thread | None = None
        # Held while there is nothing to wake the thread for: it costs less than an Event.
        self._asleep = threading.Lock()

    def add(
        self, listener: Listener, interval: float, failed: Callable[[Exception], None]
    ) -> Listening:
        """Call `listener` once every `interval` seconds, or as often as another user of it wants.

        What is returned is to be given to `remove`.
        """
        user = Listening(listener, interval, failed)
        with self._lock:
            self._users.append(user)
            self._set_beats()
            if self._thread is None:
                self._asleep = threading.Lock()
                self._asleep.acquire()
                self._thread = threading.Thread(
                    target=self._run, args=(self._asleep,), name="dask_diag-sampler", daemon=True
                )
                self._thread.start()
        return user

    def remove(self, user: Listening) -> None:
        """Forget a user; if it was the last one, the thread has ended on return."""
        with self._lock:
            self._users = [other for other in self._users if other is not user]
            self._set_beats()
            thread = self._thread
            if self._users or thread is None:
                return
            self._thread = None
            self._wake()
        if thread is not threading.current_thread():
            thread.join()

    def _set_beats(self) -> None:
        now = perf_counter()
        intervals: dict[Listener, float] = {}
        for listener, interval, _ in self._users:
            intervals[listener] = min(interval, intervals.get(listener, interval))
        known = {beats.listener: beats for beats in self._beats}
        self._beats = [
            known[listener]
            if listener in known and known[listener]._interval == interval
            else Beats(listener, interval, now)
            for listener, interval in intervals.items()
        ]
        if self._thread is not None:
            self._wake()

    def _wake(self) -> None:
        if self._asleep.locked():
            self._asleep.release()

    def _run(self, asleep: threading.Lock) -> None:
        while beats := self._beats_if_needed():
            due = min(each.due for each in beats)
            if asleep.acquire(timeout=max(0.0, due - perf_counter())):
                continue
            begun = thread_time()
            now = perf_counter()
            for each in beats:
                if each.due <= now:
                    self._call(each.listener, each.passed(now))
            rest = perf_counter() + (thread_time() - begun) / BUSY_AT_MOST
            for each in beats:
                each.not_before(rest)

    def _beats_if_needed(self) -> list[Beats]:
        with self._lock:
            if self._thread is not threading.current_thread():
                return []
            if not self._beats:
                self._thread = None
            return self._beats

    def _call(self, listener: Listener, passed: float) -> None:
        try:
            listener(passed)
        except Exception as error:
            with self._lock:
                users = [user for user in self._users if user.listener == listener]
                self._users = [user for user in self._users if user.listener != listener]
                self._set_beats()
            for user in users:
                user.failed(error)


sampler = Sampler()
if hasattr(os, "register_at_fork"):
    # The child of a fork has the object, but not the thread.
    os.register_at_fork(after_in_child=sampler.__init__)  # type: ignore[misc]
