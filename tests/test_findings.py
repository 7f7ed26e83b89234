"""Each finding, on work that has the fault and on work that has not."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import multiprocessing
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

from dask_diag import (
    CacheProfiler,
    Profiler,
    Recording,
    ResourceProfiler,
    SamplingProfiler,
    activities,
    findings,
    summary,
)
from dask_diag.analysis.findings.rules import CODES
from dask_diag.formatting import seconds
from dask_diag.model.table import NO_ROWS, Table

from .recordings import Busy, on_an_idle_machine

pytestmark = pytest.mark.once

PROCESSES = {"optimize_graph": False, "num_workers": 2}
DATA = bytes(1_000_000)
PAGES = Path(__file__).parent.parent / "docs" / "findings"


def compute_without_the_lock(times=40, _=None):
    """About 25 ms of CPU time for 40 times, without the GIL."""
    for _ in range(times):
        hashlib.sha256(DATA).digest()


def compute_little(times):
    """A twentieth of that, so that handing it out takes long beside it on any machine."""
    for _ in range(times):
        hashlib.sha256(DATA[:50_000]).digest()


def spin(seconds, _=None):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


def read_slowly(_=None):
    reading, writing = os.pipe()
    writer = threading.Timer(0.2, os.write, (writing, b"x"))
    writer.start()
    os.read(reading, 1)
    writer.join()
    os.close(reading)
    os.close(writing)


def recorded(dsk, get=dask.threaded.get, waits=False, dt=0.1, **kwargs):
    kwargs.setdefault("num_workers", 2)
    with Profiler(waits=waits) as prof, ResourceProfiler(dt=dt) as rprof:
        get(dsk, list(dsk), **kwargs)
    return Recording.combine([prof.recording, rprof.recording])


def codes(recording):
    """What is found in the program, whatever else this machine does meanwhile."""
    return {finding.code for finding in findings(recording)} - {"busy-machine"}


def the(recording, code):
    """The finding of this code, which the program has whatever else this machine does meanwhile.

    What other programs used of the CPUs would explain it as well, and is another finding.
    """
    everything = findings(on_an_idle_machine(recording))
    of_code = [finding for finding in everything if finding.code == code]
    assert len(of_code) == 1, f"expected {code} once, found {everything}"
    return of_code[0]


def independent(task, count):
    return {("work", n): task for n in range(count)}


def chain(task, count):
    return {("work", n): (*task, ("work", n - 1) if n else None) for n in range(count)}


HEALTHY = {
    "threads": lambda: recorded(independent((compute_without_the_lock, 60), 24)),
    "threads, explained": lambda: recorded(
        independent((compute_without_the_lock, 60), 24), waits=True
    ),
    "processes": lambda: recorded(
        independent((spin, 0.1), 12), dask.multiprocessing.get, **PROCESSES
    ),
    "synchronous": lambda: recorded(independent((spin, 0.02), 20), dask.local.get_sync),
}


@pytest.mark.spawned
@pytest.mark.parametrize("which", HEALTHY)
def test_nothing_is_found_in_healthy_work(which, retried):
    # Worker processes take a second to start, whatever they run.
    true = {"pool-startup"} if which == "processes" else set()

    def measure():
        assert codes(HEALTHY[which]()) <= true

    retried(measure)


@pytest.mark.parametrize("waits", [False, True])
def test_gil_bound(waits, retried):
    if waits and sys.platform != "linux":
        pytest.skip("waits are recorded on Linux")

    def measure():
        recording = recorded(independent((spin, 0.1), 12), waits=waits)
        cpu, seconds = 12 * 0.1, recording.waits["seconds"]
        for_cpu = float(seconds[recording.waits["activity"].where("cpu-wait")].sum())
        if for_cpu > 0.1 * cpu:
            raise Busy(f"tasks of {cpu} s of CPU waited {for_cpu:.2f} s for one")
        finding = the(recording, "gil-bound")
        assert finding.severity == ("high" if waits else "medium")
        assert "work" in finding.evidence
        assert "processes" in finding.advice
        assert ("another lock" in finding.evidence) != waits
        assert ("waits=True" in finding.advice) != waits
        # Two CPUs would take half of the CPU time; what they were busy for others is known only
        # where waits are recorded.
        took = float((recording.computations["stop"] - recording.computations["start"])[0])
        for_gil = float(seconds[recording.waits["activity"].where("gil-wait")].sum())
        # Nor is the GIL the cause while the task that had it waited for a CPU itself.
        without_cpu = for_gil * for_cpu / (cpu + for_cpu)
        # What passes between tasks stays, though it is longer for the GIL, too.
        between = 2 * took - float((recording.tasks.stop - recording.tasks.start).sum())
        lost = took - 0.5 * (cpu + for_cpu + without_cpu + between)
        assert finding.seconds_lost == pytest.approx(lost, rel=0.15)

    retried(measure)


@pytest.mark.parametrize("waits", [False, True])
def test_io_bound(waits, retried):
    def measure():
        recording = on_an_idle_machine(recorded(independent((read_slowly,), 6), waits=waits))
        finding = the(recording, "io-bound")
        # Eight workers can run all six at once: 0.2 s are left of 0.6 s.
        assert finding.seconds_lost == pytest.approx(0.4, rel=0.2)
        assert "num_workers=8 could save up to 4" in finding.advice
        waits_recorded = waits and sys.platform == "linux"
        assert codes(recording) == {"io-bound", *(["too-few-threads"] if waits_recorded else [])}
        assert finding.severity == ("high" if waits_recorded else "medium")
        guess = "by I/O, a sleep, a lock or another program (not known which)"
        assert (guess in finding.evidence) != waits_recorded
        assert ("Profiler(waits=True) (dask-diag run --waits)" in finding.advice) != waits_recorded

    retried(measure)


def test_more_workers_are_not_advised_where_they_cannot_help(retried):
    def measure():
        dsk = {("work", n): (read_slowly, ("work", n - 1) if n else None) for n in range(5)}
        finding = the(recorded(dsk, num_workers=4, waits=True), "io-bound")
        assert math.isnan(finding.seconds_lost)
        assert "num_workers" not in finding.advice
        assert "more workers cannot help" in finding.advice

    retried(measure)


def test_more_workers_win_no_more_than_there_is():
    recording = recorded(independent((time.sleep, 0.05), 80), num_workers=4)
    finding = the(recording, "io-bound")
    # With sixteen each does five, not twenty.
    lasted = float((recording.computations.stop - recording.computations.prepared)[0])
    took = recording.tasks.stop - recording.tasks.start
    mean, late = float(took.mean()), float(took.max() - took.mean())
    assert finding.seconds_lost == pytest.approx(lasted - 5 * mean, abs=0.03 + late)
    assert "could save" in finding.advice
    assert "(dask-diag run --waits)" in finding.advice


def test_threads_are_advised_where_the_scheduler_has_one_worker():
    dsk = independent((time.sleep, 0.05), 8)
    with Profiler() as prof:
        dask.local.get_sync(dsk, list(dsk))
    recording = on_an_idle_machine(prof.recording)
    assert "scheduler='threads', num_workers=4" in the(recording, "io-bound").advice


LOCK = threading.Lock()


def wait_for_the_lock():
    with LOCK:
        time.sleep(0.1)


@pytest.mark.parametrize("task", [(time.sleep, 0.1), (wait_for_the_lock,)], ids=["sleep", "lock"])
def test_what_merely_sleeps_or_waits_for_a_lock_is_not_said_to_do_io(task, retried):
    def measure():
        finding = the(recorded(independent(task, 6)), "io-bound")
        assert "were blocked" in finding.evidence
        assert "not known which" in finding.evidence
        if sys.platform == "linux":
            explained = codes(recorded(independent(task, 6), waits=True))
            assert not {"io-bound", "gil-bound"} & explained

    retried(measure)


def test_turns_with_another_lock_are_not_said_to_be_for_the_interpreters(retried):
    def measure():
        dsk = independent((hash_in_turns, 0.4), 2)
        finding = the(recorded(dsk), "gil-bound")
        assert finding.severity == "medium"
        assert "another lock or short sleeps look the same" in finding.evidence
        assert finding.advice.startswith("record what tasks wait for with Profiler(waits=True)")
        if sys.platform == "linux":
            assert "gil-bound" not in codes(recorded(dsk, waits=True))

    retried(measure)


def hash_in_turns(seconds):
    """Computation without the GIL, and yet one at a time."""
    stop, block = time.perf_counter() + seconds, bytes(3_000_000)
    while time.perf_counter() < stop:
        with LOCK:
            hashlib.sha256(block)
        time.sleep(0)


def test_tasks_too_small(retried):
    def measure():
        recording = recorded(independent((int, 1), 10_000))
        finding = the(recording, "tasks-too-small")
        assert "10,000 tasks" in finding.evidence
        assert "times as large" in finding.advice
        assert codes(recording) <= {"tasks-too-small", "scheduler-bound", "graph-preparation"}

    retried(measure)


def test_the_advised_size_brings_overhead_down(retried):
    def measure():
        small = recorded(independent((compute_little, 1), 2000), num_workers=1)
        advice = the(small, "tasks-too-small").advice
        times = int(advice.split("about ")[1].split(" ")[0].replace(",", ""))
        large = recorded(
            independent((compute_little, times), max(100, 2000 // times)), num_workers=1
        )
        assert "tasks-too-small" not in codes(large)

    retried(measure)


def test_no_parallelism(retried):
    def measure():
        recording = recorded(chain((compute_without_the_lock, 40), 16))
        finding = the(recording, "serial-chain")
        assert "16 dependent tasks" in finding.evidence
        lasted = float((recording.computations.stop - recording.computations.prepared)[0])
        assert finding.seconds_lost == pytest.approx(lasted / 2, rel=0.2)
        assert codes(recording) == {"serial-chain"}

    retried(measure)


def test_straggler(retried):
    def measure():
        dsk = independent((time.sleep, 0.02), 20)
        # A threaded computation starts the last key first, as the graph is ordered.
        dsk.update({("late", 0): (time.sleep, 0.01), ("work", 99): (late_sleep, ("late", 0))})
        recording = recorded(dsk)
        finding = the(recording, "straggler")
        assert "('work', 99)" in finding.evidence
        # While it ran alone, one of two workers was idle.
        stop = np.sort(recording.tasks["stop"])
        assert finding.seconds_lost == pytest.approx((stop[-1] - stop[-2]) / 2, rel=0.05)
        assert "imbalance" not in codes(recording)

    retried(measure)


def late_sleep(_):
    time.sleep(0.8)


def usual_work(seconds):
    spin(seconds)


def search_for_long(seconds, _):
    search_one_by_one(seconds)


def search_one_by_one(seconds):
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        sum(range(5000))


@pytest.mark.parametrize("get", [dask.threaded.get, dask.multiprocessing.get])
def test_a_straggler_is_reported_with_the_line_in_which_it_spent_its_time(get, retried):
    options = {**PROCESSES, "chunksize": 1} if get is dask.multiprocessing.get else {}
    line = search_one_by_one.__code__.co_firstlineno + 3

    def measure():
        dsk = {("work", n): (usual_work, 0.06) for n in range(10)}
        dsk.update({("late", 0): (time.sleep, 0.01)})
        dsk["work", 99] = (search_for_long, 1.0, ("late", 0))
        with SamplingProfiler("5ms") as sprof:
            recording = recorded(dsk, get, **options)
        assert "it spent" not in the(recording, "straggler").evidence
        evidence = the(Recording.combine([recording, sprof.recording]), "straggler").evidence
        said = re.search(r"it spent (\d+)% of its time in search_one_by_one \((.*)\)", evidence)
        assert int(said[1]) > 80
        assert said[2].endswith(f"test_findings.py:{line}")
        assert evidence.endswith("other tasks of work 0%")
        # What is not tracked by its key is not guessed.
        with SamplingProfiler("5ms", cycle="10s") as sprof:
            recording = recorded(dsk, get, **options)
        both = Recording.combine([recording, sprof.recording])
        assert "it spent" not in the(both, "straggler").evidence

    retried(measure)


def test_imbalance(retried):
    def measure():
        recording = recorded(independent((compute_without_the_lock, 400), 3))
        assert the(recording, "imbalance").seconds_lost > 0.05
        assert codes(recording) == {"imbalance"}

    retried(measure)


def test_imbalance_of_batches(retried):
    def measure():
        # Six tasks go to one process at once, two to the other.
        unset = recorded(independent((spin, 0.2), 8), dask.multiprocessing.get, **PROCESSES)
        assert "chunksize=1" in the(unset, "imbalance").advice
        advised = recorded(
            independent((spin, 0.2), 8), dask.multiprocessing.get, chunksize=1, **PROCESSES
        )
        assert "imbalance" not in codes(advised)

    retried(measure)


def array_of(size):
    return np.ones(size)


def total(array):
    return float(array.sum())


def test_serialization_bound(retried):
    def measure():
        dsk = {("make", n): (array_of, 4_000_000) for n in range(6)}
        dsk.update({("use", n): (total, ("make", n)) for n in range(6)})
        recording = recorded(dsk, dask.multiprocessing.get, **PROCESSES)
        finding = the(recording, "serialization-bound")
        assert "threads" in finding.advice
        megabytes = float(finding.evidence.split(" MB")[0].rsplit(" ", 1)[1])
        assert megabytes == pytest.approx(2 * 6 * 32, rel=0.02)
        assert "serialization-bound" not in codes(recorded(dsk))

    retried(measure)


RETAINED = []
UNITS = {"kB": 1e-3, "MB": 1.0, "GB": 1e3}


def in_megabytes(text):
    number, unit = text.split()
    return float(number) * UNITS[unit]


def keep(_):
    RETAINED.append(np.ones(4_000_000))
    time.sleep(0.02)


def test_memory_growth(retried):
    def measure():
        dsk = {("keep", n): (keep, ("keep", n - 1) if n else None) for n in range(30)}
        finding = the(recorded(dsk, dt=0.05), "memory-growth")
        assert math.isnan(finding.seconds_lost)
        assert finding.severity == "low"
        assert "results not measured; record with CacheProfiler" in finding.evidence
        RETAINED.clear()
        with bytes_held() as cprof:
            recording = recorded(dsk, dt=0.05)
        finding = the(Recording.combine([recording, cprof.recording]), "memory-growth")
        assert finding.severity == "medium"
        grown, before, after = map(
            in_megabytes,
            re.search(
                r"grew by (.*?) and was not .* ran it was (.*?) at first and (.*?) after",
                finding.evidence,
            ).groups(),
        )
        # Less what the allocator had kept of those before.
        assert 0.6 * 30 * 32 < grown < 1.05 * 30 * 32
        assert after - before == pytest.approx(grown, rel=0.02)
        RETAINED.clear()
        once = {("use", n): (used, ("use", n - 1) if n else None) for n in range(30)}
        assert "memory-growth" not in codes(recorded(once, dt=0.05))

    retried(measure)


def used(_):
    time.sleep(0.02)
    return float(np.ones(4_000_000).sum())


def test_memory_that_the_scheduler_holds_is_no_growth(retried):
    def measure():
        # Results that are waited for are held, not leaked.
        dsk = {("make", n): (make_slowly, n) for n in range(20)}
        with (
            Profiler() as prof,
            ResourceProfiler(dt=0.05) as rprof,
            CacheProfiler(metric=nbytes_of, unit="bytes") as cprof,
        ):
            retained = dask.threaded.get(dsk, list(dsk), num_workers=1)
        recording = Recording.combine([prof.recording, rprof.recording, cprof.recording])
        assert len(retained) == 20
        assert "memory-growth" not in codes(recording)
        without = Recording.combine([prof.recording, rprof.recording])
        finding = the(without, "memory-growth")
        assert finding.severity == "low"
        assert "not measured" in finding.evidence
        # What is released at the end was given back.
        del retained
        assert "memory-growth" not in codes(recorded(dsk, dt=0.05, num_workers=1))

    retried(measure)


def pair_of(first, second):
    """What nobody knows the size of, so that the scheduler seems to hold nothing."""
    time.sleep(0.02)
    return ([np.ones(4_000_000)], first, second)


def test_memory_that_is_needed_more_and_more_and_given_back_is_no_growth(retried):
    def measure():
        dsk = {("pair", 0): (pair_of, None, None)}
        dsk.update({("pair", n): (pair_of, ("pair", n - 1), None) for n in range(1, 30)})
        dsk["last", 0] = (len, ("pair", 29))
        with bytes_held() as cprof, Profiler() as prof, ResourceProfiler(dt=0.05) as rprof:
            assert dask.threaded.get(dsk, ("last", 0), num_workers=2) == 3
        parts = [prof.recording, rprof.recording, cprof.recording]
        memory = rprof.recording.resources["memory"]
        assert memory.max() > memory.min() + 500e6
        assert "memory-growth" not in codes(Recording.combine(parts))
        # Nor if it is not known when tasks ran.
        assert "memory-growth" not in codes(Recording.combine(parts[1:]))

    retried(measure)


def test_without_a_moment_at_rest_at_both_ends_nothing_is_said_of_memory(retried):
    def measure():
        dsk = {("keep", n): (keep, ("keep", n - 1) if n else None) for n in range(30)}
        recording = recorded(dsk, dt=0.05)
        RETAINED.clear()
        the(recording, "memory-growth")
        half = float(np.median(recording.tasks["start"]))
        early = recording.processes.rows(recording.processes["time"] < half)
        assert "memory-growth" not in codes(dataclasses.replace(recording, processes=early))

    retried(measure)


def test_results_that_a_program_keeps_are_no_sure_growth(retried):
    def measure():
        retained = []
        with ResourceProfiler(dt=0.02) as rprof, bytes_held() as cprof:
            for n in range(20):
                retained.append(dask.local.get_sync({("make", n): (make_slowly, n)}, ("make", n)))
        finding = the(Recording.combine([rprof.recording, cprof.recording]), "memory-growth")
        assert finding.severity == "low"
        assert "may be results returned earlier" in finding.evidence

    retried(measure)


def bytes_held():
    return CacheProfiler(metric=nbytes_of, unit="bytes")


def nbytes_of(value):
    return getattr(value, "nbytes", 0)


def make_slowly(_):
    time.sleep(0.02)
    return np.ones(4_000_000)


def fail():
    time.sleep(0.05)
    raise ValueError("known")


@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get, dask.multiprocessing.get])
def test_failed_tasks(get):
    with Profiler() as prof, pytest.raises(ValueError, match="known"):
        get({("broken", 0): (fail,)}, [("broken", 0)])
    finding = the(prof.recording, "failed-tasks")
    assert finding.severity == "high"
    assert "ValueError" in finding.evidence
    assert "('broken', 0)" in finding.evidence


def end_its_process():
    time.sleep(0.3)
    os._exit(3)


def kill_its_process():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    ("how", "said", "advised"),
    [
        (end_its_process, "A worker process ended with status 3 (", "as os._exit does"),
        (kill_its_process, "A worker process was killed by SIGKILL (", "out-of-memory killer"),
    ],
)
def test_a_worker_that_dies_is_named_first(how, said, advised, waits):
    dsk = {**independent((time.sleep, 0.1), 6), ("die", 0): (how,)}
    with Profiler(waits=waits) as prof, pytest.raises(BrokenProcessPool):
        dask.multiprocessing.get(dsk, list(dsk), chunksize=1, **PROCESSES)
    first = findings(prof.recording)[0]
    assert (first.code, first.severity) == ("failed-tasks", "high")
    assert first.evidence.startswith(said)
    assert "die" in first.evidence
    assert "known to have started" not in first.evidence
    assert advised in first.advice
    assert ("out-of-memory" in first.advice) == (how is kill_its_process)
    assert math.isnan(first.seconds_lost)
    assert all(row["value"] >= 0 for row in activities(prof.recording).to_dicts())


def fails_to_start():
    raise ValueError("no licence")


@pytest.mark.parametrize(
    ("initializer", "arguments", "said"),
    [
        (fails_to_start, (), "ended with status 0, as one does that cannot start"),
        (os._exit, (1,), "ended with status 1, as one does that cannot start"),
        (os.abort, (), "died by SIGABRT"),
    ],
)
def test_workers_that_cannot_start_ran_no_task(initializer, arguments, said):
    context = multiprocessing.get_context("forkserver")
    dsk = independent((time.sleep, 0.01), 4)
    with (
        ProcessPoolExecutor(1, context, initializer, arguments) as pool,
        Profiler() as prof,
        pytest.raises(BrokenProcessPool),
    ):
        dask.multiprocessing.get(dsk, list(dsk), pool=pool)
    first = findings(prof.recording)[0]
    assert first.code == "failed-tasks"
    assert first.evidence == (
        f"A worker process {said} (BrokenProcessPool), with 4 tasks of work in flight, none of "
        "which is known to have started"
    )
    assert "out-of-memory" not in first.advice


class NotRebuilt(Exception):
    def __init__(self, one, two):
        super().__init__(one)


def fail_for_good():
    time.sleep(0.1)
    raise NotRebuilt(1, 2)


def test_a_failure_at_an_unknown_time_is_said_to_be():
    dsk = {**independent((time.sleep, 0.1), 6), ("fail", 0): (fail_for_good,)}
    with Profiler() as prof, pytest.raises(TypeError):
        dask.multiprocessing.get(dsk, list(dsk), chunksize=1, **PROCESSES)
    first = findings(prof.recording)[0]
    assert first.code == "failed-tasks"
    assert "failed after an unknown time" in first.evidence
    assert math.isnan(first.seconds_lost)
    assert "0 s lost" not in prof.summary()


def test_a_few_waits_in_a_compute_that_was_stuck_are_not_said_to_be_most():
    def stuck():
        time.sleep(0.05)
        threading.Event().wait(0.9)
        raise KeyboardInterrupt

    dsk = {("b", 0): (time.sleep, 0.05), ("c", 0): (lambda _: stuck(), ("b", 0))}
    with Profiler() as prof, pytest.raises(KeyboardInterrupt):
        dask.local.get_sync(dsk, ("c", 0))
    only_known = prof.recording.tasks
    stop = np.where(only_known["outcome"].where("ok"), only_known["stop"], np.nan)
    columns = {name: only_known[name] for name in only_known.columns}
    cpu = np.where(np.isnan(stop), np.nan, only_known["thread_noncpu"])
    tasks = Table({**columns, "stop": stop, "thread_noncpu": cpu})
    assert "io-bound" not in codes(dataclasses.replace(prof.recording, tasks=tasks))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit])
@pytest.mark.parametrize("get", [dask.local.get_sync, dask.threaded.get])
def test_an_interruption_is_no_failure(error, get):
    def interrupt():
        raise error

    with Profiler() as prof, pytest.raises(error):
        get({("work", 0): (interrupt,)}, [("work", 0)])
    assert "failed-tasks" not in codes(prof.recording)
    assert prof.recording.tasks["outcome"].tolist() == ["unfinished"]
    assert f"({error.__name__})" in prof.summary()


def compute_at_once(number, dsk, **settings):
    """Compute the same so many times, each from a thread of its own."""
    with ThreadPoolExecutor(number) as pool:
        for future in [
            pool.submit(dask.threaded.get, dsk, list(dsk), **settings) for _ in range(number)
        ]:
            future.result()


def test_overlap(retried):
    def measure():
        dsk = independent((compute_without_the_lock, 60), 16)
        with Profiler() as prof:
            compute_at_once(2, dsk)
        assert "2 computations" in the(prof.recording, "overlapping-computations").evidence
        with Profiler() as prof:
            for _ in range(2):
                dask.threaded.get(dsk, list(dsk))
        assert "overlapping-computations" not in codes(prof.recording)

    retried(measure)


def test_computations_that_sleep_do_not_compete():
    dsk = independent((time.sleep, 0.2), 8)
    with Profiler() as prof:
        compute_at_once(2, dsk)
    assert "overlapping-computations" not in codes(prof.recording)


def test_computations_at_once_lose_no_more_than_the_time_that_passed():
    dsk = {("work", 0): (time.sleep, 0.02)}
    for number in range(1, 10):
        dsk["work", number] = (sleep_after, ("work", number - 1), 0.02)
    with Profiler() as prof:
        compute_at_once(6, dsk, num_workers=4)
    finding = the(prof.recording, "serial-chain")
    assert 0 < finding.seconds_lost <= prof.recording.stop - prof.recording.start


def sleep_after(before, seconds):
    time.sleep(seconds)


def keep_the_lock():
    # One call that is all in C: the power of a long number.
    int("9" * 4000) ** 900


def test_sampler_late(retried):
    def measure():
        recording = recorded(independent((keep_the_lock,), 2), dt=0.1)
        longest = float((recording.tasks["stop"] - recording.tasks["start"]).max())
        if longest < 0.6:
            pytest.skip("this machine is too fast for this task")
        assert "late" in the(recording, "late-samples").evidence

    retried(measure)


NESTED = """
import json, numpy as np, dask.threaded
from dask_diag import Profiler, findings

