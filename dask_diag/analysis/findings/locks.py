"""The finding on tasks that wait for a lock that they share."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.function_names import MOST_NAMED, WORTH_NAMING, in_words
from dask_diag.analysis.findings.in_turns import InTurns, in_turns
from dask_diag.analysis.findings.where import Where, where_of_tasks
from dask_diag.analysis.program_lines import (
    ProgramLine,
    program_lines,
    seconds_waiting_for_threads,
)
from dask_diag.analysis.source_paths import short_path
from dask_diag.formatting import percent, seconds
from dask_diag.schema import Activity, Root

__all__ = ["lock_bound", "seconds_waited_for_threads"]

WORTH_REPORTING = 0.15
"""Least share of the tasks' seconds that they waited for locks, and of the wall that is lost."""

OF_POOLS = 0.15
"""Largest share of native libraries' threads in the CPU of these and of tasks."""
OF_WAITS = 0.1
"""Least share of the tasks' waits in which these threads computed, if tasks waited for them: they
may lack a CPU most of the time, on a busy machine, but not all of it."""
HELD = 0.75
"""Least share of the time with a running task in which one does not wait, if they share a lock:
the one that holds it."""
FOR_THREADS = 0.6
"""Share of these waits in which stacks show that tasks wait for other threads, from which on all of
them are: waits and stacks are sampled at different times, and the rest is within their error."""
ONE_AT_A_TIME = 1.1
"""CPU seconds of tasks, by the seconds in which any ran, up to which they may have held the GIL."""
INSIDE = 0.5
"""Largest share of the time at these lines that is dask's own: of a computation inside a task."""
_SCHEDULER = ("dask/local.py", "dask/threaded.py")


def lock_bound(analysis: Analysis) -> Finding | None:
    """Tasks that wait for a lock, other than the GIL, or poll one: a file, or a flag."""
    turns = in_turns(analysis)
    if turns is not None:
        return _polled(analysis, turns)
    if _wait_for_native_threads(analysis):
        return None
    in_all = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0)
    waited = in_all - seconds_waited_for_threads(analysis)
    if waited <= 0 or waited < WORTH_REPORTING * analysis.in_tasks:
        return None
    saved = analysis.seconds_saved(remove={Activity.LOCK_WAIT: waited / in_all})
    lost = waited / analysis.at_once / analysis.overlap if isnan(saved) else saved
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.LOCK_WAIT))
    lines = _lines(analysis, where)
    if _are_inside(lines):
        return None
    in_turns_anyway = _may_hold_the_gil(analysis, lost)
    return Finding(
        "lock-bound",
        severity_of_share(waited / analysis.in_tasks),
        lost,
        f"Tasks waited {seconds(waited)} for locks ({percent(waited / analysis.in_tasks)} of "
        f"their time){_in_words(lines)}. Mostly: {in_words(where.functions)}",
        "hold the lock for less of the task, or give each task what it locks: a file, a "
        "connection, a buffer of its own"
        + "; Python code that holds the GIL meanwhile gains nothing from that"
        * in_turns_anyway,
        kind=AT_MOST if isnan(saved) or in_turns_anyway else ABOUT,
        where=where,
    )


def seconds_waited_for_threads(analysis: Analysis) -> float:
    """Seconds that tasks waited as for a lock, and it was for other threads.

    Stacks show calls that wait for a thread, as those that ask fsspec's event loop. Where there are
    none: of tasks that share a lock one holds it, so not all that run wait for it at any moment,
    and tasks that wait for an answer may.
    """
    waited = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0)
    if not waited or _wait_for_native_threads(analysis):
        return 0.0
    seen = min(seconds_waiting_for_threads(analysis.recording), waited)
    held = analysis.in_tasks - waited
    if seen >= FOR_THREADS * waited:
        return waited
    if held >= HELD * analysis.busy_wall / analysis.overlap:
        return seen
    where = where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.LOCK_WAIT))
    return seen if _are_inside(_lines(analysis, where)) else waited


def _wait_for_native_threads(analysis: Analysis) -> bool:
    """Whether tasks may wait for threads of a native library, which they do as for a lock."""
    pools = sum(group.cpu for group in analysis.thread_groups if group.kind == "native")
    waited = analysis.seconds_waited.get(Activity.LOCK_WAIT, 0.0)
    # All tasks that run may wait for the same thread.
    if pools * analysis.at_once < OF_WAITS * waited:
        return False
    return pools > OF_POOLS * (pools + analysis.cpu_in_tasks)


def _are_inside(lines: Sequence[ProgramLine]) -> bool:
    """Whether tasks wait for what they compute inside, which they do as for a lock."""
    inside = sum(line.seconds for line in lines if short_path(line.file) in _SCHEDULER)
    return inside > INSIDE * sum(line.seconds for line in lines)


def _may_hold_the_gil(analysis: Analysis, lost: float) -> bool:
    """Whether tasks may compute one at a time without the lock, too, so that less is gained.

    A lock that lets one task pass hides the waits for the GIL. Where tasks computed at once
    anyway, or would gain this with all CPU seconds one after the other, it does not matter.
    """
    if analysis.cpu_in_tasks > ONE_AT_A_TIME * analysis.busy_wall:
        return False
    return lost > analysis.computing - analysis.cpu_in_tasks


def _polled(analysis: Analysis, turns: InTurns) -> Finding | None:
    slept = float(turns.slept.sum())
    # Side by side they would not wait for their turn, and still need the CPU seconds that they do.
    lost = min(
        slept / analysis.at_once / analysis.overlap,
        analysis.computing - analysis.cpu_in_tasks / analysis.cpus_for_tasks,
    )
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis.recording, turns.slept)
    return Finding(
        "lock-bound",
        severity_of_share(slept / analysis.in_tasks),
        lost,
        f"Tasks slept {seconds(slept)} in {in_words([str(line) for line in turns.lines])} "
        f"({percent(slept / analysis.in_tasks)} of their time) and went on from there one at a "
        f"time, as tasks do that poll a lock file. Mostly: {in_words(where.functions)}",
        "give each task what it locks: a file, a connection, a directory of its own; or hold the "
        "lock for less of the task. More threads do not help",
        kind=AT_MOST,
        where=where,
    )


def _lines(analysis: Analysis, where: Where) -> list[ProgramLine]:
    """The innermost lines outside the standard library in which these functions wait most."""
    samples = analysis.recording.samples
    of_functions = samples.root.where(Root.TASKS) & samples.function.is_in(where.functions)
    waiting = np.nan_to_num(samples.seconds - samples.cpu_seconds) * of_functions
    return program_lines(analysis.recording, waiting)


def _in_words(lines: Sequence[ProgramLine]) -> str:
    total = sum(line.seconds for line in lines)
    # Tasks may wait for other things, too: a sample does not say for which.
    most = [line for line in lines[:MOST_NAMED] if line.seconds >= WORTH_NAMING * total]
    return f", in {in_words([str(line) for line in most])}" if most else ""
