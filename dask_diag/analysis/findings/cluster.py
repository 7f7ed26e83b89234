"""The finding on workers that left a cluster while it needed them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
from toolz import groupby

from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.findings.rule import (
    ABOUT,
    AT_MOST,
    MOST_NAMED,
    WORTH_GAINING,
    Finding,
    Where,
    during,
    in_words,
    merged_intervals,
    severity_of_share,
    top_functions,
)
from dask_diag.analysis.groups import rows_of_workers, sums_by
from dask_diag.analysis.task_times import worker_stop_times
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.formatting import counted, percent, seconds, size
from dask_diag.model.codes import Activity, Outcome

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
    rows_of = rows_of_workers(lanes)
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


NO_LANE: IntArray = np.zeros(0, np.int64)
RETIRED = "retire-workers"
"""The reason of workers that someone, or an adaptive cluster, asked to leave."""


class Lost(NamedTuple):
    """A worker that left, and what that cost.

    `cut_short` are its runs that brought no result, `again` those of tasks whose results it had.
    """

    name: str
    reason: str
    left: float
    cut_short: IntArray
    again: IntArray
    seconds_cut_short: float


def worker_lost(analysis: Analysis) -> Finding | None:
    """Workers that left with tasks that had not stopped, or with results that were needed."""
    lost = [one for one in _lost_workers(analysis) if len(one.cut_short) or len(one.again)]
    if not lost:
        return None
    tasks = analysis.recording.tasks
    affected = np.zeros(len(tasks), bool)
    for one in lost:
        affected[one.cut_short] = affected[one.again] = True
    again = np.unique(np.concatenate([one.again for one in lost]))
    cut_short = sum(len(one.cut_short) for one in lost)
    seconds_cut = sum(one.seconds_cut_short for one in lost)
    seconds_again = float(analysis.task_seconds[again].sum())
    cost = seconds_cut + seconds_again
    share = cost / analysis.available if analysis.available else 0.0
    names = in_words(
        [f"{one.name} ({one.reason})" if one.reason else one.name for one in lost[:MOST_NAMED]]
    )
    retried = int((tasks.attempt[affected] > 1).sum())
    return Finding(
        "worker-lost",
        severity_of_share(share),
        cost / analysis.workers,
        f"{counted(len(lost), 'worker')} left while needed: {names}. "
        f"{counted(cut_short, 'run')} had no result (up to {seconds(seconds_cut)}), "
        f"{counted(len(again), 'task')} ran again as the result was lost "
        f"({seconds(seconds_again)}); {counted(retried, 'further attempt')}; together "
        f"{percent(share)} of the cluster's time",
        "look into the logs of these workers and their nannies for the reason, and into the "
        "system's log for the out-of-memory killer; if it was memory, use smaller chunks or fewer "
        "threads a worker",
        kind=AT_MOST,
        where=Where(
            merged_intervals(tasks.start[affected], tasks.stop[affected]),
            tuple(one.name for one in lost),
            tuple(top_functions(analysis.recording, affected.astype(float))),
        ),
    )


def _lost_workers(analysis: Analysis) -> list[Lost]:
    """Each worker of a cluster that left, with what it cost; not what it left by then."""
    recording = analysis.recording
    tasks, workers = recording.tasks, recording.workers
    gone = np.flatnonzero(~np.isnan(workers.left) & ~workers.reason.where(RETIRED))
    if not len(gone):
        return []
    lanes = rows_of_workers(tasks.worker)
    has_no_result = tasks.outcome.where(Outcome.UNFINISHED) & ~np.isnan(tasks.collected)
    ok = tasks.outcome.where(Outcome.OK)
    later = _runs_after_others(analysis, ok)
    lost = []
    for worker in workers.rows(gone).to_dicts():
        rows = lanes.get(worker["worker"], NO_LANE)
        cut_short = rows[has_no_result[rows]]
        had = {tasks.key[int(row)] for row in rows[ok[rows]]} if later else set()
        again = [row for key in had for row in later.get(key, ()) if _after(analysis, row, worker)]
        lost.append(
            Lost(
                worker["worker"],
                worker["reason"],
                worker["left"],
                cut_short,
                np.array(sorted(again), np.int64),
                _most_seconds(analysis, worker, rows, cut_short),
            )
        )
    return lost


def _runs_after_others(analysis: Analysis, ok: BoolArray) -> dict[str, list[int]]:
    """The rows of further attempts that brought a result, by key."""
    tasks = analysis.recording.tasks
    again = np.flatnonzero(ok & (tasks.attempt > 1)).tolist()
    runs: dict[str, list[int]] = groupby(tasks.key.__getitem__, again)
    return runs


def _after(analysis: Analysis, row: int, worker: dict[str, float]) -> bool:
    # The scheduler sends tasks again as it removes a worker, just before that has left.
    return bool(analysis.recording.tasks.stop[row] > worker["left"])


def _most_seconds(
    analysis: Analysis, worker: dict[str, float], rows: IntArray, cut_short: IntArray
) -> float:
    """How long runs without a result can have had the worker's threads.

    That is the time of its threads since the first of these runs was sent there, without that of
    other runs.
    """
    if not len(cut_short):
        return 0.0
    tasks, left_at = analysis.recording.tasks, worker["left"]
    since = float(tasks.submitted[cut_short].min())
    others = np.setdiff1d(rows, cut_short)
    starts = np.clip(tasks.start[others], since, left_at)
    stops = np.clip(worker_stop_times(analysis.recording)[others], since, left_at)
    threads = min(worker["threads"], len(cut_short))
    all_threads = worker["threads"] * (left_at - since) - float(np.nansum(stops - starts))
    return max(0.0, min(all_threads, threads * (left_at - since)))
