"""MemorySampler on a client of distributed: processes that hold what is known."""

from __future__ import annotations

import asyncio
import os
import time
from array import array

import numpy as np
import psutil
import pytest

pytest.importorskip("distributed")

from distributed.diagnostics import MemorySampler as DistributedMemorySampler

from dask_diag import MemorySampler
from dask_diag.capture.build import memory_table
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.tables import with_remote_memory
from dask_diag.cluster.wire import PROCESS, Batch

from .clusters import asynchronous_client, cluster, cluster_of_others, until

SIZE = 100_000_000


def filled(n):
    """So many bytes, of which the kernel has to have each page."""
    return np.ones(n // 8)


def resident():
    return psutil.Process().memory_info().rss


def rise(samples):
    sizes = [size for _, size in samples]
    return max(sizes) - sizes[0]


def said_by_workers(client):
    """The workers' memory, as the scheduler knows it."""
    return client.run_on_scheduler(
        lambda dask_scheduler: sum(
            worker.metrics["memory"] for worker in dask_scheduler.workers.values()
        )
    )


def test_workers_that_others_started_are_added():
    with cluster_of_others() as client:
        client.submit(filled, 8).result()
        # Distributed's sampler has what workers last said of themselves.
        until(lambda: said_by_workers(client) >= 0.98 * sum(client.run(resident).values()))
        ms, of_distributed = MemorySampler(), DistributedMemorySampler()
        with of_distributed.sample("held", interval=0.1), ms.sample("held", interval=0.1) as name:
            futures = client.map(filled, [SIZE, SIZE + 8])
            client.gather(client.map(len, futures))
            time.sleep(1.0)
            # Other tests may have left children.
            children = psutil.Process().children(recursive=True)
            total = resident() + sum(child.memory_info().rss for child in children)
            total += client.run_on_scheduler(resident) + sum(client.run(resident).values())
        rows = ms.recording.memory
        assert rise(ms.samples[name]) == pytest.approx(2 * SIZE, rel=0.1)
        assert rise(ms.samples[name]) == pytest.approx(
            rise(of_distributed.samples["held"]), rel=0.1
        )
        assert rows.rss[-1] == pytest.approx(total, rel=0.1)
        assert rows.processes[-1] == 1 + len(children) + 3
        assert np.isnan(rows.pss).all()
        assert ms.recording.notices == ()


def test_workers_that_this_process_started_count_once():
    with cluster(processes=True) as client:
        pids = list(client.run(os.getpid).values())
        ms = MemorySampler()
        with ms.sample("held", interval=0.1):
            future = client.submit(filled, SIZE)
            client.submit(len, future).result()
            time.sleep(0.3)
            of_workers = sum(client.run(resident).values())
            descendants = psutil.Process().children(recursive=True)
            total = resident() + sum(descendant.memory_info().rss for descendant in descendants)
        rows = ms.recording.memory
    assert {*pids} <= {descendant.pid for descendant in descendants}
    assert rows.processes[-1] == len(descendants) + 1
    assert of_workers < rows.rss[-1] == pytest.approx(total, rel=0.1)


def test_asynchronous_clients():
    async def main():
        async with asynchronous_client() as client:
            ms = MemorySampler()
            async with ms.sample("held", interval=0.1) as name:
                await client.submit(filled, 8)
            plugins = list(client.cluster.scheduler.plugins)
            return name, ms, plugins

    name, ms, plugins = asyncio.run(main())
    assert name == "held"
    assert len(ms.samples["held"]) >= 2
    assert "dask_diag" not in plugins
    assert ms.recording.notices == ()


def log_of(samples):
    """What was pulled of a cluster: the samples of one process, as time and bytes."""
    log = ClusterLog({"processes": 1.0})
    packed = b"".join(PROCESS.pack(moment, 7, 0, size, 0.0) for moment, size in samples)
    log.batches.append(Batch(processes=[(0, packed)]))
    return log


def test_a_process_counts_from_one_interval_before_its_first_sample_until_it_has_gone():
    rows = [(moment, 10.0, 5.0, 5.0, 1, 0.0) for moment in (0.0, 1.5, 2.0, 3.5, 9.0)]
    numbers = array("d", [number for row in rows for number in row])
    memory = memory_table({"a": numbers, "b": numbers})
    added = with_remote_memory(memory, {"a": [log_of([(2.0, 100.0), (3.0, 200.0)])]})
    of_a, of_b = (added.filter(added.label.eq(label)) for label in "ab")
    assert of_a.rss.tolist() == [10.0, 110.0, 110.0, 210.0, 10.0]
    assert of_a.processes.tolist() == [1, 2, 2, 2, 1]
    assert np.isnan(of_a.pss).all()
    assert of_b.rss.tolist() == [10.0] * 5
    assert of_b.pss.tolist() == [5.0] * 5
