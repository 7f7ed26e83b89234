"""The data that a graph gives to its tasks: how much there is, of what is known."""

from __future__ import annotations

import gc
import weakref
from functools import partial

import dask
import dask.array as da
import dask.threaded
import numpy as np
import pytest

from dask_diag import Profiler
from dask_diag.capture import results

MB = 1_000_000
SMALL = 20_000
"""Bytes of what is in these graphs besides: keys, numbers, texts."""


def array(size=MB):
    return np.zeros(size, np.uint8)


def use(*values, **named):
    return 1


def bytes_of(graph, **settings):
    keys = settings.pop("keys", [*graph])
    with Profiler() as prof:
        dask.threaded.get(graph, keys, num_workers=2)
    return prof.recording.computations.graph_bytes.item()


def bytes_of_delayed(*calls):
    with Profiler() as prof:
        dask.compute(*calls, scheduler="sync")
    return prof.recording.computations.graph_bytes.item()


def test_arguments_count_for_each_task():
    values = array()
    graph = {("use", n): (use, values) for n in range(5)}
    assert bytes_of(graph) == pytest.approx(5 * MB, abs=SMALL)


def test_data_count_for_each_task_that_depends_on_them():
    graph = {"data": array(), **{("use", n): (use, "data", n) for n in range(5)}}
    assert bytes_of(graph) == pytest.approx(5 * MB, abs=SMALL)
    # Nothing is sent of what no task needs.
    graph = {"data": array(), "use": (use, 1)}
    assert bytes_of(graph, keys=["use", "data"]) < SMALL


def test_named_arguments_lists_and_tasks_in_tasks():
    assert bytes_of_delayed(dask.delayed(use)(named=array())) == pytest.approx(MB, abs=SMALL)
    assert bytes_of_delayed(dask.delayed(use)([array(), [array()]])) == pytest.approx(
        2 * MB, abs=SMALL
    )
    assert bytes_of({"x": (use, (use, array()), array())}) == pytest.approx(2 * MB, abs=SMALL)


def test_closures_defaults_partial_functions_and_methods():
    values = array()

    def closure(n):
        return values[n]

    def default(n, values=values):
        return values[n]

    def inner(n):
        return [closure(m) for m in range(n)]

    functions = closure, default, partial(use, values), partial(use, named=values), inner
    for function in functions:
        graph = {("use", n): (function, n) for n in range(3)}
        assert bytes_of(graph) == pytest.approx(3 * MB, abs=SMALL)
    assert bytes_of({"x": (values.sum,)}) == pytest.approx(MB, abs=SMALL)
    assert bytes_of({"x": (len, "text")}) < SMALL


def test_globals_count_where_a_function_is_pickled_by_value(monkeypatch):
    monkeypatch.setitem(globals(), "LARGE", array())
    graph = {("use", n): (uses_global, n) for n in range(3)}
    # Worker processes import this module.
    assert bytes_of(graph) < SMALL
    monkeypatch.setattr(uses_global, "__module__", "__main__")
    assert bytes_of(graph) == pytest.approx(3 * MB, abs=SMALL)


def uses_global(n):
    return [LARGE[m] for m in range(n)]  # noqa: F821


def test_functions_that_refer_to_themselves_and_to_nothing_yet():
    values = array()

    def recursive(n):
        return values[0] + recursive(n - 1) + later if n else 0

    if not MB:
        later = 1
    assert bytes_of({"x": (recursive, 0)}) == pytest.approx(MB, abs=SMALL)


def test_results_of_tasks_are_no_data_of_the_graph():
    with Profiler() as prof:
        da.ones(10 * MB, chunks=MB).sum().compute(scheduler="sync")
    assert prof.recording.computations.graph_bytes.item() < 10 * SMALL


def test_chunks_of_an_array_in_memory():
    with Profiler() as prof:
        (da.from_array(np.zeros(MB), chunks=MB // 10) + 1).sum().compute(scheduler="sync")
    assert prof.recording.computations.graph_bytes.item() == pytest.approx(8 * MB, rel=0.05)


class Lazy:
    """As an array in a file: it says how large it is, and is pickled as a name."""

    nbytes = 10**12
    dtype = np.dtype(float)
    shape = (10**12 // 8,)


def test_what_only_refers_to_data_is_not_counted():
    assert bytes_of({"x": (use, Lazy())}) < SMALL


class Hostile:
    def __getattribute__(self, name):
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise RuntimeError(name)


def test_what_cannot_be_looked_at_is_left_out():
    graph = {"x": (use, Hostile(), array()), "y": (use, {1: Hostile()})}
    assert bytes_of(graph) == pytest.approx(MB, abs=SMALL)


def test_a_fault_leaves_tasks_measured(monkeypatch):
    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(results, "bytes_in_graph", fail)
    with Profiler() as prof:
        dask.threaded.get({"x": (use, 1)}, ["x"])
    assert np.isnan(prof.recording.computations.graph_bytes).all()
    assert len(prof.recording.tasks) == 1
    assert "planted" in prof.recording.notices[0]


@pytest.mark.parametrize("count", [50, 51, 1000])
def test_large_graphs_are_estimated_from_some_of_their_tasks(count, monkeypatch):
    looked_at = []
    of = results._Sizes.of

    def counted(self, value, depth=0):
        looked_at.append(depth)
        return of(self, value, depth)

    monkeypatch.setattr(results._Sizes, "of", counted)
    graph = {("use", n): (use, array(1000)) for n in range(count)}
    assert bytes_of(graph) == pytest.approx(count * 1000, rel=0.1)
    assert looked_at.count(0) <= results._MOST_TASKS


def test_nothing_stays_alive():
    class Values(np.ndarray):
        pass

    values = array().view(Values)
    reference = weakref.ref(values)
    with Profiler() as prof:
        dask.threaded.get({"x": (use, values)}, ["x"])
    del values
    gc.collect()
    assert reference() is None
    assert len(prof.recording.tasks) == 1
