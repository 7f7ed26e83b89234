"""Times of tasks, against work whose duration and CPU time are known."""

from __future__ import annotations

import multiprocessing
import os
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


def waited_for_a_processor():
    """Seconds for which others had the processor that this thread could have used, on Linux."""
    try:
        with open(f"/proc/self/task/{threading.get_native_id()}/schedstat") as file:
            return int(file.read().split()[1]) / 1e9
    except OSError:
        return 0.0


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


def test_a_batch_of_sleeps_in_one_process_reads_as_disjoint_intervals(retried):
    def measure():
        with Profiler() as prof:
            dask.multiprocessing.get(*sleeps([0.2] * 4), num_workers=1, chunksize=4)
        tasks = rows(prof)
        assert len(tasks) == 4
        assert_disjoint(tasks)
        for task in tasks:
            assert 0.2 <= wall(task) < 0.22
            assert task["thread_noncpu"] >= 0.98 * wall(task)

    retried(measure)


def test_sleeps_of_different_lengths_under_processes_keep_their_lengths(retried):
    durations = [0.1, 0.2, 0.3, 0.4, 0.5, 0.6]

    def measure():
        with Profiler() as prof:
            dask.multiprocessing.get(*sleeps(durations), num_workers=1)
        assert_disjoint(rows(prof))
        assert sorted(map(wall, rows(prof))) == pytest.approx(durations, abs=0.02)
        true = sorted(r.end_time - r.start_time for r in prof.results)
        assert true == pytest.approx(durations, abs=0.02)

    retried(measure)


def test_spinning_is_cpu(retried):
    def measure():
        waited = waited_for_a_processor()
        with Profiler() as prof:
            dask.local.get_sync({("spin", 0): (spin, 0.3)}, [("spin", 0)])
        waited = waited_for_a_processor() - waited
        (task,) = rows(prof)
        assert task["thread_cpu"] == pytest.approx(0.3, abs=0.01)
        assert task["thread_cpu"] >= 0.97 * (wall(task) - waited)

    retried(measure)


def test_two_spinning_tasks_share_the_gil(retried):
    def measure():
        dsk = {("spin", n): (spin, 0.3) for n in range(2)}
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=2)
        for task in rows(prof):
            assert task["thread_cpu"] == pytest.approx(0.3, abs=0.02)
            assert wall(task) > 0.45
            assert task["thread_noncpu"] == pytest.approx(wall(task) - task["thread_cpu"])

    retried(measure)


def test_trivial_tasks_are_not_inflated_by_the_scheduler(retried):
    timed = []

    def hand_timed(n):
        started = time.perf_counter()
        result = sum(range(500))
        timed.append(time.perf_counter() - started)
        return result

    def measure():
        timed.clear()
        dsk = {("trivial", n): (hand_timed, n) for n in range(5000)}
        with Profiler() as prof:
            dask.threaded.get(dsk, list(dsk), num_workers=2)
        tasks = rows(prof)
        assert len(tasks) == 5000
        by_thread = {}
        for task in tasks:
            by_thread.setdefault(task["thread"], []).append(task)
        assert 1 <= len(by_thread) <= 2
        for of_one_thread in by_thread.values():
            assert_disjoint(of_one_thread)
        # What dask itself does to call a task with its arguments is part of the task: some µs, more
        # on a busy machine. The scheduler sees some hundred µs.
        calling = 5000 * 6e-6
        assert sum(timed) <= sum(map(wall, tasks)) <= 1.2 * sum(timed) + calling

    retried(measure)


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_the_order_of_a_tasks_times(scheduler):
    dsk = {"a": 1, ("b-x", 0): (add, "a", 1), ("c-x", 0): (add, ("b-x", 0), 1)}
    with Profiler() as prof:
        assert SCHEDULERS[scheduler](dsk, ("c-x", 0), num_workers=2) == 3
    tasks = rows(prof)
    assert [task["outcome"] for task in tasks] == ["ok"] * len(tasks)
    for task in tasks:
        assert task["submitted"] < task["start"] < task["stop"] < task["collected"]
        assert 0 <= task["thread_cpu"] <= wall(task) + 1e-4
        assert prof.start_time < task["submitted"]
        assert task["collected"] < prof.end_time
    (computation,) = prof.recording.computations.to_dicts()
    assert computation["scheduler"] == scheduler
    assert computation["workers"] == (1 if scheduler == "synchronous" else 2)
    assert computation["error"] == ""


