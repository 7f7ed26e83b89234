"""Tasks of this process's computations that are sampled while they run, and in its workers.

The sampler's thread finds them by `running_now`.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Hashable, Mapping
from time import perf_counter, thread_time
from typing import TYPE_CHECKING, Any

from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.sampling.probes import (
    NO_TASK_PROBES,
    Probe,
    RunningTask,
    this_thread_of,
)
from dask_diag.capture.sampling.sampler import Listener, Subscription, sampler
from dask_diag.capture.sampling.threads_now import TaskProbe, TaskProbes, running_tasks
from dask_diag.capture.sampling.ticks import ALWAYS
from dask_diag.capture.tasks.metering import runs_a_task
from dask_diag.capture.tasks.remote_task import Departure, RemoteTask, Transfer, running
from dask_diag.capture.tasks.task_thread import NO_THREAD, TaskThread
from dask_diag.capture.tasks.timed_task import Owner, TimedTask
from dask_diag.capture.tracebacks import passes_errors_on, take_out_own_frames

if TYPE_CHECKING:
    from dask_diag.capture.computation import Computation

__all__ = ["ProbedTask", "RemoteProbedTask", "attach_probe"]

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
    befores = [probe.before for probe in computation.probes.values()]
    computation.before_tasks = tuple(before for before in befores if before is not None)
    computation.this_thread = this_thread_of(computation.probes.values())
    without_ticks = [probe.without_ticks for probe in computation.probes.values()]
    computation.without_ticks = next(filter(None, without_ticks), ALWAYS)
    computation.sampling_failed = (*computation.sampling_failed, failed)
    computation.wrapper_type = ProbedTask


class ProbedTask(TimedTask):
    """A timed task that is sampled while it runs: the sampler finds it among the wrappers.

    To enter each task in a register of those that run took longer than to time it: tasks clear the
    caches, so each step takes several times as long as in a loop.

    Attributes
    ----------
    cpu_before : float
        The CPU seconds of its thread as it started.
    runs_on, task_probes, waited
        See `TaskRun`. Task probes of the run before may be among them: each has its run's start.
    """

    __slots__ = ("cpu_before", "runs_on", "task_probes", "waited")

    cpu_before: float
    waited: bytes

    def __init__(self, computation: Owner) -> None:
        super().__init__(computation)
        self.runs_on: TaskThread = NO_THREAD
        self.task_probes: TaskProbes = NO_TASK_PROBES
        self.waited = b""

    def __call__(self, values: object = ()) -> Any:
        """Run the task as a `TimedTask` does: a call of its method would cost each task more."""
        computation = self.computation
        self.runs_on = thread = computation.this_thread.now
        thread.tasks = number = thread.tasks + 1
        if number >= thread.due:
            for before in computation.before_tasks:
                before(self)
        start = perf_counter()
        self.cpu_before = cpu = thread_time()
        # Last, for those that sample the task: it has started.
        self.start = start
        try:
            result = self.task.__call__(values)
        except BaseException as error:
            self.fail(error, cpu)
            self._stop_probes()
            raise
        self.cpu = thread_time() - cpu
        self.stop = stop = perf_counter()
        quiet_from, quiet_until = computation.without_ticks.span
        # Of most tasks nothing was sampled, and nothing missed: no probe is asked.
        if self.task_probes or self.waited or start < quiet_from or stop >= quiet_until:
            self._stop_probes()
        result_sizes = computation.result_sizes
        if result_sizes is not None:
            self.size = result_sizes.size_of(result)
        return result

    def _stop_probes(self) -> None:
        try:
            for probe in self.computation.probes.values():
                probe.stop(self, self)
        except Exception as error:
            self.computation.report_sampling_failed(error)
        self.task_probes = NO_TASK_PROBES
        self.waited = b""

    def task_probe(self, kind: type) -> TaskProbe | None:
        """The task probe of a kind of probe; None if there is none, or no task runs."""
        start = self.start
        if start is None or self.stop is not None:
            return None
        task_probe: TaskProbe | None = self.task_probes.get(kind)
        if task_probe is None or task_probe.start != start:
            probe = self.computation.probes.get(kind)
            if probe is None:
                return None
            task_probe = probe.task_probe(self, self, start)
            self.task_probes = {**self.task_probes, kind: task_probe}
        return task_probe

    def goes_on(self, task_probe: TaskProbe) -> bool:
        """Whether the run that this task probe samples has not ended."""
        return self.stop is None and self.start == task_probe.start

    def depart(self, transfer: Transfer) -> tuple[object, ...]:
        """What it pickles to."""
        return RemoteProbedTask, (
            Departure(transfer),
            self.task,
            self.computation.number,
            self.key,
            tuple(self.computation.probes.values()),
        )


runs_a_task.add(id(ProbedTask.__call__.__code__))
passes_errors_on.add(id(ProbedTask.__call__.__code__))


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
        self._run: RunningTask | None = None

    def __call__(self, values: Mapping[Hashable, object]) -> object:
        """Run the task. A sampler that this starts ends when no task has come for a while."""
        try:
            if self.computation not in running:
                _sample_for_a_while(self._probes)
            # Else a pool of threads runs it in the computing process, whose sampler finds it.
            self._run = RunningTask(self, self._probes)
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"
        try:
            return RemoteTask.__call__(self, values)
        except BaseException as error:
            take_out_own_frames(error)
            raise

    def ended(self) -> None:
        """Take the samples."""
        if self._run is None:
            return
        try:
            self._run.end()
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"


passes_errors_on.add(id(RemoteProbedTask.__call__.__code__))


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
    """Start again in the child of a fork, which has no sampler."""
    global _lock
    _lock = threading.Lock()
    _users.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
