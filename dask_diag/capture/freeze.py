"""From what capture collected to the frozen tables of a Recording.

This is the one room of capture that imports numpy and the noun; profilers import it when asked for
their recording.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Mapping, Sequence
from time import perf_counter, process_time
from typing import Any

import numpy as np
from dask.utils import key_split

from dask_diag.capture.cache import Holdings
from dask_diag.capture.compute import ROW, Compute, numbers_in_flight, outcome_of, pack_row
from dask_diag.capture.many_keys import tuples_as_text
from dask_diag.capture.packed import Metrics
from dask_diag.capture.resources import SAMPLE_COLUMNS
from dask_diag.columns import Labels, Texts, concatenate, smallest_integers
from dask_diag.recording import Recording, Table, stack

__all__ = [
    "cache_table",
    "compute_name",
    "functions_column",
    "holdings_of",
    "in_order_of_submission",
    "keys_columns",
    "metrics_of",
    "record",
    "resources_table",
    "tasks_of",
    "tasks_tables",
    "with_workers_named",
]


def record(diagnostic: Any, **tables: Any) -> Recording:
    """A Recording of a diagnostic: its times, its computes, and the tables it gives."""
    computes = list(diagnostic._computes)
    starts = [diagnostic.start_time, *(compute.start for compute in computes)]
    now = perf_counter()
    stops = [diagnostic.end_time, *(compute.stop or now for compute in computes)]
    start = min((time for time in starts if time is not None), default=now)
    empty = Table({})
    return Recording(
        start=start,
        stop=max((time for time in stops if time is not None), default=now),
        epoch=diagnostic._epoch,
        computes=computes_table(computes, now),
        notices=tuple(diagnostic._notices()),
        **{
            "tasks": empty,
            "needs": empty,
            "metrics": empty,
            "resources": empty,
            "cache": empty,
            **tables,
        },
    )


def compute_name(compute: Compute) -> str:
    """The name of a compute, unique among all that a process and its children run."""
    return f"{compute.pid}-{compute.number & 0xFFFFFFFF}"


def computes_table(computes: Sequence[Compute], now: float) -> Table:
    """`Recording.computes`; a compute that still runs stops `now`."""
    return Table(
        {
            "compute": Labels.of(compute_name(compute) for compute in computes),
            "start": np.array([compute.start for compute in computes], dtype=float),
            "stop": np.array([compute.stop or now for compute in computes], dtype=float),
            "workers": np.array([compute.workers for compute in computes], dtype=np.int64),
            "process_cpu": np.array(
                [
                    compute.process_cpu + (process_time() if compute.stop is None else 0.0)
                    for compute in computes
                ],
                dtype=float,
            ),
            "span": Labels.of(compute.span for compute in computes),
            "scheduler": Labels.of(compute.scheduler for compute in computes),
            "error": Labels.of(compute.error for compute in computes),
        }
    )


def tasks_tables(computes: Iterable[Compute]) -> dict[str, Table]:
    """`Recording.tasks`, in the order in which they were submitted, and `Recording.needs`."""
    workers: dict[tuple[int, int, str], int] = {}
    tables, tasks, needs = [], [np.zeros(0, np.int64)], [np.zeros(0, np.int64)]
    metrics = []
    rows_before = 0
    for compute in computes:
        keys, table = tasks_of(compute, workers)
        metrics.append(metrics_of(compute.metrics, len(keys), rows_before))
        tables.append(table)
        task, need = _needs_of(compute, keys)
        tasks.append(task + rows_before)
        needs.append(need + rows_before)
        rows_before += len(table)
    table = stack([*tables, _tasks_of_nothing()])
    order = np.argsort(table["submitted"], kind="stable")
    place = np.empty(len(order), dtype=np.int64)
    place[order] = np.arange(len(order))
    needs_table = Table(
        {"task": place[np.concatenate(tasks)], "needs": place[np.concatenate(needs)]}
    )
    metered = stack(metrics)
    if len(metered):
        others = {name: metered[name] for name in metered.columns if name != "task"}
        metered = Table({"task": place[metered["task"]], **others})
    return {
        "tasks": with_workers_named(table.rows(order), workers),
        "needs": needs_table,
        "metrics": metered,
    }


def with_workers_named(table: Table, workers: dict[tuple[int, int, str], int]) -> Table:
    """`Recording.tasks`, of a table that has a number for the worker of each task."""
    codes = table["worker"]
    columns = {name: table[name] for name in table.columns}
    columns["worker"] = Labels(codes, _worker_names(workers))
    columns["pid"] = Labels(codes, [pid for pid, _, _ in workers] or [0])
    columns["thread"] = Labels(codes, [thread for _, thread, _ in workers] or [0])
    return Table({name: columns[name] for name in TASK_COLUMNS})


def _spans_of(compute: Compute, keys: Sequence[Any]) -> Labels:
    """The span of each task: that of its compute, unless it was annotated with one."""
    annotated = compute.spans_among(keys)
    names = list(annotated.names)
    others = {row: names[code] for row, code in zip(annotated.rows, annotated.codes, strict=True)}
    return _mostly(compute.span, others, len(keys))


def metrics_of(kept: Metrics, rows: int, rows_before: int) -> Table:
    """`Recording.metrics` of a compute, of the tasks that have a row by now."""
    values = np.array(kept.values, dtype=float)
    count = min(len(values), len(kept.cpu))
    task = np.array(kept.rows[:count], dtype=np.int64)
    there = task < rows
    names = list(kept.names) or [("", "")]
    codes = np.array(kept.codes[:count], dtype=np.int64)[there]
    return Table(
        {
            "task": task[there] + rows_before,
            "activity": _recoded(codes, [label for label, _ in names]),
            "unit": _recoded(codes, [unit for _, unit in names]),
            "value": values[:count][there],
            "cpu": np.array(kept.cpu[:count], dtype=float)[there],
        }
    )


def _recoded(codes: np.ndarray[Any, Any], values: Sequence[str]) -> Labels:
    """A column of these values, each once, where several codes may stand for one."""
    distinct = list(dict.fromkeys(values))
    code_of = np.array([distinct.index(value) for value in values], dtype=np.int64)
    return Labels(code_of[codes], distinct)


def _needs_of(compute: Compute, keys: Sequence[Any]) -> tuple[Any, Any]:
    """Positions in `keys` of tasks, and of the tasks that they need."""
    found = compute.needs_among(keys)
    counts = np.array(found.counts, dtype=np.int64)
    return np.repeat(np.arange(len(counts)), counts), np.array(found.rows, dtype=np.int64)


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
    "compute",
    "span",
    "outcome",
    "error",
)


def _tasks_of_nothing() -> Table:
    numbers = {name: np.zeros(0) for name in TASK_COLUMNS[2:8]}
    labels = {name: Labels([], []) for name in ("function", "compute", "span", "outcome", "error")}
    return Table({"key": Texts.of([]), "worker": np.zeros(0, np.int64), **numbers, **labels})


def tasks_of(compute: Any, workers: dict[tuple[int, int, str], int]) -> tuple[list[Any], Table]:
    """The tasks of a `Compute`, or of what is like one; of each worker a number in `workers`."""
    rows, keys, exceptional = _rows_of(compute)
    if not keys:
        return keys, _tasks_of_nothing()
    submitted, start, stop, cpu, ran_on, collected = rows.T.copy()
    outcomes = {row: how.outcome for row, how in exceptional.items()}
    errors = {row: how.error for row, how in exceptional.items()}
    texts, functions = keys_columns(keys, dict(compute.names_of_plain_keys(keys)))
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
            "worker": _worker_codes(compute, ran_on, start, workers),
            "compute": Labels(np.zeros(len(keys), np.uint8), [compute_name(compute)]),
            "span": _spans_of(compute, keys),
            "outcome": _mostly("ok", outcomes, len(keys)),
            "error": _mostly("", errors, len(keys)),
        }
    )


def _rows_of(compute: Compute) -> tuple[np.ndarray[Any, Any], list[Any], dict[int, Any]]:
    """The rows, keys and exceptional outcomes, those in flight included if it still runs."""
    exceptional = dict(compute.exceptional)
    # Rows grow before keys: what has a key has a row.
    keys = list(compute.keys)
    data = bytes(compute.rows[: len(keys) * ROW.size])
    if compute.stop is None:
        for measured in compute.in_flight():
            exceptional[len(keys)] = outcome_of(measured)
            data += pack_row(*numbers_in_flight(measured), float("nan"))
            keys.append(measured.key)
    rows = np.frombuffer(data, dtype=float).reshape(-1, ROW.size // 8)
    return rows, keys, exceptional


def _mostly(usual: str, others: dict[int, str], rows: int) -> Labels:
    """A column that holds `usual` in all rows but a few."""
    values = list(dict.fromkeys([usual, *others.values()]))
    codes = np.zeros(rows, dtype=np.min_scalar_type(len(values)))
    for row, value in others.items():
        codes[row] = values.index(value)
    return Labels(codes, values)


def _worker_codes(
    compute: Compute,
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
        worker = _worker_of(compute, int(idents[position]))
        codes[position] = workers.setdefault(worker, len(workers))
    return smallest_integers(codes[inverse], len(workers))


def _worker_of(compute: Compute, ident: int) -> tuple[int, int, str]:
    """The pid, the thread and the kind of what a row says ran its task."""
    if ident in compute.remote_threads:
        return ident, compute.remote_threads[ident], "process"
    synchronous = compute.scheduler == "synchronous" and compute.workers <= 1
    if synchronous and ident in (0, compute.thread):
        return compute.pid, compute.thread, "caller"
    return (compute.pid, ident, "thread") if ident else (0, 0, "unknown")


def _worker_names(workers: Iterable[tuple[int, int, str]]) -> list[str]:
    """A short name for each: ``thread-0``, ``process-3``; ``caller`` for the computing thread."""
    names: list[str] = []
    counts: dict[str, int] = {}
    for _, _, kind in workers:
        count = counts[kind] = counts.get(kind, -1) + 1
        names.append(f"{kind}-{count}" if kind in ("thread", "process") or count else kind)
    return names or ["unknown"]


def function_of_key(key: Any) -> str:
    """The prefix that dask's collections give to the keys of one function."""
    try:
        return str(key_split(key))
    except Exception:
        # An empty tuple, or bytes that are no text.
        return "Other"


