"""One computation with a change: its tasks and costs are changed, replayed, and slowed down.

The replay knows workers and the scheduler's thread. What tasks lose where there are more workers
than CPUs, or more that need the GIL, is added afterwards: see `contention`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf
from typing import Any

import numpy as np

from dask_diag.analysis.cpu import seconds_beside
from dask_diag.analysis.phases import seconds_not_of_graphs
from dask_diag.analysis.simulation.calibrate import works_of
from dask_diag.analysis.simulation.change import (
    Change,
    gil_shares,
    seconds_by_activity,
    seconds_metered,
    speedups,
    with_fewer_turns,
    with_fewer_workers,
    without,
)
from dask_diag.analysis.simulation.replay import Graph, Timeline, contention, least_seconds, replay
from dask_diag.analysis.simulation.replay_cluster import replay_on_cluster
from dask_diag.analysis.simulation.schedulers import (
    POOL_START,
    crowding,
    result_sizes,
    startups,
    under,
)
from dask_diag.analysis.simulation.work import STEPS, Cluster, Row, Work
from dask_diag.analysis.task_times import TRANSFERS
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording

CPU_OF_SLEEPERS = 0.1
"""Without recorded waits: tasks that had a CPU in a smaller share of their time are taken to sleep.
Those that compute get more even beside five programs on two CPUs."""


class Facts:
    """What was recorded, as simulations use it.

    Parameters
    ----------
    recording : Recording

    Attributes
    ----------
    tasks_replayed : int
        Tasks of all replays so far: a million take about three seconds.
    """

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        self._graphs: dict[int, Graph] = {}
        self._delays: dict[tuple[int, float, float], float] = {}
        self._replayed: dict[int, Timeline] = {}
        self.tasks_replayed = 0

    @cached_property
    def computations(self) -> list[Row]:
        """By when they were called for; where that was not seen, their schedulers' start."""
        rows = self.recording.computations.to_dicts()
        for row in rows:
            row["called"] = float(np.fmin(row["called"], row["start"]))
        return sorted(rows, key=lambda row: float(row["called"]))

    @cached_property
    def works(self) -> dict[str, Work]:
        """The tasks and costs of each computation that ran tasks."""
        works = works_of(self.recording)
        cpus = {row["computation"]: max(float(row["cpus"]), 1.0) for row in self.computations}
        recorded = self.recording.computations.computation.tolist()
        fixed = dict(zip(recorded, seconds_not_of_graphs(self.recording).tolist(), strict=True))
        return {
            name: replace(
                work,
                sleeps=self._sleeps(work, cpus[name]),
                imports=(imports := min(fixed[name], work.graph)),
                graph=work.graph - imports,
            )
            for name, work in works.items()
        }

    def _sleeps(self, work: Work, cpus: float) -> bool:
        """Whether tasks, and programs that they started, wanted no CPU most of the time.

        If it is not known which part of their time they waited for one, they may have in all of it.
        """
        took = float(work.seconds.sum())
        cpu = float(work.cpu.sum()) + seconds_beside(work.others, work.children_cpu, cpus)
        waited = self.activities.get(Activity.CPU_WAIT)
        if waited is None:
            return cpu < CPU_OF_SLEEPERS * took
        return cpu + float(waited[work.rows].sum()) < took / 2

    @cached_property
    def activities(self) -> dict[str, FloatArray]:
        """The seconds of each activity, task by task."""
        return seconds_by_activity(self.recording)

    @cached_property
    def metered(self) -> dict[str, FloatArray]:
        """The seconds of each label that tasks metered, task by task; activities have them, too."""
        return seconds_metered(self.recording)

    @cached_property
    def gil(self) -> FloatArray:
        """The share of each task's CPU time in which it holds the GIL."""
        waited = self.activities.get(Activity.GIL_WAIT)
        if waited is None:
            return np.zeros(len(self.recording.tasks))
        return gil_shares(self.recording, waited)

    def gil_held(self, work: Work) -> float:
        """In what share of a computation's time its tasks hold the GIL."""
        lasts = self.timeline_of(work).end
        held = float((work.cpu * self.gil[work.rows]).sum())
        return min(held / lasts, 1.0) if lasts > 0 else 0.0

    @cached_property
    def result_sizes(self) -> FloatArray | None:
        """The bytes of each task's result; None if they were not measured."""
        return result_sizes(self.recording)

    @cached_property
    def pool_start(self) -> float:
        """Seconds in which worker processes start that have a CPU each: as some did, if any did."""
        seconds = 0.0
        for row in self.computations:
            work = self.works.get(row["computation"])
            if work is not None and work.startup and work.cluster is None:
                crowd = crowding(work.workers, work.others, row["cpus"])
                seconds = max(seconds, max(work.startup) / crowd)
        return seconds or POOL_START

    @cached_property
    def uses_processes(self) -> bool:
        """Whether any computation ran in worker processes."""
        return bool(self.recording.computations.scheduler.where("processes").any())

    @cached_property
    def outside(self) -> float:
        """Seconds in which no computation ran."""
        covered, until = 0.0, self.recording.start
        for row in self.computations:
            # Computations may overlap: what those before covered counts once.
            covered += max(0.0, row["stop"] - max(row["called"], until))
            until = max(until, row["stop"])
        return max(0.0, self.recording.stop - self.recording.start - covered)

    def functions(self, work: Work) -> IntArray:
        """The function of each task, as a number."""
        return self.recording.tasks.function.codes[work.rows].astype(np.int64)

    def seconds_of(self, activity: str) -> float:
        """Seconds of workers and schedulers of an activity, those that can be removed."""
        works = self.works.values()
        if activity == Activity.GRAPH:
            return sum(work.graph for work in works)
        if activity == Activity.STARTUP:
            return sum(sum(work.startup) for work in works)
        if activity == Activity.OVERHEAD:
            steps = (getattr(work, name).sum() for work in works for name in STEPS)
            return float(sum(steps)) + sum(work.before for work in works)
        if activity == Activity.TRANSFER:
            moved = self.recording.transfers
            moved = moved.rows(moved.activity.where(activity))
            return float((moved.stop - moved.start).sum())
        by_task = self.metered.get(activity, self.activities.get(activity, np.zeros(0)))
        return float(by_task.sum())

    def replay(self, work: Work, workers: int) -> Timeline:
        """Run what became of a computation's tasks."""
        self.tasks_replayed += len(work)
        graph = self._graph_of(work)
        if work.cluster is not None:
            return replay_on_cluster(work, work.cluster, workers, graph)
        return replay(work, workers, graph)

    def replay_recorded(self, work: Work) -> Timeline:
        """A computation replayed as it was recorded, which is done once."""
        if id(work) not in self._replayed:
            self._replayed[id(work)] = self.replay(work, work.workers)
        return self._replayed[id(work)]

    def _graph_of(self, work: Work) -> Graph:
        """The graph of a computation's tasks; it is made once for those that are not merged."""
        edges = id(work.depends_on)
        # Works of the recording live as long as these facts, so their ids are not used again; those
        # of merged tasks do not.
        if edges not in self._recorded_edges:
            return Graph(work)
        if edges not in self._graphs:
            self._graphs[edges] = Graph(work)
        return self._graphs[edges]

    @cached_property
    def _recorded_edges(self) -> set[int]:
        return {id(work.depends_on) for work in self.works.values()}

    def delays_of(self, work: Work, cpus: float, gils: float) -> float:
        """What `contention` says of a computation as it was recorded."""
        key = id(work), cpus, gils
        if key not in self._delays:
            self._delays[key] = contention(self.timeline_of(work), work, cpus, gils)
        return self._delays[key]

    def timeline_of(self, work: Work) -> Timeline:
        """The timeline of a computation as it was recorded."""
        tasks = self.recording.tasks
        stop = np.fmax(tasks.stop[work.rows], tasks.start[work.rows] + work.seconds)
        start = np.nan_to_num(stop - work.seconds)
        stop = start + work.seconds
        end = float((stop + work.deliver + work.notice).max() - (start - work.wake).min())
        steps = work.prepare.sum() + work.collect.sum() + work.submit * len(work) / work.batch
        return Timeline(start, stop, end, max(end - float(steps), 0.0))


