"""After a block a cluster holds nothing of it in memory, however often it is recorded."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from types import SimpleNamespace

import dask.config
import pytest

pytest.importorskip("distributed")

from distributed import Client

from dask_diag import Profiler, record
from dask_diag.cluster.wire import Fault
from dask_diag.cluster.worker import WorkerSide

from .clusters import cluster

SHIPPED = {
    *("DaskDiagSchedulerPlugin", "DaskDiagWorkerPlugin", "MemoryResult", "RecordedComputation"),
    *("RecordedSession", "RecordedTask", "RecordedWorker", "RunCollector", "SessionRegistry"),
}


def increment(x):
    return x + 1


def held():
    """How many objects there are that a cluster has of this package."""
    gc.collect()
    kinds = Counter()
    for item in gc.get_objects():
        kind = type(item)
        if kind is WorkerSide or (kind.__name__ in SHIPPED and "<dask_diag" in kind.__module__):
            kinds[kind.__name__] += 1
    return kinds


def left_over(before):
    """What there is more than before, when all that is about to go has gone."""
    deadline = time.monotonic() + 5
    while (more := held() - before) and time.monotonic() < deadline:
        time.sleep(0.05)
    return more


async def log_and_stop():
    worker = SimpleNamespace(
        data={},
        address="tcp://here",
        state=SimpleNamespace(tasks={}),
        handlers={},
        status=SimpleNamespace(name="running"),
        log_event=None,
    )
    side, loop = WorkerSide(worker), asyncio.get_running_loop()
    side._log(Fault("late"))
    (timer,) = loop._scheduled
    side.stop()
    return timer.cancelled()


def test_a_worker_that_measures_no_more_sends_nothing_later():
    assert asyncio.run(log_and_stop())


@pytest.mark.leaves_files
def test_nothing_is_held_of_what_was_recorded_before(tmp_path):
    """Distributed remembers handlers as long as its process runs, and what they belong to."""
    with cluster() as client:
        before = held()
        for number in range(2):
            with record(tmp_path / f"{number}.diag") as run:
                client.gather(client.map(increment, range(10), pure=False))
                more = held() - before
                assert (
                    more["WorkerSide"]
                    == more["DaskDiagWorkerPlugin"]
                    == more["RecordedWorker"]
                    == 2
                )
                assert more["DaskDiagSchedulerPlugin"] == more["RecordedSession"] == 1
                assert more["RecordedComputation"] >= 1
            del run
            assert left_over(before) == Counter()


def preloads():
    return dask.config.get("distributed.client.preload")


@pytest.mark.leaves_files
def test_workers_that_join_in_a_block_have_no_setting_of_it():
    """A nanny hands on the configuration of the process that starts it."""
    before = preloads()
    with cluster(1, processes=True) as client:
        with Profiler() as prof:
            client.cluster.scale(2)
            client.wait_for_workers(2)
            assert client.submit(increment, 1).result() == 2
            # Those of this process are to load it as long as it records.
            assert preloads() != before
        assert list(client.run(preloads).values()) == [before, before]
    assert preloads() == before
    assert prof.recording.workers.measured.tolist() == [1, 1]


def test_workers_of_this_process_leave_its_setting_in_the_block():
    with cluster(workers=0) as client, Profiler() as prof:
        client.cluster.scale(1)
        client.wait_for_workers(1)
        with Client(client.cluster, set_as_default=False) as later:
            assert later.submit(increment, 1).result() == 2
    assert len(prof.recording.tasks) == 1
