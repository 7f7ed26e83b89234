"""Where every worker-second went: what each task did with its time, and what no task had."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence

import numpy as np

from dask_diag.analysis.activity_sums import Division, Sum, added_up
from dask_diag.analysis.free_workers import (
    NO_TASK,
    seconds_blocked_by_transfers,
    seconds_of_free_workers,
)
from dask_diag.analysis.functions import expect_functions
from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.analysis.task_activities import (
    SECONDS,
    UNITS_OF_TRANSFERS,
    amounts_of_tasks,
    seconds_of_tasks,
    units_of,
)
from dask_diag.columns import Categorical
from dask_diag.errors import DiagnosticError
from dask_diag.model.recording import Recording, expect_recording
from dask_diag.model.table import Table

__all__ = ["activities", "cells", "execute_metrics", "seconds_by_activity"]

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
