"""The cache profiler: what is held, from when until when, and at what cost."""

from __future__ import annotations

import functools
import time
from operator import add

import dask.array as da
import dask.local
import dask.threaded
import numpy as np
import pytest

from dask_diag import CacheProfiler
from dask_diag.analysis.step_functions import cached_levels

CHAIN = {("a", 0): (add, 1, 2), ("b", 0): (add, ("a", 0), 1), ("c", 0): (add, ("b", 0), 1)}


def held(cprof):
    return {row["function"]: row for row in cprof.recording.cached_results.to_dicts()}


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
def test_a_result_is_held_until_the_last_task_that_needs_it_is_done(get):
    dsk = {
        ("a", 0): (add, 1, 2),
        ("slow", 0): (lambda x: time.sleep(0.1) or x, ("a", 0)),
        ("quick", 0): (lambda x: x, ("a", 0)),
        ("end", 0): (add, ("slow", 0), ("quick", 0)),
    }
    with CacheProfiler() as cprof:
        assert get(dsk, ("end", 0)) == 6
    rows = held(cprof)
    assert rows["a"]["stop"] == max(rows["slow"]["start"], rows["quick"]["start"])
    assert rows["slow"]["stop"] == rows["quick"]["stop"] == rows["end"]["start"]
    assert rows["end"]["stop"] <= cprof.end_time


def test_a_result_that_was_asked_for_is_held_to_the_end():
    with CacheProfiler() as cprof:
        dask.local.get_sync(CHAIN, [("a", 0), ("c", 0)])
    rows = held(cprof)
    assert rows["a"]["stop"] == rows["c"]["stop"] > rows["c"]["start"]
    assert rows["b"]["stop"] == rows["c"]["start"]


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
        (None, "count", {1}),
        (functools.partial(lambda scale, value: scale, 3), "lambda", {3}),
        (lambda value: 0.5, "lambda", {0.5}),
        (lambda value: np.int64(5), "lambda", {5}),
        (Sized(), "Sized", {7}),
    ],
)
def test_any_callable_is_a_metric(metric, name, sizes):
    with CacheProfiler(metric=metric) as cprof:
        dask.local.get_sync(CHAIN, ("c", 0))
    assert {result.metric for result in cprof.results} == sizes
    assert name in cprof.metric_name
    assert cprof.recording.notices == ()
    assert CacheProfiler(metric=metric, metric_name="given").metric_name == "given"


@pytest.mark.parametrize(
    ("metric", "error"),
    [
        (lambda value: 1 / 0, "ZeroDivisionError"),
        (lambda value: "large", "TypeError"),
        (lambda value: None, "TypeError"),
        (lambda value: 10**400, "OverflowError"),
        (lambda value: float("inf"), "ValueError"),
    ],
)
def test_a_metric_that_fails_is_reported_and_does_not_end_the_compute(metric, error):
    with CacheProfiler(metric=metric) as cprof:
        assert dask.local.get_sync(CHAIN, ("c", 0)) == 5
    assert len(cprof.results) == 3
    assert all(np.isnan(result.metric) for result in cprof.results)
    assert "failed on 3 results" in cprof.summary()
    assert error in cprof.summary()
    cprof.visualize(show=False, save=False)


def test_a_metric_that_cannot_be_called_is_refused():
    with pytest.raises(TypeError, match="metric: expected a callable"):
        CacheProfiler(metric=3)


def test_the_metric_is_called_once_a_result():
    calls = []
    with CacheProfiler(metric=lambda value: calls.append(value) or 1) as cprof:
        dask.local.get_sync(CHAIN, ("c", 0))
    assert calls == [3, 4, 5]
    assert len(cprof.results) == 3


def test_results_cached_at_a_failure_are_recorded():
    dsk = {**CHAIN, ("bad", 0): (lambda x: 1 / 0, ("c", 0))}
    with CacheProfiler() as cprof, pytest.raises(ZeroDivisionError):
        dask.local.get_sync(dsk, ("bad", 0))
    assert set(held(cprof)) == {"a", "b", "c"}


def test_work_per_task_does_not_grow_with_what_is_held():
    """Counted in calls of the interpreter, which no busy neighbour can change."""
    import sys

    def calls(tasks):
        dsk = {("x", n): (int,) for n in range(tasks)}
        cprof = CacheProfiler()
        count = 0

        def trace(frame, event, arg):
            nonlocal count
            count += event == "line" and "dask_diag/capture" in frame.f_code.co_filename
            return trace

        with cprof:
            sys.settrace(trace)
            try:
                dask.local.get_sync(dsk, list(dsk))
            finally:
                sys.settrace(None)
        return count

    assert calls(2000) < 2.2 * calls(1000)
    # A set the size of all that was done would not show in lines: see benchmarks/cache.py.
