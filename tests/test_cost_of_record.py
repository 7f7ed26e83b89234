"""What `record` does while tasks run, where it can be counted."""

from __future__ import annotations

import sys

import numpy as np
from dask.callbacks import normalize_callback
from dask.local import get_sync

from dask_diag import CacheProfiler, Profiler
from dask_diag.capture.increments import TaskTables
from dask_diag.capture.results import ResultSizes
from dask_diag.capture.results_table import ResultCache
from dask_diag.columns import Categorical, PrefixStrings
from dask_diag.model.table import Table


def came(columns, dependents, counts=(), depends_on=()):
    """Results that came one after the other, at 1, 2, … seconds."""
    count = len(columns)
    dependencies = list(counts) or [0] * count, list(depends_on)
    return columns, [8] * count, np.arange(1.0, count + 1), dependents, dependencies


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
    assert calls_of(lambda: sizes.size_of(result)) <= 10


def test_what_is_found_of_many_results_takes_no_more_calls_than_of_few():
    def calls(count):
        results, rows = ResultCache(), Table({"row": np.arange(count)})
        results.add(*came(rows, [1] * count))
        new = came(rows, [0] * count, [1] * count, range(count))
        calls = calls_of(lambda: results.add(*new))
        assert len(results.columns) == count
        return calls

    assert calls(2_000) == calls(20) < 200


def test_a_result_takes_few_calls_while_tasks_run():
    cprof = CacheProfiler(ResultSizes())
    ((start, start_state, _, posttask, finish),) = cprof.share([normalize_callback(cprof)])
    counts, array = [], np.ones(3)

    def counted(key, value, *others):
        counts.append(calls_of(lambda: posttask(key, array, *others)))

    callback = (start, start_state, None, counted, finish)
    dsk = {("f", n): (abs, n) for n in range(9)}
    get_sync(dsk, list(dsk), callbacks=[callback])
    assert len(cprof.results) == 9
    # Its clock, its size, its row and its key.
    assert max(counts[1:]) <= 10


def test_names_of_results_that_are_cached_no_more_do_not_gather():
    results = ResultCache()
    texts = [["('held', 0)"], *([f"('{step}-{n}', 0)" for n in range(10)] for step in range(200))]
    for step, keys in enumerate(texts):
        # Each of another name, as those of `dask.delayed` are; those before are taken.
        columns = Table({"key": PrefixStrings.of(keys), "function": Categorical.of(keys)})
        before = range(10 * (step - 2) + 1, 10 * (step - 1) + 1) if step > 1 else ()
        counts = [len(before), *[0] * (len(keys) - 1)]
        results.add(*came(columns, [int(step > 0)] * len(keys), counts, before))
        results.drop_names()
        assert len(results.columns) == (11 if step else 1)
        assert len(results.columns["key"].heads.values) <= 500
        assert results.columns["key"].tolist() == (["('held', 0)", *keys] if step else keys)


def test_a_computation_of_one_task_takes_a_bounded_number_of_calls_to_write():
    taken = []
    with Profiler() as prof:
        increments = TaskTables(prof.session)
        for _ in range(2):
            for _ in range(31):
                get_sync({("f", 0): (abs, 1)}, ("f", 0))
            calls = calls_of(lambda: taken.append(increments.take()))
    (first, _), (new, _) = taken
    assert len(first["tasks"]) == len(new["tasks"]) == len(new["computations"]) == 31
    # The first ones also read the text of this file, once.
    assert calls / 31 <= 200
