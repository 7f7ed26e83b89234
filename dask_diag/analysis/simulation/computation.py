"""One computation with a change: its tasks and costs are changed, replayed, and slowed down.

The replay knows workers and the scheduler's thread. What tasks lose where there are more workers
than CPUs, or more that need the GIL, is added afterwards: see `contention`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cached_property
from math import inf

import numpy as np

from dask_diag.analysis.simulation.change import Change
from dask_diag.analysis.simulation.changes import (
    speedups,
    with_fewer_turns,
    with_fewer_workers,
    without,
)
from dask_diag.analysis.simulation.contention import contention, least_seconds
from dask_diag.analysis.simulation.facts import Facts
from dask_diag.analysis.simulation.merge import merged
from dask_diag.analysis.simulation.replay import Timeline
from dask_diag.analysis.simulation.result import Row
from dask_diag.analysis.simulation.schedulers import crowding, startups, under
from dask_diag.analysis.simulation.work import Cluster, Work
from dask_diag.analysis.transfers import TRANSFERS
from dask_diag.columns import FloatArray
from dask_diag.errors import DiagnosticError
from dask_diag.schema import Activity

__all__ = ["ComputationSimulator"]

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
