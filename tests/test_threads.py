"""CPU by thread: every second of the process belongs to somebody."""

from __future__ import annotations

import _thread
import math
import os
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import reduce

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import Profiler, ResourceProfiler
from dask_diag.capture.task import pack_row
from dask_diag.capture.workers_table import TaskThreads, task_threads
from dask_diag.system import periodic
from dask_diag.system import threads as threads_module
from dask_diag.system.threads import ThreadUsage

from .recordings import assert_same_table

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's clocks")


def spin(seconds):
    """Use so many CPU seconds of this thread."""
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass


def cpu_of(recording):
    """CPU seconds by kind and name."""
    rows = recording.threads.to_dicts()
    return {(row["kind"], row["name"]): row["cpu_seconds"] for row in rows}


def profiled(function, tasks=2, get=dask.threaded.get, **options):
    dsk = {("work", n): (function,) for n in range(tasks)}
    with Profiler(**options) as prof:
        get(dsk, list(dsk), num_workers=2)
    return prof.recording


@pytest.fixture
def pool():
    with ThreadPoolExecutor(3, thread_name_prefix="zarr_io") as executor:
        yield executor


@pytest.fixture
def fresh_clocks(monkeypatch):
    """No reading was taken, and nothing is known of where to read."""
    monkeypatch.setattr(threads_module, "_last", threads_module._LastReading())
    forget = threads_module._source.cache_clear
    forget()
    yield
    forget()


@pytest.fixture
def every_reading(monkeypatch):
    """Clocks are read whenever asked for: beside busy programs a reading is dear now and then.

    It was seen to take 0.5 ms of CPU, five times what is usual, and then a computation of 50 ms has
    no threads, as `test_a_computation_that_is_too_short_for_it_has_no_threads` says.
    """
    last = threads_module._LastReading()
    last.work = periodic.ShareOfTime(math.inf)
    monkeypatch.setattr(threads_module, "_last", last)


def near(seconds):
    return pytest.approx(seconds, rel=0.1, abs=0.02)


def test_threads_of_a_pool_have_what_they_spun(pool, retried):
    def measure():
        recording = profiled(lambda: list(pool.map(spin, [0.1, 0.1, 0.1])))
        assert cpu_of(recording)["python", "zarr_io"] == near(0.6)
        counts = {row["name"]: row["threads"] for row in recording.threads.to_dicts()}
        assert counts["zarr_io"] == 3

    retried(measure)


def test_the_cpu_of_all_threads_is_that_of_the_process(pool, retried):
    def measure():
        recording = profiled(lambda: (spin(0.1), list(pool.map(spin, [0.1] * 3))), tasks=3)
        process = float(recording.computations.process_cpu.sum())
        assert float(recording.threads.cpu_seconds.sum()) == pytest.approx(process, abs=0.01)

    retried(measure)


@pytest.mark.parametrize("get", [dask.threaded.get, dask.local.get_sync])
def test_tasks_and_scheduler(get, retried):
    def measure():
        recording = profiled(lambda: spin(0.1), tasks=3, get=get)
        kinds = {}
        for row in recording.threads.to_dicts():
            kinds[row["kind"]] = kinds.get(row["kind"], 0.0) + row["cpu_seconds"]
        in_tasks = float(recording.tasks.thread_cpu.sum())
        assert kinds["tasks"] == pytest.approx(in_tasks, abs=0.01)
        in_scheduler = float(recording.computations.scheduler_cpu.sum())
        if get is dask.local.get_sync:
            in_scheduler -= in_tasks
        assert kinds["scheduler"] == pytest.approx(in_scheduler, abs=0.01)
        assert set(kinds) - {"python"} <= {"tasks", "scheduler", "ended"}

    retried(measure)


def in_a_thread_that_ends():
    thread = threading.Thread(target=spin, args=[0.1], name="short-lived")
    thread.start()
    thread.join()


def test_a_thread_that_ends_is_not_lost(retried):
    def measure():
        cpu = cpu_of(profiled(in_a_thread_that_ends))
        # It may be on its way out when its clock is read.
        assert cpu.get(("ended", ""), 0.0) + cpu.get(("python", ""), 0.0) == near(0.2)

    retried(measure)


