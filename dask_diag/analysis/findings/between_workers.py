"""Findings on workers of a cluster that wait for each other: for results, or for tasks."""

from __future__ import annotations

import numpy as np

from dask_diag.analysis.analysis import Analysis
from dask_diag.analysis.cluster_occupancy import rows_of_workers
from dask_diag.analysis.findings.advice import WORTH_GAINING
from dask_diag.analysis.findings.finding import ABOUT, AT_MOST, Finding, severity_of_share
from dask_diag.analysis.findings.function_names import MOST_NAMED, in_words, top_functions
from dask_diag.analysis.findings.where import Where, during, merged_intervals
from dask_diag.analysis.grouping import sums_by
from dask_diag.columns import Categorical, FloatArray
from dask_diag.formatting import counted, percent, seconds, size
from dask_diag.schema import Activity

__all__ = ["transfer_bound", "unbalanced_workers"]

WORTH_REPORTING = 0.15
"""Least share of the time of the cluster's threads that is lost."""


def transfer_bound(analysis: Analysis) -> Finding | None:
    """Free threads that waited for results of other workers."""
    waited = analysis.activities.get(Activity.TRANSFER, 0.0)
    share = waited / analysis.available if analysis.available else 0.0
    if share < WORTH_REPORTING:
        return None
    transfers = analysis.recording.transfers
    transfers = transfers.rows(transfers.activity.where(Activity.TRANSFER))
    took = transfers.stop - transfers.start
    of_tasks = np.zeros(len(analysis.recording.tasks))
    made = transfers.task >= 0
    np.add.at(of_tasks, transfers.task[made], took[made])
    names = top_functions(analysis.recording, of_tasks)
    saved = analysis.seconds_saved(remove={Activity.TRANSFER})
    # Data that no task made is in no simulation; nor is a result that moves only as the task that
    # needs it had to run elsewhere.
    is_simulated = bool(made.all()) and saved >= WORTH_GAINING * analysis.computing
    return Finding(
        "transfer-bound",
        severity_of_share(share),
        saved if is_simulated else waited / analysis.workers,
        f"Free threads waited {seconds(waited)} ({percent(share)} of the cluster's time) for "
        f"{counted(len(transfers), 'result')} of other workers, "
        f"{size(float(np.nansum(transfers.bytes)))} in all; one took "
        f"{seconds(float(np.median(took)))} (median). Mostly: {in_words(names)}",
        _with_less_moved(analysis),
        kind=ABOUT if is_simulated else AT_MOST,
        where=Where(
            merged_intervals(transfers.start, transfers.stop),
            _largest(transfers.destination, took),
            tuple(names),
        ),
    )


def _largest(names: Categorical, amounts: FloatArray) -> tuple[str, ...]:
    """The names with most of it, that with most first."""
    sums = sums_by(names, amounts)
    order = np.argsort(-sums, kind="stable")[:MOST_NAMED]
    return tuple(names.values[n] for n in order if sums[n] > 0)


def _with_less_moved(analysis: Analysis) -> str:
    less = "reduce results in the tasks that make them, before other workers need them"
    workers = analysis.recording.workers
    workers = workers.rows(~workers.address.where(""))
    hosts = len(set(workers.host.tolist()))
    if len(workers) > hosts:
        return (
            f"{less}; or, if tasks release the GIL, run one worker a host with more threads, which "
            "share results: Client(n_workers=..., threads_per_worker=...)"
        )
    return less


def unbalanced_workers(analysis: Analysis) -> Finding | None:
    """Threads that were idle while tasks waited at other workers."""
    lost = 0.0
    starts, stops = [], []
    for occupancy in analysis.occupancies:
        unused = np.minimum(occupancy.idle, occupancy.backlog)
        lost += occupancy.seconds(unused)
        starts.append(occupancy.times[:-1][unused > 0])
        stops.append(occupancy.times[1:][unused > 0])
    share = lost / analysis.available if analysis.available else 0.0
    if share < WORTH_REPORTING:
        return None
    least, most = _least_and_most_busy(analysis)
    when = during(np.concatenate(starts), np.concatenate(stops))
    return Finding(
        "unbalanced-workers",
        severity_of_share(share),
        lost / analysis.workers,
        f"Threads were idle for {seconds(lost)} ({percent(share)} of the cluster's time) while "
        f"tasks waited at other workers: {most[0]} was busy for {seconds(most[1])}, {least[0]} for "
        f"{seconds(least[1])}",
        "let tasks run on any worker (no workers= or resources=, work stealing on), and give the "
        "others what they need: scatter common data with client.scatter(data, broadcast=True), "
        "spread data that few workers have with client.rebalance()",
        kind=AT_MOST,
        where=Where(when.intervals, (most[0],)),
    )


def _least_and_most_busy(analysis: Analysis) -> tuple[tuple[str, float], tuple[str, float]]:
    """The workers of clusters that ran tasks for the least and for the longest time."""
    workers, lanes = analysis.recording.workers, analysis.recording.tasks.worker
    rows_of = rows_of_workers(lanes.codes, lanes.values)
    of_cluster = [address != "" for address in workers.address.tolist()]
    names = [
        name
        for name, has_address in zip(workers.worker.tolist(), of_cluster, strict=True)
        if has_address
    ]
    busy = {
        name: float(analysis.task_seconds[rows_of[name]].sum()) if name in rows_of else 0.0
        for name in names or rows_of
    }
    by_time = sorted(busy.items(), key=lambda item: item[1])
    return by_time[0], by_time[-1]
