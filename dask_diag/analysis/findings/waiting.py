"""Rules on running tasks that wait: for files, processes, locks, sleeps and programs."""

from __future__ import annotations

from collections.abc import Sequence
from math import ceil, inf, isinf, isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.call_tree import is_own_code, package_of, short_path
from dask_diag.analysis.cpu import cpus_of_others, cpus_sampled, seconds_beside
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings import cluster
from dask_diag.analysis.findings.calls import slow_call
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.interpreter import (
    ONE_AT_A_TIME,
    WORTH_PROCESSES,
    locks_are_the_gil,
    saved_in_processes,
)
from dask_diag.analysis.findings.repeated import chunks_read_again
from dask_diag.analysis.findings.rule import (
    ESTIMATE,
    FIND_OUT,
    MOST_NAMED,
    WORTH_GAINING,
    WORTH_NAMING,
    Diagnosis,
    Evidence,
    FindingLocation,
    Gain,
    compute_together,
    evidence,
    line_clause,
    on_memory,
    rule,
    samples_of,
    seconds_sampled,
    severity_of,
    simulated,
    sums_of_tasks,
    where_of_samples,
    where_of_tasks,
)
from dask_diag.analysis.groups import workers_of_clusters
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
from dask_diag.formatting import count
from dask_diag.model.codes import COMMITS, Activity, Root
from dask_diag.model.recording import Recording
from dask_diag.model.tables import Metrics

WORTH_REPORTING = 0.15
"""Least share of the time that is reported."""
MOSTLY_WAITING = 0.4
"""Least share of the tasks' seconds in which they wait for I/O, or sleep."""
HARDLY_ANY_CPU = 0.15
"""Without recorded waits: largest CPU time of all threads but the scheduler's, as a share of the
tasks' time. Tasks that compute get more than that even on a busy machine."""
MORE_WORKERS = 4
"""Factor of the present workers that is worth a try if their gain is not known."""
EVEN = 0.8
"""Least share of the intervals between the ends of tasks that are near their median, within a third
of it, if tasks end one at a time."""
FIRST_OF_LATER = 0.85
"""Most seconds of the first tasks of half of the workers, by those of later ones, if tasks end one
at a time: the first of them hardly waits."""
ROUNDS = 3
"""Least number of tasks of each worker, of which that is said."""
COMMITTING = 0.2
"""Least share of the tasks' seconds off the CPU in a commit that they repeat in a loop."""
MOSTLY_BLOCKED = 0.6
"""Least share of their time on an event loop in which coroutines do not compute, if they block."""
PLAIN_FUNCTIONS = "make tasks that block plain functions (`def`)"
FASTER_SERVER = (
    "more tasks at once cannot help: ask for several items in each call, raise the limit, or ask "
    "several servers"
)


@rule("busy-thread", unless=("nested-computations",))
def busy_thread(analysis: Analysis) -> Diagnosis | None:
    """Tasks waited for one thread that computed all the time, such as an event loop."""
    if analysis.on_cluster:
        return _busy_event_loops(analysis)
    thread = analysis.busiest_thread
    if thread is None or not analysis.in_tasks:
        return None
    if chunks_read_again(analysis):
        # That is why the thread is busy.
        return None
    waited = _seconds_waited_for_threads(analysis)
    busy = thread.seconds / analysis.busy_wall
    with_tasks = analysis.busy_with_gil / analysis.busy_wall
    if waited < MOSTLY_WAITING * analysis.in_tasks or with_tasks < FULL:
        return None
    # As many such threads compute at once as there are CPUs, and tasks beside them.
    lost = min(analysis.busy_with_gil, analysis.computing) * (1 - 1 / analysis.cpus)
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    # In a process of their own, tasks wait while its thread computes for them, and not for others.
    for_others = max(0.0, 1 - thread.seconds / waited)
    waits = {Activity.THREAD_WAIT: for_others, Activity.LOCK_WAIT: for_others, Activity.GIL_WAIT: 1}
    predicted, how = saved_in_processes(analysis, waits, workers=analysis.cpus)
    in_processes = float(np.fmin(predicted, lost))
    in_tasks = "compute in the tasks what this thread computes for them, if it releases the GIL"
    more_threads = "more threads do not help"
    if in_processes >= WORTH_PROCESSES * analysis.computing:
        lost = in_processes
        advice = f"use processes, each with such a thread of its own: {how}; or {in_tasks}"
    else:
        advice = in_tasks
        more_threads += ", and processes would hardly help, because they have to start first"
    where = where_of_tasks(analysis, analysis.waits_of_tasks(Activity.THREAD_WAIT))
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "Tasks waited {waited:seconds} ({share:share} of their time) for other threads; thread "
            "{thread} was busy for {busy:share} of the time"
            + ", and with what tasks compute, the GIL for {gil:share}"
            * (with_tasks - busy > BESIDE)
            + "{lines}",
            waited=waited,
            share=waited / analysis.in_tasks,
            thread=thread.name,
            busy=min(busy, 1.0),
            gil=with_tasks,
            lines=line_clause(thread.lines),
        ),
        f"{advice}; {more_threads}",
        where,
    )


