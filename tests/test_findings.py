"""Each finding, on work that has the fault and on work that has not."""

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
from dataclasses import replace

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
from dask_diag.model.table import NO_ROWS

from .recordings import Busy, assert_found, by_code, on_an_idle_machine, with_columns

pytestmark = pytest.mark.once

PROCESSES = {"optimize_graph": False, "num_workers": 2}
DATA = bytes(1_000_000)


def compute_without_the_lock(times=40, _=None, data=DATA):
    """About 25 ms of CPU time for 40 times, without the GIL."""
    for _ in range(times):
        hashlib.sha256(data).digest()


def compute_little(times):
    """A twentieth of that, so that handing it out takes long beside it on any machine."""
    compute_without_the_lock(times, data=DATA[:50_000])


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
    return set(by_code(recording)) - {"busy-machine"}


def the(recording, code):
    """The finding of this code, which the program has whatever else this machine does meanwhile.

    What other programs used of the CPUs would explain it as well, and is another finding.
    """
    found = by_code(on_an_idle_machine(recording))
    assert code in found, f"expected {code}, found {found}"
    return found[code]


def independent(task, count):
    return {("work", n): task for n in range(count)}


def chain(task, count):
    return {("work", n): (*task, ("work", n - 1) if n else None) for n in range(count)}


