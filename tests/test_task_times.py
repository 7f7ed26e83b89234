"""Times of tasks, against work whose duration and CPU time are known."""

from __future__ import annotations

import contextlib
import math
import multiprocessing
import os
import signal
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing.pool import ThreadPool
from operator import add

import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import pytest
from dask.callbacks import Callback

from dask_diag import CacheProfiler, Profiler, ProgressBar

SCHEDULERS = {
    "synchronous": dask.local.get_sync,
    "threads": dask.threaded.get,
    "processes": dask.multiprocessing.get,
}


def spin(cpu_seconds):
    started = time.thread_time()
    while time.thread_time() - started < cpu_seconds:
        pass


def fail(*args):
    raise ValueError("on purpose")


def sleeps(durations):
    dsk = {("sleep", n): (time.sleep, duration) for n, duration in enumerate(durations)}
    return dsk, list(dsk)


def rows(prof):
    return prof.recording.tasks.to_dicts()


def wall(row):
    return row["stop"] - row["start"]


def assert_disjoint(tasks):
    ordered = sorted(tasks, key=lambda row: row["start"])
    for one, following in zip(ordered, ordered[1:]):
        assert one["stop"] <= following["start"]


@pytest.mark.parametrize("chunksize", [1, 6])
def test_sleeps_of_different_lengths_under_processes_keep_their_lengths(chunksize, retried):
    durations = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]

    def measure():
        with Profiler() as prof:
            dask.multiprocessing.get(*sleeps(durations), num_workers=1, chunksize=chunksize)
        assert_disjoint(rows(prof))
        assert sorted(map(wall, rows(prof))) == pytest.approx(durations, abs=0.02)
        true = sorted(r.end_time - r.start_time for r in prof.results)
        assert true == pytest.approx(durations, abs=0.02)
        assert all(task["thread_noncpu"] >= 0.98 * wall(task) for task in rows(prof))

    retried(measure)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_two_spinning_tasks_have_their_cpu(scheduler, retried):
    def measure():
        dsk = {("spin", n): (spin, 0.3) for n in range(2)}
        with Profiler() as prof:
            SCHEDULERS[scheduler](dsk, list(dsk), num_workers=2)
        for task in rows(prof):
            assert task["thread_cpu"] == pytest.approx(0.3, abs=0.02)
            # In threads they share the GIL.
            assert scheduler != "threads" or wall(task) > 0.45
            assert task["thread_noncpu"] == pytest.approx(wall(task) - task["thread_cpu"])
            assert scheduler != "processes" or task["worker"] in ("process-0", "process-1")

    retried(measure)


@pytest.mark.parametrize("chunksize", [1, 3])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_order_of_a_tasks_times_and_its_worker(scheduler, chunksize):
    class Ids(Callback):
        seen = []

        def _posttask(self, key, result, dsk, state, worker_id):
            self.seen.append(str(worker_id))

    dsk = {("nap", n): (time.sleep, 0.01) for n in range(5)}
    dsk |= {("b-x", 0): (add, 1, 1), ("c-x", 0): (add, ("b-x", 0), 1)}
    with Ids() as ids, Profiler() as prof:
        SCHEDULERS[scheduler](dsk, list(dsk), num_workers=2, chunksize=chunksize)
    tasks = rows(prof)
    assert [task["outcome"] for task in tasks] == ["ok"] * len(tasks)
    for task in tasks:
        assert prof.start_time < task["submitted"] < task["start"] < task["stop"]
        assert task["stop"] < task["collected"] < prof.end_time
        assert 0 <= task["thread_cpu"] <= wall(task) + 1e-4
        assert task["function"] != "nap" or 0.01 <= wall(task) < 0.2
    for worker in {task["worker"] for task in tasks}:
        assert_disjoint([task for task in tasks if task["worker"] == worker])
    (computation,) = prof.recording.computations.to_dicts()
    assert computation["scheduler"] == scheduler
    assert computation["workers"] == (1 if scheduler == "synchronous" else 2)
    assert computation["error"] == ""
    # Workers of results are those that dask gives.
    assert sorted(ids.seen) == sorted(str(r.worker_id) for r in prof.results)


SPAWN = multiprocessing.get_context("spawn")


