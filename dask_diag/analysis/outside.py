"""CPU time that the tasks' own threads did not have: that of BLAS and other pools of threads."""

from __future__ import annotations

import numpy as np

from dask_diag.recording import Recording

__all__ = ["cpu_outside_tasks"]


def cpu_outside_tasks(recording: Recording) -> float:
    """CPU seconds of the computing process while computes ran, less those of tasks in it.

    The scheduler's own work is in it. As two clocks are read it may be below zero by a little. NaN
    where it cannot be known: computes that overlap have the process's CPU time in common.
    """
    computes, tasks = recording.computes, recording.tasks
    if not len(computes) or not len(tasks):
        return float("nan")
    order = np.argsort(computes["start"])
    if (computes["start"][order][1:] < np.maximum.accumulate(computes["stop"][order])[:-1]).any():
        return float("nan")
    elsewhere = {row["compute"] for row in computes.to_dicts() if row["scheduler"] == "processes"}
    names = tasks["compute"]
    here = ~np.isin(names.codes, [n for n, name in enumerate(names.values) if name in elsewhere])
    of_tasks = np.nansum(tasks["thread_cpu"][here])
    return float(computes["process_cpu"].sum() - of_tasks)
