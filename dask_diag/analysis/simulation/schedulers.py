"""Costs of scheduling the same tasks under another of dask's local schedulers.

A recording has these costs of the scheduler that it was made with, and not of others. They were
measured on one machine (2 CPUs of 2 GHz, CPython 3.11, dask 2026.8), so predictions are rough.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from dask_diag.analysis.simulation.work import STEPS, Columns, Work
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.formatting import BYTES
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording

BYTES_A_SECOND = 0.25e9
"""What passes from a process to another: pickled, sent, unpickled. NumPy arrays of 8 to 32 MB were
measured: 0.17 to 0.27 GB/s, all of it in turn, since one thread of the scheduler's process does it.
"""
POOL_START = 1.3
"""Seconds in which worker processes that have a CPU each start and import dask and the program: 1.1
to 1.6 s."""
FEWEST_SIZED = 0.95
"""Least share of the results that must have been measured; of those that are cached, of the tasks
with dependents."""


@dataclass(frozen=True)
class _Costs:
    """Seconds for each task; see `Work`."""

    prepare: float
    wake: float
    gap: float
    collect: float
    deliver: float
    notice: float
    submit: float
    batch: int


COSTS = {
    "processes": _Costs(50e-6, 60e-6, 20e-6, 15e-6, 20e-6, 130e-6, 130e-6, 6),
    "threads": _Costs(20e-6, 30e-6, 0.0, 20e-6, 10e-6, 20e-6, 30e-6, 1),
}
"""By scheduler, of tasks that do nothing. In batches of six, which is dask's `chunksize`."""


def result_sizes(recording: Recording) -> FloatArray | None:
    """Bytes of each task's result; None if not measured."""
    tasks, cached = recording.tasks, recording.cached_results
    has_result = tasks.outcome.eq(Outcome.OK)
    sized = int((~np.isnan(tasks.nbytes[has_result])).sum())
    if sized >= max(1, FEWEST_SIZED * int(has_result.sum())):
        return np.asarray(np.nan_to_num(tasks.nbytes), float)
    if recording.metric_unit != BYTES or not len(cached):
        return None
    # Two computations may have tasks of the same key, with results of different sizes.
    names = zip(cached.computation.tolist(), cached.key.tolist(), strict=True)
    size_of = dict(zip(names, cached.metric.tolist(), strict=True))
    pairs = zip(tasks.computation.tolist(), tasks.key.tolist(), strict=True)
    sizes = np.array([size_of.get(pair, np.nan) for pair in pairs])
    passed_on = np.zeros(len(tasks), bool)
    passed_on[recording.dependencies.depends_on] = True
    if (~np.isnan(sizes[passed_on])).sum() < FEWEST_SIZED * passed_on.sum():
        return None
    return np.asarray(np.nan_to_num(sizes), float)


def startup_slowdown(workers: int, others: float, cpus: float) -> float:
    """Slowdown of starting worker processes, relative to a CPU for each.

    They start at once, and each computes while it imports.
    """
    return max(1.0, (workers + others) / max(cpus, 1.0))


def startups(work: Work, recorded: Work, workers: int, cpus: float) -> tuple[float, ...]:
    """Extra seconds until the first task of each worker process starts.

    More processes than were recorded start like the slowest of those that were; so do more workers
    of a cluster, whose threads these are.
    """
    if not work.startup:
        return ()
    if work.cluster is not None:
        longest = max(work.startup)
        return (*work.startup, *[longest] * (workers - len(work.startup)))[:workers]
    before = startup_slowdown(recorded.workers, recorded.others, cpus)
    longer = startup_slowdown(workers, work.others, cpus) / before
    further = (max(work.startup),) * (workers - len(work.startup))
    return tuple(longer * startup for startup in (*work.startup[:workers], *further))


def startups_of_all(work: Work) -> tuple[float, ...]:
    """Extra seconds until the first task of each worker process starts, if each gets a task.

    A process starts with the first task that finds none idle. Those that start in addition take
    longer, as they share memory and disk: on two CPUs two took half as long again as one.
    """
    missing = work.workers - len(work.startup)
    if not work.startup or missing <= 0 or work.cluster is not None:
        return work.startup
    return (*work.startup, *[max(work.startup) * (1 + missing / work.workers)] * missing)


def under(
    work: Work, scheduler: str, workers: int, sizes: FloatArray, startup: float = POOL_START
) -> Work:
    """Work with the costs of another scheduler.

    Parameters
    ----------
    work : Work
    scheduler : {"processes", "threads"}
    workers : int
    sizes : array of float
        The bytes of each result. Between processes, results pass to the scheduler, and inputs and
        the graph's data from it: all take its time.
    startup : float, optional
        Seconds in which worker processes start.
    """
    costs, count = COSTS[scheduler], len(work)
    is_apart = scheduler == "processes"
    fused = _fused(work) & is_apart
    to_task, from_task = (is_apart * moved / BYTES_A_SECOND for moved in bytes_moved(work, sizes))
    # A task that is fused with the one before is handed out with it, at no cost of its own.
    own = np.where(fused, 0.0, 1.0)
    steps: Columns = {name: getattr(costs, name) * own for name in STEPS}
    steps["prepare"] += to_task
    # A result is unpickled whether the scheduler waits for it or it for the scheduler.
    steps["collect"] += from_task
    steps["notice"] += from_task
    sent = (count - int(fused.sum())) / costs.batch
    return replace(
        work,
        submit=costs.submit,
        startup=(startup,) * workers if is_apart else (),
        batch=costs.batch,
        switching=0.0,
        gil=np.zeros(count) if is_apart else work.gil,
        cpu_scheduler=float((steps["prepare"] + steps["collect"]).sum()) + costs.submit * sent,
        **steps,
    )


def bytes_moved(work: Work, sizes: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Bytes moved between worker processes and the scheduler's, for each task.

    Parameters
    ----------
    work : Work
    sizes : array of float
        The bytes of each result.

    Returns
    -------
    to_task, from_task : array of float
        Bytes that are sent to its process, of its inputs and of its part of the graph's data; and
        of the result that comes from it.
    """
    count, fused = len(work), _fused(work)
    inside = np.zeros(count, bool)
    # Its result is used in the same process, and is never pickled.
    inside[work.depends_on[fused[work.task]]] = True
    received = np.bincount(work.task, sizes[work.depends_on], minlength=count)
    # Of the graph's data only the sum is known.
    data = work.graph_bytes / max(count - int(fused.sum()), 1)
    return np.where(fused, 0.0, received + data), np.where(inside, 0.0, sizes)


def _fused(work: Work) -> BoolArray:
    """Flags of tasks fused with the previous task: dask fuses chains before starting processes."""
    count = len(work)
    dependents = np.bincount(work.depends_on, minlength=count)
    dependencies = np.bincount(work.task, minlength=count)
    # A chain: the only dependent of a task that is its only dependency.
    alone = (dependents[work.depends_on] == 1) & (dependencies[work.task] == 1)
    fused = np.zeros(count, bool)
    fused[work.task[alone]] = True
    return fused
