"""Predict how long a recorded program would have taken, had something been different."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from functools import cached_property
from math import inf

import numpy as np

from dask_diag.analysis.simulation.calibration import works_of
from dask_diag.analysis.simulation.change import Change, check
from dask_diag.analysis.simulation.changes import (
    gil_shares,
    seconds_by_activity,
    shares_removed,
    speedups,
    with_fewer_workers,
    without,
)
from dask_diag.analysis.simulation.contention import contention, least_seconds
from dask_diag.analysis.simulation.merge import merged, side_by_side
from dask_diag.analysis.simulation.replay import Timeline, replay
from dask_diag.analysis.simulation.result import Row, Simulation, table_of
from dask_diag.analysis.simulation.schedulers import pool_start, result_sizes, under
from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.analysis.transfers import TRANSFERS
from dask_diag.columns import FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.schema import Activity

__all__ = ["Simulation", "Simulator", "simulate"]

CONTENTION = (Activity.CPU_WAIT, Activity.GIL_WAIT)
"""Waits that are there because tasks ran at once."""


class Simulator:
    """Simulates one recording under several changes; what the recording says is read once.

    Parameters
    ----------
    recording : Recording
    """

    def __init__(self, recording: Recording) -> None:
        expect_recording(recording)
        self.recording = recording
        self._simulated: dict[tuple[object, ...], Simulation] = {}

    @cached_property
    def _computations(self) -> list[Row]:
        """By when they were called for; where that was not seen, their schedulers' start."""
        rows = self.recording.computations.to_dicts()
        for row in rows:
            row["called"] = float(np.fmin(row["called"], row["start"]))
        return sorted(rows, key=lambda row: float(row["called"]))

    @cached_property
    def _works(self) -> dict[str, Work]:
        return works_of(self.recording)

    @cached_property
    def _activities(self) -> dict[str, FloatArray]:
        return seconds_by_activity(self.recording)

    @cached_property
    def _gil(self) -> FloatArray:
        waited = self._activities.get(Activity.GIL_WAIT)
        if waited is None:
            return np.zeros(len(self.recording.tasks))
        return gil_shares(self.recording, waited)

    def by_task(self, activity: str) -> FloatArray:
        """The seconds of an activity, task by task: those of its worker."""
        return self._activities.get(activity, np.zeros(len(self.recording.tasks)))

    @property
    def task_seconds(self) -> float:
        """Worker-seconds of all tasks, as recorded."""
        return float(sum(work.seconds.sum() for work in self._works.values()))

    def seconds_of(self, activity: str) -> float:
        """Seconds of workers and schedulers of an activity, those that can be removed."""
        works = self._works.values()
        if activity == Activity.GRAPH:
            return sum(work.graph for work in works)
        if activity == Activity.STARTUP:
            return sum(sum(work.startup) for work in works)
        if activity == Activity.OVERHEAD:
            steps = (getattr(work, name).sum() for work in works for name in STEPS)
            return float(sum(steps)) + sum(work.before for work in works)
        return float(self._activities.get(activity, np.zeros(0)).sum())

    def chunks(self) -> tuple[int, int]:
        """Tasks of a function that can be merged, and workers, where most tasks ran."""
        if not self._works:
            return 0, 1
        work = max(self._works.values(), key=len)
        return side_by_side(work, self._functions(work)), work.workers

    def _functions(self, work: Work) -> IntArray:
        return self.recording.tasks.function.codes[work.rows].astype(np.int64)

    def simulate(
        self,
        workers: float | None = None,
        remove: Collection[str] = frozenset(),
        speedup: Mapping[str, float] | None = None,
        merge_tasks: int | None = None,
        *,
        chunksize: int | None = None,
        scheduler: str | None = None,
        result_bytes: float | None = None,
        idle_machine: bool = False,
        idle_pools: bool = False,
    ) -> Simulation:
        """See `dask_diag.simulate`. What was asked before is not simulated again."""
        check(workers, merge_tasks, chunksize, scheduler)
        shares = shares_removed(self.recording, remove)
        factors = tuple(sorted((speedup or {}).items()))
        key = (
            *(workers, tuple(sorted(shares.items())), factors, merge_tasks or 1),
            *(chunksize, scheduler, result_bytes, idle_machine, idle_pools),
        )
        if key not in self._simulated:
            change = Change(
                workers=workers,
                remove=shares,
                factors=speedups(self.recording, dict(factors)) if factors else None,
                merge=merge_tasks or 1,
                chunksize=chunksize,
                scheduler=scheduler,
                sizes=self._sizes(scheduler, result_bytes),
                idle_machine=idle_machine,
                idle_pools=idle_pools,
            )
            self._simulated[key] = self._simulate(change)
        return self._simulated[key]

    def _sizes(self, scheduler: str | None, result_bytes: float | None) -> FloatArray:
        """The bytes of results; 0 where they do not matter."""
        count = len(self.recording.tasks)
        if scheduler != "processes":
            return np.zeros(count)
        if result_bytes is not None:
            return np.full(count, float(result_bytes))
        if self.result_sizes is None:
            raise DiagnosticError(
                "scheduler: what passes between processes is not known; record the sizes of "
                "results with CacheProfiler(metric=nbytes, unit='bytes'), or give result_bytes"
            )
        return self.result_sizes

    @cached_property
    def result_sizes(self) -> FloatArray | None:
        """The bytes of each task's result; None if they were not measured."""
        return result_sizes(self.recording)

    @cached_property
    def _pool_start(self) -> float:
        """Seconds in which worker processes start, where some did; else 0."""
        return max(max(work.startup, default=0.0) for work in self._works.values())

    def _simulate(self, change: Change) -> Simulation:
        rows: list[Row] = []
        moved: list[tuple[float, float]] = []
        first = last = self.recording.start
        for computation in self._computations:
            # It starts as long after the computations before it as it did.
            before = [pair for pair in moved if pair[0] <= computation["called"]]
            stop, simulated = max(before, default=(first, first))
            row = self._row(computation, change)
            begins = simulated + computation["called"] - stop
            moved.append((computation["stop"], begins + row["seconds"]))
            if computation["computation"] in self._works:
                rows.append(row)
        stop, simulated = max(moved, default=(first, first))
        last = max([simulated + self.recording.stop - stop, *(end for _, end in moved)])
        return Simulation(
            seconds=last - first,
            measured=self.recording.stop - self.recording.start,
            outside=self._outside(),
            computations=table_of(rows),
        )

    def _row(self, computation: Row, change: Change) -> Row:
        measured = float(computation["stop"] - computation["called"])
        row = {
            "computation": computation["computation"],
            "workers": int(computation["workers"]),
            "measured": measured,
            "seconds": measured,
            "preparing": 0.0,
            "scheduling": 0.0,
            "work": 0.0,
        }
        work = self._works.get(computation["computation"])
        if work is None:
            return row
        recorded = work.workers
        workers = recorded
        if change.workers is not None:
            unlimited = max(len(work), recorded)
            workers = unlimited if change.workers == inf else int(change.workers)
        changed = self._changed(work, workers, change)
        if change.scheduler not in (None, computation["scheduler"]):
            start = self._pool_start or pool_start(changed, workers, computation["cpus"])
            changed = under(changed, change.scheduler, workers, change.sizes[changed.rows], start)
        if change.chunksize is not None:
            changed = replace(changed, batch=change.chunksize)
        timeline = replay(changed, workers)
        preparing = changed.graph + changed.before + changed.after
        seconds = preparing + timeline.end
        if workers != recorded or change.remove or change.scheduler:
            cpus = max(float(computation["cpus"]), 1.0)
            cpus = inf if change.without(Activity.CPU_WAIT) else cpus
            scheduler = change.scheduler or computation["scheduler"]
            in_turns = scheduler != "processes" and not change.without(Activity.GIL_WAIT)
            gils = 1.0 if in_turns else inf
            delays = contention(timeline, changed, cpus, gils)
            # As recorded, delays were measured: what the model says of them is its error.
            delays = max(delays - contention(self._recorded(work), work, cpus, gils), 0.0)
            least = min(least_seconds(changed, cpus, gils), max(measured, seconds))
            seconds = max(seconds + delays, least)
        return {
            **row,
            "workers": workers,
            "seconds": seconds,
            "preparing": preparing,
            "scheduling": timeline.end - timeline.waiting,
            "work": float(changed.seconds.sum()),
        }

    def _recorded(self, work: Work) -> Timeline:
        """The timeline of a computation as it was."""
        tasks = self.recording.tasks
        stop = np.fmax(tasks.stop[work.rows], tasks.start[work.rows] + work.seconds)
        start = np.nan_to_num(stop - work.seconds)
        stop = start + work.seconds
        end = float((stop + work.deliver + work.notice).max() - (start - work.wake).min())
        steps = work.prepare.sum() + work.collect.sum() + work.submit * len(work) / work.batch
        return Timeline(start, stop, end, max(end - float(steps), 0.0))

    def _changed(self, work: Work, workers: int, change: Change) -> Work:
        seconds, cpu = work.seconds, work.cpu
        less = dict(change.remove)
        if workers < work.workers:
            less |= dict.fromkeys(CONTENTION, 1.0)
            work = with_fewer_workers(work, workers)
        work = without(work, self.recording, change.remove)
        if self.recording.computations.scheduler.where("processes").any() and change.scheduler:
            less |= dict.fromkeys(TRANSFERS, 1.0)
        if change.scheduler == "processes":
            less[Activity.GIL_WAIT] = 1.0
        for activity in less.keys() & self._activities.keys():
            removed = less[activity] * self._activities[activity][work.rows]
            seconds = seconds - removed
            cpu = cpu - removed if activity == Activity.CPU else cpu
        # Where nothing waits for CPUs, nothing else has them.
        waits = Activity.CPU_WAIT, Activity.NONCPU
        is_idle = change.idle_pools or any(change.without(name) for name in waits)
        pool_cpu = 0.0 if is_idle else work.pool_cpu
        factors = 1.0 if change.factors is None else change.factors[work.rows]
        seconds = np.maximum(seconds, 0.0) / factors
        cpu = np.minimum(np.maximum(cpu, 0.0) / factors, seconds)
        work = replace(
            work,
            seconds=seconds,
            cpu=cpu,
            gil=cpu * self._gil[work.rows],
            pool_cpu=pool_cpu,
            others=0.0 if change.idle_machine else work.others,
        )
        if change.merge > 1:
            work = merged(work, self._functions(work), change.merge)
        return work

    def _outside(self) -> float:
        """Seconds in which no computation ran."""
        covered, until = 0.0, self.recording.start
        for row in self._computations:
            covered += max(0.0, row["stop"] - max(row["called"], until))
            until = max(until, row["stop"])
        return max(0.0, self.recording.stop - self.recording.start - covered)


