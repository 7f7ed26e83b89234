"""Rules on workers of a cluster: waiting for results of other workers, idle, or gone."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    FOLDBY,
    MOST_NAMED,
    WORTH_GAINING,
    Diagnosis,
    FindingLocation,
    Gain,
    compute_together,
    evidence,
    largest,
    merged_intervals,
    mostly_in,
    rule,
    severity_of,
    simulated,
    sums_of_tasks,
    top_functions,
    where_of_tasks,
)
from dask_diag.analysis.groups import rows_of_workers, workers_of_clusters
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.occupancy import allowed_times
from dask_diag.analysis.task_times import transfers_between_workers, worker_stop_times
from dask_diag.columns import IntArray
from dask_diag.model.codes import Activity, Outcome

WORTH_REPORTING = 0.15
"""Least share of the time of the cluster's threads that is lost."""


SHUFFLING_BAGS = frozenset({"shuffle-group", "shuffle-join", "shuffle-split"})
"""Functions of tasks that shuffle a bag between workers."""


@rule("transfer-bound", needs=("transfers",), unless=("serialization-bound",))
def transfer_bound(analysis: Analysis) -> Diagnosis | None:
    """Free threads waited for results of other workers."""
    waited = analysis.spent(Activity.TRANSFER)
    share = analysis.share_of_workers(waited)
    if share < WORTH_REPORTING:
        return None
    transfers = transfers_between_workers(analysis.recording)
    took = transfers.stop - transfers.start
    seconds_of_tasks = sums_of_tasks(analysis.recording, transfers.task, took)
    functions = top_functions(analysis, seconds_of_tasks)
    gain = simulated(analysis, 0.0, remove={Activity.TRANSFER})
    # Data that no task made is in no simulation; nor is a result that moves only as the task that
    # needs it had to run elsewhere.
    if (transfers.task < 0).any() or gain.seconds < WORTH_GAINING * analysis.computing:
        gain = Gain(waited / analysis.workers)
    advice = "reduce results in the tasks that create them, before other workers need them"
    if not SHUFFLING_BAGS.isdisjoint(functions):
        advice = f"{FOLDBY}; or {advice}"
    hosts = workers_of_clusters(analysis.recording).host.tolist()
    if len(hosts) > len(set(hosts)):
        advice += (
            "; or, if tasks release the GIL, run one worker per host with more threads, which "
            "share results: Client(n_workers=..., threads_per_worker=...)"
        )
    return Diagnosis(
        severity_of(share),
        gain,
        evidence(
            "Worker threads waited {waited:seconds} for results of other workers ({share:share} of "
            "worker time). {results:result} moved, {moved:bytes} in all; the median took "
            "{median:seconds}{functions}",
            waited=waited,
            share=share,
            results=len(transfers),
            moved=np.nansum(transfers.bytes),
            median=np.median(took),
            functions=mostly_in(functions),
        ),
        advice,
        FindingLocation(
            merged_intervals(transfers.start, transfers.stop),
            largest(transfers.destination, took),
            functions,
        ),
    )


@rule("unbalanced-workers")
def unbalanced_workers(analysis: Analysis) -> Diagnosis | None:
    """Threads were idle while tasks waited at other workers, or for a resource."""
    lost, times = _idle_beside_backlog(analysis)
    share = analysis.share_of_workers(lost)
    if share < WORTH_REPORTING:
        return _limited_by_resources(analysis)
    busy = _busy_seconds(analysis)
    least, most = min(busy, key=busy.__getitem__), max(reversed(busy), key=busy.__getitem__)
    return Diagnosis(
        severity_of(share),
        Gain(lost / analysis.workers),
        evidence(
            "Worker threads were idle for {idle:seconds} ({share:share} of worker time) while "
            "tasks waited at other workers. {most} ran tasks for {longest:seconds}, {least} for "
            "{shortest:seconds}",
            idle=lost,
            share=share,
            most=most,
            longest=busy[most],
            least=least,
            shortest=busy[least],
        ),
        compute_together(len(analysis.computations), on_cluster=True)
        + "let tasks run on any worker (without workers= and resources=, with work stealing), "
        "and give all workers the data: client.scatter(data, broadcast=True), or "
        "client.rebalance() for data that few workers hold",
        FindingLocation(merged_intervals(*Intervals.join(times)), (most,)),
    )


def _idle_beside_backlog(analysis: Analysis) -> tuple[float, list[Intervals]]:
    """Seconds of threads without a task while tasks waited, and the times."""
    lost, times = 0.0, []
    for occupancy in analysis.occupancies:
        unused = np.minimum(occupancy.idle, occupancy.backlog)
        lost += occupancy.seconds(unused)
        times.append(occupancy.when(unused))
    return lost, times


def share_limited_by_resources(analysis: Analysis) -> float:
    """Share of the workers' time in which tasks waited for a resource and not for a thread."""
    lost = sum(occupancy.seconds(occupancy.limited) for occupancy in analysis.occupancies)
    return analysis.share_of_workers(lost)


