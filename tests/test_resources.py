"""The resource profiler, against processes whose use is known."""

from __future__ import annotations

import multiprocessing
import os
import re
import subprocess
import sys
import threading
import time
from dataclasses import replace

import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import psutil
import pytest

from dask_diag import ResourceProfiler, summary
from dask_diag.system.processes import ProcessTree

from .conftest import own_threads
from .recordings import NOTHING, with_tables

pytestmark = pytest.mark.once


def spin(cpu_seconds):
    started = time.process_time()
    while time.process_time() - started < cpu_seconds:
        pass


def samples(rprof):
    return rprof.recording.resources


def cpu_seconds(rprof):
    """What the samples say in all: their shares, each times its interval."""
    table = samples(rprof)
    intervals = np.diff(np.concatenate([[rprof.start_time], table["time"]]))
    return float((table["cpu"] / 100 * intervals).sum())


def test_a_spinning_process_reads_one_core_from_the_first_sample_on(retried):
    def measure():
        # By the clock of the thread: that of the process has the profiler's own samples in it.
        clocks = []
        with ResourceProfiler(dt=0.1) as rprof:
            started = time.thread_time()
            while not clocks or clocks[-1][1] < 1.0:
                clocks.append((time.perf_counter(), time.thread_time() - started))
        table = samples(rprof)
        cpu = table["cpu"]
        assert len(cpu) >= 8
        assert cpu_seconds(rprof) == pytest.approx(1.0, abs=0.03)
        assert cpu.max() < 115
        # A neighbour may take some of the first tenth of a second.
        first = np.interp(table["time"][0], *zip(*clocks)) / (table["time"][0] - rprof.start_time)
        assert cpu[0] > 40 * first

    retried(measure)


def test_two_busy_pool_workers_read_two_cores(retried):
    def measure():
        pool = multiprocessing.get_context("spawn").Pool(2)
        try:
            pool.map(spin, [0.01] * 4)
            dsk = {("s", n): (spin, 1.5) for n in range(2)}
            with ResourceProfiler(dt=0.1) as rprof:
                dask.multiprocessing.get(dsk, list(dsk), pool=pool, chunksize=1)
        finally:
            pool.close()
            pool.join()
        # On two free cores each sample reads 200; on busy ones the seconds are still all there.
        assert cpu_seconds(rprof) == pytest.approx(3.0, abs=0.4)
        share = 100 * cpu_seconds(rprof) / (rprof.end_time - rprof.start_time)
        assert samples(rprof)["cpu"].max() >= share
        assert samples(rprof)["memory_children"].max() > 10e6

    retried(measure)


def test_children_of_children_and_short_lived_ones_count(retried):
    grandchild = "import time\nwhile time.process_time() < 0.8: pass"
    child = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {grandchild!r}])"

    def measure():
        # Seen as they run, and, with few samples, only once they have been waited for.
        for dt in (0.05, 30):
            before = os.times()
            with ResourceProfiler(dt=dt) as rprof:
                subprocess.run([sys.executable, "-c", child], check=True)
            used = sum(os.times()[:4]) - sum(before[:4])
            # The profiler leaves out what it uses itself, most of it for samples.
            assert 0.8 < used
            assert used - 0.1 < cpu_seconds(rprof) < used + 0.02

    retried(measure)


def test_registered_it_samples_only_while_something_computes_in_this_process():
    before = set(multiprocessing.active_children())
    rprof = ResourceProfiler(dt=0.01)
    rprof.register()
    try:
        for _ in range(2):
            assert own_threads() == set()
            assert dask.local.get_sync({"s-0": (own_threads,)}, "s-0")
            time.sleep(0.1)
        assert len(rprof.results) < 15
    finally:
        rprof.unregister()
    started = time.perf_counter()
    with ResourceProfiler(dt=3600) as rprof:
        spin(0.05)
        assert set(multiprocessing.active_children()) == before
    # Leaving is immediate, whatever the interval.
    assert time.perf_counter() - started < 2
    assert len(rprof.results) >= 1
    # Children that vanish do no harm.
    with ResourceProfiler(dt=0.002) as rprof:
        for _ in range(8):
            subprocess.run([sys.executable, "-S", "-c", "pass"], check=True)
    assert rprof.recording.notices == ()
    assert (samples(rprof)["cpu"] >= 0).all()


