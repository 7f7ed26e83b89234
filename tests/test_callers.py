"""The calling thread outside tasks: what comes before, graphs, the scheduler, and in between."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from dask.base import DaskMethodsMixin

from dask_diag import SamplingProfiler
from dask_diag.hooks.calls import calls_of_threads
from dask_diag.model.codes import ROOTS, Root
from dask_diag.sampling import callers
from dask_diag.sampling.sampler import thread_frames

INTERVAL = 0.01
SCHEDULERS = ["sync", "threads", "processes"]


def load_inputs(seconds=0.5):
    time.sleep(seconds)


def build(seconds):
    time.sleep(seconds)


def work():
    time.sleep(0.5)


class Collection(DaskMethodsMixin):
    """A collection whose graph takes its time to be made."""

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __init__(self, graph, seconds=0.5, inner=None):
        self._graph, self._seconds, self._inner = graph, seconds, inner
        self.building = 0.0

    def __dask_graph__(self):
        """Some versions of dask ask for it twice."""
        if self._inner is not None:
            self._inner.compute(scheduler="sync")
        build(self._seconds)
        self.building += self._seconds
        return self._graph

    def __dask_keys__(self):
        return list(self._graph)

    def __dask_postcompute__(self):
        return len, ()


def seconds_of_roots(sprof):
    samples = sprof.recording.samples
    return {root: float(samples.seconds[samples.root.eq(root)].sum()) for root in ROOTS}


def lines_of(sprof, root):
    """Of each function its seconds with what it called, in the samples of a root."""
    recording = sprof.recording
    names = recording.frames.name.tolist()
    frame, parent = recording.call_tree.frame, recording.call_tree.parent
    lines = {}
    for row in recording.samples.to_dicts():
        node, seen = row["node"], set()
        while row["root"] == root and node >= 0:
            seen.add(names[frame[node]])
            node = parent[node]
        for name in seen:
            lines[name] = lines.get(name, 0.0) + row["seconds"]
    return lines


def about(seconds):
    return pytest.approx(seconds, rel=0.1, abs=2 * INTERVAL)


def walls(sprof):
    """Graph and scheduler seconds by the clock, all computations."""
    table = sprof.recording.computations
    return float((table.prepared - table.called).sum()), float((table.stop - table.prepared).sum())


@pytest.mark.once
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_each_root_has_its_seconds_and_its_lines(scheduler, retried):
    def measure():
        with SamplingProfiler() as sprof:
            load_inputs()
            collection = Collection({("work", 0): (work,)})
            collection.compute(scheduler=scheduler)
            load_inputs(0.3)
        seconds = seconds_of_roots(sprof)
        in_graph, in_scheduler = walls(sprof)
        called = sprof.recording.computations.called[0]
        assert seconds[Root.BEFORE] == about(called - sprof.start_time)
        assert seconds[Root.GRAPH] == pytest.approx(in_graph, rel=1e-6)
        assert in_graph >= collection.building
        in_tasks = 0.5 if scheduler == "sync" else 0.0
        assert seconds[Root.SCHEDULER] == about(in_scheduler - in_tasks)
        # A pool of processes is closed when the computation has stopped.
        stop = sprof.recording.computations.stop[0]
        assert seconds[Root.BETWEEN] == about(sprof.end_time - stop)
        assert seconds[Root.TASKS] == about(0.5)
        assert lines_of(sprof, Root.BEFORE)["load_inputs"] == about(0.5)
        assert lines_of(sprof, Root.GRAPH)["build"] == about(collection.building)
        assert lines_of(sprof, Root.BETWEEN)["load_inputs"] == about(0.3)
        assert "load_inputs" not in lines_of(sprof, Root.GRAPH)

    retried(measure)


def nothing():
    pass


def test_dasks_own_loop_opens_into_lines(retried):
    def measure():
        tasks = {("nothing", n): (nothing,) for n in range(20_000)}
        with SamplingProfiler() as sprof:
            Collection(tasks, 0.0).compute(num_workers=2)
        in_graph, in_scheduler = walls(sprof)
        seconds = seconds_of_roots(sprof)
        assert seconds[Root.SCHEDULER] == pytest.approx(in_scheduler, rel=1e-6)
        assert seconds[Root.GRAPH] == pytest.approx(in_graph, rel=1e-6)
        lines = lines_of(sprof, Root.SCHEDULER)
        assert lines["get_async"] > 0.9 * in_scheduler
        # The profiler's own callbacks are one line, and none of their calls is shown.
        assert "(dask_diag)" in lines
        assert not [file for file in sprof.recording.frames.file.values if "/dask_diag/" in file]

    retried(measure)


def test_a_call_that_begins_while_the_thread_is_sampled(retried, monkeypatch):
    """Its stack is of before the call: that the call was noted meanwhile is not forgotten."""
    read, go = threading.Event(), threading.Event()

    def frames_of_before():
        frames = thread_frames()
        if go.is_set() and not read.is_set():
            read.set()
            while not calls_of_threads:
                time.sleep(0.001)
        return frames

    monkeypatch.setattr(callers, "thread_frames", frames_of_before)

    def measure():
        read.clear(), go.clear()
        with SamplingProfiler() as sprof:
            load_inputs(0.1)
            collection = Collection({("work", 0): (nothing,)}, 0.2)
            go.set()
            read.wait()
            collection.compute(scheduler="sync")
        assert "build" not in lines_of(sprof, Root.BEFORE)
        assert lines_of(sprof, Root.GRAPH)["build"] == about(collection.building)
        assert "load_inputs" in lines_of(sprof, Root.BEFORE)

    retried(measure)


def test_a_computation_called_from_another_thread(retried):
    def compute(collection):
        load_inputs(0.2)
        collection.compute(scheduler="threads")

    def measure():
        collection = Collection({("work", 0): (work,)}, 0.3)
        with SamplingProfiler() as sprof:
            thread = threading.Thread(target=compute, args=(collection,))
            thread.start()
            thread.join()
        seconds = seconds_of_roots(sprof)
        in_graph, in_scheduler = walls(sprof)
        assert seconds[Root.GRAPH] == pytest.approx(in_graph, rel=1e-6)
        assert seconds[Root.SCHEDULER] == pytest.approx(in_scheduler, rel=1e-6)
        assert lines_of(sprof, Root.GRAPH)["build"] == about(collection.building)
        # What another thread does besides is not sampled; this one waits for it.
        assert "load_inputs" not in sprof.recording.frames.name.values
        called = sprof.recording.computations.called.min()
        assert seconds[Root.BEFORE] == about(called - sprof.start_time)
        (joined,) = (
            seconds
            for name, seconds in lines_of(sprof, Root.BETWEEN).items()
            if name in ("join", "Thread.join")
        )
        assert joined == about(in_graph + in_scheduler)

    retried(measure)


def test_an_interrupt_leaves_nothing():
    class Interrupted(Collection):
        def __dask_graph__(self):
            load_inputs(0.1)
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt), SamplingProfiler() as sprof:
        Interrupted({}).compute()
    assert "load_inputs" in lines_of(sprof, Root.GRAPH)
    assert not calls_of_threads
    assert not [t for t in threading.enumerate() if t.name.startswith("dask_diag")]


def spin_holding_the_gil(seconds):
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop:
        pass


def test_ticks_before_the_records_were_cleared_are_not_counted_after():
    """Also if the sampler had no chance to sample them before."""
    before = sys.getswitchinterval()
    with SamplingProfiler(INTERVAL) as sprof:
        dask.local.get_sync({"a": (spin_holding_the_gil, 0.05)}, "a")
        sys.setswitchinterval(10)
        try:
            dask.local.get_sync({"a": (spin_holding_the_gil, 0.05)}, "a")
            sprof.clear()
        finally:
            sys.setswitchinterval(before)
        load_inputs(0.05)
        seconds = seconds_of_roots(sprof)
    assert seconds.pop(Root.BEFORE) > 0
    assert not any(seconds.values())


def test_a_registration_in_a_thread_that_ends_and_a_clear(retried):
    def measure():
        sprof = SamplingProfiler()
        thread = threading.Thread(target=sprof.register)
        thread.start()
        thread.join()
        # It may have the ident of the thread that ended.
        other = threading.Thread(target=load_inputs, args=(0.2,))
        other.start()
        other.join()
        collection = Collection({("work", 0): (work,)}, 0.2)
        collection.compute(scheduler="threads")
        sprof.unregister()
        seconds = seconds_of_roots(sprof)
        assert seconds[Root.BEFORE] <= 2 * INTERVAL
        assert seconds[Root.BETWEEN] <= 2 * INTERVAL
        assert lines_of(sprof, Root.GRAPH)["build"] == about(collection.building)
        assert "load_inputs" not in sprof.recording.frames.name.values
        sprof.register()
        try:
            collection.compute(scheduler="sync")
            sprof.clear()
            load_inputs(0.2)
            seconds = seconds_of_roots(sprof)
        finally:
            sprof.unregister()
        # Without a computation all is before.
        assert seconds.pop(Root.BEFORE) == about(0.2)
        assert not any(seconds.values())

    retried(measure)


def compute_in_a_task():
    Collection({("inner", 0): (work,)}, 0.1).compute(scheduler="sync")


@pytest.mark.parametrize("scheduler", ["sync", "threads"])
def test_a_computation_in_a_graph_is_its_own_and_in_a_task_the_tasks(scheduler, retried):
    def measure():
        inner = Collection({("inner", 0): (work,)}, 0.2)
        outer = Collection({("outer", 0): (nothing,)}, 0.3, inner)
        with SamplingProfiler() as sprof:
            outer.compute(scheduler=scheduler)
        seconds = seconds_of_roots(sprof)
        inner_computations = len(sprof.recording.computations) - 1
        assert inner_computations >= 1
        assert seconds[Root.GRAPH] == about(inner.building + outer.building)
        assert lines_of(sprof, Root.GRAPH)["build"] == about(inner.building + outer.building)
        assert seconds[Root.TASKS] == about(0.5 * inner_computations)
        assert seconds[Root.BETWEEN] <= 2 * INTERVAL
        with sprof:
            Collection({("outer", 0): (compute_in_a_task,)}, 0.0).compute(scheduler=scheduler)
        seconds = seconds_of_roots(sprof)
        assert seconds[Root.TASKS] > 0.6
        assert seconds[Root.GRAPH] <= 2 * INTERVAL
        assert "build" not in lines_of(sprof, Root.SCHEDULER)

    retried(measure)


def test_nothing_is_retained_of_a_deep_stack_outside_tasks():
    class Big:
        pass

    bigs = []
    space = {"Big": Big, "bigs": bigs, "ref": weakref.ref, "sleep": time.sleep}
    exec(
        "def deep(n):\n    big = Big()\n    bigs.append(ref(big))\n    deep(n - 1) if n else sleep(0.2)",
        space,
    )
    code = weakref.ref(space["deep"].__code__)
    gc.disable()
    try:
        with SamplingProfiler("1ms") as sprof:
            space["deep"](60)
            assert [big() for big in bigs] == [None] * 61
    finally:
        gc.enable()
    names = sprof.recording.frames.name.tolist()
    called = [names[frame] for frame in sprof.recording.call_tree.frame.tolist()]
    assert called.count("deep") == 61
    # Up to the outermost call.
    assert {"<module>", "run_module"} & {*called}
    space.clear()
    gc.collect()
    assert code() is None
