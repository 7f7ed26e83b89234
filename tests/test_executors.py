"""A computation is the same to a reader, however dask was handed the executor that ran it."""

from __future__ import annotations

import multiprocessing
import multiprocessing.pool
import os
import subprocess
import sys
import threading
import time
from concurrent.futures import Executor, Future, ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial

import cloudpickle
import dask
import dask.local
import dask.multiprocessing
import dask.threaded
import numpy as np
import pytest

import dask_diag
from dask_diag import CacheProfiler, Profiler, ResourceProfiler, SamplingProfiler

WORKERS, TASKS = 3, 12


class Wrapped(Executor):
    """An executor of the user's, of a type that nobody knows."""

    def __init__(self, max_workers):
        self._pool = ThreadPoolExecutor(max_workers)
        self._max_workers = max_workers

    def submit(self, function, /, *args, **kwargs):
        return self._pool.submit(function, *args, **kwargs)

    def shutdown(self, wait=True, **kwargs):
        self._pool.shutdown(wait)


class Pickling(Wrapped):
    """It pickles what it is given, and hands on what that returns as it is."""

    def submit(self, function, /, *args, **kwargs):
        sent = cloudpickle.dumps((function, args, kwargs))

        def call():
            function, args, kwargs = cloudpickle.loads(sent)
            return function(*args, **kwargs)

        return super().submit(call)


class InTheCaller(Executor):
    """Runs what it is given at once, as dask's synchronous one does."""

    _max_workers = 2

    def submit(self, function, /, *args, **kwargs):
        future = Future()
        try:
            future.set_result(function(*args, **kwargs))
        except BaseException as error:
            future.set_exception(error)
        return future


def where(key):
    time.sleep(0.002)
    return os.getpid(), threading.get_ident()


def graph():
    return {("where", n): (where, n) for n in range(TASKS)}


def compute(**how):
    parts = [dask.delayed(where)(n, dask_key_name=("where", n)) for n in range(TASKS)]
    return dict(zip(graph(), dask.compute(*parts, **how), strict=True))


def configured(**settings):
    with dask.config.set(settings):
        return compute()


def got(submit, **kwargs):
    results = dask.local.get_async(submit, WORKERS, graph(), list(graph()), **kwargs)
    return dict(zip(graph(), results, strict=True))


ON_THREADS = {
    "scheduler=": lambda pool: compute(scheduler=pool),
    "config scheduler": lambda pool: configured(scheduler=pool),
    "pool=": lambda pool: compute(scheduler="threads", pool=pool),
    "config pool": lambda pool: configured(pool=pool, scheduler="threads"),
    "ThreadPool": lambda pool: compute(scheduler="threads", pool=pool),
    "own type": lambda pool: compute(scheduler=pool),
    "pickling": lambda pool: compute(scheduler=pool),
    "get_async": lambda pool: got(pool.submit),
    "get_async of a function": lambda pool: got(lambda *args: pool.submit(*args)),
    "named by the user": lambda pool: got(pool.submit, get_id=lambda: "a name"),
    "processes": lambda pool: compute(scheduler="processes", pool=pool),
}
POOLS = {
    "ThreadPool": multiprocessing.pool.ThreadPool,
    "own type": Wrapped,
    "pickling": Pickling,
}
PROFILERS = {
    "Profiler": Profiler,
    "waits": partial(Profiler, waits=True),
    "record": partial(dask_diag.record, "run.diag"),
}


def assert_as_it_was(recording, results, kind, scheduler):
    """Each task has the process and the thread that it found itself in."""
    assert recording.computations.scheduler.tolist() == [scheduler]
    assert recording.computations.workers.tolist() == [WORKERS]
    tasks = recording.tasks
    assert len(tasks) == TASKS
    ran_on = zip(tasks.pid.tolist(), tasks.thread.tolist(), strict=True)
    by_key = dict(zip(tasks.key.tolist(), ran_on, strict=True))
    assert by_key == {str(key): worker for key, worker in results.items()}
    names = sorted(set(tasks.worker.tolist()))
    assert names == [f"{kind}-{n}" for n in range(len(set(results.values())))]
    for name in names:
        own = tasks.filter(tasks.worker.eq(name))
        order = np.argsort(own.start)
        assert (own.start[order][1:] >= own.stop[order][:-1]).all(), "one after the other"


