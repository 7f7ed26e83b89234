"""Rules on running tasks that wait: for files, processes, locks, sleeps and programs."""

from __future__ import annotations

from math import ceil, floor, isinf, isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.cpu import cpus_of_others, cpus_sampled, seconds_beside
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.calls import slow_call
from dask_diag.analysis.findings.cluster import share_limited_by_resources, unbalanced_workers
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.interpreter import (
    WORTH_PROCESSES,
    saved_in_processes,
)
from dask_diag.analysis.findings.locks import (
    FEWEST_TASKS,
    FULL,
    lock_bound,
    lock_may_be_needed,
    waited_for_threads,
)
from dask_diag.analysis.findings.repeated import chunks_read_again
from dask_diag.analysis.findings.rule import (
    ESTIMATE,
    FIND_OUT,
    WORTH_GAINING,
    Diagnosis,
    Evidence,
    Gain,
    compute_together,
    evidence,
    line_clause,
    on_memory,
    rule,
    seconds_sampled,
    severity_of,
    sums_of_tasks,
    where_of_samples,
    where_of_tasks,
)
from dask_diag.analysis.groups import workers_of_clusters
from dask_diag.analysis.intervals import Intervals
from dask_diag.formatting import count
from dask_diag.model.codes import COMMITS, Activity
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
RUN_BESIDE = 1.5
"""Least number of tasks that run at once, for each that ends at once."""
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
    waited = waited_for_threads(analysis)
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
    if analysis.waited(Activity.LOCK_WAIT) > lost / 2 and lock_may_be_needed(analysis):
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
    start, stops = analysis.tasks.start[rows], np.sort(analysis.tasks.stop[rows])
    # Those that wait for their turn run meanwhile: the tasks of a chain do not.
    running = float(took.sum()) / Intervals(start, analysis.tasks.stop[rows]).union().seconds
    for at_once in range(1, min(workers // 2, floor(running / RUN_BESIDE)) + 1):
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
    for_threads = 0.0 if analysis.on_cluster else waited_for_threads(analysis)
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
        unbalanced_workers(analysis) or share_limited_by_resources(analysis) >= WORTH_REPORTING
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
