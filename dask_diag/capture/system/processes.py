"""One process's numbers, from the operating system: on Linux from ``/proc``, else from psutil."""

from __future__ import annotations

import os
import sys
from typing import Protocol

import psutil

from dask_diag.capture.system.linux_processes import Counters, LinuxReader, Memory

__all__ = ["Counters", "Memory", "NoSuchProcess", "ProcessReader", "process_reader"]

NoSuchProcess = (ProcessLookupError, psutil.Error)
"""What reading a process raises that has ended."""

_NAN = float("nan")


class ProcessReader(Protocol):
    """How to ask for a process's numbers, by its pid."""

    def children(self, pid: int) -> list[int]:
        """The processes that it started and that have not ended."""

    def cpu(self, pid: int) -> float:
        """CPU seconds since it began."""

    def counters(self, pid: int) -> Counters:
        """Memory, threads, and bytes moved."""

    def resident(self, pid: int) -> float:
        """Bytes of memory that are resident, shared or not."""

    def memory(self, pid: int) -> Memory:
        """Memory, and how much of it is shared: that takes long where there is much."""


def process_reader() -> ProcessReader:
    """The best reader that this platform has."""
    if sys.platform == "linux" and os.path.exists(f"/proc/self/task/{os.getpid()}/children"):
        return LinuxReader()
    return PsutilReader()


class PsutilReader:
    """Reads with psutil, on any platform."""

    def children(self, pid: int) -> list[int]:
        """The processes that it started and that have not ended."""
        return [child.pid for child in psutil.Process(pid).children()]

    def cpu(self, pid: int) -> float:
        """CPU seconds since it began, as fine as the platform counts them."""
        times = psutil.Process(pid).cpu_times()
        return float(times.user + times.system)

    def counters(self, pid: int) -> Counters:
        """Memory, threads, and bytes moved."""
        process = psutil.Process(pid)
        with process.oneshot():
            memory, threads = process.memory_info().rss, process.num_threads()
            try:
                moved = process.io_counters()
            except (AttributeError, NotImplementedError, psutil.AccessDenied):
                return Counters(memory, threads, _NAN, _NAN)
        return Counters(memory, threads, moved.read_bytes, moved.write_bytes)

    def resident(self, pid: int) -> float:
        """Bytes of memory that are resident, shared or not."""
        return float(psutil.Process(pid).memory_info().rss)

    def memory(self, pid: int) -> Memory:
        """Memory, and how much of it is shared, where the platform has it."""
        process = psutil.Process(pid)
        try:
            full = process.memory_full_info()
        except (psutil.AccessDenied, NotImplementedError):
            return Memory(self.resident(pid), _NAN, _NAN)
        return Memory(full.rss, getattr(full, "pss", _NAN), getattr(full, "uss", _NAN))
