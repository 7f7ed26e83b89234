"""What a profiler began ends, whatever another callback does, and whenever Ctrl-C comes."""

from __future__ import annotations

import gc
import io
import threading
import weakref
from contextlib import ExitStack, suppress
from functools import partialmethod

import dask
import dask.threaded
import numpy as np
import pytest
from dask.callbacks import Callback
from dask.local import get_sync

import dask_diag
from dask_diag import CacheProfiler, Profiler, ProgressBar, ResourceProfiler, SamplingProfiler
from dask_diag.capture import computation
from dask_diag.profilers.base import Diagnostic

from .profilers import PROFILERS

pytestmark = pytest.mark.leaves_files

GRAPH = {"x": (sum, [1, 2]), "y": (sum, ["x", 3])}
EVENTS = ["start", "start_state", "pretask", "posttask", "finish"]


class Stop(BaseException):
    """As a Ctrl-C that comes in a callback; or what a program raises of its own."""


def raising(event, error=Stop):
    """A callback of the user's that raises once at an event."""
    raised = []

    def call(*args):
        if not raised:
            raised.append(event)
            raise error

    return Callback(**{event: call})


@pytest.fixture(autouse=True)
def as_before():
    """No thread of the package is left, and nothing is known of a computation."""
    before = set(threading.enumerate())
    yield
    new = set(threading.enumerate()) - before
    assert [thread for thread in new if "dask_diag" in thread.name] == []
    assert computation.running == {}


def assert_stopped(recording, error="Stop"):
    computations = recording.computations
    assert computations.error.tolist() == [error]
    assert (computations.stop <= recording.stop).all()


@pytest.mark.parametrize(("get", "order"), [(dask.threaded.get, "before"), (get_sync, "after")])
@pytest.mark.parametrize("event", EVENTS)
@pytest.mark.parametrize("name", PROFILERS)
def test_what_another_callback_raises_ends_it(name, event, order, get, tmp_path):
    own, other = PROFILERS[name](), raising(event)
    blocks = [own, other] if order == "before" else [other, own]
    with pytest.raises(Stop), ExitStack() as stack:
        for block in blocks:
            stack.enter_context(block)
        get(GRAPH, "y")
    recording = own.recording
    if event == "start":
        # Those of the user's are called first: the profilers heard nothing of it.
        assert len(recording.computations) == 0
        return
    assert_stopped(recording)
    if name in ("Profiler", "waits", "record"):
        done = {"start_state": [], "pretask": [], "posttask": ["x"], "finish": ["x", "y"]}[event]
        assert recording.tasks.key.tolist() == done
        assert set(recording.tasks.outcome.tolist()) <= {"ok"}
    if name == "record":
        assert_stopped(dask_diag.load("run.diag"))


def test_it_has_ended_before_the_block_is_left():
    with Profiler(waits=True) as prof, raising("finish"):
        with pytest.raises(Stop):
            get_sync(GRAPH, "y")
        assert_stopped(prof.recording)
        get_sync(GRAPH, "y")
    assert not [t for t in threading.enumerate() if "dask_diag-sampler" in t.name]
    assert prof.recording.computations.error.tolist() == ["Stop", ""]
    assert prof.recording.tasks.key.tolist() == ["x", "y"] * 2


@pytest.mark.parametrize("error", [Stop, KeyboardInterrupt, SystemExit, ValueError])
def test_registered_profilers_and_those_given_to_the_scheduler_end_it_too(error):
    prof, other, given = SamplingProfiler(), raising("finish", error), Profiler()
    prof.register()
    other.register()
    try:
        with given, pytest.raises(error):
            get_sync(GRAPH, "y", callbacks=[prof._callback, other._callback, given._callback])
        get_sync(GRAPH, "y")
    finally:
        other.unregister()
        prof.unregister()
    assert prof.recording.computations.error.tolist() == [error.__name__, ""]
    assert_stopped(given.recording, error.__name__)


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("method", ["_began", "computation_ends"])
@pytest.mark.parametrize("name", PROFILERS)
def test_ctrl_c_in_a_profiler_ends_it(name, method, when, tmp_path, monkeypatch):
    """It comes before, or after, each profiler has done what it does at the start or the end."""
    pressed, is_computing = [], threading.Event()

    def interrupted(self, *args, original):
        if when == "after":
            original(self, *args)
        if is_computing.is_set() and not pressed:
            pressed.append(type(self))
            raise KeyboardInterrupt
        if when == "before":
            original(self, *args)

    for kind in (Profiler, SamplingProfiler, CacheProfiler, ResourceProfiler, ProgressBar):
        original = getattr(kind, method)
        monkeypatch.setattr(kind, method, partialmethod(interrupted, original=original))
    with pytest.raises(KeyboardInterrupt), PROFILERS[name]() as own:
        is_computing.set()
        get_sync(GRAPH, "y")
    assert pressed
    assert_stopped(own.recording, "KeyboardInterrupt")


