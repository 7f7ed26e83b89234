"""When diagnostics are active: blocks, registration, overlap, nesting, and what others see."""

from __future__ import annotations

import contextlib
import gc
import sys
import threading
import types
import weakref
from operator import add

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import Callback, normalize_callback
from dask.diagnostics import CacheProfiler as DasksCacheProfiler
from dask.diagnostics import Profiler as DasksProfiler

from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, visualize
from dask_diag.errors import TaskNotRetainedError

DSK = {"a": 1, "b": (add, "a", 1), "c": (add, "b", 1)}


def keys(prof):
    return sorted(row["key"] for row in prof.recording.tasks.to_dicts())


class Events(Callback):
    """A third party's callback: what it is called with, and the entry of the graph at that time."""

    def __init__(self):
        self.reported = []
        self.tasks = []

    def _start(self, dsk):
        self.reported.append("start")

    def _pretask(self, key, dsk, state):
        self.reported.append(("pre", key))
        self.tasks.append(type(dsk[key]).__name__)

    def _posttask(self, key, result, dsk, state, worker_id):
        self.reported.append(("post", key))

    def _finish(self, dsk, state, failed):
        self.reported.append("finish")
        self.tasks += [type(dsk[key]).__name__ for key in state["finished"]]


def overlapping(first_graph, second_graph, get=dask.threaded.get):
    """Run two computations so that the second begins in the first, and ends after it."""
    first_began, second_began, first_ended = (threading.Event() for _ in range(3))

    def in_first(x):
        first_began.set()
        assert second_began.wait(10)
        return x

    def in_second(x):
        second_began.set()
        assert first_ended.wait(10)
        return x

    def run_first():
        get({"i-0": (in_first, 1), **first_graph}, ["i-0", *first_graph])
        first_ended.set()

    def run_second():
        assert first_began.wait(10)
        get({"j-0": (in_second, 1), **second_graph}, ["j-0", *second_graph])

    threads = [threading.Thread(target=run) for run in (run_first, run_second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


@pytest.mark.parametrize("third_party", [Events, DasksProfiler, DasksCacheProfiler])
def test_overlapping_computes_are_recorded_and_end_no_registration(third_party):
    prof, peer = Profiler(), third_party()
    with registered(prof, peer):
        overlapping({"i-1": (add, 1, 2)}, {"j-1": (add, 1, 2)})
        assert keys(prof) == ["i-0", "i-1", "j-0", "j-1"]
        assert len(prof.recording.computations) == 2
        assert "Overlapping  1 computation started before another stopped" in prof.summary()
        heard = len(getattr(peer, "reported", ())) + len(getattr(peer, "results", ()))
        dask.threaded.get(DSK, "c")
        assert len(getattr(peer, "reported", ())) + len(getattr(peer, "results", ())) > heard
        assert keys(prof) == ["b", "c", "i-0", "i-1", "j-0", "j-1"]
    dask.threaded.get(DSK, "c")
    assert len(keys(prof)) == 6


@contextlib.contextmanager
def registered(*diagnostics):
    for diagnostic in diagnostics:
        diagnostic.register()
    try:
        yield
    finally:
        for diagnostic in diagnostics:
            diagnostic.unregister()


def test_a_third_partys_callback_hears_what_it_would_without_us():
    with Events() as alone:
        dask.local.get_sync(DSK, "c")
    with Profiler() as prof, Events() as beside, CacheProfiler():
        with DasksProfiler() as peer, DasksCacheProfiler() as their_cache:
            dask.local.get_sync(DSK, "c")
    assert (beside.reported, beside.tasks) == (alone.reported, alone.tasks)
    assert sorted(r.key for r in peer.results) == keys(prof) == ["b", "c"]
    types = {type(r.task).__name__ for r in (*peer.results, *their_cache.results)}
    assert types == set(alone.tasks) == {"Task"}


@pytest.mark.parametrize(
    ("outer", "inner"),
    [
        (dask.local.get_sync, dask.threaded.get),
        (dask.threaded.get, dask.local.get_sync),
        (dask.threaded.get, dask.threaded.get),
        (dask.multiprocessing.get, dask.local.get_sync),
    ],
)
def test_a_compute_nested_in_a_task_counts_once(outer, inner):
    def nested(x):
        return inner({"p-0": (add, x, 1), "q-0": (add, "p-0", 1)}, "q-0")

    with Events() as peer, Profiler() as prof:
        assert outer({"outer-0": (nested, 1)}, "outer-0", num_workers=2) == 3
    assert keys(prof) == ["outer-0"]
    assert [event for event in peer.reported if "p-0" in event] == []


@pytest.mark.parametrize("make", [Profiler, CacheProfiler, lambda: ResourceProfiler(0.01)])
def test_blocks_may_be_nested_repeated_and_in_a_registration(make):
    prof = make()
    with registered(prof):
        with prof:
            dask.threaded.get(DSK, "c")
        dask.threaded.get(DSK, "c")
        assert len(prof.recording.computations) == 2
        visualize(prof, show=False, save=False)
    with prof:
        dask.threaded.get(DSK, "c")
        with prof:
            dask.threaded.get(DSK, "c")
        dask.threaded.get(DSK, "c")
    # Entering again starts afresh.
    assert len(prof.recording.computations) == 3
    prof.clear()
    assert len(prof.recording.computations) == len(prof.results) == 0
    assert prof.start_time is None
    with pytest.raises(KeyError, match="register"):
        prof.unregister()


def test_visualize_and_summary_inside_the_block_and_while_registered():
    seen = []

    def look(x):
        for diagnostic in (prof, cprof, rprof):
            diagnostic.visualize(show=False, save=False)
            seen.append(diagnostic.summary())
        return x

    prof, cprof, rprof = Profiler(), CacheProfiler(), ResourceProfiler(0.01)
    with registered(rprof), prof, cprof:
        dask.threaded.get({**DSK, "d": (look, "c")}, "d")
    assert "look" in seen[0]
    assert "1 unfinished" in seen[0]


def test_a_subclass_may_extend_the_hooks_and_a_callback_may_be_given():
    class Counting(Profiler):
        count = 0

        def _posttask(self, *args):
            super()._posttask(*args)
            self.count += 1

    with Counting() as prof:
        for _ in range(2):
            dask.threaded.get(DSK, "c")
    assert prof.count == len(prof.results) == 4
    assert keys(prof) == ["b", "b", "c", "c"]
    task = prof.results[0].task
    assert "add" in repr(task)
    with pytest.raises(TaskNotRetainedError, match="do not keep arguments"):
        task({})

    # Hooks of one that leave the package's out take nothing from the others.
    class Silent(Profiler):
        def _posttask(self, *args):
            self.count = getattr(self, "count", 0) + 1

    with Silent() as silent, Profiler() as prof:
        dask.threaded.get(DSK, "c")
    assert silent.count == 2
    assert keys(prof) == ["b", "c"]
    prof = Profiler()
    dask.local.get_sync(DSK, "c", callbacks=[normalize_callback(prof)])
    assert keys(prof) == ["b", "c"]


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
def test_arrays_die_after_the_block(get):
    died = []

    def make():
        array = np.ones(10).view(type("Array", (np.ndarray,), {}))
        weakref.finalize(array, died.append, 1)
        return array

    dsk = {("m", 0): (make,), ("n", 0): (lambda a, b: float(a.sum()), ("m", 0), make())}
    with Profiler() as prof, CacheProfiler(metric=lambda x: 1) as cprof, ProgressBar(10):
        get(dsk, ("n", 0))
    kept = prof.results, cprof.results, prof.recording, cprof.recording
    del dsk
    gc.collect()
    assert died == [1, 1]
    assert [len(results) for results in kept[:2]] == [2, 2]


def test_what_cannot_be_seen_is_reported(monkeypatch):
    fake = types.ModuleType("distributed")
    fake.default_client = lambda: "<Client: 2 workers>"
    with monkeypatch.context() as patch:
        patch.setitem(sys.modules, "distributed", fake)
        with Profiler() as prof:
            pass
        text = " ".join(prof.summary().split())
    assert "no computation ran on dask's local schedulers" in text
    assert "<Client: 2 workers>" in text
    monkeypatch.setattr("dask_diag.hooks.inside.dasks_own", None)
    with Profiler() as prof:
        dask.threaded.get(DSK, "c")
    assert keys(prof) == ["b", "c"]
    assert "only the first of several overlapping computations" in " ".join(prof.summary().split())


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
@pytest.mark.parametrize("outer", [None, Profiler])
def test_what_is_entered_in_a_task_sees_the_computations_in_it(get, outer):
    class Keys(Callback):
        def _start(self, dsk):
            self.keys = list(dsk)

    inner, around, prof = Keys(), Keys(), Profiler()

    def nested(x):
        with inner, prof:
            get({"not seen by the others": (int, x)}, "not seen by the others")
        get({"seen by none": (int, x)}, "seen by none")
        return x

    with around, outer() if outer else contextlib.nullcontext() as outermost:
        get({"outer": (nested, 1)}, "outer")
    assert around.keys == ["outer"]
    assert inner.keys == ["not seen by the others"]
    assert prof.recording.tasks.key.tolist() == inner.keys
    if outer:
        assert outermost.recording.tasks.key.tolist() == ["outer"]
