"""The one thread of a process that looks at running tasks from time to time."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from random import Random
from time import perf_counter
from typing import Any

__all__ = ["Listener", "Sampler", "running_tasks", "sampler"]

Listener = Callable[[float], None]
"""What is called at each tick with the seconds since the one before."""

running_tasks: dict[int, Any] = {}
"""The sampled task that each thread runs, by the thread's ident."""


class Sampler:
    """Calls its listeners at set times while there are any, on a thread of its own.

    Listeners run with the interpreter's lock and must be quick; one that raises is told of that
    and taken out.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._intervals: dict[Listener, float] = {}
        self._failed: dict[Listener, Callable[[Exception], None]] = {}
        self._changed = threading.Event()
        self._thread: threading.Thread | None = None

    def add(self, listener: Listener, interval: float, failed: Callable[[Exception], None]) -> None:
        """Call `listener` every `interval` seconds on average, or as often as another wants."""
        with self._lock:
            if self._intervals.get(listener) == interval:
                return
            self._intervals[listener] = interval
            self._failed[listener] = failed
            if self._thread is None:
                self._changed = threading.Event()
                self._thread = threading.Thread(
                    target=self._run, args=(self._changed,), name="dask_diag-sampler", daemon=True
                )
                self._thread.start()
            else:
                self._changed.set()

    def remove(self, listener: Listener) -> None:
        """Call `listener` no more; if it was the last one, the thread has ended on return."""
        with self._lock:
            self._intervals.pop(listener, None)
            self._failed.pop(listener, None)
            thread = self._thread
            if self._intervals or thread is None:
                return
            self._thread = None
            self._changed.set()
        if thread is not threading.current_thread():
            thread.join()

    def _run(self, changed: threading.Event) -> None:
        last = due = perf_counter()
        random = Random()
        while intervals := self._intervals_if_needed():
            # Not evenly: a task that repeats itself every so often must not keep step.
            interval = min(intervals.values()) * random.uniform(0.5, 1.5)
            # After a late tick the next one keeps its distance.
            due = max(due + interval, last + interval / 2)
            if changed.wait(max(0.0, due - perf_counter())):
                changed.clear()
                due = last
                continue
            now = perf_counter()
            for listener in intervals:
                self._call(listener, now - last)
            last = now

    def _intervals_if_needed(self) -> dict[Listener, float]:
        with self._lock:
            if self._thread is not threading.current_thread():
                return {}
            if not self._intervals:
                self._thread = None
            return dict(self._intervals)

    def _call(self, listener: Listener, passed: float) -> None:
        try:
            listener(passed)
        except Exception as error:
            failed = self._failed.get(listener)
            with self._lock:
                self._intervals.pop(listener, None)
            if failed is not None:
                failed(error)


sampler = Sampler()
if hasattr(os, "register_at_fork"):
    # The child of a fork has the object, but not the thread.
    os.register_at_fork(after_in_child=sampler.__init__)  # type: ignore[misc]
    os.register_at_fork(after_in_child=running_tasks.clear)