@pytest.mark.parametrize("profiler", PROFILERS)
@pytest.mark.parametrize("how", ON_THREADS)
@pytest.mark.leaves_files
def test_tasks_have_the_threads_that_ran_them(how, profiler, tmp_path):
    pool = POOLS.get(how, ThreadPoolExecutor)(WORKERS)
    try:
        with PROFILERS[profiler]() as diagnostic:
            results = ON_THREADS[how](pool)
    finally:
        getattr(pool, "shutdown", getattr(pool, "close", None))()
    assert_as_it_was(diagnostic.recording, results, "thread", "threads")
    if profiler == "record":
        assert_as_it_was(dask_diag.load("run.diag"), results, "thread", "threads")


def long_sleep():
    time.sleep(0.1)


@pytest.mark.skipif(not os.path.exists("/proc/self/task"), reason="waits are known on Linux only")
def test_tasks_that_are_pickled_for_threads_are_sampled_as_others_are():
    prof, stacks = Profiler(waits=True), SamplingProfiler()
    with ThreadPoolExecutor(1) as pool, prof, stacks:
        dask.delayed(long_sleep)().compute(scheduler="processes", pool=pool)
    assert "sleep" in prof.recording.waits.activity.tolist()
    assert "long_sleep" in stacks.recording.frames.name.tolist()


def test_tasks_that_an_executor_runs_in_the_caller_have_the_caller():
    with Profiler() as prof:
        results = compute(scheduler=InTheCaller())
    assert set(results.values()) == {(os.getpid(), threading.get_ident())}
    recording = prof.recording
    assert recording.computations.scheduler.tolist() == ["synchronous"]
    assert set(recording.tasks.worker.tolist()) == {"caller"}
    assert set(recording.tasks.thread.tolist()) == {threading.get_ident()}


@pytest.mark.parametrize("profiler", ["Profiler", "waits"])
def test_tasks_have_the_processes_that_ran_them(profiler):
    context = dask.multiprocessing.get_context()
    with ProcessPoolExecutor(WORKERS, mp_context=context) as pool:
        for run in (
            lambda: compute(scheduler=pool),
            lambda: compute(scheduler="threads", pool=pool),
            lambda: compute(scheduler="processes", pool=pool, chunksize=1),
        ):
            with PROFILERS[profiler]() as prof:
                results = run()
            assert_as_it_was(prof.recording, results, "process", "processes")


FORKED = """
import multiprocessing, os
from concurrent.futures import ProcessPoolExecutor
import dask
from dask_diag import Profiler

def pid(n):
    return os.getpid()

with ProcessPoolExecutor(2, mp_context=multiprocessing.get_context("fork")) as pool:
    with Profiler() as prof:
        pids = dask.compute(*map(dask.delayed(pid), range(6)), scheduler=pool)
tasks = prof.recording.tasks
print(set(pids) == set(tasks.pid.tolist()) != {os.getpid()}, (tasks.start < tasks.stop).all())
"""


@pytest.mark.skipif("fork" not in multiprocessing.get_all_start_methods(), reason="needs fork")
def test_processes_that_are_forked_while_a_computation_runs_do_not_run_it():
    """In a process that has imported no more than it needs."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True)
    assert done.stdout == "True True\n", done.stderr


@pytest.mark.parametrize(
    "diagnostic", [Profiler, SamplingProfiler, CacheProfiler, ResourceProfiler]
)
@pytest.mark.parametrize("scheduler", ["threads", "synchronous", "executor", "own type"])
def test_the_kind_and_the_threads_are_known_while_the_only_task_runs_and_though_it_fails(
    scheduler, diagnostic
):
    def look():
        recording = active.recording
        seen.append((recording.computations.scheduler.tolist(), recording.tasks.thread.tolist()))
        seen.append(threading.get_ident())
        raise ValueError("at once")

    seen, pools = [], {"executor": ThreadPoolExecutor(1), "own type": Wrapped(1)}
    kind = "synchronous" if scheduler == "synchronous" else "threads"
    with diagnostic() as active, pytest.raises(ValueError, match="at once"):
        dask.delayed(look)().compute(scheduler=pools.get(scheduler, scheduler))
    for pool in pools.values():
        pool.shutdown()
    assert active.recording.computations.scheduler.tolist() == [kind]
    if diagnostic is Profiler and kind == "threads":
        assert seen == [(["threads"], [seen[1]]), seen[1]]