def functions_column(keys: Sequence[Any], named: Mapping[int, str]) -> Labels:
    """The function of each key: as `named` by position, else the prefix of the key."""
    prefixes: dict[Any, str] = {}
    names: list[str] = []
    for row, key in enumerate(keys):
        if row in named:
            names.append(named[row])
            continue
        head = key[0] if type(key) is tuple and key else key
        try:
            names.append(prefixes[head])
        except KeyError:
            names.append(prefixes.setdefault(head, function_of_key(key)))
        except TypeError:
            names.append(function_of_key(key))
    return Labels.of(names)


def cache_table(holdings: Iterable[tuple[Compute, Holdings]]) -> Table:
    """`Recording.cache`, in the order in which results were let go."""
    return stack([*(holdings_of(*pair) for pair in holdings)] or [Table({})])


def holdings_of(compute: Compute, holdings: Holdings) -> Table:
    """`Recording.cache` of one compute."""
    keys = list(holdings.keys)
    numbers = np.frombuffer(bytes(holdings.rows), dtype=float).reshape(-1, 3)
    texts, functions = keys_columns(keys, dict(holdings.names))
    return Table(
        {
            "key": texts,
            "function": functions,
            "compute": Labels(np.zeros(len(keys), np.uint8), [compute_name(compute)]),
            "metric": numbers[:, 0].copy(),
            "start": numbers[:, 1].copy(),
            "stop": numbers[:, 2].copy(),
        }
    )


