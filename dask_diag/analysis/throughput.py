"""Throughput: events and bytes per second, per core and per second of CPU."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from math import inf, isfinite, isnan, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import (
    environment_rows,
    lookup,
    rows_by,
    rows_by_code,
    table_of,
    worker_order,
    workers_of,
)
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.task_times import call_times, worker_stop_times
from dask_diag.analysis.waits import seconds_of_workers
from dask_diag.columns import BoolArray, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Computations


def last_results(recording: Recording) -> BoolArray:
    """Select the runs of tasks with a result that no later run replaced."""
    tasks = recording.tasks
    done = tasks.outcome.eq(Outcome.OK)
    again = done & (tasks.attempt > 1)
    if not again.any():
        return done
    # A result that is lost may be computed again in a later computation, of another client, too.
    computations = recording.computations
    cluster_of = lookup(computations.computation, computations.cluster)
    rows = np.flatnonzero(np.isin(tasks.function.codes, np.unique(tasks.function.codes[again])))
    rows = rows[np.argsort(tasks.submitted[rows], kind="stable")]
    runs = tasks.filter(rows)
    columns = runs.key.tolist(), runs.computation.tolist(), runs.attempt.tolist()
    attempts: dict[tuple[str, str], int] = {}
    results: dict[tuple[str, str], int] = {}
    for row, key, computation, attempt in zip(rows.tolist(), *columns, strict=True):
        task = key, cluster_of.get(computation, "")
        if attempt <= attempts.get(task, 0):
            # A new task of that key: the scheduler had forgotten the one before.
            results.pop(task, None)
        attempts[task] = attempt
        if done[row]:
            done[results.get(task, row)] = False
            done[row] = True
            results[task] = row
    return done


COFFEA = "coffea"
"""Section of the environment with the totals that coffea reported."""
GROUPS = ("function", "worker", "dataset")
LABELS = {"events": ("events",), "bytes": ("bytes", "bytesread")}
"""Labels of amounts that were read, the preferred first, where a unit has several labels."""
_TOTALS = {"events": "entries", "bytes": "bytesread"}
"""Names of these amounts in coffea's metrics."""
_COLUMNS = (
    *("elapsed", "wall", "workers", "peak_workers", "threads", "peak_threads"),
    *("cpu", "cpu_unknown", "core_efficiency"),
    *(
        f"{unit}{rate}"
        for unit in LABELS
        for rate in ("", "_per_second", "_per_elapsed_second", "_per_core", "_per_cpu_second")
    ),
)


