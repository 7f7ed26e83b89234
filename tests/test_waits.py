"""What tasks waited for: workloads whose answer is known, and hand-written samples."""

from __future__ import annotations

import dataclasses
import gc
import hashlib
import os
import sys
import tempfile
import threading
import time
from types import SimpleNamespace

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

from dask_diag import DiagnosticError, Profiler, activities, context_meter, waits
from dask_diag.columns import Categorical
from dask_diag.model.table import Table
from dask_diag.profilers import engine
from dask_diag.sampling import linux
from dask_diag.sampling import waits as waits_module
from dask_diag.sampling.sampler import Sampler, running_now
from dask_diag.sampling.waits import ProbedThread, first_position
from dask_diag.system.periodic import time_of_tick

from .tables import filled_table
from .test_finding_thresholds import Task, run

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="waits are reported on Linux")
WAITS = {
    "cpu-wait",
    "gil-wait",
    "lock-wait",
    "io-wait",
    "child-wait",
    "sleep",
    "device-wait",
    "page-fault",
    "unexplained",
}


def spin(seconds):
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def sleep_and_spin():
    time.sleep(0.5)
    spin(0.5)


def sleep_often():
    for _ in range(100):
        time.sleep(0.005)
        spin(0.005)


def read_a_pipe():
    reading, writing = os.pipe()
    writer = threading.Timer(0.5, os.write, (writing, b"x"))
    writer.start()
    os.read(reading, 1)
    writer.join()
    os.close(reading)
    os.close(writing)


def wait_for_a_lock():
    threading.Event().wait(0.5)


def wait_for_a_locked_file():
    import fcntl

    with tempfile.NamedTemporaryFile() as file, open(file.name) as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        threading.Timer(0.5, fcntl.flock, (holder, fcntl.LOCK_UN)).start()
        fcntl.flock(file, fcntl.LOCK_EX)


def without_the_lock():
    hashlib.sha256(bytes(100_000_000)).digest()


def profiled(tasks, get=dask.threaded.get, **kwargs):
    dsk = {("work", n): task for n, task in enumerate(tasks)}
    if get is dask.multiprocessing.get:
        kwargs.setdefault("optimize_graph", False)
        kwargs.setdefault("chunksize", 1)
    with Profiler(waits=True) as prof:
        get(dsk, list(dsk), **kwargs)
    return prof


def waited(prof):
    return {row["activity"]: row["seconds"] for row in waits(prof.recording, "activity").to_dicts()}


def blocked(prof):
    """Non-CPU seconds beside those without a processor, which neighbours may take."""
    return sum(seconds for name, seconds in waited(prof).items() if name != "cpu-wait")


def assert_adds_up(prof):
    recording = prof.recording
    divided = waited(prof)
    assert set(divided) <= WAITS
    noncpu = float(recording.tasks["thread_noncpu"].sum())
    assert sum(divided.values()) == pytest.approx(noncpu, rel=1e-9)
    rows = activities(recording).to_dicts()
    assert not [row for row in rows if row["activity"] == "thread-noncpu" and row["value"]]
    reported = {row["activity"]: row["value"] for row in rows if row["activity"] in WAITS}
    assert sum(reported.values()) == pytest.approx(noncpu, rel=1e-9)
    available = sum(
        row["workers"] * (row["stop"] - row["start"]) for row in recording.computations.to_dicts()
    )
    assert sum(row["value"] for row in rows) == pytest.approx(available, rel=1e-6)