@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_worker_ids_of_results_are_those_dask_gives(scheduler):
    class Ids(Callback):
        seen = []

        def _posttask(self, key, result, dsk, state, worker_id):
            self.seen.append(worker_id)

    with Ids() as ids, Profiler() as prof:
        SCHEDULERS[scheduler](*sleeps([0.01] * 4))
    assert sorted(map(str, ids.seen)) == sorted(str(r.worker_id) for r in prof.results)


@pytest.mark.parametrize("chunksize", [1, 3, 20])
@pytest.mark.parametrize("scheduler", SCHEDULERS)
def test_every_chunksize(scheduler, chunksize):
    with Profiler() as prof:
        SCHEDULERS[scheduler](*sleeps([0.01] * 7), num_workers=2, chunksize=chunksize)
    assert len(rows(prof)) == 7
    assert all(0.01 <= wall(task) < 0.2 for task in rows(prof))
    for worker in {task["worker"] for task in rows(prof)}:
        assert_disjoint([task for task in rows(prof) if task["worker"] == worker])


POOLS = {
    "thread executor": (dask.threaded.get, lambda: ThreadPoolExecutor(2)),
    "thread pool": (dask.threaded.get, lambda: ThreadPool(2)),
    "process executor for threads": (dask.threaded.get, lambda: spawned_executor()),
    "process executor": (dask.multiprocessing.get, lambda: spawned_executor()),
    "process pool": (
        dask.multiprocessing.get,
        lambda: multiprocessing.get_context("spawn").Pool(2),
    ),
    "thread executor for processes": (dask.multiprocessing.get, lambda: ThreadPoolExecutor(2)),
}


def spawned_executor():
    return ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("spawn"))


@pytest.mark.parametrize("pool", POOLS)
def test_every_kind_of_pool(pool):
    get, make = POOLS[pool]
    executor = make()
    try:
        with Profiler() as prof:
            get(*sleeps([0.05, 0.1, 0.05]), pool=executor)
    finally:
        if hasattr(executor, "shutdown"):
            executor.shutdown()
        else:
            executor.close()
            executor.join()
    tasks = sorted(rows(prof), key=lambda task: task["key"])
    assert [task["outcome"] for task in tasks] == ["ok"] * 3
    assert [wall(task) for task in tasks] == pytest.approx([0.05, 0.1, 0.05], abs=0.04)
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


def test_a_failing_task_with_others_in_flight(retried):
    def measure():
        release, ran = threading.Event(), []

        def sleep_and_fail(_):
            started = time.perf_counter()
            time.sleep(0.2)
            ran.append(time.perf_counter() - started)
            fail()

        dsk = {
            ("done", 0): (time.sleep, 0),
            ("failing", 0): (sleep_and_fail, ("done", 0)),
            ("waiting", 0): (release.wait, 10),
            ("never", 0): (add, ("failing", 0), ("waiting", 0)),
        }
        with Profiler() as prof, pytest.raises(ValueError, match="on purpose"):
            dask.threaded.get(dsk, ("never", 0), num_workers=3)
        release.set()
        tasks = {task["function"]: task for task in rows(prof)}
        assert tasks["done"]["outcome"] == "ok"
        assert (tasks["failing"]["outcome"], tasks["failing"]["error"]) == ("failed", "ValueError")
        assert wall(tasks["failing"]) == pytest.approx(ran[0], abs=0.05)
        assert tasks["waiting"]["outcome"] == "unfinished"
        assert tasks["waiting"]["start"] > 0
        assert tasks["waiting"]["stop"] != tasks["waiting"]["stop"]
        assert "never" not in tasks
        assert [result.key for result in prof.results] == [("done", 0)]
        assert prof.recording.computations.to_dicts()[0]["error"] == "ValueError"
        text = prof.summary()
        assert "Failed" in text
        assert "1 task, first" in text
        assert "ValueError" in text
        assert "1 task, of which 1 is known to have started" in text

    retried(measure)


