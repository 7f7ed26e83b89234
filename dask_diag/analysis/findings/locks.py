"""A rule on locks that tasks wait for, and on other threads that they wait for meanwhile."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

import numpy as np

from dask_diag.analysis.call_tree import is_own_code, package_of, short_path
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.interpreter import (
    ONE_AT_A_TIME,
    locks_are_the_gil,
    saved_in_processes,
)
from dask_diag.analysis.findings.rule import (
    MOST_NAMED,
    WORTH_GAINING,
    WORTH_NAMING,
    Diagnosis,
    FindingLocation,
    Gain,
    evidence,
    rule,
    samples_of,
    severity_of,
    simulated,
    sums_of_tasks,
    where_of_tasks,
)
from dask_diag.analysis.lines import (
    QUEUES,
    ProgramLine,
    line_of_samples,
    lines_outside_dask,
    program_lines,
    samples_below,
    samples_of_tasks,
    seconds_waiting_for_threads,
)
from dask_diag.columns import BoolArray, FloatArray, ratio
from dask_diag.model.codes import Activity, Root
from dask_diag.model.recording import Recording

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
FULL = 0.7
"""Least share of the time with a running task in which the thread that tasks wait for is busy,
tasks have the GIL, or one of them sleeps or waits with a lock."""
OF_POOLS = 0.15
"""Largest share of native libraries' threads in the CPU of these and of tasks."""
OF_WAITS = 0.1
"""Least share of the tasks' waits in which these threads computed, if tasks waited for them: they
may lack a CPU most of the time, on a busy machine, but not all of it."""
FOR_THREADS = 0.6
"""Share of these waits in which stacks show that tasks wait for other threads, from which on all of
them are: waits and stacks are sampled at different times, and the rest is within their error."""
INSIDE = 0.5
"""Largest share of the time at these lines that is dask's own: of a computation inside a task."""
_SCHEDULER = ("dask/local.py", "dask/threaded.py")


@rule("lock-bound")
def lock_bound(analysis: Analysis) -> Diagnosis | None:
    """Tasks waited for a lock other than the GIL, or polled a lock: a file, or a flag."""
    turns = _sleep_in_turns(analysis)
    if turns is not None:
        return _polled_lock(analysis, *turns)
    if _wait_for_native_threads(analysis) or locks_are_the_gil(analysis):
        return None
    in_all = analysis.waited(Activity.LOCK_WAIT)
    waited = in_all - _seconds_locked_for_threads(analysis)
    # What waits for a first run does so once.
    locked = analysis.waits_of_tasks(Activity.LOCK_WAIT)
    waited -= sum(float(locked[call.rows].sum()) for call in analysis.first_calls)
    if waited <= 0 or waited < WORTH_REPORTING * analysis.in_tasks:
        return None
    gain = simulated(
        analysis, analysis.wall_of_tasks(waited), remove={Activity.LOCK_WAIT: waited / in_all}
    )
    if gain.seconds < WORTH_REPORTING * analysis.computing:
        return None
    where, lines = _where_locked(analysis)
    if _are_nested_computations(lines):
        return None
    # A lock that lets one task pass hides the waits for the GIL. Where tasks computed at once
    # anyway, or would gain this with all CPU seconds one after the other, it does not matter.
    may_hold_the_gil = (
        analysis.has_gil
        and analysis.cpu_in_tasks <= ONE_AT_A_TIME * analysis.busy_wall
        and gain.seconds > analysis.computing - analysis.cpu_in_tasks
    )
    lines = lines_outside_dask(
        analysis.recording, _seconds_off_cpu(analysis, samples_of(analysis, where))
    )
    package = package_of(short_path(lines[0].file)) if lines else ""
    # Runs that compile wait for a compiler's lock: fewer of these help, and are another finding's.
    if package in _WITH_THREADS or package in _COMPILERS:
        return None
    # Tasks may wait for other things, too: a sample does not say for which.
    least = WORTH_NAMING * sum(line.seconds for line in lines)
    most = [str(line) for line in lines[:MOST_NAMED] if line.seconds >= least]
    advice, saved = _advice_on_lock(analysis, lines, waited / in_all, may_hold_the_gil)
    may_be_needed = lock_may_be_needed(analysis)
    if may_be_needed:
        advice = f"none, if what it protects does one thing at a time; else {advice}"
    is_upper_bound = may_hold_the_gil or may_be_needed or saved < gain.seconds
    return Diagnosis(
        severity_of(waited / analysis.in_tasks, is_certain=not may_be_needed),
        Gain(min(gain.seconds, saved)) if is_upper_bound else gain,
        evidence(
            "Tasks waited {waited:seconds} for locks ({share:share} of their time)"
            + ", in {lines}" * bool(most)
            + ". Mostly in {functions}",
            waited=waited,
            share=waited / analysis.in_tasks,
            lines=most,
            functions=where.functions,
        ),
        advice,
        where,
    )


