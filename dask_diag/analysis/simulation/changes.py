"""What tasks would take if something were different: no waits of a kind, or a quicker function."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace
from math import inf, isfinite
from typing import Any

import numpy as np

from dask_diag.analysis.metering import seconds_of_workers, without_metered
from dask_diag.analysis.simulation.calibration import QUICK
from dask_diag.analysis.simulation.schedulers import COSTS
from dask_diag.analysis.simulation.work import STEPS, Work
from dask_diag.analysis.transfers import LARGE, TRANSFERS
from dask_diag.analysis.waits import divided
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording
from dask_diag.schema import ACTIVITIES, Activity, Outcome

__all__ = [
    "gil_shares",
    "removable",
    "seconds_by_activity",
    "seconds_metered",
    "shares_removed",
    "speedups",
    "with_fewer_turns",
    "with_fewer_workers",
    "without",
]

NOT_REMOVABLE = {
    *(Activity.FAILED, Activity.UNFINISHED, Activity.IDLE, Activity.OTHER),
    Activity.PROFILERS,
}

BETWEEN_TASKS = {
    *(Activity.GRAPH, Activity.STARTUP, Activity.OVERHEAD),
    *(Activity.TRANSFER, *TRANSFERS),
}
"""What lies between tasks is removed as a whole."""


def removable(recording: Recording) -> set[str]:
    """The activities that can be removed, those that tasks metered included."""
    metrics = recording.metrics
    metered = set(metrics.activity[metrics.unit.where("seconds")].tolist())
    return {*ACTIVITIES, *metered} - NOT_REMOVABLE


def shares_removed(recording: Recording, remove: Collection[str]) -> dict[str, float]:
    """The share of each activity that is removed.

    Raises
    ------
    DiagnosticError
        If there is no such activity, or a share is not one.
    """
    names = removable(recording)
    unknown = sorted(set(remove) - names)
    if isinstance(remove, str) or unknown:
        raise DiagnosticError(
            f"remove: expected a set of activities among {', '.join(sorted(names))}; found "
            f"{remove if isinstance(remove, str) else ', '.join(unknown)}"
        )
    if not isinstance(remove, Mapping):
        return dict.fromkeys(remove, 1.0)
    for name, share in remove.items():
        if not 0 <= share <= 1 or (share < 1 and name in BETWEEN_TASKS):
            raise DiagnosticError(
                f"remove: expected a share from 0 to 1 of an activity of tasks, found {share!r} of "
                f"{name}"
            )
    return dict(remove)


def seconds_metered(recording: Recording) -> dict[str, FloatArray]:
    """Of each task the seconds of each label that tasks metered, but those named as activities."""
    metered = without_metered(recording, recording.tasks.outcome.where(Outcome.OK))[2]
    metered = metered.rows(~metered.activity.is_in(ACTIVITIES))
    sums: dict[str, FloatArray] = {}
    _add(sums, metered.activity, metered.task, metered.value, len(recording.tasks))
    return sums


def seconds_by_activity(recording: Recording) -> dict[str, FloatArray]:
    """Of each task the seconds of each activity, those of its worker's transfers included.

    Metered code is divided by what tasks did in it: see `seconds_metered` for its labels.
    """
    rows = len(recording.tasks)
    ok = recording.tasks.outcome.where(Outcome.OK)
    cpu, noncpu = seconds_of_workers(recording)
    sums: dict[str, FloatArray] = {Activity.CPU: np.where(ok, np.nan_to_num(cpu), 0.0)}
    for activity, seconds, chosen in divided(recording, np.nan_to_num(noncpu), ok):
        sums[activity] = sums.get(activity, np.zeros(rows)) + np.where(chosen, seconds, 0.0)
    transfers = recording.transfers
    moved = transfers.rows(transfers.side.where("worker"))
    _add(sums, moved.activity, moved.task, moved.stop - moved.start, rows)
    return sums


def _add(
    sums: dict[str, FloatArray], names: Categorical, tasks: IntArray, seconds: FloatArray, rows: int
) -> None:
    for name in dict.fromkeys(names.values):
        chosen = names.where(name)
        added = np.bincount(tasks[chosen], np.nan_to_num(seconds[chosen]), minlength=rows)
        sums[name] = sums.get(name, np.zeros(rows)) + added


def gil_shares(recording: Recording, waited: FloatArray) -> FloatArray:
    """Of each task the share of its CPU time in which it holds the GIL, by function.

    Of two tasks that need it in a share p of their time each waits about p² / 2 of it; of N tasks
    that always need it, (N - 1) / N. So the waits show the share, where several tasks ran at once.
    """
    tasks = recording.tasks
    took = np.nan_to_num(tasks.stop - tasks.start)
    functions = tasks.function
    count = len(functions.values)
    waits = np.bincount(functions.codes, waited, minlength=count)
    total = np.bincount(functions.codes, took, minlength=count)
    workers = _threads_of_a_process(recording)
    if workers < 2:
        return np.zeros(len(tasks))
    share = np.divide(waits, total, out=np.zeros(count), where=total > 0)
    return np.asarray(np.minimum(1.0, np.sqrt(share * workers / (workers - 1)))[functions.codes])


def _threads_of_a_process(recording: Recording) -> int:
    """How many workers share a GIL: of a local scheduler, or threads of a cluster's worker."""
    computations, workers = recording.computations, recording.workers
    local = computations.workers[~computations.scheduler.where("distributed")]
    threads = workers.threads[~workers.address.where("")]
    return max(int(local.max(initial=1)), int(threads.max(initial=1)))


