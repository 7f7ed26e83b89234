"""What begins, ends, is cleared or registered while computations run, at whatever moment."""

from __future__ import annotations

import gc
import io
import os
import sys
import threading
import time
import weakref
from array import array
from concurrent.futures import ThreadPoolExecutor
from operator import add
from types import SimpleNamespace

import dask.local
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import Callback

import dask_diag.capture.build
import dask_diag.capture.computation
import dask_diag.capture.tasks_table
from dask_diag import (
    CacheProfiler,
    MemorySampler,
    Profiler,
    ProgressBar,
    ResourceProfiler,
    SamplingProfiler,
    load,
    record,
)
from dask_diag.capture.computation import Computation, start_running
from dask_diag.capture.session import finish
from dask_diag.capture.task import ProbedTask, TimedTask
from dask_diag.sampling.call_tree import Group, Run, Stacks
from dask_diag.sampling.probes import RunningTask, attach_probe
from dask_diag.sampling.sampler import running_now, running_tasks
from dask_diag.sampling.stacks import LocalStackTaskProbe, StackProbe
from dask_diag.sampling.waits import WaitProbe, WaitTaskProbe
from dask_diag.system.periodic import ticks_until

from .interleaving import HookedLock, Thread, at_every_line, await_event
from .test_readers import LOCKED, Failing, Steps, assert_metered, assert_no_fault, functions_of

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
def test_what_is_cleared_at_any_line_of_a_computation_goes_on(order):
    diagnostics = prof, cprof, *_ = all_diagnostics()

    def clear():
        if not any(diagnostic._lock.held for diagnostic in diagnostics):
            for diagnostic in diagnostics:
                assert diagnostic.session.faults == []
                diagnostic.clear()
                assert diagnostic.results == []

    callbacks = [diagnostic._callback for diagnostic in diagnostics][::order]
    with at_every_line(clear, outside=(*LOCKED, "base.py:_finish")):
        assert dask.local.get_sync(GRAPH, ("inc", 0), callbacks=callbacks) == 6
    assert functions_of(prof.recording).keys() == {"a", "b", "('inc', 0)"}
    assert len(cprof.recording.cached_results) == 3
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
        assert len(diagnostic.recording.computations) == 1


@pytest.mark.parametrize("order", [1, -1])
def test_what_is_cleared_at_any_line_of_the_end_fails_nowhere(order):
    diagnostics = all_diagnostics()

    def clear():
        if not any(diagnostic._lock.held for diagnostic in diagnostics):
            for diagnostic in diagnostics:
                assert diagnostic.session.faults == []
                diagnostic.clear()

    callbacks = [diagnostic._callback for diagnostic in diagnostics][::order]
    with at_every_line(clear, inside="_finish", outside=LOCKED):
        Failing().compute(callbacks=callbacks)
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
        diagnostic.clear()
        assert len(diagnostic.recording.computations) == 0
        assert diagnostic.results == []


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
        with at_every_line(
            turn, outside=(*LOCKED, "callbacks.py:_claim", "callbacks.py:_disclaim")
        ):
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
    with pytest.raises(RuntimeError):
        dask.local.get_sync(
            cycle, "a", callbacks=[diagnostic._callback for diagnostic in diagnostics]
        )
    assert not [t for t in threading.enumerate() if t.name.startswith("dask_diag")]
    for diagnostic in diagnostics:
        assert_no_fault(diagnostic)
        (row,) = diagnostic.recording.computations.to_dicts()
        assert row["error"] == "RuntimeError"
    assert dask_diag.capture.task.running == {}


def test_a_task_that_fails_when_its_computation_has_ended_keeps_nothing_alive():
    """It is put aside while the end is published: just after it was seen that it was not."""
    computation = Computation({})

    class Wrapper(TimedTask):
        @property
        def key(self):
            finish(computation, True)
            return "late"

    measured = Wrapper(computation)
    measured.task = object()
    computation.set_aside(measured)
    assert computation.finished is not None
    assert (computation.aside, computation.dsk) == ({}, {})


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


