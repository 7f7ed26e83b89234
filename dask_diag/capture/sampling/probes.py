"""Tasks that are looked at while they run, by one or several lookers, from the sampler's thread.

A looker is what wants to look: it is pickled along with tasks for other processes. For each run of
a task it makes a sight, on the thread that runs it; the sampler's thread finds the sights of all
tasks that run now in `running_tasks`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from dask_diag.capture.sampling.sampler import Listener, Listening, sampler
from dask_diag.capture.tasks.remote_task import Delivery, Departure, RemoteTask, Transfer
from dask_diag.capture.tasks.timed_task import MeasuredTask

if TYPE_CHECKING:
    from dask_diag.capture.computation import Compute

__all__ = ["Looker", "Sight", "Watch", "let_be_watched", "running_tasks"]

_IDLE = 1.0
"""Seconds without a task after which a worker process's sampler ends."""


class Sight(Protocol):
    """One run of a task, as one looker sees it."""

    def end(self) -> None:
        """Hand what was seen to the task; called on its thread when it has ended."""


class Looker(Protocol):
    """What wants to look at the tasks of a compute, every `interval` seconds."""

    @property
    def interval(self) -> float:
        """Seconds between looks."""

    @property
    def look(self) -> Listener:
        """What the sampler calls; all lookers of a kind share it."""

    def sight(self, task: Any) -> Sight:
        """A sight of the task that begins on this thread."""


class Watch:
    """One run of a task, from the thread that runs it; it can be looked at from another.

    Attributes
    ----------
    sights : dict
        The sight of each looker, by the looker's type.
    """

    __slots__ = ("_outer", "sights")

    def __init__(self, task: Any, lookers: Mapping[type[Any], Looker]) -> None:
        self.sights: dict[type[Any], Any] = {
            kind: looker.sight(task) for kind, looker in lookers.items()
        }
        ident = get_ident()
        self._outer = running_tasks.get(ident)
        running_tasks[ident] = self

    def end(self) -> None:
        """Be looked at no more."""
        ident = get_ident()
        if self._outer is None:
            running_tasks.pop(ident, None)
        else:
            running_tasks[ident] = self._outer
        for sight in self.sights.values():
            sight.end()


running_tasks: dict[int, Watch] = {}
"""The run of a watched task on each thread, by the thread's ident."""


def let_be_watched(compute: Compute, looker: Looker) -> None:
    """Have every task of a compute looked at, in whichever process it runs.

    A looker takes the place of one of its type.
    """
    compute.lookers = {**compute.lookers, type(looker): looker}
    compute.stand_in_type = WatchedTask


class WatchedTask(MeasuredTask):
    """A measured task that is looked at while it runs."""

    __slots__ = ()

    def __call__(self, values: Any = ()) -> Any:
        """Run the task."""
        watch = Watch(self, self.compute.lookers)
        try:
            return MeasuredTask.__call__(self, values)
        finally:
            watch.end()

    def depart(self, transfer: Transfer) -> Any:
        """What it pickles to."""
        return RemoteWatchedTask, (
            Departure(transfer),
            self.task,
            self.compute.number,
            self.key,
            tuple(self.compute.lookers.values()),
        )


class RemoteWatchedTask(RemoteTask):
    """A task in a worker process that is looked at while it runs."""

    __slots__ = ("_lookers", "_watch")

    def __init__(
        self, opened: float, task: Any, compute: int, key: Any, lookers: tuple[Looker, ...]
    ) -> None:
        super().__init__(opened, task, compute, key)
        self._lookers = lookers

    def __call__(self, values: Mapping[Any, Any]) -> Delivery:
        """Run the task. The sampler that this starts ends when no task has come for a while."""
        _look_for_a_while(self._lookers)
        self._watch = Watch(self, {type(looker): looker for looker in self._lookers})
        return RemoteTask.__call__(self, values)

    def ended(self) -> None:
        """Take over what was seen."""
        self._watch.end()


_lock = threading.Lock()
_users: dict[Any, Listening] = {}
"""Of a worker process: whom its sampler serves, by the looker and its interval."""
_idle_for = 0.0


def _look_for_a_while(lookers: tuple[Looker, ...]) -> None:
    global _idle_for
    with _lock:
        _idle_for = 0.0
        for listener, interval in (
            (_end_if_idle, _IDLE / 4),
            *((x.look, x.interval) for x in lookers),
        ):
            if (listener, interval) not in _users:
                _users[listener, interval] = sampler.add(listener, interval, _ignore)


def _end_if_idle(passed: float) -> None:
    global _idle_for
    with _lock:
        _idle_for = 0.0 if running_tasks else _idle_for + passed
        if _idle_for > _IDLE:
            for user in _users.values():
                sampler.remove(user)
            _users.clear()


def _ignore(error: Exception) -> None:
    """What was not seen is told as such."""


def _forget() -> None:
    """Begin anew in the child of a fork, which has none of these threads."""
    global _lock
    _lock = threading.Lock()
    running_tasks.clear()
    _users.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