def test_what_a_thread_did_before_does_not_count(pool, retried):
    def measure():
        list(pool.map(spin, [0.2]))
        recording = profiled(lambda: list(pool.map(spin, [0.1])), tasks=1)
        assert cpu_of(recording)["python", "zarr_io"] == near(0.1)

    retried(measure)


def test_a_thread_that_starts_meanwhile_counts_from_its_start(retried):
    stop = threading.Event()

    def start_one():
        thread = threading.Thread(target=lambda: (spin(0.1), started.set(), stop.wait()), name="x")
        thread.start()
        threads.append(thread)
        started.wait()

    def measure():
        started.clear()
        assert cpu_of(profiled(start_one, tasks=1))["python", "x"] == near(0.1)

    started, threads = threading.Event(), []
    try:
        retried(measure)
    finally:
        stop.set()
        for thread in threads:
            thread.join()


@linux
def test_a_thread_that_threading_does_not_know_is_pythons(retried):
    lock = _thread.allocate_lock()

    def work():
        spin(0.1)
        done.set()
        with lock:
            pass

    def start_one():
        _thread.start_new_thread(work, ())
        done.wait()

    def measure():
        done.clear()
        with lock:
            cpu = cpu_of(profiled(start_one, tasks=1))
        assert cpu["python", ""] == near(0.1)

    done = threading.Event()
    retried(measure)


def test_own_threads_are_reported_from_others_also_after_they_have_ended(retried):
    def measure():
        with ResourceProfiler(dt=0.01):
            recording = profiled(lambda: time.sleep(0.3), waits=True)
        cpu = cpu_of(recording)
        assert 0 < cpu["dask_diag", "dask_diag-resources"] < 0.1
        assert 0 < cpu["dask_diag", "dask_diag-sampler"] < 0.1
        assert cpu.get(("ended", ""), 0.0) < 0.005

    retried(measure)


MATMUL = """
import time
import numpy as np, dask.threaded
from dask_diag import Profiler

matrix = np.ones((900, 900))
matrix @ matrix
time.sleep(0.3)  # What its threads spin for work is over.

def multiply():
    for _ in range(8):
        matrix @ matrix

with Profiler() as prof:
    dask.threaded.get({("matmul", 0): (multiply,)}, [("matmul", 0)])
for row in prof.recording.threads.to_dicts():
    print(row["kind"], row["name"] or "-", row["threads"], row["cpu_seconds"])
"""


def needs_openblas():
    """Skip a test where numpy has another library."""
    numpy = pytest.importorskip("numpy")
    built_with = numpy.show_config(mode="dicts")["Build Dependencies"]["blas"]["name"]
    if "openblas" not in built_with:
        pytest.skip("numpy with another BLAS than OpenBLAS")


