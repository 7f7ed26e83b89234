"""The table of tasks, and the tables with references to tasks, made of rows."""

from __future__ import annotations

import re
from array import array
from collections.abc import Hashable, Iterable, Mapping, Sequence
from itertools import accumulate, chain
from math import nan
from operator import itemgetter
from typing import Any, TypeVar

import numpy as np

from dask_diag.capture.computation import ComputationSnapshot, TaskRows
from dask_diag.capture.keys import function_of_key, text_of_key
from dask_diag.capture.lines.steps import NO_KINDS
from dask_diag.capture.log import (
    MetricLog,
    TaskLog,
    TransferLog,
    WaitLog,
    joined_logs,
)
from dask_diag.capture.task import ROW, Transfer
from dask_diag.capture.workers_table import (
    Workers,
    constant,
    numbers_of,
    on_local_schedulers,
    worker_codes,
    worker_names,
)
from dask_diag.columns import (
    Categorical,
    FloatArray,
    IntArray,
    PrefixStrings,
    concatenate,
)
from dask_diag.model import tables
from dask_diag.model.codes import Activity, Outcome
from dask_diag.model.table import NO_ROWS, Table, stack

H = TypeVar("H", bound=Hashable)

_KEYS_AT_ONCE = 2048
"""So that an odd one slows down few, and all are in the processor's cache while they are read."""
_NO_NAME = ""
_WORDS = re.compile(r"^(?:[^-\n]*-(?:[A-Za-z]+(?:-|$))*)?", re.MULTILINE)
"""What `key_split` reads of a text with a dash: words of letters, and none after any other."""

KeyColumns = tuple[PrefixStrings, Categorical]
"""Keys as text, and the function of each."""
NO_KEYS: KeyColumns = PrefixStrings.of([]), Categorical([], [])


def keys_columns(keys: Sequence[Hashable], named: Mapping[int, str]) -> KeyColumns:
    """Keys as text, as ``str`` gives it, and the function of each.

    That is the one that `named` has by position, else the prefix of the key.
    """
    if not keys:
        return NO_KEYS
    batches = range(0, len(keys), _KEYS_AT_ONCE)
    columns = [_columns_of_few(keys[start : start + _KEYS_AT_ONCE]) for start in batches]
    texts, functions = (concatenate(column) for column in zip(*columns, strict=True))
    nameless = np.flatnonzero(functions.eq(_NO_NAME)).tolist()
    names = {row: function_of_key(keys[row]) for row in nameless if row not in named}
    return texts, _renamed(functions, {**names, **named})


def _columns_of_few(keys: Sequence[Hashable]) -> KeyColumns:
    if len(set(map(type, keys))) < 2:
        return _columns_of_a_kind(keys)
    kinds = Categorical.of(map(type, keys))
    alike = [np.flatnonzero(kinds.codes == code) for code in range(len(kinds.values))]
    columns = [_columns_of_a_kind([keys[row] for row in rows.tolist()]) for rows in alike]
    # Where each key came to lie when they were grouped by type: the inverse puts them in order
    # again.
    row_of = np.argsort(np.concatenate(alike))
    texts, functions = (concatenate(column)[row_of] for column in zip(*columns, strict=True))
    return texts, functions


def _columns_of_a_kind(keys: Sequence[Hashable]) -> KeyColumns:
    texts_of = {str: _texts_of_texts, tuple: _texts_of_tuples}.get(type(keys[0]))
    if texts_of and (columns := texts_of(keys)):
        texts, heads = columns
        return texts, recoded(texts.heads.codes, [head and function_of_key(head) for head in heads])
    firsts = Categorical.of(key[0] if type(key) is tuple and key else key for key in keys)
    functions = recoded(firsts.codes, list(map(function_of_key, firsts.values)))
    return PrefixStrings.of(map(text_of_key, keys)), functions


