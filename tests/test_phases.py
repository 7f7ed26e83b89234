"""Where the wall time of a recording went, before, between and after computations."""

import threading
import time

import dask
import numpy as np
import pytest
from dask.base import DaskMethodsMixin, get_scheduler, unpack_collections
from hypothesis import given
from hypothesis import strategies as st

from dask_diag import (
    CacheProfiler,
    Profiler,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    combine,
)
from dask_diag.analysis.phases import phase_intervals, phases
from dask_diag.model.codes import PHASES

from .recordings import with_tables


def recording(start, stop, computations, tasks=()):
    """Computations are (called, stop), tasks (computation, start)."""
    named = [str(index) for index in range(len(computations))]
    called, stops = zip(*computations) if computations else ((), ())
    of, starts = zip(*tasks) if tasks else ((), ())
    return with_tables(
        Recording(start=start, stop=stop, epoch=0.0),
        computations={"computation": named, "called": called, "start": called, "stop": stops},
        tasks={"computation": list(map(str, of)), "start": starts},
    )


def seconds_of(measured):
    table = phases(measured)
    return dict(zip(table["phase"].tolist(), table["seconds"].tolist()))


@pytest.mark.parametrize(
    "start, stop, computations, tasks, expected",
    [
        (0, 10, [], [], {"before": 10}),
        (0, 10, [(2, 7)], [(0, 3), (0, 5)], {"before": 2, "preparing": 1, "tasks": 4, "after": 3}),
        # Tasks were not recorded: they ran once the graph was in order.
        (0, 4, [(1, 3)], [], {"before": 1, "tasks": 2, "after": 1}),
        (0, 4, [(1, 3)], [(0, np.nan)], {"before": 1, "preparing": 2, "after": 1}),
        (
            0,
            9,
            [(1, 3), (5, 9)],
            [(0, 1), (1, 6)],
            {"before": 1, "preparing": 1, "tasks": 5, "between": 2},
        ),
        # Of the second one no task is known to have started: it prepared until it stopped.
        (
            0,
            10,
            [(1, 3), (5, 9)],
            [(0, 2)],
            {"before": 1, "preparing": 1 + 4, "tasks": 1, "between": 2, "after": 1},
        ),
        # Two that overlap: what one prepares while the other runs tasks is time of tasks.
        (
            0,
            10,
            [(1, 6), (3, 9)],
            [(0, 2), (1, 8)],
            {"before": 1, "preparing": 3, "tasks": 5, "after": 1},
        ),
        # It was called before the recording began, and ended after it.
        (2, 5, [(1, 8)], [(0, 3)], {"preparing": 1, "tasks": 2}),
    ],
)
def test_each_second_has_one_phase(start, stop, computations, tasks, expected):
    measured = recording(start, stop, computations, tasks)
    assert seconds_of(measured) == {**dict.fromkeys(PHASES, 0.0), **expected}


moments = st.floats(0, 1000)


@given(
    moments,
    moments,
    st.lists(st.tuples(moments, moments).map(sorted), max_size=5),
    st.lists(moments, max_size=5),
)
def test_phases_sum_to_the_wall_without_gaps(one, other, computations, starts):
    start, stop = sorted((one, other))
    tasks = [(index, moment) for index, moment in enumerate(starts[: len(computations)])]
    measured = recording(start, stop, computations, tasks)
    intervals = phase_intervals(measured)
    assert sum(seconds_of(measured).values()) == pytest.approx(stop - start, abs=1e-9)
    edges = [start, *intervals["stop"].tolist()] if len(intervals) else [start]
    assert intervals["start"].tolist() == edges[:-1]
    assert edges[-1] == (stop if len(intervals) else start)
    names = intervals["phase"].tolist()
    assert all(phase != following for phase, following in zip(names, names[1:]))


@pytest.mark.parametrize(
    "calls, computations, expected",
    [
        # From the last task until it returned; a call that computed nothing finishes nothing.
        ([(2, 8), (8.5, 9)], [(2, 6)], {"before": 2, "tasks": 4, "finishing": 2, "after": 2}),
        # One of two that overlap finishes beside tasks of the other, and after them.
        ([(1, 6), (2, 9)], [(1, 4), (2, 7)], {"before": 1, "tasks": 6, "finishing": 2, "after": 1}),
        ([(1, 9), (3, 4)], [(1, 2), (3, 4)], {"before": 1, "tasks": 2, "finishing": 6, "after": 1}),
        # It returned before its computation stopped, as `persist` on a cluster does.
        ([(1, 2)], [(1, 6)], {"before": 1, "tasks": 5, "after": 4}),
    ],
)
def test_finishing_lasts_until_dask_returns(calls, computations, expected):
    called, returned = zip(*calls)
    measured = with_tables(
        recording(0, 10, computations), calls={"called": called, "returned": returned}
    )
    assert seconds_of(measured) == {**dict.fromkeys(PHASES, 0.0), **expected}


