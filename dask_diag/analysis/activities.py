"""Activities of tasks and of free workers, in worker-seconds and other units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Hashable, Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.groups import distinct_pairs, rows_by, table_of, totals_by
from dask_diag.analysis.intervals import Intervals
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.task_times import transfers_of_tasks, worker_stop_times
from dask_diag.analysis.waits import divided, seconds_of_workers, without_metered
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray, ratio
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import OUTCOMES, Activity, Outcome
from dask_diag.model.recording import Recording, Sources, recording_of
from dask_diag.model.table import Table
from dask_diag.model.tables import Metrics, Transfers

Group = tuple[Hashable, ...]
"""A value for each column that is divided by, and an activity."""
SECONDS = "seconds"
UNITS_OF_TRANSFERS = ("bytes", "count")
"""Units of transfers besides seconds: their size and number."""
NO_TASK = None
"""The function of seconds in which a worker ran no task."""
UNUSED = "unused"
"""The worker of seconds of workers that ran no task at all."""
_ROUNDING = 1e-9


class Amounts(NamedTuple):
    """Amounts of one activity of tasks, and when.

    Attributes
    ----------
    activity : str
    task : array of int
        The row of each in `Recording.tasks`; one task may come several times.
    amounts : array of float
    intervals : Intervals
        The time of the activity; where only its task is known, the time of the task.
    """

    activity: str
    task: IntArray
    amounts: FloatArray
    intervals: Intervals


def amounts_of_tasks(
    recording: Recording,
    unit: str = SECONDS,
    functions: Collection[str] | None = None,
    with_labels: bool = True,
) -> Iterator[Amounts]:
    """Amounts of tasks of these functions that are known to have started.

    Seconds are CPU, waits, metered code, transfers, and failures; other units are metered, or the
    sizes and numbers of transfers. Seconds of metered code go by its label, or `with_labels` is
    false: then they are divided as all other seconds are.
    """
    metrics, counted = recording.metrics, _counted(recording, functions)
    if unit == SECONDS:
        yield from _seconds_of_tasks(recording, counted, with_labels)
        return
    metered = metrics.filter(metrics.unit.eq(unit) & counted[metrics.task])
    yield from _by_activity(metered, metered.value, _times_of_tasks(recording, metered.task))
    if unit in UNITS_OF_TRANSFERS:
        moved = _transfers(recording, counted)
        amounts = np.nan_to_num(moved.bytes) if unit == "bytes" else np.ones(len(moved))
        yield from _by_activity(moved, amounts, Intervals(moved.start, moved.stop))


def _seconds_of_tasks(
    recording: Recording, counted: BoolArray, with_labels: bool
) -> Iterator[Amounts]:
    """The seconds of tasks on workers: CPU, waits, metered code, and failures."""
    tasks = recording.tasks
    ran = _times_of_tasks(recording, slice(None))

    def of_mask(activity: str, mask: BoolArray, seconds: FloatArray) -> Amounts:
        rows = np.flatnonzero(mask)
        return Amounts(activity, rows, seconds[rows], ran.filter(rows))

    ok, unmeasured = counted & tasks.outcome.eq(Outcome.OK), np.isnan(tasks.thread_cpu)
    yield of_mask(Activity.OTHER, ok & unmeasured, ran.stop - ran.start)
    ok &= ~unmeasured
    noncpu = seconds_of_workers(recording)[1]
    cpu, unmetered, metered = without_metered(recording, ok, with_labels)
    yield from _by_activity(metered, metered.value, ran.filter(metered.task))
    yield of_mask(Activity.CPU, ok, cpu)
    of_waits = unmetered if with_labels or len(metered) else None
    for activity, seconds, has_any in divided(recording, noncpu, ok, of_waits, with_labels):
        yield of_mask(activity, has_any, seconds)
    moved = _transfers(recording, counted)
    moved = moved.filter(moved.side.eq("worker"))
    yield from _by_activity(moved, moved.stop - moved.start, Intervals(moved.start, moved.stop))
    # What tasks did before they failed is not divided: it was lost, whatever it was.
    for outcome in OUTCOMES:
        if outcome != Outcome.OK:
            is_outcome = counted & tasks.outcome.eq(outcome)
            yield of_mask(outcome, is_outcome, ran.stop - ran.start)


def _counted(recording: Recording, functions: Collection[str] | None) -> BoolArray:
    """Select the tasks of these functions that are known to have started."""
    started = ~np.isnan(recording.tasks.start)
    return started if functions is None else started & recording.tasks.function.is_in(functions)


def _transfers(recording: Recording, counted: BoolArray) -> Transfers:
    transfers = transfers_of_tasks(recording)
    return transfers.filter(counted[transfers.task])


def _times_of_tasks(recording: Recording, rows: IntArray | slice) -> Intervals:
    return Intervals(recording.tasks.start[rows], worker_stop_times(recording)[rows])


def _by_activity(
    table: Metrics | Transfers, amounts: FloatArray, intervals: Intervals
) -> Iterator[Amounts]:
    for name in dict.fromkeys(table.activity.values):
        rows = table.activity.eq(name)
        yield Amounts(name, table.task[rows], amounts[rows], intervals.filter(rows))


def _sums(
    recording: Recording,
    by: Sequence[str] = (),
    unit: str = SECONDS,
    *,
    functions: Collection[str] | None = None,
    with_labels: bool = True,
    occupied: Sequence[Occupancy] | None = None,
) -> Mapping[Group, float]:
    """The amount of each group and activity; in seconds, with free workers.

    `by` are columns of `Recording.tasks`. If `functions` are given, free workers are left out.
    """
    groups = Categorical(np.zeros(len(recording.tasks), np.int64), [()])
    for name in by:
        labels: Categorical = recording.tasks[name]
        # Only the pairs that occur: most of many functions and workers may not.
        first, second, codes = distinct_pairs(groups.codes, labels.codes)
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        groups = Categorical(codes, [(*groups.values[a], labels.values[b]) for a, b in pairs])
    totals: dict[Group, float] = defaultdict(float)

    def add(task: IntArray, amounts: FloatArray, activity: str) -> None:
        for group, amount in totals_by(groups[task], amounts).items():
            totals[(*group, activity)] += amount

    for part in amounts_of_tasks(recording, unit, functions, with_labels):
        add(part.task, part.amounts, part.activity)
    if unit != SECONDS:
        return totals
    occupied = occupancies(recording) if occupied is None else occupied
    if "worker" not in by:
        for task, activity, seconds in _blocked_by_transfers(recording, functions, occupied):
            add(task, seconds, activity)
    for occupancy in occupied if functions is None else ():
        for worker, activity, share in _free_workers(recording, occupancy, "worker" in by):
            values = {
                "function": NO_TASK,
                "computation": occupancy.computation,
                "span": occupancy.span,
                "worker": worker,
            }
            totals[(*(values[name] for name in by), activity)] += share
    return totals


def _blocked_by_transfers(
    recording: Recording, functions: Collection[str] | None, occupied: Sequence[Occupancy]
) -> Iterator[tuple[IntArray, str, FloatArray]]:
    """Seconds of free workers while the scheduler pickled or rebuilt, by task and activity.

    They belong to the tasks whose inputs or results it moved.
    """
    transfers = _transfers(recording, _counted(recording, functions))
    transfers = transfers.filter(transfers.side.eq("scheduler"))
    rows_of = rows_by(recording.tasks.computation[transfers.task])
    for occupancy in occupied:
        rows = transfers.filter(rows_of.get(occupancy.computation, slice(0)))
        for activity, workers in occupancy.blocked.items():
            moved = rows.filter(rows.activity.eq(activity))
            seconds = occupancy.seconds_during(workers, moved.start, moved.stop)
            yield moved.task, activity, seconds


def _free_workers(
    recording: Recording, occupancy: Occupancy, by_worker: bool
) -> Iterator[tuple[str, str, float]]:
    """Seconds of free workers, by worker, or else all under the worker ``""``, and activity.

    Workers that are free at the same time have equal shares, each in the gaps between its tasks.
    """
    if not by_worker:
        for activity, workers in occupancy.free.items():
            if seconds := occupancy.seconds(workers):
                yield "", activity, seconds
        return
    tasks = occupancy.tasks
    started = ~np.isnan(tasks.worker_start)
    labels = recording.tasks.worker[tasks.rows[started]]
    free = occupancy.capacity - occupancy.busy
    # The tasks for which the scheduler blocked a worker say nothing about which one it was.
    for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
        not_shared = seconds = occupancy.seconds(workers)
        share = ratio(workers, free)
        start, stop, last = (
            occupancy.seconds_until(share, times)
            for times in (
                tasks.worker_start[started],
                tasks.worker_stop[started],
                occupancy.times[-1:],
            )
        )
        for worker, in_tasks in totals_by(labels, stop - start).items():
            of_worker = float(last[0]) - in_tasks
            not_shared -= of_worker
            yield worker, activity, of_worker
        if abs(not_shared) > _ROUNDING * seconds:
            yield UNUSED, activity, not_shared


GROUPS = ("activity", "function", "worker", "span", "computation")


def activities(
    source: Sources,
    by: str = "activity",
    unit: str = "seconds",
    functions: Collection[str] | None = None,
) -> Table:
    """Divide the worker time of all computations among activities.

    For every computation, the seconds sum to its wall time times its workers.

    Parameters
    ----------
    source : Recording, profiler, or list of these
        Measurements. Several are combined.
    by : {"activity", "function", "worker", "span", "computation"}, default "activity"
        Also divide by this column, which the table then has.
    unit : str, default "seconds"
        Unit to sum: ``"seconds"``, ``"bytes"``, ``"count"``, or a unit that tasks metered.
    functions : str or collection of str, optional
        Sum over tasks of these functions, without the time of free workers. Default: everything.

    Returns
    -------
    Table
        Columns *by* (unless ``"activity"``), ``activity``, ``unit`` and ``value``; the largest
        value first.

    Raises
    ------
    DiagnosticError
        If `by` is unknown, no task has one of the functions, or no task metered the unit.

    Notes
    -----
    Activities of tasks are the labels that tasks metered; ``thread-cpu`` and ``thread-noncpu``
    outside of metered code (with recorded waits, the activities of `waits` replace
    ``thread-noncpu``); ``serialize`` and ``deserialize`` in other processes; and ``failed`` and
    ``unfinished``, which cover all seconds of tasks with that outcome.

    Activities of free workers are ``overhead`` (a task waited to be run, or its result to be
    collected), ``serialize`` and ``deserialize`` (the scheduler did so while a task waited),
    ``idle`` (no task to run) and ``other`` (a task was submitted whose running time is unknown).
    Their function is empty. The page *Tables and columns* lists all activities.

    Examples
    --------
    >>> import dask.array as da
    >>> from dask_diag import Profiler, activities
    >>> with Profiler() as prof:
    ...     total = da.ones((500, 500), chunks=(250, 250)).sum().compute()
    >>> activities(prof, by="function").columns
    ('function', 'activity', 'unit', 'value')
    """
    recording = recording_of(source)
    if by not in GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(GROUPS)}, found {by!r}")
    units = list(dict.fromkeys([SECONDS, *UNITS_OF_TRANSFERS, *_units_of(recording)]))
    if unit not in units:
        raise DiagnosticError(
            f"unit: expected one of {', '.join(map(repr, units))}, found {unit!r}; tasks metered "
            "no other units"
        )
    if functions is not None:
        names = [functions] if isinstance(functions, str) else functions
        functions = expect_functions(names, recording.tasks.function, "functions")
    columns = () if by == "activity" else (by,)
    # The seconds of free workers have no function, and some tasks no worker: both show as empty.
    totals: dict[Group, float] = defaultdict(float)
    for group, amount in _sums(recording, columns, unit, functions=functions).items():
        totals[tuple(value or "" for value in group)] += amount
    rows = sorted(totals.items(), key=lambda item: -item[1])
    types = {**dict.fromkeys((*columns, "activity", "unit"), str), "value": float}
    table = table_of(((*group, unit, amount) for group, amount in rows), **types)
    return table.in_units(value="=unit")


def _units_of(recording: Recording) -> list[str]:
    """The units of a recording's amounts."""
    moved = UNITS_OF_TRANSFERS if len(recording.transfers) else ()
    return list(dict.fromkeys([SECONDS, *recording.metrics.unit.values, *moved]))