class Unpicklable(Exception):
    def __init__(self, a, b):
        super().__init__(a)


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
    with Profiler() as prof, pytest.raises(Exception) as caught:
        SCHEDULERS[scheduler](dsk, ("bad", 0), num_workers=1, **no_fusing(scheduler))
    assert error in type(caught.value).__name__
    assert "_dask_diag_measurement" not in vars(caught.value)
    tasks = {task["function"]: task for task in rows(prof)}
    assert tasks["ok"]["outcome"] == "ok"
    assert (tasks["bad"]["outcome"], tasks["bad"]["error"]) == ("failed", error)
    if scheduler != "processes" or error == "ValueError":
        assert 0 <= wall(tasks["bad"]) < 1


def no_fusing(scheduler):
    return {"optimize_graph": False} if scheduler == "processes" else {}


@pytest.mark.parametrize("scheduler", ["synchronous", "threads"])
def test_a_failing_task_is_run_again_locally_as_without_us(scheduler):
    dsk = {"one": (add, 0, 1), "bad": (lambda one: 1 / (one - 1), "one")}

    def outcome():
        with pytest.raises(ZeroDivisionError):
            SCHEDULERS[scheduler](dsk, "bad", rerun_exceptions_locally=True)

    outcome()
    with Profiler() as prof:
        outcome()
    assert {t["key"]: t["outcome"] for t in rows(prof)} == {"one": "ok", "bad": "failed"}


def test_an_interrupt_is_reported():
    def interrupt():
        raise KeyboardInterrupt

    dsk = {("a", 0): (time.sleep, 0), ("b", 0): (lambda _: interrupt(), ("a", 0))}
    with Profiler() as prof, pytest.raises(KeyboardInterrupt):
        dask.local.get_sync(dsk, ("b", 0))
    assert [(t["outcome"], t["error"]) for t in rows(prof)] == [
        ("ok", ""),
        ("unfinished", "KeyboardInterrupt"),
    ]


def test_a_graph_that_cannot_start():
    with Profiler() as prof, pytest.raises(RuntimeError, match="Cycle"):
        dask.local.get_sync({"a": (add, "b", 1), "b": (add, "a", 1)}, "a")
    assert len(prof.recording.tasks) == 0
    assert prof.recording.computations.to_dicts()[0]["error"] == "RuntimeError"
    assert "Ended by an error  1 computation (RuntimeError)" in prof.summary()


def test_an_error_of_the_scheduler_is_none_of_a_task():
    dsk = {("a", n): (abs, n) for n in range(4)}
    with Profiler() as prof, pytest.raises(ZeroDivisionError):
        dask.threaded.get(dsk, list(dsk), chunksize=-1)
    text = " ".join(prof.summary().split())
    assert "1 computation (ZeroDivisionError in dask's scheduler: no task failed)" in text
    fails = {("a", 0): (divmod, 1, 0)}
    with Profiler() as prof, pytest.raises(ZeroDivisionError):
        dask.threaded.get(fails, list(fails))
    assert "1 computation (ZeroDivisionError)" in prof.summary()


def test_cpu_time_of_process_workers_is_other(retried):
    def measure():
        dsk = {("spin", n): (spin, 0.2) for n in range(2)}
        with Profiler() as prof:
            dask.multiprocessing.get(dsk, list(dsk), num_workers=2)
        for task in rows(prof):
            assert task["thread_cpu"] == pytest.approx(0.2, abs=0.02)
            assert task["pid"] != 0
        assert {task["worker"] for task in rows(prof)} <= {"process-0", "process-1"}

    retried(measure)


def die():
    time.sleep(0.1)
    os._exit(3)


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