@on_linux
def test_two_spins_wait_for_each_others_lock(retried):
    def measure():
        prof = profiled([(spin, 1.0), (spin, 1.0)], num_workers=2)
        assert_adds_up(prof)
        assert waited(prof)["gil-wait"] >= 0.8 * blocked(prof)
        assert blocked(prof) > 0.5

    retried(measure)


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
@pytest.mark.parametrize(
    ("task", "activity"),
    [
        ((time.sleep, 0.5), "sleep"),
        ((read_a_pipe,), "io-wait"),
        ((wait_for_a_lock,), "lock-wait"),
        ((wait_for_a_locked_file,), "lock-wait"),
        ((sleep_and_spin,), "sleep"),
        ((sleep_often,), "sleep"),
    ],
    ids=["sleep", "pipe", "lock", "locked-file", "sleep-and-spin", "sleep-often"],
)
def test_what_one_task_waits_for(get, task, activity, retried):
    def measure():
        prof = profiled([task], get)
        assert_adds_up(prof)
        assert waited(prof)[activity] >= 0.75 * blocked(prof)
        assert waited(prof)[activity] >= 0.9 * blocked(prof) or task == (sleep_often,)
        assert blocked(prof) > 0.2

    retried(measure)


@on_linux
def test_more_threads_than_processors_wait_for_one(retried):
    def measure():
        cores = len(os.sched_getaffinity(0))
        prof = profiled([(without_the_lock,)] * 4 * cores, num_workers=2 * cores)
        assert_adds_up(prof)
        # A task without the lock still waits for it, and for memory: at its start and its end.
        assert waited(prof)["cpu-wait"] > 0.6 * sum(waited(prof).values())

    retried(measure)


@on_linux
def test_tasks_shorter_than_the_interval(retried):
    def measure():
        prof = profiled([(time.sleep, 0.003)] * 400, num_workers=2)
        assert_adds_up(prof)
        assert waited(prof)["sleep"] >= 0.75 * blocked(prof)

    retried(measure)


def metered_sleep_then_lock():
    with context_meter.meter("I/O"):
        time.sleep(0.4)
    threading.Event().wait(0.4)


@on_linux
def test_what_is_metered_is_not_explained_twice(retried):
    def measure():
        prof = profiled([(metered_sleep_then_lock,)])
        reported = {row["activity"]: row["value"] for row in activities(prof.recording).to_dicts()}
        assert reported["I/O"] == pytest.approx(0.4, abs=0.05)
        assert reported["lock-wait"] == pytest.approx(0.4, abs=0.05)
        assert reported.get("sleep", 0.0) < 0.05

    retried(measure)


def metered_sleep():
    with context_meter.meter("I/O"):
        time.sleep(0.05)


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_waits_of_metered_code_are_in_waits_and_under_its_label_in_activities(get):
    prof = profiled([(metered_sleep,)] * 6, get)
    rows = activities(prof.recording).to_dicts()
    reported = {row["activity"]: row["value"] for row in rows}
    noncpu = float(prof.recording.tasks["thread_noncpu"].sum())
    metrics = prof.recording.metrics
    metered = float((metrics["value"] - metrics["cpu"]).sum())
    assert metered > 0.29
    divided = waited(prof)
    assert sum(divided.values()) == pytest.approx(noncpu, abs=1e-9)
    assert divided.get("unexplained", 0.0) < 0.15
    # The samples say which of the waits were in metered code.
    unmetered = {name: reported.get(name, 0.0) for name in WAITS}
    assert sum(unmetered.values()) == pytest.approx(noncpu - metered, abs=1e-9)
    assert reported["I/O"] > 0.29
    table = prof.recording.waits
    assert set(table["label"][table["activity"].where("sleep")].tolist()) == {"I/O"}


def fail():
    time.sleep(0.05)
    raise ValueError("known")


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_a_failing_task_raises_as_ever(get):
    with pytest.raises(ValueError, match="known"):
        profiled([(fail,)], get)
    assert not running_now()


@on_linux
def test_the_first_task_of_each_computation_is_read_also_on_threads_of_the_one_before(monkeypatch):
    monkeypatch.setattr(waits_module.WaitProbe, "interval", 1000.0)
    with Profiler(waits=True) as prof:
        for _ in range(3):
            dask.local.get_sync({("work", 0): (int,)}, ("work", 0))
    assert list(prof.recording.waits.task) == [0, 1, 2]


