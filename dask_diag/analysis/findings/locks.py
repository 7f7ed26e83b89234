"""The finding on tasks that wait for a lock that they share."""

from __future__ import annotations

from collections.abc import Sequence
from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    MOST_NAMED,
    WORTH_NAMING,
    Finding,
    Where,
    in_words,
    severity_of_share,
    where_of_tasks,
)
from dask_diag.analysis.lines import (
    ProgramLine,
    line_of_samples,
    program_lines,
    seconds_waiting_for_threads,
)
from dask_diag.columns import BoolArray, FloatArray
from dask_diag.formatting import percent, seconds
from dask_diag.model.codes import Activity, Root
from dask_diag.model.recording import Recording

FEWEST_TASKS = 10
"""Tasks of which it is said: of fewer it may be chance."""
MOST_SLEEP = 0.3
"""Least share of these tasks' seconds at the line where they sleep."""
BUSY = 0.7
"""Least share of the time in which one of them did something else."""
OVERLAP = 0.15
"""Largest share of what they do otherwise that overlaps: samples are a few milliseconds off."""
UNEVEN = 0.4
"""Least spread of the seconds that they sleep, over their mean: who polls waits for others."""
MOST_CPU = 0.1
"""Largest share of CPU in the seconds at the line: who computes there does not sleep."""
BESIDE_THE_FIRST = 2
"""Lines that are tried together with the one at which tasks slept longest."""


class InTurns(NamedTuple):
    """Where tasks slept until it was their turn.

    Attributes
    ----------
    lines : tuple of ProgramLine
        One, or two.
    slept : array of float
        By task of the recording: seconds at these lines.
    """

    lines: tuple[ProgramLine, ...]
    slept: FloatArray


def in_turns(analysis: Analysis) -> InTurns | None:
    """The lines at which tasks slept until it was their turn; None if they did not, or not surely.

    It needs samples of stacks by task: those of tasks that are too short for it are no evidence.
    """
    recording = analysis.recording
    asleep = analysis.seconds_waited.get(Activity.SLEEP, 0.0)
    if not asleep or asleep < MOST_SLEEP * analysis.in_tasks:
        return None
    samples = recording.samples
    of_tasks = samples.root.where(Root.TASKS) & (samples.node >= 0)
    waiting = np.nan_to_num(samples.seconds - samples.cpu_seconds) * of_tasks
    lines = program_lines(recording, waiting)[: BESIDE_THE_FIRST + 1]
    alone = [tuple(lines[:1])] if lines else []
    for chosen in [*alone, *((lines[0], other) for other in lines[1:])]:
        slept = _slept_in_turns(recording, chosen, of_tasks)
        if slept is not None:
            return InTurns(chosen, slept)
    return None


def _slept_in_turns(
    recording: Recording, lines: tuple[ProgramLine, ...], of_tasks: BoolArray
) -> FloatArray | None:
    """The seconds that each task slept at these lines; None if it was not until its turn."""
    samples, tasks = recording.samples, recording.tasks
    is_at_line = np.logical_or.reduce([line_of_samples(recording, line) for line in lines])
    is_at_line &= of_tasks
    cpu = np.nan_to_num(samples.cpu_seconds[is_at_line]).sum()
    if cpu > MOST_CPU * samples.seconds[is_at_line].sum():
        return None
    at_line, sampled = _by_task(recording, is_at_line), _by_task(recording, of_tasks)
    took = np.nan_to_num(tasks.stop - tasks.start)
    # What was not sampled is divided as the rest of the task is.
    slept: FloatArray = took * np.divide(
        at_line, sampled, out=np.zeros(len(tasks)), where=sampled > 0
    )
    is_known = (sampled > 0) & (took > 0)
    if _go_on_one_at_a_time(tasks.start[is_known], tasks.stop[is_known], slept[is_known]):
        return slept
    return None


def _by_task(recording: Recording, chosen: BoolArray) -> FloatArray:
    """The seconds of some samples, by the task whose key they have."""
    samples, tasks = recording.samples, recording.tasks
    row_of_key = {key: row for row, key in enumerate(tasks.key.tolist())}
    row_of_code = [row_of_key.get(key, -1) for key in samples.key.values]
    row = np.array(row_of_code, dtype=np.int64)[samples.key.codes[chosen]]
    seconds = np.zeros(len(tasks))
    np.add.at(seconds, row[row >= 0], samples.seconds[chosen][row >= 0])
    return seconds


def _go_on_one_at_a_time(start: FloatArray, stop: FloatArray, slept: FloatArray) -> bool:
    """Whether tasks that slept so long, and then went on, did so one at a time."""
    took = stop - start
    if len(took) < FEWEST_TASKS or slept.sum() < MOST_SLEEP * took.sum():
        return False
    if np.std(slept) < UNEVEN * np.mean(slept):
        return False
    went_on, remainder = start + slept, took - slept
    order = np.argsort(went_on)
    reached = np.maximum.accumulate(stop[order])
    before = np.concatenate([[-np.inf], reached[:-1]])
    alone = np.clip(stop[order] - np.maximum(went_on[order], before), 0.0, None).sum()
    return bool(
        alone >= BUSY * (stop.max() - start.min()) and alone >= (1 - OVERLAP) * remainder.sum()
    )


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
