"""Where every worker-second went: what each task did with its time, and what no task had."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.intervals import distinct_pairs, rows_by
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
Sum = tuple[Group, str, float]
"""A group, an activity, and an amount. One group and activity may come several times."""


@dataclass(frozen=True)
class Division:
    """What amounts are divided by, and whose are counted.

    Parameters
    ----------
    recording : Recording
    by : tuple of str
        Columns of `Recording.tasks`.
    functions : collection of str, optional
        Only tasks of these functions are counted; what no task had is then left out.
    with_labels : bool
        Whether seconds of metered code go by its label. If not, they are divided by what tasks did
        in them, as all others are.
    """

    recording: Recording
    by: tuple[str, ...] = ()
    functions: Collection[str] | None = None
    with_labels: bool = True

    @cached_property
    def groups(self) -> Categorical:
        """The group of each task."""
        tasks = self.recording.tasks
        codes: npt.NDArray[np.integer] = np.zeros(len(tasks), dtype=np.int64)
        values: list[Group] = [()]
        for name in self.by:
            labels: Categorical = tasks[name]
            # Only the pairs that occur: most of many functions and workers may not.
            groups, label, codes = distinct_pairs(codes, labels.codes)
            pairs = zip(groups.tolist(), label.tolist(), strict=True)
            values = [(*values[group], labels.values[code]) for group, code in pairs]
        return Categorical(codes, values)

    @cached_property
    def counted(self) -> BoolArray:
        """Which tasks are counted: those known to have started, of the functions."""
        tasks = self.recording.tasks
        started = ~np.isnan(tasks.start)
        if self.functions is None:
            return started
        return started & tasks.function.is_in(self.functions)


def sums_of_groups(
    groups: Categorical, amounts: npt.NDArray[np.floating], activity: str
) -> Iterator[Sum]:
    """The sum of the amounts, for each group that has any."""
    sums = np.bincount(groups.codes, amounts)
    for code in np.unique(groups.codes).tolist():
        yield groups.values[code], activity, float(sums[code])


def added_up(sums: Iterable[Sum]) -> dict[tuple[Group, str], float]:
    """One amount for each group and activity."""
    totals: dict[tuple[Group, str], float] = {}
    for group, activity, amount in sums:
        totals[group, activity] = totals.get((group, activity), 0.0) + amount
    return totals


SECONDS = "seconds"
UNITS_OF_TRANSFERS = ("bytes", "count")
"""What transfers are measured in beside seconds: their size, and how many they were."""


def units_of(recording: Recording) -> list[str]:
    """Every unit of which a recording has amounts."""
    moved = UNITS_OF_TRANSFERS if len(recording.transfers) else ()
    return list(dict.fromkeys([SECONDS, *recording.metrics.unit.values, *moved]))


class Amounts(NamedTuple):
    """What some tasks had of one activity, and when.

    Attributes
    ----------
    activity : str
    task : array of int
        The row of each in `Recording.tasks`; one task may come several times.
    amounts : array of float
    start, stop : array of float
        From when to when it was; where only its task is known, the time of that.
    """

    activity: str
    task: IntArray
    amounts: FloatArray
    start: FloatArray
    stop: FloatArray

    def sums(self, division: Division) -> Iterator[Sum]:
        """The sum of each group that has any."""
        return sums_of_groups(division.groups[self.task], self.amounts, self.activity)


def seconds_of_tasks(division: Division) -> Iterator[Amounts]:
    """The seconds of tasks: CPU, waits, what they metered, transfers, and failures."""
    recording = division.recording
    tasks = recording.tasks
    start, stop = tasks.start, worker_stop_times(recording)
    wall = stop - start

    def of_tasks(activity: str, mask: BoolArray, seconds: FloatArray) -> Amounts:
        rows = np.flatnonzero(mask)
        return Amounts(activity, rows, seconds[rows], start[rows], stop[rows])

    ok = division.counted & tasks.outcome.where(Outcome.OK)
    unmeasured = ok & np.isnan(tasks.thread_cpu)
    yield of_tasks(Activity.OTHER, unmeasured, wall)
    ok &= ~unmeasured
    cpu, noncpu = seconds_of_workers(recording)
    unmetered = None
    if division.with_labels:
        cpu, unmetered, metered = without_metered(recording, ok)
        while_run = start[metered.task], stop[metered.task]
        yield from _by_activity(metered.task, metered.activity, metered.value, *while_run)
    yield of_tasks(Activity.CPU, ok, cpu)
    for activity, seconds, has_any in divided(recording, noncpu, ok, unmetered):
        yield of_tasks(activity, has_any, seconds)
    yield from _transfers(division, SECONDS)
    # What they did before they failed is not divided: it was lost, whatever it was.
    for outcome in OUTCOMES:
        if outcome == Outcome.OK:
            continue
        yield of_tasks(outcome, division.counted & tasks.outcome.where(outcome), wall)


def amounts_of_tasks(division: Division, unit: str) -> Iterator[Amounts]:
    """What tasks metered in another unit than seconds, and what was moved for them."""
    recording = division.recording
    metrics = recording.metrics
    rows = metrics.rows(metrics.unit.where(unit) & division.counted[metrics.task])
    while_run = recording.tasks.start[rows.task], worker_stop_times(recording)[rows.task]
    yield from _by_activity(rows.task, rows.activity, rows.value, *while_run)
    if unit in UNITS_OF_TRANSFERS:
        yield from _transfers(division, unit)


def _transfers(division: Division, unit: str) -> Iterator[Amounts]:
    """What moving tasks and results took: seconds of workers, or bytes or times on both sides."""
    transfers = transfers_of_tasks(division.recording)
    counted = division.counted[transfers.task]
    if unit == SECONDS:
        counted &= transfers.side.where("worker")
    rows = transfers.rows(counted)
    amounts = {
        "seconds": rows.stop - rows.start,
        "bytes": np.nan_to_num(rows.bytes),
        "count": np.ones(len(rows)),
    }[unit]
    yield from _by_activity(rows.task, rows.activity, amounts, rows.start, rows.stop)


def _by_activity(
    task: IntArray, activity: Categorical, amounts: FloatArray, start: FloatArray, stop: FloatArray
) -> Iterator[Amounts]:
    """Amounts that each belong to a task and an activity."""
    for name in dict.fromkeys(activity.values):
        rows = activity.where(name)
        yield Amounts(name, task[rows], amounts[rows], start[rows], stop[rows])


NO_TASK = None
"""The function of seconds in which a worker ran no task."""
UNUSED = "unused"
"""The worker of seconds of workers that ran no task at all."""
_ROUNDING = 1e-9


def seconds_blocked_by_transfers(
    division: Division, occupancies: Iterable[Occupancy]
) -> Iterator[Sum]:
    """Seconds of free workers while the scheduler pickled or rebuilt.

    They belong to the tasks whose inputs or results it moved.
    """
    recording = division.recording
    transfers = transfers_of_tasks(recording)
    is_counted = transfers.side.where("scheduler") & division.counted[transfers.task]
    transfers = transfers.rows(is_counted)
    rows_of = rows_by(recording.tasks.computation[transfers.task])
    for occupancy in occupancies:
        rows = transfers.rows(rows_of.get(occupancy.computation, slice(0)))
        groups = division.groups[rows.task]
        for activity, workers in occupancy.blocked.items():
            until_start = occupancy.seconds_until(workers, rows.start)
            seconds = occupancy.seconds_until(workers, rows.stop) - until_start
            moved = rows.activity.where(activity)
            yield from sums_of_groups(groups[moved], seconds[moved], activity)


def seconds_of_free_workers(division: Division, occupancy: Occupancy) -> Iterator[Sum]:
    """Seconds of a computation's free workers, by why they were free."""
    if "worker" not in division.by:
        for activity, workers in occupancy.free.items():
            if seconds := occupancy.seconds(workers):
                yield _group(division, occupancy, ""), activity, seconds
        return
    # The tasks for which the scheduler blocked a worker say nothing about which one it was.
    for activity, workers in {**occupancy.free, **occupancy.blocked}.items():
        seconds = not_shared = occupancy.seconds(workers)
        for worker, share in _shares_of_workers(division.recording, occupancy, workers):
            not_shared -= share
            yield _group(division, occupancy, worker), activity, share
        if abs(not_shared) > _ROUNDING * seconds:
            yield _group(division, occupancy, UNUSED), activity, not_shared


