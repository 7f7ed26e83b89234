"""From what was collected of tasks to the tables of a Recording that are about tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from dask_diag.builders.keys import keys_columns, recoded
from dask_diag.capture.computation import ROW, Computation, numbers_in_flight, outcome_of, pack_row
from dask_diag.columns import Categorical, PrefixStrings, smallest_integers
from dask_diag.model.table import Table, stack
from dask_diag.schema import REFERENCES

__all__ = [
    "TASK_LOGS",
    "in_order_of_submission",
    "moved",
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
)


def tasks_tables(computations: Iterable[Computation]) -> dict[str, Table]:
    """`Recording.tasks`, in the order in which they were submitted, and what refers to them."""
    workers: dict[tuple[int, int, str], int] = {}
    tables: list[Table] = []
    references: dict[str, list[Table]] = {name: [] for name in REFERENCES}
    before = 0
    for computation in computations:
        keys, table = tasks_of(computation, workers)
        tables.append(table)
        told = {name: table_of(computation, len(keys)) for name, table_of in TASK_LOGS.items()}
        for name, refers in {"dependencies": _dependencies_of(computation, keys), **told}.items():
            references[name].append(moved(refers, REFERENCES[name], before))
        before += len(table)
    table = stack([*tables, _tasks_of_nothing()])
    order = np.argsort(table["submitted"], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    return {
        "tasks": with_workers_named(table.rows(order), workers),
        **{
            name: moved(stack(found), REFERENCES[name], place)
            for name, found in references.items()
            if found
        },
    }


def times_of_tasks(computations: Iterable[Computation]) -> Table:
    """Of the columns of `Recording.tasks` those about time; computation by computation."""
    return stack([*map(_times_of, computations), _tasks_of_nothing()])


def _times_of(computation: Computation) -> Table:
    rows, keys, _ = _rows_of(computation)
    if not keys:
        return _tasks_of_nothing()
    _, start, stop, cpu, _, _ = rows.T.copy()
    functions = computation.functions
    if functions is None or len(functions) != len(keys):
        functions = _keys_and_functions_of(computation, keys)[1]
    return Table(
        {
            "function": functions,
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "computation": Categorical(np.zeros(len(keys), np.uint8), [computation.name]),
        }
    )


def moved(table: Table, columns: Sequence[str], where: Any) -> Table:
    """The table with other positions of tasks: moved by a number, or to where an array says."""
    if not len(table):
        return table

    def to(positions: Any) -> Any:
        return positions + where if isinstance(where, int) else where[positions]

    return Table(
        {name: to(table[name]) if name in columns else table[name] for name in table.columns}
    )


def with_workers_named(table: Table, workers: Mapping[tuple[int, int, str], int]) -> Table:
    """The table, in which workers are numbers, with their names, processes and threads."""
    lanes = table["worker"]
    columns = {
        **{name: table[name] for name in table.columns},
        "worker": Categorical(lanes, _worker_names(workers)),
        "pid": Categorical(lanes, [pid for pid, _, _ in workers] or [0]),
        "thread": Categorical(lanes, [thread for _, thread, _ in workers] or [0]),
    }
    return Table({name: columns[name] for name in TASK_COLUMNS})


def _tasks_of_nothing() -> Table:
    numbers = {name: np.zeros(0) for name in TASK_COLUMNS[2:8]}
    labels = {
        name: Categorical([], [])
        for name in ("function", "computation", "span", "outcome", "error")
    }
    return Table(
        {"key": PrefixStrings.of([]), "worker": np.zeros(0, np.int64), **numbers, **labels}
    )


def tasks_of(
    computation: Computation, workers: dict[tuple[int, int, str], int]
) -> tuple[list[Any], Table]:
    """Keys and tasks of a `Computation`, or of what is like one; a number in `workers` for each."""
    rows, keys, exceptional = _rows_of(computation)
    if not keys:
        return keys, _tasks_of_nothing()
    submitted, start, stop, cpu, ran_on, collected = rows.T.copy()
    outcomes = {row: how.outcome for row, how in exceptional.items()}
    errors = {row: how.error for row, how in exceptional.items()}
    texts, functions = _keys_and_functions_of(computation, keys)
    return keys, Table(
        {
            "key": texts,
            "function": functions,
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "thread_noncpu": stop - start - cpu,
            "submitted": submitted,
            "collected": collected,
            "worker": _worker_codes(computation, ran_on, start, workers),
            "computation": Categorical(np.zeros(len(keys), np.uint8), [computation.name]),
            "span": _spans_of(computation, keys),
            "outcome": _mostly("ok", outcomes, len(keys)),
            "error": _mostly("", errors, len(keys)),
        }
    )


def _rows_of(computation: Computation) -> tuple[np.ndarray[Any, Any], list[Any], dict[int, Any]]:
    """The rows, keys and exceptional outcomes, those in flight included if it still runs."""
    exceptional = dict(computation.exceptional)
    # Rows grow before keys: what has a key has a row.
    keys = list(computation.keys)
    data = bytes(computation.rows[: len(keys) * ROW.size])
    if computation.stop is None:
        for measured in computation.in_flight():
            exceptional[len(keys)] = outcome_of(measured)
            data += pack_row(*numbers_in_flight(measured), float("nan"))
            keys.append(measured.key)
    rows = np.frombuffer(data, dtype=float).reshape(-1, ROW.size // 8)
    return rows, keys, exceptional


def _keys_and_functions_of(
    computation: Computation, keys: list[Any]
) -> tuple[PrefixStrings, Categorical]:
    # A computation may end meanwhile, and then has names of tasks that were in flight, too.
    names = {row: n for row, n in computation.names_of_plain_keys(keys) if row < len(keys)}
    texts, functions = keys_columns(keys, names)
    if computation.is_final and len(keys) == computation.done:
        computation.functions = functions
    return texts, functions


def _mostly(usual: str, others: dict[int, str], rows: int) -> Categorical:
    """A column that holds `usual` in all rows but a few."""
    values = list(dict.fromkeys([usual, *others.values()]))
    codes = np.zeros(rows, dtype=np.min_scalar_type(len(values)))
    for row, value in others.items():
        codes[row] = values.index(value)
    return Categorical(codes, values)


def _worker_codes(
    computation: Computation,
    ran_on: np.ndarray[Any, Any],
    start: np.ndarray[Any, Any],
    workers: dict[tuple[int, int, str], int],
) -> np.ndarray[Any, Any]:
    """A number for each thread of each process, in the order in which they first ran a task.

    `workers` grows by those not seen before.
    """
    idents, inverse = np.unique(np.nan_to_num(ran_on).astype(np.int64), return_inverse=True)
    first = np.full(len(idents), np.inf)
    np.minimum.at(first, inverse, np.nan_to_num(start, nan=np.inf))
    codes = np.zeros(len(idents), dtype=np.int64)
    for position in np.argsort(first, kind="stable").tolist():
        worker = _worker_of(computation, int(idents[position]))
        codes[position] = workers.setdefault(worker, len(workers))
    return smallest_integers(codes[inverse], len(workers))


def _worker_of(computation: Computation, ident: int) -> tuple[int, int, str]:
    """The pid, the thread and the kind of what a row says ran its task."""
    if ident in computation.remote_threads:
        return ident, computation.remote_threads[ident], "process"
    synchronous = computation.scheduler == "synchronous" and computation.workers <= 1
    if synchronous and ident in (0, computation.thread):
        return computation.pid, computation.thread, "caller"
    return (computation.pid, ident, "thread") if ident else (0, 0, "unknown")


def _worker_names(workers: Iterable[tuple[int, int, str]]) -> list[str]:
    """A short name for each: ``thread-0``, ``process-3``; ``caller`` for the computing thread."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for _, _, kind in workers:
        count = counts[kind] = counts.get(kind, -1) + 1
        names.append(f"{kind}-{count}" if kind in ("thread", "process") or count else kind)
    return names or ["unknown"]