def lock_may_be_needed(analysis: Analysis) -> bool:
    """Whether one task at a time sleeps or waits with it, as if it had a device or a connection."""
    waited = analysis.waited(Activity.SLEEP, Activity.IO_WAIT)
    is_always_used = FULL * analysis.busy_wall <= waited <= analysis.busy_wall
    return is_always_used and not _is_lock_of_arrays(analysis, (*READING, *WRITING))


READING = ("getter", "getter_nofancy")
"""Functions of dask that take the lock of an array while they read a part."""
WRITING = ("load_store_chunk", "store_chunk")
"""Those that take it while they write a part."""
_WITH_THREADS = frozenset({"pyarrow"})
"""Packages whose calls wait for native threads of their own, of little CPU time."""
_COMPILERS = frozenset({"llvmlite", "numba"})
"""Packages whose locks are those of first calls."""
_LOCKS_OF_FILES = frozenset({"fasteners", "filelock", "portalocker", "zc.lockfile"})
"""Packages whose locks all processes share."""


def _advice_on_lock(
    analysis: Analysis, lines: Sequence[ProgramLine], part: float, may_hold_the_gil: bool
) -> tuple[str, float]:
    """What helps against a lock, of which a part of the waits are at these lines.

    The seconds are the most that it saves.
    """
    advice = (
        "hold the lock for a smaller part of the task, or give each task its own file, connection "
        "or buffer, so that no lock is needed"
        + "; this does not help if the locked code holds the GIL"
        * may_hold_the_gil
    )
    off_cpu = _seconds_off_cpu(analysis, samples_of_tasks(analysis.recording))
    if off_cpu[samples_below(analysis.recording, QUEUES)].sum() > off_cpu.sum() / 2:
        return (
            "return from the task what it puts into the queue, or put lists of many items: each "
            "call goes to the scheduler and back"
        ), inf
    if _is_lock_of_arrays(analysis, WRITING):
        advice = (
            "write whole chunks of the target, x.rechunk(target.chunks): else each is read, "
            "changed and written again, and without a lock data is lost; then pass lock=False, if "
            f"the target allows several threads; or {advice}"
        )
    elif _is_lock_of_arrays(analysis, READING):
        advice = f"pass lock=False, if what is read allows several threads; or {advice}"
    if not lines or analysis.schedulers != {"threads"} or is_own_code(lines[0].file):
        return advice, inf
    package = package_of(short_path(lines[0].file))
    # Processes compute at once, whatever holds the GIL.
    saved, how = saved_in_processes(analysis, {Activity.LOCK_WAIT: part})
    if package in _LOCKS_OF_FILES or not saved >= WORTH_GAINING * analysis.computing:
        return advice, inf
    return (
        f"the lock is in {package}: use {how}, each process has a lock of its own; or call less of "
        "it at once",
        saved,
    )


def _is_lock_of_arrays(analysis: Analysis, functions: Sequence[str]) -> bool:
    """Whether tasks wait for the lock of ``from_array`` or ``store``, by what takes it."""
    recording = analysis.recording
    off_cpu = _seconds_off_cpu(analysis, recording.samples.root.eq(Root.TASKS))
    calls = [samples_below(recording, "dask/array/core.py", name) for name in functions]
    return float(off_cpu[np.logical_or.reduce(calls)].sum()) > float(off_cpu.sum()) / 2


def waited_for_threads(analysis: Analysis) -> float:
    """Seconds in which tasks waited for other threads."""
    return analysis.waited(Activity.THREAD_WAIT) + _seconds_locked_for_threads(analysis)


def _seconds_locked_for_threads(analysis: Analysis) -> float:
    """Seconds of ``lock-wait`` in which stacks show calls that wait for other threads.

    Of clusters, and of recordings by earlier versions, which had no ``thread-wait``.
    """
    waited = analysis.waited(Activity.LOCK_WAIT)
    if not waited or _wait_for_native_threads(analysis):
        return 0.0
    seen = seconds_waiting_for_threads(analysis.recording) - analysis.waited(Activity.THREAD_WAIT)
    return waited if seen >= FOR_THREADS * waited else max(seen, 0.0)


def _wait_for_native_threads(analysis: Analysis) -> bool:
    """Whether ``lock-wait`` may be waiting for threads of a native library."""
    pools = sum(group.cpu for group in analysis.thread_groups if group.kind == "native")
    # All tasks that run may wait for the same thread.
    if pools * analysis.at_once < OF_WAITS * analysis.waited(Activity.LOCK_WAIT):
        return False
    return pools > OF_POOLS * (pools + analysis.cpu_in_tasks)


