"""CPU used during a computation: by this process, its descendants, and other programs."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from math import ceil, isnan, nan
from time import perf_counter, process_time, thread_time
from typing import TYPE_CHECKING, NamedTuple

from dask_diag.system.control_groups import CpuLimit, cpu_limit
from dask_diag.system.periodic import ShareOfTime

if TYPE_CHECKING:
    from dask_diag.system.processes import ProcessReader


_SHARE_OF_TIME = 0.01
_SHORTEST = 0.05
"""Seconds between two readings, at least: the kernel counts in steps of ten milliseconds."""


class Reading(NamedTuple):
    """CPU seconds of descendants and of other programs up to a moment; NaN if unknown.

    With the limit of CPU time of this process at that moment.
    """

    time: float
    children: float
    others: float
    limit: CpuLimit = CpuLimit()


class MachineCpu:
    """Reads CPU seconds of other processes, at most for a hundredth of the time.

    Only the difference of two readings means something: see `used_since`.
    """

    def __init__(self) -> None:
        self._pid = 0
        self._work = ShareOfTime(_SHARE_OF_TIME)
        self._last = Reading(0.0, nan, nan)

    def read(self) -> Reading:
        """CPU seconds up to now, or up to the last reading if recent."""
        start, pid = perf_counter(), os.getpid()
        pause = max(_SHORTEST, self._work.pause)
        if pid == self._pid and start - self._last.time < pause:
            return self._last
        with self._work:
            limit = cpu_limit()
            try:
                cpus, idle = idle_seconds()
                busy, children = cpus * perf_counter() - idle, children_seconds()
                others = busy - process_time() - children
                # Of the CPUs that are not for this process, a part of what others use is counted.
                share = min(1.0, limit.cpus / cpus) if cpus else 1.0
                self._last = Reading(start, children, share * others, limit)
            except Exception:
                # A /proc that has no such files, or that this process may not read.
                self._last = Reading(start, nan, nan, limit)
        self._pid = pid
        return self._last


_machine = MachineCpu()


def machine_cpu() -> Reading:
    """CPU seconds of descendants and of other programs; see `MachineCpu`."""
    return _machine.read()


def used_since(before: Reading, now: Reading) -> tuple[float, float]:
    """Mean number of CPUs used by descendants, and by other programs, between two readings.

    NaN if they are one reading.
    """
    lasted = now.time - before.time
    if not lasted:
        return nan, nan
    children, others = now.children - before.children, now.others - before.others
    # The kernel counts in steps: what others used can seem to be less than nothing.
    return (
        0.0 if children < 0 else children / lasted,
        0.0 if others < 0 else others / lasted,
    )


def idle_seconds() -> tuple[int, float]:
    """Number of CPUs allowed for the process, and their idle seconds."""
    # It takes milliseconds to import.
    import psutil

    allowed = os.sched_getaffinity(0) if hasattr(os, "sched_getaffinity") else None
    idle = [
        seconds.idle + getattr(seconds, "iowait", 0.0)
        for cpu, seconds in enumerate(psutil.cpu_times(percpu=True))
        if allowed is None or cpu in allowed
    ]
    return len(idle), sum(idle)


def children_seconds() -> float:
    """CPU seconds of descendants: live ones, and ended children waited for."""
    from dask_diag.system.processes import NoSuchProcess, cpu_of_ended_children

    total, reader = cpu_of_ended_children(), _reader()
    for child in reader.descendants(os.getpid()):
        with suppress(*NoSuchProcess):
            total += reader.cpu(child)
    return total


@cache
def _reader() -> ProcessReader:
    from dask_diag.system.processes import process_reader

    return process_reader()


try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]


class Usage(NamedTuple):
    """CPU seconds of the process, of the calling thread and of other processes; context switches.

    `cpu_children` is that of all descendants, `cpu_other_processes` that of other programs on the
    CPUs that the process may use. A switch is voluntary if the thread had to wait for something,
    and involuntary if it could have gone on. `throttled` is the time in which the limit of a
    control group held CPUs back, summed over these; NaN without a limit.
    """

    cpu_process: float
    thread_cpu: float
    voluntary: float
    involuntary: float
    cpu_children: float
    cpu_other_processes: float
    throttled: float


class UsageSoFar(NamedTuple):
    """Usage up to a moment."""

    time: float
    cpu_process: float
    thread_cpu: float
    voluntary: float
    involuntary: float
    machine: Reading
    throttled: float

    @classmethod
    def now(cls, cpu_of_thread: Callable[[], float] = thread_time) -> UsageSoFar:
        """Read the usage so far, with the CPU seconds of this or another thread."""
        used = resource.getrusage(resource.RUSAGE_SELF) if resource else None
        voluntary, involuntary = (used.ru_nvcsw, used.ru_nivcsw) if used else (nan, nan)
        clocks = perf_counter(), process_time(), cpu_of_thread()
        machine = machine_cpu()
        return cls(*clocks, voluntary, involuntary, machine, machine.limit.throttled())

    def until_now(self, cpu_of_thread: Callable[[], float] = thread_time) -> Usage:
        """Usage since then, with that of the same thread as before."""
        now = UsageSoFar.now(cpu_of_thread)
        # The machine is not read at the same moments as the time.
        children, others = used_since(self.machine, now.machine)
        lasted = now.time - self.time
        return Usage(
            now.cpu_process - self.cpu_process,
            now.thread_cpu - self.thread_cpu,
            now.voluntary - self.voluntary,
            now.involuntary - self.involuntary,
            nan if isnan(children) else lasted * children,
            nan if isnan(others) else lasted * others,
            nan if isnan(now.throttled) else now.throttled - self.throttled,
        )


NO_USAGE = UsageSoFar(*(nan,) * 5, Reading(nan, nan, nan), nan)
"""In place of that before a computation that has ended."""


class NativePool(NamedTuple):
    """Pool of threads of a native library, as ``openblas``, ``mkl``, ``openmp``, and its size."""

    library: str
    threads: int


NOT_LISTED = NativePool("", 0)
"""In place of pools where it is not known which there are."""


def processors() -> int:
    """Number of processors allowed for the process, by affinity and by its control groups."""
    try:
        allowed = len(os.sched_getaffinity(0))
    except AttributeError:
        allowed = os.cpu_count() or 1
    return int(min(allowed, max(1.0, ceil(min(cpu_limit().cpus, allowed)))))


def thread_pools() -> list[NativePool]:
    """Pools of loaded native libraries; `NOT_LISTED` without threadpoolctl."""
    if "numpy" not in sys.modules:
        return []
    try:
        from threadpoolctl import threadpool_info
    except ImportError:
        return [NOT_LISTED]
    try:
        pools = threadpool_info()
        listed = [NativePool(str(pool["internal_api"]), int(pool["num_threads"])) for pool in pools]
    except Exception:
        # It asks libraries that it may not know.
        return [NOT_LISTED]
    return listed