SUMMED = ("seconds", "cpu", "gil")


def merged(work: Work, functions: IntArray, factor: int) -> Work:
    """The work with every `factor` successive tasks of a function made one.

    Only tasks that are as many steps from the start of the graph are merged, since those cannot
    depend on each other. A merged task takes as long as its parts together, and is handed out once.
    A graph of fewer tasks is made and put in order in less time.

    Raises
    ------
    DiagnosticError
        If tasks depend on tasks that were submitted later.
    """
    if (work.depends_on >= work.task).any():
        raise DiagnosticError(
            "merge_tasks: expected tasks that were submitted after those they depend on; this "
            "recording's dependencies are damaged"
        )
    order, new = _levels(work, functions)
    ordinal = np.arange(len(work)) - np.flatnonzero(new)[np.cumsum(new) - 1]
    groups = np.empty(len(work), np.int64)
    groups[order] = np.cumsum(ordinal % factor == 0) - 1
    # Numbered by their first parts, so that they are preferred in the recorded order.
    _, first, groups = np.unique(groups, return_index=True, return_inverse=True)
    rank = np.empty(len(first), np.int64)
    rank[np.argsort(first)] = np.arange(len(first))
    groups = rank[groups]
    count = len(first)
    # One number for a pair: parts of a merged task may share a dependency, which then counts once.
    edges = np.unique(groups[work.task] * count + groups[work.depends_on])
    parts = np.bincount(groups)

    def sums(values: FloatArray) -> FloatArray:
        return np.asarray(np.bincount(groups, values, minlength=count), float)

    columns: dict[str, Any] = {name: sums(getattr(work, name)) for name in SUMMED}
    # A merged task is handed out once, so it has the mean cost of its parts, not their sum.
    columns |= {name: sums(getattr(work, name)) / parts for name in STEPS}
    if work.cluster is not None:
        size, delay = sums(work.cluster.nbytes), sums(work.cluster.delay) / parts
        columns["cluster"] = replace(work.cluster, nbytes=size, delay=delay)
    columns |= {"task": edges // count, "depends_on": edges % count}
    return replace(
        work,
        rows=work.rows[np.sort(first)],
        scheduler_cpu=work.scheduler_cpu * count / len(work),
        graph=work.graph * count / len(work),
        before=work.before * count / len(work),
        **columns,
    )


def side_by_side(work: Work, functions: IntArray) -> int:
    """How many tasks of a function can be merged, at most: of the median task."""
    _, new = _levels(work, functions)
    sizes = np.diff(np.concatenate([np.flatnonzero(new), [len(work)]]))
    return int(np.median(np.repeat(sizes, sizes)))


def _levels(work: Work, functions: IntArray) -> tuple[IntArray, BoolArray]:
    """Tasks by level of the graph and function, and which of them is the first of its group."""
    depths = _depths(work)
    order = np.lexsort((np.arange(len(work)), functions, depths))
    new = np.ones(len(work), bool)
    new[1:] = (np.diff(depths[order]) != 0) | (np.diff(functions[order]) != 0)
    return order, new


def _depths(work: Work) -> IntArray:
    """How many tasks are on the longest way from the start of the graph to each."""
    depths = [0] * len(work)
    order = np.argsort(work.task, kind="stable")
    for task, need in zip(work.task[order].tolist(), work.depends_on[order].tolist(), strict=True):
        depths[task] = max(depths[task], depths[need] + 1)
    return np.array(depths)


CONTENTION = (Activity.CPU_WAIT, Activity.GIL_WAIT)
"""Waits that are there because tasks ran at once."""


class ComputationSimulator:
    """Simulates computations with one change.

    Parameters
    ----------
    facts : Facts
    change : Change

    Raises
    ------
    DiagnosticError
        If a function to be quicker is not known, or sizes of results that matter are not.
    """

    def __init__(self, facts: Facts, change: Change) -> None:
        self._facts, self._change = facts, change
        self._factors = speedups(facts.recording, dict(change.factors))

    @cached_property
    def _sizes(self) -> FloatArray:
        return _sizes(self._facts, self._change)

    def simulate(self, computation: Row) -> Row:
        """The row of a computation in `Simulation.computations`; without tasks it is the same."""
        measured = float(computation["stop"] - computation["called"])
        work = self._facts.works.get(computation["computation"])
        row: Row = {
            "computation": computation["computation"],
            "workers": int(computation["workers"]),
            "measured": measured,
            "seconds": measured,
            "preparing": 0.0,
            "scheduling": 0.0,
            "work": 0.0,
        }
        if work is None:
            return row
        workers = self._workers(work)
        changed = self._changed(work, workers, computation)
        if self._change.is_of_tasks:
            timeline = self._facts.replay(changed, workers)
        else:
            # Nothing of the tasks changes: the replay of what was recorded is shared by all such
            # changes.
            timeline = self._facts.replay_recorded(work)
        preparing = changed.imports + changed.graph + changed.before + changed.after
        seconds = preparing + timeline.end
        if workers != work.workers or self._change.removed or self._change.scheduler:
            seconds = self._slowed(seconds, timeline, changed, work, computation)
        return {
            **row,
            "workers": workers,
            "seconds": seconds,
            "preparing": preparing,
            "scheduling": timeline.end - timeline.waiting,
            "work": float(changed.seconds.sum()),
        }

    def _workers(self, work: Work) -> int:
        if self._change.workers is None:
            return work.workers
        # More workers than tasks change nothing, and the replay needs a number.
        unlimited = max(len(work), work.workers)
        return unlimited if self._change.workers == inf else int(self._change.workers)

    def _changed(self, work: Work, workers: int, computation: Row) -> Work:
        """What is to be replayed: other tasks, and then another scheduler's costs."""
        change, facts = self._change, self._facts
        changed = self._with_other_tasks(work, workers)
        # Tasks are merged before another scheduler's costs are put on them: these are of each task
        # that is handed out, however large it is.
        if change.merge > 1:
            changed = merged(changed, facts.functions(changed), change.merge)
        if change.scheduler is not None:
            sizes = self._sizes[changed.rows]
            start = facts.pool_start * crowding(workers, changed.others, computation["cpus"])
            changed = under(changed, change.scheduler, workers, sizes, start)
        elif change.workers is not None:
            startup = startups(changed, work, workers, computation["cpus"])
            changed = replace(changed, startup=startup)
        if change.chunksize is not None:
            changed = replace(changed, batch=change.chunksize)
        return changed

    def _with_other_tasks(self, work: Work, workers: int) -> Work:
        """Without the activities that are removed, and with quicker functions."""
        shares, less = self._change.shares, self._shares_of_tasks(work, workers)
        if workers < work.workers:
            work = with_fewer_workers(work, workers)
        turns = less.get(Activity.GIL_WAIT, 0.0) * self._facts.gil_held(work)
        if turns and work.cluster is None:
            work = with_fewer_turns(work, turns)
        work = without(work, self._facts.recording, shares)
        seconds, cpu = work.seconds, work.cpu
        for label in less.keys() & self._facts.metered.keys():
            seconds = seconds - less[label] * self._facts.metered[label][work.rows]
        # What is left of a task without its metered code has activities in proportion.
        seconds = np.maximum(seconds, 0.0)
        left = np.divide(seconds, work.seconds, np.ones(len(work)), where=work.seconds > 0)
        for activity in less.keys() & self._facts.activities.keys():
            removed = less[activity] * left * self._facts.activities[activity][work.rows]
            seconds = seconds - removed
            cpu = cpu - removed if activity == Activity.CPU else cpu
        # Where tasks are always on a CPU, they wait for no threads of libraries.
        is_idle = self._change.idle_pools or self._change.without(Activity.NONCPU)
        factors = self._factors[work.rows]
        seconds = np.maximum(seconds, 0.0) / factors
        # A task has no more CPU time than it lasts, whatever was removed from it.
        cpu = np.minimum(np.maximum(cpu, 0.0) / factors, seconds)
        return replace(
            work,
            seconds=seconds,
            cpu=cpu,
            gil=cpu * self._facts.gil[work.rows],
            pool_cpu=0.0 if is_idle else work.pool_cpu,
            others=0.0 if self._change.idle_machine else work.others,
        )

    def _shares_of_tasks(self, work: Work, workers: int) -> dict[str, float]:
        """The share of each activity that tasks lose: what is asked for, and what follows."""
        less = self._change.shares
        if workers < work.workers:
            less |= dict.fromkeys(CONTENTION, 1.0)
        if self._change.scheduler and self._facts.uses_processes:
            less |= dict.fromkeys(TRANSFERS, 1.0)
        if self._change.scheduler == "processes":
            less[Activity.GIL_WAIT] = 1.0
        return less

    def _slowed(
        self, seconds: float, timeline: Timeline, changed: Work, work: Work, computation: Row
    ) -> float:
        """The seconds with what tasks lose to each other, or with as much as CPUs and GIL allow."""
        cpus, gils = self._limits(work, self._workers(work), computation)
        delays = contention(timeline, changed, cpus, gils)
        # As recorded, delays were measured: what the model says of them is its error.
        recorded = self._facts.delays_of(work, *self._limits(work, work.workers, computation))
        measured = float(computation["stop"] - computation["called"])
        least = min(least_seconds(changed, cpus, gils), max(measured, seconds))
        return max(seconds + max(delays - recorded, 0.0), least)

    def _limits(self, work: Work, workers: int, computation: Row) -> tuple[float, float]:
        """How many CPUs there are, and how many GILs."""
        change = self._change
        cpus, processes = max(float(computation["cpus"]), 1.0), 1.0
        if work.cluster is not None:
            cpus, processes = _machines_of(work.cluster, workers / work.workers, workers)
        elif (change.scheduler or computation["scheduler"]) == "processes":
            processes = inf
        # Without half of the waits for it, half of the turns need not be taken.
        turns = 1.0 - change.shares.get(Activity.GIL_WAIT, 0.0)
        cpus = inf if change.without(Activity.CPU_WAIT) else cpus
        return cpus, processes / turns if turns > 0 else inf


def _machines_of(cluster: Cluster, times: float, threads: int) -> tuple[float, float]:
    """The CPUs and processes of so many times as many, and of so many, threads of workers.

    Where they were on several hosts, more of them are on more hosts.
    """
    cpus = cluster.cpus * times if cluster.hosts > 1 else cluster.cpus
    return cpus, 1.0 if cluster.is_one_process else max(threads / cluster.threads, 1.0)


def _sizes(facts: Facts, change: Change) -> FloatArray:
    """The bytes of results; 0 where they do not matter."""
    count = len(facts.recording.tasks)
    if change.scheduler != "processes":
        return np.zeros(count)
    if change.result_bytes is not None:
        return np.full(count, float(change.result_bytes))
    if facts.result_sizes is None:
        raise DiagnosticError(
            "scheduler: what passes between processes is not known; record the sizes of "
            "results with CacheProfiler(metric=nbytes, unit='bytes'), or give result_bytes"
        )
    return facts.result_sizes
