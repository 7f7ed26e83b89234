"""When diagnostics are active: blocks, registration, overlap, nesting, and what others see."""

from __future__ import annotations

import contextlib
import gc
import threading
import time
import weakref
from operator import add

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.diagnostics import CacheProfiler as DasksCacheProfiler
from dask.diagnostics import Profiler as DasksProfiler

from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, visualize

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


def test_two_overlapping_computes_are_both_recorded():
    prof = Profiler()
    prof.register()
    try:
        overlapping({"i-1": (add, 1, 2)}, {"j-1": (add, 1, 2)})
        assert keys(prof) == ["i-0", "i-1", "j-0", "j-1"]
        assert len(prof.recording.computations) == 2
        assert "Overlapping  1 computation started before another stopped" in prof.summary()
        assert prof._callback in Callback.active
        dask.threaded.get(DSK, "c")
        assert keys(prof) == ["b", "c", "i-0", "i-1", "j-0", "j-1"]
    finally:
        prof.unregister()
    dask.threaded.get(DSK, "c")
    assert len(keys(prof)) == 6


@pytest.mark.parametrize("third_party", [Events, DasksProfiler, DasksCacheProfiler])
def test_a_third_partys_callback_outlives_an_overlap(third_party):
    peer = third_party()
    peer.register()
    try:
        with Profiler() as prof:
            overlapping({"i-1": (add, 1, 2)}, {"j-1": (add, 1, 2)})
            assert len(keys(prof)) == 4
        assert peer._callback in Callback.active
        before = len(getattr(peer, "reported", ())) + len(getattr(peer, "results", ()))
        dask.threaded.get(DSK, "c")
        assert len(getattr(peer, "reported", ())) + len(getattr(peer, "results", ())) > before
    finally:
        peer.unregister()


def test_a_third_partys_callback_hears_what_it_would_without_us():
    with Events() as alone:
        dask.local.get_sync(DSK, "c")
    with Profiler(), Events() as beside, CacheProfiler():
        dask.local.get_sync(DSK, "c")
    assert beside.reported == alone.reported
    assert beside.tasks == alone.tasks
    assert set(alone.tasks) == {"Task"}


def test_dasks_own_profilers_work_beside_these():
    with DasksProfiler() as peer, DasksCacheProfiler() as their_cache, Profiler() as prof:
        dask.threaded.get(DSK, "c")
    assert sorted(r.key for r in peer.results) == keys(prof) == ["b", "c"]
    assert {type(r.task).__name__ for r in peer.results} == {"Task"}
    assert {type(r.task).__name__ for r in their_cache.results} == {"Task"}


@pytest.mark.parametrize("inner", [dask.local.get_sync, dask.threaded.get])
@pytest.mark.parametrize(
    "outer", [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]
)
def test_a_compute_nested_in_a_task_counts_once(inner, outer):
    def nested(x):
        return inner({"p-0": (add, x, 1), "q-0": (add, "p-0", 1)}, "q-0")

    with Events() as peer, Profiler() as prof:
        assert outer({"outer-0": (nested, 1)}, "outer-0", num_workers=2) == 3
    assert keys(prof) == ["outer-0"]
    assert [event for event in peer.reported if "p-0" in event] == []


def test_a_profiler_that_starts_while_another_thread_computes_stays():
    began, go_on = threading.Event(), threading.Event()

    def wait(x):
        began.set()
        assert go_on.wait(10)
        return x

    other = threading.Thread(target=dask.threaded.get, args=({"w-0": (wait, 1)}, "w-0"))
    other.start()
    assert began.wait(10)
    prof = Profiler()
    prof.register()
    try:
        go_on.set()
        other.join()
        dask.threaded.get(DSK, "c")
        assert keys(prof) == ["b", "c"]
    finally:
        prof.unregister()


@pytest.mark.parametrize("make", [Profiler, CacheProfiler, lambda: ResourceProfiler(0.01)])
def test_register_then_with(make):
    prof = make()
    prof.register()
    try:
        with prof:
            dask.threaded.get(DSK, "c")
        assert prof._callback in Callback.active
        dask.threaded.get(DSK, "c")
        assert len(prof.recording.computations) == 2
        visualize(prof, show=False, save=False)
    finally:
        prof.unregister()
    visualize(prof, show=False, save=False)


@pytest.mark.parametrize("make", [Profiler, CacheProfiler, lambda: ResourceProfiler(0.01)])
def test_a_block_inside_a_block_of_the_same_object(make):
    prof = make()
    with prof:
        dask.threaded.get(DSK, "c")
        with prof:
            dask.threaded.get(DSK, "c")
        dask.threaded.get(DSK, "c")
    assert len(prof.recording.computations) == 3