def _group(division: Division, occupancy: Occupancy, worker: str) -> Group:
    """The group of seconds in which a worker ran no task."""
    values = {
        "function": NO_TASK,
        "worker": worker,
        "computation": occupancy.computation,
        "span": occupancy.span,
    }
    return tuple(values[name] for name in division.by)


def _shares_of_workers(
    recording: Recording, occupancy: Occupancy, workers: IntArray
) -> Iterator[tuple[str, float]]:
    """What each worker that ran tasks has of a step function, in the gaps between its tasks."""
    tasks = occupancy.tasks
    has_start = ~np.isnan(tasks.worker_start)
    labels = recording.tasks.worker[tasks.rows[has_start]]
    at_start = occupancy.share_until(workers, tasks.worker_start[has_start])
    at_stop = occupancy.share_until(workers, tasks.worker_stop[has_start])
    in_tasks = np.bincount(labels.codes, at_stop - at_start, minlength=len(labels.values))
    total = float(occupancy.share_until(workers, occupancy.times[-1:])[0])
    for code in np.unique(labels.codes).tolist():
        yield labels.values[code], total - float(in_tasks[code])


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
        What else to divide by; the table has a column of that name.
    unit : str
        Which unit to sum up.
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
    _expect_unit(unit, recording)
    if functions is not None:
        names = [functions] if isinstance(functions, str) else functions
        functions = expect_functions(names, recording.tasks.function, "functions")
    columns = () if by == "activity" else (by,)
    # The seconds of free workers have no function, and some tasks no worker: both show as empty.
    totals = added_up(
        (tuple(value or "" for value in group), activity, amount)
        for group, activity, amount in _sums(Division(recording, columns, functions), unit)
    )
    rows = sorted(totals.items(), key=lambda item: -item[1])
    return Table(
        {
            **{name: Categorical.of(group[0] for (group, _), _ in rows) for name in columns},
            "activity": Categorical.of(activity for (_, activity), _ in rows),
            "unit": Categorical.of(unit for _ in rows),
            "value": np.array([amount for _, amount in rows], dtype=float),
        }
    )


