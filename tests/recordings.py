"""Recordings made by hand: tables, tasks, stacks; what is found in them, and whether two are the same."""

from __future__ import annotations

from dataclasses import fields, replace
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import pytest

from dask_diag import FindingLocation, Recording, findings
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.codes import ROOTS, Root
from dask_diag.model.table import Table
from dask_diag.model.tables import GROUPS, TABLES

NOTHING = Recording(start=0.5, stop=1.5, epoch=1e9)
EMPTY = Table({})
NAN = float("nan")
MB = 1e6


def assert_same(one, other):
    """Types and dtypes included."""
    for field in fields(Recording):
        a, b = getattr(one, field.name), getattr(other, field.name)
        if isinstance(a, Table):
            assert type(a) is type(b), field.name
            # A table without rows is not written: its columns are what the schema says.
            if len(a) or len(b):
                assert_same_table(a, b)
        else:
            assert type(a) is type(b), field.name
            assert repr(a) == repr(b), field.name


def assert_same_table(a, b):
    assert a.columns == b.columns
    assert len(a) == len(b)
    for name in a.columns:
        assert_same_column(a[name], b[name])


def assert_same_column(a, b):
    assert type(a) is type(b)
    if isinstance(a, np.ndarray):
        assert a.dtype == b.dtype
        assert a.tobytes() == b.tobytes()
        assert not b.flags.writeable
    else:
        assert repr(a.tolist()) == repr(b.tolist())
        if isinstance(a, Categorical):
            assert (a.codes.dtype, a.codes.tolist()) == (b.codes.dtype, b.codes.tolist())
            assert repr(a.values) == repr(b.values)


class Busy(AssertionError):
    """Other programs had the CPUs, so that the answer is not known."""


def on_an_idle_machine(recording):
    """The same, without what other programs used: tests run on machines that are busy or not."""
    others = [0.0] * len(recording.computations)
    return with_columns(recording, "computations", cpu_other_processes=others)


def example(tasks=200, seed=0):
    """About what a profiler records."""
    rng = np.random.default_rng(seed)
    submitted = np.sort(rng.integers(10**12, 10**12 + 10**9, tasks)) / 1e9
    start = submitted + rng.integers(10**3, 10**5, tasks) / 1e9
    stop = start + rng.integers(10**3, 10**6, tasks) / 1e9
    cpu = rng.integers(10**3, 10**6, tasks) / 1e9
    stop[rng.random(tasks) < 0.02] = np.nan
    task = np.arange(1, tasks) if tasks else np.zeros(0, np.int64)
    return replace(
        NOTHING,
        tasks=filled_table(
            "tasks",
            {
                "key": PrefixStrings.of(
                    f"('sum-{n % 3:032x}', {n // 9}, {n % 9})" if n % 7 else f"lone-{n}"
                    for n in range(tasks)
                ),
                "function": Categorical.of("sum" if n % 7 else "lone" for n in range(tasks)),
                "start": start,
                "stop": stop,
                "thread_cpu": cpu,
                "thread_noncpu": stop - start - cpu,
                "submitted": submitted,
                "worker": Categorical.of(f"thread-{n % 4}" for n in range(tasks)),
                "thread": Categorical.of(140313448924864 + n % 4 for n in range(tasks)),
            },
        ),
        dependencies=filled_table("dependencies", {"task": task, "depends_on": task - 1}),
        resources=filled_table(
            "resources", {"time": np.arange(9) / 7, "memory": np.arange(9) * 1e6 + 0.5}
        ),
        notices=("the ☃ melted",),
        metric="count",
    )


def chunks_of_example(tasks=300):
    """The same, in four chunks."""
    complete, rows = example(tasks), tasks // 4
    for n in range(4):
        yield replace(
            complete,
            stop=2.0 + n,
            tasks=complete.tasks.filter(slice(n * rows, n * rows + rows)),
            dependencies=complete.dependencies.filter(slice(n * rows, n * rows + rows)),
            resources=complete.resources.filter(slice(n, n + 1)),
        )


def assert_values_are_distinct(recording):
    """Each value of a column has one code: rules tell processes and hosts apart by their codes."""
    for name in TABLES:
        table = getattr(recording, name)
        for column in table.columns:
            values = getattr(table[column], "values", ())
            assert len(set(values)) == len(values), f"{name}.{column}: {values}"


