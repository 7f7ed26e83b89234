"""Throughput: events and bytes per second, per core and per second of CPU."""

from __future__ import annotations

from collections.abc import Iterator
from math import isfinite, nan
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.groups import rows_by, table_of, worker_order
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.task_times import call_times, worker_stop_times
from dask_diag.analysis.waits import seconds_of_workers
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table


def last_results(recording: Recording) -> BoolArray:
    """Select the runs of tasks with a result that no later run replaced."""
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
"""Labels of amounts that were read, the preferred first, where a unit has several labels."""
_COLUMNS = (
    *("wall", "workers", "peak_workers", "threads", "peak_threads"),
    *("cpu", "cpu_unknown", "core_efficiency"),
    *(
        f"{unit}{rate}"
        for unit in LABELS
        for rate in ("", "_per_second", "_per_core", "_per_cpu_second")
    ),
)


def throughput(
    recording: Recording,
    events: float | str | None = None,
    bytes: float | str | None = None,  # noqa: A002
    by: str | None = None,
) -> Table:
    """Events and bytes per second, per core, and per second of CPU.

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
    amounts = [_amounts(facts, "events", events), _amounts(facts, "bytes", bytes)]
    if by is None:
        parts = [facts.all_tasks()]
    else:
        parts = list(facts.functions() if by == "function" else facts.workers())
    rows = (
        (
            *(() if by is None else (part.name,)),
            facts.done[part.rows].sum(),
            *facts.numbers(part, wall),
            # A total that was given says nothing of its parts.
            *(rate for amount in amounts for rate in facts.rates(part, wall, amount, by is None)),
        )
        for part in parts
        for wall in [part.threads.union().seconds]
    )
    labels: dict[str, type] = {} if by is None else {by: str}
    return table_of(rows, **labels, tasks=np.int64, **dict.fromkeys(_COLUMNS, float))


class _Part(NamedTuple):
    """Tasks, and the times of threads and workers for the tasks."""

    name: str
    rows: IntArray
    threads: Intervals
    workers: Intervals


class _Amounts(NamedTuple):
    """The amount of all tasks, and of each task; None if tasks did not meter amounts."""

    total: float
    of_tasks: FloatArray | None


class _Facts:
    """Times, CPU and results of all tasks, each read from the recording once."""

    def __init__(self, recording: Recording) -> None:
        self.recording = recording
        tasks, computations = recording.tasks, recording.computations
        self._runs = Intervals(tasks.start, worker_stop_times(recording))
        self._computations = Intervals(call_times(computations), computations.stop)
        self._cpu_on_threads, _ = seconds_of_workers(recording)
        self.done = last_results(recording)
        # A lane of a cluster is named by a worker and its thread.
        names = [str(lane).rpartition("/")[0] or str(lane) for lane in tasks.worker.values]
        self._worker = Categorical.of(names)[tasks.worker.codes]

    def all_tasks(self) -> _Part:
        """The part of all tasks, on all workers while present."""
        computations = self.recording.computations
        # Computations on local schedulers that overlap have threads each.
        is_local = computations.cluster.where("")
        local = self._computations.rows(is_local)
        local = local.repeat(np.maximum(computations.workers[is_local], 1))
        present = [(live, threads) for _, live, threads in self._workers_of_clusters()]
        threads = Intervals.join([*(live.repeat(count) for live, count in present), local])
        workers = Intervals.join([*(live for live, _ in present), local])
        return _Part("", np.arange(len(self.recording.tasks)), threads, workers)

    def functions(self) -> Iterator[_Part]:
        """The tasks of each function, the most seconds first."""
        rows_of = rows_by(self.recording.tasks.function)
        for name in sorted(rows_of, key=lambda name: -self._runs.rows(rows_of[name]).seconds):
            rows = rows_of[name]
            workers = rows_by(self._worker[rows]).values()
            busy = [self._runs.rows(rows[of_worker]).union() for of_worker in workers]
            yield _Part(name, rows, self._runs.rows(rows), Intervals.join(busy))

    def workers(self) -> Iterator[_Part]:
        """The tasks of each worker."""
        rows_of = rows_by(self._worker)
        present: dict[str, list[tuple[Intervals, int]]] = {}
        for name, live, threads in self._workers_of_clusters():
            present.setdefault(name, []).append((live, threads))
        computations, labels = self.recording.computations, self.recording.tasks.computation
        for name, rows in rows_of.items():
            names = {labels.values[code] for code in np.unique(labels.codes[rows]).tolist()}
            ran = self._computations.rows(computations.computation.is_in(names))
            present.setdefault(name, [(ran.union(), 1)])
        no_rows = np.zeros(0, np.int64)
        for name in sorted(present, key=worker_order):
            threads_of_worker = [live.repeat(threads) for live, threads in present[name]]
            yield _Part(
                name,
                rows_of.get(name, no_rows),
                Intervals.join(threads_of_worker),
                Intervals.join(live for live, _ in present[name]),
            )

    def _workers_of_clusters(self) -> Iterator[tuple[str, Intervals, int]]:
        """Workers' names, intervals of presence while the cluster computed, and threads."""
        workers = self.recording.workers
        for cluster, rows in rows_by(self.recording.computations.cluster).items():
            if cluster:
                ran = self._computations.rows(rows)
                of_cluster = workers.rows(workers.computation.where(cluster))
                left = np.where(np.isnan(of_cluster.left), np.inf, of_cluster.left)
                names, threads = of_cluster.worker.tolist(), of_cluster.threads.tolist()
                for n, name in enumerate(names):
                    present = Intervals(of_cluster.joined[[n]], left[[n]])
                    live = present.intersection(ran)
                    if live.seconds:
                        yield name, live, threads[n]

    def _cpu(self, part: _Part) -> float:
        cpu = self.recording.tasks.thread_cpu[part.rows]
        return float(np.nansum(cpu)) if (~np.isnan(cpu)).any() else nan

    def numbers(self, part: _Part, wall: float) -> Iterator[float]:
        """The columns of time, workers and CPU."""
        thread_seconds = part.threads.seconds
        yield wall
        for intervals in (part.workers, part.threads):
            yield _ratio(intervals.seconds, wall)
            yield intervals.peak
        unknown = np.isnan(self.recording.tasks.thread_cpu[part.rows])
        cpu, on_threads = self._cpu(part), self._cpu_on_threads[part.rows][~unknown]
        yield cpu
        # These seconds are shown with the CPU: a rate per CPU second would look too good.
        yield self._runs.rows(part.rows[unknown]).seconds
        yield _ratio(float(on_threads.sum()) if len(on_threads) else nan, thread_seconds)

    def rates(self, part: _Part, wall: float, amounts: _Amounts, is_total: bool) -> Iterator[float]:
        """The columns of events, or of bytes."""
        amount = amounts.total if is_total else nan
        if amounts.of_tasks is not None:
            amount = float(amounts.of_tasks[part.rows].sum())
        yield amount
        for seconds in (wall, part.threads.seconds, self._cpu(part)):
            yield _ratio(amount, seconds)


def _ratio(amount: float, seconds: float) -> float:
    return amount / seconds if seconds > 0 else nan


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
        return _Amounts(nan, None)
    # Amounts that a failed or repeated run had read are read again: each counts once, with the run
    # that gave the result.
    rows = metrics.rows(of_unit & metrics.activity.where(label) & facts.done[metrics.task])
    of_tasks = np.bincount(rows.task, rows.value, minlength=len(facts.done)).astype(np.float64)
    return _Amounts(float(of_tasks.sum()), of_tasks)


def _number(name: str, given: float) -> float:
    try:
        number = float(given)
    except (TypeError, ValueError):
        number = nan
    if not isfinite(number) or number < 0:
        raise DiagnosticError(f"{name}: expected how many, or a label, found {given!r}")
    return number