def _busy_event_loops(analysis: Analysis) -> Diagnosis | None:
    """Coroutines blocked the event loops of their workers, which ran them one at a time."""
    on_loops = _coroutines(analysis)
    had_loop = float(on_loops.value.sum())
    # Functions that compute may take turns for the GIL of their process.
    lost = min(
        analysis.wall_of_workers(analysis.spent(Activity.EVENT_LOOP)),
        analysis.computing - analysis.cpu_in_tasks / _processes(analysis),
    )
    is_blocked = had_loop - on_loops.cpu.sum() >= MOSTLY_BLOCKED * had_loop
    if lost < WORTH_REPORTING * analysis.computing or not is_blocked:
        return None
    where = where_of_tasks(
        analysis, sums_of_tasks(analysis.recording, on_loops.task, on_loops.value)
    )
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{functions} (`async def`) blocked the event loop of its worker for {took:seconds} "
            "({share:share} of its time): a worker runs one such task at a time, whatever its "
            "threads, and answers nobody meanwhile",
            functions=where.functions,
            took=had_loop,
            share=had_loop / analysis.task_seconds[on_loops.task].sum(),
        ),
        f"{PLAIN_FUNCTIONS}, which run in the threads of a worker; or await what they wait for "
        "(asyncio.sleep, an asynchronous client such as aiohttp)",
        where,
    )


def _coroutines(analysis: Analysis) -> Metrics:
    """A row for each task that is a coroutine, with its seconds on the event loop."""
    metrics = analysis.recording.metrics
    return metrics.filter(metrics.activity.eq(Activity.EVENT_LOOP))


@rule("io-bound", unless=("busy-thread",))
def io_bound(analysis: Analysis) -> Diagnosis | None:
    """Tasks mostly waited for files or the network, or for an unknown reason."""
    if not analysis.in_tasks:
        return None
    committing = _committing(analysis)
    if committing is not None:
        return committing
    is_known = analysis.has_waits
    if is_known:
        # A program that the task started may compute meanwhile: for it, tasks may wait otherwise.
        for_programs = _seconds_of_programs(analysis) - analysis.waited(Activity.CHILD_WAIT)
        lost = max(0.0, analysis.waited(Activity.IO_WAIT) - max(0.0, for_programs))
        how = "waited {lost:seconds} for files or sockets ({share:share} of their time)"
        turns = _turns(analysis)
        if turns is not None:
            lost += analysis.waited(Activity.SLEEP)
            how = (
                "waited or slept for {lost:seconds} ({share:share} of their time). They ended "
                "{ended} at a time, every {pace:seconds}, like calls of a server that answers so "
                "many at once or limits their rate"
            )
    else:
        turns, lost = None, _non_cpu_of_tasks_without_any_cpu(analysis)
        how = (
            "were off the CPU for {lost:seconds} ({share:share} of their time), waiting for I/O, a "
            "sleep, a lock or another program (which one is unknown)"
        )
    share = lost / max(analysis.in_tasks, analysis.occupied)
    if share < MOSTLY_WAITING:
        return None
    if analysis.waited(Activity.LOCK_WAIT) > lost / 2 and _lock_may_be_needed(analysis):
        # The lock has one task wait at a time: that is the finding.
        return None
    where = where_of_tasks(analysis, analysis.tasks.thread_noncpu)
    saved, advice = (nan, FASTER_SERVER) if turns else _more_workers(analysis)
    on_loops = _coroutines(analysis)
    if (on_loops.value - on_loops.cpu).sum() >= MOSTLY_WAITING * analysis.in_tasks:
        advice = f"{PLAIN_FUNCTIONS}, not coroutines (`async def`); then {advice}"
    return Diagnosis(
        severity_of(share, is_certain=is_known),
        # Whether a server or a disk serves more at once is not known.
        Gain(saved),
        evidence(
            f"Tasks {how}. Mostly in {{functions}}",
            lost=lost,
            ended="" if turns is None else turns.number,
            pace=nan if turns is None else turns.seconds,
            share=share,
            functions=where.functions,
        ),
        # Coroutines are not sampled.
        advice if is_known or len(on_loops) else f"{FIND_OUT}; if they wait for I/O, {advice}",
        where,
    )


