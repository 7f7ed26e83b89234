"""Section of a report: what the simulator predicts."""

from __future__ import annotations

from collections.abc import Iterator

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.what_if import predictions as table_of
from dask_diag.formatting import counted
from dask_diag.views.report.components import Grid, Part, Text, not_there, safe
from dask_diag.views.report.figures import Figures
from dask_diag.views.what_if import HEADINGS, notes, prediction_rows

__all__ = ["predictions"]

_TASKS_SIMULATED = 100_000
"""Up to so many tasks the simulator's dozen replays take a few seconds."""


def predictions(analysis: Analysis, figures: Figures) -> Iterator[Part]:
    """The wall time with more workers, quicker functions, and without waits."""
    tasks = len(analysis.recording.tasks)
    if not tasks:
        yield not_there("tasks", "Profiler", analysis.recording)
        return
    if tasks > _TASKS_SIMULATED:
        yield Text([f"Not simulated for {counted(tasks, 'task')}; dask-diag what-if does."])
        return
    table = table_of(analysis.simulator)
    rows = [tuple(map(safe, row)) for row in prediction_rows(table)]
    yield Grid("Predicted wall time", HEADINGS, rows)
    for note in notes(analysis.recording, table):
        yield Text([note])