@linux
@pytest.mark.parametrize("threads", [1, 2])
def test_threads_of_a_native_library(threads, retried):
    needs_openblas()

    def measure():
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": str(threads)}
        done = subprocess.run(
            [sys.executable, "-c", MATMUL],
            capture_output=True,
            text=True,
            check=True,
            env=environment,
            timeout=120,
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        cpu = {(kind, name): float(cpu) for kind, name, _, cpu in rows}
        counts = {(kind, name): int(count) for kind, name, count, _ in rows}
        if threads == 1:
            assert not [group for group in cpu if group[0] == "native"]
        else:
            in_tasks = sum(seconds for (kind, _), seconds in cpu.items() if kind == "tasks")
            assert counts["native", "openblas"] == threads - 1
            # Half of the work; while one of the two has no CPU, the other spins.
            assert cpu["native", "openblas"] == pytest.approx(in_tasks, rel=0.7)

    retried(measure)


def test_worker_processes_have_threads_of_their_own(every_reading):
    # As many as let the scheduler use CPU for longer than its clock's steps.
    recording = profiled(time.monotonic, tasks=300, get=dask.multiprocessing.get)
    assert ("tasks", "") not in cpu_of(recording)
    assert "tasks" not in recording.threads.kind.tolist()
    assert "scheduler" in recording.threads.kind.tolist(), recording.computations.to_dicts()


def test_a_computation_while_it_runs(retried):
    """What another thread asks for in between is there, too."""

    def look():
        spin(0.1)
        seen.append(prof.recording)
        spin(0.1)

    def measure():
        seen.clear()
        dsk = {("work", 0): (look,)}
        dask.local.get_sync(dsk, [("work", 0)])
        assert sum(cpu_of(seen[0]).values()) == near(0.1)
        assert sum(cpu_of(prof.recording).values()) > 0.18

    seen = []
    with Profiler() as prof:
        prof.clear()
        retried(measure)


def test_save_load_and_combine(tmp_path, every_reading):
    with Profiler() as prof, ResourceProfiler() as rprof:
        dask.local.get_sync({("work", 0): (spin, 0.05)}, [("work", 0)])
    combined = dask_diag.combine([prof.recording, rprof.recording])
    assert_same_table(combined.threads, rprof.recording.threads)
    assert len(combined.threads) == len(prof.recording.threads) > 0
    dask_diag.save(combined, tmp_path / "run.diag")
    loaded = dask_diag.load(tmp_path / "run.diag")
    assert_same_table(loaded.threads, combined.threads)
    (tmp_path / "run.diag").unlink()


def test_record_writes_threads_while_it_runs(tmp_path, pool, retried):
    def measure():
        with dask_diag.record(tmp_path / "run.diag", overwrite=True, waits=False):
            dask.threaded.get({("work", 0): (lambda: list(pool.map(spin, [0.1])),)}, [("work", 0)])
        cpu = cpu_of(dask_diag.load(tmp_path / "run.diag"))
        (tmp_path / "run.diag").unlink()
        assert cpu["python", "zarr_io"] == near(0.1)

    retried(measure)


class Clocks:
    """Time that passes when the clocks of threads are read, and when reported."""

    def __init__(self):
        self.now = self.cpu = 100.0
        self.reads = 0

    def read(self):
        self.reads += 1
        self.cpu += 0.001
        self.now += 0.001
        return {threading.get_native_id(): self.cpu}


@pytest.fixture
def clocks(monkeypatch, fresh_clocks):
    clocks = Clocks()
    monkeypatch.setattr(threads_module, "perf_counter", lambda: clocks.now)
    monkeypatch.setattr(periodic, "thread_time", lambda: clocks.cpu)
    monkeypatch.setattr(threads_module, "process_time", lambda: clocks.cpu)
    monkeypatch.setattr(threads_module, "_source", lambda: clocks.read)
    return clocks


def test_reading_takes_at_most_a_fiftieth_of_the_time(clocks):
    for _ in range(1000):
        threads_module.read_threads()
        clocks.now += 0.0005
    assert clocks.reads <= 1 + 0.01 * (clocks.now - 100.0) / 0.001
    assert clocks.reads >= 5


def test_a_computation_that_is_too_short_for_it_has_no_threads(clocks):
    usage = ThreadUsage()
    clocks.now += 0.01
    usage.stop()
    assert usage.threads() == []
    usage = ThreadUsage()
    clocks.now += 0.2
    clocks.cpu += 0.06
    usage.stop()
    assert [(thread.kind, thread.name) for thread in usage.threads()] == [("python", "MainThread")]
    assert clocks.reads == 2


def test_a_reading_is_not_used_in_the_child_of_a_fork(clocks, monkeypatch):
    threads_module.read_threads()
    monkeypatch.setattr(os, "getpid", lambda: -1)
    threads_module.read_threads()
    assert clocks.reads == 2


def test_an_id_that_another_thread_had_before(clocks, monkeypatch):
    native_id = threading.get_native_id()
    cpu = iter([5.0, 2.0])
    monkeypatch.setattr(threads_module, "_source", lambda: lambda: {native_id: next(cpu)})
    usage = ThreadUsage()
    clocks.now += 10
    assert [thread.cpu for thread in usage.threads() if thread.kind == "python"] == [2.0]


def test_without_linux_clocks_psutil_reads(monkeypatch, fresh_clocks, pool, retried):
    def refuse():
        raise OSError("no clock")

    monkeypatch.setattr(threads_module, "linux_clocks", refuse)

    def measure():
        recording = profiled(lambda: list(pool.map(spin, [0.2])), tasks=1)
        assert cpu_of(recording)["python", "zarr_io"] == pytest.approx(0.2, abs=0.04)
        assert not recording.notices

    retried(measure)


def test_where_threads_are_not_known_it_is_said(monkeypatch, fresh_clocks):
    def refuse():
        raise OSError("not here")

    for name in ("linux_clocks", "psutil_clocks"):
        monkeypatch.setattr(threads_module, name, refuse)
    recording = profiled(lambda: spin(0.01))
    assert len(recording.threads) == 0
    assert recording.notices == ("CPU is not known by thread: OSError: not here",)


def test_where_threads_have_other_numbers_it_is_said(monkeypatch, fresh_clocks):
    for name in ("linux_clocks", "psutil_clocks"):
        monkeypatch.setattr(threads_module, name, lambda: {1: 0.5, 2: 0.25})
    recording = profiled(lambda: spin(0.01))
    assert len(recording.threads) == 0
    assert "threads have other numbers" in recording.notices[0]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/x/numpy.libs/libscipy_openblas64_-32a4b2a6.so", "openblas"),
        ("/usr/lib/libmkl_intel_thread.so.2", "mkl"),
        ("/usr/lib/x86_64-linux-gnu/libgomp.so.1.0.0", "openmp"),
        ("/x/scikit_learn.libs/libgomp-a34b3233.so.1.0.0", "openmp"),
        ("/x/lib/libiomp5.so", "openmp"),
        ("/x/pyarrow/libarrow.so.2300", "arrow"),
        ("/x/blosc.cpython-312-x86_64-linux-gnu.so", "blosc"),
        ("/x/polars.abi3.so", "polars"),
        ("/usr/bin/python3.11", threads_module.PYTHON),
        ("/usr/lib/libpython3.13.so.1.0", threads_module.PYTHON),
        ("/usr/lib/x86_64-linux-gnu/libc.so.6", ""),
        ("/usr/lib/x86_64-linux-gnu/libc-2.31.so", ""),
        ("/usr/lib/x86_64-linux-gnu/libstdc++.so.6.0.30", ""),
        ("/lib64/ld-linux-x86-64.so.2", ""),
        ("[vdso]", ""),
        ("", ""),
    ],
)
def test_library_of_file(file, library):
    assert threads_module.library_of_file(file) == library