def recoded(codes: IntArray, values: Sequence[Hashable]) -> Categorical:
    """A column of codes for values, with each value once."""
    position = {value: code for code, value in enumerate(dict.fromkeys(values))}
    code_of = np.array([position[value] for value in values], dtype=np.int64)
    return Categorical(code_of[codes], list(position))


def _renamed(column: Categorical, names: Mapping[int, str]) -> Categorical:
    """Replace values in some rows of a column; drop unused values."""
    if not names:
        return column
    position = {value: code for code, value in enumerate(column.values)}
    codes = column.codes.astype(np.int64)
    codes[list(names)] = [position.setdefault(name, len(position)) for name in names.values()]
    used, codes = np.unique(codes, return_inverse=True)
    values = list(position)
    return Categorical(codes.reshape(-1), [values[code] for code in used.tolist()])


def _texts_of_tuples(keys: Sequence[Any]) -> tuple[PrefixStrings, Sequence[str]] | None:
    """Keys such as ``("x", 1, 2)`` as ``str`` writes them, and the heads' names.

    None if not all are of that shape.
    """
    lengths, items = list(map(len, keys)), list(chain.from_iterable(keys))
    if min(lengths) < 2 or set(map(type, items)) != {str, int}:
        return None
    # The name itself is left out: each head is there once.
    patterns = {length: f"%.0s{', '.join(['%d'] * (length - 1))})" for length in set(lengths)}
    pattern = "".join(map(patterns.__getitem__, lengths))
    try:
        tails = (pattern % tuple(items)).encode()
        names = Categorical.of(map(itemgetter(0), keys))
        heads = Categorical(names.codes, [f"({name!r}, " for name in names.values])
    except (TypeError, ValueError):
        # A text where a number was expected, or one of more digits than Python writes.
        return None
    ends = np.flatnonzero(np.frombuffer(tails, np.uint8) == ord(")"))
    return PrefixStrings.from_encoded(heads, np.diff(ends, prepend=-1), tails), names.values


def _texts_of_texts(keys: Sequence[Any]) -> tuple[PrefixStrings, Sequence[str]] | None:
    """Keys such as ``"x-1"``, and the heads; the head ``""`` names no function.

    None if they hold characters that would make it difficult.
    """
    text = "\n".join(keys)
    if not text.isascii() or text.count("\n") != len(keys) - 1:
        return None
    heads = Categorical.of(_WORDS.findall(text))
    # A head is one of few, a tail is of one key: only tails are stored for each.
    cuts = np.array(list(map(len, heads.values)))[heads.codes]
    lengths = np.fromiter(map(len, keys), np.int64, len(keys)) - cuts
    tails = "".join([key[cut:] for key, cut in zip(keys, cuts.tolist(), strict=True)])
    return PrefixStrings.from_encoded(heads, lengths, tails.encode()), heads.values


def functions_of(computation: ComputationSnapshot) -> Categorical:
    """The functions of the tasks of a computation that were submitted."""
    functions = computation.functions
    if functions is None:
        functions = keys_and_functions_of(computation.tasks)[1]
        # A computation that has ended never changes.
        if computation.stop is not None:
            computation.functions = functions
    return functions


def times_of_tasks(computations: Iterable[ComputationSnapshot]) -> Table:
    """Functions and times of tasks, as in `Recording.tasks`, computation by computation."""
    known = [one for one in computations if one.functions is not None]
    others = [one for one in computations if one.functions is None]
    parts = [_times_of([one], functions_of(one)) for one in known]
    if others:
        parts.append(_times_of(others, keys_and_functions_of(joined_rows(others))[1]))
    return stack([*parts, tables.Tasks.empty()])


def _times_of(computations: Sequence[ComputationSnapshot], functions: Categorical) -> Table:
    _, start, stop, cpu, _, _ = numbers_of(b"".join([one.tasks.rows for one in computations]))
    return Table(
        {
            "function": functions,
            "start": start,
            "stop": stop,
            "thread_cpu": cpu,
            "computation": Categorical.of([one.name for one in computations])[
                of_rows(computations)
            ],
        }
    )