POOLS = {
    "thread executor": (dask.threaded.get, lambda: ThreadPoolExecutor(2)),
    "thread pool": (dask.threaded.get, lambda: ThreadPool(2)),
    "executor of processes for threads": (
        dask.threaded.get,
        lambda: ProcessPoolExecutor(2, mp_context=SPAWN),
    ),
    "pool of processes": (dask.multiprocessing.get, lambda: SPAWN.Pool(2)),
    "thread executor for processes": (dask.multiprocessing.get, lambda: ThreadPoolExecutor(2)),
}


@pytest.mark.parametrize("pool", POOLS)
def test_every_kind_of_pool(pool):
    get, make = POOLS[pool]
    with contextlib.ExitStack() as closed:
        executor = make()
        for step in ("shutdown",) if hasattr(executor, "shutdown") else ("join", "close"):
            closed.callback(getattr(executor, step))
        with Profiler() as prof:
            get(*sleeps([0.05, 0.1, 0.05]), pool=executor)
    tasks = sorted(rows(prof), key=lambda task: task["key"])
    assert [task["outcome"] for task in tasks] == ["ok"] * 3
    for task, slept in zip(tasks, [0.05, 0.1, 0.05], strict=True):
        assert slept <= wall(task) < slept + 0.2
    assert prof.recording.notices == ()
    assert len(prof.results) == 3


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize("others", [(), (CacheProfiler,), (ProgressBar, CacheProfiler, Profiler)])
def test_results_of_the_compute_are_unchanged(scheduler, others, capsys):
    import contextlib

    dsk = {"a": 1, "b": (add, "a", 1), "c": [(add, "b", 1), "a"], "d": (dict, [["k", "c"]])}
    plain = SCHEDULERS[scheduler](dsk, ["b", "c", "d"])
    before = dict(dsk)
    with contextlib.ExitStack() as stack:
        prof = stack.enter_context(Profiler())
        for other in others:
            stack.enter_context(other())
        assert SCHEDULERS[scheduler](dsk, ["b", "c", "d"]) == plain
    assert dsk == before
    assert prof.recording.notices == ()


class Reduced(Exception):
    def __reduce__(self):
        return Reduced, ()


def raise_reduced():
    raise Reduced


@pytest.mark.parametrize("scheduler", SCHEDULERS)
@pytest.mark.parametrize(
    ("work", "error"), [((fail,), "ValueError"), ((raise_reduced,), "Reduced")]
)
def test_a_failure_on_every_scheduler(scheduler, work, error):
    dsk = {("ok", 0): (time.sleep, 0), ("bad", 0): (lambda _: work[0](), ("ok", 0))}
    how = {"optimize_graph": False} if scheduler == "processes" else {}
    with Profiler() as prof, pytest.raises(Exception) as caught:
        SCHEDULERS[scheduler](dsk, ("bad", 0), num_workers=1, **how)
    assert error in type(caught.value).__name__
    assert "_dask_diag_measurement" not in vars(caught.value)
    assert [(task["outcome"], task["error"]) for task in rows(prof)] == [
        ("ok", ""),
        ("failed", error),
    ]
    if scheduler != "processes" or error == "ValueError":
        assert 0 <= wall(rows(prof)[1]) < 1


@pytest.mark.parametrize(
    ("dsk", "how", "rows_expected", "line"),
    [
        ({"a": (add, "b", 1), "b": (add, "a", 1)}, {}, [], "RuntimeError"),
        (
            {f"a-{n}": (abs, n) for n in range(4)},
            {"chunksize": -1},
            None,
            "ZeroDivisionError in dask's scheduler: no task failed",
        ),
        ({"a": (divmod, 1, 0)}, {}, [("failed", "ZeroDivisionError")], "ZeroDivisionError"),
        (
            {"a": (abs, 1), "b": (lambda _: interrupt(), "a")},
            {},
            [("ok", ""), ("unfinished", "KeyboardInterrupt")],
            "KeyboardInterrupt",
        ),
    ],
)
def test_what_ended_a_computation_is_reported(dsk, how, rows_expected, line):
    with Profiler() as prof, pytest.raises(BaseException) as caught:
        (dask.threaded.get if how else dask.local.get_sync)(dsk, list(dsk), **how)
    assert line.startswith(type(caught.value).__name__)
    reported = [(task["outcome"], task["error"]) for task in rows(prof)]
    assert rows_expected in (reported, None)
    assert f"1 computation ({line})" in " ".join(prof.summary().split())


def interrupt():
    raise KeyboardInterrupt