def throughput(
    source: Sources,
    events: float | str | None = None,
    bytes: float | str | None = None,  # noqa: A002
    by: str | None = None,
) -> Table:
    """Events and bytes processed per second, per core, and per CPU second.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements with tasks. Several are combined.
    events, bytes : float or str, optional
        The total, as a framework reports it, such as ``metrics["entries"]`` and
        ``metrics["bytesread"]`` of coffea's ``Runner(savemetrics=True)``; or the label under which
        tasks metered it. Default: amounts metered with the unit ``"events"`` or ``"bytes"``, under
        the label ``events``, ``bytes`` or ``bytesread``, or under their only label; otherwise those
        of coffea's chunks, or that `dask_diag.coffea.attach` added.
    by : {"function", "worker", "dataset"}, optional
        One row per function, worker, or dataset of coffea's chunks. Default: one row in all.

    Returns
    -------
    Table
        * *by*, and ``tasks``: number of finished tasks.
        * ``elapsed``: seconds of the recorded block; of all of a Runner, if the block is its call.
        * ``wall``: seconds in which at least one call of dask went on, or a computation without
          one; for a function or dataset, in which one of its tasks ran; for a worker, those in
          which it had joined.
        * ``workers`` and ``threads``: average over ``wall``; ``peak_workers`` and ``peak_threads``:
          maximum. On a local scheduler a worker has one thread. For a function, the workers that
          ran it.
        * ``cpu``: CPU seconds of all runs of tasks, failed runs included; ``cpu_unknown``: seconds
          of runs with unknown CPU time, which ``cpu`` excludes.
        * ``core_efficiency``: CPU time, until tasks seceded, divided by ``threads`` × ``wall``.
        * ``events``, ``bytes``: of finished tasks, each counted once even if it ran again; NaN if
          unknown, as for one function of a given total.
        * ``events_per_second`` (of ``wall``), ``events_per_elapsed_second``, ``events_per_core``
          (per thread-second, idle threads included), ``events_per_cpu_second``; the same for
          ``bytes``.

    Raises
    ------
    DiagnosticError
        If `by` is unknown, a total is not finite and positive, or no task metered the label.

    Examples
    --------
    >>> import dask
    >>> from dask_diag import Profiler, context_meter, throughput
    >>> def read(events):
    ...     context_meter.digest_metric("read", events, "events")
    >>> with Profiler() as prof:
    ...     done = dask.compute([dask.delayed(read)(100) for _ in range(4)])
    >>> throughput(prof)["events"].tolist()
    [400.0]
    """
    recording = recording_of(source)
    if by is not None and by not in GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(GROUPS)}, found {by!r}")
    tasks = recording.tasks
    runs = Intervals(tasks.start, worker_stop_times(recording))
    cpu_on_threads, _ = seconds_of_workers(recording)
    is_known, done = ~np.isnan(tasks.thread_cpu), last_results(recording)
    amounts = [
        _amounts(recording, done, unit, given, has_parts=by is not None)
        for unit, given in (("events", events), ("bytes", bytes))
    ]
    elapsed = recording.stop - recording.start
    rows = []
    for part in _parts(recording, runs, by):
        wall, thread_seconds = part.threads.union().seconds, part.threads.seconds
        known, unknown = part.rows[is_known[part.rows]], part.rows[~is_known[part.rows]]
        cpu, on_threads = (
            float(seconds[known].sum()) if len(known) else nan
            for seconds in (tasks.thread_cpu, cpu_on_threads)
        )
        numbers = [
            *(elapsed, wall, _ratio(part.workers.seconds, wall), part.workers.peak),
            *(_ratio(thread_seconds, wall), part.threads.peak, cpu),
            # These seconds are shown with the CPU: a rate per CPU second would look too good.
            *(runs.filter(unknown).seconds, _ratio(on_threads, thread_seconds)),
        ]
        for of_tasks in amounts:
            if isinstance(of_tasks, float):
                # A total that was given says nothing of its parts.
                amount = of_tasks if by is None else nan
            else:
                amount = float(of_tasks[part.rows].sum())
            rates = (_ratio(amount, seconds) for seconds in (wall, elapsed, thread_seconds, cpu))
            numbers += [amount, *rates]
        rows.append((*part.name, done[part.rows].sum(), *numbers))
    labels: dict[str, type] = {} if by is None else {by: str}
    return table_of(rows, **labels, tasks=np.int64, **dict.fromkeys(_COLUMNS, float))


class _Part(NamedTuple):
    """Tasks, and the times of threads and workers for the tasks; all tasks have no name."""

    name: tuple[str, ...]
    rows: IntArray
    threads: Intervals
    workers: Intervals


def _parts(recording: Recording, runs: Intervals, by: str | None) -> Iterator[_Part]:
    """All tasks, or the tasks of each function, the most seconds first, or of each worker."""
    tasks, computations = recording.tasks, recording.computations
    workers = workers_of(tasks.worker)
    if by in ("function", "dataset"):
        rows_of = rows_by(tasks.function)
        if by == "dataset":
            chunks = recording.chunks
            rows_of = {name: chunks.task[rows] for name, rows in rows_by(chunks.dataset).items()}
        for name in sorted(rows_of, key=lambda name: -runs.filter(rows_of[name]).seconds):
            rows = rows_of[name]
            busy = [runs.filter(rows[some]).union() for some in rows_by(workers[rows]).values()]
            yield _Part((name,), rows, runs.filter(rows), Intervals.join(busy))
        return
    computing, is_alone = _of_calls(recording)
    present: dict[str, list[tuple[Intervals, int]]] = defaultdict(list)
    for name, live, threads in _workers_of_clusters(recording, computing):
        present[name if by else ""].append((live, threads))
    if by is None:
        rows_of = {"": np.arange(len(tasks))}
        # Computations on local schedulers that overlap have threads each.
        is_local = computations.cluster.eq("") & is_alone
        workers_of_calls = np.maximum(_workers_of_calls(computations), 1)
        local = computing.filter(is_local).repeat(workers_of_calls[is_local])
        present[""].append((local, 1))
    else:
        rows_of = rows_by(workers)
        for name in rows_of.keys() - present.keys():
            ran = computations.computation.is_in(set(tasks.computation[rows_of[name]].tolist()))
            present[name].append((computing.filter(ran).union(), 1))
    for name in sorted(present, key=worker_order):
        yield _Part(
            (name,) if by else (),
            rows_of.get(name, np.zeros(0, np.int64)),
            Intervals.join(live.repeat(threads) for live, threads in present[name]),
            Intervals.join(live for live, _ in present[name]),
        )