HEALTHY = {
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
    # Worker processes take a second to start, whatever they run; one task at a time leaves CPUs idle.
    true = {"processes": {"pool-startup"}, "synchronous": {"too-few-threads"}}.get(which, set())

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
        for_cpu, for_gil = (
            float(seconds[recording.waits["activity"].eq(name)].sum())
            for name in ("cpu-wait", "gil-wait")
        )
        if for_cpu > 0.1 * cpu:
            raise Busy(f"tasks of {cpu} s of CPU waited {for_cpu:.2f} s for one")
        # Two CPUs would take half of the CPU time; what they were busy for others is known only
        # where waits are recorded.
        took = float((recording.computations["stop"] - recording.computations["start"])[0])
        # Nor is the GIL the cause while the task that had it waited for a CPU itself.
        without_cpu = for_gil * for_cpu / (cpu + for_cpu)
        # What passes between tasks stays, though it is longer for the GIL, too.
        between = 2 * took - float((recording.tasks.stop - recording.tasks.start).sum())
        lost = took - 0.5 * (cpu + for_cpu + without_cpu + between)
        said = ("not: another lock", "not: waits=True") if waits else ("another lock", "waits=True")
        assert_found(
            the(recording, "gil-bound"),
            *("high" if waits else "medium", "work", "processes", *said),
            pytest.approx(lost, rel=0.15),
        )

    retried(measure)


@pytest.mark.parametrize("waits", [False, True])
def test_io_bound(waits, retried):
    is_known = waits and sys.platform == "linux"
    guess = "for I/O, a sleep, a lock or another program (which one is unknown)"
    how = "Profiler(waits=True) (dask-diag run --waits)"

    def measure():
        recording = on_an_idle_machine(recorded(independent((read_slowly,), 6), waits=waits))
        # Six workers run all six at once: 0.2 s are left of 0.6 s.
        assert_found(
            the(recording, "io-bound"),
            *(pytest.approx(0.4, rel=0.2), "num_workers=6; or move"),
            *(("high", f"not: {guess}", f"not: {how}") if is_known else ("medium", guess, how)),
        )
        assert codes(recording) == {"io-bound"}

    retried(measure)


LOCK = threading.Lock()


def wait_for_the_lock():
    with LOCK:
        time.sleep(0.1)


@pytest.mark.parametrize(
    "code, dsk, expected",
    [
        # What merely sleeps or waits for a lock is not said to do I/O.
        (
            "io-bound",
            independent((time.sleep, 0.1), 6),
            ("were off the CPU", "which one is unknown"),
        ),
        (
            "io-bound",
            independent((wait_for_the_lock,), 6),
            ("were off the CPU", "which one is unknown"),
        ),
        # Turns with another lock are not said to be for the interpreter's.
        (
            "gil-bound",
            lambda: independent((hash_in_turns, 0.4), 2),
            (
                *("medium", "another lock, or short sleeps, look the same"),
                "; record what tasks wait for with Profiler(waits=True)",
            ),
        ),
    ],
)
def test_a_guess_is_no_finding_where_waits_are_recorded(code, dsk, expected, retried):
    dsk = dsk() if callable(dsk) else dsk

    def measure():
        assert_found(the(recorded(dsk), code), *expected)
        if sys.platform == "linux":
            assert not {"io-bound", "gil-bound"} & codes(recorded(dsk, waits=True))

    retried(measure)


def hash_in_turns(seconds):
    """Computation without the GIL, and yet one at a time."""
    stop, block = time.perf_counter() + seconds, bytes(3_000_000)
    while time.perf_counter() < stop:
        with LOCK:
            hashlib.sha256(block)
        time.sleep(0)


def test_no_parallelism(retried):
    def measure():
        recording = recorded(chain((compute_without_the_lock, 40), 16))
        took = float((recording.computations.stop - recording.computations.prepared)[0])
        lost = pytest.approx(took / 2, rel=0.2)
        assert_found(the(recording, "serial-chain"), "16 dependent tasks", lost)
        assert codes(recording) == {"serial-chain"}

    retried(measure)


def test_the_advised_size_brings_overhead_down(retried):
    def measure():
        small = recorded(independent((compute_little, 1), 2000), num_workers=1)
        advice = the(small, "tasks-too-small").advice
        times = int(advice.split("about ")[1].split(" ")[0].replace(",", ""))
        large = independent((compute_little, times), max(100, 2000 // times))
        assert "tasks-too-small" not in codes(recorded(large, num_workers=1))

    retried(measure)


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
        dsk = {("work", n): (spin, 0.06) for n in range(10)}
        dsk.update({("late", 0): (time.sleep, 0.01)})
        dsk["work", 99] = (search_for_long, 1.0, ("late", 0))
        with SamplingProfiler("5ms") as sprof:
            recording = recorded(dsk, get, **options)
        assert "It spent" not in the(recording, "straggler").evidence
        evidence = the(Recording.combine([recording, sprof.recording]), "straggler").evidence
        said = re.search(r"It spent (\d+)% of its time in search_one_by_one \((.*)\)", evidence)
        assert int(said[1]) > 80
        assert said[2].endswith(f"test_findings.py:{line}")
        assert evidence.endswith("other tasks of work 0%")
        # What is not tracked by its key is not guessed.
        with SamplingProfiler("5ms", cycle="10s") as sprof:
            recording = recorded(dsk, get, **options)
        both = Recording.combine([recording, sprof.recording])
        assert "It spent" not in the(both, "straggler").evidence

    retried(measure)


RETAINED = []


def keep(_):
    RETAINED.append(np.ones(4_000_000))
    time.sleep(0.02)


def of_memory(dsk, with_sizes=False, **options):
    """A recording, in which the sizes of results were measured or not."""
    with bytes_held() as cprof:
        recording = recorded(dsk, dt=0.05, **options)
    RETAINED.clear()
    return Recording.combine([recording, *[cprof.recording] * with_sizes])


def test_memory_growth(retried):
    def measure():
        kept = chain((keep,), 30)
        assert_found(
            the(of_memory(kept), "memory-growth"),
            *(math.nan, "low", "results were not measured (record with CacheProfiler)"),
        )
        finding = the(of_memory(kept, with_sizes=True), "memory-growth")
        assert finding.severity == "medium"
        grown, before, after = (
            finding.numbers[name].value for name in ("grown", "before", "after")
        )
        # Less what the allocator had kept of those before.
        assert 0.6 * 30 * 32e6 < grown < 1.05 * 30 * 32e6
        assert after - before == pytest.approx(grown, rel=0.02)
        assert "memory-growth" not in codes(of_memory(chain((used,), 30)))

    retried(measure)


def used(_):
    time.sleep(0.02)
    return float(np.ones(4_000_000).sum())


def test_memory_that_the_scheduler_holds_is_no_growth(retried):
    def measure():
        # Results that are waited for are held, not leaked.
        dsk = {("make", n): (make_slowly, n) for n in range(20)}
        with Profiler() as prof, ResourceProfiler(dt=0.05) as rprof, bytes_held() as cprof:
            retained = dask.threaded.get(dsk, list(dsk), num_workers=1)
        parts = [prof.recording, rprof.recording, cprof.recording]
        assert len(retained) == 20
        assert "memory-growth" not in codes(Recording.combine(parts))
        assert_found(the(Recording.combine(parts[:2]), "memory-growth"), "low", "not measured")
        # What is released at the end was given back.
        del retained
        assert "memory-growth" not in codes(of_memory(dsk, num_workers=1))

    retried(measure)


def pair_of(first, second):
    """What nobody knows the size of, so that the scheduler seems to hold nothing."""
    time.sleep(0.02)
    return ([np.ones(4_000_000)], first, second)


def test_memory_that_is_needed_more_and_more_and_given_back_is_no_growth(retried):
    def measure():
        dsk = {("pair", n): (pair_of, ("pair", n - 1) if n else None, None) for n in range(30)}
        dsk["last", 0] = (len, ("pair", 29))
        with bytes_held() as cprof, Profiler() as prof, ResourceProfiler(dt=0.05) as rprof:
            assert dask.threaded.get(dsk, ("last", 0), num_workers=2) == 3
        parts = [prof.recording, rprof.recording, cprof.recording]
        memory = rprof.recording.resources["memory"]
        assert memory.max() > memory.min() + 500e6
        # Nor if it is not known when tasks ran.
        for recorded_parts in (parts, parts[1:]):
            assert "memory-growth" not in codes(Recording.combine(recorded_parts))

    retried(measure)


def test_results_that_a_program_keeps_are_no_sure_growth(retried):
    def measure():
        retained = []
        with ResourceProfiler(dt=0.02) as rprof, bytes_held() as cprof:
            for n in range(20):
                retained.append(dask.local.get_sync({("make", n): (make_slowly, n)}, ("make", n)))
        finding = the(Recording.combine([rprof.recording, cprof.recording]), "memory-growth")
        assert_found(finding, "low", "in results returned earlier")

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
    assert_found(the(prof.recording, "failed-tasks"), "high", "ValueError", "('broken', 0)")


def end_its_process():
    time.sleep(0.3)
    os._exit(3)


def kill_its_process():
    time.sleep(0.3)
    os.kill(os.getpid(), signal.SIGKILL)


@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize(
    "how, said, advised",
    [
        (end_its_process, "A worker process ended with status 3 (", "such as os._exit"),
        (kill_its_process, "A worker process was killed by SIGKILL (", "out-of-memory killer"),
    ],
)
def test_a_worker_that_dies_is_named_first(how, said, advised, waits):
    dsk = {**independent((time.sleep, 0.1), 6), ("die", 0): (how,)}
    with Profiler(waits=waits) as prof, pytest.raises(BrokenProcessPool):
        dask.multiprocessing.get(dsk, list(dsk), chunksize=1, **PROCESSES)
    first = findings(prof.recording)[0]
    assert first.code == "failed-tasks"
    assert_found(
        first,
        *("high", math.nan, f"; {said}", "die", "not: known to have started", advised),
        f"{'' if how is kill_its_process else 'not: '}out-of-memory",
    )
    assert all(row["value"] >= 0 for row in activities(prof.recording).to_dicts())


def fails_to_start():
    raise ValueError("no licence")


@pytest.mark.parametrize(
    "initializer, arguments, said",
    [
        (fails_to_start, (), "ended with status 0, like a process that cannot start"),
        (os._exit, (1,), "ended with status 1, like a process that cannot start"),
        (os.abort, (), "was killed by SIGABRT"),
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
    assert_found(
        first,
        f"; A worker process {said} (BrokenProcessPool), with 4 tasks of work in flight; none is "
        "known to have started; ",
        "not: out-of-memory",
    )


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
    assert_found(first, math.nan, "failed after an unknown time")
    assert not re.search(r"save (about|at most) 0 s", prof.summary())


def test_a_few_waits_in_a_compute_that_was_stuck_are_not_said_to_be_most():
    def stuck():
        time.sleep(0.05)
        threading.Event().wait(0.9)
        raise KeyboardInterrupt

    dsk = {("b", 0): (time.sleep, 0.05), ("c", 0): (lambda _: stuck(), ("b", 0))}
    with Profiler() as prof, pytest.raises(KeyboardInterrupt):
        dask.local.get_sync(dsk, ("c", 0))
    tasks = prof.recording.tasks
    stop = np.where(tasks["outcome"].eq("ok"), tasks["stop"], np.nan)
    off = np.where(np.isnan(stop), np.nan, tasks["thread_noncpu"])
    only_known = with_columns(prof.recording, "tasks", stop=stop, thread_noncpu=off)
    assert "io-bound" not in codes(only_known)


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


def test_computations_that_sleep_do_not_compete():
    with Profiler() as prof:
        compute_at_once(2, independent((time.sleep, 0.2), 8))
    assert "overlapping-computations" not in codes(prof.recording)


def test_computations_at_once_lose_no_more_than_the_time_that_passed():
    with Profiler() as prof:
        compute_at_once(6, chain((sleep_for, 0.02), 10), num_workers=4)
    finding = the(prof.recording, "serial-chain")
    assert 0 < finding.potential_saving <= prof.recording.stop - prof.recording.start


def sleep_for(seconds, _):
    time.sleep(seconds)


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
        text = " ".join(str(summary(recording, verbose=True)).split())
        named = re.search(r"4 Python threads pool-x ([\d.]+) s", text)
        assert named, text
        assert float(named[1]) == pytest.approx(1.6, rel=0.1)

    matrix = np.ones((300, 300))
    matrix @ matrix
    retried(measure)


def test_nothing_recorded_has_no_findings():
    with Profiler() as prof:
        pass
    assert findings(prof.recording) == []
    empty = replace(prof.recording, computations=NO_ROWS, tasks=NO_ROWS)
    assert findings(empty) == []
