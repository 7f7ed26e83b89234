"""ResourceProfiler on a client of distributed: processes whose use is known."""

from __future__ import annotations

import os
import time

import numpy as np
import pytest

pytest.importorskip("distributed")


from dask_diag import Profiler, ResourceProfiler, load, record
from dask_diag.analysis.memory import task_memory
from dask_diag.cluster.workers_table import with_remote_processes
from dask_diag.system.usage import processors

from .clusters import cluster, cluster_of_others, spin
from .recordings import filled_table


def cpu_seconds(processes, pid):
    """What the samples of one process say in all: their shares, each times its interval."""
    rows = processes.filter(processes.pid == pid)
    return float((np.nan_to_num(rows.cpu)[1:] / 100 * np.diff(rows.time)).sum())


def used_since(before, now):
    """The CPU seconds of each worker."""
    return {address: now[address] - before[address] for address in now}


def import_package(client):
    """Have what measures imported by the workers: it takes CPU, too."""
    with ResourceProfiler():
        client.submit(spin, 0.0, pure=False).result()


def test_workers_in_processes_of_their_own_count_once():
    with cluster(processes=True) as client:
        pids = {str(name): worker.process.pid for name, worker in client.cluster.workers.items()}
        import_package(client)
        before = client.run(time.process_time)
        with ResourceProfiler(dt=0.1) as rprof:
            first = next(iter(client.cluster.workers.values())).worker_address
            client.submit(spin, 0.6, workers=[first]).result()
        used = used_since(before, client.run(time.process_time))
    processes = rprof.recording.processes
    assert cpu_seconds(processes, pids["0"]) == pytest.approx(used[first], abs=0.08)
    assert cpu_seconds(processes, pids["1"]) < 0.3
    labels = dict(zip(processes.pid.tolist(), processes.worker.tolist(), strict=True))
    assert labels[os.getpid()] == "client, scheduler"
    assert [labels[pid] for pid in pids.values()] == ["worker-0", "worker-1"]
    at_last = processes.filter(processes.time == processes.time.max())
    assert len(set(at_last.pid.tolist())) == len(at_last)
    resources = rprof.recording.resources
    assert resources.memory_children[-1] == pytest.approx(
        at_last.memory[at_last.is_child > 0].sum()
    )


def test_workers_that_others_started_are_sampled_where_they_run():
    with cluster_of_others() as client:
        addresses = sorted(client.nthreads())
        pids = client.run(os.getpid)
        import_package(client)
        before = client.run(time.process_time)
        with Profiler() as prof, ResourceProfiler(dt=0.1) as rprof:
            client.submit(spin, 0.6, workers=[addresses[0]]).result()
            time.sleep(0.3)
        used = used_since(before, client.run(time.process_time))
        scheduler = client.run_on_scheduler(os.getpid)
    recording = rprof.recording
    processes = recording.processes
    for address in addresses:
        assert cpu_seconds(processes, pids[address]) == pytest.approx(used[address], abs=0.08)
    labels = dict(zip(processes.pid.tolist(), processes.worker.tolist(), strict=True))
    assert labels[os.getpid()] == "client"
    assert labels[scheduler] == "scheduler"
    assert {labels[pid] for pid in pids.values()} == {"worker-0", "worker-1"}
    assert set(processes.host[processes.worker.eq("worker-0")].tolist()) == {"127.0.0.1"}
    resources = recording.resources
    lasted = np.diff(resources.time, prepend=processes.time.min())
    of_all = sum(cpu_seconds(processes, pid) for pid in labels)
    assert float((resources.cpu / 100 * lasted).sum()) == pytest.approx(of_all, abs=0.1)
    others = sum(processes.memory[processes.pid == pid][-1] for pid in (scheduler, *pids.values()))
    # This process may have children of its own, as other tests leave a server that forks.
    is_own = (processes.is_child > 0) & processes.worker.eq("")
    at_last = is_own & (processes.time == processes.time[is_own].max(initial=0))
    own = processes.memory[at_last].sum()
    assert resources.memory_children[-1] == pytest.approx(others + own, rel=0.2)
    (usage,) = task_memory(_together(prof, rprof)).to_dicts()
    assert usage["sampled"] == 1
    assert usage["max_memory"] < 1.05 * processes.memory[processes.pid == pids[addresses[0]]].max()


def _together(*profilers):
    from dask_diag import combine

    return combine([profiler.recording for profiler in profilers])


def test_workers_of_one_process_count_once():
    with cluster() as client:
        before = time.process_time()
        with ResourceProfiler(dt=0.1) as rprof:
            client.gather(client.map(spin, [0.2, 0.2], pure=False))
        used = time.process_time() - before
    processes = rprof.recording.processes
    own = processes.filter(processes.pid == os.getpid())
    assert set(own.worker.tolist()) == {"client, scheduler, 2 workers"}
    assert len(np.unique(own.time)) == len(own)
    assert cpu_seconds(processes, os.getpid()) == pytest.approx(used, abs=0.1)


def test_limits_are_those_of_each_worker():
    # Far above what this process takes: near its limit a worker is paused.
    with cluster(memory_limit=4_000_000_000) as client, ResourceProfiler() as rprof:
        client.submit(spin, 0.01).result()
    workers = rprof.recording.workers
    assert workers.cpus.tolist() == [processors()] * 2
    assert workers.memory_limit.tolist() == [4_000_000_000.0] * 2


@pytest.mark.leaves_files
def test_record_streams_the_samples_of_processes():
    with cluster_of_others(1) as client:
        (pid,) = client.run(os.getpid).values()
        import_package(client)
        (before,) = client.run(time.process_time).values()
        with record("run.diag", resource_interval=0.1) as run:
            client.submit(spin, 0.4).result()
            time.sleep(1.5)
        (after,) = client.run(time.process_time).values()
    in_memory, on_disk = run.recording, load("run.diag")
    assert cpu_seconds(on_disk.processes, pid) == pytest.approx(after - before, abs=0.1)
    assert sorted(on_disk.processes.time) == sorted(in_memory.processes.time)
    assert on_disk.resources.time.tolist() == in_memory.resources.time.tolist()
    np.testing.assert_allclose(on_disk.resources.cpu, in_memory.resources.cpu, atol=1e-6)


def test_cpu_and_memory_of_other_hosts_are_added_to_those_of_this_tree():
    """A process that uses one core from 1 to 3, sampled at times of its own."""
    remote = filled_table(
        "processes",
        {
            "time": [0.5, 1.0, 2.5, 3.0, 3.6],
            "pid": [7] * 5,
            "memory": [1e6, 1e6, 5e6, 5e6, 5e6],
            "cpu": [np.nan, 0.0, 100.0, 100.0, 0.0],
            "host": ["there"] * 5,
        },
    )
    resources = filled_table(
        "resources",
        {
            "time": [1.0, 2.0, 3.0, 4.0, 9.0],
            "cpu": [1.0] * 5,
            "memory": [1.0] * 5,
            "memory_children": [0.0] * 5,
        },
    )
    added = with_remote_processes(resources, remote, 0.0)
    assert added["cpu"].tolist() == pytest.approx([1.0, 101.0, 101.0, 1.0, 1.0])
    assert added["memory_children"].tolist() == [1e6, 1e6, 5e6, 5e6, 0.0]