@on_linux
def test_a_thread_that_cannot_be_read_hinders_no_task(monkeypatch):
    def fail(*args):
        raise OSError

    monkeypatch.setattr(waits_module, "LinuxThread", fail)
    with Profiler(waits=True) as prof:
        slept = dask.threaded.get({("work", 0): (lambda: time.sleep(0.05) or 7,)}, ("work", 0))
    assert slept == 7
    assert len(prof.recording.tasks) == 1
    assert np.isnan(prof.recording.waits.seconds).all()


@on_linux
def test_profilers_share_and_end_the_sampler():
    with Profiler(waits=True) as one, Profiler(waits=True) as two, Profiler() as three:
        dask.threaded.get({("sleep", 0): (time.sleep, 0.1)}, [("sleep", 0)])
    for prof in (one, two, three):
        assert len(prof.recording.tasks) == 1
    assert not [t for t in threading.enumerate() if t.name == "dask_diag-sampler"]


@on_linux
def test_tasks_that_did_not_wait_have_no_log_and_are_divided_like_others(monkeypatch):
    # No tick comes: beside others a thread may start two tasks between two, and each is read.
    monkeypatch.setattr(waits_module.WaitProbe, "interval", 1000.0)
    tasks = 2000
    prof = profiled([(int,)] * tasks, dask.local.get_sync)
    logged = prof.recording.waits
    # The first one, and about one of so many.
    assert len(logged) == pytest.approx(tasks / waits_module._TASKS_AT_FIRST, rel=0.4)
    assert_adds_up(prof)


class ThisThread(threading.local):
    def __init__(self):
        self.state = linux.LinuxThread(threading.get_native_id())


def hash_and_read():
    """Work without the GIL; how long the thread had waited for a processor before and after."""
    before = this_thread.state.waited_for_cpu()
    hashlib.sha256(MEGABYTE).digest()
    return threading.get_ident(), before, this_thread.state.waited_for_cpu()


this_thread = ThisThread()
MEGABYTE = bytes(1_000_000)


@on_linux
def test_of_short_tasks_some_are_read_and_represent_all():
    threads = 2 * len(os.sched_getaffinity(0))
    dsk = {("work", n): (hash_and_read,) for n in range(300 * threads)}
    with Profiler(waits=True) as prof:
        read = dask.threaded.get(dsk, list(dsk), num_workers=threads)
    (row,) = (r for r in waits(prof.recording).to_dicts() if r["activity"] == "cpu-wait")
    assert 10 < row["samples"] < len(dsk) / 2
    assert 0 < row["error"] < row["seconds"] / 2
    # At least while they hashed, at most in all that their threads did.
    least = sum(after - before for _, before, after in read)
    most = 0.0
    for thread in {ident for ident, _, _ in read}:
        readings = [seconds for ident, *both in read if ident == thread for seconds in both]
        most += max(readings) - min(readings)
    assert least - 4 * row["error"] < row["seconds"] < most + 4 * row["error"]
    assert_adds_up(prof)


@on_linux
def test_of_long_tasks_each_is_read():
    prof = profiled([(time.sleep, 0.05)] * 12, num_workers=3)
    (row,) = (r for r in waits(prof.recording).to_dicts() if r["activity"] == "cpu-wait")
    # The first ones come before it is known that they are long.
    assert row["samples"] >= 6
    assert row["error"] <= row["seconds"]


def read_numbers(tasks_between_ticks):
    """Which tasks of a thread are read that starts so many between one tick and the next."""
    thread, numbers = ProbedThread(0, 0), []
    for tasks in tasks_between_ticks:
        for _ in range(tasks):
            thread.tasks += 1
            if thread.tasks >= thread.due:
                numbers.append(thread.tasks)
                thread.was_read()
        thread.tick()
    return numbers


def test_one_task_of_each_tick_is_read_wherever_it_is_between_two():
    ticks, per_tick = 5000, 20
    numbers = read_numbers([per_tick] * ticks)
    assert len(numbers) == pytest.approx(ticks, rel=0.05)
    counts = np.bincount([number % per_tick for number in numbers], minlength=per_tick)
    assert counts.min() > 0.7 * ticks / per_tick
    assert counts.max() < 1.3 * ticks / per_tick


