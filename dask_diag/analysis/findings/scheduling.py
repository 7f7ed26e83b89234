"""Findings on computations as a whole, on tasks that are too small, and on the scheduler."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, isnan, log10

import numpy as np

from dask_diag.analysis.critical_path import CriticalPath
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    MEASURED,
    MOST_NAMED,
    WORTH_GAINING,
    Finding,
    during,
    in_words,
    severity_of_share,
    together,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.findings.waiting import cpu_waits
from dask_diag.analysis.lines import graphs_made_before
from dask_diag.analysis.phases import first_starts
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.formatting import amount, count, counted, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.model.tables import Tasks

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


GOAL = 0.05
"""The share of overhead that the advised size of chunks results in."""
OF_LONGER_TASKS = 200e-6
"""Least seconds of overhead of a longer task: threads fall asleep meanwhile, and must be woken."""
SHORT = 0.02
"""Largest mean seconds of tasks that are too small."""
FEWEST_SMALL_TASKS = 100
"""Least number of tasks that are too small."""
CHUNKS_A_WORKER = 3
"""Chunks that the advised size leaves for each worker, at least."""


def tasks_too_small(analysis: Analysis) -> Finding | None:
    """Overhead that is large beside what tasks do."""
    started = int((analysis.task_seconds > 0).sum())
    # The scheduler was in the profilers' hooks for a part of it, or waited for a CPU.
    own = 1 - analysis.share_of_task_hooks
    overhead = analysis.activities.get(Activity.OVERHEAD, 0.0) * own * _share_with_cpu(analysis)
    if started < FEWEST_SMALL_TASKS or analysis.in_tasks / started > SHORT:
        return None
    share = overhead / (overhead + analysis.in_tasks)
    if share < WORTH_REPORTING:
        return None
    mean, cost = analysis.in_tasks / started, overhead / started
    names = top_functions(analysis.recording, np.ones(len(analysis.task_seconds)))
    saved, advice = _larger_chunks(analysis, mean, cost)
    saved *= own
    kind = ABOUT
    if isnan(saved):
        kind = AT_MOST
        saved = analysis.seconds_saved(remove={Activity.OVERHEAD}) * own
    lost = overhead / analysis.workers / analysis.overlap if isnan(saved) else saved
    return Finding(
        "tasks-too-small",
        # Fewer tasks save time in which none runs, too.
        severity_of_share(max(overhead / analysis.available, lost / analysis.computing)),
        lost,
        f"{count(started)} tasks average {seconds(mean)} of work and {seconds(cost)} of overhead "
        f"({percent(share)}). Mostly: {in_words(names)}",
        advice,
        kind=kind,
        where=where_of_tasks(analysis.recording, np.ones(len(analysis.task_seconds))),
    )


def _share_with_cpu(analysis: Analysis) -> float:
    """The share of the time in which tasks, and so the scheduler, had the CPU that they needed.

    In the rest of it other programs had it.
    """
    if not analysis.seconds_waited or not analysis.cpu_in_tasks:
        return 1.0
    return analysis.cpu_in_tasks / (analysis.cpu_in_tasks + cpu_waits(analysis).others)


def _larger_chunks(analysis: Analysis, mean: float, cost: float) -> tuple[float, str]:
    """What larger chunks are predicted to save, NaN if that does not help, and the advice."""
    parallel, workers = analysis.chunks
    # The factor f with cost / (cost + f * mean) = GOAL, as overhead is by task and not by size.
    wanted = _rounded(max(cost, OF_LONGER_TASKS) * (1 - GOAL) / GOAL / mean, ceil)
    largest = _rounded(parallel / (CHUNKS_A_WORKER * workers), floor)
    if largest < 2:
        return float("nan"), (
            f"no remedy is known: no more than {counted(parallel, 'task')} of a function at a "
            f"time, so larger chunks would leave too few for {counted(workers, 'worker')}"
        )
    factor = min(wanted, largest)
    saved = analysis.seconds_saved(merge_tasks=factor)
    if saved < WORTH_GAINING * analysis.computing:
        return float("nan"), (
            f"no remedy is known: chunks {count(factor)} times as large are not predicted to help"
        )
    saved += _in_making_graphs(analysis) * (1 - 1 / factor)
    advice = f"make chunks about {count(factor)} times as large: "
    if wanted <= largest:
        return saved, (
            f"{advice}overhead is below {percent(GOAL)} for tasks of {seconds(mean * factor)} or "
            "more"
        )
    return saved, (
        f"{advice}larger ones would leave fewer than {CHUNKS_A_WORKER} for each of "
        f"{counted(workers, 'worker')}"
    )


def _in_making_graphs(analysis: Analysis) -> float:
    """Seconds before the first computation in which graphs were made, which is done task by task.

    The simulator knows what is done in computations.
    """
    recording = analysis.recording
    return float(recording.samples.seconds[graphs_made_before(recording)].sum())


def _rounded(times: float, direction: Callable[[float], int]) -> int:
    """A factor to two digits."""
    size = 10.0 ** max(0, floor(log10(max(times, 1.0))) - 1)
    return int(direction(times / size) * size)


WAITED = 0.75
"""Least share of the workers' time, since the first task started, that they waited for the
scheduler."""
FEWEST_TASKS = 50
"""Least number of tasks."""
BUSY = 0.75
"""On a cluster: least share of the time in which the scheduler's thread used a CPU."""
WAITED_ON_CLUSTER = 0.3
"""On a cluster: least share of its threads' time that these were free while tasks were on their
way, or in the scheduler's queue."""


