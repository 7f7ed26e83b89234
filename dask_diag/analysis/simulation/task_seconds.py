"""Seconds of tasks by activity, and shares of time with the GIL held."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.groups import sums_by, workers_of_clusters
from dask_diag.analysis.waits import divided, seconds_of_workers, without_metered
from dask_diag.columns import Categorical, FloatArray, IntArray, ratio
from dask_diag.model.codes import ACTIVITIES, Activity, Outcome
from dask_diag.model.recording import Recording


def seconds_metered(recording: Recording) -> dict[str, FloatArray]:
    """Seconds of each metered label, task by task, except labels named like activities."""
    metered = without_metered(recording, recording.tasks.outcome.eq(Outcome.OK))[2]
    metered = metered.filter(~metered.activity.is_in(ACTIVITIES))
    sums: dict[str, FloatArray] = {}
    _add(sums, metered.activity, metered.task, metered.value, len(recording.tasks))
    return sums


def seconds_by_activity(recording: Recording) -> dict[str, FloatArray]:
    """Seconds of each activity, task by task, including the worker's transfers.

    Metered code is divided by what tasks did in it: see `seconds_metered` for its labels.
    """
    rows = len(recording.tasks)
    ok = recording.tasks.outcome.eq(Outcome.OK)
    noncpu = seconds_of_workers(recording)[1]
    cpu, unmetered, collections = without_metered(recording, ok, with_labels=False)
    sums: dict[str, FloatArray] = {Activity.CPU: np.where(ok, np.nan_to_num(cpu), 0.0)}
    of_waits = np.nan_to_num(unmetered) if len(collections) else None
    noncpu = np.nan_to_num(noncpu)
    for activity, seconds, chosen in divided(recording, noncpu, ok, of_waits, with_labels=False):
        sums[activity] = sums.get(activity, np.zeros(rows)) + np.where(chosen, seconds, 0.0)
    transfers = recording.transfers
    _add(sums, collections.activity, collections.task, collections.value, rows)
    moved = transfers.filter(transfers.side.eq("worker"))
    _add(sums, moved.activity, moved.task, moved.stop - moved.start, rows)
    return sums


def _add(
    sums: dict[str, FloatArray], names: Categorical, tasks: IntArray, seconds: FloatArray, rows: int
) -> None:
    for name in dict.fromkeys(names.values):
        chosen = names.eq(name)
        added = np.bincount(tasks[chosen], np.nan_to_num(seconds[chosen]), minlength=rows)
        sums[name] = sums.get(name, np.zeros(rows)) + added


def gil_shares(recording: Recording, waited: FloatArray) -> FloatArray:
    """Share of each task's CPU time with the GIL held, estimated by function.

    Of two tasks that need it in a share p of their time each waits about p² / 2 of it; of N tasks
    that always need it, (N - 1) / N. So the waits show the share, where several tasks ran at once.
    """
    tasks = recording.tasks
    took = np.nan_to_num(tasks.stop - tasks.start)
    functions = tasks.function
    waits, total = sums_by(functions, waited), sums_by(functions, took)
    workers = _threads_of_a_process(recording)
    if workers < 2:
        return np.zeros(len(tasks))
    share = ratio(waits, total)
    return np.asarray(np.minimum(1.0, np.sqrt(share * workers / (workers - 1)))[functions.codes])


def _threads_of_a_process(recording: Recording) -> int:
    """Number of workers sharing a GIL: of a local scheduler, or threads of a cluster's worker."""
    computations = recording.computations
    local = computations.workers[~computations.scheduler.eq("distributed")]
    threads = workers_of_clusters(recording).threads
    return max(int(local.max(initial=1)), int(threads.max(initial=1)))
