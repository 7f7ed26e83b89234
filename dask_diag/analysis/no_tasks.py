"""Why a recording has no tasks, and which of its computations had not ended."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.grouping import rows_by
from dask_diag.formatting import count
from dask_diag.model.recording import Recording

__all__ = ["computations_of_tasks_alone", "is_known_why_no_tasks", "not_ended", "why_no_tasks"]


def computations_of_tasks_alone(recording: Recording) -> list[str]:
    """Computations that have tasks and no row: a file was cut before they ended."""
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
    """Why there are no tasks in a recording without any, as a clause."""
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
