"""The finding on threads that wait for the GIL."""

from __future__ import annotations

from math import isnan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import FIND_OUT
from dask_diag.analysis.findings.cpu_waits import cpu_waits
from dask_diag.analysis.findings.finding import (
    ABOUT,
    AT_MOST,
    Finding,
    severity_of_guess,
    severity_of_share,
)
from dask_diag.analysis.findings.function_names import MOST_NAMED, in_words, top_functions
from dask_diag.analysis.findings.where import where_of_tasks
from dask_diag.analysis.simulation.schedulers import BYTES_A_SECOND
from dask_diag.analysis.waits import waits
from dask_diag.formatting import amount, percent, seconds, size
from dask_diag.schema import Activity

__all__ = ["gil_bound"]

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
"""How many CPUs tasks use if they share the GIL."""
OF_ITS_OWN = 0.5
"""Least share of the waits for the GIL that waits for CPUs do not explain, for an estimate and
advice: else it is not certain whether the GIL or the lack of CPUs is the cause."""
WORTH_PROCESSES = 0.25
"""Least share of the seconds of computations that processes are predicted to save, to be advised.

What they cost differs by about as much between machines and libraries.
"""
LEAST_NAMED = 0.1
"""Least size of what is moved, beside all else, that is named."""
_NOT_TASKS = frozenset({"scheduler", "dask_diag"})
"""Kinds of threads that use the GIL and are no part of what tasks do."""
MORE_PROCESSES = "Client(n_workers=..., threads_per_worker=1)"
RELEASE = "use code that releases the GIL in these functions, as NumPy does on whole arrays"


class _GilWaits(NamedTuple):
    """Seconds that tasks waited for the GIL, and why.

    Attributes
    ----------
    waited : float
    scheduler : float
        Those in which the scheduler's thread, or one of the profilers, had it.
    own : float
        Those that neither this nor waits for CPUs explain: other tasks had it.
    """

    waited: float
    scheduler: float
    own: float

    @property
    def share(self) -> float:
        """The share of the waits that tasks themselves explain."""
        return self.own / self.waited if self.waited else 0.0

    @property
    def share_with_cpu(self) -> float:
        """Of the waits for tasks, the share in which the one that had it also had a CPU."""
        for_tasks = self.waited - self.scheduler
        return self.own / for_tasks if for_tasks > 0 else 0.0


def gil_bound(analysis: Analysis) -> Finding | None:
    """Threads that wait for the GIL."""
    if not analysis.schedulers & {"threads", "distributed"} or not analysis.in_tasks:
        return None
    if analysis.share_at_once < AT_ONCE:
        return None
    is_recorded = bool(analysis.seconds_waited)
    waits = _waits_for_gil(analysis) if is_recorded else _non_cpu_of_turns(analysis)
    share = waits.own / analysis.in_tasks
    if share < WORTH_REPORTING:
        return None
    # Without recorded waits it is not known what else tasks waited for.
    remove = {Activity.GIL_WAIT if is_recorded else Activity.NONCPU: waits.share}
    saved = analysis.seconds_saved(remove=remove)
    is_sure = is_recorded and waits.share_with_cpu >= OF_ITS_OWN
    return Finding(
        "gil-bound",
        severity_of_share(share) if is_sure else severity_of_guess(share),
        waits.own / analysis.at_once / analysis.overlap if isnan(saved) else max(saved, 0.0),
        _evidence(analysis, waits),
        _advice(analysis, waits, remove),
        kind=ABOUT if is_sure and not isnan(saved) else AT_MOST,
        where=where_of_tasks(analysis.recording, analysis.waits_of_tasks(Activity.GIL_WAIT)),
    )


def _evidence(analysis: Analysis, waits: _GilWaits) -> str:
    names = f"Mostly: {in_words(_functions_that_wait(analysis))}"
    if not analysis.seconds_waited:
        return (
            f"{amount(analysis.at_once)} concurrent tasks used only "
            f"{amount(analysis.cpu_in_tasks / analysis.busy_wall)} CPUs and were off-CPU "
            f"{percent(waits.own / analysis.in_tasks)} of the time. This suggests GIL contention; "
            f"another lock or short sleeps look the same. {names}"
        )
    part = ""
    if waits.scheduler >= WORTH_REPORTING * waits.waited:
        part = f", {seconds(waits.scheduler)} of it for the scheduler's thread"
    if waits.share_with_cpu < 1 - WORTH_REPORTING:
        without_cpu = waits.waited - waits.scheduler - waits.own
        part += (
            f", {seconds(without_cpu)} of it perhaps because threads that had it waited for a CPU"
        )
    return (
        f"Tasks waited {seconds(waits.waited)} for the GIL "
        f"({percent(waits.waited / analysis.in_tasks)}){part}. {names}"
    )


def _advice(analysis: Analysis, waits: _GilWaits, remove: dict[str, float]) -> str:
    if not analysis.seconds_waited:
        return f"{FIND_OUT}; if it is the GIL, {_remedy(analysis, remove)}"
    if waits.share_with_cpu < OF_ITS_OWN:
        return (
            "record again while CPUs are free, with no more workers than CPUs: tasks also waited "
            "for CPUs, and a thread that has the GIL and no CPU stops all others"
        )
    return _remedy(analysis, remove)