@pytest.fixture
def of_an_unknown_dask(monkeypatch):
    """Nothing says that a scheduler returns: as in a dask that has no such function."""
    monkeypatch.setattr(Diagnostic, "scheduler_returns", lambda self: None)


@pytest.mark.usefixtures("of_an_unknown_dask")
@pytest.mark.parametrize("name", PROFILERS)
def test_leaving_the_block_ends_it(name, tmp_path):
    with PROFILERS[name]() as own, raising("finish"), suppress(Stop):
        get_sync(GRAPH, "y")
    # The error was handled in the block.
    assert_stopped(own.recording, "unknown")


@pytest.mark.usefixtures("of_an_unknown_dask")
def test_leaving_an_inner_block_ends_it():
    with (prof := Profiler(waits=True)), raising("finish"):
        with pytest.raises(Stop), prof:
            get_sync(GRAPH, "y")
        assert_stopped(prof.recording)


@pytest.mark.usefixtures("of_an_unknown_dask")
def test_the_next_computation_of_the_thread_ends_it():
    with Profiler(waits=True) as prof, raising("finish"):
        for _ in range(2):
            with suppress(Stop):
                get_sync(GRAPH, "y")
        errors = prof.recording.computations.error.tolist()
    assert errors == ["unknown", ""]


def test_what_runs_goes_on_when_a_block_in_a_task_is_left():
    prof = Profiler()

    def enters_again():
        with prof:
            pass
        with Profiler() as other:
            get_sync({"inner": (sum, [1])}, "inner", callbacks=[other._callback])
        assert other.recording.computations.error.tolist() == [""]
        return prof.recording.computations.to_dicts()[0]

    with prof:
        get_sync({"x": (enters_again,)}, "x")
        assert dask.threaded.get({"x": (enters_again,)}, "x")["error"] == ""
    assert prof.recording.computations.error.tolist() == ["", ""]
    assert prof.recording.tasks.outcome.tolist() == ["ok", "ok"]


def test_what_another_thread_computes_goes_on_when_the_block_is_left():
    started, go_on = threading.Event(), threading.Event()

    def waits():
        started.set()
        assert go_on.wait(20)

    thread = threading.Thread(target=get_sync, args=({"x": (waits,)}, "x"))
    with Profiler() as prof:
        thread.start()
        assert started.wait(20)
    assert prof.recording.tasks.outcome.tolist() == ["unfinished"]
    go_on.set()
    thread.join()
    assert prof.recording.computations.error.tolist() == [""]
    assert prof.recording.tasks.outcome.tolist() == ["ok"]


def test_arrays_of_a_computation_that_was_left_are_freed():
    arrays = []

    def make():
        array = np.zeros(1000)
        arrays.append(weakref.ref(array))
        return array

    with Profiler() as prof, raising("finish"), suppress(Stop):
        get_sync({"x": (make,)}, "x")
    gc.collect()
    assert arrays[0]() is None
    assert_stopped(prof.recording)


def test_a_bar_that_computes_where_an_error_is_handled_has_not_failed():
    out = io.StringIO()
    try:
        raise ValueError
    except ValueError:
        with ProgressBar(out=out):
            get_sync(GRAPH, "y")
    assert "failed" not in out.getvalue()
    assert "100%" in out.getvalue()