def of_rows(computations: Sequence[ComputationSnapshot]) -> IntArray:
    """The position of the computation of each row."""
    counts = [len(one.tasks.rows) // ROW.size for one in computations]
    return np.repeat(np.arange(len(counts)), np.array(counts, np.int64))


def joined_rows(computations: Sequence[ComputationSnapshot]) -> TaskRows:
    """The tasks of computations, one after the other.

    Where one refers to a row, that is counted from the first row of the first computation on, with
    those rows that these computations had before.
    """
    parts = [one.tasks for one in computations]
    if len(parts) == 1:
        return parts[0]
    counts = [len(part.rows) // ROW.size for part in parts]
    firsts = [0, *accumulate(counts)][:-1]
    before = [0, *accumulate(part.first + count for count, part in zip(counts, parts, strict=True))]
    placed, refers = list(zip(firsts, parts, strict=True)), list(zip(before, parts, strict=False))
    needed, depends_on, sizes, dependents = array("I"), array("I"), array("d"), array("I")
    for count, first, part in zip(counts, before, parts, strict=False):
        on_rows, rows = part.dependencies
        needed.extend(on_rows)
        needed.extend([0] * (count - len(on_rows)))
        depends_on.extend([first + row for row in rows])
        sizes.extend(part.sizes)
        sizes.extend([nan] * (count - len(part.sizes)))
        dependents.extend(part.dependents)
        dependents.extend([0] * (count - len(part.dependents)))
    return TaskRows(
        first=0,
        final=sum(part.final for part in parts),
        rows=b"".join([part.rows for part in parts]),
        keys=list(chain.from_iterable(part.keys for part in parts)),
        names=[(first + row, name) for first, part in placed for row, name in part.names],
        exceptional={
            first + row: how for first, part in placed for row, how in part.exceptional.items()
        },
        spans=[(first + row, name) for first, part in placed for row, name in part.spans],
        dependencies=(needed, depends_on),
        metrics=joined_logs(MetricLog, [(first, part.metrics) for first, part in refers]),
        transfers=joined_logs(TransferLog, [(first, part.transfers) for first, part in refers]),
        waits=joined_logs(WaitLog, [(first, part.waits) for first, part in refers]),
        sizes=sizes,
        dependents=dependents,
        groups=b"".join([part.groups for part in parts]),
        kinds=NO_KINDS,
    )


def with_workers_named(table: Table, workers: Workers) -> Table:
    """Replace numbers of workers in a table by names, processes and threads."""
    lanes = table["worker"]
    named = table.replacing(
        {
            "worker": Categorical(lanes, worker_names(workers)),
            "pid": recoded(lanes, [pid for pid, _, _ in workers]),
            "thread": recoded(lanes, [thread for _, thread, _ in workers]),
        }
    )
    return Table({name: named[name] for name in tables.Tasks.schema})


def tasks_of(
    computations: Sequence[ComputationSnapshot], tasks: TaskRows, workers: Workers
) -> Table:
    """The tasks of computations, their `joined_rows`, with numbers of workers; `workers` grows."""
    submitted, start, stop, cpu, ran_on, collected = numbers_of(tasks.rows)
    count = len(submitted)
    ends = {row: (how.outcome, how.error, *how.failure) for row, how in tasks.exceptional.items()}
    usual = {"outcome": Outcome.OK, "error": "", "error_message": "", "error_location": ""}
    texts, functions = keys_and_functions_of(tasks)
    of_row = of_rows(computations)
    # Those that are alike ran on the same workers.
    kinds = {id(one.facts): one for one in computations}
    kind_of = Categorical.of([id(one.facts) for one in computations]).codes.astype(np.int64)
    spans = Categorical.of([one.facts.span for one in computations])[of_row]
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
            "worker": worker_codes([*kinds.values()], kind_of[of_row], ran_on, start, workers),
            "computation": Categorical.of([one.name for one in computations])[of_row],
            "span": _renamed(spans, dict(tasks.spans)),
            **{
                name: _renamed(constant(value, count), {row: end[n] for row, end in ends.items()})
                for n, (name, value) in enumerate(usual.items())
            },
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


def keys_and_functions_of(tasks: TaskRows) -> tuple[PrefixStrings, Categorical]:
    """The keys as text, and the function of each."""
    return keys_columns(list(tasks.keys), dict(tasks.names))


def tasks_and_keys(computation: ComputationSnapshot) -> tuple[Table, list[Hashable]]:
    """The tasks of a computation in the order of submission, and the keys."""
    workers: Workers = {}
    tasks = with_workers_named(tasks_of([computation], computation.tasks, workers), workers)
    keys, order = list(computation.tasks.keys), np.argsort(tasks["submitted"], kind="stable")
    return tasks.filter(order), [keys[row] for row in order.tolist()]


def log_tables(tasks: TaskRows, rows: IntArray, refers: IntArray) -> dict[str, Table]:
    """The tables of the logs of tasks.

    `rows` has the position of each task in the table of all tasks, `refers` of each row to which
    one refers.
    """
    counts, depends_on = tasks.dependencies
    made = {
        "metrics": _log_table(tables.Metrics, tasks.metrics, ("activity", "unit", "value", "cpu")),
        "transfers": _transfers_table(tasks.transfers) if tasks.transfers.rows else NO_ROWS,
        "waits": _log_table(tables.Waits, tasks.waits, ("activity", "label", "seconds", "samples")),
    }
    made = {
        name: table.replacing({"task": refers[table["task"]]}) if len(table) else NO_ROWS
        for name, table in made.items()
    }
    if depends_on:
        task, depends = rows[: len(counts)].repeat(counts), refers[np.array(depends_on, np.int64)]
        made["dependencies"] = Table({"task": task, "depends_on": depends})
    return made


def _log_table(kind: type[tables.RecordingTable], log: TaskLog, names: Sequence[str]) -> Table:
    """The table of a log; `names` are those of its labels' parts, then of its numbers."""
    if not log.rows:
        return NO_ROWS
    codes = np.array(log.codes, dtype=np.int64)
    labels = [recoded(codes, part) for part in zip(*log.labels, strict=True)]
    columns: list[Any] = [*labels, *np.array(log.values).reshape(-1, log.width).T]
    made = {"task": np.array(log.rows, dtype=np.int64), **dict(zip(names, columns, strict=True))}
    return kind(
        {
            name: made[name].astype(np.int64) if column.kind == "integer" else made[name]
            for name, column in kind.schema.items()
        }
    )


_STEPS_OF_A_TRANSFER = (
    (Activity.SERIALIZE, "scheduler", "packing", "packed", "bytes_in"),
    (Activity.DESERIALIZE, "worker", "opened", "start", "bytes_in"),
    (Activity.SERIALIZE, "worker", "stop", "closed", "bytes_out"),
    (Activity.DESERIALIZE, "scheduler", "landing", "landed", "bytes_out"),
)
"""Activity, side, and which of `Transfer`'s numbers are its start, its stop and its bytes."""


def _transfers_table(transfers: TransferLog) -> Table:
    """Up to four rows for each task: a step is left out of which a time is not known."""
    task = np.array(transfers.rows, dtype=np.int64)
    numbers = np.array(transfers.values).reshape(-1, transfers.width).T
    columns = dict(zip(Transfer.__slots__, numbers, strict=True))
    parts = []
    for activity, side, start, stop, size in _STEPS_OF_A_TRANSFER:
        is_known = ~np.isnan(columns[start] + columns[stop])
        texts = {"activity": activity, "side": side, "source": "", "destination": ""}
        made: dict[str, Any] = {
            "task": task,
            "start": columns[start],
            "stop": columns[stop],
            "bytes": columns[size],
            **{name: constant(value, len(task)) for name, value in texts.items()},
        }
        parts.append(Table({name: made[name][is_known] for name in tables.Transfers.schema}))
    return stack(parts)
