"""Seconds are never negative, whatever clocks say, and sum to wall time × workers."""

import threading
import time

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest
from hypothesis import given, settings

from dask_diag import Profiler, context_meter
from dask_diag.analysis.activities import activities
from dask_diag.analysis.occupancy import occupancies
from dask_diag.analysis.phases import phases
from dask_diag.analysis.waits import waits
from dask_diag.analysis.wall_time import wall_time
from dask_diag.capture import increments, session
from dask_diag.capture.increments import TaskTables

from .random_recordings import recordings
from .recordings import Task, run

pytestmark = pytest.mark.once


def assert_adds_up(recording):
    available = sum(occupancy.worker_seconds for occupancy in occupancies(recording))
    for by in ("activity", "function", "worker", "span", "computation"):
        values = activities(recording, by=by)["value"]
        assert values.min(initial=0.0) >= 0.0, by
        assert values.sum() == pytest.approx(available, rel=1e-9, abs=0.0)


@settings(max_examples=60, deadline=None)
@given(recordings())
def test_activities_of_any_recording(recording):
    assert_adds_up(recording)


@settings(max_examples=40, deadline=None)
@given(recordings())
def test_waits_phases_and_wall_time_of_any_recording(recording):
    assert waits(recording)["seconds"].min(initial=0.0) >= 0.0
    wall = recording.stop - recording.start
    for table in (phases(recording), wall_time(recording)):
        assert table["seconds"].min() >= 0.0
        assert table["seconds"].sum() == pytest.approx(wall, rel=1e-12)


def spin(n):
    end = time.perf_counter() + 1e-3
    while time.perf_counter() < end:
        pass


def spin_metered(n):
    with context_meter.meter("outer"):
        spin(n)


def spin_metered_twice(n):
    with context_meter.meter("outer"), context_meter.meter("inner"):
        spin(n)


def sleep_by_a_clock_of_its_own(n):
    """It meters twice the seconds that it takes."""
    with context_meter.meter("clock", func=lambda: 2 * time.perf_counter()):
        time.sleep(1e-3)


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get])
@pytest.mark.parametrize(
    "function", [spin, spin_metered, spin_metered_twice, sleep_by_a_clock_of_its_own]
)
def test_tasks_that_meter_all_they_do(function, get):
    """What is left of each task is what it takes to read the clocks."""
    dsk = {("x", n): (function, n) for n in range(40)}
    with Profiler() as prof:
        get(dsk, list(dsk), num_workers=2)
    assert activities(prof.recording, by="worker")["value"].min() >= 0.0
    if get is not dask.multiprocessing.get:
        assert_adds_up(prof.recording)


def steps_of_cpu(step, tasks=200, took=1e-3, share=0.6):
    """One worker whose tasks take CPU for a share of their time, read from a clock in steps."""
    used = np.floor(np.arange(tasks + 1) * took * share / step) * step
    cpu = np.diff(used)
    return run([Task(n * took, (n + 1) * took, cpu[n]) for n in range(tasks)], workers=1)


@pytest.mark.parametrize("step", [1e-9, 4e-3, 10e-3])
def test_cpu_of_a_clock_in_steps_is_not_lost(step):
    """Most tasks show no CPU and a few show ten times what they took: the sum is what it was."""
    recording = steps_of_cpu(step)
    shares = {row["activity"]: row["value"] for row in activities(recording).to_dicts()}
    assert shares["thread-cpu"] == pytest.approx(recording.tasks.thread_cpu.sum())
    assert shares["thread-cpu"] == pytest.approx(0.12, abs=step)
    assert_adds_up(recording)


def failing(meanwhile):
    """A task that fails after 0.1 s, and one that goes on until `meanwhile` says so."""

    def fail():
        time.sleep(0.11)
        raise ValueError

    return {("bad", 0): (fail,), ("slow", 0): (meanwhile.wait, 5)}


def test_no_task_goes_on_after_a_computation_that_failed(monkeypatch):
    """To list the pools of libraries takes a while, in which others of its tasks end."""
    meanwhile = threading.Event()

    def thread_pools():
        meanwhile.set()
        time.sleep(0.01)
        return []

    monkeypatch.setattr(session, "thread_pools", thread_pools)
    dsk = failing(meanwhile)
    with Profiler() as prof, pytest.raises(ValueError):
        dask.threaded.get(dsk, list(dsk), num_workers=2)
    assert meanwhile.is_set()
    recording = prof.recording
    assert len(recording.tasks) == 2
    assert np.nanmax(recording.tasks.stop) <= recording.computations.stop[0]
    assert_adds_up(recording)


def test_no_task_starts_after_what_is_read_of_a_running_computation(monkeypatch):
    """It is read task by task while others start: it has lasted until all was read."""
    started, is_read = threading.Event(), threading.Event()
    read = increments.snapshot_of

    def read_slowly(*args):
        is_read.set()
        assert started.wait(5)
        return read(*args)

    def second(first):
        started.set()
        ended.wait(5)

    ended = threading.Event()
    dsk = {("first", 0): (is_read.wait, 5), ("second", 0): (second, ("first", 0))}
    with Profiler() as prof:
        thread = threading.Thread(target=dask.threaded.get, args=(dsk, ("second", 0)))
        thread.start()
        while not prof.session.computations:
            time.sleep(1e-3)
        monkeypatch.setattr(increments, "snapshot_of", read_slowly)
        _, now = TaskTables(prof.session).take()
        ended.set()
        thread.join()
    assert now["tasks"]["function"].tolist() == ["second"]
    assert now["tasks"]["start"][0] <= now["computations"]["stop"][0]