def filled_table(name, columns):
    """The table of that name; columns that are not given hold what represents not known."""
    kind = TABLES[name]
    rows = len(next(iter(columns.values()))) if columns else 0
    unknown = set(columns) - set(kind.schema)
    assert not unknown, f"{name} has no {unknown}"
    no_rows = {n: [-1] * rows for n, c in kind.schema.items() if c.refers_to == GROUPS}
    given = no_rows | columns
    return kind({n: _column(c.kind, given.get(n), rows) for n, c in kind.schema.items()})


def _column(kind, values, rows):
    if kind == "float":
        return np.full(rows, np.nan) if values is None else np.asarray(values, float)
    if kind == "integer":
        return np.zeros(rows, np.int64) if values is None else np.asarray(values, np.int64)
    if values is None:
        return _no_texts(kind, rows)
    if isinstance(values, (Categorical, PrefixStrings)):
        return values
    return (PrefixStrings if kind == "text" else Categorical).of(values)


def columns_of(names, *rows):
    """Columns of a table that is written row by row, below the names of its columns."""
    values = zip(*rows, strict=True) if rows else [[]] * len(names.split())
    return dict(zip(names.split(), map(list, values), strict=True))


@lru_cache(maxsize=32)
def _no_texts(kind, rows):
    """They are most of a table that is written by hand, and cannot be changed."""
    return (PrefixStrings if kind == "text" else Categorical).of([""] * rows)


def with_tables(recording, **tables):
    """The same recording with other tables, of which these are the columns."""
    filled = {name: filled_table(name, columns) for name, columns in tables.items()}
    return replace(recording, **filled)


def with_columns(recording, table, times=1, **columns):
    """The same recording; a table has all rows so many times, and other values in some columns."""
    old = getattr(recording, table)
    repeated = {name: old[name].tolist() * times for name in old.columns}
    return with_tables(recording, **{table: repeated | columns})


MAIN = ("main", "/home/someone/code/main.py", 5, 1)
MAIN_LATER = ("main", "/home/someone/code/main.py", 9, 1)
CORE = ("Array.sum", "/opt/env/lib/python3.11/site-packages/dask/array/core.py", 120, 100)
LEAF = ("encode", "/usr/lib/python3.12/json/encoder.py", 7, 3)
BUILT_IN = ("sorted", "", 0, 0)


def recording_of_stacks(rows, notices=(), keys=None):
    """A Recording; a row is (start, stop), function, path, wall, cpu. Keys are those of the rows.

    In place of a function of tasks there may be another root. A path is a list of (name, file,
    line, first), the outermost first; None is not sampled.
    """
    frames, stacks, placed = {}, {}, []
    for _, _, path, _, _ in rows:
        stack = -1
        for frame in path or ():
            position = frames.setdefault(tuple(frame), len(frames))
            stack = stacks.setdefault((stack, position), len(stacks))
        placed.append(stack)
    starts, stops = zip(*(row[0] for row in rows)) if rows else ((), ())
    names = list(zip(*frames, strict=True)) or [()] * 4
    return with_tables(
        Recording(
            start=min(starts, default=0.0),
            stop=max(stops, default=1.0),
            epoch=0.0,
            notices=tuple(notices),
        ),
        frames=dict(zip(("name", "file", "line", "first_line"), names, strict=True)),
        call_tree={
            "parent": [parent for parent, _ in stacks],
            "frame": [frame for _, frame in stacks],
        },
        samples={
            "start": starts,
            "stop": stops,
            "root": [row[1] if row[1] in ROOTS else Root.TASKS for row in rows],
            "function": ["" if row[1] in ROOTS else row[1] for row in rows],
            "key": keys or [""] * len(rows),
            "node": placed,
            "seconds": [row[3] for row in rows],
            "cpu_seconds": [row[4] for row in rows],
            "count": [0 if row[2] is None else 10 for row in rows],
        },
    )


def with_stacks(recording, rows, keys=None):
    """The same with sampled stacks, in rows as `recording_of_stacks` has them."""
    stacks = recording_of_stacks(rows, keys=keys)
    tables = {table: getattr(stacks, table) for table in ("frames", "call_tree", "samples")}
    return replace(recording, **tables)