def resources_table(samples: array[float]) -> Table:
    """`Recording.resources`, in order of time."""
    numbers = np.array(samples, dtype=float).reshape(-1, len(SAMPLE_COLUMNS))
    return Table({name: numbers[:, n].copy() for n, name in enumerate(SAMPLE_COLUMNS)})


def in_order_of_submission(compute: Compute, keys: Sequence[Any]) -> list[Any]:
    """`keys`, which are in order of collection, as `tasks_table` orders a compute's rows."""
    rows = np.frombuffer(compute.rows, dtype=float).reshape(-1, ROW.size // 8)
    return [keys[row] for row in np.argsort(rows[:, 0], kind="stable").tolist()]


_KEYS_AT_ONCE = 2048
"""Of keys that are not all alike, so that most are in company of their kind."""


def keys_columns(keys: Sequence[Any], named: Mapping[int, str]) -> tuple[Texts, Labels]:
    """Keys as text, as ``str`` gives it, and the function of each."""
    at_once = None if named else tuples_as_text(keys)
    if at_once is None and len(keys) > _KEYS_AT_ONCE and not named:
        batches = range(0, len(keys), _KEYS_AT_ONCE)
        columns = [keys_columns(keys[start : start + _KEYS_AT_ONCE], {}) for start in batches]
        return concatenate([c[0] for c in columns]), concatenate([c[1] for c in columns])
    if at_once is None:
        return Texts.of(map(_text_of, keys)), functions_column(keys, named)
    texts, names = at_once
    functions = [function_of_key((name,)) for name in names]
    return texts, _recoded(texts.heads.codes, functions)


def _text_of(key: Any) -> str:
    try:
        return str(key)
    except Exception:
        return f"<{type(key).__name__}>"
