"""What begins, ends, is cleared or registered while computations run, at whatever moment."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import time
import weakref
from concurrent.futures import ThreadPoolExecutor
from operator import add

import dask.local
import dask.threaded
import pytest
from dask.callbacks import Callback, normalize_callback

import dask_diag.capture.computation
import dask_diag.capture.metrics
from dask_diag import (
    CacheProfiler,
    Profiler,
    ProgressBar,
    ResourceProfiler,
    SamplingProfiler,
    load,
    record,
)
from dask_diag.capture.computation import Computation
from dask_diag.capture.task import ProbedTask
from dask_diag.sampling.call_tree import Group, Run, Stacks
from dask_diag.sampling.sampler import running_now
from dask_diag.sampling.stacks import LocalStackTaskProbe, StackProbe
from dask_diag.system.periodic import ticks_until

from .conftest import own_threads
from .interleaving import HookedLock, Thread, at_every_line, await_event
from .test_readers import (
    CHANGING,
    LOCKED,
    Failing,
    assert_no_fault,
    functions_of,
)

GRAPH = {"a": (add, 1, 2), "b": (add, "a", 2), ("inc", 0): (add, "b", 1)}


def all_diagnostics():
    made = (
        Profiler(),
        CacheProfiler(),
        SamplingProfiler(interval=0.01),
        ProgressBar(minimum=100),
        ResourceProfiler(dt=10),
    )
    for diagnostic in made:
        diagnostic._lock = HookedLock(diagnostic._lock)
    return made


@pytest.mark.parametrize("order", [1, -1])
@pytest.mark.parametrize("inside", ["", "_finish"])
def test_what_is_cleared_at_any_line_of_a_computation_goes_on(inside, order):
    diagnostics = prof, cprof, *_ = all_diagnostics()

    def clear():
        if not any(diagnostic._lock.held for diagnostic in diagnostics):
            for diagnostic in diagnostics:
                # Each line is stopped at by a trace function, which a notice names.
                assert not [one for one in diagnostic.session.faults if "trace function" not in one]
                diagnostic.clear()
                assert inside or diagnostic.results == []

    callbacks = [*map(normalize_callback, diagnostics)][::order]
    outside = LOCKED if inside else (*LOCKED, "engine.py:_finish")
    with at_every_line(clear, inside=inside, outside=outside, files=CHANGING):
        if inside:
            Failing().compute(callbacks=callbacks)
        else:
            assert dask.local.get_sync(GRAPH, ("inc", 0), callbacks=callbacks) == 6
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
        assert inside or len(diagnostic.recording.computations) == 1
    if not inside:
        assert functions_of(prof.recording).keys() == {"a", "b", "('inc', 0)"}
        assert len(cprof.recording.cached_results) == 3
    for diagnostic in diagnostics:
        diagnostic.clear()
        assert len(diagnostic.recording.computations) == len(diagnostic.results) == 0


def in_a_forked_child(ask):
    """What a function returns in a child of this process, in a byte."""
    child = os.fork()
    if not child:
        status = 255
        try:
            status = ask()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_the_child_of_a_fork_runs_no_task_of_its_parents_and_may_compute():
    """It has a thread of the same ident, and maybe the lock of samples, but no sampler."""
    with SamplingProfiler():
        graph = {("fork", 0): (in_a_forked_child, lambda: len(running_now()))}
        assert dask.local.get_sync(graph, ("fork", 0)) == 0
    stacks = Stacks(1.0)

    def count():
        # Five seconds are a defect: the child would wait forever.
        counts = threading.Thread(target=stacks.miss, args=(1.0, Run("work", 0), 0.5), daemon=True)
        counts.start()
        counts.join(5)
        return int(counts.is_alive())

    with stacks._lock:
        assert in_a_forked_child(count) == 0


def test_what_is_unregistered_and_registered_at_any_line_of_a_computation_sees_it():
    diagnostics = prof, *_ = all_diagnostics()
    registered = set()

    def turn():
        started = all(diagnostic.session.computations for diagnostic in diagnostics)
        if not started or any(diagnostic._lock.held for diagnostic in diagnostics):
            return
        for diagnostic in diagnostics:
            diagnostic.unregister() if diagnostic in registered else diagnostic.register()
        registered.symmetric_difference_update(diagnostics)

    for diagnostic in diagnostics:
        diagnostic.register()
    registered.update(diagnostics)
    try:
        outside = (*LOCKED, "callbacks.py:_claim", "callbacks.py:disclaim")
        with at_every_line(turn, outside=outside, files=CHANGING):
            assert dask.local.get_sync(GRAPH, ("inc", 0)) == 6
    finally:
        for diagnostic in registered:
            diagnostic.unregister()
    assert functions_of(prof.recording).keys() == {"a", "b", "('inc', 0)"}
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
    assert not Callback.active


def test_a_graph_that_cannot_be_ordered_ends_for_all_diagnostics():
    """It fails before there is a state in which they find their computation."""
    diagnostics = all_diagnostics()
    cycle = {"a": (add, "b", 1), "b": (add, "a", 1)}
    callbacks = [*map(normalize_callback, diagnostics)]
    with pytest.raises(RuntimeError):
        dask.local.get_sync(cycle, "a", callbacks=callbacks)
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
        assert diagnostic.recording.computations.error.tolist() == ["RuntimeError"]


def test_no_argument_of_a_task_outlives_a_computation_that_failed_under_it():
    class Argument:
        pass

    argument = Argument()
    died = weakref.ref(argument)
    began, release = threading.Event(), threading.Event()

    def hold(argument):
        began.set()
        await_event(release)
        raise ValueError

    def fail():
        await_event(began)
        raise ZeroDivisionError

    with ThreadPoolExecutor(2) as pool:
        with Profiler() as prof, pytest.raises(ZeroDivisionError):
            graph = {"hold": (hold, argument), "fail": (fail,)}
            dask.threaded.get(graph, ["hold", "fail"], pool=pool)
        release.set()
    del argument, graph
    gc.collect()
    assert len(prof.recording.tasks) == 2
    assert died() is None


class CountedStacks:
    """In place of `Stacks`: the seconds that were seen and missed, and of which tasks."""

    def __init__(self):
        self.seen, self.missed, self.groups = [], [], []

    def see(self, now, run, stack, seconds, cpu):
        run.track_individually()
        self.groups.append(run.group)
        self.seen.append(seconds)

    def miss(self, stop, run, seconds):
        self.missed.append(seconds)

    def note_late(self, now, seconds):
        """It may be late."""


def test_a_task_that_stops_while_the_sampler_counts_it_has_each_tick_once(monkeypatch):
    stacks, computation = CountedStacks(), Computation({})
    computation.stacks = (stacks,)
    wrapper = ProbedTask(computation)
    wrapper.key, wrapper.task = ("work", 0), object()
    wrapper.start, wrapper.cpu_before = time.perf_counter() - 1, time.thread_time()
    native_id = threading.get_native_id()
    probe = LocalStackTaskProbe(wrapper, StackProbe(0.01, 1.0), native_id, wrapper.start)
    start, stop, now = wrapper.start, wrapper.start + 0.75, wrapper.start + 0.5
    read_clock = time.clock_gettime

    def stop_meanwhile(clock):
        wrapper.stop = stop
        probe.end()
        # The wrapper runs its next task before the sampler gets on.
        wrapper.start = wrapper.stop = None
        wrapper.key = ("next", 0)
        return read_clock(clock)

    def ticks(begin, end):
        return pytest.approx(0.01 * (ticks_until(end, 0.01) - ticks_until(begin, 0.01)))

    with monkeypatch.context() as patch:
        patch.setattr(time, "clock_gettime", stop_meanwhile)
        probe.sample(None, now, ticks_until(now, 0.01))
    assert (sum(stacks.seen), sum(stacks.missed)) == (ticks(start, now), ticks(now, stop))
    # A sample that was started before the stop, and comes after it, counts for nothing.
    probe.sample(None, stop + 1, ticks_until(stop + 1, 0.01))
    probe.end()
    assert len(stacks.seen) == len(stacks.missed) == 1
    assert stacks.groups == [Group("work", "('work', 0)")]


def test_a_computation_that_began_after_close_is_sampled_until_its_own_end():
    """Not until that of one that ran when sampling was stopped."""
    began, release = threading.Event(), threading.Event()
    sampled = []

    def hold():
        began.set()
        await_event(release)

    def look(first):
        release.set()
        first.result()
        sampled.append(bool(own_threads()))

    rprof = ResourceProfiler(dt=10)
    rprof.register()
    try:
        first = Thread(dask.local.get_sync, {"hold": (hold,)}, "hold")
        await_event(began)
        rprof.close()
        assert not own_threads()
        dask.local.get_sync({"look": (lambda: look(first),)}, "look")
    finally:
        rprof.unregister()
    assert sampled == [True]
    assert not own_threads()


@pytest.mark.leaves_files
def test_what_is_measured_after_a_clear_is_in_the_file(monkeypatch):
    from dask_diag.profilers import record as record_module

    monkeypatch.setattr(record_module, "_PERIOD", 1000)
    with record("run.diag") as run:
        dask.local.get_sync({("a", 0): (add, 1, 2)}, ("a", 0))
        run._flush()
        for profiler in run.profilers:
            profiler.clear()
        dask.local.get_sync({("b", 0): (add, 1, 2)}, ("b", 0))
    loaded = load("run.diag")
    assert loaded.tasks["key"].tolist() == ["('a', 0)", "('b', 0)"]
    assert loaded.cached_results["key"].tolist() == ["('a', 0)", "('b', 0)"]
    assert len(loaded.computations) == 2


def test_what_is_cleared_while_it_is_read_is_read_whole():
    """Keys are the user's, and what they do when they are turned into text is other, too."""

    class Key(str):
        def __str__(self):
            prof.clear()
            return "key"

        __hash__ = str.__hash__

    prof = Profiler()
    with prof:
        dask.local.get_sync({Key("x"): (add, 1, 2)}, Key("x"))
        recording = prof.recording
    assert recording.tasks["key"].tolist() == ["key"]
    assert len(recording.computations) == 1
    assert prof.recording.computations.to_dicts() == []