def seconds_by_activity(
    recording: Recording, occupied: Sequence[Occupancy] | None = None
) -> dict[str, float]:
    """The worker-seconds of each activity, the largest first.

    Metered code is divided by what tasks did in it, not by its labels.

    Parameters
    ----------
    recording : Recording
    occupied : sequence of Occupancy, optional
        The recording's occupancies, if they have been computed.
    """
    totals = _sums(recording, with_labels=False, occupied=occupied)
    seconds = {str(activity): amount for (activity,), amount in totals.items()}
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def cells(recording: Recording, occupied: Sequence[Occupancy] | None = None) -> Table:
    """Activities by function and worker at once, in every unit.

    Parameters
    ----------
    recording : Recording
    occupied : sequence of Occupancy, optional
        The recording's occupancies, if they have been computed.

    Returns
    -------
    Table
        Columns ``function`` (None for the seconds of free workers), ``worker``, ``activity``,
        ``unit`` and ``value``.
    """
    rows = (
        (*group, unit, amount)
        for unit in _units_of(recording)
        for group, amount in _sums(
            recording, ("function", "worker"), unit, occupied=occupied
        ).items()
    )
    return table_of(rows, function=str, worker=str, activity=str, unit=str, value=float)


def execute_metrics(recording: Recording) -> dict[tuple[str, str, str, str], float]:
    """Amounts of tasks, under distributed's keys.

    Returns
    -------
    dict
        ``("execute", prefix, activity, unit)`` to a value.
    """
    return {
        ("execute", str(function), str(activity), unit): amount
        for unit in _units_of(recording)
        for (function, activity), amount in _sums(recording, ("function",), unit).items()
        if function is not NO_TASK
    }