def test_tasks_of_busy_ticks_have_the_chance_of_others_to_be_read():
    ticks = [5, 35] * 3000
    numbers = read_numbers(ticks)
    few = sum((number - 1) % 40 < 5 for number in numbers)
    assert few / len(numbers) == pytest.approx(5 / 40, rel=0.15)


def test_long_tasks_are_read_soon_after_short_ones():
    numbers = read_numbers([1000] * 50 + [0, 0, 0, 0, 1] * 30)
    assert len([number for number in numbers if number > 50_000]) >= 25
    # And of the first 10 ms of short ones only a few.
    assert len(read_numbers([2000])) < 150


@on_linux
def test_a_task_is_probed_only_once_it_is_sampled(monkeypatch):
    made = []

    class CountedTaskProbe(waits_module.WaitTaskProbe):
        def __init__(self, *args):
            made.append(args)
            super().__init__(*args)

    monkeypatch.setattr(waits_module, "WaitTaskProbe", CountedTaskProbe)
    prof = profiled([(int,)] * 2000 + [(time.sleep, 0.2)], dask.local.get_sync)
    # A tick in 10 ms; the sampler may make fewer.
    took = prof.recording.stop - prof.recording.start
    assert 1 <= len(made) <= took / 0.01 + 2


def test_without_explain_nothing_is_explained():
    with Profiler() as prof:
        dask.threaded.get({("sleep", 0): (time.sleep, 0.01)}, [("sleep", 0)])
    assert not len(prof.recording.waits)
    assert not len(waits(prof.recording))


def test_where_it_cannot_be_reported_the_reason_is(monkeypatch):
    monkeypatch.setattr(linux.sys, "platform", "strange")
    with Profiler(waits=True) as prof:
        dask.threaded.get({("sleep", 0): (time.sleep, 0.01)}, [("sleep", 0)])
    assert not len(prof.recording.waits)
    assert "strange" in prof.recording.notices[0]
    assert "strange" in prof.summary()


def test_impossible_arguments():
    with pytest.raises(TypeError, match="True or False"):
        Profiler(waits="yes")
    with Profiler() as prof:
        pass
    with pytest.raises(DiagnosticError, match="expected 'function' or 'activity'"):
        waits(prof.recording, by="worker")


def test_a_listener_that_raises_is_taken_out():
    reported = []
    sampler = Sampler()
    sampler.add(lambda passed: 1 / 0, 0.001, reported.append)
    deadline = time.perf_counter() + 5
    while not reported and time.perf_counter() < deadline:
        time.sleep(0.01)
    (error,) = reported
    assert isinstance(error, ZeroDivisionError)
    ticks = []
    user = sampler.add(ticks.append, 0.001, reported.append)
    while len(ticks) < 5 and time.perf_counter() < deadline:
        time.sleep(0.01)
    sampler.remove(user)
    assert len(ticks) >= 5
    assert not [t for t in threading.enumerate() if t.name == "dask_diag-sampler"]