def _limited_by_resources(analysis: Analysis) -> Diagnosis | None:
    """Threads were idle while tasks waited for a resource that other tasks had."""
    share = share_limited_by_resources(analysis)
    if share < WORTH_REPORTING:
        return None
    lost = sum(occupancy.seconds(occupancy.limited) for occupancy in analysis.occupancies)
    waited = _waits_for_resources(analysis)
    resource = max(waited, key=waited.__getitem__)
    limits = analysis.recording.resource_limits
    limits = limits.filter(limits.resource.eq(resource) & (limits.at_once > 0))
    names = {*limits.function.tolist()}
    needs_it = analysis.tasks.function.is_in(names)
    if len(names) == 1 and not needs_it.all():
        # Somebody has chosen the one function that needs it, as that of a device.
        return None
    functions = top_functions(analysis, analysis.task_seconds * needs_it)
    times = [occupancy.when(occupancy.limited) for occupancy in analysis.occupancies]
    return Diagnosis(
        severity_of(share),
        Gain(lost / analysis.workers),
        evidence(
            "Worker threads were idle for {idle:seconds} ({share:share} of worker time) while "
            "tasks waited for the resource {resource}: a worker has enough of it for "
            "{at_once:task} at once. It is needed by {functions}",
            idle=lost,
            share=share,
            resource=resource,
            at_once=limits.at_once.max(),
            functions=functions,
        ),
        "annotate only the tasks that need it: dask.annotate(resources=...) around the calls that "
        "make these, or resources= of submit; or, if more of them may run at once, start workers "
        "with more of it",
        FindingLocation(merged_intervals(*Intervals.join(times)), (), functions),
    )


def _waits_for_resources(analysis: Analysis) -> dict[str, float]:
    """Seconds that tasks waited for each resource."""
    waited: dict[str, float] = {}
    for occupancy in analysis.occupancies:
        submitted = analysis.tasks.submitted[occupancy.tasks.rows]
        for resource, allowed in allowed_times(analysis.recording, occupancy.tasks).items():
            seconds = float(np.nansum(allowed - submitted))
            waited[resource] = waited.get(resource, 0.0) + seconds
    return waited


def _busy_seconds(analysis: Analysis) -> dict[str, float]:
    """Seconds of the tasks of each worker of a cluster, or of any worker without a cluster."""
    rows = rows_of_workers(analysis.tasks.worker)
    names = workers_of_clusters(analysis.recording).worker.tolist()
    return {
        name: float(analysis.task_seconds[rows.get(name, _NONE)].sum()) for name in names or rows
    }


_NONE: IntArray = np.zeros(0, np.int64)
KILLED_WORKER = "KilledWorker"
"""The error of a task with which several workers died."""
RETIRED = "retire-workers"
"""The reason of workers that someone, or an adaptive cluster, asked to leave."""


@rule("worker-lost", needs=("workers",))
def worker_lost(analysis: Analysis) -> Diagnosis | None:
    """Workers left with unfinished tasks, or with results that were needed."""
    tasks, workers = analysis.tasks, analysis.recording.workers
    left = workers.filter(~np.isnan(workers.left) & ~workers.reason.eq(RETIRED))
    # If a task fails for it, that is the finding.
    if not len(left) or tasks.error.eq(KILLED_WORKER).any():
        return None
    lanes = rows_of_workers(tasks.worker)
    has_no_result = tasks.outcome.eq(Outcome.UNFINISHED) & ~np.isnan(tasks.collected)
    is_ok = tasks.outcome.eq(Outcome.OK)
    further_attempts = np.flatnonzero(is_ok & (tasks.attempt > 1)).tolist()
    names, labels = [], []
    is_cut_short, is_again = np.zeros((2, len(tasks)), bool)
    seconds_cut = 0.0
    for worker in left.to_dicts():
        name, reason = worker["worker"], worker["reason"]
        rows = lanes.get(name, _NONE)
        cut_short = rows[has_no_result[rows]]
        had = set(tasks.key[rows[is_ok[rows]]].tolist()) if further_attempts else set()
        # The scheduler sends tasks again as it removes a worker, just before that has left.
        again = [
            row
            for row in further_attempts
            if tasks.stop[row] > worker["left"] and tasks.key[row] in had
        ]
        if len(cut_short) or again:
            names.append(name)
            labels.append(f"{name} ({reason})" if reason else name)
            is_cut_short[cut_short] = is_again[again] = True
            seconds_cut += _most_seconds(analysis, worker, rows, cut_short)
    if not names:
        return None
    seconds_again = float(analysis.task_seconds[is_again].sum())
    share = analysis.share_of_workers(seconds_cut + seconds_again)
    is_affected = is_cut_short | is_again
    where = where_of_tasks(analysis, is_affected)
    return Diagnosis(
        severity_of(share),
        Gain((seconds_cut + seconds_again) / analysis.workers),
        evidence(
            "{workers:worker} left the cluster with unfinished tasks or needed results: {names}. "
            "{cut_short:attempt} ended without a result (up to {seconds_cut:seconds}), and "
            "{again:task} ran again because results were lost ({seconds_again:seconds}): together "
            "{share:share} of worker time",
            workers=len(names),
            names=labels[:MOST_NAMED],
            cut_short=is_cut_short.sum(),
            seconds_cut=seconds_cut,
            again=is_again.sum(),
            seconds_again=seconds_again,
            share=share,
        ),
        "check the logs of these workers and their nannies, and the system log for the "
        "out-of-memory killer; if memory ran out, use smaller chunks or fewer threads per worker",
        replace(where, workers=tuple(names)),
    )


def _most_seconds(
    analysis: Analysis, worker: dict[str, float], rows: IntArray, cut_short: IntArray
) -> float:
    """Seconds that runs without a result had of the worker's threads, at most.

    Seconds of the threads since the worker was sent the first run without a result, minus the
    seconds of runs with a result.
    """
    if not len(cut_short):
        return 0.0
    tasks, left = analysis.tasks, worker["left"]
    since = float(tasks.submitted[cut_short].min())
    others = np.setdiff1d(rows, cut_short)
    starts = np.clip(tasks.start[others], since, left)
    stops = np.clip(worker_stop_times(analysis.recording)[others], since, left)
    all_threads = worker["threads"] * (left - since) - float(np.nansum(stops - starts))
    threads = min(worker["threads"], len(cut_short))
    return max(0.0, min(all_threads, threads * (left - since)))
