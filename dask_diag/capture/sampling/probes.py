"""Tasks that are sampled while they run, by one or several probes, from the sampler's thread.

A probe is pickled along with tasks for other processes. For each run of a task it makes a task
probe, on the thread that runs it; the sampler's thread finds the task probes of all tasks that run
now in `running_tasks`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Hashable, Mapping
from threading import get_ident
from typing import TYPE_CHECKING, Any, Protocol

from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.sampling.sampler import Listener, Subscription, sampler
from dask_diag.capture.sampling.threads_now import running_tasks
from dask_diag.capture.tasks.metered import Metered
from dask_diag.capture.tasks.remote_task import Delivery, Departure, RemoteTask, Transfer
from dask_diag.capture.tasks.timed_task import TimedTask

if TYPE_CHECKING:
    from dask_diag.capture.computation import Computation

__all__ = ["Probe", "RunningTask", "SampledTask", "TaskProbe", "attach_probe"]


class SampledTask(Protocol):
    """A task that runs, in whichever wrapper."""

    metered: Metered | None
    stop: float | None


_IDLE = 1.0
"""Seconds without a task after which a worker process's sampler ends."""


class TaskProbe(Protocol):
    """One run of a task, as one probe sees it."""

    def end(self) -> None:
        """Hand the samples to the task; called on its thread when it has stopped."""


class Probe(Protocol):
    """What samples the tasks of a computation, every `interval` seconds."""

    @property
    def interval(self) -> float:
        """Seconds between samples."""

    @property
    def sample(self) -> Listener:
        """What the sampler calls; all probes of a kind share it."""

    def task_probe(self, task: SampledTask) -> TaskProbe:
        """The task probe of the task that starts on this thread."""


class RunningTask:
    """One run of a task, from the thread that runs it; it can be sampled from another.

    Attributes
    ----------
    task_probes : dict
        The task probe of each probe, by the probe's type.
    """

    __slots__ = ("_outer", "task_probes")

    def __init__(self, task: SampledTask, probes: Mapping[type, Probe]) -> None:
        self.task_probes: dict[type, Any] = {
            kind: probe.task_probe(task) for kind, probe in probes.items()
        }
        ident = get_ident()
        self._outer = running_tasks.get(ident)
        running_tasks[ident] = self

    def end(self) -> None:
        """Be sampled no more."""
        ident = get_ident()
        if self._outer is None:
            running_tasks.pop(ident, None)
        else:
            running_tasks[ident] = self._outer
        for task_probe in self.task_probes.values():
            task_probe.end()


def attach_probe(computation: Computation, probe: Probe) -> None:
    """Have every task of a computation sampled, in whichever process it runs.

    A probe takes the place of one of its type.
    """
    computation.probes = {**computation.probes, type(probe): probe}
    computation.wrapper_type = ProbedTask


class ProbedTask(TimedTask):
    """A timed task that is sampled while it runs."""

    __slots__ = ()

    def __call__(self, values: object = ()) -> Any:
        """Run the task."""
        run = RunningTask(self, self.computation.probes)
        try:
            return TimedTask.__call__(self, values)
        finally:
            run.end()

    def depart(self, transfer: Transfer) -> tuple[object, ...]:
        """What it pickles to."""
        return RemoteProbedTask, (
            Departure(transfer),
            self.task,
            self.computation.number,
            self.key,
            tuple(self.computation.probes.values()),
        )


class RemoteProbedTask(RemoteTask):
    """A task in a worker process that is sampled while it runs."""

    __slots__ = ("_probes", "_run")

    def __init__(
        self,
        opened: float,
        task: GraphNode,
        computation: int,
        key: Hashable,
        probes: tuple[Probe, ...],
    ) -> None:
        super().__init__(opened, task, computation, key)
        self._probes = probes

    def __call__(self, values: Mapping[Hashable, object]) -> Delivery:
        """Run the task. The sampler that this starts ends when no task has come for a while."""
        _sample_for_a_while(self._probes)
        self._run = RunningTask(self, {type(probe): probe for probe in self._probes})
        return RemoteTask.__call__(self, values)

    def ended(self) -> None:
        """Take the samples."""
        self._run.end()


_lock = threading.Lock()
_users: dict[tuple[Listener, float], Subscription] = {}
"""Of a worker process: whom its sampler serves, by the probe and its interval."""
_idle_for = 0.0


def _sample_for_a_while(probes: tuple[Probe, ...]) -> None:
    global _idle_for
    with _lock:
        _idle_for = 0.0
        for listener, interval in (
            (_end_if_idle, _IDLE / 4),
            *((probe.sample, probe.interval) for probe in probes),
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
    """What was not sampled is counted as that."""


def _forget() -> None:
    """Start again in the child of a fork, which has none of these threads."""
    global _lock
    _lock = threading.Lock()
    running_tasks.clear()
    _users.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
