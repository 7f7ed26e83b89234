"""Clusters in this process, and tasks whose time is known."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
import time
from contextlib import asynccontextmanager, contextmanager
from threading import Event

import dask.config
import numpy as np
import pytest
from distributed import Client, LocalCluster

from dask_diag.analysis.activities import seconds_by_activity

from .recordings import assert_values_are_distinct

STARTED, GO_ON = Event(), Event()


@pytest.fixture(autouse=True)
def events():
    """Those of `waits`, for each test of a file that imports this."""
    STARTED.clear()
    GO_ON.clear()
    yield
    GO_ON.set()


def waits(n):
    """Run until the test says to go on; functions of a module reach the same events."""
    STARTED.set()
    GO_ON.wait(30)
    return n


def local_cluster(workers=2, threads=1, processes=False, protocol="inproc", **kwargs):
    """A cluster whose workers are threads of this process, or processes."""
    return LocalCluster(
        n_workers=workers,
        threads_per_worker=threads,
        processes=processes,
        dashboard_address=None,
        protocol=None if processes else protocol,
        **kwargs,
    )


@contextmanager
def cluster(*args, **kwargs):
    """A client of such a cluster."""
    with local_cluster(*args, **kwargs) as local, Client(local) as client:
        yield client


@pytest.fixture(scope="module")
def two_workers():
    """A cluster for all tests of a file. None of its clients stays: any profiler would join it."""
    with local_cluster() as local:
        yield local


@pytest.fixture
def client(two_workers):
    """A client of two workers of a thread each, in a file that imports this and `two_workers`."""
    with Client(two_workers) as made:
        yield made


@asynccontextmanager
async def asynchronous_client():
    kwargs = {"processes": False, "dashboard_address": None, "asynchronous": True}
    async with LocalCluster(n_workers=1, **kwargs) as local:
        async with Client(local, asynchronous=True) as client:
            yield client


def until(holds, seconds=20):
    """Wait for a condition; one that does not come true is a failure."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "what was waited for did not happen"
        time.sleep(0.002)


@pytest.fixture
def unshipped(monkeypatch):
    """The scheduler has the plugin's classes that are imported here, not those of a text sent."""
    imports = "from dask_diag.cluster.plugin import DaskDiagSchedulerPlugin"
    module = "dask_diag.cluster.session"
    monkeypatch.setattr(f"{module}.source_of_scheduler_plugin", lambda: imports)


def what_is_there(client):
    """What a diagnostic might leave on the processes of a cluster and on its client."""
    # Not above: workers that import this file for its tasks would import all that measures.
    from dask_diag.capture import metrics
    from dask_diag.cluster import recorder
    from dask_diag.cluster import worker as worker_module
    from dask_diag.cluster.task import ClusterTask
    from dask_diag.cluster.wire import NAME
    from dask_diag.sampling.sampler import running_tasks

    scheduler, workers = client.cluster.scheduler, client.cluster.workers.values()
    tasks = [ts for worker in workers for ts in worker.state.tasks.values()]
    return {
        "plugins": [set(scheduler.plugins), *(set(worker.plugins) for worker in workers)],
        "worker plugins": set(scheduler.worker_plugins),
        "handlers": [set(scheduler.handlers), *(set(worker.handlers) for worker in workers)],
        "stream handlers": set(scheduler.stream_handlers),
        "topics": {topic for topic in scheduler.get_events() if NAME in topic},
        "metadata": [ts for ts in (*scheduler.tasks.values(), *tasks) if ts.metadata],
        "wrapped": [ts for ts in tasks if isinstance(ts.run_spec, ClusterTask)],
        "config": dask.config.get("distributed.client.preload"),
        "threads": {thread.name for thread in threading.enumerate() if NAME in thread.name},
        "listening": [set(metrics.listening), set(metrics.hearing)],
        "sampled": list(worker_module._of_this_process),
        "recorders": recorder.active_recorders(),
        "running": dict(running_tasks),
    }


def workers_of(client):
    return list(client.cluster.workers.values())


def naps(seconds, count):
    """So long in each task, and no two the same: those would be one."""
    return [seconds + n / 1e6 for n in range(count)]


@contextmanager
def cluster_of_others(workers=2):
    """A client of a cluster whose processes are not started by this one."""
    code = (
        "import sys\n"
        "from distributed import LocalCluster\n"
        "if __name__ == '__main__':\n"
        f"    local = LocalCluster(n_workers={workers}, threads_per_worker=1, dashboard_address=None)\n"
        "    print(local.scheduler_address, flush=True)\n"
        "    sys.stdin.read()\n"
        "    local.close()\n"
    )
    # Its parent is gone by then: a process that runs on its own.
    with subprocess.Popen(
        [sys.executable, "-c", f"import os, sys\nif os.fork(): os._exit(0)\nexec({code!r})"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.path.dirname(os.path.dirname(__file__))},
    ) as process:
        address = process.stdout.readline().strip()
        with Client(address) as client:
            client.wait_for_workers(workers)
            yield client
        process.stdin.close()


def spin(seconds):
    """Use so many seconds of CPU."""
    start = time.thread_time()
    while time.thread_time() - start < seconds:
        pass
    return seconds


async def spin_in_steps(seconds, step=0.01):
    """The same in steps, between which others may run."""
    for _ in range(round(seconds / step)):
        spin(step)
        await asyncio.sleep(0)


def rows(recording, function):
    """The rows of the tasks of a function, in the order in which they were known to be done."""
    tasks = recording.tasks
    return tasks.filter(tasks.function.eq(function)).to_dicts()


def thread_seconds(recording):
    """The threads of live workers, integrated over the computations of clusters."""
    total = 0.0
    workers, computations = recording.workers, recording.computations
    for cluster_id, start, stop in zip(
        computations.cluster.tolist(), computations.start, computations.stop, strict=True
    ):
        of_cluster = workers.filter(workers.computation.eq(cluster_id))
        joined = np.clip(of_cluster.joined, start, stop)
        left = np.clip(np.nan_to_num(of_cluster.left, nan=stop), start, stop)
        total += float((of_cluster.threads * np.maximum(left - joined, 0)).sum())
    return total


def assert_adds_up(recording):
    """Activities sum to the seconds of the threads that were there."""
    assert_values_are_distinct(recording)
    assert abs(sum(seconds_by_activity(recording).values()) - thread_seconds(recording)) < 1e-9


class Counter:
    """An actor."""

    def __init__(self):
        self.n = 0

    def increment(self):
        self.n += 1
        return self.n
