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
from dask_diag.profilers import engine

MB = 1_000_000
SMALL = 20_000
"""Bytes of what is in these graphs besides: keys, numbers, texts."""


def array(size=MB):
    return np.zeros(size, np.uint8)


def use(*values, **named):
    return 1


def measured(graph):
    with Profiler() as prof:
        dask.threaded.get(graph, [*graph], num_workers=2)
    return prof.recording.computations.graph_bytes.item()


def of_each(function, *args):
    """Three tasks of a function, each with a number."""
    return {("use", n): (function, *args, n) for n in range(3)}


class Lazy:
    """As an array in a file: it says how large it is, and is pickled as a name."""

    nbytes = 10**12
    dtype = np.dtype(float)
    shape = (10**12 // 8,)


class Hostile:
    def __getattribute__(self, name):
        if name.startswith("__"):
            return object.__getattribute__(self, name)
        raise RuntimeError(name)


VALUES = array()


def functions_that_hold_values():
    values = array()

    def closure(n):
        return values[n]

    def default(n, values=values):
        return values[n]

    def inner(n):
        return [closure(m) for m in range(n)]

    def recursive(n):
        return values[0] + recursive(n - 1) + later if n else 0

    if not MB:
        later = 1
    return closure, default, inner, recursive


@pytest.mark.parametrize(
    ("graph", "megabytes"),
    [
        # Arguments count for each task, and so do data for each that depends on them.
        (of_each(use, VALUES), 3),
        ({"data": VALUES, **of_each(use, "data")}, 3),
        # Nothing is sent of what no task needs.
        ({"data": VALUES, "use": (use, 1)}, 0),
        ({"x": (use, (use, array()), array())}, 2),
        *((of_each(function), 3) for function in functions_that_hold_values()[:3]),
        *(
            (of_each(partial(use, *args, **named)), 3)
            for args, named in [([VALUES], {}), ([], {"named": VALUES})]
        ),
        ({"x": (functions_that_hold_values()[3], 0)}, 1),
        ({"x": (VALUES.sum,)}, 1),
        ({"x": (len, "text")}, 0),
        # What only refers to data, and what cannot be looked at.
        ({"x": (use, Lazy())}, 0),
        ({"x": (use, Hostile(), VALUES), "y": (use, {1: Hostile()})}, 1),
    ],
)
def test_bytes_of_graphs(graph, megabytes):
    assert measured(graph) == pytest.approx(megabytes * MB, abs=SMALL)


@pytest.mark.parametrize(
    ("make", "megabytes"),
    [
        (lambda: dask.delayed(use)(named=array()), 1),
        (lambda: dask.delayed(use)([array(), [array()]]), 2),
        # Results of tasks are no data of the graph; chunks of an array in memory are.
        (lambda: da.ones(10 * MB, chunks=MB).sum(), 0),
        (lambda: (da.from_array(np.zeros(MB), chunks=MB // 10) + 1).sum(), 8),
    ],
)
def test_bytes_of_collections(make, megabytes):
    with Profiler() as prof:
        make().compute(scheduler="sync")
    nbytes = prof.recording.computations.graph_bytes.item()
    assert nbytes == pytest.approx(megabytes * MB, abs=10 * SMALL)


def test_globals_count_where_a_function_is_pickled_by_value(monkeypatch):
    monkeypatch.setitem(globals(), "LARGE", array())
    # Worker processes import this module.
    assert measured(of_each(uses_global)) < SMALL
    monkeypatch.setattr(uses_global, "__module__", "__main__")
    assert measured(of_each(uses_global)) == pytest.approx(3 * MB, abs=SMALL)


def uses_global(n):
    return [LARGE[m] for m in range(n)]  # noqa: F821


def test_a_fault_leaves_tasks_measured(monkeypatch):
    def fail(*_):
        raise RuntimeError("planted")

    monkeypatch.setattr(engine, "bytes_in_graph", fail)
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
    assert measured(graph) == pytest.approx(count * 1000, rel=0.1)
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