class Slow(DaskMethodsMixin):
    """A collection that takes its time to make its graph."""

    def __init__(self, seconds, task=lambda: 1):
        self.seconds, self.task = seconds, task
        self.made = 0

    def __dask_graph__(self):
        self.made += 1
        time.sleep(self.seconds)
        return {"slow": (self.task,)}

    def __dask_keys__(self):
        return ["slow"]

    def __dask_layers__(self):
        return ("slow",)

    def __dask_tokenize__(self):
        return id(self)

    def __dask_postcompute__(self):
        return lambda results: results[0], ()

    __dask_scheduler__ = staticmethod(dask.threaded.get)
    __dask_optimize__ = staticmethod(lambda graph, keys, **kwargs: graph)


def nap():
    time.sleep(0.2)


def test_making_the_graph_is_preparing(retried):
    def measure():
        with Profiler() as prof:
            time.sleep(0.3)
            slow = Slow(0.4, nap)
            slow.compute()
            time.sleep(0.1)
        seconds = seconds_of(prof.recording)
        computation = prof.recording.computations
        made = computation.start[0] - computation.called[0]
        assert seconds["before"] == pytest.approx(0.3, abs=0.05)
        # Versions of dask make the graph of such a collection once to four times.
        assert made == pytest.approx(0.4 * slow.made, abs=0.1)
        assert seconds["preparing"] == pytest.approx(made, abs=0.05)
        assert seconds["tasks"] == pytest.approx(0.2, abs=0.05)
        assert seconds["after"] == pytest.approx(0.1, abs=0.05)

    retried(measure)


@pytest.mark.parametrize("method", ["compute", "persist"])
def test_functions_of_dask_note_when_they_were_called(method):
    with Profiler() as prof:
        before = time.perf_counter()
        getattr(dask, method)(dask.delayed(nap)())
        after = time.perf_counter()
    row = prof.recording.computations
    times = [before, row.called[0], row.start[0], row.prepared[0], row.stop[0], after]
    assert times == sorted(times)
    assert row.called[0] < row.start[0]


@pytest.mark.parametrize("kind", [Profiler, CacheProfiler, ResourceProfiler, SamplingProfiler])
def test_a_call_is_noted_once_and_by_all_who_are_active(kind):
    with kind() as outer:
        with Profiler() as inner:
            # Calls in tasks are none of the program, as computations in tasks are not.
            dask.compute(dask.delayed(lambda: dask.delayed(nap)().compute())())
        with pytest.raises(ZeroDivisionError):
            dask.compute(dask.delayed(lambda: 1 / 0)())
        dask.persist(dask.delayed(nap)())
    assert (len(inner.recording.calls), len(outer.recording.calls)) == (1, 2)
    assert len(combine([inner, outer]).calls) == 2
    outer.clear()
    assert not len(outer.recording.calls)


def test_a_graph_that_is_handed_to_a_scheduler_was_called_when_it_started():
    with Profiler() as prof:
        dask.compute(dask.delayed(nap)())
        dask.get({"x": (nap,)}, "x")
    row = prof.recording.computations
    assert row.called[1] == row.start[1]


def test_a_graph_that_computes_while_it_is_made():
    class Nested(Slow):
        def __dask_graph__(self):
            Slow(0.01).compute()
            return super().__dask_graph__()

    with Profiler() as prof:
        Nested(0.02).compute()
    row = prof.recording.computations
    *inner, outer = row.called.tolist()
    assert inner
    assert all(outer < moment for moment in inner)
    assert sum(seconds_of(prof.recording).values()) == pytest.approx(
        prof.recording.stop - prof.recording.start, abs=1e-9
    )


def test_threads_have_their_own_calls():
    barrier = threading.Barrier(2)

    class Met(Slow):
        def __dask_graph__(self):
            barrier.wait(timeout=60)
            return super().__dask_graph__()

        def __dask_keys__(self):
            return [f"slow-{id(self)}"]

    def run():
        Met(0.0).compute()

    with Profiler() as prof:
        threads = [threading.Thread(target=run) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    row = prof.recording.computations
    assert (row.called < row.start).all()
    assert len(row) == 2


def test_dask_is_as_it_was_afterwards():
    with Profiler():
        assert dask.base.unpack_collections is not unpack_collections
        assert dask.base.unpack_collections.__name__ == "unpack_collections"
        Slow(0.0).compute()
    assert dask.base.unpack_collections is unpack_collections
    assert dask.base.get_scheduler is get_scheduler
