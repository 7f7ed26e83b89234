"""The first sentence on a recording: its wall time, and the largest loss."""

from __future__ import annotations

from collections.abc import Sequence
from math import nan

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import Finding
from dask_diag.analysis.groups import lookup, rows_by
from dask_diag.analysis.lines import own_lines
from dask_diag.analysis.phases import is_known_what_was_imported
from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.formatting import count, counted, percent, seconds
from dask_diag.model.codes import CAUSES, Activity, Root
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
        local = recording.computations.cluster.eq("")
        return bool((local & ~np.isnan(recording.computations.graph_bytes)).any())
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
        return "the part that could be loaded has no computations"
    if len(recording.environment):
        if any("coffea/processor/" in file for file in recording.frames.file.values):
            return (
                "coffea processed chunks without Dask, and only this process was sampled; "
                "processor.DaskExecutor(client=client) adds tasks, chunks and findings"
            )
        return "the program computed nothing on dask's local schedulers"
    if len(recording.memory):
        return "only memory was sampled"
    return "no computations were recorded"


_PARTS = {
    "before": "time before the first computation",
    "preparing": "preparing the {graph}",
    "tasks": "tasks whose times are unknown",
    "finishing": "putting results together and ending pools",
    "between": "time between computations",
    "after": "time after the last computation",
    Activity.CPU_WAIT: "tasks waiting for a CPU",
    Activity.GIL_WAIT: "tasks waiting for the GIL",
    Activity.LOCK_WAIT: "tasks waiting for locks",
    Activity.THREAD_WAIT: "tasks waiting for other threads",
    Activity.IO_WAIT: "tasks waiting for files or sockets",
    Activity.CHILD_WAIT: "tasks waiting for programs that they started",
    Activity.SLEEP: "tasks sleeping",
    Activity.DEVICE_WAIT: "tasks waiting for a device",
    Activity.PAGE_FAULT: "tasks waiting for memory",
    Activity.UNEXPLAINED: "tasks off the CPU for unknown reasons",
    Activity.NONCPU: "tasks off the CPU",
    Activity.GC: "collecting garbage in tasks",
    Activity.SERIALIZE: "serializing tasks and results",
    Activity.DESERIALIZE: "deserializing tasks and results",
    Activity.FAILED: "tasks that failed",
    Activity.UNFINISHED: "tasks that did not finish",
    Activity.CANCELLED: "tasks whose results nobody needed any more",
    Activity.RESCHEDULED: "tasks that asked to run again",
    Activity.GRAPH: "workers without a task while dask prepared a graph",
    Activity.STARTUP: "{started}",
    Activity.PROFILERS: "profilers at work as computations started",
    Activity.TRANSFER: "workers waiting for results of other workers",
    Activity.SPILL: "workers moving results to disk or back",
    Activity.EVENT_LOOP: "workers whose event loop a coroutine kept",
    Activity.OVERHEAD: "scheduling overhead of {tasks}",
    Activity.IDLE: "workers without a task",
    Activity.OTHER: "tasks whose start and stop are unknown",
}


def headline(analysis: Analysis, findings: Sequence[Finding] = ()) -> str:
    """Write how long a recording took, how long tasks computed, and the largest loss.

    Parameters
    ----------
    analysis : Analysis
    findings : sequence of Finding
        The findings of the recording. Without one that states seconds, the largest part of the
        wall time stands in its place, or where tasks computed longer the program's own line with
        most of their time.

    Returns
    -------
    str
        One or two sentences, the last without a full stop. Seconds are wall time: while tasks run,
        it is divided as the time of all workers is.
    """
    recording, table = analysis.recording, analysis.wall_time
    parts = lookup(table["part"], table["seconds"])
    wall = recording.stop - recording.start
    if not len(recording.computations):
        return f"{seconds(wall)}{_without_a_computation(recording)}"
    if not len(recording.tasks):
        return f"{seconds(wall)}; {why_no_tasks(recording)}"
    if not wall:
        return f"{seconds(wall)} of wall time"
    computed = parts.pop(Activity.CPU, 0.0)
    share = f"{percent(computed / wall)} of it computing in tasks"
    said = f"{seconds(wall)} of wall time, {share}{_average(analysis) if computed else ''}"
    if findings and findings[0].code == "failed-tasks":
        # Without a result no seconds matter.
        return f"{said}. {findings[0].evidence.partition('. ')[0]}"
    worst = max(
        (finding for finding in findings if finding.potential_saving > 0),
        key=lambda finding: finding.potential_saving,
        default=None,
    )
    part, largest = max(parts.items(), key=lambda item: item[1])
    if worst is not None:
        cause = CAUSES.get(worst.code, worst.code)
        said = f"{said}. Largest loss: {cause}, {worst.saving_in_words}"
        is_small = largest >= max(MOST * wall, MANY_TIMES * worst.potential_saving)
        if not (is_small and part in OUTSIDE):
            return said
    elif largest <= computed:
        return f"{said}{_own_line(recording)}"
    other = _PARTS[part].format(
        tasks=_tasks(recording), graph=_graph(recording), started=_started(analysis)
    )
    return f"{said}. Largest other part: {other}, {seconds(largest)} ({percent(largest / wall)})"


OUTSIDE = ("before", "between", "after")
"""Parts of the wall time that are named beside a loss that is small compared with them."""
MANY_TIMES = 3
"""Least factor between such a part and the loss."""
MOST = 0.5
"""Least share of task time of a line that is named, and of the wall time of such a part."""


def _own_line(recording: Recording) -> str:
    """Sentence on the line of the program's own code with most task time, if it has half of it."""
    samples = recording.samples
    weights = samples.seconds * samples.root.eq(Root.TASKS)
    lines = own_lines(recording, weights)
    share = lines[0].seconds / weights.sum() if lines else 0.0
    if share < MOST:
        return ""
    return f". Tasks spent {percent(share)} of their time at {lines[0].by_name_of_file()}"


def _average(analysis: Analysis) -> str:
    """Number of workers that a share of the wall time is an average of, unless there was one."""
    numbers = {occupied.workers for occupied in analysis.occupancies if occupied.workers}
    if numbers == {1}:
        return ""
    worker = "worker thread" if analysis.on_cluster else "worker"
    which = counted(max(numbers), worker) if len(numbers) == 1 else f"the {worker}s"
    return f" (average over {which})"


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
    mean = float(np.nanmean(lasted)) if (~np.isnan(lasted)).any() else nan
    return f"{counted(len(recording.tasks), 'task')} that took {seconds(mean)} on average"


def _graph(recording: Recording) -> str:
    """Name of the graph that dask prepared, and whether imports are a part of the time."""
    graph = f"graph of {counted(len(recording.tasks), 'task')}"
    return graph if is_known_what_was_imported(recording) else f"{graph}, imports included"


def _started(analysis: Analysis) -> str:
    """Name of imports and of the start of worker processes, if these took time before tasks."""
    imported = any(occupied.imports.any() for occupied in analysis.occupancies)
    started = any(occupied.startup.any() for occupied in analysis.occupancies)
    what = ["importing modules"] * imported
    return " and ".join([*what, *["starting worker processes"] * (started or not imported)])
