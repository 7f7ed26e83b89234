"""CPU of tasks, of their threads, and of everything else, over time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import rows_by, sums_by
from dask_diag.analysis.task_times import call_times, overlap, stop_times
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Resources, Threads

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


class ThreadGroup(NamedTuple):
    """Threads of one kind and name, of the computing process or of worker processes.

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
    """The groups of threads, those with most CPU first.

    Empty if they are not known. Computations of one process that overlap have its threads in
    common: they are left out.
    """
    table = recording.threads
    if not len(table):
        return []
    names = table.computation
    alone = _computations_that_ran_alone(recording)
    mask = np.array([name in alone for name in names.values], dtype=bool)[names.codes]
    groups: dict[tuple[int, str, str], ThreadGroup] = {}
    processes: Counter[tuple[str, str, str]] = Counter()
    for row in table.rows(mask).to_dicts():
        is_child, kind, name = key = row["is_child"], row["kind"], row["name"]
        before = groups.get(key, ThreadGroup(kind, name, 0, 0.0))
        of_computation = row["computation"], kind, name
        processes[of_computation] += is_child
        groups[key] = ThreadGroup(
            kind,
            name,
            max(before.threads, row["threads"]),
            before.cpu + row["cpu_seconds"],
            max(before.processes, processes[of_computation] * is_child),
        )
    return sorted(groups.values(), key=lambda group: -group.cpu)


