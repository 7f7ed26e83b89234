"""Workers of a cluster that are short of memory: what they write to disk, and when they pause."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path
from types import SimpleNamespace

import dask
import pytest

from dask_diag import Profiler, findings

pytest.importorskip("distributed")

from distributed import Client, wait
from distributed.core import Status

from dask_diag.cluster.wire import Spilled
from dask_diag.cluster.worker import READS, WRITES, SpillCounters

from .clusters import assert_adds_up, cluster, spin

MEMORY = {
    # Of 100 MB: results of more than 20 are written to disk, whatever the process has.
    "distributed.worker.memory.target": 0.2,
    "distributed.worker.memory.spill": False,
    "distributed.worker.memory.pause": False,
    "distributed.worker.memory.terminate": False,
    "distributed.worker.memory.spill-compression": False,
}


def megabytes(n):
    """So many, which no two tasks share."""
    return os.urandom(n * 1_000_000)


def size_of_files(folder):
    return sum(path.stat().st_size for path in Path(folder).rglob("*") if path.is_file())


def disk_events(recording, event):
    table = recording.worker_events
    return table.filter(table.event.eq(event)).to_dicts()


def test_what_is_spilled_is_what_the_spill_directory_holds():
    with dask.config.set(MEMORY), cluster(workers=1, memory_limit="100MB") as client:
        with Profiler() as prof:
            futures = client.map(megabytes, [5] * 8, pure=False)
            client.gather([client.submit(len, future) for future in futures])
            directory = client.cluster.workers[0].local_directory
            written = size_of_files(Path(directory) / "storage")
            assert len(client.submit(lambda x: x[:1], futures[0]).result()) == 1
        del futures
    recording = prof.recording
    writes, reads = (disk_events(recording, event) for event in ("disk-write", "disk-read"))
    assert written > 15e6
    assert sum(row["bytes"] for row in writes) >= written
    (computation, *_) = recording.computations.to_dicts()
    assert sum(row["bytes"] for row in reads) == pytest.approx(5e6, rel=0.01)
    for row in (*writes, *reads):
        assert computation["start"] <= row["start"] <= row["stop"] <= recording.stop
        assert row["worker"] == "worker-0"
    assert_adds_up(recording)


def test_bytes_that_only_are_written_are_the_directorys():
    with dask.config.set(MEMORY), cluster(workers=1, memory_limit="100MB") as client:
        with Profiler() as prof:
            futures = client.map(megabytes, [5] * 8, pure=False)
            wait(futures)
            directory = client.cluster.workers[0].local_directory
            written = size_of_files(Path(directory) / "storage")
    assert sum(row["bytes"] for row in disk_events(prof.recording, "disk-write")) == written
    assert disk_events(prof.recording, "disk-read") == []
    assert written >= 15e6


def test_a_worker_that_pauses_is_recorded_with_its_times():
    with dask.config.set(MEMORY), cluster(workers=2) as client, Profiler() as prof:
        scheduler = client.cluster.scheduler
        first, second = client.cluster.workers.values()
        client.sync(_pause, first, scheduler, Status.paused)
        client.gather(client.map(spin, [0.02 + n / 1e6 for n in range(10)]))
        client.sync(_pause, first, scheduler, Status.running)
        client.gather(client.map(spin, [0.001 + n / 1e6 for n in range(10)]))
        client.sync(_pause, second, scheduler, Status.paused)
    pauses = prof.recording.worker_events.to_dicts()
    assert [row["worker"] for row in pauses] == ["worker-0", "worker-1"]
    assert {row["event"] for row in pauses} == {"paused"}
    ended, lasting = pauses
    assert ended["stop"] - ended["start"] > 0.2
    assert ended["stop"] < lasting["start"] < lasting["stop"] <= prof.recording.stop
    finding = {one.code: one for one in findings(prof.recording)}["memory-pressure"]
    assert finding.where.workers == ("worker-0",)


async def _pause(worker, scheduler, status):
    """Have a worker pause or go on, and wait until the scheduler has heard of it."""
    worker.status = status
    while scheduler.workers[worker.address].status != status:
        await asyncio.sleep(0.001)


def test_two_recorded_clients_have_an_event_once():
    with (
        dask.config.set(MEMORY),
        cluster(workers=1) as client,
        Client(client.cluster) as other,
        Profiler() as prof,
    ):
        other.submit(spin, 0.001).result()
        scheduler, worker = client.cluster.scheduler, client.cluster.workers[0]
        client.sync(_pause, worker, scheduler, Status.paused)
        client.sync(_pause, worker, scheduler, Status.running)
        client.submit(spin, 0.0).result()
    assert len(prof.recording.worker_events) == 1


class Buffer(dict):
    """A worker's results, of which some are on disk."""

    def __init__(self):
        super().__init__()
        self.cumulative_metrics = {}

    def moves(self, label, nbytes, seconds, **others):
        counts = {(label, "count"): 1, (label, "bytes"): nbytes, (label, "seconds"): seconds}
        counts |= {(name, "seconds"): value for name, value in others.items()}
        for key, value in counts.items():
            self.cumulative_metrics[key] = self.cumulative_metrics.get(key, 0) + value


def have_changed(counters):
    """As a worker asks at each change of a task's state."""
    now = counters.count(WRITES), counters.count(READS)
    return now != (counters.writes, counters.reads)


def test_counters_say_what_has_changed_since_the_last_time():
    now = [10.0]
    buffer = Buffer()
    buffer.moves("disk-write", 1, 1.0)
    counters = counters_of(buffer, lambda: now[0])
    assert not have_changed(counters)
    now[0] = 12.0
    buffer.moves("disk-write", 100, 0.25, serialize=0.25)
    assert have_changed(counters)
    assert counters.changes(12.0) == [Spilled("w", "disk-write", 11.5, 12.0, 100)]
    assert not have_changed(counters)
    assert counters.changes(12.0) == []


def counters_of(buffer, clock):
    return SpillCounters(SimpleNamespace(data=buffer, address="w"), clock)


@pytest.mark.parametrize(("task_started", "stop"), [(14.0, 14.0), (12.1, 15.0), (16.0, 15.0)])
def test_inputs_were_read_before_their_task_started(task_started, stop):
    now = [12.0]
    buffer = Buffer()
    counters = counters_of(buffer, lambda: now[0])
    now[0] = 15.0
    buffer.moves("disk-read", 100, 0.5)
    assert counters.changes(task_started) == [Spilled("w", "disk-read", stop - 0.5, stop, 100)]


def test_a_buffer_that_does_not_count_says_nothing():
    counters = counters_of({}, lambda: 0.0)
    assert not have_changed(counters)
    assert counters.changes(0.0) == []
