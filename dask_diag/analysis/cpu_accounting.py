"""CPU that the tasks' threads did not have: that of BLAS and of other pools of threads."""

from __future__ import annotations

import numpy as np

from dask_diag.model.recording import Recording

__all__ = ["cpu_of_scheduler", "cpu_outside_tasks"]


def cpu_outside_tasks(recording: Recording) -> float:
    """CPU of the computing process while computations ran, less that of tasks and scheduler.

    The threads of profilers are left out, too, where they are known.

    As several clocks are read it may be below zero by a little. NaN
    where it cannot be known: computations that overlap have the process's CPU time in common.
    """
    computations, tasks = recording.computations, recording.tasks
    if not len(computations) or not len(tasks):
        return float("nan")
    order = np.argsort(computations["start"])
    if (
        computations["start"][order][1:] < np.maximum.accumulate(computations["stop"][order])[:-1]
    ).any():
        return float("nan")
    elsewhere = {
        row["computation"] for row in computations.to_dicts() if row["scheduler"] == "processes"
    }
    names = tasks["computation"]
    here = ~np.isin(names.codes, [n for n, name in enumerate(names.values) if name in elsewhere])
    process = float(computations["process_cpu"].sum())
    own = float(recording.threads.cpu_seconds[recording.threads.kind.where("dask_diag")].sum())
    in_tasks = float(np.nansum(tasks["thread_cpu"][here]))
    return process - in_tasks - cpu_of_scheduler(recording) - own


def cpu_of_scheduler(recording: Recording) -> float:
    """CPU seconds of the threads that called for the computations, less those of tasks they ran."""
    computations, tasks = recording.computations, recording.tasks
    in_tasks = 0.0
    if len(tasks):
        names = tasks["computation"]
        kinds = zip(
            computations["computation"].tolist(), computations["scheduler"].tolist(), strict=True
        )
        called = [name for name, kind in kinds if kind == "synchronous"]
        here = np.isin(names.codes, [n for n, name in enumerate(names.values) if name in called])
        in_tasks = float(np.nansum(tasks["thread_cpu"][here]))
    return max(0.0, float(np.nansum(computations["scheduler_cpu"])) - in_tasks)
