"""Probes attached to a computation: each samples its running tasks, here or in a worker process."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Collection, Mapping
from functools import partial
from math import isnan, nan
from typing import TYPE_CHECKING, Any

from dask_diag.capture.task import (
    NO_TASK_PROBES,
    ProbedTask,
    RemoteTask,
    ThisThread,
    running,
    this_thread,
)
from dask_diag.sampling.sampler import Listener, Subscription, running_tasks, sampler
from dask_diag.system.periodic import ALWAYS

if TYPE_CHECKING:
    from dask_diag.capture.computation import Computation


SampledTask = Any
"""A task that runs, in whichever wrapper: a `ProbedTask`, `RemoteTask` or `ClusterTask`.

It has `key`, `task`, `metered`, and `start` and `stop` (None before), with the CPU seconds of its
thread as it started, `cpu_before`, and its own, `cpu`, once it has stopped.
"""


def has_seceded(task: SampledTask) -> bool:
    """Whether a task of a cluster has left its worker's pool, mostly to wait for other tasks."""
    return not isnan(getattr(task, "seceded", nan))


TaskProbe = Any
"""Samples of one run of a task; it has the `start` of the run."""

TaskProbes = Mapping[type, TaskProbe]
"""The task probe of each probe that has sampled a run, by the probe's type."""

Probe = Any
"""A `WaitProbe` or a `StackProbe`, which samples the tasks of a computation.

Attributes
----------
interval : float
    Seconds between samples.
sample : callable
    Listener of the sampler; all probes of a kind share it.
this_thread : ThisThread or None
    Where the threads of tasks say which of these are due; None if nothing is read before.
before : callable or None
    Reads what cannot be read later, on the task's thread just before it starts, if due.
without_ticks : TimeWithoutTicks or None
    When no task misses a sample; None if the probe does not count what was missed.
stop : callable
    Hands the samples to the task; called on its thread when it has stopped. It may be left out for
    a task that was not sampled, had nothing read before it, and ran within `without_ticks`.
task_probe : callable
    Makes the task probe of a task that has started, when it is sampled first.
"""


def this_thread_of(probes: Collection[Probe]) -> ThisThread:
    """Where tasks that these probes sample find the thread that they run on."""
    return next(filter(None, [probe.this_thread for probe in probes]), this_thread)


class RunningTask:
    """One run of a task in a worker; while it goes on `running_tasks` has it.

    Attributes
    ----------
    task : SampledTask
    runs_on : TaskThread
    task_probes : mapping
        The task probe of each probe that has sampled the task, by the probe's type.
    waited : bytes
        What the wait probe read of the thread as the task started; empty before, and if it was not
        to be read.
    """

    __slots__ = ("_outer", "_probes", "runs_on", "task", "task_probes", "waited")

    waited: bytes

    def __init__(self, task: SampledTask, probes: Collection[Probe]) -> None:
        self.task = task
        self._probes = probes
        self.runs_on = thread = this_thread_of(probes).now
        self.task_probes: TaskProbes = NO_TASK_PROBES
        self.waited = b""
        thread.tasks += 1
        if thread.tasks >= thread.due:
            for probe in probes:
                if probe.before is not None:
                    probe.before(self)
        ident = thread.ident
        self._outer = running_tasks.get(ident)
        running_tasks[ident] = self

    def end(self) -> None:
        """Be sampled no more, and hand the samples to the task."""
        self.leave()
        for probe in self._probes:
            probe.stop(self, self.task)

    def leave(self) -> None:
        """Be sampled no more; nothing happens where it is not."""
        ident = self.runs_on.ident
        if running_tasks.get(ident) is not self:
            return
        if self._outer is None:
            running_tasks.pop(ident, None)
        else:
            running_tasks[ident] = self._outer

    @property
    def start(self) -> float | None:
        """When the task started; None before."""
        return self.task.start  # type: ignore[no-any-return]

    def task_probe(self, kind: type[TaskProbe]) -> TaskProbe:
        """The task probe of a kind of probe; None if there is none, or the task has not started."""
        task_probe = self.task_probes.get(kind)
        start = self.task.start
        if task_probe is None and start is not None:
            for probe in self._probes:
                if isinstance(probe, kind):
                    task_probe = probe.task_probe(self, self.task, start)
                    self.task_probes = {**self.task_probes, kind: task_probe}
        return task_probe

    def goes_on(self, task_probe: object) -> bool:
        """Whether the run that this task probe samples has not ended."""
        return running_tasks.get(self.runs_on.ident) is self


if hasattr(os, "register_at_fork"):
    # The thread of a fork's child may have been in a task.
    os.register_at_fork(after_in_child=running_tasks.clear)


_IDLE = 1.0
"""Seconds without a task after which a worker process's sampler ends."""


def attach_probe(
    computation: Computation, probe: Probe, failed: Callable[[Exception], None]
) -> None:
    """Have every task of a computation sampled, in whichever process it runs.

    A probe takes the place of one of its type. `failed` is called with an error of it: the task's
    result is what it would be without.
    """
    computation.probes = {**computation.probes, type(probe): probe}
    computation.sampling_failed = (*computation.sampling_failed, failed)
    computation.wrapper_type = ProbedTask


def prepare_probes(computation: Computation) -> None:
    """Prepare the attached probes of a computation for its first task."""
    probes = tuple(computation.probes.values())
    befores = [probe.before for probe in probes]
    computation.before_tasks = tuple([before for before in befores if before is not None])
    computation.this_thread = this_thread_of(probes)
    without_ticks = [probe.without_ticks for probe in probes]
    computation.without_ticks = next(filter(None, without_ticks), ALWAYS)
    computation.start_run = partial(start_run, probes)


def start_run(probes: Collection[Probe], task: RemoteTask) -> RunningTask:
    """Start to sample a task in a worker process; its sampler ends when no task came for a while.

    Where a pool of threads runs the task in the computing process, the sampler of that finds it.
    """
    if task.computation not in running:
        _worker_sampling.go_on(probes)
    return RunningTask(task, probes)


class WorkerSampling:
    """Users of the sampler of a worker process, by the probe's listener and its interval."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users: dict[tuple[Listener, float], Subscription] = {}
        self._idle_for = 0.0

    def go_on(self, probes: Collection[Probe]) -> None:
        """Sample by these probes, from now on until no task has run for a while."""
        with self._lock:
            self._idle_for = 0.0
            listeners = [(probe.sample, probe.interval) for probe in probes]
            for user in (self._end_if_idle, _IDLE / 4), *listeners:
                if user not in self._users:
                    self._users[user] = sampler.add(*user, _ignore)

    def _end_if_idle(self, passed: float) -> None:
        with self._lock:
            self._idle_for = 0.0 if running_tasks else self._idle_for + passed
            if self._idle_for > _IDLE:
                for user in self._users.values():
                    sampler.remove(user)
                self._users.clear()


def _ignore(error: Exception) -> None:
    """What was not sampled is counted as that."""


_worker_sampling = WorkerSampling()
if hasattr(os, "register_at_fork"):
    # The child of a fork has no sampler.
    os.register_at_fork(after_in_child=_worker_sampling.__init__)  # type: ignore[misc]
