"""One sentence on a recording: how long it took, and where most of that time went."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.task_times import start_times, stop_times
from dask_diag.analysis.wall_time import wall_time
from dask_diag.formatting import count, percent, seconds
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table

__all__ = ["headline"]

_REASONS = {
    "before": "{time} passed before the first computation",
    "preparing": "for {time} dask prepared the {graph}",
    "between": "{time} passed between computations",
    "after": "{time} passed after the last computation",
    "cpu-wait": "for {time} tasks could run and had no CPU",
    "gil-wait": "for {time} tasks waited for the GIL",
    "lock-wait": "for {time} tasks waited for locks",
    "io-wait": "for {time} tasks waited for files, sockets or other processes",
    "sleep": "for {time} tasks slept",
    "device-wait": "for {time} tasks waited for a device",
    "page-fault": "for {time} tasks waited for memory",
    "unexplained": "for {time} tasks were off the CPU, and no sample says why",
    "thread-noncpu": "for {time} tasks were off the CPU",
    "serialize": "for {time} tasks and results were pickled",
    "deserialize": "for {time} tasks and results were unpickled",
    "failed": "for {time} workers ran tasks that failed",
    "unfinished": "for {time} workers ran tasks that did not finish",
    "startup": "for {time} worker processes started",
    "overhead": "for {time} the scheduler handed out {tasks}",
    "idle": "for {time} workers had no task to run",
    "other": "for {time} workers ran tasks of which the times are not known",
}


def headline(recording: Recording, parts: Table | None = None) -> str:
    """How long it took, for how long tasks computed, and where most of the other time went.

    Parameters
    ----------
    recording : Recording
    parts : Table, optional
        What `wall_time` makes of the recording, where that is known already.

    Returns
    -------
    str
        One sentence without a full stop. Seconds are wall time: while tasks run, it is divided as
        the time of all workers is.
    """
    table = wall_time(recording) if parts is None else parts
    seconds_of = dict(zip(table["part"].tolist(), table["seconds"].tolist(), strict=True))
    wall = recording.stop - recording.start
    if not len(recording.computations):
        return f"{seconds(wall)} without a computation"
    if not len(recording.tasks):
        return f"{seconds(wall)}; tasks were not recorded"
    computed = seconds_of.pop("thread-cpu", 0.0)
    said = f"{seconds(wall)}, of which tasks computed for {seconds(computed)}"
    part, largest = max(seconds_of.items(), key=lambda item: item[1])
    if largest <= computed:
        return f"{said}: {percent(computed / wall)} of the time"
    # What tasks metered goes by the name that the user gave it.
    reason = _REASONS.get(part, "for {time} tasks were in {part!r}").format(
        time=f"{seconds(largest)} ({percent(largest / wall)})",
        tasks=_tasks(recording),
        graph=_graph(recording),
        part=part,
    )
    return f"{said}: {reason}"


def _tasks(recording: Recording) -> str:
    lasted = stop_times(recording) - start_times(recording)
    mean = float(np.nanmean(lasted)) if (~np.isnan(lasted)).any() else float("nan")
    number = len(recording.tasks)
    return f"{count(number)} task{'s' * (number != 1)} of {seconds(mean)}"


def _graph(recording: Recording) -> str:
    number = len(recording.tasks)
    return f"graph of {count(number)} task{'s' * (number != 1)}"
