"""The section of a report on single tasks: those that failed, and the longest."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.task_times import stop_times
from dask_diag.formatting import count, percent, seconds
from dask_diag.schema import Outcome
from dask_diag.views.escaping import short_key
from dask_diag.views.report.components import Grid, Part, Text, not_there, of_first, safe
from dask_diag.views.report.figures import Figures

__all__ = ["LONGEST_TASKS", "single_tasks"]

LONGEST_TASKS = "longest-tasks"
"""The table that follows the time that the plots show: ``longest_tasks.js``."""
_TASKS = 50
_SHOWN = 10
"""Of them, until the reader asks for all."""


def single_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """Tasks that failed and those that took longest; a button of each shows it in the timeline."""
    yield from _failed_tasks(analysis, figures)
    yield from _longest_tasks(analysis, figures)


def _failed_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    recording = analysis.recording
    tasks, stop = recording.tasks, stop_times(recording)
    failed = np.flatnonzero(tasks.outcome.where(Outcome.FAILED))
    if not len(failed):
        return
    rows = failed[:_TASKS]
    start = np.where(np.isnan(tasks.start), tasks.submitted, tasks.start) - recording.start
    length = np.nan_to_num(stop - recording.start - start)
    yield Grid(
        "Tasks that failed" + of_first(len(failed), _TASKS),
        ("key", "function", "exception", "message", "raised at"),
        [
            (
                safe(short_key(row["key"])),
                safe(row["function"], 40),
                safe(row["error"], 60),
                safe(row["error_message"], 300),
                safe(row["error_location"], 400),
            )
            for row in tasks.rows(rows).to_dicts()
        ],
        texts=5,
        few=_SHOWN,
        intervals=[(float(start[row]), float(start[row] + length[row])) for row in rows.tolist()],
        tasks=figures.task_numbers[rows].tolist(),
    )


def _longest_tasks(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    recording = analysis.recording
    tasks, stop = recording.tasks, stop_times(recording)
    took = np.nan_to_num(stop - tasks.start, nan=-1.0)
    rows = np.argsort(-took, kind="stable")[:_TASKS]
    rows = rows[took[rows] >= 0]
    if not len(rows):
        if len(tasks):
            yield Text(["No task is known to have started."])
        else:
            yield not_there("tasks", "Profiler", recording)
        return
    start = tasks.start - recording.start
    table = zip(tasks.rows(rows).to_dicts(), start[rows].tolist(), took[rows].tolist(), strict=True)
    yield Text(
        ["A task's button pins it and shows it in the timeline; a second time all is shown again."]
    )
    yield Grid(
        f"The longest {count(len(rows))} of {count(len(tasks))} tasks of the whole run",
        ("key", "function", "worker", "outcome", "started", "took", "CPU"),
        [
            (
                safe(short_key(row["key"])),
                safe(row["function"], 40),
                safe(row["worker"], 40),
                row["outcome"],
                seconds(began),
                seconds(length),
                percent(row["thread_cpu"] / length) if length else "",
            )
            for row, began, length in table
        ],
        texts=4,
        few=_SHOWN,
        follows=LONGEST_TASKS,
        intervals=[(float(start[row]), float(start[row] + took[row])) for row in rows.tolist()],
        tasks=figures.task_numbers[rows].tolist(),
    )
