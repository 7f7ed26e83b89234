"""The samples of CPU and memory since the last chunk, while computations run."""

from __future__ import annotations

from array import array
from collections.abc import Callable, Sequence
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from dask_diag.builders.chunks import Increment
from dask_diag.builders.recording import processes_table, resources_table
from dask_diag.capture.system.resource_sampler import PROCESS_COLUMNS, SAMPLE_COLUMNS, ResourceRows
from dask_diag.model.table import Table, stack

if TYPE_CHECKING:
    from dask_diag.builders.cluster_processes import RemoteProcesses
    from dask_diag.capture.cluster.log import ClusterLog

__all__ = ["IncrementalResources", "sampled_tables"]

_SECONDS_TO_ARRIVE = 2.0
"""For so long samples of other hosts may be on the way."""
_SECONDS_OF_HISTORY = 600.0


def sampled_tables(
    samples: array[float], processes: array[float], logs: Sequence[ClusterLog]
) -> dict[str, Table]:
    """`Recording.resources` and `Recording.processes` of all that was sampled."""
    resources, local = resources_table(samples), processes_table(processes, logs)
    if not logs:
        return {"resources": resources, "processes": local}
    from dask_diag.builders.cluster_processes import RemoteProcesses, with_remote_processes

    remote = RemoteProcesses().take(logs)
    start = float(np.min(local["time"], initial=np.inf))
    together: Table = stack([local, remote])
    return {
        "resources": with_remote_processes(resources, remote, start),
        "processes": together.rows(np.argsort(together["time"], kind="stable")),
    }


class IncrementalResources:
    """The samples of a ResourceProfiler.

    Parameters
    ----------
    rows : ResourceRows
    logs : callable
        Returns what was pulled from clusters.
    """

    def __init__(
        self, rows: ResourceRows, logs: Callable[[], Sequence[ClusterLog]] = tuple
    ) -> None:
        self._resources = _NewRows(rows.samples, len(SAMPLE_COLUMNS))
        self._processes = _NewRows(rows.processes, len(PROCESS_COLUMNS))
        self._logs = logs
        self._remote: RemoteProcesses | None = None
        self._recent: Table = Table({})
        self._waiting: Table = Table({})
        self._last = -np.inf

    def take(self) -> Increment:
        """The samples since last asked; those that others may still be added to are provisional."""
        logs = self._logs()
        resources = resources_table(self._resources.take())
        processes = processes_table(self._processes.take(), logs)
        if self._last == -np.inf and len(processes):
            self._last = float(processes.time[0])
        if not logs:
            return {"resources": resources, "processes": processes}, {}
        if self._remote is None:
            from dask_diag.builders.cluster_processes import RemoteProcesses

            self._remote = RemoteProcesses()
        remote = self._remote.take(logs)
        processes = stack([processes, remote])
        recent = stack([self._recent, remote])
        now = perf_counter()
        self._recent = recent.rows(recent["time"] > now - _SECONDS_OF_HISTORY)
        waiting = stack([self._waiting, resources])
        # A row is the sum over all hosts: it is final when no sample of its time can come any more.
        is_new = waiting["time"] > now - _SECONDS_TO_ARRIVE
        final, self._waiting = waiting.rows(~is_new), waiting.rows(is_new)
        new = {"resources": self._complete(final), "processes": processes}
        self._last = float(np.max(final["time"], initial=self._last))
        return new, {"resources": self._complete(self._waiting)}

    def _complete(self, resources: Table) -> Table:
        from dask_diag.builders.cluster_processes import with_remote_processes

        return with_remote_processes(resources, self._recent, self._last)


class _NewRows:
    """The complete rows of numbers that were added since last asked."""

    def __init__(self, numbers: array[float], width: int) -> None:
        self._numbers = numbers
        self._width = width
        self._position = 0

    def take(self) -> array[float]:
        # The sampling thread may be in the middle of a row.
        stop = len(self._numbers) // self._width * self._width
        new = self._numbers[self._position : stop]
        self._position = stop
        return new
