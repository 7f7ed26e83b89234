"""CPU by thread: every second of the process belongs to somebody."""

from __future__ import annotations

import _thread
import os
import struct
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import dask.local
import dask.multiprocessing
import dask.threaded
import pytest

import dask_diag
from dask_diag import Profiler, ResourceProfiler
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


def near(seconds):
    return pytest.approx(seconds, rel=0.1, abs=0.02)


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
        done = subprocess.run(
            [sys.executable, "-c", MATMUL],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "OPENBLAS_NUM_THREADS": str(threads)},
            timeout=120,
        )
        rows = [line.split() for line in done.stdout.splitlines()]
        native = {name: (int(n), float(cpu)) for kind, name, n, cpu in rows if kind == "native"}
        if threads == 1:
            assert native == {}
        else:
            in_tasks = sum(float(cpu) for kind, _, _, cpu in rows if kind == "tasks")
            # Half of the work; while one of the two has no CPU, the other spins.
            assert native["openblas"] == (threads - 1, pytest.approx(in_tasks, rel=0.7))

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


def test_without_linux_clocks_psutil_reads(monkeypatch, fresh_clocks, pool, retried):
    def refuse():
        raise OSError("no clock")

    monkeypatch.setattr(threads_module, "linux_clocks", refuse)

    def measure():
        recording = profiled(lambda: list(pool.map(spin, [0.2])), tasks=1)
        assert cpu_of(recording)["python", "zarr_io"] == pytest.approx(0.2, abs=0.04)
        assert not recording.notices

    retried(measure)


@pytest.mark.parametrize("reason", ["not here", "number threads differently"])
def test_where_threads_are_not_known_it_is_said(reason, monkeypatch, fresh_clocks):
    def refuse():
        if reason == "not here":
            raise OSError(reason)
        return {1: 0.5, 2: 0.25}

    for name in ("linux_clocks", "psutil_clocks"):
        monkeypatch.setattr(threads_module, name, refuse)
    recording = profiled(lambda: spin(0.01))
    assert len(recording.threads) == 0
    assert "CPU time of single threads is unknown: " in recording.notices[0]
    assert reason in recording.notices[0]


@pytest.mark.parametrize(
    ("file", "library"),
    [
        ("/x/numpy.libs/libscipy_openblas64_-32a4b2a6.so", "openblas"),
        ("/usr/lib/libmkl_intel_thread.so.2", "mkl"),
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


@pytest.mark.parametrize("get", [dask.threaded.get, dask.local.get_sync])
def test_the_cpu_of_the_process_is_divided_among_its_threads(get, pool, tmp_path, retried):
    """A pool, a thread that ends, one that starts meanwhile, and one that threading does not know."""
    lock, stop, threads = _thread.allocate_lock(), threading.Event(), []

    def unknown(started):
        spin(0.1)
        started.set()
        with lock:
            pass

    def starts_meanwhile(started):
        spin(0.1)
        started.set()
        stop.wait(10)

    def work():
        spin(0.1)
        list(pool.map(spin, [0.1] * 3))
        ends = threading.Thread(target=spin, args=[0.1])
        ends.start()
        ends.join()
        started = threading.Event()
        threads.append(threading.Thread(target=starts_meanwhile, args=(started,), name="x"))
        threads[-1].start()
        started.wait(10)
        started.clear()
        _thread.start_new_thread(unknown, (started,))
        started.wait(10)

    def measure():
        stop.clear()
        # What a thread did before does not count.
        list(pool.map(spin, [0.2]))
        path = tmp_path / "run.diag"
        with lock, dask_diag.record(path, overwrite=True) as run:
            get({("work", 0): (work,)}, [("work", 0)])
        stop.set()
        threads[-1].join()
        recording, loaded = run.recording, dask_diag.load(path)
        path.unlink()
        assert_same_table(loaded.threads, recording.threads)
        both = dask_diag.combine([recording, loaded])
        assert_same_table(both.threads, recording.threads)
        cpu = cpu_of(recording)
        (row,) = (row for row in recording.threads.to_dicts() if row["name"] == "zarr_io")
        assert (row["kind"], row["threads"], row["cpu_seconds"]) == ("python", 3, near(0.3))
        assert cpu["python", "x"] == near(0.1)
        # One that ends may be on its way out when its clock is read.
        unnamed = cpu.get(("python", ""), 0.0) + cpu.get(("ended", ""), 0.0)
        assert unnamed == near(0.2) or sys.platform != "linux"
        (process,) = recording.computations.cpu_process.tolist()
        assert sum(cpu.values()) == pytest.approx(process, abs=0.02)
        in_tasks = float(recording.tasks.thread_cpu.sum())
        kinds = {kind: sum(cpu[k, n] for k, n in cpu if k == kind) for kind, _ in cpu}
        assert kinds["tasks"] == pytest.approx(in_tasks, abs=0.01)
        in_scheduler = float(recording.computations.cpu_scheduler.sum())
        in_scheduler -= in_tasks * (get is dask.local.get_sync)
        assert kinds["scheduler"] == pytest.approx(in_scheduler, abs=0.01)

    retried(measure)


def test_reading_takes_at_most_a_fiftieth_of_the_time(clocks, monkeypatch):
    for _ in range(1000):
        threads_module.read_threads()
        clocks.now += 0.0005
    assert 5 <= clocks.reads <= 1 + 0.01 * (clocks.now - 100.0) / 0.001
    # A reading is not used in the child of a fork.
    before = clocks.reads
    monkeypatch.setattr(os, "getpid", lambda: -1)
    threads_module.read_threads()
    assert clocks.reads == before + 1
    # An id that another thread had before.
    clocks.now += 100.0
    cpu, native_id = iter([5.0, 2.0]), threading.get_native_id()
    monkeypatch.setattr(threads_module, "_source", lambda: lambda: {native_id: next(cpu)})
    usage = ThreadUsage()
    clocks.now += 10
    assert [thread.cpu for thread in usage.threads() if thread.kind == "python"] == [2.0]
