"""Functions of tasks: seconds, counts and names."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

import numpy as np

from dask_diag.analysis.groups import (
    counts_by,
    distinct_pairs,
    extremes_by,
    lookup,
    sums_by,
    table_by,
)
from dask_diag.analysis.waits import cpu_and_noncpu
from dask_diag.columns import Categorical, FloatArray, IntArray
from dask_diag.errors import DiagnosticError
from dask_diag.formatting import count
from dask_diag.model.codes import Outcome
from dask_diag.model.recording import Recording
from dask_diag.model.table import Table
from dask_diag.model.tables import seconds_of_tasks

_LISTED = 10


def by_function(recording: Recording) -> Table:
    """A row per function, the longest in all first.

    Returns
    -------
    Table
        ``function``; ``tasks``, ``failed`` and ``unfinished`` (counts); ``wall``, ``thread_cpu``,
        ``thread_noncpu`` and ``longest`` (seconds, of the tasks whose times are known; NaN where
        there are none).
    """
    tasks = recording.tasks
    labels = tasks.function
    wall = seconds_of_tasks(tasks)
    seconds = _known_sums(labels, wall)
    cpu, noncpu = cpu_and_noncpu(recording)
    return table_by(
        labels,
        "function",
        np.nan_to_num(seconds),
        tasks=counts_by(labels),
        failed=counts_by(labels, tasks.outcome.eq(Outcome.FAILED)),
        unfinished=counts_by(labels, tasks.outcome.eq(Outcome.UNFINISHED)),
        wall=seconds,
        thread_cpu=_known_sums(labels, cpu),
        thread_noncpu=_known_sums(labels, noncpu),
        longest=extremes_by(np.fmax, labels, wall),
    )


_MOSTLY = 0.5
"""Least share of the timed seconds of fused tasks of the steps that are named: one, or two."""


def shown_names(recording: Recording) -> dict[str, str]:
    """The name of each function; before it the steps that its fused tasks mostly run.

    Dask names a fused task by some of its steps only, and leaves out what a collection calls.
    """
    tasks, steps = recording.tasks, recording.steps
    timed = steps.filter(steps.timed > 0)
    names = {name: name for name in tasks.function.values}
    functions, groups, _ = distinct_pairs(tasks.function.codes, tasks.group)
    for code in np.unique(functions).tolist():
        of_function = timed.filter(np.isin(timed.group, groups[functions == code]))
        sums = sums_by(of_function.function, of_function.seconds)
        order = np.argsort(-sums, kind="stable")
        number = 1 + int((np.cumsum(sums[order]) <= _MOSTLY * sums.sum()).sum())
        largest = [of_function.function.values[step] for step in order[:number]]
        name = tasks.function.values[code]
        others = [step for step in largest if step not in name]
        if others and number <= 2:
            names[name] = f"{' and '.join(others)} (in {name})"
    return names


def functions_by_time(recordings: Iterable[Recording]) -> list[str]:
    """The functions of recordings, most seconds of tasks first."""
    seconds: Counter[str] = Counter()
    for recording in recordings:
        if len(recording.tasks):
            table = by_function(recording)
            seconds.update(lookup(table["function"], np.nan_to_num(table["wall"])))
        # Those of profilers that record no tasks.
        for table in (recording.cached_results, recording.samples):
            if len(table):
                seconds.update(dict.fromkeys(_present(table["function"]), 0.0))
    return [name for name, _ in seconds.most_common() if name]


def _present(labels: Categorical) -> list[str]:
    return [labels.values[code] for code in np.unique(labels.codes).tolist()]


def _known_sums(labels: Categorical, seconds: FloatArray) -> FloatArray:
    """The sum of known seconds of each function; NaN if no seconds are known."""
    is_known = ~np.isnan(seconds)
    sums = sums_by(labels, np.where(is_known, seconds, 0.0))
    return np.where(counts_by(labels, is_known) > 0, sums, np.nan)


def expect_functions(names: object, labels: Categorical, argument: str) -> list[str]:
    """The names of functions as a list, if each labels a row.

    Raises
    ------
    DiagnosticError
        If `names` is no collection of names, or one of them labels none.
    """
    if not isinstance(names, Iterable):
        raise DiagnosticError(f"{argument}: expected names of functions, found {names!r}")
    present = _present(labels)
    functions: list[str] = list(names)
    for name in functions:
        if name not in present:
            listed = ", ".join(map(repr, present[:_LISTED]))
            more = f" and {count(len(present) - _LISTED)} more" if len(present) > _LISTED else ""
            expected = f"one of {listed}{more}" if present else "no function (there are no tasks)"
            raise DiagnosticError(f"{argument}: expected {expected}, found {name!r}")
    return functions


def positions_among(functions: Sequence[str], labels: Categorical) -> IntArray:
    """The position of each task's function in a list; the position after the list for others."""
    position = {name: index for index, name in enumerate(functions)}
    of_labels = [position.get(name, len(functions)) for name in labels.values]
    return np.array(of_labels, np.int64)[labels.codes]