def scheduler_bound(analysis: Analysis) -> Finding | None:
    """Workers that mostly wait for the one thread that hands out tasks."""
    if analysis.on_cluster:
        return _scheduler_of_a_cluster(analysis)
    tasks = len(analysis.recording.tasks)
    if tasks < FEWEST_TASKS or not analysis.schedulers & {"threads", "processes"}:
        return None
    # The scheduler was in the profilers' hooks for a part of it.
    without_hooks = 1 - analysis.share_of_task_hooks
    overhead = analysis.activities.get(Activity.OVERHEAD, 0.0) * without_hooks
    first, stop = first_starts(analysis.recording), analysis.recording.computations.stop
    lasted = float((stop - first).sum())
    waited = overhead / analysis.workers
    if lasted <= 0 or waited < WAITED * lasted:
        return None
    lost = analysis.seconds_saved(remove={Activity.OVERHEAD}) * without_hooks
    # Of more tasks than can be simulated it is what workers waited.
    lost = waited / analysis.overlap if isnan(lost) else lost
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    return Finding(
        "scheduler-bound",
        severity_of_share(lost / analysis.computing),
        lost,
        f"{amount(analysis.workers)} workers waited for the scheduler for "
        f"{percent(min(waited / lasted, 1.0))} of {seconds(lasted)}{analysis.added_up}: its one "
        f"thread handed out {count(tasks)} tasks, {seconds(lasted / tasks)} each",
        "make fewer and larger tasks (larger chunks, fused steps); more workers cannot help",
        kind=AT_MOST,
        where=during(first, stop),
    )


def _scheduler_of_a_cluster(analysis: Analysis) -> Finding | None:
    """The same of a scheduler in its own thread or process: its CPU says whether it was busy."""
    computations = analysis.recording.computations
    of_cluster = computations.scheduler.where("distributed")
    computations = computations.rows(of_cluster)
    names = set(computations.computation.tolist())
    occupancies = [one for one in analysis.occupancies if one.computation in names]
    tasks = sum(len(one.tasks.rows) for one in occupancies)
    wall = sum(one.wall for one in occupancies)
    cpu = float(np.nansum(computations.scheduler_cpu))
    capacity = sum(one.worker_seconds for one in occupancies)
    overhead = sum(one.seconds(one.overhead) for one in occupancies)
    if tasks < FEWEST_TASKS or cpu < BUSY * wall or overhead < WAITED_ON_CLUSTER * capacity:
        return None
    threads = capacity / wall
    lost = overhead / threads
    if lost < WORTH_REPORTING * analysis.wall:
        return None
    return Finding(
        "scheduler-bound",
        severity_of_share(lost / analysis.wall),
        lost,
        f"The scheduler's thread used a CPU for {percent(min(cpu / wall, 1.0))} of "
        f"{seconds(wall)}{analysis.added_up}: {seconds(cpu / tasks)} for each of {count(tasks)} "
        f"tasks. The {amount(threads)} threads of the workers were free for "
        f"{percent(overhead / capacity)} of the time while tasks were on their way",
        "submit fewer and larger tasks (larger chunks; several items in each call of "
        "client.submit); more workers cannot help",
        kind=AT_MOST,
        where=during(computations.start, computations.stop),
    )