def with_waits(rows, noncpu=1.0):
    """A recording of one task, of one second on top of `noncpu`, and what was seen of it."""
    with Profiler() as prof:
        dask.local.get_sync({("work", 0): (int,)}, [("work", 0)])
    recording = prof.recording
    columns = {name: recording.tasks[name] for name in recording.tasks.columns}
    columns["stop"] = columns["start"] + 1 + noncpu
    columns["thread_cpu"], columns["thread_noncpu"] = np.array([1.0]), np.array([noncpu])
    table = Table(
        {
            "task": np.zeros(len(rows), dtype=np.int64),
            "activity": Categorical.of(name for name, _, _ in rows),
            "seconds": np.array([seconds for _, seconds, _ in rows], dtype=float),
            "samples": np.array([samples for _, _, samples in rows], dtype=np.int64),
            "label": Categorical.of("" for _ in rows),
        }
    )
    return dataclasses.replace(recording, tasks=Table(columns), waits=table)


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ([("cpu-wait", 0.25, 0)], {"cpu-wait": 0.25, "unexplained": 0.75}),
        ([("cpu-wait", 2.0, 0)], {"cpu-wait": 1.0, "unexplained": 0.0}),
        ([("cpu-wait", 0.0, 0), ("sleep", 1.0, 100)], {"cpu-wait": 0.0, "sleep": 1.0}),
        ([("cpu-wait", 0.0, 0), ("sleep", 2.0, 200)], {"cpu-wait": 0.0, "sleep": 1.0}),
        (
            [("cpu-wait", 0.0, 0), ("sleep", 0.5, 50)],
            {"cpu-wait": 0.0, "sleep": 0.5, "unexplained": 0.5},
        ),
        (
            [("cpu-wait", 0.0, 0), ("sleep", 0.5, 50), ("gil-wait", 0.0, 90)],
            {"cpu-wait": 0.0, "sleep": 0.5, "gil-wait": 0.5},
        ),
        (
            [("cpu-wait", 0.0, 0), ("sleep", 0.5, 50), ("gil-wait", 0.2, 20)],
            {"cpu-wait": 0.0, "sleep": 0.5, "gil-wait": 0.5},
        ),
        (
            [("cpu-wait", 0.2, 0), ("sleep", 0.9, 90), ("gil-wait", 0.3, 30)],
            {"cpu-wait": 0.2, "sleep": 0.6, "gil-wait": 0.2},
        ),
    ],
)
def test_samples_divide_the_exact_seconds(rows, expected):
    table = waits(with_waits(rows))
    assert {row["activity"]: row["seconds"] for row in table.to_dicts()} == pytest.approx(expected)
    assert table["seconds"].sum() == pytest.approx(1.0)
    assert table["samples"].sum() == sum(samples for _, _, samples in rows)


def short_tasks(*offs):
    """Tasks of one function, each so long off the CPU."""
    return run([Task(n, n + off, 0.0, "f") for n, off in enumerate(offs)])


def for_cpu(recording, *rows):
    columns = dict(
        zip(("task", "seconds", "samples"), map(list, zip(*rows, strict=True)), strict=True)
    )
    columns["activity"] = ["cpu-wait"] * len(rows)
    made = dataclasses.replace(recording, waits=filled_table("waits", columns))
    (row,) = (row for row in waits(made).to_dicts() if row["activity"] == "cpu-wait")
    return row["seconds"], row["samples"], row["error"]


def test_tasks_that_were_not_read_wait_for_a_cpu_as_those_that_were():
    recording = short_tasks(0.1, 0.1, 0.2, 0.4)
    # All of them: exact.
    rows = [(0, 0.01, 1), (1, 0.02, 1), (2, 0.0, 1), (3, 0.1, 1)]
    assert for_cpu(recording, *rows) == pytest.approx((0.13, 4, 0.0))
    # One of four: of the other 0.7 s the same share, and nothing is known of how they differ.
    assert for_cpu(recording, (0, 0.01, 1)) == pytest.approx((0.08, 1, 0.07))
    # Two, of 0.2 s, waited 0.03 s: 15%, give or take sqrt(2 * 2 * 0.005 ** 2) / 0.2.
    assert for_cpu(recording, (0, 0.01, 1), (1, 0.02, 1)) == pytest.approx((0.12, 2, 0.03))
    # A part of a task counts for itself only.
    assert for_cpu(recording, (0, 0.01, 1), (3, 0.3, 0)) == pytest.approx((0.34, 1, 0.03))
    assert for_cpu(recording, (3, 0.3, 0)) == pytest.approx((0.3, 0, 0.0))