def simulate(
    recording: Recording,
    workers: float | None = None,
    remove: Collection[str] = frozenset(),
    speedup: Mapping[str, float] | None = None,
    merge_tasks: int | None = None,
    *,
    chunksize: int | None = None,
    scheduler: str | None = None,
    result_bytes: float | None = None,
    idle_machine: bool = False,
    idle_pools: bool = False,
) -> Simulation:
    """Predict how long a recorded program would have taken, had something been different.

    Parameters
    ----------
    recording : Recording
    workers : int, optional
        As many workers, for every computation; ``math.inf`` for as many as there are tasks. The
        machine stays the same: tasks that need a CPU share those that it has.
    remove : collection of str
        Activities that take no time: any of tasks (``gil-wait``, ``io-wait``, ``serialize``, …),
        ``overhead`` (handing tasks out and collecting their results), ``graph``, ``startup`` (of
        worker processes). A mapping has the share of a task's activity that is removed:
        ``{"cpu-wait": 0.5}``.
    speedup : mapping of str to float, optional
        Functions, or keys of single tasks, and how many times as fast they are: ``{"mean": 2.0}``.
    merge_tasks : int, optional
        Every so many tasks of a function become one, as if chunks were so many times as large.
    chunksize : int, optional
        A worker process is sent so many tasks at once, at most.
    scheduler : {"processes", "threads"}, optional
        Computations that ran under another scheduler run under this one. For processes the sizes of
        results must have been measured in bytes, by a `CacheProfiler`: they pass between processes.
        Threads are predicted as if tasks that ran in processes did not need the GIL.
    result_bytes : float, optional
        The size of each result, in place of those that were measured.
    idle_machine : bool, optional
        No other program uses the CPUs. Else others use them as recorded, and more workers share
        the CPUs with them.
    idle_pools : bool, optional
        Threads of native libraries, and others that tasks use, do nothing.

    Returns
    -------
    Simulation
        Its ``seconds`` are the prediction.

    Raises
    ------
    DiagnosticError
        If an argument is not as described, or tasks depend on each other in a cycle.

    Notes
    -----
    The recorded graph is replayed, with measured durations and in the recorded order, on so many
    workers beside the scheduler's thread. What each step of that thread costs is read from the
    recording; for another scheduler it is what was typical where this was written.
    """
    return Simulator(recording).simulate(
        workers,
        remove,
        speedup,
        merge_tasks,
        chunksize=chunksize,
        scheduler=scheduler,
        result_bytes=result_bytes,
        idle_machine=idle_machine,
        idle_pools=idle_pools,
    )
