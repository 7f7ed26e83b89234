"""Where every worker-second went: what each task did with its time, and what no task had."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import Any

import numpy as np

from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.grouping import rows_by
from dask_diag.analysis.metering import without_metered
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.waits import divided
from dask_diag.columns import Array, Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["activities", "cells", "execute_metrics"]

Group = tuple[Any, ...]
"""A value for each column that is divided by."""
Sum = tuple[Group, str, float]
"""A group, an activity, and the sum of a metric."""

GROUPS = ("activity", "function", "worker", "span", "computation")
NO_TASK = None
"""The function of seconds in which a worker ran no task."""
UNITS_OF_TRANSFERS = ("bytes", "count")
UNUSED = "unused"
"""The worker of seconds of workers that ran no task at all."""


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
        Which unit to tell of.
    functions : collection of str, optional
        Tell only of the tasks of these functions; what no task had is then left out.

    Returns
    -------
    Table
        Columns *by* (not for ``"activity"``), ``activity``, ``unit`` and ``value``, the largest
        value first.

    Notes
    -----
    Activities of tasks are what they metered, ``thread-cpu`` and ``thread-noncpu`` without that (in
    place of the latter what `waits` tells of tasks that were asked to be explained),
    ``serialize`` and ``deserialize`` where they ran in other processes, and ``failed`` and
    ``unfinished`` for all seconds of tasks that ended so.

    Those of free workers are ``overhead`` (a task waited to be run, or its result to be collected),
    ``serialize`` and ``deserialize`` (the same, while the scheduler was at that), ``idle`` (there
    was nothing to run) and ``other`` (a task was out of which it is not known when it ran). Their
    function is empty.

    Raises
    ------
    DiagnosticError
        If `by` is none of those, if no task is of one of the functions, or if the unit is not
        known: neither ``"seconds"``, ``"bytes"`` or
        ``"count"``, of which there may be none, nor one that a task has metered.
    """
    expect_recording(recording)
    if by not in GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(GROUPS)}, found {by!r}")
    units = list(dict.fromkeys(["seconds", *UNITS_OF_TRANSFERS, *_units(recording)]))
    if unit not in units:
        raise DiagnosticError(
            f"unit: expected one of {', '.join(map(repr, units))}, found {unit!r}; tasks metered "
            "no other units"
        )
    if isinstance(functions, str):
        functions = [functions]
    if functions is not None:
        labels = recording.tasks.function if len(recording.tasks) else Categorical.of([])
        functions = expect_functions(functions, labels, "functions")
    columns = () if by == "activity" else (by,)
    sums = _summed(
        (tuple(value or "" for value in group), activity, value)
        for group, activity, value in _sums_of(recording, columns, unit, functions)
    )
    rows = sorted(sums.items(), key=lambda item: -item[1])
    return Table(
        {
            **{by: Categorical.of(group[0] for (group, _), _ in rows) for by in columns},
            "activity": Categorical.of(activity for (_, activity), _ in rows),
            "unit": Categorical.of(unit for _ in rows),
            "value": np.array([value for _, value in rows], dtype=float),
        }
    )