def test_a_failed_computations_bar_stops_where_it_was_for_anyone_ends_it_first():
    out = io.StringIO()
    prof, pbar = Profiler(), ProgressBar(out=out)
    with at_every_line(
        lambda: [computation.tasks_done() for computation in pbar.session.computations],
        inside="_finish",
        files=CHANGING,
    ):
        Failing().compute(callbacks=[*map(normalize_callback, (prof, pbar))])
    assert "60% Completed" in out.getvalue()
    assert sys.gettrace() is None


def test_a_computation_that_begins_as_another_ends_hears_distributeds_meter(monkeypatch):
    """The one that ends has seen that no other runs, and stops hearing; the other has started."""
    metrics = pytest.importorskip("distributed.metrics")
    ending, second_begins = threading.Event(), threading.Event()
    stop = dask_diag.capture.metrics.stop_hearing_distributed
    hear = dask_diag.capture.metrics.hear_distributed

    def stop_when_the_second_begins():
        if not ending.is_set():
            ending.set()
            # It cannot have started if it waits for this one to end.
            second_begins.wait(0.5)
        stop()

    def hear_and_say_so():
        hear()
        if ending.is_set():
            second_begins.set()

    monkeypatch.setattr(
        dask_diag.capture.computation, "stop_hearing_distributed", stop_when_the_second_begins
    )
    monkeypatch.setattr(dask_diag.capture.computation, "hear_distributed", hear_and_say_so)

    def meter():
        first.result()
        metrics.context_meter.digest_metric("S3", 7, "bytes")

    with Profiler() as prof:
        first = Thread(dask.local.get_sync, {("a", 0): (add, 1, 2)}, ("a", 0))
        await_event(ending)
        dask.local.get_sync({("b", 0): (meter,)}, ("b", 0))
    assert prof.metrics["execute", "b", "S3", "bytes"] == 7