def _computations_that_ran_alone(recording: Recording) -> set[str]:
    """The names of those that overlap no other one of the same process."""
    alone: set[str] = set()
    latest: dict[str, tuple[float, str]] = {}
    rows = sorted(recording.computations.to_dicts(), key=lambda row: row["start"])
    for row in rows:
        name = row["computation"]
        # The digits before the count are those of the process.
        process = name.rpartition("-")[0]
        stop, last = latest.get(process, (-np.inf, ""))
        if row["start"] >= stop:
            alone.add(name)
        else:
            alone.discard(last)
        if row["stop"] > stop:
            latest[process] = row["stop"], name
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
    """Divide the sampled CPU among what used it; None if it was not sampled.

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
    total = _of_samples(samples, samples.cpu, edges, recording.start)
    others = _of_samples(samples, np.nan_to_num(samples.cpu_others), edges, recording.start)
    tasks = np.minimum(_of_tasks(recording, edges), total)
    parts = {TASKS: tasks, **_divided(recording, edges, total - tasks), OTHERS: others}
    length = np.diff(edges)
    used = {name: parts[name] / length for name in CPU_LAYERS if parts[name].any()}
    return CpuLayers(edges, used)


def _edges(samples: Resources, start: float, most: int) -> FloatArray:
    """The times of samples, without those too soon after the one before them."""
    edges = [start]
    usual = float(np.median(np.diff(samples.time, prepend=start))) if len(samples) else 0.0
    shortest = min(0.5 * usual, _SHORTEST)
    for time in samples.time.tolist():
        if time - edges[-1] > shortest:
            edges.append(time)
    if len(samples) and samples.time[-1] > edges[-1] and len(edges) > 1:
        edges[-1] = float(samples.time[-1])
    if len(edges) - 1 > most:
        return np.linspace(edges[0], edges[-1], most + 1)
    return np.array(edges)


def _of_samples(
    samples: Resources, percent: FloatArray, edges: FloatArray, start: float
) -> FloatArray:
    """CPU seconds in each interval, of samples that each cover the time since the one before."""
    lengths = np.diff(samples.time, prepend=start)
    sums = np.concatenate([[0.0], np.cumsum(np.nan_to_num(percent) / 100 * lengths)])
    times = np.concatenate([[start], samples.time])
    return np.asarray(np.maximum(np.diff(np.interp(edges, times, sums)), 0.0))


def _of_tasks(recording: Recording, edges: FloatArray) -> FloatArray:
    """CPU seconds of tasks in each interval; those of a task are spread evenly over its time."""
    tasks = recording.tasks
    mask = ~np.isnan(tasks.start) & (tasks.thread_cpu > 0) & _ran_here(recording)
    start, stop = tasks.start[mask], stop_times(recording)[mask]
    # Of a task without length all is at its start.
    stop = np.maximum(stop, np.nextafter(start, np.inf))
    return np.diff(_sum_until(edges, start, stop, tasks.thread_cpu[mask]))


def _ran_here(recording: Recording) -> BoolArray:
    """Which tasks ran in one of the processes that were sampled."""
    computations, tasks = recording.computations, recording.tasks
    remote = computations.computation[computations.scheduler.where("distributed")].tolist()
    if not remote:
        return np.ones(len(tasks), dtype=bool)
    sampled = {str(pid) for pid in np.unique(recording.processes.pid).tolist()}
    is_sampled: BoolArray = ~tasks.computation.is_in(remote) | tasks.pid.is_in(sampled)
    return is_sampled


def _sum_until(
    moments: FloatArray, start: FloatArray, stop: FloatArray, amounts: FloatArray
) -> FloatArray:
    """How much of the amounts, spread evenly from start to stop, is before each moment."""
    rate = amounts / (stop - start)
    sums = np.zeros(len(moments))
    for times, sign in ((start, 1.0), (stop, -1.0)):
        order = np.argsort(times, kind="stable")
        before = np.searchsorted(times[order], moments)
        rates = np.concatenate([[0.0], np.cumsum(rate[order])])[before]
        offsets = np.concatenate([[0.0], np.cumsum((rate * (times - moments[0]))[order])])[before]
        sums += sign * (rates * (moments - moments[0]) - offsets)
    return sums


def _divided(
    recording: Recording, edges: FloatArray, besides_tasks: FloatArray
) -> dict[str, FloatArray]:
    """Among layers, what was used besides tasks."""
    names = (SCHEDULER, THREADS, PROFILERS, WORKER_PROCESSES, PROGRAM)
    parts = {name: np.zeros(len(besides_tasks)) for name in names}
    length = np.diff(edges)
    covered = list(_overlaps(recording, edges))
    in_computations = np.sum(covered, axis=0) if covered else np.zeros(len(besides_tasks))
    # Where computations overlap, each has its part of the interval.
    crowded = np.maximum(in_computations, length)
    totals = _totals(recording)
    for covering, (scheduler, seconds) in zip(covered, totals, strict=True):
        part = besides_tasks * covering / crowded
        for name, share in _shares(scheduler, seconds, float(part.sum())).items():
            parts[name] += part * share
    parts[PROGRAM] += besides_tasks * np.maximum(length - in_computations, 0.0) / crowded
    return parts


def _overlaps(recording: Recording, edges: FloatArray) -> Iterator[FloatArray]:
    """Of each computation how many seconds of each interval it ran, from the call of dask on."""
    computations = recording.computations
    for start, stop in zip(call_times(computations), computations.stop, strict=True):
        yield np.maximum(np.minimum(edges[1:], stop) - np.maximum(edges[:-1], start), 0.0)


def _shares(scheduler: str, seconds: dict[str, float], total: float) -> dict[str, float]:
    """What used the CPU of a computation besides its tasks; sums to 1."""
    attributed = sum(seconds.values())
    if scheduler in ("processes", "distributed"):
        # Most that worker processes use besides tasks is in no total.
        divided = max(attributed, total)
        shares = {name: value / divided for name, value in seconds.items()} if divided else {}
        return {**shares, WORKER_PROCESSES: 1.0 - sum(shares.values())}
    return (
        {name: value / attributed for name, value in seconds.items()}
        if attributed
        else {THREADS: 1.0}
    )


def _totals(recording: Recording) -> Iterator[tuple[str, dict[str, float]]]:
    """Of each computation its scheduler, and CPU seconds besides tasks by layer."""
    tasks, threads = recording.tasks, recording.threads
    sums = sums_by(tasks.computation, np.nan_to_num(tasks.thread_cpu)).tolist()
    cpu_of_tasks = dict(zip(tasks.computation.values, sums, strict=True))
    rows_of = rows_by(threads.computation)
    computations = recording.computations
    names, schedulers = computations.computation.tolist(), computations.scheduler.tolist()
    of_schedulers = np.nan_to_num(computations.scheduler_cpu).tolist()
    of_processes = np.nan_to_num(computations.process_cpu).tolist()
    for row, (name, scheduler) in enumerate(zip(names, schedulers, strict=True)):
        is_here = scheduler in ("threads", "synchronous")
        in_tasks = cpu_of_tasks.get(name, 0.0) if is_here else 0.0
        if name in rows_of:
            yield scheduler, _of_threads(threads.rows(rows_of[name]), in_tasks)
            continue
        # Of threads that are not known one by one: the scheduler's, and all others.
        scheduling = of_schedulers[row] - (in_tasks if scheduler == "synchronous" else 0.0)
        scheduling = max(0.0, scheduling)
        others = max(0.0, of_processes[row] - in_tasks - scheduling)
        yield scheduler, {SCHEDULER: scheduling, THREADS: others}


def _of_threads(threads: Threads, cpu_of_tasks: float) -> dict[str, float]:
    seconds: dict[str, float] = {}
    for row in threads.to_dicts():
        layer, used = _KINDS[row["kind"]], row["cpu_seconds"]
        if row["kind"] == "tasks":
            in_tasks = min(used, cpu_of_tasks)
            cpu_of_tasks, used = cpu_of_tasks - in_tasks, used - in_tasks
        seconds[layer] = seconds.get(layer, 0.0) + used
    return seconds
