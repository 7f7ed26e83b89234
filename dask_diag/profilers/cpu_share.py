"""The CPU share of tasks while their computation runs."""

from __future__ import annotations

from math import isnan

from dask_diag.capture.computation import Computation
from dask_diag.capture.tasks.task_row import ROW

__all__ = ["CpuShare"]


class CpuShare:
    """The share of the tasks' seconds that they spent on a processor, kept up to date."""

    def __init__(self, computation: Computation) -> None:
        self._compute = computation
        self._position = 0
        self._wall = self._cpu = 0.0

    def read(self) -> float | None:
        """A number from 0 to 1; None while no task has been done."""
        numbers = memoryview(self._new_rows()).cast("d")
        width = ROW.size // numbers.itemsize
        self._position += len(numbers) // width
        spent = zip(numbers[1::width], numbers[2::width], numbers[3::width], strict=True)
        for start, stop, cpu in spent:
            if not isnan(cpu):
                self._wall += stop - start
                self._cpu += cpu
        return self._cpu / self._wall if self._wall > 0 else None

    def _new_rows(self) -> bytes:
        rows, finished = self._compute.rows[self._position :], self._compute.finished
        if finished is None:
            return b"".join(rows)
        return finished.tasks.rows[self._position * ROW.size :]
