"""Findings on what passes before tasks run: the program's start, graphs, worker processes."""

from __future__ import annotations

from collections.abc import Iterator
from math import isnan

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.findings.advice import WORTH_GAINING
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.function_names import WORTH_NAMING
from dask_diag.analysis.findings.where import NOWHERE, during
from dask_diag.analysis.phases import phase_intervals
from dask_diag.analysis.program_lines import (
    ProgramLine,
    graphs_made_before,
    program_lines,
    seconds_of_profilers,
)
from dask_diag.analysis.task_times import call_times, prepared_times
from dask_diag.columns import BoolArray
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.schema import Activity, Root

__all__ = ["graph_preparation", "pool_startup", "slow_start"]

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
MOST_LINES = 3
"""Lines that are named at most."""
WORTH_REPORTING = 0.15
"""Least share of the time of computations that the start of processes takes."""
SLOW_PREPARATION = 0.25
"""The same of preparing graphs."""
LONG_PREPARATION = 0.1
"""Least seconds in which graphs were prepared."""
LONGER_THAN_IMPORTS = 0.5
"""The same where stacks were not sampled: dask imports modules when it is first called."""
PREPARED_PER_TASK = 0.001
"""Seconds for each task that the first graph may take where stacks were not sampled."""
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
    own = seconds_of_profilers(recording, is_before)
    took = float((before["stop"] - before["start"]).sum()) - own - _seconds(recording, builds)
    wall = recording.stop - recording.start - own
    if not len(recording.computations) or took < SLOW_START * wall:
        return None
    lines = _lines(recording, is_before & ~builds)
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
        f"computation{joined}{_named(lines)}",
        _at_start(lines, waits_for_cluster),
        kind=AT_MOST,
        where=during(before["start"], before["stop"]),
    )


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


def graph_preparation(analysis: Analysis) -> Finding | None:
    """Graphs that take long to be made, optimized and put in order."""
    recording, computations = analysis.recording, analysis.recording.computations
    called, prepared = call_times(computations), prepared_times(computations)
    in_calls = recording.samples.root.where(Root.GRAPH)
    before = graphs_made_before(recording)
    lines = _lines(recording, in_calls)
    # Imports are done once, whatever the graph, and profilers that start are no part of it. What
    # could not be sampled is one call that keeps the GIL, as where a library is loaded: Python
    # gives it up every few milliseconds.
    took = float((prepared - called).sum()) - sum(line.importing for line in lines)
    took -= seconds_of_profilers(recording, in_calls)
    took -= _seconds(recording, in_calls & (recording.samples.node < 0))
    built = _seconds(recording, before)
    if not lines:
        took -= _may_be_imports(recording)
    # Samples in calls that computed on a cluster have no time of preparing there.
    took = max(took, 0.0)
    if took + built < (LONG_PREPARATION if lines else LONGER_THAN_IMPORTS):
        return None
    lost = built + float(
        np.fmin(took / analysis.overlap, analysis.seconds_saved(remove={Activity.GRAPH}))
    )
    wall = built + analysis.called
    if lost < SLOW_PREPARATION * wall:
        return None
    # In calls that compute on a cluster, most of the time is that of waiting for it.
    lines = _lines(recording, before if analysis.on_cluster else in_calls | before)
    # On a cluster the calls that made the others are not known.
    number = 1 if analysis.schedulers == {"distributed"} else len(computations)
    which = "first " * (number < len(computations))
    several = f" of {count(number)} computations" if number > 1 else ""
    together = (
        "compute results together, dask.compute(a, b), so that what they have in common is "
        "prepared once; "
        if number > 1
        else ""
    )
    return Finding(
        "graph-preparation",
        severity_of_share(lost / wall),
        lost,
        f"Making, optimizing and ordering the {which}graph{'s' * (number > 1)}{several} took "
        f"{seconds(took + built)} of {seconds(wall)} "
        f"({counted(len(recording.tasks), 'task')} ran)"
        f"{_named([line for line in lines if not line.importing])}",
        f"{together}make fewer and larger chunks; select data before other steps; keep what is "
        "used again with persist()",
        kind=AT_MOST,
        where=during(
            np.append(called, recording.samples.start[before]),
            np.append(prepared, np.fmin(recording.samples.stop[before], called.min())),
        ),
    )


def _may_be_imports(recording: Recording) -> float:
    """Seconds of preparing the first graph that its size does not explain.

    dask imports modules when it is first called; only stacks distinguish these from graphs.
    """
    computations = recording.computations
    called = call_times(computations)
    first = int(called.argmin())
    tasks = int(recording.tasks.computation.where(computations.computation[first]).sum())
    took = float(prepared_times(computations)[first] - called[first])
    return max(0.0, took - PREPARED_PER_TASK * tasks)


def pool_startup(analysis: Analysis) -> Finding | None:
    """Worker processes that take long to start, beside what they compute."""
    if "processes" not in analysis.schedulers:
        return None
    saved = analysis.seconds_saved(remove={Activity.STARTUP})
    waited = analysis.activities.get(Activity.STARTUP, 0.0) / analysis.workers / analysis.overlap
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


def _seconds(recording: Recording, chosen: BoolArray) -> float:
    """What some samples represent."""
    return float(recording.samples.seconds[chosen].sum())


def _lines(recording: Recording, chosen: BoolArray) -> list[ProgramLine]:
    """Lines of the program that have most of the time of some samples."""
    return program_lines(recording, recording.samples.seconds * chosen)


def _named(lines: list[ProgramLine]) -> str:
    """The lines with most time, as the end of a sentence."""
    named = ", ".join(_most(lines))
    return f". Mostly: {named}" if named else ""


def _most(lines: list[ProgramLine]) -> Iterator[str]:
    total = sum(line.seconds for line in lines)
    for line in lines[:MOST_LINES]:
        if line.seconds >= WORTH_NAMING * total:
            yield f"{line} {percent(line.seconds / total)}"