def _committing(analysis: Analysis) -> Diagnosis | None:
    """Tasks mostly waited until what they wrote was on a disk, again and again in a loop."""
    recording = analysis.recording
    samples = recording.samples
    without_cpu = samples.seconds - np.nan_to_num(samples.cpu_seconds)
    commits = [
        (float(without_cpu[line.chosen].sum()), line)
        for line in analysis.lines_of_io
        if line.call.rpartition(".")[2] in COMMITS
    ]
    waited, line = max(commits, key=lambda pair: pair[0], default=(0.0, None))
    share = waited / analysis.in_tasks
    if line is None or share < COMMITTING:
        return None
    # Other calls of the tasks wait meanwhile for those that commit.
    waits = max(seconds_sampled(recording, line.chosen), analysis.waited(*WAITS))
    lost = min(analysis.wall_of_tasks(waits), analysis.computing)
    return Diagnosis(
        severity_of(share),
        Gain(lost),
        evidence(
            "Tasks waited {waited:seconds} ({share:share} of their time) in {call}, which "
            "{place} calls in a loop: each call waits for the disk, and for other writers",
            waited=waited,
            share=share,
            call=line.call,
            place=line.place,
        ),
        "call it once at the end of the task, or after thousands of rows (for a database one "
        "transaction, with executemany); more tasks at once wait for each other",
        where_of_samples(analysis, line.chosen),
    )


class _Turns(NamedTuple):
    """Tasks that end so many at a time, and the seconds from one time to the next."""

    at_once: int
    seconds: float

    @property
    def number(self) -> str:
        """Such as "one" or "2"."""
        return "one" if self.at_once == 1 else count(self.at_once)


