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
from dask_diag.columns import BoolArray, Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.model.codes import OUTCOMES, Activity, Outcome
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

Group = tuple[Hashable, ...]
"""A value for each column that is divided by."""
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


def seconds_of_tasks(
    recording: Recording, functions: Collection[str] | None = None, with_labels: bool = True
) -> Iterator[Amounts]:
    """The seconds of tasks: CPU, waits, metered code, transfers, and failures.

    Seconds of metered code go by its label, or `with_labels` is false: then they are divided as all
    other seconds are.
    """
    tasks, counted = recording.tasks, _counted(recording, functions)
    ran = Intervals(tasks.start, worker_stop_times(recording))
    wall = ran.stop - ran.start

    def amounts(activity: str, mask: BoolArray, seconds: FloatArray) -> Amounts:
        rows = np.flatnonzero(mask)
        return Amounts(activity, rows, seconds[rows], ran.rows(rows))

    ok = counted & tasks.outcome.where(Outcome.OK)
    unmeasured = ok & np.isnan(tasks.thread_cpu)
    yield amounts(Activity.OTHER, unmeasured, wall)
    ok &= ~unmeasured
    cpu, noncpu = seconds_of_workers(recording)
    unmetered = None
    if with_labels:
        cpu, unmetered, metered = without_metered(recording, ok)
        yield from _divide_by_activity(
            metered.task, metered.activity, metered.value, ran.rows(metered.task)
        )
    yield amounts(Activity.CPU, ok, cpu)
    for activity, seconds, has_any in divided(recording, noncpu, ok, unmetered):
        yield amounts(activity, has_any, seconds)
    yield from _transfers(recording, counted, SECONDS)
    # What tasks did before they failed is not divided: it was lost, whatever it was.
    for outcome in OUTCOMES:
        if outcome != Outcome.OK:
            yield amounts(outcome, counted & tasks.outcome.where(outcome), wall)


def _amounts_of_tasks(
    recording: Recording, functions: Collection[str] | None, unit: str
) -> Iterator[Amounts]:
    """Metered amounts in another unit than seconds, and the sizes and numbers of transfers."""
    counted, metrics = _counted(recording, functions), recording.metrics
    rows = metrics.rows(metrics.unit.where(unit) & counted[metrics.task])
    ran = Intervals(recording.tasks.start, worker_stop_times(recording)).rows(rows.task)
    yield from _divide_by_activity(rows.task, rows.activity, rows.value, ran)
    if unit in UNITS_OF_TRANSFERS:
        yield from _transfers(recording, counted, unit)


def _counted(recording: Recording, functions: Collection[str] | None) -> BoolArray:
    """Select the tasks of these functions that are known to have started."""
    started = ~np.isnan(recording.tasks.start)
    return started if functions is None else started & recording.tasks.function.is_in(functions)


def _transfers(recording: Recording, counted: BoolArray, unit: str) -> Iterator[Amounts]:
    """Transfers of tasks and results: seconds of workers, or bytes or times on both sides."""
    transfers = transfers_of_tasks(recording)
    chosen = counted[transfers.task]
    if unit == SECONDS:
        chosen &= transfers.side.where("worker")
    rows = transfers.rows(chosen)
    amounts = {
        "seconds": rows.stop - rows.start,
        "bytes": np.nan_to_num(rows.bytes),
        "count": np.ones(len(rows)),
    }[unit]
    yield from _divide_by_activity(
        rows.task, rows.activity, amounts, Intervals(rows.start, rows.stop)
    )


def _divide_by_activity(
    task: IntArray, activity: Categorical, amounts: FloatArray, intervals: Intervals
) -> Iterator[Amounts]:
    for name in dict.fromkeys(activity.values):
        rows = activity.where(name)
        yield Amounts(name, task[rows], amounts[rows], intervals.rows(rows))


def _sums(
    recording: Recording,
    by: Sequence[str] = (),
    unit: str = SECONDS,
    *,
    functions: Collection[str] | None = None,
    with_labels: bool = True,
    occupied: Sequence[Occupancy] | None = None,
) -> Mapping[tuple[Group, str], float]:
    """The amount of each group and activity; in seconds, with free workers.

    `by` are columns of `Recording.tasks`. If `functions` are given, free workers are left out.
    """
    groups = _groups(recording, by)
    totals: dict[tuple[Group, str], float] = defaultdict(float)

    def add(task: IntArray, amounts: FloatArray, activity: str) -> None:
        codes = groups.codes[task]
        sums = np.bincount(codes, amounts)
        for code in np.flatnonzero(np.bincount(codes)).tolist():
            totals[groups.values[code], activity] += float(sums[code])

    if unit != SECONDS:
        for part in _amounts_of_tasks(recording, functions, unit):
            add(part.task, part.amounts, part.activity)
        return totals
    for part in seconds_of_tasks(recording, functions, with_labels):
        add(part.task, part.amounts, part.activity)
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
            totals[tuple(values[name] for name in by), activity] += share
    return totals


