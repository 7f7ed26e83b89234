"""Events and bytes per second, per core and per second of CPU, and what the cores did."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.intervals import (
    Intervals,
    inside,
    intervals,
    join,
    peak,
    rows_by,
    union,
    worker_order,
)
from dask_diag.analysis.task_times import call_times, worker_stop_times
from dask_diag.analysis.waits import seconds_of_workers
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table


def last_results(recording: Recording) -> BoolArray:
    """The tasks that brought a result; of one that was computed again, the last run."""
    tasks = recording.tasks
    done = tasks.outcome.where(Outcome.OK)
    again = done & (tasks.attempt > 1)
    if not again.any():
        return done
    # A result that is lost may be computed again in a later computation, of another client, too.
    computations = recording.computations
    names = zip(computations.computation.tolist(), computations.cluster.tolist(), strict=True)
    cluster_of = dict(names)
    clusters = [cluster_of.get(name, "") for name in tasks.computation.values]
    rows = np.flatnonzero(np.isin(tasks.function.codes, np.unique(tasks.function.codes[again])))
    rows = rows[np.argsort(tasks.submitted[rows], kind="stable")]
    columns = (
        *(rows.tolist(), tasks.key[rows].tolist(), tasks.computation.codes[rows].tolist()),
        *(tasks.attempt[rows].tolist(), done[rows].tolist()),
    )
    attempts: dict[tuple[str, str], int] = {}
    results: dict[tuple[str, str], int] = {}
    done = done.copy()
    for row, key, code, attempt, has_result in zip(*columns, strict=True):
        task = key, clusters[code]
        if attempt <= attempts.get(task, 0):
            # A new task of that key: the scheduler had forgotten the one before.
            results.pop(task, None)
        attempts[task] = attempt
        if has_result:
            done[results.get(task, row)] = False
            done[row] = True
            results[task] = row
    return done


GROUPS = ("function", "worker")
LABELS = {"events": ("events",), "bytes": ("bytes", "bytesread")}
"""Of several labels of the same unit, those that are what was read; the unit has the first name."""
_NAN = float("nan")


def throughput(
    recording: Recording,
    events: float | str | None = None,
    bytes: float | str | None = None,  # noqa: A002
    by: str | None = None,
) -> Table:
    """How many events and bytes were processed per second, per core, and per second of CPU.

    Parameters
    ----------
    recording : Recording
    events, bytes : float or str, optional
        How many there were in all, as a framework reports them: ``metrics["entries"]`` and
        ``metrics["bytesread"]`` of coffea's ``Runner(savemetrics=True)``. Or the label under which
        tasks metered them. Default: what tasks metered with the unit ``"events"`` or ``"bytes"``:
        under the label ``events``, ``bytes`` or ``bytesread``, or else under their only label.
    by : {"function", "worker"}, optional
        A row for each, instead of one for all.

    Returns
    -------
    Table
        * *by*, and ``tasks``: how many were done.
        * ``wall``: seconds in which at least one computation ran, or its graph was prepared; of a
          function, one of its tasks; of a worker, in which it was there meanwhile.
        * ``workers`` and ``threads``: on average over ``wall``, with ``peak_workers`` and
          ``peak_threads``. On a local scheduler a worker has one thread. Of a function, those that
          ran it.
        * ``cpu``: CPU seconds of the threads of all runs of tasks, failed ones included;
          ``cpu_unknown``: seconds of runs whose CPU is not known and not in ``cpu``.
        * ``core_efficiency``: CPU, up to where tasks seceded, divided by ``threads`` × ``wall``.
        * ``events``, ``bytes``: of tasks that were done, what ran again counted once; NaN where
          that is not known, as for one function of what was given as a total.
        * ``events_per_second`` (of ``wall``), ``events_per_core`` (a second of a thread that was
          there, busy or not), ``events_per_cpu_second``; the same of ``bytes``.

    Raises
    ------
    DiagnosticError
        If `by` is something else, a number is not finite and positive, or no task metered a label.

    Examples
    --------
    >>> from dask_diag import Profiler, throughput
    >>> with Profiler() as prof:                             # doctest: +SKIP
    ...     result, metrics = run(fileset, processor_instance=analysis)
    >>> throughput(prof.recording, metrics["entries"], metrics["bytesread"])  # doctest: +SKIP
    """
    expect_recording(recording)
    if by is not None and by not in GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(GROUPS)}, found {by!r}")
    facts = _Facts(recording)
    amounts = {
        "events": _amounts(facts, "events", events),
        "bytes": _amounts(facts, "bytes", bytes),
    }
    if by is None:
        parts = [facts.all_tasks()]
    else:
        parts = list(facts.functions() if by == "function" else facts.workers())
    rows = [_row(facts, part, amounts, by is None) for part in parts]
    columns = {name: np.array([row[name] for row in rows], float) for name in _COLUMNS}
    labels = {} if by is None else {by: Categorical.of(part.name for part in parts)}
    tasks = np.array([facts.done[part.rows].sum() for part in parts], np.int64)
    return Table({**labels, "tasks": tasks, **columns})


class _Part(NamedTuple):
    """What a row is about: tasks, and the times in which there were threads and workers."""

    name: str
    rows: IntArray
    threads: Intervals
    workers: Intervals


class _Amounts(NamedTuple):
    """How much there was in all, and of each task; None where tasks did not meter it."""

    total: float
    of_tasks: FloatArray | None


_COLUMNS = (
    *("wall", "workers", "peak_workers", "threads", "peak_threads"),
    *("cpu", "cpu_unknown", "core_efficiency"),
    *(
        name
        for unit in LABELS
        for name in (
            unit,
            f"{unit}_per_second",
            f"{unit}_per_core",
            f"{unit}_per_cpu_second",
        )
    ),
)


def _row(
    facts: _Facts, part: _Part, amounts: dict[str, _Amounts], is_total: bool
) -> dict[str, float]:
    wall = union(part.threads).seconds
    thread_seconds = part.threads.seconds
    cpu = facts.cpu[part.rows]
    is_known_of_task = ~np.isnan(cpu)
    is_known = bool(is_known_of_task.any())
    # Their seconds are shown beside the CPU: a rate per CPU second without them would look too
    # good.
    unknown = facts.started[part.rows] & ~is_known_of_task
    used = float(cpu[is_known_of_task].sum()) if is_known else _NAN
    on_threads = (
        float(facts.cpu_on_threads[part.rows][is_known_of_task].sum()) if is_known else _NAN
    )
    row = {
        "wall": wall,
        "workers": _ratio(part.workers.seconds, wall),
        "peak_workers": peak(part.workers),
        "threads": _ratio(thread_seconds, wall),
        "peak_threads": peak(part.threads),
        "cpu": used,
        "cpu_unknown": float(facts.seconds[part.rows][unknown].sum()),
        "core_efficiency": _ratio(on_threads, thread_seconds),
    }
    for unit, (total, of_tasks) in amounts.items():
        # A total that was given says nothing of its parts.
        amount = total if is_total else _NAN
        if of_tasks is not None:
            amount = float(of_tasks[part.rows].sum())
        row[unit] = amount
        row[f"{unit}_per_second"] = _ratio(amount, wall)
        row[f"{unit}_per_core"] = _ratio(amount, thread_seconds)
        row[f"{unit}_per_cpu_second"] = _ratio(amount, used)
    return row


def _ratio(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else _NAN


class _Facts:
    """What rows are made of, each read from the recording once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        tasks = recording.tasks
        self.started = ~np.isnan(tasks.start)
        self.stops = worker_stop_times(recording)
        self.seconds = np.nan_to_num(np.maximum(self.stops - tasks.start, 0.0))
        self.cpu = tasks.thread_cpu
        self.cpu_on_threads, _ = seconds_of_workers(recording)
        self.done = last_results(recording)
        names = [_worker_of(str(lane)) for lane in tasks.worker.values]
        self.worker_names = Categorical.of(names)[tasks.worker.codes]

    def all_tasks(self) -> _Part:
        """All tasks, on all workers that were there."""
        threads, workers = [], []
        for _, live, count in self._workers_of_clusters():
            workers.append(live)
            threads.append(_times(live, count))
        local = self._local()
        rows = np.arange(len(self.recording.tasks))
        return _Part("", rows, join([*threads, local]), join([*workers, local]))

    def functions(self) -> Iterator[_Part]:
        """The tasks of each function, the most seconds first."""
        rows_of = rows_by(self.recording.tasks.function)
        for name in sorted(rows_of, key=lambda name: -float(self.seconds[rows_of[name]].sum())):
            rows = rows_of[name]
            of_workers = rows_by(self.worker_names[rows])
            busy = [union(self._runs(rows[of_worker])) for of_worker in of_workers.values()]
            yield _Part(name, rows, self._runs(rows), join(busy))

    def workers(self) -> Iterator[_Part]:
        """The tasks of each worker."""
        rows_of = rows_by(self.worker_names)
        live: dict[str, list[tuple[Intervals, int]]] = {}
        for name, live_times, count in self._workers_of_clusters():
            live.setdefault(name, []).append((live_times, count))
        for name in rows_of:
            live.setdefault(name, [(self._computations_with(rows_of[name]), 1)])
        no_rows = np.zeros(0, np.int64)
        for name in sorted(live, key=worker_order):
            threads = join([_times(live_times, number) for live_times, number in live[name]])
            workers = join([live_times for live_times, _ in live[name]])
            yield _Part(name, rows_of.get(name, no_rows), threads, workers)

    def _computations_with(self, rows: IntArray) -> Intervals:
        """The time of the computations that these tasks belong to."""
        computations, labels = self.recording.computations, self.recording.tasks.computation
        names = {labels.values[code] for code in np.unique(labels.codes[rows]).tolist()}
        at = computations.computation.is_in(names)
        return union(intervals(call_times(computations)[at], computations.stop[at]))

    def _runs(self, rows: IntArray) -> Intervals:
        return intervals(self.recording.tasks.start[rows], self.stops[rows])

    def _local(self) -> Intervals:
        """The workers of local schedulers: each computation has its own."""
        computations = self.recording.computations
        is_local = computations.cluster.where("")
        # Computations that overlap have threads each, so they count twice at those times.
        called, workers = call_times(computations), np.maximum(computations.workers, 1)
        return Intervals(called[is_local], computations.stop[is_local], workers[is_local] * 1.0)

    def _workers_of_clusters(self) -> Iterator[tuple[str, Intervals, int]]:
        """Each worker, when it was there while computations of its cluster ran, its threads."""
        computations, workers = self.recording.computations, self.recording.workers
        for cluster, rows in rows_by(computations.cluster).items():
            if not cluster:
                continue
            ran = union(intervals(call_times(computations)[rows], computations.stop[rows]))
            of_cluster = workers.rows(workers.computation.where(cluster))
            left_at = np.where(np.isnan(of_cluster.left), np.inf, of_cluster.left)
            names, threads = of_cluster.worker.tolist(), of_cluster.threads.tolist()
            for n, name in enumerate(names):
                live = inside(float(of_cluster.joined[n]), float(left_at[n]), ran)
                if len(live.start):
                    yield name, live, threads[n]