def _turns(analysis: Analysis) -> _Turns | None:
    """How tasks end that wait for their turn; None if they do not.

    Of tasks that wait independently as many end at once as there are workers, or they end at
    random. Those that wait for one server end evenly; as all workers start at once, the first tasks
    wait for fewer others than later ones.
    """
    waited, locked = analysis.waited(*WAITS), analysis.waited(Activity.LOCK_WAIT)
    if waited < MOSTLY_WAITING * analysis.in_tasks or locked > OFTEN_LOCKED * analysis.in_tasks:
        return None
    if not analysis.occupancies:
        return None
    largest = max(analysis.occupancies, key=lambda occupancy: len(occupancy.tasks.rows))
    rows, workers = largest.tasks.rows, largest.workers
    functions = analysis.tasks.function.codes[rows]
    seconds_off_cpu = np.bincount(functions, np.nan_to_num(analysis.tasks.thread_noncpu[rows]))
    rows = rows[(functions == seconds_off_cpu.argmax()) & (analysis.task_seconds[rows] > 0)]
    if workers < 2 or len(rows) < max(ROUNDS * workers, FEWEST_TASKS):
        return None
    took = analysis.task_seconds[rows[np.argsort(analysis.tasks.start[rows], kind="stable")]]
    # The first half wait for few others. A lock that is polled is another finding's.
    first = took[: max(workers // 2, 2)].mean()
    if first > FIRST_OF_LATER * np.median(took[workers:]) or lock_bound(analysis):
        return None
    stops = np.sort(analysis.tasks.stop[rows])
    for at_once in range(1, workers // 2 + 1):
        between = stops[at_once:] - stops[:-at_once]
        median = float(np.median(between))
        if (np.abs(between - median) <= median / 3).mean() >= EVEN:
            return _Turns(at_once, median)
    return None


def _seconds_of_programs(analysis: Analysis) -> float:
    """Seconds that programs of tasks computed, including waits for CPUs used by others.

    An upper bound of the waits of tasks for programs, if each program uses one CPU.
    """
    others = cpus_of_others(analysis.recording)
    return seconds_beside(others, analysis.cpu_of_children, analysis.cpus)


def _more_workers(analysis: Analysis) -> tuple[float, str]:
    """Wall seconds that more workers are predicted to save, NaN without a gain, and the advice."""
    less = "move less data (fewer columns, compression, faster storage)"
    headroom = analysis.memory_headroom
    if headroom.times < 2:
        return nan, f"{less}; more tasks at once would not fit into memory"
    if analysis.waited(Activity.LOCK_WAIT) > OFTEN_LOCKED * analysis.in_tasks:
        return nan, f"{less}; more workers would wait for the same locks"
    most = int(min(MORE_WORKERS, headroom.times)) * max(1, round(analysis.workers))
    # More processes take longer to start, and tasks that wait need none of their own.
    if isnan(_saved_in_threads(analysis, most)):
        how = _thread_settings(analysis, most)
        return nan, f"{less}; or try {how} (not simulated){on_memory(headroom)}"
    workers, saved = _workers_worth_having(analysis, for_programs=False)
    if saved < WORTH_GAINING * analysis.computing:
        is_serial = analysis.at_once <= analysis.workers / 2
        together = compute_together(len(analysis.computations), analysis.on_cluster) * is_serial
        return nan, (
            f"{together}{less}; more workers cannot help: no more tasks can run at once, or CPUs "
            "are busy"
        )
    several = "several" if analysis.schedulers == {"synchronous"} else "more"
    return saved, (
        f"run {several} tasks at once, if the disk or server serves more: "
        f"{_thread_settings(analysis, workers)}; or {less}{on_memory(headroom)}"
    )


def _num_workers(analysis: Analysis, workers: int) -> str:
    """Arguments of dask that run so many threads."""
    in_threads = "" if analysis.schedulers == {"threads"} else "scheduler='threads', "
    return f"{in_threads}num_workers={workers}"


def _saved_in_threads(analysis: Analysis, workers: int) -> float:
    """Seconds that so many threads are predicted to save; NaN if not known."""
    if "processes" not in analysis.schedulers:
        return analysis.seconds_saved(workers=workers)
    saved = analysis.seconds_saved(workers=workers, scheduler="threads")
    # In processes the tasks computed at once; in threads of one they may hold the GIL.
    return min(saved, analysis.computing - analysis.cpu_in_tasks)


def _non_cpu_of_tasks_without_any_cpu(analysis: Analysis) -> float:
    """Non-CPU seconds, if tasks had hardly any CPU time: a busy machine leaves them more."""
    used = analysis.cpu_in_tasks + analysis.known_cpu_outside_tasks + analysis.cpu_of_children
    if used > HARDLY_ANY_CPU * analysis.in_tasks:
        return 0.0
    # Nor is it I/O while other programs had the CPUs.
    waits = cpu_waits(analysis)
    return waits.waited - waits.others


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
    may_be_needed = _lock_may_be_needed(analysis)
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


def _lock_may_be_needed(analysis: Analysis) -> bool:
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


def _seconds_waited_for_threads(analysis: Analysis) -> float:
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


OFTEN_LOCKED = 0.1
"""Largest share of the tasks' seconds in which they wait for locks."""
OF_CHILDREN = 0.5
"""Least share of these seconds in which tasks waited for programs that they started, or these
computed, if that is said; and in which they computed, if CPUs that others use are not idle."""
HARDLY_IDLE = 0.1
"""Share of the CPUs' time below which who used them is said, not how idle they were."""
WAITS = (Activity.SLEEP, Activity.IO_WAIT, Activity.CHILD_WAIT, Activity.DEVICE_WAIT)
"""Waits that leave a CPU to other threads."""
TIMES_AS_MANY = (2, 4, 8, 16)
"""Times the present workers that are tried."""
MOST_OF_IT = 0.8
"""Share of what the most workers gain that is enough: fewer threads need less memory."""


OF_A_CPU = 0.6
"""Least share of their time in which tasks compute, on workers that are fewer than CPUs by as much,
if these are too few."""
IDLE = 0.3
"""Least share of the CPUs that were idle meanwhile."""


FULL = 0.7
"""Least share of the time with a running task in which the thread that tasks wait for is busy, or
tasks have the GIL."""
BESIDE = 0.05
"""Least share of it in which tasks have the GIL, to be named."""


# A lock that is polled shows as a sleep.
@rule(
    "too-few-threads",
    unless=("nested-computations", "lock-bound", "busy-thread", "busy-machine", "io-bound"),
)
def too_few_threads(analysis: Analysis) -> Diagnosis | None:
    """Tasks slept or waited, but not for locks, while CPUs were idle and other tasks could run."""
    is_mixed = analysis.on_cluster and len(analysis.schedulers) > 1
    if not analysis.computations.error.eq("").any():
        # What was not computed is not known.
        return None
    if not analysis.in_tasks or is_mixed or isinf(analysis.cpus_for_tasks):
        return None
    # A task of a cluster waits for a lock of the cluster, and for tasks that it has submitted, as
    # for other threads.
    for_threads = 0.0 if analysis.on_cluster else _seconds_waited_for_threads(analysis)
    waited = analysis.waited(*WAITS) + for_threads
    share = waited / analysis.in_tasks
    locked = analysis.waited(Activity.LOCK_WAIT, Activity.THREAD_WAIT) - for_threads
    # More threads would queue for the lock, which the simulator does not know.
    if locked > OFTEN_LOCKED * analysis.in_tasks:
        return None
    if share < MOSTLY_WAITING:
        return _fewer_than_cpus(analysis)
    if for_threads > OF_CHILDREN * waited and (
        _threads_are_full(analysis) or chunks_read_again(analysis)
    ):
        return None
    if analysis.on_cluster and (
        cluster.unbalanced_workers(analysis)
        or cluster.share_limited_by_resources(analysis) >= WORTH_REPORTING
    ):
        # Free threads wait for what tasks need, such as resources.
        return None
    computing = _seconds_of_programs(analysis)
    workers, lost = _workers_worth_having(analysis, computing > OF_CHILDREN * waited)
    # As many threads as processes gain the start of these, and single tasks in place of batches.
    no_more = _gained_in_threads(analysis, round(analysis.workers))
    if lost - no_more < WORTH_REPORTING * analysis.computing:
        return None
    for_programs = analysis.waited(Activity.CHILD_WAIT)
    how = "slept or waited for I/O"
    how += " or programs" * (for_programs > 0) + " or other threads" * (for_threads > 0)
    if max(computing, for_programs) > OF_CHILDREN * waited:
        how = "waited for programs that they started"
    where = where_of_tasks(analysis, analysis.tasks.thread_noncpu)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost, ESTIMATE),
        evidence(
            f"Tasks {how} for {{share:share}} of their time, while {{idle}}. Mostly in "
            "{functions}",
            share=share,
            idle=_idle_clause(analysis),
            functions=where.functions,
        ),
        f"run more tasks at once: {_thread_settings(analysis, workers)}"
        f"{on_memory(analysis.memory_headroom)}",
        where,
    )


MOSTLY_SLOW = 0.5
"""Share of the time in computations in a slow call, from which on no more workers are advised."""


def _fewer_than_cpus(analysis: Analysis) -> Diagnosis | None:
    """Tasks computed on fewer workers than CPUs, such as on the synchronous scheduler."""
    cpus, now = int(analysis.cpus_for_tasks), analysis.workers
    idle = 1 - (_cpus_used(analysis) + cpus_of_others(analysis.recording)) / cpus if cpus else 0.0
    if analysis.on_cluster or now > cpus - OF_A_CPU or idle < IDLE:
        return None
    if analysis.cpu_in_tasks < OF_A_CPU * analysis.in_tasks:
        return None
    slow = slow_call(analysis)
    if slow is not None and slow.lost(analysis) >= MOSTLY_SLOW * analysis.computing:
        # It is the finding: most such calls hold the GIL, and what remains is little.
        return None
    in_threads = analysis.seconds_saved(workers=cpus, scheduler="threads")
    in_processes, how = saved_in_processes(analysis, {}, workers=cpus)
    saved = float(np.fmax(in_threads, in_processes))
    # One at a time, nothing shows whether tasks need the GIL; where several run, the simulator
    # knows.
    if not saved >= WORTH_REPORTING * analysis.computing:
        return None
    ways = {
        f"scheduler='threads', num_workers={cpus}"
        + ", if these functions release the GIL (as NumPy does)" * analysis.has_gil: in_threads,
        how: in_processes,
    }
    helps = [way for way, gained in ways.items() if gained >= WORTH_GAINING * analysis.computing]
    where = where_of_tasks(analysis, analysis.task_seconds)
    return Diagnosis(
        severity_of(saved / analysis.computing),
        Gain(saved),
        evidence(
            "Tasks computed for {cpu:share} of their time, {tasks:mean} at once on average, while "
            "{idle}. Mostly in {functions}",
            cpu=analysis.cpu_in_tasks / analysis.in_tasks,
            tasks=analysis.at_once,
            idle=_idle_clause(analysis),
            functions=where.functions,
        ),
        f"compute on all CPUs: {', or '.join(helps)}{on_memory(analysis.memory_headroom)}",
        where,
    )


def _threads_are_full(analysis: Analysis) -> bool:
    """Whether threads that tasks wait for leave no CPU, or no turn with the GIL, to more tasks."""
    outside = analysis.known_cpu_outside_tasks
    if analysis.waited(Activity.GIL_WAIT) >= BESIDE * analysis.in_tasks:
        return outside + analysis.cpu_in_tasks >= FULL * analysis.busy_wall
    used = _cpus_used(analysis) + cpus_of_others(analysis.recording)
    return outside >= FULL * analysis.busy_wall and used > (1 - IDLE) * analysis.cpus_for_tasks


def _idle_clause(analysis: Analysis) -> Evidence:
    """Clause on idle CPUs; CPU time of other programs is not known on a cluster."""
    used, cpus = _cpus_used(analysis), analysis.cpus_for_tasks
    if analysis.on_cluster:
        return evidence(
            "tasks used {used:mean} of the {cpus:CPU} of the workers' hosts", used=used, cpus=cpus
        )
    others = cpus_of_others(analysis.recording)
    idle = max(1 - (used + others) / cpus, 0.0)
    if idle < HARDLY_IDLE:
        share = min(others / cpus, 1.0)
        used_by_others = "they needed no CPU (other processes used {others:share} of {cpus:CPU})"
        return evidence(used_by_others, others=share, cpus=cpus)
    were = "was" if cpus == 1 else "were"
    return evidence(f"{{cpus:CPU}} {were} {{idle:share}} idle", cpus=cpus, idle=idle)


def _cpus_used(analysis: Analysis) -> float:
    """CPUs used by tasks and programs of tasks, while any task ran."""
    if not analysis.busy_wall:
        return 0.0
    used = analysis.cpu_in_tasks + analysis.cpu_of_children * analysis.overlap
    used += analysis.known_cpu_outside_tasks
    # Of programs that tasks of worker processes start only samples know.
    return max(used / analysis.busy_wall, cpus_sampled(analysis.recording))


def _thread_settings(analysis: Analysis, workers: int) -> str:
    """How to have so many threads."""
    if not analysis.on_cluster:
        return _num_workers(analysis, workers)
    threads = ceil(workers / _processes(analysis))
    return (
        f"threads_per_worker={threads} (dask worker --nthreads {threads}), {workers} threads in all"
    )


def _processes(analysis: Analysis) -> int:
    """Number of worker processes that a cluster had, if all have the threads of the largest."""
    threads = int(workers_of_clusters(analysis.recording).threads.max(initial=1))
    return max(1, round(analysis.workers / threads))


def _workers_worth_having(analysis: Analysis, for_programs: bool) -> tuple[int, float]:
    """Fewest workers with most of the possible gain, and the gain by the simulator.

    Only numbers of workers with enough memory for their tasks are tried, and no more than there are
    tasks.
    """
    now = max(1, round(analysis.workers))
    tasks = max((len(occupancy.tasks.rows) for occupancy in analysis.occupancies), default=0)
    # CPUs that are busy do no more: programs that tasks started use them, too, and these cannot
    # have those of other programs, as tasks may that only wait.
    used = _cpus_used(analysis) + for_programs * cpus_of_others(analysis.recording)
    most = analysis.computing * max(0.0, 1 - used / analysis.cpus_for_tasks)
    if analysis.busiest_thread is not None:
        # Tasks that wait for a thread are no sooner done than it is, and take turns with it.
        most = min(most, max(0.0, analysis.computing - analysis.busy_with_gil))
    times_as_many = [times for times in TIMES_AS_MANY if times <= analysis.memory_headroom.times]
    numbers = sorted({min(times * now, max(now, tasks)) for times in times_as_many})
    gains = {number: min(_gained_in_threads(analysis, number), most) for number in numbers}
    # Of a chain, more may be predicted to take a little longer.
    enough = MOST_OF_IT * max([0.0, *gains.values()])
    return next((pair for pair in gains.items() if pair[1] >= enough), (now, 0.0))


def _gained_in_threads(analysis: Analysis, workers: int) -> float:
    """Seconds that so many threads are predicted to gain; 0 if not known."""
    gained = _saved_in_threads(analysis, workers)
    if analysis.on_cluster:
        in_turns = analysis.computing - analysis.cpu_in_tasks / _processes(analysis)
        gained = min(gained, in_turns)
    return float(np.nan_to_num(gained))


FEWEST_PROGRAMS = 20
"""Least number of tasks that waited for programs."""
SHORT_PROGRAM = 0.1
"""Most seconds that tasks waited each: of a longer program, to start it is a small part."""


@rule("short-programs", unless=("too-few-threads", "io-bound", "lock-bound"))
def short_programs(analysis: Analysis) -> Diagnosis | None:
    """Tasks started programs that ran for a short time each."""
    waits = analysis.waits_of_tasks(Activity.CHILD_WAIT) if analysis.has_waits else np.zeros(0)
    waited, tasks = float(waits.sum()), int((waits > 0).sum())
    if waited < MOSTLY_WAITING * analysis.in_tasks or tasks < FEWEST_PROGRAMS:
        return None
    lost = min(analysis.wall_of_tasks(waited), analysis.computing)
    if waited > SHORT_PROGRAM * tasks or lost < WORTH_REPORTING * analysis.computing:
        return None
    where = where_of_tasks(analysis, waits)
    return Diagnosis(
        severity_of(lost / analysis.computing),
        Gain(lost),
        evidence(
            "{tasks:task} waited {waited:seconds} for programs that they started ({share:share} of "
            "their time), {each:seconds} each. Mostly in {functions}",
            tasks=tasks,
            waited=waited,
            share=waited / analysis.in_tasks,
            each=waited / tasks,
            functions=where.functions,
        ),
        "start fewer programs, because each takes time to start: give each call many inputs, or "
        "call a library in the task instead",
        where,
    )