def _free_workers(
    recording: Recording, occupancy: Occupancy, by_worker: bool
) -> Iterator[tuple[str, str, float]]:
    """Seconds of free workers, by worker, or else all under the worker ``""``, and activity."""
    # The tasks for which the scheduler blocked a worker say nothing about which one it was.
    blocked = occupancy.blocked if by_worker else {}
    for activity, workers in {**occupancy.free, **blocked}.items():
        not_shared = seconds = occupancy.seconds(workers)
        if by_worker:
            for worker, share in _shares_of_workers(recording, occupancy, workers).items():
                not_shared -= share
                yield worker, activity, share
        if abs(not_shared) > (_ROUNDING * seconds if by_worker else 0):
            yield UNUSED if by_worker else "", activity, not_shared


def _groups(recording: Recording, by: Sequence[str]) -> Categorical:
    """The group of each task."""
    groups = Categorical(np.zeros(len(recording.tasks), np.int64), [()])
    for name in by:
        labels: Categorical = recording.tasks[name]
        # Only the pairs that occur: most of many functions and workers may not.
        first, second, codes = distinct_pairs(groups.codes, labels.codes)
        pairs = zip(first.tolist(), second.tolist(), strict=True)
        values = [(*groups.values[group], labels.values[code]) for group, code in pairs]
        groups = Categorical(codes, values)
    return groups


def _blocked_by_transfers(
    recording: Recording, functions: Collection[str] | None, occupied: Sequence[Occupancy]
) -> Iterator[tuple[IntArray, str, FloatArray]]:
    """Seconds of free workers while the scheduler pickled or rebuilt, by task and activity.

    They belong to the tasks whose inputs or results it moved.
    """
    transfers = transfers_of_tasks(recording)
    is_counted = _counted(recording, functions)[transfers.task]
    transfers = transfers.rows(transfers.side.where("scheduler") & is_counted)
    rows_of = rows_by(recording.tasks.computation[transfers.task])
    for occupancy in occupied:
        rows = transfers.rows(rows_of.get(occupancy.computation, slice(0)))
        for activity, workers in occupancy.blocked.items():
            moved = rows.rows(rows.activity.where(activity))
            until_start = occupancy.seconds_until(workers, moved.start)
            yield moved.task, activity, occupancy.seconds_until(workers, moved.stop) - until_start


def _shares_of_workers(
    recording: Recording, occupancy: Occupancy, workers: IntArray
) -> dict[str, float]:
    """Seconds of a state for each worker, in the gaps between the tasks of the worker."""
    tasks = occupancy.tasks
    started = ~np.isnan(tasks.worker_start)
    labels = recording.tasks.worker[tasks.rows[started]]
    bounds = tasks.worker_start[started], tasks.worker_stop[started], occupancy.times[-1:]
    until = occupancy.share_until(workers, np.concatenate(bounds))
    at_start, at_stop, total = np.split(until, [len(labels), 2 * len(labels)])
    in_tasks = totals_by(labels, at_stop - at_start)
    return {worker: float(total[0]) - seconds for worker, seconds in in_tasks.items()}


GROUPS = ("activity", "function", "worker", "span", "computation")


def activities(
    recording: Recording,
    by: str = "activity",
    unit: str = "seconds",
    functions: Collection[str] | None = None,
) -> Table:
    """Divide the worker-seconds of all computations among activities.

    For every computation the seconds sum to its wall time times its workers.

    Parameters
    ----------
    recording : Recording
    by : {"activity", "function", "worker", "span", "computation"}
        A further column to divide by; the table has a column of that name.
    unit : str
        The unit to sum up.
    functions : collection of str, optional
        Sum only over tasks of these functions; what no task had is then left out.

    Returns
    -------
    Table
        Columns *by* (not for ``"activity"``), ``activity``, ``unit`` and ``value``, the largest
        value first.

    Notes
    -----
    Activities of tasks are what they metered, ``thread-cpu`` and ``thread-noncpu`` without that
    (instead of the latter those of `waits`, where waits were recorded), ``serialize`` and
    ``deserialize`` where they ran in other processes, and ``failed`` and ``unfinished`` for all
    seconds of tasks with that outcome.

    Those of free workers are ``overhead`` (a task waited to be run, or its result to be collected),
    ``serialize`` and ``deserialize`` (the same, while the scheduler was busy with that), ``idle``
    (there was nothing to run) and ``other`` (a task had been submitted, and it is not known when it
    ran). Their function is empty.

    Raises
    ------
    DiagnosticError
        If `by` is none of those, if no task is of one of the functions, or if the unit is not
        known: neither ``"seconds"``, ``"bytes"`` or ``"count"``, of which there may be none, nor
        one that a task has metered.
    """
    expect_recording(recording)
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
    totals: dict[tuple[Group, str], float] = defaultdict(float)
    for (group, activity), amount in _sums(recording, columns, unit, functions=functions).items():
        totals[tuple(value or "" for value in group), activity] += amount
    rows = sorted(totals.items(), key=lambda item: -item[1])
    types = {**dict.fromkeys((*columns, "activity", "unit"), str), "value": float}
    return table_of(
        ((*group, activity, unit, amount) for (group, activity), amount in rows), **types
    )


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
    seconds = {activity: amount for (_, activity), amount in totals.items()}
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
    by = ("function", "worker")
    rows = (
        (*group, activity, unit, amount)
        for unit in _units_of(recording)
        for (group, activity), amount in _sums(recording, by, unit, occupied=occupied).items()
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
        ("execute", str(function), activity, unit): amount
        for unit in _units_of(recording)
        for ((function,), activity), amount in _sums(recording, ("function",), unit).items()
        if function is not NO_TASK
    }