def test_functions_of_which_no_task_was_read_wait_for_a_cpu_as_the_others():
    recording = run([Task(0, 1, 0.0, "f"), Task(0, 2, 1.5, "g", worker=1)])
    rows = {"task": [0], "activity": ["cpu-wait"], "seconds": [0.2], "samples": [1]}
    made = dataclasses.replace(recording, waits=filled_table("waits", rows))
    for_a_cpu = {r["function"]: r for r in waits(made).to_dicts() if r["activity"] == "cpu-wait"}
    assert for_a_cpu["f"]["seconds"] == pytest.approx(0.2)
    assert for_a_cpu["g"]["seconds"] == pytest.approx(0.1)
    assert for_a_cpu["g"]["samples"] == 0
    assert for_a_cpu["g"]["error"] == pytest.approx(0.1)


def test_what_tasks_of_one_function_wait_for_says_nothing_of_others():
    recording = run([Task(0, 1, 0.0, "f"), Task(0, 2, 1.5, "g", worker=1)])
    rows = {
        "task": [0, 0],
        "activity": ["sleep", "cpu-wait"],
        "seconds": [1.0, 0.0],
        "samples": [100, 1],
    }
    made = dataclasses.replace(recording, waits=filled_table("waits", rows))
    divided = {(r["function"], r["activity"]): r["seconds"] for r in waits(made).to_dicts()}
    assert divided["f", "sleep"] == pytest.approx(1.0)
    assert divided["g", "unexplained"] == pytest.approx(0.5)
    assert ("g", "sleep") not in divided


def test_computations_that_were_not_probed_are_not_divided():
    recording = run([Task(0, 1, 0.0, "f"), Task(0, 1, 0.5, "f", worker=1)])
    columns = {name: recording.tasks[name] for name in recording.tasks.columns}
    columns["computation"] = Categorical.of(["c", "d"])
    rows = {"task": [0], "activity": ["cpu-wait"], "seconds": [0.2], "samples": [1]}
    made = dataclasses.replace(recording, tasks=Table(columns), waits=filled_table("waits", rows))
    divided = {row["activity"]: row["seconds"] for row in waits(made).to_dicts()}
    assert divided == pytest.approx({"cpu-wait": 0.2, "unexplained": 0.8})


def test_errors_of_functions_are_independent_of_each_other():
    tasks = [Task(0, 1, 0.0, "f"), Task(0, 1, 0.0, "g", worker=1)]
    rows = {
        "task": [0, 1, 0, 1],
        "activity": ["cpu-wait", "cpu-wait", "sleep", "sleep"],
        "seconds": [0.0, 0.0, 0.4, 0.6],
        "samples": [0, 0, 40, 60],
    }
    made = dataclasses.replace(run(tasks), waits=filled_table("waits", rows))
    slept = [row for row in waits(made).to_dicts() if row["activity"] == "sleep"]
    (both,) = (row for row in waits(made, "activity").to_dicts() if row["activity"] == "sleep")
    assert both["seconds"] == pytest.approx(1.0)
    assert all(row["error"] > 0 for row in slept)
    assert both["error"] == pytest.approx(np.hypot(*(row["error"] for row in slept)))


def test_sampled_seconds_have_an_error_and_exact_ones_none():
    rows = [("cpu-wait", 0.2, 0), ("sleep", 0.4, 40), ("io-wait", 0.1, 10), ("gil-wait", 0.0, 5)]
    table = waits(with_waits(rows))
    error = {row["activity"]: row["error"] for row in table.to_dicts()}
    samples = {row["activity"]: row["samples"] for row in table.to_dicts()}
    assert error["cpu-wait"] == 0.0
    # 40 of 200 looks: the standard deviation of 40 is sqrt(40 * 0.8).
    assert error["sleep"] == pytest.approx(0.4 * np.sqrt(0.8 / 40))
    assert error["io-wait"] == pytest.approx(0.1 * np.sqrt(0.95 / 10))
    assert error["gil-wait"] == pytest.approx(np.hypot(error["sleep"], error["io-wait"]))
    assert samples == {"cpu-wait": 0, "sleep": 40, "io-wait": 10, "gil-wait": 5}


