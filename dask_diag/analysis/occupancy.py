"""How many workers were busy, held up, or idle at each moment of a computation."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.task_times import computation_starts
from dask_diag.analysis.transfers import Interval, transfers_by_task
from dask_diag.columns import Array
from dask_diag.model.recording import Recording

__all__ = ["Occupancy", "Task", "occupancies", "when_ready"]


@dataclass(frozen=True)
class Task:
    """The times of the tasks of one computation, as arrays; NaN where there is none.

    Attributes
    ----------
    rows : array of int
        Their positions in `Recording.tasks`.
    ready, start, stop, collected : array of float
        Seconds. `stop` of a task that was not finished is the end of its computation.
    taken, left : array of float
        From when to when it had a worker: from `start` to `stop`, and in another process also while
        the worker rebuilt its inputs and pickled its result.
    """

    rows: Array
    ready: Array
    start: Array
    stop: Array
    collected: Array
    taken: Array
    left: Array


@dataclass(frozen=True)
class Occupancy:
    """The state of a computation's workers as step functions of time.

    Attributes
    ----------
    computation, span : str
    workers : int
        As many as the scheduler said, or as ran at once if it said less.
    tasks : Task
    times : array of float, shape (steps + 1,)
        Seconds; the first and last are the bounds of the computation.
    busy : array of int, shape (steps,)
        Workers that ran a task, or moved its inputs or result.
    overhead, unknown : array of int, shape (steps,)
        Workers that were free while a task waited for the scheduler or for a worker, or its result
        for the scheduler; that were free beyond those while a task was out of which it is not known
        when it ran. The rest was idle.
    held_up : dict of str to array of int
        Workers that would be in `overhead`, had the scheduler not been at ``serialize`` or
        ``deserialize``; without these where nothing is moved between processes.
    """

    computation: str
    span: str
    workers: int
    tasks: Task
    times: Array
    busy: Array
    overhead: Array
    unknown: Array
    held_up: dict[str, Array]

    @property
    def idle(self) -> Array:
        """Workers that were free while nothing was there to be run."""
        free = self.workers - self.busy - self.overhead - self.unknown
        return np.asarray(free - sum(self.held_up.values()))

    def seconds(self, workers: Array) -> float:
        """Worker-seconds of one of the step functions."""
        return float((workers * np.diff(self.times)).sum())

    def seconds_until(self, workers: Array, moments: Array) -> Array:
        """Worker-seconds of one of the step functions from the start up to each of `moments`."""
        so_far = np.concatenate([[0.0], np.cumsum(workers * np.diff(self.times))])
        return np.asarray(np.interp(moments, self.times, so_far))

    def share_until(self, workers: Array, moments: Array) -> Array:
        """What one free worker has of `workers` from the start up to each of `moments`, in seconds.

        Workers that are free at the same time have equal shares.
        """
        free = self.workers - self.busy
        with np.errstate(invalid="ignore", divide="ignore"):
            each = np.where(free > 0, workers / free, 0.0) * np.diff(self.times)
        so_far = np.concatenate([[0.0], np.cumsum(each)])
        return np.asarray(np.interp(moments, self.times, so_far))


def when_ready(recording: Recording) -> Array:
    """When each task could begin: its computation's start, or the last collection it waited for."""
    ready = computation_starts(recording)
    dependencies = recording.dependencies
    if len(dependencies):
        collected = recording.tasks.collected[dependencies.depends_on]
        np.fmax.at(ready, dependencies.task, collected)
    return ready


def occupancies(recording: Recording) -> list[Occupancy]:
    """The occupancy of every computation that ran tasks or had workers, in the order recorded."""
    if not len(recording.tasks):
        return [_occupancy(row, _no_tasks(), {}) for row in recording.computations.to_dicts()]
    tasks = recording.tasks
    ready, moves = when_ready(recording), transfers_by_task(recording)
    rows_of = rows_by(tasks["computation"])
    found = []
    for row in recording.computations.to_dicts():
        rows = rows_of.get(row["computation"], np.zeros(0, np.int64))
        start, stop = tasks["start"][rows], tasks["stop"][rows]
        stop = np.where(np.isnan(stop) & ~np.isnan(start), row["stop"], stop)
        taken, left = np.fmin(start, moves.opened[rows]), np.fmax(stop, moves.closed[rows])
        times = Task(rows, ready[rows], start, stop, tasks["collected"][rows], taken, left)
        found.append(_occupancy(row, times, moves.by_scheduler(rows)))
    return found


def _no_tasks() -> Task:
    nothing = np.zeros(0)
    return Task(np.zeros(0, np.int64), nothing, nothing, nothing, nothing, nothing, nothing)


def _occupancy(computation: dict[str, Any], tasks: Task, moves: dict[str, Interval]) -> Occupancy:
    begin, end = computation["start"], computation["stop"]
    known = ~np.isnan(tasks.taken)
    running = (tasks.taken[known], tasks.left[known])
    waiting = (tasks.ready[known], tasks.taken[known])
    collecting = (tasks.left[known], np.fmax(tasks.left, tasks.collected)[known])
    out = (tasks.ready[~known], np.full((~known).sum(), end))
    intervals = [running, waiting, collecting, out, *moves.values()]
    changes = [
        (moments, step, sign)
        for step, interval in enumerate(intervals)
        for moments, sign in zip(interval, (1, -1), strict=True)
    ]
    moments = np.clip(np.concatenate([moments for moments, _, _ in changes]), begin, end)
    times, at = np.unique(np.concatenate([[begin, end], moments]), return_inverse=True)
    counts = np.zeros((len(intervals), len(times)))
    position = 2
    for values, step, sign in changes:
        here = at[position : position + len(values)]
        counts[step] += sign * np.bincount(here, minlength=len(times))
        position += len(values)
    busy, ready, done, unknown, *moving = np.cumsum(counts, axis=1)[:, :-1].astype(np.int64)
    workers = max(int(computation["workers"]), int(busy.max(initial=0)), 1)
    free = workers - busy
    overhead = np.minimum(free, ready + done)
    unknown = np.minimum(free - overhead, unknown)
    held_up = {}
    for activity, scheduler_is_at_it in zip(moves, moving, strict=True):
        held_up[activity] = np.where(scheduler_is_at_it > 0, overhead, 0)
        overhead = overhead - held_up[activity]
    return Occupancy(
        computation=computation["computation"],
        span=computation["span"],
        workers=workers,
        tasks=tasks,
        times=times,
        busy=busy,
        overhead=overhead,
        unknown=unknown,
        held_up=held_up,
    )
