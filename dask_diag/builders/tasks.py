"""From what was collected of tasks to the table of tasks of a Recording."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from functools import cache, partial
from weakref import WeakKeyDictionary

import numpy as np

from dask_diag.builders.constants import constant, on_local_schedulers
from dask_diag.builders.keys import keys_columns
from dask_diag.builders.task_logs import dependencies_table, log_tables
from dask_diag.builders.workers import Workers, worker_codes, worker_names
from dask_diag.capture.snapshot import ComputationInfo, ComputationSnapshot, TaskRows
from dask_diag.capture.tasks.task_row import ROW
from dask_diag.columns import Categorical, FloatArray, IntArray, PrefixStrings
from dask_diag.model.table import Table, stack
from dask_diag.schema import REFERENCES, Outcome

__all__ = [
    "functions_of",
    "in_order_of_submission",
    "moved",
    "remember_functions",
    "tasks_of",
    "tasks_tables",
    "times_of_tasks",
    "with_workers_named",
]

TASK_COLUMNS = (
    "key",
    "function",
    "start",
    "stop",
    "thread_cpu",
    "thread_noncpu",
    "submitted",
    "collected",
    "worker",
    "pid",
    "thread",
    "computation",
    "span",
    "outcome",
    "error",
    "error_message",
    "error_location",
    "attempt",
    "host",
    "nbytes",
    "queued",
    "stolen",
    "client",
    "seceded",
    "seceded_cpu",
)


def tasks_tables(computations: Iterable[ComputationSnapshot]) -> dict[str, Table]:
    """`Recording.tasks`, in the order in which they were submitted, and what refers to them."""
    workers: Workers = {}
    tables: list[Table] = []
    references: dict[str, list[Table]] = {name: [] for name in REFERENCES}
    before = 0
    for computation in computations:
        tasks = computation.tasks
        table = tasks_of(computation.info, tasks, workers)
        remember_functions(computation, table["function"])
        tables.append(table)
        dependencies = dependencies_table(tasks.dependencies)
        for name, refers in {"dependencies": dependencies, **log_tables(tasks)}.items():
            references[name].append(moved(refers, REFERENCES[name], partial(np.add, before)))
        before += len(table)
    table = stack([*tables, _no_tasks()])
    # They come in the order of collection; all that refers to them by row moves with them.
    order = np.argsort(table["submitted"], kind="stable")
    position_of = np.empty(len(order), dtype=np.int64)
    position_of[order] = np.arange(len(order))
    return {
        "tasks": with_workers_named(table.rows(order), workers),
        **{
            name: moved(stack(parts), REFERENCES[name], position_of.__getitem__)
            for name, parts in references.items()
            if parts
        },
    }


_functions: WeakKeyDictionary[ComputationSnapshot, Categorical] = WeakKeyDictionary()
"""The functions of the tasks of computations that have ended, for builders that need only these.