def _spans_of(computation: Computation, keys: Sequence[Any]) -> Categorical:
    """The span of each task: that of its computation, unless it was annotated with one."""
    annotated = computation.spans_among(keys)
    names = list(annotated.names)
    coded = zip(annotated.rows, annotated.codes, strict=True)
    others = {row: names[code] for row, code in coded if row < len(keys)}
    return _mostly(computation.span, others, len(keys))


def _dependencies_of(computation: Computation, keys: list[Any]) -> Table:
    """`Recording.dependencies` of a computation."""
    found = computation.dependencies_among(keys)
    # A computation may end meanwhile, and then has those of tasks that were in flight, too.
    counts = np.array(found.counts, dtype=np.int64)[: len(keys)]
    return Table(
        {
            "task": np.repeat(np.arange(len(counts)), counts),
            "depends_on": np.array(found.rows, dtype=np.int64)[: counts.sum()],
        }
    )


def _metrics_of(computation: Computation, rows: int) -> Table:
    """`Recording.metrics` of a computation, of the tasks that have a row by now."""
    kept = computation.metrics
    values = np.array(kept.values, dtype=float)
    count = min(len(values), len(kept.cpu))
    task = np.array(kept.rows[:count], dtype=np.int64)
    there = task < rows
    names = list(kept.names) or [("", "")]
    codes = np.array(kept.codes[:count], dtype=np.int64)[there]
    return Table(
        {
            "task": task[there],
            "activity": recoded(codes, [label for label, _ in names]),
            "unit": recoded(codes, [unit for _, unit in names]),
            "value": values[:count][there],
            "cpu": np.array(kept.cpu[:count], dtype=float)[there],
        }
    )