def test_visualize_and_summary_inside_the_block_and_while_registered():
    seen = []

    def look(x):
        for diagnostic in (prof, cprof, rprof):
            diagnostic.visualize(show=False, save=False)
            seen.append(diagnostic.summary())
        return x

    prof, cprof, rprof = Profiler(), CacheProfiler(), ResourceProfiler(0.01)
    rprof.register()
    try:
        with prof, cprof:
            dask.threaded.get({**DSK, "d": (look, "c")}, "d")
            prof.visualize(show=False, save=False)
    finally:
        rprof.unregister()
    assert "look" in seen[0]
    assert "1 unfinished" in seen[0]


def test_the_same_keys_twice_are_two_sets_of_tasks():
    with Profiler() as prof:
        dask.threaded.get(DSK, "c")
        dask.threaded.get(DSK, "c")
    assert keys(prof) == ["b", "b", "c", "c"]
    assert len(prof.results) == 4


def test_entering_again_starts_afresh_and_clear_forgets():
    prof = Profiler()
    with prof:
        dask.threaded.get(DSK, "c")
    with prof:
        dask.threaded.get({"d": (add, 1, 1)}, "d")
    assert keys(prof) == ["d"]
    prof.clear()
    assert keys(prof) == []
    assert prof.results == []
    assert prof.start_time is None


def test_unregister_without_register_says_what_to_do():
    with pytest.raises(KeyError, match="register"):
        Profiler().unregister()


def test_an_explicit_callback_is_heard():
    prof = Profiler()
    dask.local.get_sync(DSK, "c", callbacks=[prof._callback])
    assert keys(prof) == ["b", "c"]


def test_a_subclass_may_extend_the_hooks():
    class Counting(Profiler):
        count = 0

        def _posttask(self, *args):
            super()._posttask(*args)
            self.count += 1

    with Counting() as prof:
        dask.threaded.get(DSK, "c")
    assert prof.count == len(prof.results) == 2


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
def test_arrays_die_after_the_block(get):
    class Array(np.ndarray):
        pass

    died = []

    def make():
        array = np.ones(10).view(Array)
        weakref.finalize(array, died.append, 1)
        return array

    embedded = np.ones(10).view(Array)
    weakref.finalize(embedded, died.append, 1)
    dsk = {("m", 0): (make,), ("n", 0): (lambda a, b: float(a.sum()), ("m", 0), embedded)}
    with Profiler() as prof, CacheProfiler(metric=lambda x: 1) as cprof, ProgressBar(10):
        get(dsk, ("n", 0))
    results = prof.results + cprof.results
    recordings = prof.recording, cprof.recording
    del dsk, embedded
    gc.collect()
    assert died == [1, 1]
    assert len(results) == 4
    assert len(recordings[0].tasks) == 2


def test_tasks_in_flight_at_an_error_do_not_keep_their_arrays():
    release, began = threading.Event(), threading.Event()
    died = []

    def make():
        array = np.ones(10).view(type("Array", (np.ndarray,), {}))
        weakref.finalize(array, died.append, 1)
        return array

    def hold(array):
        began.set()
        release.wait(10)

    def fail():
        assert began.wait(10)
        raise ValueError

    dsk = {"m-0": (make,), "h-0": (hold, "m-0"), "f-0": (fail,)}
    with Profiler() as prof, pytest.raises(ValueError):
        dask.threaded.get(dsk, ["h-0", "f-0"], num_workers=2)
    release.set()
    for _ in range(100):
        gc.collect()
        if died:
            break
        time.sleep(0.02)
    assert died == [1]
    assert len(prof.recording.tasks) == 3


def test_described_tasks_say_what_they_are_and_why_they_cannot_run():
    from dask_diag.errors import TaskNotRetainedError

    with Profiler() as prof:
        dask.local.get_sync(DSK, "c")
    task = prof.results[0].task
    assert "add" in repr(task)
    with pytest.raises(TaskNotRetainedError, match="do not keep arguments"):
        task({})


def test_hundreds_of_short_computes_while_registered():
    diagnostics = [Profiler(), ResourceProfiler(), CacheProfiler()]
    for diagnostic in diagnostics:
        diagnostic.register()
    try:
        for _ in range(300):
            dask.local.get_sync({"a-0": (add, 1, 2)}, "a-0")
    finally:
        for diagnostic in diagnostics:
            diagnostic.unregister()
    assert [len(d.recording.computations) for d in diagnostics] == [300] * 3
    assert [len(d.recording.notices) for d in diagnostics] == [0] * 3
    assert len(diagnostics[1].results) >= 270


def test_a_distributed_client_is_reported(monkeypatch):
    import sys
    import types

    fake = types.ModuleType("distributed")
    fake.default_client = lambda: "<Client: 2 workers>"
    monkeypatch.setitem(sys.modules, "distributed", fake)
    with Profiler() as prof:
        pass
    assert "no computation was seen" in prof.summary()
    assert "<Client: 2 workers>" in " ".join(prof.summary().split())


def test_a_dask_that_hides_overlapping_computes_is_reported(monkeypatch):
    monkeypatch.setattr("dask_diag.hooks.callbacks._dasks_own", None)
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