def _expect_unit(unit: str, recording: Recording) -> None:
    units = list(dict.fromkeys([SECONDS, *UNITS_OF_TRANSFERS, *units_of(recording)]))
    if unit not in units:
        raise DiagnosticError(
            f"unit: expected one of {', '.join(map(repr, units))}, found {unit!r}; tasks metered "
            "no other units"
        )


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
    division = Division(recording, with_labels=False)
    totals = added_up(_sums(division, SECONDS, occupied))
    seconds = {activity: amount for (_, activity), amount in totals.items()}
    return dict(sorted(seconds.items(), key=lambda item: -item[1]))


def cells(recording: Recording, occupied: Sequence[Occupancy] | None = None) -> Table:
    """All activities, divided by function and worker at once, in every unit.

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
    division = Division(recording, ("function", "worker"))
    rows = [
        (*group, activity, unit, amount)
        for unit in units_of(recording)
        for (group, activity), amount in added_up(_sums(division, unit, occupied)).items()
    ]
    *labels, values = zip(*rows, strict=True) if rows else [()] * 5
    names = ("function", "worker", "activity", "unit")
    return Table(
        {
            **{name: Categorical.of(column) for name, column in zip(names, labels, strict=True)},
            "value": np.array(values, dtype=float),
        }
    )


def execute_metrics(recording: Recording) -> dict[tuple[str, str, str, str], float]:
    """What tasks did, under the keys that distributed uses.

    Returns
    -------
    dict
        ``("execute", prefix, activity, unit)`` to a value.
    """
    division = Division(recording, ("function",))
    return {
        ("execute", str(function), activity, unit): amount
        for unit in units_of(recording)
        for ((function,), activity), amount in added_up(_sums(division, unit)).items()
        if function is not NO_TASK
    }


def _sums(
    division: Division, unit: str, occupied: Sequence[Occupancy] | None = None
) -> Iterator[Sum]:
    """The amounts of a unit; of seconds, those of free workers too."""
    of_tasks = seconds_of_tasks(division) if unit == SECONDS else amounts_of_tasks(division, unit)
    for amounts in of_tasks:
        yield from amounts.sums(division)
    if unit != SECONDS:
        return
    # These two need the sweep over all workers' time.
    if occupied is None:
        occupied = occupancies(division.recording)
    if "worker" not in division.by:
        yield from seconds_blocked_by_transfers(division, occupied)
    if division.functions is None:
        for occupancy in occupied:
            yield from seconds_of_free_workers(division, occupancy)