@on_linux
@pytest.mark.once
def test_two_that_are_the_first_to_read_leave_nothing_open():
    """The second reads while the first has opened the file, and does not know it yet."""
    kernel = linux._kernel()
    opened, closed, read = [], [], []

    def open_it(*arguments):
        descriptor = kernel.open(*arguments)
        opened.append(descriptor)
        if len(opened) == 1:
            read.append(files[0].read())
        return descriptor

    def close(descriptor):
        closed.append(descriptor)
        kernel.close(descriptor)

    counted = SimpleNamespace(open=open_it, pread=kernel.pread, close=close)
    path = b"/proc/self/task/%d/schedstat" % threading.get_native_id()
    files = [linux._File(path, counted)]
    read.append(files[0].read())
    assert [len(text.split()) for text in read] == [3, 3]
    files.clear()
    gc.collect()
    assert sorted(closed) == sorted(opened)
    assert len(opened) == 2


@on_linux
def test_many_threads_read_their_own_numbers():
    main = linux.LinuxThread(threading.get_native_id())
    errors = []

    def read():
        try:
            own = linux.LinuxThread(threading.get_native_id())
            for _ in range(2000):
                assert own.waited_for_cpu() >= 0
                # It may have just gone to sleep when its state was read.
                assert own.waits_for() is not None
                assert main.waits_for() is not None
        except Exception as error:
            errors.append(error)

    readers = [threading.Thread(target=read) for _ in range(4)]
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for reader in readers:
            reader.start()
        for reader in readers:
            reader.join()
    finally:
        sys.setswitchinterval(interval)
    assert not errors


@on_linux
def test_numbers_that_cannot_be_read_do_not_reach_the_task(monkeypatch):
    monkeypatch.setattr(linux._File, "read", lambda self: b"?")
    prof = profiled([(time.sleep, 0.05)])
    assert prof.recording.tasks["outcome"].tolist() == ["ok"]
    assert set(waited(prof)) == {"cpu-wait", "unexplained"}


def files_in_proc():
    return [
        path
        for number in os.listdir("/proc/self/fd")
        if (path := _target(f"/proc/self/fd/{number}")).startswith("/proc")
    ]


def _target(link):
    try:
        return os.readlink(link)
    except OSError:
        return ""


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_files_of_threads_are_open_as_long_as_a_compute(get, monkeypatch, request):
    # Those of the rehearsal of the hooks are closed as well, without a collection of garbage.
    monkeypatch.setattr(engine, "_costs", {})
    request.addfinalizer(gc.enable)
    gc.disable()
    before = len(files_in_proc())
    prof = profiled([(time.sleep, 0.1)] * 4, get)
    assert len(prof.recording.waits)
    assert len(files_in_proc()) <= before


@on_linux
def test_a_thread_that_has_ended_waits_for_nothing():
    idents = []
    thread = threading.Thread(target=lambda: idents.append(threading.get_native_id()))
    thread.start()
    thread.join()
    while os.path.exists(f"/proc/self/task/{idents[0]}"):
        time.sleep(0.01)
    ended = linux.LinuxThread(idents[0])
    assert ended.waits_for() is None
    assert np.isnan(ended.waited_for_cpu())


def test_of_many_tasks_each_is_looked_at_in_all_parts_of_an_interval():
    seen = np.zeros((4, 4))
    for tick in range(1, 4001):
        part = int(4 * (time_of_tick(tick, 1.0) - tick))
        seen[first_position(4, tick), part] += 1
    assert seen.min() > 200
    assert seen.max() < 300


@on_linux
def test_two_of_many_tasks_stand_for_all(retried):
    def measure():
        prof = profiled([(time.sleep, 0.5)] * 6, num_workers=6)
        waited_for = waited(prof)
        assert waited_for["sleep"] == pytest.approx(3.0, rel=0.2)
        # Fifty ticks, of two looks each.
        assert 40 < prof.recording.waits["samples"].sum() < 130

    retried(measure)
