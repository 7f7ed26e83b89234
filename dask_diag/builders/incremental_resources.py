"""The samples of CPU and memory since the last chunk, while computations run."""

from __future__ import annotations

from array import array

from dask_diag.builders.chunks import Taken
from dask_diag.builders.recording import processes_table, resources_table
from dask_diag.capture.system.resource_sampler import PROCESS_COLUMNS, SAMPLE_COLUMNS, ResourceRows

__all__ = ["IncrementalResources"]


class IncrementalResources:
    """The samples of a ResourceProfiler."""

    def __init__(self, rows: ResourceRows) -> None:
        self._resources = _NewRows(rows.samples, len(SAMPLE_COLUMNS))
        self._processes = _NewRows(rows.processes, len(PROCESS_COLUMNS))

    def take(self) -> Taken:
        """The samples since last asked."""
        return {
            "resources": resources_table(self._resources.take()),
            "processes": processes_table(self._processes.take()),
        }, {}


class _NewRows:
    """The complete rows of numbers that were added since last asked."""

    def __init__(self, numbers: array[float], width: int) -> None:
        self._numbers = numbers
        self._width = width
        self._taken = 0

    def take(self) -> array[float]:
        stop = len(self._numbers) // self._width * self._width
        new = self._numbers[self._taken : stop]
        self._taken = stop
        return new