def _transfers_of(computation: Computation, rows: int) -> Table:
    """`Recording.transfers` of a computation: up to four rows for each task, as far as known."""
    kept = computation.transfers
    task = np.array(kept.rows, dtype=np.int64)
    width = len(kept.COLUMNS)
    numbers = np.array(kept.values[: len(task) * width], dtype=float).reshape(-1, width)
    of = dict(zip(kept.COLUMNS, numbers.T, strict=True))
    parts = []
    for activity, by, start, stop, size in _STEPS_OF_A_TRANSFER:
        known = ~np.isnan(of[start]) & ~np.isnan(of[stop]) & (task < rows)
        count = int(known.sum())
        parts.append(
            Table(
                {
                    "task": task[known],
                    "activity": Categorical(np.zeros(count, np.uint8), [activity]),
                    "side": Categorical(np.zeros(count, np.uint8), [by]),
                    "start": of[start][known],
                    "stop": of[stop][known],
                    "bytes": of[size][known],
                }
            )
        )
    return stack(parts)


def _waits_of(computation: Computation, rows: int) -> Table:
    """`Recording.waits` of a computation, of the tasks that have a row by now."""
    kept = computation.waits
    samples = np.array(kept.samples, dtype=np.int64)
    count = len(samples)
    task = np.array(kept.rows[:count], dtype=np.int64)
    there = task < rows
    codes = np.array(kept.codes[:count], dtype=np.int64)[there]
    return Table(
        {
            "task": task[there],
            "activity": Categorical(codes, list(kept.names)),
            "seconds": np.array(kept.seconds[:count], dtype=float)[there],
            "samples": samples[there],
        }
    )


_STEPS_OF_A_TRANSFER = (
    ("serialize", "scheduler", "packing", "packed", "bytes_in"),
    ("deserialize", "worker", "opened", "start", "bytes_in"),
    ("serialize", "worker", "stop", "closed", "bytes_out"),
    ("deserialize", "scheduler", "landing", "landed", "bytes_out"),
)
TASK_LOGS = {
    "metrics": _metrics_of,
    "transfers": _transfers_of,
    "waits": _waits_of,
}
"""What makes the tables of what was told of tasks, from a computation and how many rows it has."""


def in_order_of_submission(computation: Computation, keys: Sequence[Any]) -> list[Any]:
    """`keys`, which are in order of collection, as `tasks_table` orders a computation's rows."""
    rows = np.frombuffer(computation.rows, dtype=float).reshape(-1, ROW.size // 8)
    return [keys[row] for row in np.argsort(rows[:, 0], kind="stable").tolist()]
