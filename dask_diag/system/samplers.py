"""Threads that sample CPU, memory and I/O of processes, for profilers of resources and memory."""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Mapping
from contextlib import suppress
from math import nan
from time import perf_counter

from dask_diag.system.interpreter import growing_array
from dask_diag.system.periodic import PeriodicThread, ShareOfTime
from dask_diag.system.usage import machine_cpu, used_since

SAMPLE_COLUMNS = (
    "time",
    "cpu",
    "memory",
    "memory_children",
    "read",
    "written",
    "threads",
    "delay",
    "cpu_other_processes",
)

PROCESS_COLUMNS = ("time", "pid", "is_child", "memory", "cpu")

_FIRST_SAMPLE_AFTER = 0.01
_SHARE_OF_TIME_FOR_NOTES = 0.01
_NOTES_IN_AN_INTERVAL = 10


class ResourceRows:
    """Samples row upon row, as numbers.

    Attributes
    ----------
    samples : array of float
        `SAMPLE_COLUMNS` of each sample.
    processes : array of float
        `PROCESS_COLUMNS` of each process at each sample.
    """

    def __init__(self) -> None:
        self.samples = growing_array("d")
        self.processes = growing_array("d")

    def clear(self) -> None:
        """Forget all."""
        del self.samples[:]
        del self.processes[:]


class ResourceSampler:
    """Reads the process tree at set times until stopped."""

    def __init__(
        self,
        dt: float,
        rows: ResourceRows,
        failed: Callable[[Exception], None],
    ) -> None:
        from dask_diag.system.processes import ProcessTree, process_reader

        self._dt = dt
        self._rows = rows
        self._reader = process_reader()
        self._tree = ProcessTree()
        self._last = perf_counter()
        self._pid = os.getpid()
        self._cpu = 0.0
        self._cpu_of = self._tree.cpu_of
        self._machine = machine_cpu()
        self._notes = ShareOfTime(_SHARE_OF_TIME_FOR_NOTES)
        self._keep(self._last, self._tree.memory_of, {})
        self._thread = PeriodicThread("resources", dt, self._sample, failed, _FIRST_SAMPLE_AFTER)

    def stop(self) -> None:
        """Take a last sample and end the thread, at once."""
        self._thread.stop()

    def _sample(self, due: float) -> None:
        usage = self._tree.read()
        cpu = 100 * (usage.cpu - self._cpu) / (usage.time - self._last)
        machine, self._machine = self._machine, machine_cpu()
        # NaN if it is too soon for another reading.
        others = 100 * used_since(machine, self._machine)[1]
        self._rows.samples.extend(
            (usage.time, cpu, *usage[1:3], *usage[4:], usage.time - due, others)
        )
        percent = 100 / (usage.time - self._last)
        before, self._cpu_of = self._cpu_of, self._tree.cpu_of
        cpu_of = {
            pid: percent * (seconds - before.get(pid, 0.0)) for pid, seconds in self._cpu_of.items()
        }
        self._cpu, self._last = usage.cpu, usage.time
        self._keep(usage.time, self._tree.memory_of, cpu_of)

    def note(self) -> float:
        """Note the memory of each process on the calling thread, and return when to do so again."""
        from dask_diag.system.processes import NoSuchProcess

        start = perf_counter()
        memory_of = {}
        with self._notes:
            for pid in list(self._tree.memory_of):
                with suppress(*NoSuchProcess):
                    memory_of[pid] = self._reader.resident(pid)
            self._keep(start, memory_of, {})
        return start + max(self._notes.pause, self._dt / _NOTES_IN_AN_INTERVAL)

    def _keep(
        self, time: float, memory_of: Mapping[int, float], cpu_of: Mapping[int, float]
    ) -> None:
        rows = (
            (time, pid, pid != self._pid, memory, cpu_of.get(pid, nan))
            for pid, memory in memory_of.items()
        )
        # In one step, as notes are made on another thread.
        self._rows.processes.extend([number for row in rows for number in row])


MEMORY_COLUMNS = ("time", "rss", "pss", "uss", "processes", "delay")


class BlockSampler:
    """Samples the memory of one block, first on the entering thread."""

    def __init__(
        self, rows: array[float], interval: float, failed: Callable[[Exception], None]
    ) -> None:
        from dask_diag.system.processes import MemoryTree

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
