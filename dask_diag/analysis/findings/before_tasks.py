"""Findings on what passes before tasks run: the start of the program and of worker processes."""

from __future__ import annotations

from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import WORTH_GAINING
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.lines import lines_sampled, named, seconds_sampled
from dask_diag.analysis.findings.where import NOWHERE, during
from dask_diag.analysis.intervals import join, union
from dask_diag.analysis.phases import phase_intervals
from dask_diag.analysis.program_lines import (
    ProgramLine,
    graphs_made_before,
    seconds_of_profilers,
)
from dask_diag.analysis.task_times import call_times
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.schema import Activity, Root

__all__ = ["pool_startup", "slow_start"]

SLOW_START = 0.3
"""Least share of the recorded time that passes before the first computation."""
LONG_START = 0.5
"""Least seconds that pass before the first computation."""
LONG_READING = 0.3
"""The same of lines that do not import: they take longer with more data, imports do not."""
MOSTLY_IMPORTS = 0.5
"""Share of the sampled seconds from which on a slow start is said to be one of imports."""
MOSTLY_CLUSTER = 0.5
"""Share of the time from which on a slow start is said to be that of a cluster that starts."""
WORTH_REPORTING = 0.15
"""Least share of the time of computations that the start of processes takes."""
_DISTRIBUTED = "/distributed/"
"""In the paths of the files of distributed."""


def slow_start(analysis: Analysis) -> Finding | None:
    """Time before the first computation: imports, reading."""
    recording = analysis.recording
    table = phase_intervals(recording)
    before = table.rows(table["phase"].where("before"))
    is_before = recording.samples.root.where(Root.BEFORE)
    builds = graphs_made_before(recording)
    # Profilers that start are no part of the program, and graphs are another finding's.
    own = seconds_of_profilers(recording, is_before) + _until_sampled(recording, before)
    took = (
        float((before["stop"] - before["start"]).sum()) - own - seconds_sampled(recording, builds)
    )
    wall = recording.stop - recording.start - own
    if not len(recording.computations) or took < SLOW_START * wall:
        return None
    lines = lines_sampled(recording, is_before & ~builds)
    if took < LONG_START and sum(line.seconds - line.importing for line in lines) < LONG_READING:
        return None
    workers, joined_after = _workers_that_joined(recording, float(before["stop"].max()))
    joined = (
        f"; {counted(workers, 'worker')} of a cluster joined, the last one after "
        f"{seconds(joined_after)}"
    ) * (workers > 0)
    waits_for_cluster = workers > 0 and joined_after >= MOSTLY_CLUSTER * took
    return Finding(
        "slow-start",
        severity_of_share(took / wall),
        took if waits_for_cluster else took * _share_lost_at_start(analysis, lines),
        f"{seconds(took)} of {seconds(wall)} ({percent(took / wall)}) passed before the first "
        f"computation{joined}{named(lines)}",
        _at_start(lines, waits_for_cluster),
        kind=AT_MOST,
        where=during(before["start"], before["stop"]),
    )


def _until_sampled(recording: Recording, before: Table) -> float:
    """Seconds in which profilers started, on a busy machine up to a second: no stack was sampled.

    A call that keeps the GIL right after that delays the first sample, which represents its time.
    """
    samples = recording.samples.rows(recording.samples.root.where(Root.BEFORE))
    if not len(samples):
        return 0.0
    until = float(samples.start.min() - recording.start)
    not_sampled = float((before["stop"] - before["start"]).sum() - samples.seconds.sum())
    return max(0.0, min(until, not_sampled))


def _share_lost_at_start(analysis: Analysis, lines: list[ProgramLine]) -> float:
    """What share of a slow start can be gained: imports, and all but one worker's part of the rest.

    In tasks, the rest is divided among the workers. Where no lines were sampled it may be imports.
    """
    sampled = sum(line.seconds for line in lines)
    if not sampled:
        return 1.0
    computing = 1 - sum(line.importing for line in lines) / sampled
    most = int(analysis.recording.computations.workers.max(initial=1))
    return 1 - computing / max(most if most > 1 else analysis.cpus, 1)