def cells(recording: Recording) -> Table:
    """All that `activities` tells, divided by function and worker at once, of every unit.

    Returns
    -------
    Table
        Columns ``function`` (None for the seconds of free workers), ``worker``, ``activity``,
        ``unit`` and ``value``.
    """
    rows = [
        (*group, activity, unit, value)
        for unit in _units(recording)
        for (group, activity), value in _summed(
            _sums_of(recording, ("function", "worker"), unit)
        ).items()
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
    return {
        ("execute", function, activity, unit): value
        for unit in _units(recording)
        for ((function,), activity), value in _summed(
            _sums_of(recording, ("function",), unit)
        ).items()
        if function is not NO_TASK
    }


def _units(recording: Recording) -> list[str]:
    metered = recording.metrics.unit.values if len(recording.metrics) else ()
    moved = UNITS_OF_TRANSFERS if len(recording.transfers) else ()
    return list(dict.fromkeys(["seconds", *metered, *moved]))


def _summed(found: Iterable[Sum]) -> dict[tuple[Group, str], float]:
    sums: dict[tuple[Group, str], float] = {}
    for group, activity, value in found:
        sums[group, activity] = sums.get((group, activity), 0.0) + value
    return sums


def _sums_of(
    recording: Recording,
    by: tuple[str, ...],
    unit: str,
    functions: Collection[str] | None = None,
) -> Iterator[Sum]:
    """The sums of a unit; one group and activity may come several times."""
    if unit == "seconds":
        return _seconds(recording, by, functions)
    return _of_other_units(recording, by, unit, functions)


def _seconds(
    recording: Recording, by: tuple[str, ...], functions: Collection[str] | None
) -> Iterator[Sum]:
    found = occupancies(recording)
    if len(recording.tasks):
        chosen = _chosen(recording, functions)
        yield from _seconds_of_tasks(recording, found, by, chosen)
        if "worker" not in by:
            yield from _seconds_held_up_by_transfers(recording, found, by, chosen)
    if functions is None:
        for occupancy in found:
            yield from _seconds_of_free_workers(recording, occupancy, by)


def _chosen(recording: Recording, functions: Collection[str] | None) -> Array:
    """Which tasks are of these functions, and have begun as far as is known."""
    labels: Categorical = recording.tasks.function
    begun = ~np.isnan(recording.tasks.start)
    if functions is None:
        return np.asarray(begun)
    codes = [code for code, name in enumerate(labels.values) if name in functions]
    return np.asarray(begun & np.isin(labels.codes, codes))


def _seconds_of_tasks(
    recording: Recording, found: Collection[Occupancy], by: tuple[str, ...], chosen: Array
) -> Iterator[Sum]:
    tasks = recording.tasks
    stop = np.array(tasks["stop"])
    for occupancy in found:
        stop[occupancy.tasks.rows] = occupancy.tasks.stop
    wall = stop - tasks["start"]
    groups = _groups(recording, by)
    fine = chosen & tasks["outcome"].where("ok")
    cpu, noncpu, metered = without_metered(recording, fine)
    yield from _sums(groups, fine, cpu, "thread-cpu")
    for activity, seconds, mine in divided(recording, noncpu, fine):
        yield from _sums(groups, mine, seconds, activity)
    yield from _metrics(groups, metered)
    yield from _transfers(recording, by, chosen)
    for outcome in ("failed", "unfinished"):
        yield from _sums(groups, chosen & tasks["outcome"].where(outcome), wall, outcome)


def _groups(recording: Recording, by: tuple[str, ...]) -> Categorical:
    """The group of each task: its values in those columns."""
    codes: Array = np.zeros(len(recording.tasks), dtype=np.int64)
    values: list[Group] = [()]
    for name in by:
        labels: Categorical = recording.tasks[name]
        if len(values) == 1:
            codes, values = labels.codes, [(*values[0], value) for value in labels.values]
            continue
        # Only the pairs that occur: of many functions and workers most may not.
        pairs, codes = np.unique(
            codes.astype(np.int64) * len(labels.values) + labels.codes, return_inverse=True
        )
        values = [
            (*values[pair // len(labels.values)], labels.values[pair % len(labels.values)])
            for pair in pairs.tolist()
        ]
    return Categorical(codes, values)


def _metrics(groups: Categorical, metrics: Table) -> Iterator[Sum]:
    """The sums of each activity that was metered."""
    if not len(metrics):
        return
    activity: Categorical = metrics["activity"]
    of_tasks = groups[metrics["task"]]
    for name in dict.fromkeys(activity.values):
        yield from _sums(of_tasks, activity.where(name), metrics["value"], name)


def _sums(groups: Categorical, chosen: Array, values: Array, activity: str) -> Iterator[Sum]:
    codes = groups.codes[chosen]
    sums = np.bincount(codes, values[chosen], minlength=len(groups.values))
    for code in np.unique(codes).tolist():
        yield groups.values[code], activity, float(sums[code])


def _of_other_units(
    recording: Recording, by: tuple[str, ...], unit: str, functions: Collection[str] | None
) -> Iterator[Sum]:
    metrics = recording.metrics
    if len(metrics):
        chosen = metrics["unit"].where(unit) & _chosen(recording, functions)[metrics["task"]]
        yield from _metrics(_groups(recording, by), metrics.rows(chosen))
    if unit in UNITS_OF_TRANSFERS:
        yield from _transfers(recording, by, _chosen(recording, functions), unit)


def _transfers(
    recording: Recording, by: tuple[str, ...], chosen: Array, unit: str = "seconds"
) -> Iterator[Sum]:
    """What moving tasks and results took: seconds of workers, or bytes or times on both sides."""
    transfers = recording.transfers
    if not len(transfers):
        return
    counted = chosen[transfers["task"]]
    if unit == "seconds":
        counted &= transfers["side"].where("worker")
    groups, activity = _groups(recording, by)[transfers["task"]], transfers["activity"]
    values = {
        "seconds": transfers["stop"] - transfers["start"],
        "bytes": np.nan_to_num(transfers["bytes"]),
        "count": np.ones(len(transfers)),
    }[unit]
    for name in activity.values:
        yield from _sums(groups, counted & activity.where(name), values, name)


def _seconds_held_up_by_transfers(
    recording: Recording, found: Collection[Occupancy], by: tuple[str, ...], chosen: Array
) -> Iterator[Sum]:
    """Seconds of free workers while the scheduler pickled or rebuilt, for the tasks it was about.

    They are summed over the chosen tasks.
    """
    transfers = recording.transfers
    if not len(transfers):
        return
    by_scheduler = transfers.rows(transfers["side"].where("scheduler") & chosen[transfers["task"]])
    rows_of = rows_by(recording.tasks.computation[by_scheduler["task"]])
    groups = _groups(recording, by)
    for occupancy in found:
        mine = by_scheduler.rows(rows_of.get(occupancy.computation, slice(0)))
        for activity, workers in occupancy.held_up.items():
            until_start = occupancy.seconds_until(workers, mine["start"])
            values = occupancy.seconds_until(workers, mine["stop"]) - until_start
            of_activity = mine["activity"].where(activity)
            yield from _sums(groups[mine["task"]], of_activity, values, activity)


def _seconds_of_free_workers(
    recording: Recording, occupancy: Occupancy, by: tuple[str, ...]
) -> Iterator[Sum]:
    group = {"function": NO_TASK, "computation": occupancy.computation, "span": occupancy.span}
    steps = {
        "overhead": occupancy.overhead,
        "idle": occupancy.idle,
        "other": occupancy.unknown,
        **(occupancy.held_up if "worker" in by else {}),
    }
    for activity, workers in steps.items():
        seconds = occupancy.seconds(workers)
        if "worker" not in by:
            if seconds:
                yield tuple(group[name] for name in by), activity, seconds
            continue
        left = seconds
        for worker, share in _shares_of_workers(recording, occupancy, workers):
            left -= share
            yield tuple({**group, "worker": worker}[name] for name in by), activity, share
        if abs(left) > 1e-9 * max(seconds, 1.0):
            yield tuple({**group, "worker": UNUSED}[name] for name in by), activity, left


def _shares_of_workers(
    recording: Recording, occupancy: Occupancy, workers: Array
) -> Iterator[tuple[str, float]]:
    """What each worker that ran tasks has of a step function, in the gaps between its tasks."""
    tasks = occupancy.tasks
    known = ~np.isnan(tasks.taken)
    starts, stops = tasks.taken[known], tasks.left[known]
    labels: Categorical = recording.tasks.worker[tasks.rows[known]]
    at_start = occupancy.share_until(workers, starts)
    at_stop = occupancy.share_until(workers, stops)
    in_tasks = np.bincount(labels.codes, at_stop - at_start, minlength=len(labels.values))
    total = float(occupancy.share_until(workers, occupancy.times[-1:])[0])
    for code in np.unique(labels.codes).tolist():
        yield labels.values[code], total - float(in_tasks[code])
