"""CPU of worker processes' threads: read when it is worth it, and whose it is."""

from __future__ import annotations

import os
import subprocess
import sys
import threading

import pytest

from dask_diag.analysis.cpu import ThreadGroup, cpu_outside_tasks, thread_groups
from dask_diag.analysis.facts import Analysis
from dask_diag.system import threads as threads_module
from dask_diag.system.threads import ThreadCpu, WorkerThreads
from dask_diag.tuning.candidates import candidates
from dask_diag.views.lines import thread_lines

from .recordings import by_code, columns_of, two_at_once, with_columns, with_tables, with_waits
from .test_threads import needs_openblas

linux = pytest.mark.skipif(sys.platform != "linux", reason="reads Linux's clocks")


class Clocks:
    """Clocks of a process, of the thread that asks, and of one of BLAS."""

    def __init__(self, monkeypatch):
        self.task = self.blas = 1.0
        self.readings = 0
        monkeypatch.setattr(threads_module, "process_time", lambda: self.task + self.blas)
        monkeypatch.setattr(threads_module, "thread_time", lambda: self.task)
        monkeypatch.setattr(threads_module, "ThreadUsage", self.usage)

    def usage(self):
        self.readings += 1
        return Usage(self)


class Usage:
    """In place of `ThreadUsage`, with the same clocks."""

    def __init__(self, clocks):
        self._clocks, self._before = clocks, (clocks.task, clocks.blas)

    def threads(self):
        self._clocks.readings += 1
        task, blas = self._before
        return [
            ThreadCpu("python", "MainThread", threading.get_ident(), self._clocks.task - task),
            ThreadCpu("native", "openblas", 0, self._clocks.blas - blas),
        ]


@pytest.fixture
def clocks(monkeypatch):
    return Clocks(monkeypatch)


def test_threads_are_read_when_others_than_the_tasks_used_enough(clocks):
    workers = WorkerThreads()
    reported = []
    for _ in range(10):
        workers.start(7)
        clocks.task += 5.0
        clocks.blas += 0.02
        reported.append(workers.threads())
    # After each third task, and once at the start of the computation.
    assert clocks.readings == 1 + 3
    assert [len(threads) for threads in reported] == [0, 0, 1] * 3 + [0]
    # All that it used in the computation: what came before is in it.
    assert [threads[0].cpu for threads in reported if threads] == pytest.approx([0.06, 0.12, 0.18])
    assert reported[2][0][:2] == ("native", "openblas")


def test_a_second_computation_of_a_process_starts_at_nothing(clocks):
    workers = WorkerThreads()
    workers.start(7)
    clocks.blas += 1.0
    assert [thread.cpu for thread in workers.threads()] == pytest.approx([1.0])
    clocks.blas += 2.0
    workers.start(8)
    assert workers.threads() == ()
    clocks.blas += 0.5
    assert [thread.cpu for thread in workers.threads()] == pytest.approx([0.5])


def test_what_was_not_read_is_read_after_the_next_task(clocks, monkeypatch):
    """Clocks are read for a share of the time only."""
    workers = WorkerThreads()
    workers.start(7)
    clocks.blas += 0.06
    with monkeypatch.context() as unread:
        unread.setattr(Usage, "threads", lambda usage: [])
        assert workers.threads() == ()
    assert [thread.cpu for thread in workers.threads()] == pytest.approx([0.06])


def fails(*_):
    raise OSError("no clock")


@pytest.mark.parametrize("which", ["first", "second"])
def test_an_error_is_said_and_is_no_error_of_the_task(clocks, monkeypatch, which):
    workers = WorkerThreads()
    first = which == "first"
    owner, name = (threads_module, "ThreadUsage") if first else (Usage, "threads")
    monkeypatch.setattr(owner, name, fails)
    workers.start(7)
    clocks.blas += 1.0
    assert workers.threads() == ()
    assert workers.fault == "OSError: no clock"


def in_two_processes(blas=1.0, waited=0.5, **columns):
    """Two tasks at once, that waited for CPUs; BLAS of both processes used them, and a sampler."""
    recording = two_at_once(cpu=1 - waited, scheduler="processes", cpu_process=0.2, **columns)
    groups = columns_of(
        "computation pid is_child kind name threads cpu_seconds",
        ("c", 1, 0, "scheduler", "MainThread", 1, 0.2),
        ("c", 50, 1, "native", "openblas", 1, 0.6 * blas),
        ("c", 60, 1, "native", "openblas", 2, 0.4 * blas),
        ("c", 50, 1, "dask_diag", "dask_diag-sampler", 1, 0.02),
        ("c", 60, 1, "python", "zarr_io", 4, 0.01),
    )
    return with_tables(recording, threads=groups)


