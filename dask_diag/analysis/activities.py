"""Where every worker-second went: what each task did with its time, and what no task had."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from dask_diag.analysis.occupancy import Occupancy, occupancies
from dask_diag.errors import DiagnosticError
from dask_diag.recording import Labels, Recording, Table

__all__ = ["activities", "execute_metrics"]

GROUPS = ("activity", "function", "worker", "compute")
NO_TASK = ""
"""The function of seconds in which a worker ran no task."""
UNUSED = "unused"
"""The worker of seconds of workers that ran no task at all."""


def activities(
    recording: Recording,
    by: str = "activity",
    unit: str = "seconds",
    functions: Collection[str] | None = None,
) -> Table:
    """Divide the worker-seconds of all computes among activities.

    For every compute the seconds sum to its wall time times its workers.

    Parameters
    ----------
    recording : Recording
    by : {"activity", "function", "worker", "compute"}
        What else to divide by; the table has a column of that name.
    unit : str
        Which unit to tell of.
    functions : collection of str, optional
        Tell only of the tasks of these functions; what no task had is then left out.

    Returns
    -------
    Table
        Columns *by* (not for ``"activity"``), ``activity``, ``unit`` and ``value``, the largest
        value first. Activities of tasks are ``thread-cpu`` and ``thread-noncpu``, and ``failed``
        and ``unfinished`` for all seconds of tasks that ended so; those of free workers are
        ``overhead`` (a task waited to be run, or its result to be collected), ``idle`` (there was
        none) and ``other`` (a task was out of which it is not known when it ran). The function of
        these is empty.

    Raises
    ------
    DiagnosticError
        If `by` is none of those.
    """
    if by not in GROUPS:
        raise DiagnosticError(f"by: expected one of {', '.join(GROUPS)}, found {by!r}")
    if isinstance(functions, str):
        functions = [functions]
    sums: dict[tuple[str, str], float] = {}
    for group, activity, seconds in _seconds(recording, by, functions):
        sums[group, activity] = sums.get((group, activity), 0.0) + seconds
    rows = [] if unit != "seconds" else sorted(sums.items(), key=lambda item: -item[1])
    columns: dict[str, Any] = {
        "activity": Labels.of(activity for (_, activity), _ in rows),
        "unit": Labels.of(unit for _ in rows),
        "value": np.array([value for _, value in rows], dtype=float),
    }
    if by != "activity":
        columns = {by: Labels.of(group for (group, _), _ in rows), **columns}
    return Table(columns)


def execute_metrics(recording: Recording) -> dict[tuple[str, str, str, str], float]:
    """What tasks did, under the keys that distributed uses.

    Returns
    -------
    dict
        ``("execute", prefix, activity, unit)`` to a value.
    """
    rows = activities(recording, by="function").to_dicts()
    return {
        ("execute", row["function"], row["activity"], row["unit"]): row["value"]
        for row in rows
        if row["function"] != NO_TASK
    }


def _seconds(
    recording: Recording, by: str, functions: Collection[str] | None
) -> Iterator[tuple[str, str, float]]:
    for occupancy in occupancies(recording):
        yield from _seconds_of_tasks(recording, occupancy, by, functions)
        if functions is None:
            yield from _seconds_of_free_workers(recording, occupancy, by)


def _seconds_of_tasks(
    recording: Recording, occupancy: Occupancy, by: str, functions: Collection[str] | None
) -> Iterator[tuple[str, str, float]]:
    tasks, rows = recording.tasks, occupancy.tasks.rows
    if not len(rows):
        return
    groups: Labels = tasks[by][rows] if by != "activity" else _alike(len(rows))
    ran = ~np.isnan(occupancy.tasks.start)
    if functions is not None:
        labels: Labels = tasks["function"]
        chosen = [code for code, name in enumerate(labels.values) if name in functions]
        ran &= np.isin(labels.codes[rows], chosen)
    outcome = tasks["outcome"][rows]
    wall = occupancy.tasks.stop - occupancy.tasks.start
    fine = ran & outcome.where("ok")
    for activity, chosen_rows, seconds in (
        ("thread-cpu", fine, tasks["thread_cpu"][rows]),
        ("thread-noncpu", fine, tasks["thread_noncpu"][rows]),
        ("failed", ran & outcome.where("failed"), wall),
        ("unfinished", ran & outcome.where("unfinished"), wall),
    ):
        codes = groups.codes[chosen_rows]
        sums = np.bincount(codes, seconds[chosen_rows], minlength=len(groups.values))
        for code in np.unique(codes).tolist():
            yield groups.values[code], activity, float(sums[code])


def _alike(rows: int) -> Labels:
    return Labels(np.zeros(rows, dtype=np.uint8), [NO_TASK])


def _seconds_of_free_workers(
    recording: Recording, occupancy: Occupancy, by: str
) -> Iterator[tuple[str, str, float]]:
    group = occupancy.compute if by == "compute" else NO_TASK
    for activity, workers in (
        ("overhead", occupancy.overhead),
        ("idle", occupancy.idle),
        ("other", occupancy.unknown),
    ):
        seconds = occupancy.seconds(workers)
        if by != "worker":
            if seconds:
                yield group, activity, seconds
            continue
        left = seconds
        for worker, share in _shares_of_workers(recording, occupancy, workers):
            left -= share
            yield worker, activity, share
        if abs(left) > 1e-9 * max(seconds, 1.0):
            yield UNUSED, activity, left


def _shares_of_workers(
    recording: Recording, occupancy: Occupancy, workers: np.ndarray[Any, Any]
) -> Iterator[tuple[str, float]]:
    """What each worker that ran tasks has of a step function, in the gaps between its tasks."""
    tasks = occupancy.tasks
    known = ~np.isnan(tasks.start)
    starts, stops = tasks.start[known], tasks.stop[known]
    labels: Labels = recording.tasks["worker"][tasks.rows[known]]
    at_start = occupancy.share_until(workers, starts)
    at_stop = occupancy.share_until(workers, stops)
    in_tasks = np.bincount(labels.codes, at_stop - at_start, minlength=len(labels.values))
    total = float(occupancy.share_until(workers, occupancy.times[-1:])[0])
    for code in np.unique(labels.codes).tolist():
        yield labels.values[code], total - float(in_tasks[code])