def _where_locked(analysis: Analysis) -> tuple[FindingLocation, list[ProgramLine]]:
    """Place of ``lock-wait``, and innermost lines with most waiting of the functions there.

    Those lines are outside the standard library.
    """
    where = where_of_tasks(analysis, analysis.waits_of_tasks(Activity.LOCK_WAIT))
    seconds = _seconds_off_cpu(analysis, samples_of(analysis, where))
    return where, program_lines(analysis.recording, seconds)


def _seconds_off_cpu(analysis: Analysis, chosen: BoolArray) -> FloatArray:
    """Seconds without CPU of the chosen samples, 0 for other samples."""
    samples = analysis.recording.samples
    return np.nan_to_num(samples.seconds - samples.cpu_seconds) * chosen


def _are_nested_computations(lines: Sequence[ProgramLine]) -> bool:
    """Whether ``lock-wait`` is waiting for a computation inside the task."""
    inside = sum(line.seconds for line in lines if short_path(line.file) in _SCHEDULER)
    return inside > INSIDE * sum(line.seconds for line in lines)


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


def _polled_lock(
    analysis: Analysis, lines: Sequence[ProgramLine], slept: FloatArray
) -> Diagnosis | None:
    """A lock that tasks poll, sleeping so many seconds each at the lines."""
    total = float(slept.sum())
    # Side by side they would not wait for their turn, and still need the CPU seconds that they do.
    lost = min(
        analysis.wall_of_tasks(total),
        analysis.computing - analysis.cpu_in_tasks / analysis.cpus_for_tasks,
    )
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis, slept)
    return Diagnosis(
        severity_of(total / analysis.in_tasks),
        Gain(lost),
        evidence(
            "Tasks slept {slept:seconds} ({share:share} of their time) in {lines}, and continued "
            "one at a time, like tasks that poll a lock file. Mostly in {functions}",
            slept=total,
            lines=[str(line) for line in lines],
            share=total / analysis.in_tasks,
            functions=where.functions,
        ),
        "give each task its own file, connection or directory, so that no lock is needed; or hold "
        "the lock for a smaller part of the task; more threads do not help",
        where,
    )


def _sleep_in_turns(analysis: Analysis) -> tuple[Sequence[ProgramLine], FloatArray] | None:
    """Lines at which tasks slept until their turn, and the seconds slept by each task.

    None without certainty. Samples of stacks by task are needed: tasks too short to have any are no
    evidence.
    """
    asleep = analysis.waited(Activity.SLEEP)
    if not asleep or asleep < MOST_SLEEP * analysis.in_tasks:
        return None
    seconds_of_tasks = samples_of_tasks(analysis.recording)
    lines = program_lines(analysis.recording, _seconds_off_cpu(analysis, seconds_of_tasks))
    for rows in ([0], *([0, other] for other in range(1, BESIDE_THE_FIRST + 1))):
        if rows[-1] < len(lines):
            chosen = [lines[row] for row in rows]
            slept = _slept_in_turns(analysis.recording, chosen, seconds_of_tasks)
            if slept is not None:
                return chosen, slept
    return None


def _slept_in_turns(
    recording: Recording, lines: Sequence[ProgramLine], seconds_of_tasks: BoolArray
) -> FloatArray | None:
    """Seconds that each task slept at the lines; None unless tasks slept until their turn."""
    samples, tasks = recording.samples, recording.tasks
    is_at_line = np.logical_or.reduce([line_of_samples(recording, line) for line in lines])
    is_at_line &= seconds_of_tasks
    cpu = np.nan_to_num(samples.cpu_seconds[is_at_line]).sum()
    if cpu > MOST_CPU * samples.seconds[is_at_line].sum():
        return None
    row_of_key = {key: row for row, key in enumerate(tasks.key.tolist())}
    row_of_code = np.array([row_of_key.get(key, -1) for key in samples.key.values], np.int64)

    def seconds_by_task(chosen: BoolArray) -> FloatArray:
        """Seconds of the chosen samples, by the task with the same key."""
        rows = row_of_code[samples.key.codes[chosen]]
        return sums_of_tasks(recording, rows, samples.seconds[chosen])

    at_line, sampled = seconds_by_task(is_at_line), seconds_by_task(seconds_of_tasks)
    took = np.nan_to_num(tasks.stop - tasks.start)
    # What was not sampled is divided as the rest of the task is.
    slept: FloatArray = took * ratio(at_line, sampled)
    is_known = (sampled > 0) & (took > 0)
    if _go_on_one_at_a_time(tasks.start[is_known], tasks.stop[is_known], slept[is_known]):
        return slept
    return None


def _go_on_one_at_a_time(start: FloatArray, stop: FloatArray, slept: FloatArray) -> bool:
    """Whether tasks, after sleeping so long, went on one at a time."""
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
