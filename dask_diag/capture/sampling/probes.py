"""Tasks that are sampled while they run, by one or several probes, from the sampler's thread.

A probe is pickled along with tasks for other processes. The sampler's thread finds the tasks that
run now in `running_tasks`. Most tasks start and stop between two ticks, so a task probe is made
only when a task is sampled: what is done for each task costs ten times as much as all samples.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Collection, Hashable, Mapping
from threading import get_ident, get_native_id
from typing import TYPE_CHECKING, Any, Protocol

from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.sampling.sampler import Listener, Subscription, sampler
from dask_diag.capture.sampling.threads_now import running_tasks
from dask_diag.capture.tasks.metered import Metered
from dask_diag.capture.tasks.remote_task import Delivery, Departure, RemoteTask, Transfer
from dask_diag.capture.tasks.timed_task import TimedTask

if TYPE_CHECKING:
    from dask_diag.capture.computation import Computation
    from dask_diag.capture.sampling.linux_threads import LinuxThread

__all__ = ["Probe", "RunningTask", "SampledTask", "TaskProbe", "attach_probe"]


class SampledTask(Protocol):
    """A task that runs, in whichever wrapper; it has no start until it has started."""

    metered: Metered | None

    @property
    def key(self) -> Hashable:
        """Its key."""

    @property
    def task(self) -> object:
        """The task itself."""

    @property
    def start(self) -> float | None:
        """When it started."""

    @property
    def stop(self) -> float | None:
        """When it stopped."""

    @property
    def cpu_before(self) -> float:
        """The CPU seconds of its thread as it started."""

    @property
    def cpu(self) -> float:
        """Its CPU seconds, once it has stopped."""


_IDLE = 1.0
"""Seconds without a task after which a worker process's sampler ends."""


class TaskProbe(Protocol):
    """One run of a task, as one probe samples it."""


class Probe(Protocol):
    """What samples the tasks of a computation, every `interval` seconds."""

    @property
    def interval(self) -> float:
        """Seconds between samples."""

    @property
    def sample(self) -> Listener:
        """What the sampler calls; all probes of a kind share it."""

    def start(self, run: RunningTask) -> None:
        """Read what cannot be read later; called on the task's thread just before it starts."""

    def stop(self, run: RunningTask) -> None:
        """Hand the samples to the task; called on its thread when it has stopped."""

    def task_probe(self, run: RunningTask) -> TaskProbe:
        """The task probe of a task, made when it is sampled first."""


class RunningTask:
    """One run of a task, from the thread that runs it; it can be sampled from another.

    Attributes
    ----------
    task : TimedTask or RemoteTask
        It is another's once this run has ended, and `running_tasks` has it no more.
    native_id : int
        Of the thread.
    task_probes : dict
        The task probe of each probe that has sampled it, by the probe's type.
    thread : LinuxThread or None
    waited : bytes
        What the wait probe read of the thread as the task started.
    """

    __slots__ = ("_outer", "_probes", "native_id", "task", "task_probes", "thread", "waited")

    thread: LinuxThread | None
    waited: bytes

    def __init__(self, task: SampledTask, probes: Collection[Probe]) -> None:
        self.task = task
        self._probes = probes
        self.native_id = _this_thread.native_id
        self.task_probes: Mapping[type, Any] = _NONE
        for probe in probes:
            probe.start(self)
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
        for probe in self._probes:
            probe.stop(self)

    def task_probe(self, kind: type) -> Any:
        """The task probe of a kind of probe; None if there is none, or the task has not started."""
        task_probe = self.task_probes.get(kind)
        if task_probe is None and self.task.start is not None:
            for probe in self._probes:
                if type(probe) is kind:
                    task_probe = probe.task_probe(self)
                    self.task_probes = {**self.task_probes, kind: task_probe}
        return task_probe


_NONE: Mapping[type, Any] = {}


class _ThisThread(threading.local):
    """The native id of each thread, asked once: the system takes longer than to look it up."""

    def __init__(self) -> None:
        self.native_id = get_native_id()


_this_thread = _ThisThread()


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
        run = RunningTask(self, self.computation.probes.values())
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
        self._run = RunningTask(self, self._probes)
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
    global _lock, _this_thread
    _lock = threading.Lock()
    _this_thread = _ThisThread()
    running_tasks.clear()
    _users.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