def die():
    time.sleep(0.1)
    os.kill(os.getpid(), signal.SIGKILL)


def test_a_worker_that_dies_leaves_its_task_unfinished_and_its_times_unknown():
    dsk = {("die", 0): (die,), ("s", 0): (time.sleep, 0)}
    with Profiler() as prof, pytest.raises(BrokenProcessPool):
        dask.multiprocessing.get(dsk, list(dsk), num_workers=1, chunksize=1)
    tasks = {task["function"]: task for task in rows(prof)}
    assert tasks["die"]["outcome"] == "unfinished"
    assert tasks["die"]["start"] != tasks["die"]["start"]
    (line,) = [line for line in prof.summary().splitlines() if line.strip().startswith("die")]
    assert line.split() == ["die", "1", "unknown"]


class Keeps:
    """An input that keeps the frames in which it is pickled, as a sampler may."""

    def __reduce__(self):
        held.append(sys._getframe())
        return int, (1,)


held = []


def test_who_keeps_the_frames_of_the_scheduler_loses_no_step_between_processes():
    dsk = {f"long-{n}": (len, [Keeps(), "x" * 1000]) for n in range(3)}
    dsk |= {"sum": (sum, list(dsk))}
    try:
        with Profiler() as prof:
            assert dask.multiprocessing.get(dsk, "sum", num_workers=2) == 6
    finally:
        held.clear()
    steps = {}
    for row in prof.recording.transfers.to_dicts():
        steps[row["task"], row["activity"], row["side"]] = row["start"], row["stop"]
    assert len(steps) == 4 * 4
    packed = sorted(
        (*steps[task, "serialize", "scheduler"], steps[task, "deserialize", "worker"][0])
        for task in range(4)
    )
    # A task is pickled before the next one, and before a worker has it.
    following = [start for start, *_ in packed[1:]] + [float("inf")]
    for (start, stop, opened), after in zip(packed, following, strict=True):
        assert start <= stop <= min(opened, after)


def test_a_failing_task_with_others_in_flight():
    release = threading.Event()
    dsk = {
        ("done", 0): (time.sleep, 0),
        ("failing", 0): (lambda _: time.sleep(0.2) or fail(), ("done", 0)),
        ("waiting", 0): (release.wait, 10),
        ("never", 0): (add, ("failing", 0), ("waiting", 0)),
    }
    with Profiler() as prof, pytest.raises(ValueError, match="on purpose"):
        dask.threaded.get(dsk, ("never", 0), num_workers=3)
    release.set()
    tasks = {task["function"]: task for task in rows(prof)}
    outcomes = {name: task["outcome"] for name, task in tasks.items()}
    assert outcomes == {"done": "ok", "failing": "failed", "waiting": "unfinished"}
    assert 0.2 <= wall(tasks["failing"]) < 1
    assert tasks["waiting"]["start"] > 0
    assert math.isnan(tasks["waiting"]["stop"])
    assert [result.key for result in prof.results] == [("done", 0)]
    assert "1 task, of which 1 is known to have started" in prof.summary()
    # It may be run again locally, as without us.
    dsk = {"one": (add, 0, 1), "bad": (lambda one: 1 / (one - 1), "one")}
    with Profiler() as prof, pytest.raises(ZeroDivisionError):
        dask.threaded.get(dsk, "bad", rerun_exceptions_locally=True)
    assert {t["key"]: t["outcome"] for t in rows(prof)} == {"one": "ok", "bad": "failed"}


def test_trivial_tasks_are_not_inflated_by_the_scheduler(retried):
    timed = []

    def hand_timed(n):
        started = time.perf_counter()
        sum(range(500))
        timed.append(time.perf_counter() - started)

    def measure():
        timed.clear()
        dsk = {("trivial", n): (hand_timed, n) for n in range(5000)}
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=2)
        tasks = rows(prof)
        assert len(tasks) == 5000
        for thread in (threads := {task["thread"] for task in tasks}):
            assert_disjoint([task for task in tasks if task["thread"] == thread])
        assert len(threads) <= 2
        # What dask itself does to call a task with its arguments is part of the task: some µs, more
        # on a busy machine. The scheduler sees some hundred µs.
        calling = 5000 * 6e-6
        assert sum(timed) <= sum(map(wall, tasks)) <= 1.2 * sum(timed) + calling

    retried(measure)