def _at_start(lines: list[ProgramLine], waits_for_cluster: bool) -> str:
    """What to do about a slow start; a cluster may have taken the time until it was there."""
    sampled = sum(line.seconds for line in lines)
    importing = sum(line.importing for line in lines)
    starting = sum(line.seconds - line.importing for line in lines if _DISTRIBUTED in line.file)
    advice = (
        "read and prepare data in tasks (dask.dataframe.read_parquet, dask.array.from_array, "
        "dask.delayed), so that all workers take part in it"
    )
    if sampled and importing >= MOSTLY_IMPORTS * sampled:
        return "import less, or where it is needed; python -X importtime shows what takes long"
    if waits_for_cluster and (not sampled or starting >= MOSTLY_CLUSTER * sampled):
        advice = (
            "keep one cluster for several programs (dask scheduler, dask worker), to which each "
            "connects with Client(address)"
        )
    if not sampled:
        return f"record with SamplingProfiler to see the lines that take the time; {advice}"
    return advice


def _workers_that_joined(recording: Recording, until: float) -> tuple[int, float]:
    """How many workers of clusters joined in the recording, before a time, and the last's after."""
    workers = recording.workers
    joined = workers.joined[~workers.address.where("")]
    joined = joined[(joined > recording.start) & (joined <= until)]
    return len(joined), float(joined.max(initial=recording.start)) - recording.start


def pool_startup(analysis: Analysis) -> Finding | None:
    """Worker processes that take long to start, beside what they compute."""
    if "processes" not in analysis.schedulers:
        return None
    saved = analysis.seconds_saved(remove={Activity.STARTUP})
    waiting = sum(occupied.seconds(occupied.startup) for occupied in analysis.occupancies)
    # What is lost in computations at the same time is lost once.
    waited = min(waiting / analysis.workers / analysis.overlap, _seconds_starting(analysis))
    lost = waited if isnan(saved) else saved
    if lost < WORTH_REPORTING * analysis.computing:
        return None
    computations, workers = analysis.recording.computations, analysis.recording.workers
    called = dict(
        zip(computations.computation.tolist(), call_times(computations).tolist(), strict=True)
    )
    starts = [
        (called[name], joined)
        for name, joined in zip(workers.computation.tolist(), workers.joined.tolist(), strict=True)
        if joined > called[name]
    ]
    return Finding(
        "pool-startup",
        severity_of_share(lost / analysis.computing),
        lost,
        f"{count(len(starts))} worker processes took {seconds(lost)} of "
        f"{seconds(analysis.computing)} to start; all tasks together ran for "
        f"{seconds(analysis.in_tasks)}",
        _instead_of_starting(analysis),
        kind=AT_MOST if isnan(saved) else ABOUT,
        where=during(*np.array(starts).T) if starts else NOWHERE,
    )


def _seconds_starting(analysis: Analysis) -> float:
    """Seconds in which any worker was free because its process started."""
    times = [occupied.when(occupied.startup) for occupied in analysis.occupancies]
    return union(join(times)).seconds


def _instead_of_starting(analysis: Analysis) -> str:
    # In threads, tasks that hold the GIL compute one after the other: that must be quicker, too.
    cpu = analysis.recording.tasks.thread_cpu
    in_turns = float(np.where(np.isnan(cpu), analysis.task_seconds, cpu).sum())
    saved = np.fmin(analysis.seconds_saved(scheduler="threads"), analysis.computing - in_turns)
    if saved >= WORTH_GAINING * analysis.computing:
        return "compute with scheduler='threads': tasks are too short to make up for the start"
    if len(analysis.recording.computations) > 1:
        return (
            "use one pool for all computations: "
            "dask.config.set(pool=concurrent.futures.ProcessPoolExecutor())"
        )
    return (
        "no remedy is known for one computation: its tasks would take longer in threads if they "
        "hold the GIL. More work in one computation makes up for the start"
    )
