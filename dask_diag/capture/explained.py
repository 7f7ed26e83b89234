"""Tasks that are looked at while they run: what they wait for, when they have no processor time.

Exact is how long a task's thread could have run and had no processor. What it was blocked in is
sampled. The sampler needs the interpreter's lock itself, so a thread that was running
Python code has just lost it whenever the sampler looks: that a thread waits for the lock is sure
only if it has not run at all since the look before. The other times it is seen so are counted, and
analysis gives them what of the exact time nothing else explains.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping
from threading import get_ident, get_native_id
from time import thread_time
from typing import Any

from dask_diag.capture.meter import Metered, Wait
from dask_diag.capture.remote import Delivery, Departure, RemoteTask, Transfer
from dask_diag.capture.sampler import running_tasks, sampler
from dask_diag.capture.task import MeasuredTask
from dask_diag.capture.thread_states import LinuxThreads

__all__ = ["ExplainedTask", "explain_running_tasks"]

INTERVAL = 0.01
"""Seconds between looks."""
_DID_NOT_RUN = 0.02
"""As much of an interval as a thread may have had of CPU that is said not to have run in it."""
_IDLE = 1.0
"""Seconds without a task after which a worker process's sampler ends."""

_threads: LinuxThreads | None = None
_lock = threading.Lock()
_idle_for = 0.0


def _linux() -> LinuxThreads:
    global _threads
    if _threads is None:
        _threads = LinuxThreads()
    return _threads


def _waited_for_cpu() -> float:
    """Seconds; NaN if they cannot be read just now: a task is never hindered by that."""
    try:
        return _linux().waited_for_cpu()
    except Exception:
        return float("nan")


class Watch:
    """One run of a task, from the thread that runs it; it can be looked at from another.

    Attributes
    ----------
    task : MeasuredTask or RemoteTask
    """

    __slots__ = ("_cpu", "_outer", "_tally", "_thread", "_waited", "task")

    def __init__(self, task: Any) -> None:
        self.task = task
        self._thread = get_native_id()
        self._tally: dict[str, list[float]] = {}
        self._waited = _waited_for_cpu()
        self._cpu = thread_time()
        ident = get_ident()
        self._outer = running_tasks.get(ident)
        running_tasks[ident] = self

    def look(self, passed: float) -> None:
        """Note what the thread waits for; `passed` seconds ago was the look before."""
        linux = _linux()
        try:
            activity, cpu = linux.waits_for(self._thread), linux.cpu(self._thread)
        except OSError:
            return
        ran = cpu - self._cpu > _DID_NOT_RUN * passed
        self._cpu = cpu
        metered = self.task.metered
        if not activity or (metered is not None and metered.open):
            return
        seen = self._tally.setdefault(activity, [0.0, 0])
        seen[0] += 0.0 if activity == "gil-wait" and ran else passed
        seen[1] += 1

    def end(self) -> None:
        """Hand what was seen to the task."""
        ident = get_ident()
        if self._outer is None:
            running_tasks.pop(ident, None)
        else:
            running_tasks[ident] = self._outer
        waited = _waited_for_cpu() - self._waited
        if self.task.metered is None:
            self.task.metered = Metered()
        self.task.metered.waits = [
            Wait("cpu-wait", waited, 0),
            *(Wait(activity, seen[0], int(seen[1])) for activity, seen in self._tally.items()),
        ]


def explain_running_tasks(passed: float) -> None:
    """Look at every task that runs."""
    for watch in tuple(running_tasks.values()):
        watch.look(passed)


class ExplainedTask(MeasuredTask):
    """A measured task that is looked at while it runs."""

    __slots__ = ()

    def __call__(self, values: Any = ()) -> Any:
        """Run the task."""
        watch = Watch(self)
        try:
            return MeasuredTask.__call__(self, values)
        finally:
            watch.end()

    def depart(self, transfer: Transfer) -> Any:
        """What it pickles to."""
        return RemoteExplainedTask, (
            Departure(transfer),
            self.task,
            self.compute.number,
            self.key,
        )


class RemoteExplainedTask(RemoteTask):
    """A task in a worker process that is looked at while it runs."""

    __slots__ = ("_watch",)

    def __call__(self, values: Mapping[Any, Any]) -> Delivery:
        """Run the task. The sampler that this starts ends when no task has come for a while."""
        global _idle_for
        with _lock:
            self._watch = Watch(self)
            _idle_for = 0.0
            sampler.add(_explain_in_worker, INTERVAL, _ignore)
        return RemoteTask.__call__(self, values)

    def ended(self) -> None:
        """Take over what was seen."""
        self._watch.end()


def _explain_in_worker(passed: float) -> None:
    global _idle_for
    explain_running_tasks(passed)
    with _lock:
        _idle_for = 0.0 if running_tasks else _idle_for + passed
        if _idle_for > _IDLE:
            sampler.remove(_explain_in_worker)


def _ignore(error: Exception) -> None:
    """What was not seen is told as unexplained."""
