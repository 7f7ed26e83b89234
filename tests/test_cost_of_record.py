"""What `record` does while tasks run, where it can be counted."""

from __future__ import annotations

import random
import sys
from functools import partial

import numpy as np
import pytest
from dask.local import get_sync

from dask_diag import Profiler
from dask_diag.builders import incremental_results
from dask_diag.builders.incremental_results import IncrementalCachedResults
from dask_diag.builders.incremental_tasks import IncrementalTasks
from dask_diag.builders.keys import keys_columns
from dask_diag.builders.stacks import SeenBefore, stacks_as_seen
from dask_diag.capture.cached_results import CachedResults
from dask_diag.capture.computation import Computation
from dask_diag.capture.result_sizes import ResultSizes
from dask_diag.capture.sampling.bins import Run
from dask_diag.capture.sampling.call_tree import Stacks
from dask_diag.capture.sampling.stack_sample import Line
from dask_diag.capture.sampling.stack_walker import Stack


@pytest.fixture
def as_text(monkeypatch):
    """The keys of results that were made into text, each time."""
    made = []

    def counted(keys, named):
        made.extend(keys)
        return keys_columns(keys, named)

    monkeypatch.setattr(incremental_results, "keys_columns", counted)
    return made


def with_results(keys=()):
    """Results that came at 1 s and have 8 bytes; `come` and `release` go on with them."""
    results = CachedResults({})
    results.state = {"dependencies": {}, "dependents": {}, "released": set()}
    come(results, dict.fromkeys(keys, (8, 1.0)))
    return results


def come(results, values):
    for key, value in values.items():
        results.new_numbers.extend(value)
        results.new_keys.append(key)


def release(results, keys, time):
    """The last task comes that depends on these, and is released itself at once."""
    last = ("last", time)
    results.state["dependencies"][last] = list(keys)
    results.state["dependents"].update({key: {last} for key in keys})
    results.state["released"].update(keys)
    come(results, {last: (1, time)})
    results.released_and_cached(0)
    del results.cached[last]


def test_keys_of_cached_results_are_made_into_text_once_however_often_they_are_written(as_text):
    results = with_results(("held", n) for n in range(100))
    incremental = IncrementalCachedResults(lambda: [(computation, results)])
    computation = Computation({})
    rounds = [incremental.take()[1]["cached_results"] for _ in range(10)]
    assert [len(table) for table in rounds] == [100] * 10
    assert len(as_text) == 100


@pytest.mark.parametrize("seed", range(5))
def test_cached_results_are_those_of_the_moment_as_they_come_and_go(seed, as_text):
    chance = random.Random(seed)
    results, computation = with_results(), Computation({})
    incremental = IncrementalCachedResults(lambda: [(computation, results)])
    expected_released = []
    for step in range(12):
        for n in range(chance.randrange(4)):
            # Keys of two kinds, whose texts are made in different ways; and one without a name.
            key = chance.choice([("held", step, n), f"text-{step}-{n}", step * 10 + n])
            come(results, {key: (chance.randrange(99), float(step))})
        cached = list(results.released_and_cached(0)[1])
        released = chance.sample(cached, len(cached) // 3)
        release(results, released, step + 0.5)
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
    keys = [("held", n) for n in range(100)]
    results = with_results(keys)
    results.released_and_cached(0)
    calls = [
        calls_of(partial(release, results, some, 2.0 + len(some))) / len(some)
        for some in (keys[:20], keys[20:92])
    ]
    # Of which five are those of `release` above, divided among 20.
    assert max(calls) <= 9
    assert list(results.cached) == keys[92:]
    assert results.keys == keys[:92]


def test_names_of_results_that_are_cached_no_more_do_not_gather():
    results, computation = with_results(), Computation({})
    incremental = IncrementalCachedResults(lambda: [(computation, results)])
    come(results, {("held", 0): (8, 1.0)})
    for step in range(200):
        # Each of another name, as those of `dask.delayed` are.
        come(results, {(f"{step}-{n}", 0): (8, 1.0) for n in range(10)})
        cached = results.released_and_cached(0)[1]
        old = [key for key in cached if not key[0].startswith(("held", f"{step}-"))]
        release(results, old, 2.0 + step)
        cached = incremental.take()[1]["cached_results"]
        assert len(cached) == 11
        assert len(cached["key"].heads.values) <= 500


def test_the_tree_of_calls_is_made_again_only_where_it_has_grown():
    lines = [Line(f"f{n}", "/x.py", n, n) for n in range(3)]
    stacks, before, task = Stacks(0.1), SeenBefore(), Run("f", ("f", 0))
    trees = []
    for count in (2, 2, 3, 3, 3):
        stacks.see(1.0, task, Stack(tuple(lines[:count])), 0.01, 0.01)
        seen = stacks_as_seen(stacks, 100, before=before)
        fresh = stacks_as_seen(stacks, 100)
        for name in ("frames", "call_tree", "samples"):
            assert seen[name].to_dicts() == fresh[name].to_dicts()
        trees.append(seen["call_tree"])
    assert [len(tree) for tree in trees] == [2, 2, 3, 3, 3]
    assert trees[0] is trees[1]
    assert trees[2] is trees[3] is trees[4]


def test_a_computation_of_one_task_takes_a_bounded_number_of_calls_to_write():
    with Profiler() as prof:
        for _ in range(31):
            get_sync({("f", 0): (abs, 1)}, ("f", 0))
    first = IncrementalTasks(prof.session)
    tables = []
    calls = calls_of(lambda: tables.append(first.take()[0]))
    assert len(tables[0]["tasks"]) == len(tables[0]["computations"]) == 31
    assert calls / 31 <= 850
