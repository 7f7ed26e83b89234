"""What `record` does while tasks run, where it can be counted."""

from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from dask_diag.builders import incremental_results
from dask_diag.builders.incremental_results import IncrementalCachedResults
from dask_diag.builders.keys import keys_columns
from dask_diag.capture.cached_results import CachedResults
from dask_diag.capture.computation import Computation
from dask_diag.capture.result_sizes import ResultSizes


@pytest.fixture
def as_text(monkeypatch):
    """The keys of results that were made into text, each time."""
    made = []

    def counted(keys, named):
        made.extend(keys)
        return keys_columns(keys, named)

    monkeypatch.setattr(incremental_results, "keys_columns", counted)
    return made


def test_keys_of_cached_results_are_made_into_text_once_however_often_they_are_written(as_text):
    results = CachedResults({})
    results.cached |= {("held", n): (8, 1.0) for n in range(100)}
    incremental = IncrementalCachedResults(lambda: [(computation, results)])
    computation = Computation({})
    rounds = [incremental.take()[1]["cached_results"] for _ in range(10)]
    assert [len(table) for table in rounds] == [100] * 10
    assert len(as_text) == 100


@pytest.mark.parametrize("seed", range(5))
def test_cached_results_are_those_of_the_moment_as_they_come_and_go(seed, as_text):
    chance = random.Random(seed)
    results, computation = CachedResults({}), Computation({})
    incremental = IncrementalCachedResults(lambda: [(computation, results)])
    expected_released = []
    for step in range(12):
        for n in range(chance.randrange(4)):
            # Keys of two kinds, whose texts are made in different ways; and one without a name.
            key = chance.choice([("held", step, n), f"text-{step}-{n}", step * 10 + n])
            results.cached[key] = (chance.randrange(99), float(step))
        released = chance.sample(list(results.cached), len(results.cached) // 3)
        results.release(released, {*released}, step + 0.5)
        new, now = (tables["cached_results"] for tables in incremental.take())
        assert new["key"].tolist() == list(map(str, released))
        expected_released += released
        columns = ("key", "metric", "start") if len(now) else ()
        rows = list(zip(*(now[name].tolist() for name in columns), strict=True))
        assert rows == [(str(key), *value) for key, value in results.cached.items()]
    # Once while a result is cached, and once when it was released.
    assert len(as_text) <= 2 * (len(expected_released) + len(results.cached))


def calls_of(work):
    """How many functions a call of `work` calls, of Python and of C."""
    count = 0

    def counted(frame, event, argument):
        nonlocal count
        count += event in ("call", "c_call")

    sys.setprofile(counted)
    try:
        work()
    finally:
        sys.setprofile(None)
    # Without `work` itself, and the last call of `setprofile`.
    return count - 2


def test_a_result_of_a_reduction_is_measured_in_few_calls():
    # What `dask.array` makes of each chunk for a mean.
    result = {"n": np.ones((1, 9)), "total": np.ones((1, 9))}
    sizes = ResultSizes()
    measured = sizes.size_of(result)
    assert measured == sum(map(sys.getsizeof, [result, "n", "total"])) + 2 * 72
    assert calls_of(lambda: sizes.size_of(result)) <= 18


def test_a_result_that_is_released_takes_few_calls():
    results = CachedResults({})
    results.cached |= {("held", n): (8, 1.0) for n in range(100)}
    keys = list(results.cached)
    two, ninety, everything = keys[:2], keys[2:92], set(keys)
    calls = [
        calls_of(lambda some=some: results.release(some, everything, 2.0)) / len(some)
        for some in (two, ninety)
    ]
    assert max(calls) <= 4
    assert list(results.cached) == keys[92:]
    assert results.keys == keys[:92]