def speedups(recording: Recording, speedup: Mapping[str, float]) -> FloatArray:
    """By what the seconds of each task are divided.

    Raises
    ------
    DiagnosticError
        If a name is neither a function nor the key of a task, or a factor is not above zero.
    """
    tasks = recording.tasks
    factors = np.ones(len(tasks))
    for name, factor in speedup.items():
        if not (isinstance(factor, (int, float)) and factor > 0 and isfinite(factor)):
            raise DiagnosticError(
                f"speedup: expected a factor above 0 for {name!r}, such as 2.0, found {factor!r}"
            )
        chosen = tasks.function.where(name)
        if not chosen.any():
            chosen = np.array([key == name for key in tasks.key.tolist()], dtype=bool)
        if not chosen.any():
            raise DiagnosticError(
                f"speedup: expected the name of a function or the key of a task, found {name!r}; "
                f"functions are {', '.join(map(str, tasks.function.values[:10]))}"
            )
        factors[chosen] = factor
    return factors


def with_fewer_workers(work: Work, workers: int) -> Work:
    """The work, in which threads that wake up have fewer others to wait for."""
    others = (workers - 1) / max(work.workers - 1, 1)
    steps: dict[str, Any] = {}
    for name in ("wake", "deliver", "notice"):
        seconds = getattr(work, name)
        # What the quickest steps took had nothing to wait for; the rest is due to the other
        # threads.
        alone = np.quantile(seconds, QUICK)
        steps[name] = np.where(seconds > alone, alone + (seconds - alone) * others, seconds)
    return replace(work, **steps)


def with_fewer_turns(work: Work, share: float) -> Work:
    """The work, in which that share of what its steps wait for the GIL is gone.

    The scheduler, and a thread that wakes up, take turns with tasks that hold it. So a step that
    takes longer than those of tasks that do nothing waited.
    """
    usual = COSTS["threads"]

    def shorter(seconds: FloatArray, least: float) -> FloatArray:
        return np.asarray(seconds - share * np.maximum(seconds - least, 0.0))

    return replace(
        work,
        prepare=shorter(work.prepare, usual.prepare),
        wake=shorter(work.wake, usual.wake),
        collect=shorter(work.collect, usual.collect),
        deliver=shorter(work.deliver, usual.deliver),
        notice=shorter(work.notice, usual.notice),
        submit=work.submit - share * max(work.submit - usual.submit, 0.0),
    )


def without(work: Work, recording: Recording, remove: Collection[str]) -> Work:
    """The work without what lies between tasks, and without transfers by the scheduler."""
    if Activity.GRAPH in remove:
        work = replace(work, graph=0.0)
    if Activity.STARTUP in remove:
        work = replace(work, startup=())
    if Activity.OVERHEAD in remove:
        steps: dict[str, Any] = dict.fromkeys(STEPS, np.zeros(len(work)))
        work = replace(work, before=0.0, submit=0.0, switching=0.0, scheduler_cpu=0.0, **steps)
    if work.cluster is not None:
        if Activity.TRANSFER in remove:
            work = replace(work, cluster=replace(work.cluster, latency=0.0, bytes_a_second=inf))
        return work
    if Activity.OVERHEAD in remove:
        return work
    transfers = recording.transfers
    for activity, part in zip(TRANSFERS, ("prepare", "collect"), strict=True):
        if activity in remove and len(transfers):
            rows = transfers.rows(
                transfers.side.where("scheduler") & transfers.activity.where(activity)
            )
            moved = np.bincount(rows.task, rows.stop - rows.start, minlength=len(recording.tasks))
            seconds = np.maximum(getattr(work, part) - moved[work.rows], 0.0)
            columns: dict[str, Any] = {part: seconds}
            work = replace(work, **columns)
    if len(transfers) and set(TRANSFERS) <= set(remove):
        work = _without_data(work, recording)
    return work


def _without_data(work: Work, recording: Recording) -> Work:
    """The work, in which nothing is longer on its way than what is quickest without data.

    Where all tasks have large data that was not recorded: it is what processes take elsewhere.
    """
    transfers, costs = recording.transfers, COSTS["processes"]
    transfers = transfers.rows(~transfers.activity.where(Activity.TRANSFER))
    of_inputs = transfers.side.where("worker") == transfers.activity.where(Activity.DESERIALIZE)

    def quickest(seconds: FloatArray, is_moved: BoolArray, usual: float) -> FloatArray:
        largest = np.zeros(len(recording.tasks))
        np.maximum.at(largest, transfers.task[is_moved], np.nan_to_num(transfers.bytes)[is_moved])
        # Tasks with little data show what a step takes when nothing is moved.
        small = largest[work.rows] < LARGE
        return np.minimum(seconds, np.quantile(seconds[small], QUICK) if small.any() else usual)

    return replace(
        work,
        wake=quickest(work.wake, of_inputs, costs.wake),
        submit=float(quickest(np.full(len(work), work.submit), of_inputs, costs.submit).min()),
        deliver=quickest(work.deliver, ~of_inputs, costs.deliver),
        notice=quickest(work.notice, ~of_inputs, costs.notice),
    )