def decompose(seed):
    return np.linalg.qr(np.random.default_rng(seed).random((1200, 400)))[1].sum()

dsk = {("qr", n): (decompose, n) for n in range(6)}
dask.threaded.get({("warm", 0): (decompose, 0)}, [("warm", 0)])
found = []
for waits in (True, False):
    with Profiler(waits=waits) as prof:
        dask.threaded.get(dsk, list(dsk), num_workers=2)
    advice = {finding.code: finding.advice for finding in findings(prof.recording)}
    found.append([advice, " ".join(str(prof.summary()).split())])
print(json.dumps(found))
"""


def nested(threads, before=""):
    """Advice by code, and the summary: with waits, and without."""
    done = subprocess.run(
        [sys.executable, "-c", before + NESTED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)},
        timeout=120,
    )
    return json.loads(done.stdout)


@pytest.mark.skipif(len(os.sched_getaffinity(0)) < 2, reason="needs two CPUs")
@pytest.mark.parametrize("before", ["", "import sys; sys.modules['threadpoolctl'] = None"])
def test_nested_threads(before, retried):
    def measure():
        for advice, _ in nested(2, before):
            assert "OPENBLAS_NUM_THREADS=1" in advice["thread-oversubscription"]
        for advice, _ in nested(1, before):
            assert "thread-oversubscription" not in advice

    retried(measure)


def spin_on(pool):
    list(pool.map(spin, [0.05] * 4))


def test_a_python_thread_pool_of_tasks_is_no_native_one(retried):
    """Its threads are named, and no library is blamed for them."""

    def measure():
        with ThreadPoolExecutor(4, thread_name_prefix="pool-x") as pool:
            recording = recorded(independent((spin_on, pool), 8))
        assert "thread-oversubscription" not in codes(recording)
        text = " ".join(str(summary(recording)).split())
        named = re.search(r"4 Python threads pool-x ([\d.]+) s", text)
        assert named, text
        assert float(named[1]) == pytest.approx(1.6, rel=0.1)

    matrix = np.ones((300, 300))
    matrix @ matrix
    retried(measure)


def test_seconds_are_shown_in_the_unit_that_suits_them():
    texts = {2.81e-5: "28.1 µs", 0.806: "806 ms", 0.9996: "1.00 s", 2.5: "2.50 s", 999.7: "1,000 s"}
    assert {value: seconds(value) for value in texts} == texts
    assert seconds(math.nan) == "unknown"
    recording = recorded(independent((int, 1), 10_000))
    evidence = the(recording, "tasks-too-small").evidence
    assert re.search(r"10,000 tasks average [\d.]+ µs of work and [\d.]+ µs of overhead", evidence)


def test_nothing_recorded_has_no_findings():
    with Profiler() as prof:
        pass
    assert findings(prof.recording) == []
    empty = dataclasses.replace(prof.recording, computations=NO_ROWS, tasks=NO_ROWS)
    assert findings(empty) == []


def test_the_worst_is_first_and_the_summary_begins_with_it(retried):
    def measure():
        with Profiler() as prof, pytest.raises(ValueError, match="known"):
            dask.threaded.get(
                {**independent((spin, 0.1), 12), ("zbroken", 0): (fail_after, [("work", 11)])},
                [("zbroken", 0)],
            )
        ranks = [finding.rank for finding in findings(prof.recording)]
        assert ranks == sorted(ranks)
        text = prof.summary()
        assert text.index("failed-tasks") < text.index("non-CPU")
        assert all(len(line) <= 80 for line in text.splitlines())

    retried(measure)


def fail_after(_):
    raise ValueError("known")


@pytest.mark.parametrize("code", CODES)
def test_each_has_a_page(code):
    text = (PAGES / f"{code}.rst").read_text()
    assert text.startswith(f"{code}\n{'=' * len(code)}\n")
    for heading in ("What it means", "How it is found", "What to do"):
        assert heading in text


def test_there_is_a_page_for_nothing_else():
    assert {path.stem for path in PAGES.glob("*.rst")} == {*CODES, "index"}