def test_memory_of_children_is_apart(retried):
    work = "x = bytearray(150_000_000); x[::4096] = x[::4096]; import time; time.sleep(1)"

    def measure():
        # Other tests may have left one that starts their workers.
        others = sum(child.memory_info().rss for child in psutil.Process().children(recursive=True))
        with ResourceProfiler(dt=0.05) as rprof:
            subprocess.run([sys.executable, "-c", work], check=True)
        table = samples(rprof)
        assert 150e6 < table["memory_children"].max() - others < 200e6
        own = table["memory"]
        assert own.max() - own.min() < 20e6
        biggest = max(result.mem for result in rprof.results)
        assert biggest == pytest.approx(
            (table["memory"] + table["memory_children"]).max() / 1e6, rel=1e-6
        )

    retried(measure)


def test_bytes_and_threads_are_counted(tmp_path):
    with ResourceProfiler(dt=0.01) as rprof:
        thread = threading.Thread(target=time.sleep, args=(0.2,))
        thread.start()
        with open(tmp_path / "f", "wb") as file:
            file.write(b"x" * 5_000_000)
        (tmp_path / "f").read_bytes()
        (tmp_path / "f").unlink()
        thread.join()
    table = samples(rprof)
    if np.isnan(table["read"]).all():
        pytest.skip("this platform does not show the bytes that a process moved")
    assert 5e6 <= table["written"].max() < 7e6
    assert 5e6 <= table["read"].max() < 7e6
    assert table["threads"].max() >= 3


def test_samples_show_how_late_they_came(retried):
    def measure():
        pattern = "(a+)+$"

        with ResourceProfiler(dt=0.02) as rprof:
            time.sleep(0.1)
            re.match(pattern, "a" * 23 + "b")
            time.sleep(0.05)
        table = samples(rprof)
        gaps = np.diff(table["time"])
        assert table["delay"].max() > 0.5 * gaps.max()
        assert (table["delay"] > -0.001).all()
        assert (gaps > 0).all()

    retried(measure)


@pytest.mark.parametrize("dt", [0, -1, float("nan"), float("inf"), "a", None])
def test_an_impossible_interval_is_refused(dt):
    with pytest.raises((ValueError, TypeError), match="dt: expected seconds between samples"):
        ResourceProfiler(dt=dt)


def test_a_fault_while_sampling_is_reported_and_does_not_reach_the_compute(monkeypatch):
    def broken(self):
        raise OSError("/proc has gone")

    monkeypatch.setattr(ProcessTree, "read", broken)
    with ResourceProfiler(dt=0.01) as rprof:
        assert dask.local.get_sync({"s-0": (os.getpid,)}, "s-0") == os.getpid()
    assert "/proc has gone" in rprof.summary()


@pytest.mark.parametrize(
    ("rows", "text"),
    [
        ([(1.0, 100.0), (2.0, 50.0), (2.1, 0.0)], "71% on average, peak 100%"),
        ([(0.01, 900.0), (1.01, 100.0)], "108% on average"),
        ([(1.0, 100.0), (2.0, 100.0), (3.0, 100.0), (3.001, 900.0)], "100% on average"),
        ([(0.01, 979.0), (0.012, 200.0)], "unknown (too short a time)"),
    ],
)
def test_the_summary_weighs_samples_by_their_time(rows, text):
    time, cpu = zip(*rows, strict=True)
    zeros = dict.fromkeys(
        ("memory", "memory_children", "delay", "cpu_other_processes"), [0.0] * len(rows)
    )
    recording = replace(NOTHING, start=0.0, stop=time[-1])
    recording = with_tables(recording, resources={"time": time, "cpu": cpu, **zeros})
    assert " ".join(str(summary(recording)).split()).partition(" CPU ")[2] == text


@pytest.mark.parametrize("dt", [0.01, 0.0005])
def test_a_sleeping_process_reads_nothing(dt, retried):
    def measure():
        with ResourceProfiler(dt=dt) as rprof:
            time.sleep(0.5)
        # Sampling itself may take a millisecond of one interval.
        assert np.median(samples(rprof)["cpu"]) < 2
        assert samples(rprof)["cpu"].mean() < 10

    retried(measure)
