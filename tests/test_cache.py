"""The cache profiler: what is held, from when until when, and at what cost."""

from __future__ import annotations

import functools
import sys
import time
from operator import add

import dask.array as da
import dask.local
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import normalize_callback

from dask_diag import CacheProfiler, Profiler
from dask_diag.analysis.memory import cached_levels

CHAIN = {("a", 0): (add, 1, 2), ("b", 0): (add, ("a", 0), 1), ("c", 0): (add, ("b", 0), 1)}


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
def test_a_result_is_held_until_the_last_task_that_needs_it_is_done(get):
    dsk = {
        ("a", 0): (add, 1, 2),
        ("slow", 0): (lambda x: time.sleep(0.1) or x, ("a", 0)),
        ("quick", 0): (lambda x: x, ("a", 0)),
        ("asked", 0): (add, ("slow", 0), ("quick", 0)),
        ("end", 0): (add, ("asked", 0), 1),
    }
    calls = []
    with CacheProfiler(metric=lambda value: calls.append(value) or 1) as cprof:
        assert get(dsk, [("asked", 0), ("end", 0)]) == (6, 7)
    # The metric is called once a result.
    assert sorted(calls) == [3, 3, 3, 6, 7]
    rows = {row["function"]: row for row in cprof.recording.cached_results.to_dicts()}
    assert rows["a"]["stop"] == max(rows["slow"]["start"], rows["quick"]["start"])
    assert rows["slow"]["stop"] == rows["quick"]["stop"] == rows["asked"]["start"]
    assert rows["end"]["start"] < rows["end"]["stop"] == rows["asked"]["stop"] <= cprof.end_time
    assert len(cprof.recording.tasks) == 0
    dsk["bad", 0] = (lambda x: 1 / 0, ("end", 0))
    with CacheProfiler() as cprof, pytest.raises(ZeroDivisionError):
        get(dsk, ("bad", 0))
    assert {"asked", "end"} <= {*cprof.recording.cached_results.function.tolist()}


def test_levels_are_known():
    x = da.ones(100, chunks=10) + 1
    with CacheProfiler(metric=lambda value: value.nbytes) as cprof:
        x.compute(scheduler="synchronous", optimize_graph=False)
    levels, total = cached_levels(cprof.recording)
    assert levels["add"].peak == 800
    # A block of ones is handed over for its sum in one instant, as are the sums for the array.
    assert levels["ones_like"].peak == 80
    assert total.peak == 800
    assert total.amounts[-1] == 0
    assert (np.diff(total.times) > 0).all()


class Sized:
    def __call__(self, value):
        return 7


@pytest.mark.parametrize(
    ("metric", "name", "sizes"),
    [
        (None, "count", [1]),
        (functools.partial(lambda scale, value: scale, 3), "lambda", [3]),
        (lambda value: 0.5, "lambda", [0.5]),
        (lambda value: np.int64(5), "lambda", [5]),
        (Sized(), "Sized", [7]),
    ],
)
def test_any_callable_is_a_metric(metric, name, sizes):
    with CacheProfiler(metric=metric) as cprof:
        dask.local.get_sync(CHAIN, ("c", 0))
    assert [result.metric for result in cprof.results] == sizes * 3
    assert {type(result.metric) for result in cprof.results} == {*map(type, sizes)}
    assert name in cprof.metric_name
    assert cprof.recording.notices == ()
    assert CacheProfiler(metric=metric, metric_name="given").metric_name == "given"
    with pytest.raises(TypeError, match="metric: expected a callable"):
        CacheProfiler(metric=3)


def test_work_per_task_does_not_grow_with_what_is_held():
    """Counted in lines, which no busy neighbour can change."""

    def lines(tasks):
        dsk = {("x", n): (int,) for n in range(tasks)}
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            count += event == "line" and "dask_diag/capture" in frame.f_code.co_filename
            return trace

        with CacheProfiler():
            sys.settrace(trace)
            try:
                dask.local.get_sync(dsk, list(dsk))
            finally:
                sys.settrace(None)
        return count

    assert lines(2000) < 2.2 * lines(1000)
    # A set the size of all that was done would not show in lines: see benchmarks/cache.py.


@pytest.mark.parametrize("order", [1, -1], ids=["tasks first", "results first"])
def test_a_result_is_cached_from_when_its_task_was_collected(order):
    dsk = {("a", n): (add, n, 1) for n in range(20)}
    dsk |= {("b", n): (abs, ("a", n)) for n in range(20)}
    prof, cprof = Profiler(), CacheProfiler(lambda value: value)
    callbacks = [*map(normalize_callback, (prof, cprof))][::order]
    dask.local.get_sync(dsk, [("b", n) for n in range(20)], callbacks=callbacks)
    collected = {row["key"]: row["collected"] for row in prof.recording.tasks.to_dicts()}
    assert len(cprof.results) == 40
    for (name, n), _, metric, start, stop in cprof.results:
        assert (metric, start) == (n + 1, collected[str((name, n))])
        assert name == "b" or stop == collected[str(("b", n))]


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        (lambda value: 1 / 0, "ZeroDivisionError"),
        (lambda value: "large", "TypeError"),
        (lambda value: 10**400, "OverflowError"),
        (lambda value: float("inf"), "ValueError"),
    ],
)
def test_a_metric_that_fails_is_reported_and_does_not_end_the_compute(metric, error):
    with CacheProfiler(metric=metric) as cprof:
        assert dask.local.get_sync(CHAIN, ("c", 0)) == 5
    assert np.isnan([result.metric for result in cprof.results]).tolist() == [True] * 3
    assert "failed on 3 results" in cprof.summary()
    assert error in cprof.summary()
    cprof.visualize(show=False, save=False)
