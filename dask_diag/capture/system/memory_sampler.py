"""Samples of the memory of this process and its descendants, over one block."""

from __future__ import annotations

from array import array
from collections.abc import Callable
from time import perf_counter

from dask_diag.capture.system.periodic import PeriodicThread

__all__ = ["MEMORY_COLUMNS", "BlockSampler"]

MEMORY_COLUMNS = ("time", "rss", "pss", "uss", "processes", "delay")


class BlockSampler:
    """Samples of one block, the first of which is taken on the thread that enters it."""

    def __init__(
        self, rows: array[float], interval: float, failed: Callable[[Exception], None]
    ) -> None:
        from dask_diag.capture.system.memory_tree import MemoryTree

        self._rows = rows
        self._tree = MemoryTree()
        self._waited_for = True
        self._sample(perf_counter())
        self._waited_for = False
        self._thread = PeriodicThread("memory", interval, self._sample, failed, interval)

    def stop(self) -> None:
        """Take a last sample and end the thread, at once."""
        self._waited_for = True
        self._thread.stop()

    def _sample(self, due: float) -> None:
        reading = self._tree.read(self._waited_for)
        self._rows.extend((*reading, reading.time - due))
