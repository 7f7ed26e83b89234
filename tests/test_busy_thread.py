"""Tasks that wait for other threads: told apart from locks, and the thread that keeps them waiting."""

import threading
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter, sleep

import dask
import pytest

from dask_diag import Profiler, SamplingProfiler, activities, summary, waits
from dask_diag.analysis.lines import busiest_thread
from dask_diag.model.codes import Root

from .recordings import MAIN, by_code, check, in_rounds, with_stacks, with_tables, with_waits

pytestmark = pytest.mark.once


def event():
    ready = threading.Event()
    threading.Timer(0.15, ready.set).start()
    ready.wait()


def future():
    with ThreadPoolExecutor(1) as pool:
        pool.submit(sleep, 0.15).result()


def end_of_a_thread():
    thread = threading.Thread(target=sleep, args=(0.15,))
    thread.start()
    thread.join()


def computation():
    dask.compute(dask.delayed(sleep)(0.15), dask.delayed(sleep)(0.15), scheduler="threads")


def lock():
    held = threading.Lock()
    held.acquire()
    threading.Timer(0.15, held.release).start()
    with held:
        pass


def semaphore():
    free = threading.Semaphore(0)
    threading.Timer(0.15, free.release).start()
    free.acquire()


KINDS = {
    **dict.fromkeys([event, future, end_of_a_thread, computation], "thread-wait"),
    **dict.fromkeys([lock, semaphore], "lock-wait"),
}


def test_a_wait_for_a_thread_is_not_one_for_a_lock():
    with Profiler(waits=True) as prof:
        for wait in KINDS:
            dask.compute(dask.delayed(wait)(), scheduler="threads")
    rows = waits(prof).to_dicts()
    most = {row["function"]: row["activity"] for row in reversed(rows)}
    assert most == {wait.__name__: kind for wait, kind in KINDS.items()}


def test_computations_in_tasks_are_counted_with_their_seconds():
    with Profiler() as prof:
        dask.compute(*(dask.delayed(computation)() for _ in range(2)), scheduler="threads")
        dask.compute(dask.delayed(sleep)(0), scheduler="threads")
    numbers = {
        row["unit"]: row["value"]
        for unit in ("seconds", "computations")
        for row in activities(prof, unit=unit).to_dicts()
        if row["activity"] == "computations in tasks"
    }
    assert numbers["computations"] == 2
    assert 0.3 <= numbers["seconds"] < 2
    assert "2 computations in 2 tasks of computation: " in " ".join(str(summary(prof)).split())


def test_the_busiest_thread_is_found_with_its_line():
    stop = threading.Event()

    def spin():
        while not stop.is_set():
            sum(range(1000))

    threads = [threading.Thread(target=spin, name="loop"), threading.Thread(target=stop.wait)]
    for thread in threads:
        thread.start()
    with SamplingProfiler(interval=0.005) as sprof:
        start = perf_counter()
        dask.compute(dask.delayed(sleep)(0.5), scheduler="threads")
        lasted = perf_counter() - start
    stop.set()
    for thread in threads:
        thread.join()
    found = busiest_thread(sprof.recording)
    assert found.name == "loop"
    assert 0.3 <= found.seconds <= 1.1 * lasted
    assert found.lines[0].name.endswith("spin")


def waiting(busy, kind="thread-wait", workers=4, cpus=2, count=40, seconds=None):
    """Tasks of a second that wait, while a thread is busy for a share of that."""
    recording = with_waits(in_rounds(count, workers, cpus=cpus), kind)
    wall = count / workers
    seconds = wall * busy if seconds is None else seconds
    rows = [((0.0, wall), Root.THREADS, [("(thread loop)", "", 0, 0), MAIN], seconds, seconds)]
    return with_stacks(recording, rows)


def test_a_full_thread_is_the_cause_and_a_part_of_one_limits_what_threads_gain():
    cases = [
        # Two processes halve the 10 seconds, and take 1.3 and a half more to start.
        (
            (0.98,),
            ("upper_bound", "high", pytest.approx(3.3, abs=0.4), "busy for 98%", "main.py:5"),
        ),
        ((0.98, "thread-wait", 4, 2, 400), (49.0, "use processes, each with such a thread")),
        # Of two seconds, that is all that they save.
        ((0.98, "thread-wait", 4, 2, 8), (0.98, "they have to start first", "not: scheduler=")),
        ((0.98, "sleep"), None),
        ((0.5,), None),
        # Processes do not help on one CPU.
        ((0.98, "thread-wait", 4, 1), None),
    ]
    check("busy-thread", waiting, cases)
    cases = [
        ((0.98,), None),
        ((0.5,), pytest.approx(5.0, abs=0.3)),
        ((0.0,), pytest.approx(8.0, abs=0.3)),
    ]
    check("too-few-threads", waiting, cases)


def test_a_thread_and_tasks_share_the_gil():
    """Tasks compute for a tenth of their time, and wait for the GIL as long as a thread has it."""

    def sharing(busy, for_gil):
        recording = in_rounds(40, 4, 0.1)
        waits = {"cpu-wait": 0.0, "gil-wait": for_gil, "thread-wait": 0.9 - for_gil}
        rows = [(task, name, share) for name, share in waits.items() for task in range(40)]
        columns = zip(("task", "activity", "seconds"), zip(*rows, strict=True), strict=True)
        made = with_tables(recording, waits={**dict(columns), "samples": [100] * len(rows)})
        path = [("(thread loop)", "", 0, 0), MAIN]
        return with_stacks(made, [((0.0, 10.0), Root.THREADS, path, 10 * busy, 10 * busy)])

    # Of a GIL that the thread has for 60% of the time, tasks that need it wait 1.5 s for each second.
    said = "thread loop was busy for 60% of the time, and with what tasks compute, the GIL for 100%"
    cases = {
        (0.6, 0.15): ("upper_bound", pytest.approx(3.5, abs=0.5), said, "; use processes"),
        # Tasks hardly wait for it: the thread releases it.
        (0.6, 0.001): None,
        (0.2, 0.02): None,
    }
    check("busy-thread", sharing, cases)
    assert "too-few-threads" not in by_code(sharing(0.6, 0.15))
    assert "too-few-threads" in by_code(sharing(0.6, 0.001))
