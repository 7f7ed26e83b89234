"""CPU of tasks, threads, profilers and other programs, in all and over time."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from math import nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import rows_by, totals_by
from dask_diag.analysis.intervals import StepFunction
from dask_diag.analysis.task_times import call_times, overlap, running_computations, stop_times
from dask_diag.columns import BoolArray, Categorical, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Computations, Resources

LEAST_FREE = 0.05
"""Least share of the CPUs that other programs leave: both are measured in steps."""


_LONG_ENOUGH = 0.2
"""Seconds of computations in which the CPU of other processes is known well enough."""


def cpu_outside_tasks(recording: Recording) -> float:
    """CPU of the computing process while computations ran, without tasks and scheduler.

    Added is what is known of worker processes' threads besides tasks. The threads of profilers are
    left out, too, where they are known.

    As several clocks are read it may be slightly below zero. NaN where it cannot be known:
    computations that overlap have the process's CPU time in common.
    """
    computations = recording.computations
    if not len(computations) or not len(recording.tasks) or overlap(computations).any():
        return nan
    in_process = ~_ran_under(recording, "processes")
    cpu_of_tasks = float(np.nansum(recording.tasks.thread_cpu[in_process]))
    threads = recording.threads
    in_workers, is_own = threads.is_child == 1, threads.kind.eq("dask_diag")
    cpu_of_profilers = float(threads.cpu_seconds[is_own & ~in_workers].sum())
    cpu_of_workers = float(threads.cpu_seconds[in_workers & ~is_own].sum())
    cpu_process = float(computations.cpu_process.sum()) + cpu_of_workers
    return cpu_process - cpu_of_tasks - cpu_of_scheduler(recording) - cpu_of_profilers


def cpu_of_scheduler(recording: Recording) -> float:
    """CPU seconds of the threads that called the scheduler, without tasks."""
    in_tasks = recording.tasks.thread_cpu[_ran_under(recording, "synchronous")]
    of_threads = float(np.nansum(recording.computations.cpu_scheduler))
    return max(0.0, of_threads - float(np.nansum(in_tasks)))


def cpu_of_children(recording: Recording) -> float:
    """CPU seconds of programs started by tasks; 0 if not known, as where processes ran tasks.

    Those of computations that overlap are added up, though each has all of them.
    """
    computations = recording.computations
    in_process = ~computations.scheduler.eq("processes")
    return float(np.nansum(computations.cpu_children[in_process]))


def cpus_of_others(recording: Recording) -> float:
    """CPUs used by other programs on average while computations ran; 0 if not known."""
    computations = recording.computations
    lasted = float((computations.stop - computations.start).sum())
    return float(np.nansum(computations.cpu_other_processes)) / lasted if lasted > 0 else 0.0


def share_of_others(recording: Recording) -> float:
    """Share of the CPUs used by other processes while computations ran.

    0 if not known, as in a short time: the kernel counts in steps of 4 or 10 ms.
    """
    computations = recording.computations
    cpus = int(computations.cpus.max(initial=0))
    lasted = float((computations.stop - computations.start).sum())
    return cpus_of_others(recording) / cpus if cpus and lasted >= _LONG_ENOUGH else 0.0


def seconds_beside(others: float, cpu: float, cpus: float) -> float:
    """Duration of CPU seconds while other programs use a number of the CPUs."""
    return cpu * cpus / max(cpus - others, LEAST_FREE * cpus)


def _ran_under(recording: Recording, *schedulers: str) -> BoolArray:
    """Select the tasks of computations by kind of scheduler."""
    computations = recording.computations
    chosen = computations.computation[computations.scheduler.is_in(schedulers)]
    return recording.tasks.computation.is_in(set(chosen.tolist()))


def cpus_sampled(recording: Recording) -> float:
    """CPUs used by this process and all descendants on average while computations ran.

    0 where this was not sampled.
    """
    samples = recording.resources
    running = running_computations(recording.computations, samples.time) > 0
    percents = samples.cpu[running & ~np.isnan(samples.cpu)]
    return float(percents.mean() / 100) if len(percents) else 0.0


class ThreadGroup(NamedTuple):
    """Threads of a kind and name, of the computing process or of worker processes.

    Attributes
    ----------
    kind, name : str
    threads : int
        The most that one process had in a computation.
    cpu : float
        CPU seconds of all.
    processes : int
        How many worker processes of a computation had some, at most; 0 for the computing process.
    """

    kind: str
    name: str
    threads: int
    cpu: float
    processes: int = 0


def thread_groups(recording: Recording) -> list[ThreadGroup]:
    """The groups of threads, most CPU first.

    Empty if they are not known. Computations of one process that overlap have its threads in
    common: they are left out.
    """
    names = recording.computations.computation[_ran_alone(recording.computations)]
    threads = recording.threads
    rows_of: dict[tuple[int, str, str], list[tuple[str, int, float]]] = defaultdict(list)
    for row in threads.filter(threads.computation.is_in(set(names.tolist()))).to_dicts():
        numbers = row["computation"], row["threads"], row["cpu_seconds"]
        rows_of[row["is_child"], row["kind"], row["name"]].append(numbers)
    groups = []
    for (is_child, kind, name), rows in rows_of.items():
        computations, counts, cpu = zip(*rows, strict=True)
        processes = max(Counter(computations).values()) * is_child
        groups.append(ThreadGroup(kind, name, max(counts), sum(cpu), processes))
    return sorted(groups, key=lambda group: -group.cpu)


def _ran_alone(computations: Computations) -> BoolArray:
    """Select the computations that overlapped no other computation of the process."""
    # The digits before the count are those of the process.
    names = computations.computation.tolist()
    processes = Categorical.of(name.rpartition("-")[0] for name in names)
    alone = np.zeros(len(computations), bool)
    for rows in rows_by(processes).values():
        start, stop = computations.start[rows], computations.stop[rows]
        started = np.searchsorted(np.sort(start), stop)
        alone[rows] = started - np.searchsorted(np.sort(stop), start, "right") == 1
    return alone


TASKS = "tasks"
SCHEDULER = "scheduler"
THREADS = "other threads"
PROFILERS = "dask_diag"
WORKER_PROCESSES = "worker processes besides tasks"
PROGRAM = "program outside computations"
OTHERS = "other programs"
CPU_LAYERS = (TASKS, SCHEDULER, THREADS, PROFILERS, WORKER_PROCESSES, PROGRAM, OTHERS)
"""From the lowest to the highest."""

_KINDS = {
    "tasks": SCHEDULER,
    "scheduler": SCHEDULER,
    "python": THREADS,
    "native": THREADS,
    "ended": THREADS,
    "dask_diag": PROFILERS,
}
"""The layer of each kind of thread. What workers' threads use between tasks is scheduling."""
_SHORTEST = 0.05
"""Seconds: the kernel counts some CPU time by ticks, so a shorter interval is not precise."""


