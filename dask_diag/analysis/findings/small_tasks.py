"""The finding on tasks that are too small."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, floor, isnan, log10

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import WORTH_GAINING
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.function_names import in_words, top_functions
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.analysis.program_lines import graphs_made_before
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.schema import Activity

__all__ = ["tasks_too_small"]

WORTH_REPORTING = 0.15
"""Least share of overhead in the time of overhead and tasks."""
GOAL = 0.05
"""The share of overhead that the advised size of chunks results in."""
OF_LONGER_TASKS = 200e-6
"""Least seconds of overhead of a longer task: threads fall asleep meanwhile, and must be woken."""
SHORT = 0.02
"""Largest mean seconds of tasks that are too small."""
FEWEST_TASKS = 100
"""Least number of tasks that are too small."""
CHUNKS_A_WORKER = 3
"""Chunks that the advised size leaves for each worker, at least."""


def tasks_too_small(analysis: Analysis) -> Finding | None:
    """Overhead that is large beside what tasks do."""
    started = int((analysis.task_seconds > 0).sum())
    # The scheduler was in the profilers' hooks for a part of it, or waited for a CPU.
    own = 1 - analysis.share_of_task_hooks
    overhead = analysis.activities.get(Activity.OVERHEAD, 0.0) * own * _share_with_cpu(analysis)
    if started < FEWEST_TASKS or analysis.in_tasks / started > SHORT:
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
