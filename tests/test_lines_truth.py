"""Seconds of lines against what their functions clocked themselves, and what the capture costs."""

from __future__ import annotations

import tracemalloc
from collections import Counter
from time import perf_counter, thread_time

import dask
import dask.array as da
import dask.bag as db
import dask.dataframe as dd
import numpy as np
import pandas as pd
import pytest
from dask.highlevelgraph import HighLevelGraph

import dask_diag
from dask_diag import Profiler
from dask_diag.capture.lines.names import Now
from dask_diag.hooks import lines

CLOCKED = Counter()


def _spin(name, seconds):
    start = perf_counter()
    while perf_counter() - start < seconds:
        pass
    CLOCKED[name] += perf_counter() - start


def _slow(block):
    _spin("slow", 0.04)
    return block


def _quick(block):
    _spin("quick", 0.03)
    return block


def _tiny(value):
    _spin("tiny", 0.0002)
    return value


def _odd(value):
    _spin("odd", 0.0001)
    return value % 2


def _array():
    x = da.ones((80, 10), chunks=(10, 10))
    # With what they return given, dask calls no function to find out.
    meta = np.empty((0, 0))
    slow = x.map_blocks(_slow, meta=meta)
    quick = slow.map_blocks(_quick, meta=meta)
    quick.sum().compute()
    return {"slow": "slow = x.map", "quick": "quick = slow.map"}


def _bag():
    numbers = db.from_sequence(range(2400), npartitions=4)
    tiny = numbers.map(_tiny)
    odd = tiny.filter(_odd)
    odd.frequencies().compute()
    return {"tiny": "tiny = numbers.map", "odd": "odd = tiny.filter"}


def _delayed():
    slow = [dask.delayed(_slow)(number) for number in range(8)]
    quick = [dask.delayed(_quick)(value) for value in slow]
    with dask.config.set({"optimization.fuse.delayed": True}):
        for one in quick:
            one.compute()
    return {"slow": "slow = [dask", "quick": "quick = [dask"}


def _frame():
    frame = dd.from_pandas(
        pd.DataFrame({"x": np.arange(80), "k": np.arange(80) % 7}), npartitions=8
    )
    slow = frame.map_partitions(_slow, meta=frame._meta)
    quick = slow[slow.x > 3].map_partitions(_quick, meta=frame._meta)
    quick.merge(frame, on="k").x_x.sum().optimize().compute()
    return {"slow": "slow = frame.map", "quick": "quick = slow["}


@pytest.mark.truth
@pytest.mark.parametrize("program", [_array, _bag, _delayed, _frame])
def test_seconds_of_a_line_are_those_of_its_functions(program, retried):
    def measure():
        CLOCKED.clear()
        with dask.config.set(scheduler="synchronous"), Profiler() as profiler:
            expected = program()
        found = dask_diag.lines(profiler.recording).to_dicts()
        ratios = [
            sum(row["seconds"] for row in found if row["text"].startswith(line)) / CLOCKED[name]
            for name, line in expected.items()
        ]
        assert ratios == pytest.approx([1, 1], rel=0.1)

    retried(measure)


_SCRIPT = compile("for _ in range(100): work()", __file__, "exec")
"""Below the frame of a script nothing is read, and below a test all of pytest."""


def _time_of(work):
    start = thread_time()
    exec(_SCRIPT, {"work": work})
    return (thread_time() - start) / 100


@pytest.fixture
def capture():
    lines.start_capturing()
    try:
        yield Now.capture
    finally:
        lines.stop_capturing()


def _increment(value):
    return value + 1


@pytest.mark.truth
@pytest.mark.parametrize(("what", "most"), [("array", 5e-6), ("delayed", 10e-6)])
def test_to_build_costs_microseconds(what, most, slowness, retried):
    x, increment = da.ones((4, 4), chunks=2) + 1, dask.delayed(_increment)
    name, layer = x.name, x.dask.layers[x.name]

    def operate():
        # All that an operation calls of what is replaced: the rest takes a hundred times as long.
        HighLevelGraph.from_collections(name, layer, dependencies=())

    work = operate if what == "array" else lambda: increment(1)

    def measure():
        times = {True: [], False: []}
        for _ in range(60):
            times[False].append(_time_of(work))
            lines.start_capturing()
            times[True].append(_time_of(work))
            lines.stop_capturing()
        assert min(times[True]) - min(times[False]) < most * slowness()

    retried(measure)


@pytest.mark.truth
def test_many_delayed_calls_take_little_memory(capture):
    increment = dask.delayed(_increment)
    increment(1)
    tracemalloc.start()
    try:
        for _ in range(2_000):
            increment(1)
        kept = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(capture.names) >= 2_000
    assert kept < 0.5e6