@linux
def test_the_size_of_a_stack_is_no_code_of_an_interpreter_at_low_addresses(monkeypatch):
    """Debian's interpreters are at fixed addresses, where the size of a stack is one of them."""
    thread, size, started = 12_345, 0x801000, 0x7F00_0000_1234
    mapping = threads_module._Mapping
    stack = mapping(0x7F11_0000_0000, 0x7F11_0000_0000 + size, "rw-p", "")
    # From low addresses to high ones: where the thread's function returns to, then how it is
    # described, with the number of the thread.
    top = struct.pack("QQQQii", 0, started, 0, size, thread, 0)
    mappings = [
        mapping(0x422000, 0x843000, "r-xp", "/usr/bin/python3.14"),
        mapping(0x7F00_0000_0000, 0x7F00_0010_0000, "r-xp", "/x/libopenblas.so.0"),
        stack,
        mapping(0x7F22_0000_0000, 0x7F22_0010_0000, "r-xp", "/usr/lib/libc.so.6"),
    ]
    memory = nullcontext(lambda length, stop: top)
    monkeypatch.setattr(threads_module, "_opened", lambda path: memory)
    monkeypatch.setattr(threads_module, "_mappings", lambda read: mappings)
    assert threads_module.libraries_of_threads([thread]) == {thread: "openblas"}


def test_libraries_of_threads_that_are_not_there():
    assert threads_module.libraries_of_threads([]) == {}
    assert threads_module.libraries_of_threads([2**22 + 12345]) == {}


def test_where_memory_cannot_be_read_no_library_is_known(monkeypatch):
    def refuse(path):
        raise OSError("no")

    monkeypatch.setattr(threads_module, "_opened", refuse)
    assert threads_module.libraries_of_threads([threading.get_native_id()]) == {}


def test_the_cpu_of_tasks_is_the_same_however_they_are_divided_among_chunks():
    """A file's table has the very numbers of the recording's, though tasks came bit by bit."""
    cpu = np.random.default_rng(1).integers(0, 10**7, 200) / 1e9
    rows = [pack_row(0.0, 1.0, 0.0, seconds, float(n % 3), 0.0) for n, seconds in enumerate(cpu)]
    at_once = task_threads(b"".join(rows))
    assert at_once.cpu == pytest.approx(cpu.sum(), rel=1e-12)
    for size in (1, 3, 7, 150):
        chunks = [b"".join(rows[n : n + size]) for n in range(0, len(rows), size)]
        assert reduce(TaskThreads.plus, map(task_threads, chunks)) == at_once
