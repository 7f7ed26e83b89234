"""What tasks waited for: workloads whose answer is known, and hand-written samples."""

from __future__ import annotations

import gc
import hashlib
import os
import sys
import tempfile
import threading
import time

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

from dask_diag import DiagnosticError, Profiler, activities, context_meter, waits
from dask_diag.sampling import linux
from dask_diag.sampling import waits as waits_module
from dask_diag.sampling.waits import ProbedThread, first_position
from dask_diag.system.periodic import time_of_tick

from .recordings import NOTHING, with_tables

SCHEDULERS = [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get]
on_linux = pytest.mark.skipif(sys.platform != "linux", reason="waits are reported on Linux")
WAITS = {
    "cpu-wait",
    "gil-wait",
    "lock-wait",
    "thread-wait",
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


def wait_for_an_event():
    threading.Event().wait(0.5)


def wait_for_a_locked_file():
    import fcntl

    with tempfile.NamedTemporaryFile() as file, open(file.name) as holder:
        fcntl.flock(holder, fcntl.LOCK_EX)
        threading.Timer(0.5, fcntl.flock, (holder, fcntl.LOCK_UN)).start()
        fcntl.flock(file, fcntl.LOCK_EX)


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


def metered_sleep():
    with context_meter.meter("I/O"):
        time.sleep(0.05)
    threading.Event().wait(0.05)


@on_linux
@pytest.mark.parametrize("get", SCHEDULERS)
def test_waits_of_metered_code_are_in_waits_and_under_its_label_in_activities(get, retried):
    def measure():
        prof = profiled([(metered_sleep,)] * 6, get)
        recording = prof.recording
        reported = {row["activity"]: row["value"] for row in activities(recording).to_dicts()}
        noncpu = float(recording.tasks["thread_noncpu"].sum())
        # A collection of garbage in a task is metered too, in seconds and in objects.
        metrics = recording.metrics.filter(recording.metrics["unit"].eq("seconds"))
        metered = float((metrics["value"] - metrics["cpu"]).sum())
        assert metered > 0.29
        divided = waited(prof)
        assert sum(divided.values()) == pytest.approx(noncpu, abs=1e-9)
        assert divided.get("unexplained", 0.0) < 0.2
        # The samples say which of the waits were in metered code.
        unmetered = {name: reported.get(name, 0.0) for name in WAITS}
        assert sum(unmetered.values()) == pytest.approx(noncpu - metered, abs=1e-9)
        assert reported["I/O"] > 0.29
        assert unmetered["thread-wait"] > 0.2 > unmetered["sleep"]
        table = recording.waits
        assert set(table["label"][table["activity"].eq("sleep")].tolist()) == {"I/O"}

    retried(measure)


@on_linux
def test_the_first_task_of_each_computation_is_read_also_on_threads_of_the_one_before(monkeypatch):
    monkeypatch.setattr(waits_module.WaitProbe, "interval", 1000.0)
    with Profiler(waits=True) as prof:
        for _ in range(3):
            dask.local.get_sync({("work", 0): (int,)}, ("work", 0))
    assert list(prof.recording.waits.task) == [0, 1, 2]


@on_linux
@pytest.mark.parametrize("broken", [(waits_module, "LinuxThread"), (linux._File, "read")])
def test_a_thread_that_cannot_be_read_hinders_no_task(broken, monkeypatch):
    def fail(*args):
        raise OSError

    monkeypatch.setattr(*broken, fail if broken[1] == "LinuxThread" else lambda self: b"?")
    with Profiler(waits=True) as prof:
        slept = dask.threaded.get({("work", 0): (lambda: time.sleep(0.05) or 7,)}, ("work", 0))
    assert slept == 7
    assert prof.recording.tasks["outcome"].tolist() == ["ok"]
    assert set(waited(prof)) <= {"cpu-wait", "unexplained"}


def test_where_it_is_not_asked_for_or_cannot_be_reported_there_is_none(monkeypatch):
    monkeypatch.setattr(linux.sys, "platform", "strange")
    with Profiler() as plain, Profiler(waits=True) as prof:
        dask.threaded.get({("sleep", 0): (time.sleep, 0.01)}, [("sleep", 0)])
    for profiler in (plain, prof):
        assert len(profiler.recording.waits) == len(waits(profiler.recording)) == 0
    assert "strange" in prof.recording.notices[0]
    assert "strange" in prof.summary()
    with pytest.raises(TypeError, match="True or False"):
        Profiler(waits="yes")
    with pytest.raises(DiagnosticError, match="expected 'function' or 'activity'"):
        waits(prof.recording, by="worker")


def divided(tasks, rows, cpu=0.0, by="function", computation=()):
    """Rows of `waits` by function and activity.

    Tasks are (function, seconds without CPU); rows are (task, activity, seconds, samples).
    """
    function, noncpu = zip(*tasks, strict=True)
    of_tasks = {
        "function": function,
        "start": np.zeros(len(tasks)),
        "stop": np.add(noncpu, cpu),
        "thread_cpu": np.full(len(tasks), cpu),
        "thread_noncpu": noncpu,
        "computation": computation or ["c"] * len(tasks),
        "outcome": ["ok"] * len(tasks),
    }
    of_waits = dict(zip(("task", "activity", "seconds", "samples"), zip(*rows, strict=True)))
    made = with_tables(NOTHING, tasks=of_tasks, waits=of_waits)
    return {(row.get("function"), row["activity"]): row for row in waits(made, by).to_dicts()}


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


@on_linux
def test_long_tasks_are_read_soon_after_short_ones():
    numbers = read_numbers([1000] * 50 + [0, 0, 0, 0, 1] * 30)
    assert len([number for number in numbers if number > 50_000]) >= 25
    # And of the first 10 ms of short ones only a few.
    assert len(read_numbers([2000])) < 150
    prof = profiled([(time.sleep, 0.05)] * 12, num_workers=3)
    (row,) = (r for r in waits(prof.recording).to_dicts() if r["activity"] == "cpu-wait")
    # The first ones come before it is known that they are long.
    assert row["samples"] >= 6
    assert row["error"] <= row["seconds"]


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
    table = divided([("f", 1.0)], [(0, *row) for row in rows])
    seconds = {name: row["seconds"] for (_, name), row in table.items()}
    assert seconds == pytest.approx(expected)
    assert sum(seconds.values()) == pytest.approx(1.0)
    samples = {name: row["samples"] for (_, name), row in table.items() if row["samples"]}
    assert samples == {name: count for name, _, count in rows if count}


@pytest.mark.parametrize(
    ("read", "expected"),
    [
        # All of them: exact.
        ([(0, 0.01, 1), (1, 0.02, 1), (2, 0.0, 1), (3, 0.1, 1)], (0.13, 4, 0.0)),
        # One of four: of the other 0.7 s the same share, and nothing is known of how they differ.
        ([(0, 0.01, 1)], (0.08, 1, 0.07)),
        # Two, of 0.2 s, waited 0.03 s: 15%, give or take sqrt(2 * 2 * 0.005 ** 2) / 0.2.
        ([(0, 0.01, 1), (1, 0.02, 1)], (0.12, 2, 0.03)),
        # A part of a task counts for itself only.
        ([(0, 0.01, 1), (3, 0.3, 0)], (0.34, 1, 0.03)),
        ([(3, 0.3, 0)], (0.3, 0, 0.0)),
    ],
)
def test_tasks_that_were_not_read_wait_for_a_cpu_as_those_that_were(read, expected):
    rows = [(task, "cpu-wait", *of_task) for task, *of_task in read]
    row = divided([("f", off) for off in (0.1, 0.1, 0.2, 0.4)], rows)["f", "cpu-wait"]
    assert (row["seconds"], row["samples"], row["error"]) == pytest.approx(expected)


def test_functions_share_only_the_wait_for_a_cpu():
    """Of a function without a reading it is that of all others; else they are independent."""
    rows = [(0, "cpu-wait", 0.2, 1), (0, "sleep", 0.8, 80)]
    table = divided([("f", 1.0), ("g", 0.5)], rows)
    assert {name: row["seconds"] for name, row in table.items()} == pytest.approx(
        {("f", "cpu-wait"): 0.2, ("f", "sleep"): 0.8, ("g", "cpu-wait"): 0.1}
        | {("g", "unexplained"): 0.4}
    )
    assert (table["g", "cpu-wait"]["samples"], table["g", "cpu-wait"]["error"]) == (
        0,
        pytest.approx(0.1),
    )
    # Of a computation that was not probed nothing is known.
    table = divided([("f", 1.0), ("f", 0.5)], rows[:1], computation=["c", "d"])
    assert {name: row["seconds"] for (_, name), row in table.items()} == pytest.approx(
        {"cpu-wait": 0.2, "unexplained": 0.8}
    )


def test_sampled_seconds_have_an_error_and_exact_ones_none():
    rows = [("cpu-wait", 0.2, 0), ("sleep", 0.4, 40), ("io-wait", 0.1, 10), ("gil-wait", 0.0, 5)]
    table = divided([("f", 1.0)], [(0, *row) for row in rows], cpu=1.0)
    error = {name: row["error"] for (_, name), row in table.items()}
    assert error["cpu-wait"] == 0.0
    # 40 of 200 looks: the standard deviation of 40 is sqrt(40 * 0.8).
    assert error["sleep"] == pytest.approx(0.4 * np.sqrt(0.8 / 40))
    assert error["io-wait"] == pytest.approx(0.1 * np.sqrt(0.95 / 10))
    assert error["gil-wait"] == pytest.approx(np.hypot(error["sleep"], error["io-wait"]))
    # Errors of functions are independent of each other.
    tasks = [("f", 1.0), ("g", 1.0)]
    rows = [(n, *row) for n in (0, 1) for row in (("cpu-wait", 0.0, 0), ("sleep", 0.4, 40 + n))]
    each, both = divided(tasks, rows), divided(tasks, rows, by="activity")[None, "sleep"]
    errors = [each[function, "sleep"]["error"] for function in "fg"]
    assert min(errors) > 0
    assert both["error"] == pytest.approx(np.hypot(*errors))


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
def test_files_of_threads_are_open_as_long_as_a_compute(get, request):
    # Without a collection of garbage.
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
@pytest.mark.parametrize(
    ("tasks", "activity", "least", "how"),
    [
        ([(spin, 1.0)] * 2, "gil-wait", 0.5, {"num_workers": 2}),
        ([(time.sleep, 0.003)] * 400, "sleep", 0.2, {"num_workers": 2}),
        # Two tasks, looked at in turns, stand for all.
        ([(time.sleep, 0.5)] * 6, "sleep", 2.4, {"num_workers": 6}),
        *(
            ([(function, *args)], activity, 0.2, {"get": get})
            for get in SCHEDULERS
            for function, activity, *args in (
                (time.sleep, "sleep", 0.5),
                (read_a_pipe, "io-wait"),
                (wait_for_an_event, "thread-wait"),
                (wait_for_a_locked_file, "lock-wait"),
                (sleep_often, "sleep"),
            )
        ),
    ],
)
def test_what_tasks_wait_for(tasks, activity, least, how, retried):
    def measure():
        prof = profiled(tasks, **how)
        assert_adds_up(prof)
        share = 0.9 if len(tasks) == 1 and tasks != [(sleep_often,)] else 0.75
        assert waited(prof)[activity] >= share * blocked(prof)
        assert blocked(prof) > least
        # Of six tasks in half a second: fifty ticks, of two looks each.
        assert len(tasks) != 6 or 40 < prof.recording.waits["samples"].sum() < 130

    retried(measure)