def _of_calls(recording: Recording) -> tuple[Intervals, BoolArray]:
    """Times of computations with those of their calls, and which have workers of their own.

    A call has its workers from when dask is called until it returns. If it computes on a cluster,
    what the client has computed for it before has no others.
    """
    computations, calls = recording.computations, recording.calls
    started, stopped = call_times(computations), computations.stop.copy()
    is_alone, is_local = np.ones(len(computations), bool), computations.cluster.eq("")
    calls = calls.filter(np.argsort(calls.called, kind="stable"))
    # A local computation knows its call; of those that go on when a graph arrives at a cluster it
    # is the first.
    call = np.searchsorted(np.maximum.accumulate(calls.returned), computations.start)
    call = np.where(is_local, np.searchsorted(calls.called, computations.called), call)
    has_call = call < len(calls)
    called = np.append(calls.called, np.nan)[call]
    has_call &= np.where(is_local, called == computations.called, called <= computations.start)
    for number, rows in rows_by_code(np.where(has_call, call, -1)).items():
        if number < 0:
            continue
        local, on_cluster = rows[is_local[rows]], rows[~is_local[rows]]
        ended = computations.stop[local].max(initial=-inf)
        on_cluster = on_cluster[computations.start[on_cluster] >= ended]
        last = local[computations.stop[local] == ended]
        if len(on_cluster):
            is_alone[local] = False
            started[on_cluster], last = calls.called[number], on_cluster
        stopped[last] = np.fmax(stopped[last].max(initial=-inf), calls.returned[number])
    return Intervals(started, stopped), is_alone


def _workers_of_calls(computations: Computations) -> IntArray:
    """Most workers of the computations of the same call of Dask, for each computation.

    dask-awkward finds the needed columns on one thread; the threads of the call wait meanwhile.
    """
    _, call = np.unique(np.fmin(computations.called, computations.start), return_inverse=True)
    most = np.zeros(len(call), np.int64)
    np.maximum.at(most, call, computations.workers)
    return most[call]


def _workers_of_clusters(
    recording: Recording, computing: Intervals
) -> Iterator[tuple[str, Intervals, int]]:
    """Workers' names, intervals of presence while the cluster computed, and threads."""
    for cluster, rows in rows_by(recording.computations.cluster).items():
        workers = recording.workers
        for worker in workers.filter(workers.computation.eq(cluster)).to_dicts() if cluster else ():
            left = inf if isnan(worker["left"]) else worker["left"]
            present = Intervals(np.array([worker["joined"]]), np.array([left]))
            live = present.intersection(computing.filter(rows))
            if live.seconds:
                yield worker["worker"], live, worker["threads"]


def _ratio(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else nan


def _amounts(
    recording: Recording, done: BoolArray, unit: str, given: float | str | None, has_parts: bool
) -> float | FloatArray:
    """The amount of each task; of all tasks if it was given, NaN if it is not known."""
    if given is not None and not isinstance(given, str):
        return _number(unit, given)
    facts = dict(environment_rows(recording, COFFEA))
    attached = float(facts.get(_TOTALS[unit], nan))
    if given is None and not (has_parts or isnan(attached)):
        return attached
    metrics = recording.metrics
    of_unit = metrics.unit.eq(unit) if given is None else metrics.activity.eq(given)
    labels = dict.fromkeys(metrics.filter(of_unit).activity.tolist())
    if given is not None and not labels:
        present = ", ".join(map(repr, dict.fromkeys(metrics.activity.tolist()))) or "nothing"
        raise DiagnosticError(
            f"{unit}: expected a label that tasks metered, found {given!r}; tasks metered {present}"
        )
    chosen = [name for name in LABELS[unit] if name in labels]
    if len(labels) == 1:
        chosen = list(labels)
    if not chosen:
        chunks = recording.chunks.filter(done[recording.chunks.task])
        read = chunks.bytes if unit == "bytes" else chunks.last - chunks.first
        if not len(chunks) or np.isnan(read).any():
            return attached
        return np.bincount(chunks.task, read, minlength=len(done)).astype(np.float64)
    # Amounts that a failed or repeated run had read are read again: each counts once, with the run
    # that gave the result.
    rows = metrics.filter(of_unit & metrics.activity.eq(chosen[0]) & done[metrics.task])
    return np.bincount(rows.task, rows.value, minlength=len(done)).astype(np.float64)


def _number(name: str, given: float) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = nan
    if not isfinite(number) or number < 0:
        raise DiagnosticError(f"{name}: expected a total of 0 or more, or a label, found {given!r}")
    return number