def test_groups_of_worker_processes():
    assert thread_groups(in_two_processes()) == [
        ThreadGroup("native", "openblas", 2, pytest.approx(1.0), 2),
        ThreadGroup("scheduler", "MainThread", 1, 0.2),
        ThreadGroup("dask_diag", "dask_diag-sampler", 1, 0.02, 1),
        ThreadGroup("python", "zarr_io", 4, 0.01, 1),
    ]


def test_a_group_of_this_process_is_none_of_a_worker():
    groups = thread_groups(with_columns(in_two_processes(), "threads", is_child=[0, 0, 1, 1, 1]))
    native = [group[2:] for group in groups if group.kind == "native"]
    assert native == [(1, pytest.approx(0.6), 0), (2, pytest.approx(0.4), 1)]


def test_pools_of_worker_processes_compete_with_the_tasks():
    finding = by_code(with_waits(in_two_processes(), "cpu-wait"))["thread-oversubscription"]
    # With one more thread each they would fill three CPUs; the largest process has two.
    assert finding.evidence.startswith(
        "Tasks and native threads competed for 2 CPUs: on average 2 tasks ran at once, and each "
        "called openblas with up to 3 threads. The native threads used 1.00 s "
    )
    assert "OPENBLAS_NUM_THREADS=1" in finding.advice
    assert finding.certainty == "estimate"
    # The pools had their part of the waits: 1.00 s of the 1.03 s of CPU besides tasks, and 0.2 s.
    assert finding.potential_saving == pytest.approx(0.5 * 1.0 / 1.23, rel=0.01)


@pytest.mark.parametrize(("blas", "cpus"), [(0.04, 2), (1.0, 6)])
def test_pools_of_worker_processes_that_do_not(blas, cpus):
    recording = with_waits(in_two_processes(blas, cpus=cpus), "cpu-wait")
    assert "thread-oversubscription" not in by_code(recording)


def test_the_summary_says_which_threads_worker_processes_have():
    lines = dict(thread_lines(Analysis(in_two_processes())))
    assert lines["Other threads"] == (
        "1.01 s of CPU: 2 native threads openblas in each of 2 worker processes 1.00 s"
    )


def test_cpu_outside_tasks_is_also_that_of_worker_processes():
    own = {"cpu_process": [0.5], "cpu_scheduler": [0.2]}
    own = with_columns(in_two_processes(), "computations", **own)
    # 0.3 s here, and all but the sampler's there.
    assert cpu_outside_tasks(own) == pytest.approx(0.3 + 1.01)


def test_what_limits_pools_of_worker_processes_is_tried(monkeypatch):
    """The computing process need not have loaded the library."""
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    recording = with_waits(in_two_processes(), "cpu-wait")
    first = candidates(recording, list(by_code(recording).values()))[0]
    assert first.variables == {"OPENBLAS_NUM_THREADS": "1"}
    assert first.reason == "thread-oversubscription"


PROGRAM = """
import os, sys, threading, time
import dask, dask.multiprocessing
import numpy as np
from dask_diag import Profiler

def solve():
    for _ in range(8):
        np.linalg.solve(np.eye(600) + 0.1, np.ones(600))

def beside_a_thread():
    done = threading.Event()
    threading.Thread(target=work, args=[done], name="helper_3", daemon=True).start()
    done.wait()

def work(done):
    start = time.thread_time()
    while time.thread_time() - start < 0.2:
        pass
    done.set()
    time.sleep(60)

if __name__ == "__main__":
    dsk = {("work", n): (task,) for n, task in enumerate([beside_a_thread, solve, solve])}
    with dask.config.set({"multiprocessing.context": sys.argv[1]}), Profiler() as prof:
        dask.multiprocessing.get(dsk, list(dsk), num_workers=1, chunksize=1)
    for row in prof.recording.threads.to_dicts():
        if row["is_child"]:
            assert [row["pid"]] == prof.recording.workers.pid.tolist() != [os.getpid()]
            print(row["kind"], row["name"] or "-", row["threads"], row["cpu_seconds"])
"""


@linux
@pytest.mark.parametrize("context", ["spawn", "fork"])
def test_threads_in_a_worker_process(context, retried):
    """One of Python's, and one of a library that has two, with the one that calls it."""
    needs_openblas()

    def measure():
        environment = {**os.environ, "OPENBLAS_NUM_THREADS": "2"}
        command = [sys.executable, "-c", PROGRAM, context]
        done = subprocess.run(
            command, capture_output=True, text=True, check=True, env=environment, timeout=120
        )
        groups = [line.split() for line in done.stdout.splitlines()]
        assert [group[:3] for group in groups] == [
            ["python", "helper", "1"],
            ["native", "openblas", "1"],
        ]
        assert float(groups[0][3]) == pytest.approx(0.2, abs=0.02)
        assert float(groups[1][3]) >= 0.05

    retried(measure)