A snapshot never changes, so what was made of it is valid as long as it exists.
"""


def remember_functions(computation: ComputationSnapshot, functions: Categorical) -> None:
    """Keep the functions of all tasks of a computation, if it has ended."""
    if computation.info.stop is not None:
        _functions[computation] = functions


def functions_of(computation: ComputationSnapshot) -> Categorical:
    """The functions of the tasks of a computation that were submitted."""
    functions = _functions.get(computation)
    if functions is None:
        functions = keys_and_functions_of(computation.tasks)[1]
        remember_functions(computation, functions)
    return functions


def times_of_tasks(computations: Iterable[ComputationSnapshot]) -> Table:
    """Of the columns of `Recording.tasks` those about time; computation by computation."""
    return stack([*map(_times_of, computations), _no_tasks()])


def _times_of(computation: ComputationSnapshot) -> Table:
    _, start, stop, cpu, _, _ = numbers_of(computation.tasks)
    if not len(start):
        return _no_tasks()
    return Table(
        {
            "function": functions_of(computation),
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "computation": constant(computation.info.name, len(start)),
        }
    )


def moved(table: Table, columns: Sequence[str], to: Callable[[IntArray], IntArray]) -> Table:
    """The table with other positions of tasks: those to which they have moved."""
    if not len(table):
        return table
    return Table(
        {name: to(table[name]) if name in columns else table[name] for name in table.columns}
    )


def with_workers_named(table: Table, workers: Workers) -> Table:
    """The table, in which workers are numbers, with their names, processes and threads."""
    lanes = table["worker"]
    columns = {
        **{name: table[name] for name in table.columns},
        "worker": Categorical(lanes, worker_names(workers)),
        "pid": Categorical(lanes, [pid for pid, _, _ in workers]),
        "thread": Categorical(lanes, [thread for _, thread, _ in workers]),
    }
    return Table({name: columns[name] for name in TASK_COLUMNS})


@cache
def _no_tasks() -> Table:
    numbers = {name: np.zeros(0) for name in TASK_COLUMNS[2:8]}
    labels = {
        name: Categorical([], [])
        for name in (
            *("function", "computation", "span", "outcome"),
            *("error", "error_message", "error_location"),
        )
    }
    key, worker = PrefixStrings.of([]), np.zeros(0, np.int64)
    return Table({"key": key, "worker": worker, **numbers, **labels, **on_local_schedulers(0)})


def tasks_of(computation: ComputationInfo, tasks: TaskRows, workers: Workers) -> Table:
    """The tasks of a computation; their workers are numbers in `workers`, which grows."""
    submitted, start, stop, cpu, ran_on, collected = numbers_of(tasks)
    count = len(submitted)
    if not count:
        return _no_tasks()
    outcomes = {row: how.outcome for row, how in tasks.exceptional.items()}
    errors = {row: how.error for row, how in tasks.exceptional.items()}
    messages = {row: how.failure.message for row, how in tasks.exceptional.items()}
    locations = {row: how.failure.location for row, how in tasks.exceptional.items()}
    texts, functions = keys_and_functions_of(tasks)
    return Table(
        {
            "key": texts,
            "function": functions,
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "thread_noncpu": stop - start - cpu,
            "submitted": submitted,
            "collected": collected,
            "worker": worker_codes(computation, ran_on, start, workers),
            "computation": constant(computation.name, count),
            "span": _spans_of(computation, tasks, count),
            "outcome": _mostly(Outcome.OK, outcomes, count),
            "error": _mostly("", errors, count),
            "error_message": _mostly("", messages, count),
            "error_location": _mostly("", locations, count),
            **on_local_schedulers(count),
            **_sizes_of(tasks, count),
        }
    )


def _sizes_of(tasks: TaskRows, count: int) -> dict[str, FloatArray]:
    """The column of sizes, if results were measured."""
    if not len(tasks.sizes):
        return {}
    sizes = np.full(count, np.nan)
    # Sizes are measured as tasks are collected: tasks that never were have none, and come last.
    sizes[: len(tasks.sizes)] = tasks.sizes
    return {"nbytes": sizes}


def numbers_of(tasks: TaskRows) -> FloatArray:
    """The numbers of each `ROW`, an array each."""
    return np.frombuffer(tasks.rows, dtype=float).reshape(-1, ROW.size // 8).T.copy()


def keys_and_functions_of(tasks: TaskRows) -> tuple[PrefixStrings, Categorical]:
    """The keys as text, and the function of each."""
    return keys_columns(list(tasks.keys), dict(tasks.names))


def _mostly(usual: str, others: dict[int, str], rows: int) -> Categorical:
    """A column that holds `usual` in all rows but a few."""
    if not others:
        return constant(usual, rows)
    values = list(dict.fromkeys([usual, *others.values()]))
    # Nearly all rows are alike, and one byte each is enough for the few others.
    codes = np.zeros(rows, dtype=np.min_scalar_type(len(values)))
    for row, value in others.items():
        codes[row] = values.index(value)
    return Categorical(codes, values)


def _spans_of(computation: ComputationInfo, tasks: TaskRows, count: int) -> Categorical:
    """The span of each task: that of its computation, unless it was annotated with one."""
    names, spans = list(tasks.spans.names), tasks.spans
    others = {row: names[code] for row, code in zip(spans.rows, spans.codes, strict=True)}
    return _mostly(computation.span, others, count)


def in_order_of_submission(tasks: TaskRows) -> list[Hashable]:
    """The keys, as `tasks_tables` orders the tasks of a computation."""
    keys, submitted = list(tasks.keys), numbers_of(tasks)[0]
    return [keys[row] for row in np.argsort(submitted, kind="stable").tolist()]