def test_a_sample_that_comes_late_counts_for_the_task_that_was_sampled():
    """Its wrapper may be that of another task by then."""
    computation = Computation({})
    seen = []

    class Stacks:
        def see(self, now, run, *seconds):
            run.track_individually()
            seen.append(run.group)

    computation.stacks = (Stacks(),)
    measured = ProbedTask(computation)
    measured.key, measured.task = ("first", 0), object()
    measured.start, measured.cpu_before = time.perf_counter(), time.thread_time()
    probe = LocalStackTaskProbe(
        measured, StackProbe(0.01, 1.0), threading.get_native_id(), measured.start
    )
    measured.key, measured.task = ("second", 0), None
    probe.sample(None, probe._last + 0.02, probe._ticks + 2)
    assert seen == [Group("first", "('first', 0)")]
    finish(computation, False)


def test_a_wrapper_that_has_no_task_yet_runs_none():
    computation = Computation({})
    attach_probe(computation, StackProbe(0.01, 1.0), pytest.fail)
    start_running(computation.number, computation)
    try:
        wrapper = computation.new_wrapper()
        assert running_now() == {}
        assert wrapper.task_probe(StackProbe) is None
    finally:
        finish(computation, False)


def test_a_task_probe_that_was_made_late_has_no_part_in_the_next_task():
    """The sampler may make one of a task that ends just then: its wrapper runs another by then."""
    computation = Computation({})
    missed = []

    class Stacks:
        def miss(self, stop, run, seconds):
            missed.append(seconds)

    computation.stacks = (Stacks(),)
    attach_probe(computation, StackProbe(0.01, 1.0), pytest.fail)
    attach_probe(computation, WaitProbe(), pytest.fail)
    wrapper = computation.new_wrapper()
    wrapper.key, wrapper.start, wrapper.stop = ("second", 0), None, None
    wrapper.submitted = time.perf_counter()
    minute_ago = time.perf_counter() - 60

    def task(values):
        assert running_now() == {threading.get_ident(): wrapper}
        wrapper.cpu_before = 0.0
        waits = WaitTaskProbe(wrapper, None, minute_ago)
        waits._tally["sleep"] = [60.0, 6000]
        stacks = LocalStackTaskProbe(
            wrapper, StackProbe(0.01, 1.0), threading.get_native_id(), minute_ago
        )
        late = {StackProbe: stacks, WaitProbe: waits}
        wrapper.task_probes = late
        assert not wrapper.goes_on(stacks)
        assert wrapper.task_probe(WaitProbe) is not waits
        wrapper.task_probes = late

    wrapper.task = task
    start_running(computation.number, computation)
    try:
        wrapper(())
    finally:
        finish(computation, False)
    assert sum(missed) < 30
    assert "sleep" not in [wait.activity for wait in wrapper.metered.waits]
    assert not running_now()


def test_a_run_that_has_left_leaves_another_one_where_it_is():
    """As where the end of a run fails, and it is taken out after that again."""
    task = SimpleNamespace(start=None, stop=None)
    outer = RunningTask(task, [])
    inner = RunningTask(task, [])
    ident = threading.get_ident()
    assert running_tasks[ident] is inner
    inner.leave()
    inner.end()
    assert running_tasks[ident] is outer
    outer.leave()
    assert ident not in running_tasks


class CountedStacks:
    """In place of `Stacks`: the seconds that were seen and missed."""

    def __init__(self):
        self.seen, self.missed = [], []

    def see(self, now, run, stack, seconds, cpu):
        self.seen.append(seconds)

    def miss(self, stop, run, seconds):
        self.missed.append(seconds)

    def note_late(self, now, seconds):
        """It may be late."""


def a_sampled_task(stacks):
    """A task that started a second ago, with its probe, of a computation that is sampled."""
    computation = Computation({})
    computation.stacks = (stacks,)
    wrapper = ProbedTask(computation)
    wrapper.key, wrapper.task = ("work", 0), object()
    wrapper.start, wrapper.cpu_before = time.perf_counter() - 1, time.thread_time()
    native_id = threading.get_native_id()
    return wrapper, LocalStackTaskProbe(wrapper, StackProbe(0.01, 1.0), native_id, wrapper.start)