class CpuLayers(NamedTuple):
    """CPUs in use, on average over each interval.

    Attributes
    ----------
    edges : array of float
        Seconds, as in the recording's tables; one more than there are intervals.
    cpus : dict of str to array of float
        By layer, those of `CPU_LAYERS` that used any.
    """

    edges: FloatArray
    cpus: dict[str, FloatArray]


def cpu_layers(recording: Recording, most: int = 600) -> CpuLayers | None:
    """Divide the sampled CPU among layers; None if CPU was not sampled.

    Parameters
    ----------
    recording : Recording
    most : int, optional
        Intervals; where there are more samples, they are resampled.
    """
    samples = recording.resources
    edges = _edges(samples, recording.start, most)
    if len(edges) < 2:
        return None
    # A sample covers the time since the previous one.
    times = np.append(recording.start, samples.time)

    def sampled(percent: FloatArray) -> FloatArray:
        """CPU seconds in each interval."""
        amounts = np.append(np.nan_to_num(percent) / 100, 0.0)
        return np.maximum(np.diff(StepFunction(times, amounts).integral(edges)), 0.0)

    total = sampled(samples.cpu)
    tasks = np.minimum(_cpu_of_tasks(recording, edges), total)
    layers = {
        TASKS: tasks,
        **_cpu_besides_tasks(recording, edges, total - tasks),
        OTHERS: sampled(samples.cpu_other_processes),
    }
    length = np.diff(edges)
    return CpuLayers(
        edges, {name: layers[name] / length for name in CPU_LAYERS if layers[name].any()}
    )


def _edges(samples: Resources, start: float, most: int) -> FloatArray:
    """The times of samples, without samples too soon after another."""
    edges = [start]
    usual = float(np.median(np.diff(samples.time, prepend=start))) if len(samples) else 0.0
    shortest = min(0.5 * usual, _SHORTEST)
    for time in samples.time.tolist():
        if time - edges[-1] > shortest:
            edges.append(time)
    if len(edges) > 1:
        edges[-1] = float(samples.time[-1])
    if len(edges) - 1 > most:
        return np.linspace(edges[0], edges[-1], most + 1)
    return np.array(edges)


