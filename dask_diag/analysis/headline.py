"""Sentence on a recording: its wall time, and the part in which most of it passed."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.groups import lookup, rows_by
from dask_diag.analysis.phases import is_known_what_was_imported
from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import Activity
from dask_diag.model.recording import Recording


def computations_of_tasks_alone(recording: Recording) -> list[str]:
    """Computations with tasks and without a row: a file was cut before the end of these."""
    with_row = set(recording.computations.computation.tolist())
    return [name for name in rows_by(recording.tasks.computation) if name not in with_row]


def not_ended(recording: Recording) -> list[str]:
    """The computations that still ran at the end of the recording."""
    # A call of dask that does not compute yet has no name.
    going_on = [name for name in recording.progress.computation.tolist() if name]
    return list(dict.fromkeys([*going_on, *computations_of_tasks_alone(recording)]))


def is_known_why_no_tasks(recording: Recording) -> bool:
    """Whether tasks would be there, had there been any."""
    if len(recording.tasks):
        return False
    if len(recording.computations):
        # The data of a graph are counted where its tasks are measured.
        return bool((~np.isnan(recording.computations.graph_bytes)).any())
    # A profiler alone does not note where it is; and what was lost of a file may be all of it.
    return recording.is_complete and len(recording.environment) > 0


def why_no_tasks(recording: Recording) -> str:
    """Clause on the reason for a recording without tasks."""
    computations = recording.computations
    if len(computations):
        if not is_known_why_no_tasks(recording):
            return "tasks were not recorded"
        several = len(computations) > 1
        which = f"{count(len(computations))} computations" if several else "computation"
        return f"the {which} had no tasks"
    if not recording.is_complete:
        return "no computations are in what could be loaded"
    if len(recording.environment):
        return "the program computed nothing with dask on this process's schedulers"
    if len(recording.memory):
        return "only memory was sampled"
    return "no computations were recorded"


_REASONS = {
    "before": "{time} passed before the first computation",
    "preparing": "for {time} dask prepared the {graph}",
    "tasks": "for {time} workers may have run tasks",
    "between": "{time} passed between computations",
    "after": "{time} passed after the last computation",
    Activity.CPU_WAIT: "for {time} tasks could run and had no CPU",
    Activity.GIL_WAIT: "for {time} tasks waited for the GIL",
    Activity.LOCK_WAIT: "for {time} tasks waited for locks",
    Activity.IO_WAIT: "for {time} tasks waited for files or sockets",
    Activity.CHILD_WAIT: "for {time} tasks waited for programs that they started",
    Activity.SLEEP: "for {time} tasks slept",
    Activity.DEVICE_WAIT: "for {time} tasks waited for a device",
    Activity.PAGE_FAULT: "for {time} tasks waited for memory",
    Activity.UNEXPLAINED: "for {time} tasks were off the CPU, and no sample says why",
    Activity.NONCPU: "for {time} tasks were off the CPU",
    Activity.SERIALIZE: "for {time} tasks and results were pickled",
    Activity.DESERIALIZE: "for {time} tasks and results were unpickled",
    Activity.FAILED: "for {time} workers ran tasks that failed",
    Activity.UNFINISHED: "for {time} workers ran tasks that did not finish",
    Activity.CANCELLED: "for {time} workers ran tasks whose results no one asked for any more",
    Activity.RESCHEDULED: "for {time} workers ran tasks that asked to be run again",
    Activity.GRAPH: "for {time} workers had no task while dask prepared a graph",
    Activity.STARTUP: "for {time} {started}",
    Activity.PROFILERS: "for {time} profilers had work to do as computations started",
    Activity.TRANSFER: "for {time} workers waited for results of other workers",
    Activity.SPILL: "for {time} workers moved results to disk or back",
    Activity.OVERHEAD: "for {time} the scheduler handed out {tasks}",
    Activity.IDLE: "for {time} workers had no task to run",
    Activity.OTHER: "for {time} workers ran tasks of which the times are not known",
}


def headline(analysis: Analysis) -> str:
    """Write how long a recording took, how long tasks computed, and where other time went.

    Parameters
    ----------
    analysis : Analysis

    Returns
    -------
    str
        One sentence without a full stop. Seconds are wall time: while tasks run, it is divided as
        the time of all workers is.
    """
    recording, table = analysis.recording, analysis.wall_time
    parts = lookup(table["part"], table["seconds"])
    wall = recording.stop - recording.start
    if not len(recording.computations):
        return f"{seconds(wall)}{_without_a_computation(recording)}"
    if not len(recording.tasks):
        return f"{seconds(wall)}; {why_no_tasks(recording)}"
    computed = parts.pop(Activity.CPU, 0.0)
    said = f"{seconds(wall)}, of which tasks computed for {seconds(computed)}"
    part, largest = max(parts.items(), key=lambda item: item[1])
    if not wall:
        return said
    if largest <= computed:
        return f"{said}: {percent(computed / wall)} of the time"
    reason = _REASONS[part].format(
        time=f"{seconds(largest)} ({percent(largest / wall)})",
        tasks=_tasks(recording),
        graph=_graph(recording),
        started=_started(analysis),
    )
    return f"{said}: {reason}"


def _without_a_computation(recording: Recording) -> str:
    """Reason for a recording without computations: none started, or none ended."""
    number = len(computations_of_tasks_alone(recording))
    if number:
        times = "their times are" if number > 1 else "its time is"
        return f"; {counted(number, 'computation')} had not ended, and {times} not known"
    only_memory = len(recording.memory) and not len(recording.environment)
    if only_memory or not recording.is_complete:
        return f"; {why_no_tasks(recording)}"
    return " without a computation"


def _tasks(recording: Recording) -> str:
    lasted = stop_times(recording) - start_times(recording)
    mean = float(np.nanmean(lasted)) if (~np.isnan(lasted)).any() else float("nan")
    return f"{counted(len(recording.tasks), 'task')} of {seconds(mean)}"


def _graph(recording: Recording) -> str:
    """Name of the graph that dask prepared, and whether imports are a part of the time."""
    graph = f"graph of {counted(len(recording.tasks), 'task')}"
    return graph if is_known_what_was_imported(recording) else f"{graph}, imports included"


def _started(analysis: Analysis) -> str:
    """Clause on imports and worker processes that started, if these took time before tasks."""
    imported = any(occupied.imports.any() for occupied in analysis.occupancies)
    started = any(occupied.startup.any() for occupied in analysis.occupancies)
    what = ["modules were imported"] * imported
    return " and ".join([*what, *["worker processes started"] * (started or not imported)])
