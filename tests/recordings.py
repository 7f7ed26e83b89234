"""Recordings made by hand, and whether two are the same to the bit."""

from __future__ import annotations

from dataclasses import fields, replace

import numpy as np

from dask_diag import Recording
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table

from .tables import filled_table

NOTHING = Recording(start=0.5, stop=1.5, epoch=1e9)


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
    table = recording.computations
    columns = {name: table[name] for name in table.columns}
    idle = filled_table("computations", {**columns, "others_cpu": np.zeros(len(table))})
    return replace(recording, computations=idle)


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
            tasks=complete.tasks.rows(slice(n * rows, n * rows + rows)),
            dependencies=complete.dependencies.rows(slice(n * rows, n * rows + rows)),
            resources=complete.resources.rows(slice(n, n + 1)),
        )