def test_a_task_that_stops_while_the_sampler_counts_it_has_each_tick_once(monkeypatch):
    stacks = CountedStacks()
    wrapper, probe = a_sampled_task(stacks)
    now = wrapper.start + 0.5
    read_clock = time.clock_gettime

    def stop_meanwhile(clock):
        wrapper.stop = wrapper.start + 0.75
        probe.end()
        # The wrapper runs its next task before the sampler gets on.
        wrapper.start = wrapper.stop = None
        return read_clock(clock)

    start, stop = wrapper.start, wrapper.start + 0.75
    monkeypatch.setattr(time, "clock_gettime", stop_meanwhile)
    probe.sample(None, now, ticks_until(now, 0.01))
    assert sum(stacks.seen) == pytest.approx(
        0.01 * (ticks_until(now, 0.01) - ticks_until(start, 0.01))
    )
    assert sum(stacks.missed) == pytest.approx(
        0.01 * (ticks_until(stop, 0.01) - ticks_until(now, 0.01))
    )
    # A sample that was started before the stop, and comes after it, counts for nothing.
    monkeypatch.undo()
    probe.sample(None, stop + 1, ticks_until(stop + 1, 0.01))
    probe.end()
    assert len(stacks.seen) == len(stacks.missed) == 1


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
def test_the_child_of_a_fork_runs_no_task_of_its_parents():
    """It has a thread of the same ident, whose frames are in the task."""
    with SamplingProfiler():
        graph = {("fork", 0): (in_a_forked_child, lambda: len(running_now()))}
        assert dask.local.get_sync(graph, ("fork", 0)) == 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no processes are forked here")
def test_the_child_of_a_fork_computes_though_the_sampler_was_counting():
    """The sampler has the lock of the samples; the child has the lock, and no sampler."""
    stacks = Stacks(1.0)

    def count():
        # Five seconds are a defect: the child would wait forever.
        counts = threading.Thread(target=stacks.miss, args=(1.0, Run("work", 0), 0.5), daemon=True)
        counts.start()
        counts.join(5)
        return int(counts.is_alive())

    with stacks._lock:
        assert in_a_forked_child(count) == 0


class NumpyThatLetsOthersRun:
    """It gives up the GIL while it copies, and keeps arrays from growing."""

    def __init__(self, meanwhile):
        self._meanwhile = meanwhile

    def array(self, values, *args, **kwargs):
        if isinstance(values, array):
            with memoryview(values):
                self._meanwhile()
        return np.array(values, *args, **kwargs)

    def __getattr__(self, name):
        return getattr(np, name)


def test_samples_of_resources_may_be_taken_while_they_are_read(monkeypatch):
    with ResourceProfiler(dt=10) as rprof:
        take = rprof._sampler._sample
        now = rprof._sampler._last
        monkeypatch.setattr(
            dask_diag.capture.build, "np", NumpyThatLetsOthersRun(lambda: take(now))
        )
        before = len(rprof.rows.samples)
        recording = rprof.recording
        assert len(rprof.rows.samples) > before
    assert len(recording.processes)
    assert_no_fault(rprof)


def test_samples_of_memory_may_be_taken_while_they_are_read(monkeypatch):
    ms = MemorySampler()
    with ms.sample("a", interval=10):
        ((rows, _),) = ms._series.values()
        monkeypatch.setattr(
            dask_diag.capture.build,
            "np",
            NumpyThatLetsOthersRun(lambda: rows.extend([0.0] * 6)),
        )
        recording = ms.recording
    assert len(recording.memory) == 1
    assert_no_fault(ms)


def test_tasks_may_meter_while_what_they_metered_is_read(monkeypatch):
    prof = Profiler()
    steps = Steps([prof._callback])
    monkeypatch.setattr(
        dask_diag.capture.tasks_table, "np", NumpyThatLetsOthersRun(steps.step_once)
    )
    assert_metered(prof.recording)
    monkeypatch.undo()
    steps.end()
    assert_metered(prof.recording)
    assert len(prof.recording.tasks) == 10
    assert_no_fault(prof)


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
        sampled.append(rprof._is_running())

    rprof = ResourceProfiler(dt=10)
    rprof.register()
    try:
        first = Thread(dask.local.get_sync, {"hold": (hold,)}, "hold")
        await_event(began)
        rprof.close()
        assert not rprof._is_running()
        dask.local.get_sync({"look": (lambda: look(first),)}, "look")
    finally:
        rprof.unregister()
    assert sampled == [True]
    assert not rprof._is_running()


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
    ):
        Failing().compute(callbacks=[prof._callback, pbar._callback])
    assert "60% Completed" in out.getvalue()
    assert sys.gettrace() is None
