"""The profiler of what the machine gives: CPU, memory, bytes read and written, over time."""

from __future__ import annotations

import os
from array import array
from collections import namedtuple
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any

from dask_diag.capture.computation import Computation
from dask_diag.capture.dask_internals import runs_nothing
from dask_diag.capture.system.periodic import PeriodicThread
from dask_diag.profilers.base import Diagnostic
from dask_diag.validation import number

if TYPE_CHECKING:
    from dask_diag.model.recording import Recording

__all__ = ["PROCESS_COLUMNS", "SAMPLE_COLUMNS", "ResourceData", "ResourceProfiler"]

ResourceData = namedtuple("ResourceData", ("time", "mem", "cpu"))
"""A sample, as `ResourceProfiler.results` hold it: seconds, MB (1e6 bytes), per cent of a core."""

SAMPLE_COLUMNS = (
    "time",
    "cpu",
    "memory",
    "memory_children",
    "read",
    "written",
    "threads",
    "delay",
)

PROCESS_COLUMNS = ("time", "pid", "is_child", "memory")

_FIRST_SAMPLE_AFTER = 0.01
_SHARE_OF_TIME_FOR_NOTES = 0.01
_NOTES_IN_AN_INTERVAL = 10
_NAN = float("nan")


class ResourceProfiler(Diagnostic):
    """Profile the CPU, the memory and the bytes moved by this process and all its descendants.

    Parameters
    ----------
    dt : float, optional
        Seconds between samples.

    Attributes
    ----------
    results : list of ResourceData
        Time (seconds of ``time.perf_counter()``), memory (MB) and CPU (% of one core) of each
        sample, from when sampling has stopped.

    Notes
    -----
    A thread samples with psutil; its own CPU time is left out. As a context manager it samples
    throughout the block, when registered only while computations run. CPU is that of the interval
    which ends with the sample; memory is the sum of resident sizes, in which pages that processes
    share count in each. Between tasks, when none runs, memory alone is noted, for a hundredth of
    the time at most: so it is known what the next one began with.
    """

    draws = "resources"

    def __init__(self, dt: float = 1) -> None:
        super().__init__()
        self._dt = number("dt", dt, "seconds between samples", above=0)
        self._samples = array("d")
        self._processes = array("d")
        self._published = 0
        self._next_note = 0.0
        self._sampler: Sampler | None = None
        self._reasons = 0

    def __enter__(self) -> ResourceProfiler:
        super().__enter__()
        self._guarded("to start sampling", self._start_sampling)
        return self

    def __exit__(self, *args: object) -> None:
        self._guarded("to stop sampling", self._stop_sampling)
        super().__exit__(*args)

    @property
    def results(self) -> list[ResourceData]:
        """A namedtuple for each sample, from when sampling has stopped."""
        with self._lock:
            if not self._results:
                width = len(SAMPLE_COLUMNS)
                columns = (self._samples[n : self._published : width] for n in range(4))
                self._results = [
                    ResourceData(time, (memory + children) / 1e6, cpu)
                    for time, cpu, memory, children in zip(*columns, strict=True)
                ]
            return self._results

    @results.setter
    def results(self, samples: Iterable[Sequence[float]]) -> None:
        with self._lock:
            self.clear()
            for time, mem, cpu in samples:
                self._samples.extend((time, cpu, mem * 1e6, 0.0, _NAN, _NAN, _NAN, _NAN))
            self._published = len(self._samples)

    @property
    def recording(self) -> Recording:
        """All samples so far."""
        from dask_diag.builders.recording import processes_table, record, resources_table

        return record(
            self,
            resources=resources_table(self._samples),
            processes=processes_table(self._processes),
        )

    def close(self) -> None:
        """Stop sampling, whatever it was started for. It may be called at any time."""
        with self._lock:
            self._reasons = min(self._reasons, 1)
            self._stop_sampling()

    def clear(self) -> None:
        """Forget all samples."""
        with self._lock:
            super().clear()
            del self._samples[:]
            del self._processes[:]
            self._published = 0

    def _is_running(self) -> bool:
        return self._sampler is not None

    def _began(self, computation: Computation) -> None:
        self._start_sampling()

    def _ended(self, computation: Computation, dsk: Any) -> None:
        self._stop_sampling()

    def _posttask(self, key: Any, value: Any, dsk: Any, state: Any, worker_id: Any) -> None:
        if perf_counter() >= self._next_note:
            self._guarded("to sample between tasks", self._note, state)

    def _note(self, state: Any) -> None:
        """Note memory while no task runs: by how much it grows in the next one is then known."""
        if not runs_nothing(state) or not self._lock.acquire(blocking=False):
            return
        try:
            if self._sampler is not None:
                self._next_note = self._sampler.note()
        finally:
            self._lock.release()

    def _start_sampling(self) -> None:
        with self._lock:
            self._reasons += 1
            if self._sampler is None:
                self._sampler = Sampler(self._dt, self._samples, self._processes, self._fault)

    def _stop_sampling(self) -> None:
        with self._lock:
            self._reasons = max(0, self._reasons - 1)
            sampler = self._sampler
            if self._reasons or sampler is None:
                return
            self._sampler = None
            sampler.stop()
            self._published = len(self._samples)
            self._results = []


class Sampler:
    """Reads the process tree at set times, until it is stopped."""

    def __init__(
        self,
        dt: float,
        samples: array[float],
        processes: array[float],
        fault: Callable[..., None],
    ) -> None:
        from dask_diag.capture.system.process_tree import ProcessTree
        from dask_diag.capture.system.processes import process_reader

        self._dt = dt
        self._samples = samples
        self._processes = processes
        self._reader = process_reader()
        self._tree = ProcessTree()
        self._last = perf_counter()
        self._pid = os.getpid()
        self._cpu = 0.0
        self._keep(self._last, self._tree.memory_of)
        failed = partial(fault, "to sample resources")
        self._beat = PeriodicThread("resources", dt, self._sample, failed, _FIRST_SAMPLE_AFTER)

    def stop(self) -> None:
        """Take a last sample and end the thread, at once."""
        self._beat.stop()

    def _sample(self, due: float) -> None:
        usage = self._tree.read()
        cpu = 100 * (usage.cpu - self._cpu) / (usage.time - self._last)
        self._samples.extend((usage.time, cpu, *usage[1:3], *usage[4:], usage.time - due))
        self._cpu, self._last = usage.cpu, usage.time
        self._keep(usage.time, self._tree.memory_of)

    def note(self) -> float:
        """Note the memory of each process on the calling thread, and tell when to do so again."""
        from dask_diag.capture.system.processes import NoSuchProcess

        begun = perf_counter()
        memory_of = {}
        for pid in list(self._tree.memory_of):
            with suppress(*NoSuchProcess):
                memory_of[pid] = self._reader.resident(pid)
        self._keep(begun, memory_of)
        took = perf_counter() - begun
        return begun + max(took / _SHARE_OF_TIME_FOR_NOTES, self._dt / _NOTES_IN_AN_INTERVAL)

    def _keep(self, time: float, memory_of: Mapping[int, float]) -> None:
        rows = ((time, pid, pid != self._pid, memory) for pid, memory in memory_of.items())
        # In one step, as notes are made on another thread.
        self._processes.extend([number for row in rows for number in row])
