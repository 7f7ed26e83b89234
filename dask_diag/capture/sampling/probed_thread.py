"""A thread that runs tasks: of which of them it is read how long they wait for a processor."""

from __future__ import annotations

from contextlib import suppress
from random import Random

from dask_diag.capture.sampling.linux_threads import LinuxThread
from dask_diag.capture.tasks.task_thread import TaskThread, ThisThread

__all__ = ["ProbedThread", "ThisProbedThread"]

_TICKS = 4
"""Over so many it is averaged how many tasks a thread starts between two."""
_TASKS_AT_FIRST = 32
"""And before the first one."""


class ProbedThread(TaskThread):
    """A thread that runs tasks, of some of which it is read how long they wait for a processor.

    About one between two ticks is: of long tasks nearly each, of short ones one of so many as the
    thread runs meanwhile. All have the same chance. Were it the first after a tick, tasks that wait
    for long would be read too often: between their ticks there are fewer.

    Attributes
    ----------
    linux : LinuxThread
    """

    __slots__ = ("_between_ticks", "_random", "_tasks_at_tick", "linux")

    def __init__(self, ident: int, native_id: int) -> None:
        super().__init__(ident, native_id)
        self.linux = LinuxThread(native_id)
        # The first one always is: so it is known that those of its computation were probed.
        self.due = 1
        self._tasks_at_tick = 0
        # Its own generator: the program's draws are what they would be without it. Gaps of any
        # pattern may keep step with tasks that alternate.
        self._random = Random(native_id)
        # Until a tick says better: of tasks of some microseconds not all are to be read.
        self._between_ticks = 0.0

    def was_read(self) -> None:
        """Choose which task is read after this one."""
        self.due = self.tasks + self._gap()

    def tick(self) -> None:
        """Note how many tasks it has started since the tick before."""
        tasks = self.tasks
        started, self._tasks_at_tick = tasks - self._tasks_at_tick, tasks
        before = self._between_ticks or started
        self._between_ticks = before + (started - before) / _TICKS
        if self.due - tasks > max(1, 2 * self._between_ticks):
            self.due = tasks + self._gap()

    def _gap(self) -> int:
        """How many tasks there are from one reading to the next, on average those of a tick."""
        mean = self._between_ticks or _TASKS_AT_FIRST
        return 1 + int(2 * (mean - 1) * self._random.random()) if mean > 1 else 1


class ThisProbedThread(ThisThread):
    """The thread that asks; a plain one if it cannot be read, which hinders no task."""

    def __init__(self) -> None:
        super().__init__()
        with suppress(Exception):
            self.now = ProbedThread(self.now.ident, self.now.native_id)
