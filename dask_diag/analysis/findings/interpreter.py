"""Rules on the GIL and the CPUs, and on who had them while tasks waited."""

from __future__ import annotations

from functools import partial
from math import isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.calls import slow_call
from dask_diag.analysis.findings.cpu_waits import USUAL, VARIABLES, CpuWaits, cpu_waits, is_pool
from dask_diag.analysis.findings.moving import SHUFFLING
from dask_diag.analysis.findings.rule import (
    FIND_OUT,
    MOST_NAMED,
    UPPER_BOUND,
    WORTH_GAINING,
    Diagnosis,
    Evidence,
    Gain,
    evidence,
    rule,
    severity_of,
    simulated,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.findings.scheduling import tasks_too_small
from dask_diag.analysis.groups import lookup
from dask_diag.analysis.lines import cpu_share_of_linear_algebra, own_lines
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.waits import waits as waits_of_functions
from dask_diag.formatting import counted, percent, seconds, size
from dask_diag.model.codes import GIL_ON, Activity, Root


def _gain_of_cpus(analysis: Analysis, waits: CpuWaits, part: float, idle: str) -> Gain:
    """Gain without a part of the waits for CPUs, if other programs or the pools were idle.

    Without recorded waits, tasks may have waited for something else.
    """
    share = min(1.0, part / waits.waited) if waits.waited else 0.0
    wait = Activity.CPU_WAIT if analysis.has_waits else Activity.NONCPU
    gain = simulated(
        analysis,
        analysis.wall_of_tasks(part),
        remove={wait: share},
        idle_machine=idle == "machine",
        idle_pools=idle == "pools",
    )
    return gain if analysis.has_waits else Gain(gain.seconds)


WORTH_REPORTING = 0.15
"""Least share of the tasks' time that is reported."""
AT_ONCE = 0.1
"""Least share of the time with tasks in which several ran at once."""
BLOCKS_A_SECOND = 250.0
"""Least rate of voluntary switches per second if threads share the GIL (they switch every 5 ms)."""
BLOCKS_A_TASK = 4.0
"""Voluntary switches that submitting a task and collecting its result may take."""
LEAST_OF_ONE_CPU = 0.6
MOST_OF_ONE_CPU = 1.25
"""Number of CPUs that tasks use if they share the GIL."""
OF_ITS_OWN = 0.5
"""Least share of the waits for the GIL that waits for CPUs do not explain, for an estimate and
advice: else it is not certain whether the GIL or the lack of CPUs is the cause."""
COLLECTING = 0.8
"""Share of the tasks' CPU seconds in collections of garbage from which on others wait for these."""
WORTH_PROCESSES = 0.25
"""Least share of the seconds of computations that processes are predicted to save, to be advised.

What they cost differs by about as much between machines and libraries.
"""
LEAST_NAMED = 0.1
"""Least size of what is moved, beside all else, that is named."""
_NOT_TASKS = frozenset({"scheduler", "dask_diag"})
"""Kinds of threads that use the GIL and are no part of what tasks do."""
MORE_PROCESSES = "Client(n_workers=..., threads_per_worker=1)"
RELEASE = "use code that releases the GIL in these functions, such as NumPy on whole arrays"
OF_OWN_LINE = 0.3
"""Least share of the sampled time in own code at a line of the program that is to be changed."""
OF_TASKS = 0.1
"""Least share of that line in the sampled time of all tasks."""


ONE_AT_A_TIME = 1.1
"""CPU seconds of tasks, by the seconds in which any ran, up to which they may have held the GIL."""
COMPUTED = 0.6
"""Least share of the time with a running task in which one computed, or waited for a CPU, if the
holder of a lock holds the GIL."""
OF_GIL = 0.45
"""Least share of the samples for the GIL, among those for it and for locks, if a lock is held by
code that holds the GIL."""


def locks_are_the_gil(analysis: Analysis) -> bool:
    """Whether tasks waited for locks because their holders waited for the GIL.

    Then they would take turns without it, too. A holder that sleeps or reads does not compute;
    one that releases the GIL leaves it to others, who do not wait for it. The lock around a first
    call is another finding's.
    """
    if analysis.on_cluster or not analysis.in_tasks:
        return False
    if any(call.is_locked for call in analysis.first_calls):
        return False
    table = analysis.waits
    samples = lookup(table["activity"], table["samples"]) if len(table) else {}
    for_gil, for_locks = (samples.get(name, 0) for name in (Activity.GIL_WAIT, Activity.LOCK_WAIT))
    computed = analysis.cpu_in_tasks + analysis.waited(Activity.CPU_WAIT) / analysis.at_once
    return bool(
        for_locks
        and for_gil >= OF_GIL * (for_gil + for_locks)
        and analysis.cpu_in_tasks <= ONE_AT_A_TIME * analysis.busy_wall
        and computed >= COMPUTED * analysis.busy_wall
    )


MOSTLY_LOCKS = 1.5
"""Seconds of waits for locks and of sleeps, by those for the GIL, that are the cause of both."""


class _GilWaits(NamedTuple):
    """Seconds that tasks waited for the GIL, and the reasons.

    Attributes
    ----------
    waited : float
    scheduler : float
        Seconds in which the thread of the scheduler or of a profiler had the GIL.
    own : float
        Seconds explained neither by `scheduler` nor by waits for CPUs: other tasks had the GIL.
    """

    waited: float
    scheduler: float
    own: float

    @property
    def share_with_cpu(self) -> float:
        """Share of the waits for other tasks in which the task with the GIL also had a CPU."""
        for_tasks = self.waited - self.scheduler
        return self.own / for_tasks if for_tasks > 0 else 0.0


@rule("gil-bound", unless=("nested-computations",))
def gil_bound(analysis: Analysis) -> Diagnosis | None:
    """Threads waited for the GIL."""
    if not analysis.schedulers & {"threads", "distributed"} or not analysis.in_tasks:
        return None
    if analysis.share_at_once < AT_ONCE or not analysis.has_gil:
        return None
    is_recorded = analysis.has_waits
    waits = _waits_for_gil(analysis) if is_recorded else _non_cpu_of_turns(analysis)
    share = waits.own / analysis.in_tasks
    if share < WORTH_REPORTING:
        return None
    # Who gets a lock at last, or has slept, needs the GIL, too: where tasks mostly waited for that,
    # it is one cause, and not this one.
    others = analysis.waited(Activity.LOCK_WAIT, Activity.SLEEP)
    if is_recorded and others > MOSTLY_LOCKS * waits.waited:
        return None
    # Then they wait for the collector, which is another finding's.
    collected = analysis.spent(Activity.GC)
    if _is_of_libraries(analysis) or collected > COLLECTING * analysis.cpu_in_tasks:
        return None
    # Without recorded waits it is not known what else tasks waited for.
    of_own = waits.own / waits.waited
    remove = {Activity.GIL_WAIT if is_recorded else Activity.NONCPU: of_own}
    if is_recorded and locks_are_the_gil(analysis):
        remove[Activity.LOCK_WAIT] = of_own
    gain = simulated(analysis, analysis.wall_of_tasks(waits.own), remove=remove)
    has_cpus = waits.share_with_cpu >= OF_ITS_OWN
    is_certain = is_recorded and has_cpus
    # Where only other code helps it is not known how much of it can release the GIL.
    saved = nan if analysis.on_cluster else saved_in_processes(analysis, remove)[0]
    may_win = not saved < WORTH_PROCESSES * analysis.computing
    is_sampled = analysis.recording.samples.root.eq(Root.TASKS).any()
    if is_certain and is_sampled and not (may_win or _is_of_program(analysis)):
        # Neither processes help nor other code of the program's own.
        return None
    slow = slow_call(analysis)
    if slow is not None:
        # There is more to gain than the waits.
        gain = Gain(max(gain.seconds, slow.lost(analysis)))
    return Diagnosis(
        severity_of(share, is_certain=is_certain),
        gain if is_certain and may_win else Gain(gain.seconds),
        _gil_evidence(analysis, waits),
        _advice(analysis, remove, has_cpus),
        where_of_tasks(analysis, analysis.waits_of_tasks(Activity.GIL_WAIT)),
    )


def _advice(analysis: Analysis, remove: dict[str, float], has_cpus: bool) -> str:
    if not analysis.has_waits:
        advice = f"{FIND_OUT}; if they wait for the GIL, {_remedy(analysis, remove)}"
    elif has_cpus:
        advice = _remedy(analysis, remove)
    else:
        advice = (
            "record again while CPUs are idle, with no more workers than CPUs: tasks also waited "
            "for CPUs, and a thread that holds the GIL without a CPU blocks all others"
        )
    if GIL_ON in analysis.python:
        advice = (
            "this Python can run without the GIL, and a setting or a module turned it on: look for "
            f"a RuntimeWarning when modules are imported; or {advice}"
        )
    return advice


def _is_of_libraries(analysis: Analysis) -> bool:
    """Whether the GIL was held by code that is another finding's, or that nobody can change.

    That is a shuffle of dask, or what libraries do for each of many small tasks.
    """
    weights = analysis.waits_of_tasks(Activity.GIL_WAIT)
    if weights[analysis.tasks.function.is_in(SHUFFLING)].sum() > weights.sum() / 2:
        return True
    return not _is_of_program(analysis) and tasks_too_small(analysis) is not None


def _is_of_program(analysis: Analysis) -> bool:
    """Whether the program can do with less of what takes the time."""
    return bool(_own_line(analysis)) or slow_call(analysis) is not None


def _gil_evidence(analysis: Analysis, waits: _GilWaits) -> Evidence:
    if not analysis.has_waits:
        return evidence(
            "Tasks were off the CPU for {share:share} of their time: on average {tasks:mean} ran "
            "at once, on only {cpus:mean} CPUs. This suggests waits for the GIL; another lock, or "
            "short sleeps, look the same. Mostly in {functions}",
            tasks=analysis.at_once,
            cpus=analysis.cpu_in_tasks / analysis.busy_wall,
            share=waits.own / analysis.in_tasks,
            functions=top_functions(analysis, np.nan_to_num(analysis.tasks.thread_noncpu)),
        )
    table = waits_of_functions(analysis.recording)
    names = table["function"][table["activity"].eq(Activity.GIL_WAIT)].tolist()
    for_scheduler = ". For {scheduler:seconds} of it, the scheduler's thread held the GIL"
    for_cpus = ". For up to {cpus:seconds} of it, the thread with the GIL waited for a CPU itself"
    slow = slow_call(analysis)
    return evidence(
        "Tasks waited {waited:seconds} for the GIL ({share:share} of their time)"
        + for_scheduler * (waits.scheduler >= WORTH_REPORTING * waits.waited)
        + for_cpus * (waits.share_with_cpu < 1 - WORTH_REPORTING)
        + ". Mostly in {functions}"
        + ". They {slow}" * (slow is not None),
        slow=slow.clause(analysis) if slow else "",
        waited=waits.waited,
        share=waits.waited / analysis.in_tasks,
        scheduler=waits.scheduler,
        cpus=waits.waited - waits.scheduler - waits.own,
        functions=analysis.named(names[:MOST_NAMED]),
    )


def _waits_for_gil(analysis: Analysis) -> _GilWaits:
    """Recorded waits.

    The thread with the GIL needs a CPU, too. If the thread waits for a CPU as much as tasks do on
    average, the same share of the waits of others for the GIL is a wait for the CPU.
    """
    waited = analysis.waited(Activity.GIL_WAIT)
    if locks_are_the_gil(analysis):
        waited += analysis.waited(Activity.LOCK_WAIT)
    scheduler = waited * _share_of_scheduler(analysis)
    used = analysis.cpu_in_tasks + _cpu_of_libraries(analysis)
    needed = used + analysis.waited(Activity.CPU_WAIT)
    with_cpu = used / needed if needed else 1.0
    return _GilWaits(waited, scheduler, (waited - scheduler) * with_cpu)


def _cpu_of_libraries(analysis: Analysis) -> float:
    """CPU seconds of Python threads of libraries, or that tasks start: they compute for tasks."""
    groups = [group for group in analysis.thread_groups if not group.processes]
    return sum(group.cpu for group in groups if group.kind in ("python", "ended"))


def _share_of_scheduler(analysis: Analysis) -> float:
    """Share of a task's waits for the GIL in which the scheduler or a profiler had it, about.

    Waits are divided in proportion to the CPU time of the competing threads: of the scheduler, of
    profilers, and of tasks running at once. Small tasks wait for the scheduler.
    """
    groups = [group for group in analysis.thread_groups if not group.processes]
    apart = sum(group.cpu for group in groups if group.kind in _NOT_TASKS)
    python = _cpu_of_libraries(analysis)
    other_tasks = max(1.0 - 1.0 / analysis.at_once, 0.0) if analysis.at_once else 0.0
    return apart / (apart + other_tasks * analysis.cpu_in_tasks + python) if apart else 0.0


def _non_cpu_of_turns(analysis: Analysis) -> _GilWaits:
    """Non-CPU seconds, if tasks seem to have shared one CPU by taking turns.

    Seconds in which other programs had the CPUs do not count.
    """
    recording = analysis.recording
    switches = float(np.nansum(recording.computations.voluntary_switches))
    blocked = switches - BLOCKS_A_TASK * len(recording.tasks)
    # Threads that hand the GIL to each other use one CPU together, and block at each handover.
    used = analysis.cpu_in_tasks / analysis.busy_wall
    is_one_cpu = LEAST_OF_ONE_CPU <= used <= MOST_OF_ONE_CPU
    if analysis.cpus < 2 or not is_one_cpu or blocked < BLOCKS_A_SECOND * analysis.busy_wall:
        return _GilWaits(0.0, 0.0, 0.0)
    waits = cpu_waits(analysis)
    return _GilWaits(waits.waited, 0.0, waits.waited - waits.others)


def _own_line(analysis: Analysis) -> str:
    """The program's own line that takes most of the time of tasks; empty if none takes much."""
    samples = analysis.recording.samples
    of_tasks = samples.seconds * samples.root.eq(Root.TASKS)
    lines = own_lines(analysis.recording, of_tasks)
    share = lines[0].seconds / sum(line.seconds for line in lines) if lines else 0.0
    if share < OF_OWN_LINE or lines[0].seconds < OF_TASKS * of_tasks.sum():
        return ""
    return f"{lines[0]}, {percent(share)} of the time in own code"


def _release(analysis: Analysis) -> str:
    """Advice for the code, with the program's own line that takes most of the time."""
    slow = slow_call(analysis)
    if slow is not None:
        return slow.kind.instead
    line = _own_line(analysis)
    if not line:
        return RELEASE
    return (
        f"{RELEASE}, first of all in {line}: "
        "vectorize its loops, which may save more; load or compile once, not in each call"
    )


def saved_in_processes(
    analysis: Analysis, remove: dict[str, float], workers: int | None = None
) -> tuple[float, str]:
    """Seconds that worker processes are predicted to save, NaN if unknown, and the settings."""
    if analysis.workers > analysis.cpus:
        # All start at once, so more than there are CPUs only start later.
        workers = analysis.cpus
    # Where sizes are not known, the best case: there is nothing to move.
    sizes = None if analysis.simulator.result_sizes is not None else 0.0
    how = "scheduler='processes'" + (f", num_workers={workers}" if workers else "")
    saved_by = partial(
        analysis.seconds_saved,
        remove=remove,
        scheduler="processes",
        workers=workers,
        result_bytes=sizes,
    )
    # Of few long tasks one process would get most, in a batch.
    saved, single = saved_by(), saved_by(chunksize=1)
    if single > saved + WORTH_GAINING * analysis.computing:
        return single, f"{how}, chunksize=1"
    return saved, how


def _remedy(analysis: Analysis, remove: dict[str, float]) -> str:
    """Advice to use worker processes, if predicted to help; else the reason and another remedy."""
    release = _release(analysis)
    if analysis.on_cluster:
        has_one_thread = int(analysis.recording.workers.threads.max(initial=0)) == 1
        # It takes turns with what its worker sends and receives. And each process needs memory.
        if has_one_thread or analysis.memory_headroom.times <= 1:
            return release
        return f"{release}; or run more worker processes with fewer threads each: {MORE_PROCESSES}"
    saved, how = saved_in_processes(analysis, remove)
    simulator = analysis.simulator
    has_sizes = simulator.result_sizes is not None
    if isnan(saved):
        return release
    results, data = simulator.bytes_of_results, simulator.bytes_of_graphs
    # A small size beside a large one need not be read.
    moved = [f"{size(results)} of results"] * (results > LEAST_NAMED * data)
    moved += [f"{size(data)} of data in the graph"] * (data > LEAST_NAMED * results)
    cost = " and ".join(["start-up", *([f"moving {' and '.join(moved)}"] if moved else [])])
    least = WORTH_PROCESSES * analysis.computing
    if saved < least:
        # How long they take to start on this machine is not known.
        is_heavy = results + data > BYTES_A_SECOND * least / 2
        reason = f" ({' and '.join(moved)} would have to be moved)" * is_heavy
        return f"{release}; processes would hardly help{reason}"
    most = (saved - least) * BYTES_A_SECOND
    is_data_known = not np.isnan(analysis.computations.graph_bytes).any()
    if has_sizes:
        if_little = f", if the program passes less than {size(most)} of data to its tasks"
        processes = (
            f"compute with {how}, predicted to save {seconds(saved)}, net of {cost}"
            f"{if_little * (not is_data_known)}"
        )
        is_first = slow_call(analysis) is not None
        return f"{release}; or {processes}" if is_first else f"{processes}; or {release}"
    little = "" if is_data_known else " and the program passes them little data"
    # A result is sent to the scheduler's process, and from there to another.
    return (
        f"{release}; or compute with {how} if tasks pass each other less than {size(most / 2)} of "
        f"results (CacheProfiler(metric=nbytes, unit='bytes') measures it){little}: it could save "
        f"up to {seconds(saved)}"
    )


OUTSIDE_OF_WALL = 0.05
"""CPU time of the pools' threads must be more than this share of the wall time."""
OUTSIDE = 0.1
"""Least share of the CPU time of pools and tasks together that the pools' threads used."""
WAITED = 0.075
"""Least share of the tasks' time that they waited for a CPU, or for the pools' threads."""
WORTH_NAMING_OTHERS = 0.1
"""Least share of the waits that is reported as that of other programs."""
WORTH_NAMING_SPINNING = 0.1
"""Least share of the tasks' CPU time that is reported as spinning."""


@rule("thread-oversubscription")
def thread_oversubscription(analysis: Analysis) -> Diagnosis | None:
    """Native thread pools and workers competed for the CPUs."""
    pools = [group for group in analysis.thread_groups if is_pool(group)]
    used = sum(pool.cpu for pool in pools)
    if not analysis.in_tasks or analysis.share_at_once < AT_ONCE:
        return None
    if used <= OUTSIDE_OF_WALL * analysis.wall or used < OUTSIDE * (used + analysis.cpu_in_tasks):
        return None
    # The thread that calls a library works together with its pool.
    most = max(pool.threads for pool in pools)
    if analysis.at_once * (1 + most) <= analysis.cpus:
        return None
    share_sampled = cpu_share_of_linear_algebra(analysis.recording)
    is_sampled = not isnan(share_sampled)
    spinning = _spinning(analysis, used, most, share_sampled if is_sampled else 1.0)
    waits = cpu_waits(analysis, spinning if is_sampled else 0.0)
    # A task waits for its library's threads as for a lock.
    locked = analysis.waited(Activity.LOCK_WAIT)
    if (waits.waited + locked) / analysis.in_tasks < WAITED:
        return None
    blocked = analysis.waits_of_tasks(Activity.CPU_WAIT)
    saved, kind = _gain_without_pools(analysis, used, spinning, locked)
    if locked:
        blocked = blocked + analysis.waits_of_tasks(Activity.LOCK_WAIT)
    libraries = sorted(pool.name for pool in pools if pool.name)
    is_spinning_known = is_sampled or not spinning
    is_spinning_named = is_sampled and spinning >= WORTH_NAMING_SPINNING * analysis.cpu_in_tasks
    return Diagnosis(
        severity_of((waits.pools + locked) / analysis.in_tasks, is_certain=bool(libraries)),
        # Threads of a library that is not known may do something else, and so may tasks.
        Gain(saved, kind if libraries and is_spinning_known else UPPER_BOUND),
        evidence(
            "Tasks and native threads competed for {cpus:CPU}: on average {tasks:mean} tasks ran "
            "at once, and each called {libraries} with up to {threads:count} threads. The native "
            "threads used {used:seconds} of CPU time, the tasks' own threads {own:seconds}"
            + ", about {spinning:seconds} of it busy-waiting for native threads" * is_spinning_named
            + ". Tasks {waited}",
            tasks=analysis.at_once,
            libraries=libraries or "an unknown native library",
            threads=1 + most,
            cpus=analysis.cpus,
            used=used,
            own=analysis.cpu_in_tasks,
            spinning=spinning,
            waited=_wait_clause(analysis, waits, locked),
        ),
        _pools_advice(libraries),
        where_of_tasks(analysis, blocked),
    )


def _spinning(analysis: Analysis, used: float, most: int, share: float) -> float:
    """CPU seconds in which tasks spun while waiting for pools.

    A call is divided evenly among the calling thread and the threads of a pool. CPU time of the
    calling threads beyond the share of a thread of the pool is no part of the call, but waiting:
    for the pool, in a loop, or for another task's call. Threads of a pool spin, too, so the result
    is a lower bound; undivided parts of a call count as well. `share` of the tasks' CPU time is in
    such calls: all CPU time where stacks were not sampled.
    """
    # Two libraries of a name may have a pool each.
    helpers = max(1, min(most, analysis.cpus - 1))
    return max(0.0, analysis.cpu_in_tasks * share - used / helpers)


def _gain_without_pools(analysis: Analysis, used: float, spinning: float, locked: float) -> Gain:
    """Gain without the threads of pools and without spinning.

    While a single task runs, its pool uses CPUs that are free. Tasks that wait for the threads of
    pools as for a lock wait no more, but compute what these threads computed.
    """
    waits = cpu_waits(analysis)
    saved, kind = _gain_of_cpus(analysis, waits, waits.pools, "pools")
    alone = analysis.busy_wall * (1 - analysis.share_at_once)
    saved += spinning * (1 - alone / analysis.in_tasks) / analysis.cpus / analysis.overlap
    saved = min(saved, analysis.computing)
    if locked:
        remove = {Activity.CPU_WAIT: waits.pools / waits.waited if waits.waited else 0.0}
        with_locks = analysis.seconds_saved(remove=remove, idle_pools=True)
        remove = {**remove, Activity.LOCK_WAIT: 1.0}
        besides = analysis.seconds_saved(remove=remove, idle_pools=True) - with_locks
        most = analysis.computing - (analysis.cpu_in_tasks + used) / analysis.cpus
        # What cannot be simulated, NaN, is not more than 0.
        saved += max(0.0, min(besides, most))
    return Gain(saved, kind)


def _wait_clause(analysis: Analysis, waits: CpuWaits, locked: float) -> Evidence:
    """Clause on the waits of the tasks."""
    is_recorded = analysis.has_waits
    for_cpus = (
        "{waited:seconds} for a CPU"
        if is_recorded
        else "were off the CPU for {waited:seconds} (Profiler(waits=True) shows why)"
    )
    if waits.others >= WORTH_NAMING_OTHERS * waits.waited:
        for_cpus += " ({others:seconds} of it while other processes used the CPUs)"
    parts = [for_cpus] * bool(waits.waited or not is_recorded)
    parts += ["{locked:seconds} for native threads or locks"] * bool(locked)
    return evidence(
        "waited " * is_recorded + " and ".join(parts),
        waited=waits.waited,
        others=waits.others,
        locked=locked,
    )


def _pools_advice(libraries: list[str]) -> str:
    names = [VARIABLES[library] for library in libraries or USUAL]
    settings = [f"{name}=1" for name in dict.fromkeys(names)]
    if not libraries:
        return (
            f"find out which library starts these threads; try {' or '.join(settings)} before "
            "Python starts"
        )
    how = "compute inside threadpoolctl.threadpool_limits(1)"
    if "arrow" in libraries:
        how = "call pyarrow.set_cpu_count(1)"
    return f"set {' and '.join(settings)} before Python starts, or {how}"


HELD_BACK = 0.1
"""Least share of the time in computations in which the limit held the program back."""


@rule("cpu-quota", needs=("quotas",))
def cpu_quota(analysis: Analysis) -> Diagnosis | None:
    """A limit of CPU time, as of a container, kept the program from running."""
    held, limit = analysis.held_back, analysis.cpu_limit
    if held < HELD_BACK * analysis.computing:
        return None
    return Diagnosis(
        severity_of(held / analysis.computing),
        Gain(held),
        evidence(
            "The container's limit of {limit} held the program back for {held:seconds} of "
            "{wall:seconds}, with {tasks:mean} tasks at once on average",
            limit=f"{limit:g} CPU" + "s" * (limit != 1),
            held=held,
            wall=analysis.computing,
            tasks=analysis.at_once,
        ),
        "raise the limit (docker run --cpus=..., resources.limits.cpu of Kubernetes); more than "
        f"{counted(analysis.cpus, 'worker')} (num_workers={analysis.cpus}) cannot compute faster "
        "within it",
        where_of_tasks(analysis, analysis.waits_of_tasks(Activity.CPU_WAIT)),
    )


OTHERS = 0.1
"""Least share of the CPUs that other programs used."""
WAITED_FOR_OTHERS = 0.075
"""Least share of the tasks' time that they waited for CPUs which other programs used."""
NO_CPU_LEFT = 0.85
"""Without recorded waits: least share of the CPUs that was used, by whomever."""


@rule("busy-machine")
def busy_machine(analysis: Analysis) -> Diagnosis | None:
    """Other programs used CPUs while tasks waited for CPUs."""
    computations = analysis.computations
    others = float(np.nansum(computations.cpu_other_processes))
    available = analysis.cpus * analysis.wall
    if others < OTHERS * available:
        return None
    is_recorded = analysis.has_waits
    used = np.nansum([others, *computations.cpu_process, *computations.cpu_children])
    if not is_recorded and used < NO_CPU_LEFT * available:
        return None
    waits = cpu_waits(analysis)
    share = waits.others / analysis.in_tasks if analysis.in_tasks else 0.0
    if share < WAITED_FOR_OTHERS:
        return None
    how = "waited {waited:seconds} for"
    if not is_recorded:
        how = "were off the CPU for {waited:seconds}, perhaps waiting for"
    return Diagnosis(
        severity_of(share, is_certain=is_recorded),
        _gain_of_cpus(analysis, waits, waits.others, "machine"),
        evidence(
            f"Tasks {how} a CPU, while other processes used {{share:share}} of {{cpus:CPU}} "
            "({others:seconds} of CPU time)",
            # Each of several computations at once has all of it.
            others=others / analysis.overlap,
            share=others / available,
            cpus=analysis.cpus,
            waited=waits.waited,
        ),
        "measure again when the machine is idle; otherwise use no more workers than idle CPUs",
        where_of_tasks(analysis, analysis.waits_of_tasks(Activity.CPU_WAIT)),
    )
