"""Findings on computations as a whole: a chain of tasks, and computations that overlap."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.critical_path import CriticalPath
from dask_diag.analysis.findings.advice import together
from dask_diag.analysis.findings.finding import AT_MOST, MEASURED, Finding, severity_of_share
from dask_diag.analysis.findings.function_names import MOST_NAMED, in_words
from dask_diag.analysis.findings.where import during, where_of_tasks
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.formatting import count, seconds
from dask_diag.model.tables import Tasks

__all__ = ["overlapping_computations", "serial_chain"]

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
CHAIN_OF_WALL = 0.6
"""Least share of a computation's wall time that a serial chain takes."""
CHAIN_OF_EVEN_SHARE = 1.3
"""How many times the work of one worker, were all work divided evenly, a chain exceeds."""
ONE_TASK_OF_CHAIN = 0.5
"""Largest share of the critical path that a single task has, if it is the chain that is slow."""
COMPETING = 0.1
"""Least share of the time, in which computations competed, that is reported."""
BUSY_CPUS = 0.5
"""Least share of the CPUs that their tasks used meanwhile: who sleeps does not compete."""


def serial_chain(analysis: Analysis) -> Finding | None:
    """Workers that were idle since each task depended on the one before."""
    if not len(analysis.recording.dependencies):
        return None
    path = analysis.critical_path
    lost = chain = 0.0
    for computation in path.computations.to_dicts():
        workers = max(1, computation["workers"])
        # All work, divided evenly; only what the chain takes beyond that is lost to it.
        ideal = max(computation["work"] / workers, 0.0)
        bound_by_chain = computation["length"] >= CHAIN_OF_WALL * computation["wall"]
        too_long = computation["length"] > CHAIN_OF_EVEN_SHARE * ideal
        if workers > 1 and bound_by_chain and too_long:
            lost += computation["length"] - ideal
            chain += computation["length"]
    # However it is divided, the work needs its CPU seconds.
    most = analysis.computing - analysis.cpu_in_tasks / analysis.cpus_for_tasks
    lost = min(lost / analysis.overlap, most)
    share = lost / analysis.computing
    if share < WORTH_REPORTING or _one_task_is_most(analysis, path):
        return None
    names = path.functions["function"].tolist()[:MOST_NAMED]
    number = len(analysis.recording.computations)
    in_each = f" in {count(number)} computations" if number > 1 else ""
    return Finding(
        "serial-chain",
        severity_of_share(share),
        lost,
        f"A serial chain of {count(len(path.tasks))} dependent tasks{in_each} takes "
        f"{seconds(chain)} of {seconds(analysis.wall)}{analysis.added_up}; more workers cannot "
        f"help. Functions: {in_words(names)}",
        f"{together(number)}split the chain into independent parts (combine results in a tree, not "
        "one after the other), or make its tasks faster",
        kind=AT_MOST,
        where=where_of_tasks(analysis.recording, _is_on(path, len(analysis.task_seconds))),
    )


def _is_on(path: CriticalPath, count: int) -> BoolArray:
    """Which tasks are on the critical path."""
    is_on = np.zeros(count, bool)
    is_on[path.tasks["task"]] = True
    return is_on


def _one_task_is_most(analysis: Analysis, path: CriticalPath) -> bool:
    """Whether one task is most of each critical path: then it is too long, not the chain."""
    computations = analysis.recording.tasks.computation
    longest = np.zeros(len(computations.values))
    np.maximum.at(longest, computations.codes[path.tasks["task"]], path.tasks["seconds"])
    return bool(longest.sum() > ONE_TASK_OF_CHAIN * path.length)


def overlapping_computations(analysis: Analysis) -> Finding | None:
    """Computations that ran at the same time and competed for the CPUs."""
    computations = analysis.recording.computations
    # Those of a cluster share its threads: what another took of them is in `other`.
    computations = computations.rows(~computations.scheduler.where("distributed"))
    if len(computations) < 2:
        return None
    times = np.concatenate([computations.start, computations.stop])
    order = np.argsort(times, kind="stable")
    one = np.ones(len(computations))
    workers = np.maximum(computations.workers, 1)
    # Of each interval between two of these times: how many ran, and how many workers they had.
    at_once = np.cumsum(np.concatenate([one, -one])[order])[:-1]
    wanted = np.cumsum(np.concatenate([workers, -workers])[order])[:-1]
    competing = (at_once > 1) & (wanted > analysis.cpus)
    edges = times[order]
    lasted = float(np.diff(edges)[competing].sum())
    span = float(times.max() - times.min())
    if lasted < COMPETING * span:
        return None
    tasks = analysis.recording.tasks.rows(
        np.isin(analysis.recording.tasks.computation.tolist(), computations.computation.tolist())
    )
    if _cpu_during(tasks, edges, competing) < BUSY_CPUS * analysis.cpus * lasted:
        return None
    return Finding(
        "overlapping-computations",
        severity_of_share(lasted / span / 2),
        float("nan"),
        f"Up to {int(at_once.max())} computations ran at once for {seconds(lasted)}, with "
        f"{int(wanted.max())} workers on {analysis.cpus} CPUs. Their tasks had to share these, so "
        "they may have taken longer than alone",
        "compute them together with dask.compute(a, b), or one after the other, or with fewer "
        "workers each",
        kind=MEASURED,
        where=during(edges[:-1][competing], edges[1:][competing]),
    )


def _cpu_during(tasks: Tasks, edges: FloatArray, competing: BoolArray) -> float:
    """CPU seconds of tasks in some of the intervals between these times, if each used it evenly."""
    # Seconds of these intervals up to each time: those within a task are a difference of two.
    until = np.concatenate([[0.0], np.cumsum(np.diff(edges) * competing)])
    within = np.interp(tasks.stop, edges, until) - np.interp(tasks.start, edges, until)
    seconds = tasks.stop - tasks.start
    share = np.divide(within, seconds, out=np.zeros(len(tasks)), where=seconds > 0)
    return float(np.nansum(share * tasks.thread_cpu))