def _times(of: Intervals, threads: int) -> Intervals:
    return of._replace(number=of.number * threads)


def _worker_of(lane: str) -> str:
    """A lane of a cluster is a worker's name and a thread's."""
    return lane.rpartition("/")[0] or lane


def _amounts(facts: _Facts, unit: str, given: float | str | None) -> _Amounts:
    if given is not None and not isinstance(given, str):
        return _Amounts(_number(unit, given), None)
    metrics = facts.recording.metrics
    of_unit = metrics.unit.where(unit) if given is None else metrics.activity.where(given)
    labels = dict.fromkeys(metrics.rows(of_unit).activity.tolist())
    if given is not None and not labels:
        present = ", ".join(map(repr, dict.fromkeys(metrics.activity.tolist()))) or "nothing"
        raise DiagnosticError(
            f"{unit}: expected a label that tasks metered, found {given!r} ({present} was metered)"
        )
    label = next((name for name in LABELS[unit] if name in labels), None)
    if label is None and len(labels) == 1:
        (label,) = labels
    if label is None:
        return _Amounts(_NAN, None)
    # What a failed or repeated run had read is read again: it counts once, with the run that gave
    # the result.
    rows = metrics.rows(of_unit & metrics.activity.where(label) & facts.done[metrics.task])
    of_tasks = np.bincount(rows.task, rows.value, minlength=len(facts.done)).astype(np.float64)
    return _Amounts(float(of_tasks.sum()), of_tasks)


def _number(name: str, given: float) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = _NAN
    if not isfinite(number) or number < 0:
        raise DiagnosticError(f"{name}: expected how many, or a label, found {given!r}")
    return number
