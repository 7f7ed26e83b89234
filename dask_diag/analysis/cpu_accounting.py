"""CPU that the tasks' threads did not have: that of BLAS and of other pools of threads."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.step_functions import overlap
from dask_diag.columns import BoolArray
from dask_diag.model.recording import Recording

__all__ = [
    "cpu_of_children",
    "cpu_of_scheduler",
    "cpu_outside_tasks",
    "cpus_of_others",
    "cpus_sampled",
    "seconds_beside",
]

LEAST_FREE = 0.05
"""Least share of the CPUs that other programs leave: both are measured in steps."""


def cpu_outside_tasks(recording: Recording) -> float:
    """CPU of the computing process while computations ran, less that of tasks and scheduler.

    Added is what is known of worker processes' threads besides tasks. The threads of profilers are
    left out, too, where they are known.

    As several clocks are read it may be slightly below zero. NaN where it cannot be known:
    computations that overlap have the process's CPU time in common.
    """
    computations = recording.computations
    if not len(computations) or not len(recording.tasks) or overlap(computations).any():
        return float("nan")
    in_process = ~_ran_under(recording, "processes")
    cpu_of_tasks = float(np.nansum(recording.tasks.thread_cpu[in_process]))
    threads = recording.threads
    in_workers, is_own = threads.is_child == 1, threads.kind.where("dask_diag")
    cpu_of_profilers = float(threads.cpu_seconds[is_own & ~in_workers].sum())
    cpu_of_workers = float(threads.cpu_seconds[in_workers & ~is_own].sum())
    process_cpu = float(computations.process_cpu.sum()) + cpu_of_workers
    return process_cpu - cpu_of_tasks - cpu_of_scheduler(recording) - cpu_of_profilers


def cpu_of_scheduler(recording: Recording) -> float:
    """CPU seconds of the threads that called the scheduler, less those of tasks they ran."""
    in_tasks = recording.tasks.thread_cpu[_ran_under(recording, "synchronous")]
    of_threads = float(np.nansum(recording.computations.scheduler_cpu))
    return max(0.0, of_threads - float(np.nansum(in_tasks)))


def cpu_of_children(recording: Recording) -> float:
    """CPU seconds of programs that tasks started; 0 if not known, as where processes ran tasks.

    Those of computations that overlap are added up, though each has all of them.
    """
    computations = recording.computations
    in_process = ~computations.scheduler.where("processes")
    return float(np.nansum(computations.children_cpu[in_process]))


def cpus_of_others(recording: Recording) -> float:
    """CPUs that other programs used on average while computations ran; 0 if not known."""
    computations = recording.computations
    lasted = float((computations.stop - computations.start).sum())
    return float(np.nansum(computations.others_cpu)) / lasted if lasted > 0 else 0.0


def seconds_beside(others: float, cpu: float, cpus: float) -> float:
    """How long CPU seconds take beside other programs that have so many of the CPUs."""
    return cpu * cpus / max(cpus - others, LEAST_FREE * cpus)


def _ran_under(recording: Recording, scheduler: str) -> BoolArray:
    """Which tasks ran under a scheduler of that kind."""
    computations = recording.computations
    names = computations.computation[computations.scheduler.where(scheduler)].tolist()
    return recording.tasks.computation.is_in(names)


def cpus_sampled(recording: Recording) -> float:
    """CPUs that this process and its descendants used on average while computations ran.

    0 where this was not sampled.
    """
    samples, computations = recording.resources, recording.computations
    starts, stops = np.sort(computations.start), np.sort(computations.stop)
    running = np.searchsorted(starts, samples.time) - np.searchsorted(stops, samples.time)
    percents = samples.cpu[(running > 0) & ~np.isnan(samples.cpu)]
    return float(percents.mean() / 100) if len(percents) else 0.0
