"""After a block a cluster holds nothing of it in memory, however often it is recorded."""

from __future__ import annotations

import asyncio
import gc
import time
from collections import Counter
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from dask_diag import record
from dask_diag.capture.cluster.worker_side import WorkerSide

from .clusters import cluster

SHIPPED = {"Cached", "Computation", "DaskDiagSchedulerPlugin", "DaskDiagWorkerPlugin"}
SHIPPED |= {"Session", "Task", "Worker"}


def increment(x):
    return x + 1


def held():
    """How many objects there are that a cluster has of this package."""
    gc.collect()
    found = Counter()
    for each in gc.get_objects():
        kind = type(each)
        if kind is WorkerSide or (kind.__name__ in SHIPPED and "<dask_diag" in kind.__module__):
            found[kind.__name__] += 1
    return found


def left(before):
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
    side._log(("disk", "tcp://here"))
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
                assert more["WorkerSide"] == more["DaskDiagWorkerPlugin"] == more["Worker"] == 2
                assert more["DaskDiagSchedulerPlugin"] == more["Session"] == 1
                assert more["Computation"] >= 1
            del run
            assert left(before) == Counter()
