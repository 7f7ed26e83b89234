"""What this process used while a computation ran, and the pools of threads that it holds."""

from __future__ import annotations

import os
import sys
from time import perf_counter, process_time, thread_time
from typing import NamedTuple

from dask_diag.capture.system.machine_cpu import Reading, machine_cpu, used_since

try:
    import resource
except ImportError:
    resource = None  # type: ignore[assignment]

__all__ = ["NativePool", "Usage", "UsageSoFar", "processors", "thread_pools"]

_NAN = float("nan")


class Usage(NamedTuple):
    """CPU seconds of the process, of the calling thread and of other processes; context switches.

    `children_cpu` is that of all descendants, `others_cpu` that of other programs, on the CPUs that
    the process may use. A switch is
    voluntary if the thread had to wait for something, and involuntary if it could have gone on.
    """

    process_cpu: float
    thread_cpu: float
    voluntary: float
    involuntary: float
    children_cpu: float
    others_cpu: float


class UsageSoFar(NamedTuple):
    """What had been used at a moment."""

    time: float
    process_cpu: float
    thread_cpu: float
    voluntary: float
    involuntary: float
    machine: Reading

    @classmethod
    def now(cls) -> UsageSoFar:
        """What has been used so far."""
        used = resource.getrusage(resource.RUSAGE_SELF) if resource else None
        voluntary, involuntary = (used.ru_nvcsw, used.ru_nivcsw) if used else (_NAN, _NAN)
        return cls(
            perf_counter(),
            process_time(),
            thread_time(),
            voluntary,
            involuntary,
            machine_cpu(),
        )

    def until_now(self) -> Usage:
        """What has been used since; to be called on the same thread."""
        now = UsageSoFar.now()
        children, others = used_since(self.machine, now.machine)
        lasted = now.time - self.time
        return Usage(
            now.process_cpu - self.process_cpu,
            now.thread_cpu - self.thread_cpu,
            now.voluntary - self.voluntary,
            now.involuntary - self.involuntary,
            # These are not read at the same moments as the time.
            children * lasted,
            others * lasted,
        )


class NativePool(NamedTuple):
    """A native library's pool of threads: ``openblas``, ``mkl``, ``openmp``; and its size."""

    library: str
    threads: int


NOT_LISTED = NativePool("", 0)
"""In place of pools where it is not known which there are."""


def processors() -> int:
    """How many processors this process may use."""
    try:
        return len(os.sched_getaffinity(0))
    except AttributeError:
        return os.cpu_count() or 1


def thread_pools() -> list[NativePool]:
    """The pools of the native libraries that are loaded; `NOT_LISTED` without threadpoolctl."""
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