def _cpu_of_tasks(recording: Recording, edges: FloatArray) -> FloatArray:
    """CPU seconds of tasks in each interval, spread evenly over the time of each task."""
    tasks = recording.tasks
    # Tasks of a cluster ran in a process that was sampled, or elsewhere.
    sampled = {str(pid) for pid in np.unique(recording.processes.pid).tolist()}
    ran_here = ~_ran_under(recording, "distributed") | tasks.pid.is_in(sampled)
    mask = ~np.isnan(tasks.start) & (tasks.thread_cpu > 0) & ran_here
    start, stop = tasks.start[mask], stop_times(recording)[mask]
    # All CPU of a task without length is at its start.
    stop = np.maximum(stop, np.nextafter(start, np.inf))
    rate = tasks.thread_cpu[mask] / (stop - start)
    until = np.zeros(len(edges))
    for times, sign in ((start, 1.0), (stop, -1.0)):
        order = np.argsort(times, kind="stable")
        before = np.searchsorted(times[order], edges)
        rates = np.append(0.0, np.cumsum(rate[order]))[before]
        offsets = np.append(0.0, np.cumsum((rate * (times - edges[0]))[order]))[before]
        until += sign * (rates * (edges - edges[0]) - offsets)
    return np.diff(until)


def _cpu_besides_tasks(
    recording: Recording, edges: FloatArray, used: FloatArray
) -> dict[str, FloatArray]:
    """Divide the CPU seconds of each interval besides tasks among layers."""
    computations = recording.computations
    names = (SCHEDULER, THREADS, PROFILERS, WORKER_PROCESSES, PROGRAM)
    layers = {name: np.zeros(len(used)) for name in names}
    length = np.diff(edges)
    # The seconds of each interval that each computation ran, from the call of dask on.
    ran = [
        np.maximum(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], called), 0.0)
        for called, stop in zip(call_times(computations), computations.stop, strict=True)
    ]
    computing = sum(ran, np.zeros(len(used)))
    # Where computations overlap, each has its part of the interval.
    crowded = np.maximum(computing, length)
    for row, seconds in enumerate(_seconds_besides_tasks(recording)):
        part = used * ran[row] / crowded
        has_workers = computations.scheduler[row] in ("processes", "distributed")
        for name, share in _shares(seconds, has_workers, float(part.sum())).items():
            layers[name] += part * share
    layers[PROGRAM] += used * np.maximum(length - computing, 0.0) / crowded
    return layers


def _shares(seconds: dict[str, float], has_workers: bool, total: float) -> dict[str, float]:
    """The shares of layers in the CPU of a computation besides tasks; shares sum to 1."""
    attributed = sum(seconds.values())
    # Most that worker processes use besides tasks is in no total.
    divided = max(attributed, total) if has_workers else attributed
    shares = {name: cpu / divided for name, cpu in seconds.items()} if divided else {}
    if has_workers:
        return {**shares, WORKER_PROCESSES: 1.0 - sum(shares.values())}
    return shares or {THREADS: 1.0}


def _seconds_besides_tasks(recording: Recording) -> Iterator[dict[str, float]]:
    """Measured CPU seconds besides tasks, by computation and layer."""
    tasks, computations = recording.tasks, recording.computations
    cpu_of_tasks = totals_by(tasks.computation, np.nan_to_num(tasks.thread_cpu))
    rows_of = rows_by(recording.threads.computation)
    for row in computations.to_dicts():
        name, scheduler = row["computation"], row["scheduler"]
        is_here = scheduler in ("threads", "synchronous")
        in_tasks = cpu_of_tasks.get(name, 0.0) if is_here else 0.0
        seconds: dict[str, float] = defaultdict(float)
        if name in rows_of:
            for thread in recording.threads.filter(rows_of[name]).to_dicts():
                used = thread["cpu_seconds"]
                if thread["kind"] == "tasks":
                    of_thread = min(used, in_tasks)
                    in_tasks, used = in_tasks - of_thread, used - of_thread
                seconds[_KINDS[thread["kind"]]] += used
        else:
            # Of threads that are not known one by one: the scheduler's, and all others.
            scheduling, of_process = np.nan_to_num([row["cpu_scheduler"], row["cpu_process"]])
            scheduling -= in_tasks if scheduler == "synchronous" else 0.0
            seconds[SCHEDULER] = max(0.0, float(scheduling))
            seconds[THREADS] = max(0.0, float(of_process) - in_tasks - seconds[SCHEDULER])
        yield seconds