def _waits_for_gil(analysis: Analysis) -> _GilWaits:
    """The recorded waits.

    Who has the GIL needs a CPU, too. If it waits for one as much as tasks do on average, so much of
    the time in which others wait for the GIL is a wait for that CPU.
    """
    waited = analysis.seconds_waited.get(Activity.GIL_WAIT, 0.0)
    scheduler = waited * _share_of_scheduler(analysis)
    needed = analysis.cpu_in_tasks + analysis.seconds_waited.get(Activity.CPU_WAIT, 0.0)
    with_cpu = analysis.cpu_in_tasks / needed if needed else 1.0
    return _GilWaits(waited, scheduler, (waited - scheduler) * with_cpu)


def _share_of_scheduler(analysis: Analysis) -> float:
    """In what share of a task's waits for the GIL the scheduler or a profiler had it, about.

    Divided in proportion to the CPU of the threads that a task competes with: these, and those of
    the tasks that run beside it. Small tasks wait for the thread that hands them out.
    """
    groups = [group for group in analysis.thread_groups if not group.processes]
    apart = sum(group.cpu for group in groups if group.kind in _NOT_TASKS)
    beside = max(1.0 - 1.0 / analysis.at_once, 0.0) if analysis.at_once else 0.0
    of_tasks = beside * analysis.cpu_in_tasks
    # Python threads of libraries hold it for tasks.
    of_tasks += sum(group.cpu for group in groups if group.kind == "python")
    return apart / (apart + of_tasks) if apart else 0.0


def _remedy(analysis: Analysis, remove: dict[str, float]) -> str:
    """Worker processes, if they are predicted to help; else why not, and what else may."""
    if analysis.on_cluster:
        alone = int(analysis.recording.workers.threads.max(initial=0)) == 1
        # It takes turns with what its worker sends and receives. And each process needs memory.
        if alone or analysis.memory_headroom.times <= 1:
            return RELEASE
        return f"{RELEASE}; or run more worker processes with fewer threads each: {MORE_PROCESSES}"
    has_sizes = analysis.simulator.result_sizes is not None
    # All start at once, so more than there are CPUs only start later.
    workers = analysis.cpus if analysis.workers > analysis.cpus else None
    how = "scheduler='processes'" + (f", num_workers={workers}" if workers else "")
    # Where sizes are not known, the best case: there is nothing to move.
    saved = analysis.seconds_saved(
        remove=remove,
        scheduler="processes",
        workers=workers,
        result_bytes=None if has_sizes else 0.0,
    )
    if isnan(saved):
        return RELEASE
    least = WORTH_PROCESSES * analysis.computing
    if saved < least:
        longer = f"{seconds(-saved)} longer" if saved < 0 else f"only {seconds(saved)} less"
        return (
            f"{RELEASE}; worker processes do not help: they {_need(analysis)}, and are predicted "
            f"to take {longer}"
        )
    most = (saved - least) * BYTES_A_SECOND
    is_data_known = not np.isnan(analysis.recording.computations.graph_bytes).any()
    if has_sizes:
        if_little = (
            f", if the program gives its tasks less than {size(most)} of data, which is not known"
        )
        return (
            f"compute with {how}, predicted to save {seconds(saved)} though they {_need(analysis)}"
            f"{'' if is_data_known else if_little}; or {RELEASE}"
        )
    little = "" if is_data_known else " and the program gives them little data"
    # A result is sent to the scheduler's process, and from there to another.
    return (
        f"{RELEASE}; or compute with {how} if tasks pass each other less than {size(most / 2)} of "
        f"results (CacheProfiler(metric=nbytes, unit='bytes') measures it){little}: it could save "
        f"up to {seconds(saved)}"
    )


def _need(analysis: Analysis) -> str:
    """What worker processes need time for."""
    results, data = analysis.simulator.bytes_of_results, analysis.simulator.bytes_of_graphs
    # What is little beside the other need not be read.
    moved = [f"{size(results)} of results"] * (results > LEAST_NAMED * data)
    moved += [f"{size(data)} of data in the graph"] * (data > LEAST_NAMED * results)
    return "need time to start" + (f" and to move {' and '.join(moved)}" if moved else "")


def _non_cpu_of_turns(analysis: Analysis) -> _GilWaits:
    """Non-CPU seconds, if tasks seem to have shared one CPU by taking turns.

    Not those in which other programs had the CPUs.
    """
    tasks = analysis.recording.tasks
    blocked = float(
        np.nansum(analysis.recording.computations.voluntary_switches)
    ) - BLOCKS_A_TASK * len(tasks)
    # Threads that hand the GIL to each other use one CPU together, and block at each handover.
    used = analysis.cpu_in_tasks / analysis.busy_wall
    one_cpu = LEAST_OF_ONE_CPU <= used <= MOST_OF_ONE_CPU
    if analysis.cpus < 2 or not one_cpu or blocked < BLOCKS_A_SECOND * analysis.busy_wall:
        return _GilWaits(0.0, 0.0, 0.0)
    waits = cpu_waits(analysis)
    return _GilWaits(waits.waited, 0.0, waits.waited - waits.others)


def _functions_that_wait(analysis: Analysis) -> list[str]:
    if analysis.seconds_waited:
        table = waits(analysis.recording)
        names: list[str] = table["function"][table["activity"].where(Activity.GIL_WAIT)].tolist()
        return names[:MOST_NAMED]
    return top_functions(analysis.recording, np.nan_to_num(analysis.recording.tasks.thread_noncpu))
