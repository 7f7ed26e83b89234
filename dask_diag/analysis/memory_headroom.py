"""For how many more tasks at once there is memory, by what was recorded of it."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf, isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.memory import MemoryReadings, memory_of_all
from dask_diag.analysis.step_functions import running_computations
from dask_diag.model.recording import Recording

__all__ = ["MOST_OF_MEMORY", "MemoryHeadroom", "memory_headroom", "workers_that_fit"]

MOST_OF_MEMORY = 0.8
"""Share of the memory that a process may use up to which more tasks at once are advised. A worker
of a cluster pauses there; elsewhere other programs, and what is between two samples, need some."""


class MemoryHeadroom(NamedTuple):
    """How many times as many tasks as ran at once fit into memory; infinite if it is not known."""

    times: float
    is_known: bool


def memory_headroom(recording: Recording) -> MemoryHeadroom:
    """How many times as many tasks at once there is memory for.

    What the memory of a process grew by while computations ran, since none did, is taken to be that
    of its tasks: so many times as many need so many times as much. Where a worker paused, or moved
    results to disk, there is none for more.
    """
    times = [as_much for as_much in _by_process(recording) if not isnan(as_much)]
    if len(recording.worker_events):
        times.append(1.0)
    return MemoryHeadroom(min(times, default=inf), bool(times))


def workers_that_fit(recording: Recording) -> float:
    """For the tasks of how many workers there is memory: no fewer than were recorded."""
    recorded = max(1, int(recording.computations.workers.max(initial=1)))
    return recorded * max(1.0, memory_headroom(recording).times)


def _by_process(recording: Recording) -> Iterator[float]:
    """How many times as much what is limited may grow: each worker of a cluster, or this process.

    NaN where there is no sample while computations ran, or no limit is known.
    """
    workers, processes = recording.workers, recording.processes
    # Workers of one process are one sample.
    names = [set(text.split(", ")) for text in processes.worker.values]
    for worker in workers.rows(~workers.address.where("")).to_dicts():
        is_of_it = np.array([worker["worker"] in some for some in names], bool)
        rows = processes.rows(is_of_it[processes.worker.codes])
        readings = MemoryReadings.of(rows.time, rows.memory, recording.computations)
        yield _times_as_much(recording, readings, worker["memory_limit"])
    computations = recording.computations
    local = computations.memory_limit[~computations.scheduler.where("distributed")]
    if len(local):
        yield _times_as_much(recording, memory_of_all(recording), float(np.fmin.reduce(local)))


def _times_as_much(recording: Recording, readings: MemoryReadings, limit: float) -> float:
    running = running_computations(recording.computations, readings.times) > 0
    # If something ran when it was read first, what it had before is not known: all is of tasks.
    base = np.where(np.maximum.accumulate(~running), readings.lowest, 0.0)
    grown = readings.sizes - base
    if isnan(limit) or not (running & ~np.isnan(grown)).any():
        return float("nan")
    rows = running & (grown > 0)
    times = np.maximum(MOST_OF_MEMORY * limit - base[rows], 0.0) / grown[rows]
    return float(times.min(initial=inf))
