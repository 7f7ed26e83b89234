"""A task on a worker of a cluster that is sampled while it runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from time import perf_counter
from typing import TYPE_CHECKING

from dask_diag.capture.cluster.cluster_task import ClusterTask
from dask_diag.capture.cluster.formats import COROUTINE, Sampled
from dask_diag.capture.cluster.packed_stacks import packed_stacks
from dask_diag.capture.dask_internals import GraphNode
from dask_diag.capture.sampling.probes import Probe, RunningTask
from dask_diag.capture.sampling.stack_probe import RemoteStackTaskProbe, StackProbe
from dask_diag.capture.sampling.stack_sample import StackSample

if TYPE_CHECKING:
    from distributed.worker_state_machine import TaskState

__all__ = ["ProbedClusterTask"]


class ProbedClusterTask(ClusterTask):
    """Has the task sampled by probes, as those of other processes are.

    A coroutine is not: it shares its thread with the worker's event loop.

    Attributes
    ----------
    stop : float or None
        When it stopped, by the clock of samples.
    stacks : tuple of StackSample
    """

    __slots__ = ("_probes", "_run", "stacks", "stop")

    def __init__(
        self,
        state: TaskState,
        task: GraphNode,
        clock: Callable[[], float],
        probes: Mapping[type, Probe],
    ) -> None:
        super().__init__(state, task, clock)
        self._probes = probes
        self._run: RunningTask | None = None
        self.stop: float | None = None
        self.stacks: tuple[StackSample, ...] = ()

    def __call__(self, values: object = ()) -> object:
        """Run the task."""
        if not self.is_coroutine:
            self._run = RunningTask(self, self._probes)
        return ClusterTask.__call__(self, values)

    def end_sampling(self) -> Sampled | tuple[()]:
        """What it waited for, and its stacks."""
        if self._run is None:
            return ([], COROUTINE) if StackProbe in self._probes else ()
        self.stop = perf_counter()
        self._run.end()
        return self._sampled()

    def so_far(self) -> Sampled | tuple[()]:
        """The stacks of a task that still runs; called from another thread."""
        probe = None if self._run is None else self._run.task_probes.get(StackProbe)
        if not isinstance(probe, RemoteStackTaskProbe):
            return ()
        return [], packed_stacks(probe.samples())

    def _sampled(self) -> Sampled | tuple[()]:
        waits = [] if self.metered is None else list(self.metered.waits)
        if not waits and not self.stacks:
            return ()
        return waits, packed_stacks(self.stacks)