def known_stacks():
    """Two functions of tasks in three cycles: 7.5 s, of which 4 s CPU, 2.5 s waiting."""
    first, second, third = (0.0, 1.0), (1.0, 2.0), (2.0, 4.0)
    return recording_of_stacks(
        [
            (first, "load", [MAIN, CORE], 1.0, 0.25),
            (first, "load", [MAIN, CORE, LEAF], 0.5, 0.5),
            (second, "load", [MAIN_LATER, CORE], 1.5, 1.5),
            (second, "load", [MAIN], 0.5, 0.0),
            (third, "sum", [MAIN, BUILT_IN], 2.0, 1.0),
            (third, "sum", [LEAF], 1.0, 0.75),
            (third, "sum", None, 1.0, NAN),
        ]
    )


class Task(NamedTuple):
    """By default it computes all the time, and its result is collected at once."""

    start: float
    stop: float
    cpu: float | None = None
    function: str = "work"
    worker: int = 0
    depends_on: tuple[int, ...] = ()
    collected: float | None = None
    outcome: str = "ok"
    error: str = ""


def run(tasks, stop=None, workers=2, cpus=2, scheduler="threads", **columns):
    """A recording of one computation, from 0 to when its last task has stopped."""
    took = np.array([task.stop - task.start for task in tasks])
    cpu = np.array([took[n] if task.cpu is None else task.cpu for n, task in enumerate(tasks)])
    ends = [task.stop if task.collected is None else task.collected for task in tasks]
    stop = max(ends) if stop is None else stop
    pairs = [(row, other) for row, task in enumerate(tasks) for other in task.depends_on]
    computation = {
        "computation": ["c"],
        "start": [0.0],
        "stop": [stop],
        "workers": [workers],
        "cpus": [cpus],
        "scheduler": [scheduler],
        "cpu_process": [float(np.nansum(cpu))],
        "cpu_scheduler": [0.0],
        "voluntary_switches": [0.0],
        "involuntary_switches": [0.0],
        **{name: [value] for name, value in columns.items()},
    }
    return Recording(
        start=0.0,
        stop=stop,
        epoch=0.0,
        computations=filled_table("computations", computation),
        tasks=filled_table(
            "tasks",
            {
                "key": [f"('{task.function}', {row})" for row, task in enumerate(tasks)],
                "function": [task.function for task in tasks],
                "start": [task.start for task in tasks],
                "stop": [task.stop for task in tasks],
                "thread_cpu": cpu,
                "thread_noncpu": took - cpu,
                "submitted": [task.start for task in tasks],
                "collected": ends,
                "worker": [f"thread-{task.worker}" for task in tasks],
                "computation": ["c"] * len(tasks),
                "outcome": [task.outcome for task in tasks],
                "error": [task.error for task in tasks],
            },
        ),
        dependencies=filled_table(
            "dependencies",
            {"task": [task for task, _ in pairs], "depends_on": [other for _, other in pairs]},
        ),
    )


ANALYSIS, HELPERS = "/home/someone/code/analysis.py", "/home/someone/code/helpers.py"


def recording_with_lines():
    """Tasks of a program whose lines are known: fused ones, through a helper, and one built before.

    The fused tasks take 10 s, of which `slow` has 6 s, `quick` 3 s, and `mean_chunk` 1 s.
    """
    tasks = [
        *(Task(2.0 * n, 2.0 * n + 2.0, 1.0, "mean_chunk-quick", n % 2) for n in range(5)),
        Task(10.0, 11.0, function="mean_agg", depends_on=(0, 1, 2, 3, 4)),
        Task(11.0, 12.0, function="clean"),
        Task(12.0, 13.5, function="clean", worker=1),
        Task(14.0, 14.5, function="load"),
        Task(14.5, 14.75, function="odd"),
    ]
    made = with_columns(run(tasks), "tasks", group=[0] * 5 + [1, 2, 3, 4, -1])
    return with_tables(
        made,
        lines=columns_of(
            "caller file line end_line column end_column function called text",
            (-1, ANALYSIS, 24, 24, 5, 23, "<module>", "map_blocks", "z = y.map_blocks(slow)"),
            (-1, ANALYSIS, 25, 25, 5, 24, "<module>", "map_blocks", "w = z.map_blocks(quick)"),
            (-1, ANALYSIS, 26, 26, 5, 19, "<module>", "mean", "m = w.mean(axis=0)"),
            (-1, ANALYSIS, 30, 30, 5, 12, "<module>", "", "a = tidy(raw)"),
            (3, HELPERS, 21, 21, 12, 22, "tidy", "delayed", "    return clean(raw)"),
            (-1, ANALYSIS, 31, 31, 5, 14, "<module>", "", "b = tidy(other)"),
            (5, HELPERS, 21, 21, 12, 22, "tidy", "delayed", "    return clean(raw)"),
        ),
        steps=columns_of(
            "group function line how seconds cpu_seconds timed",
            (0, "slow", 0, "name", 0.6, 0.1, 1),
            (0, "quick", 1, "name", 0.3, 0.3, 1),
            (0, "mean_chunk", 2, "name", 0.1, 0.1, 1),
            (1, "mean_agg", 2, "name", NAN, NAN, 0),
            (2, "clean", 4, "name", NAN, NAN, 0),
            (3, "clean", 6, "token", NAN, NAN, 0),
            (4, "load", -1, "built before", NAN, NAN, 0),
            (9, "never ran", 2, "name", NAN, NAN, 0),
        ),
    )


