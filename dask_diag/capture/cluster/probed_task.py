"""A task on a worker of a cluster that is sampled while it runs."""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.cluster_task import ClusterTask
from dask_diag.capture.cluster.formats import COROUTINE, Sampled
from dask_diag.capture.cluster.packed_stacks import packed_stacks
from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.sampling.probes import Probe, RunningTask
from dask_diag.capture.sampling.stack_probe import RemoteStackTaskProbe, StackProbe
from dask_diag.capture.sampling.stack_sample import StackSample
from dask_diag.capture.tasks.metered import Metered

if TYPE_CHECKING:
    from distributed.worker_state_machine import TaskState

__all__ = ["ProbedClusterTask"]


class SampledRun:
    """A run as probes have it.

    Attributes
    ----------
    stop : float or None
        When it stopped, by the clock of samples.
    cpu : float
    stacks : tuple of StackSample
    """

    __slots__ = ("_owner", "cpu", "stacks", "stop")

    def __init__(self, owner: ClusterTask) -> None:
        self._owner = owner
        self.stop: float | None = None
        self.cpu = 0.0
        self.stacks: tuple[StackSample, ...] = ()

    @property
    def key(self) -> Hashable:
        """The task's."""
        return self._owner.key

    @property
    def task(self) -> GraphNode:
        """The task itself."""
        return self._owner.task

    @property
    def start(self) -> float | None:
        """When it started; the CPU clock is read after that."""
        return self._owner.start if self._owner.cpu else None

    @property
    def cpu_before(self) -> float:
        """The CPU seconds of its thread as it started."""
        return self._owner.cpu

    @property
    def metered(self) -> Metered | None:
        """What is known of the task beside its times."""
        return self._owner.metered

    @metered.setter
    def metered(self, metered: Metered | None) -> None:
        self._owner.metered = metered


class ProbedClusterTask(ClusterTask):
    """Has the task sampled by probes, as those of other processes are.

    A coroutine is not: it shares its thread with the worker's event loop.
    """

    __slots__ = ("_probes", "_run", "_running")

    is_sampled = True

    def __init__(
        self,
        state: TaskState,
        task: GraphNode,
        clock: Callable[[], float],
        probes: Collection[Probe],
    ) -> None:
        super().__init__(state, task, clock)
        self._probes = probes
        self._run: SampledRun | None = None
        self._running: RunningTask | None = None

    def start_sampling(self) -> None:
        """Have the probes sample the thread that this is called on."""
        if self.is_coro:
            return
        try:
            run = SampledRun(self)
            self._running = RunningTask(run, self._probes)
            self._run = run
        except Exception as error:
            self.fault = f"{type(error).__name__}: {error}"

    def end_sampling(self, cpu: float) -> Sampled | tuple[()]:
        """What it waited for, and its stacks."""
        if self.is_coro:
            are_stacks = any(isinstance(probe, StackProbe) for probe in self._probes)
            return ([], COROUTINE) if are_stacks else ()
        run, running = self._run, self._running
        if run is None or running is None:
            return ()
        run.stop, run.cpu = perf_counter(), cpu
        running.end()
        waits = [] if self.metered is None else list(self.metered.waits)
        if not waits and not run.stacks:
            return ()
        return waits, packed_stacks(run.stacks)

    def leave_sampling(self) -> None:
        """Have the probes find it no more: its end may have failed before they were stopped."""
        if self._running is not None:
            self._running.leave()

    def so_far(self) -> Sampled | tuple[()]:
        """The stacks of a task that still runs; called from another thread."""
        running = self._running
        probe = None if running is None else running.task_probes.get(StackProbe)
        if not isinstance(probe, RemoteStackTaskProbe):
            return ()
        return [], packed_stacks(probe.samples())