def two_at_once(seconds=1.0, cpu=1.0, later=0.0, **kwargs):
    """Two tasks, of which the second may start later."""
    second = Task(later, later + seconds, cpu, worker=1)
    return run([Task(0, seconds, cpu, worker=0), second], **kwargs)


def in_rounds(count, workers=2, cpu=0.0, **kwargs):
    """Tasks of a second, as many at once as there are workers."""
    tasks = [Task(n // workers, n // workers + 1, cpu, worker=n % workers) for n in range(count)]
    return run(tasks, workers=workers, **kwargs)


def with_waits(recording, activity):
    """All time that tasks were off the CPU was spent so."""
    noncpu = recording.tasks["thread_noncpu"]
    every = np.arange(len(noncpu))
    on_cpu_wait = activity == "cpu-wait"
    waits = {
        "task": [*every, *every],
        "activity": ["cpu-wait"] * len(every) + [activity] * len(every),
        "seconds": [
            *(noncpu if on_cpu_wait else 0 * noncpu),
            *(0 * noncpu if on_cpu_wait else noncpu),
        ],
        "samples": [0] * len(every) + [100] * len(every),
    }
    rows = slice(0, len(every) if on_cpu_wait else None)
    return replace(recording, waits=filled_table("waits", waits).filter(rows))


def by_code(recording):
    return {finding.code: finding for finding in findings(recording)}


def numbers(finding, *names):
    """Numbers of the evidence, to compare with others."""
    return pytest.approx(tuple(finding.numbers[name].value for name in names), rel=0.02)


def advised(recording, code, *before):
    """The number after each of these words in the advice."""
    advice = by_code(recording)[code].advice
    return [float(advice.split(words)[1].split(" ")[0].replace(",", "")) for words in before]


def assert_found(finding, *expected):
    """A finding is as expected; None is no finding, and True is any.

    A severity, a kind, a text that is said, or one that is not, after "not: "; seconds that are
    lost; a place; or numbers of the evidence by name, with a unit or without: None is not said.
    """
    assert (finding is None) == (expected == (None,)), finding
    for one in expected:
        if isinstance(one, dict):
            for name, value in one.items():
                number = finding.numbers.get(name)
                value, unit = value if isinstance(value, tuple) else (value, number and number.unit)
                assert number == (
                    value if value is None else (pytest.approx(value, rel=0.02), unit)
                )
        elif isinstance(one, FindingLocation):
            for name in ("workers", "functions"):
                assert getattr(one, name) in ((), getattr(finding.where, name))
            if one.intervals:
                np.testing.assert_allclose(finding.where.intervals, one.intervals)
        elif isinstance(one, str):
            said = (
                f"{finding.severity}; {finding.certainty}; {finding.evidence}; {finding.advice}; "
            )
            text = one.removeprefix("not: ")
            is_code = text in ("low", "medium", "high", "estimate", "upper_bound")
            assert (text in (said.split("; ")[:2] if is_code else said)) == (text == one), said
        elif one is not None and one is not True:
            seconds = pytest.approx(one, nan_ok=True) if isinstance(one, (int, float)) else one
            assert finding.potential_saving == seconds


def check(code, made, cases):
    """What is found in the recording that is made of each case is what stands beside it."""
    for arguments, expected in cases.items() if isinstance(cases, dict) else cases:
        if isinstance(arguments, dict):
            recording = made(**arguments)
        else:
            recording = made(*(arguments if isinstance(arguments, tuple) else (arguments,)))
        expected = expected if isinstance(expected, tuple) else (expected,)
        assert_found(by_code(recording).get(code), *expected)
