"""What happens to clusters in the midst of a block, and what their users make of keys."""

from __future__ import annotations

import asyncio
import os
import signal
import struct
import time

import dask.config
import pytest

pytest.importorskip("distributed")

from distributed import Client

from dask_diag import Profiler
from dask_diag.capture.metrics import Metered, listening, sums_of
from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster import session as session_module
from dask_diag.cluster.plugin import RecordedComputation, RecordedTask
from dask_diag.cluster.wire import TRANSFER, WORKER_ROW, RunDetails

from .clusters import assert_adds_up, cluster, local_cluster, rows, until
from .test_cluster_many_tasks import NAN, Driver


def increment(x):
    return x + 1


@pytest.mark.parametrize("step", ["_attach", "_attach_workers"])
def test_a_worker_that_joins_while_a_cluster_is_joined_is_measured(step, monkeypatch):
    session = session_module.ClusterSession
    original = getattr(session, step)
    with cluster(1) as client:

        async def with_one_more(self):
            local = client.cluster
            joining = asyncio.ensure_future(local._correct_state())
            local._workers_to_add = None
            local.scale(2)
            await original(self)
            await joining

        monkeypatch.setattr(session, step, with_one_more)
        with Profiler() as prof:
            client.wait_for_workers(2)
            addresses = list(client.nthreads())
            futures = [
                client.submit(increment, n, workers=[addresses[n % 2]], pure=False)
                for n in range(8)
            ]
            assert client.gather(futures) == list(range(1, 9))
    increments = rows(prof.recording, "increment")
    assert len(increments) == 8
    assert len({row["worker"] for row in increments}) == 2
    assert all(row["thread_cpu"] >= 0 for row in increments)
    assert_adds_up(prof.recording)


async def nothing():
    """A scheduler that goes without a word."""


@pytest.mark.parametrize("is_older", [True, False])
@pytest.mark.parametrize("says_so", [True, False])
def test_a_scheduler_that_is_closed_in_the_block_is_not_waited_for(is_older, says_so, monkeypatch):
    # What would be waited for an answer that does not come.
    monkeypatch.setattr(session_module, "_SECONDS_TO_FINISH", 60.0)
    local = local_cluster(1)
    client = Client(local) if is_older else None
    start = time.perf_counter()
    with Profiler() as prof:
        client = client or Client(local)
        assert client.submit(increment, 1).result() == 2
        prof.clusters.pull()
        if not says_so:
            local.scheduler.plugins["dask_diag"].before_close = nothing
        local.close()
    client.close()
    assert time.perf_counter() - start < 30
    (row,) = rows(prof.recording, "increment")
    assert row["outcome"] == "ok"
    # If it says so, all is known.
    assert bool(prof.recording.notices) is not says_so
    assert not listening


@pytest.mark.leaves_files
def test_a_worker_that_does_not_answer_keeps_no_program_waiting():
    """One of two is stopped, as one is whose task holds the GIL, before the block and after it."""
    with cluster(processes=True) as client:
        stopped, other = client.nthreads()
        pid = client.submit(os.getpid, workers=[stopped]).result()
        os.kill(pid, signal.SIGSTOP)
        try:
            start = time.perf_counter()
            with Profiler() as prof:
                entered = time.perf_counter()
                assert client.submit(increment, 1, workers=[other]).result() == 2
                left_at = time.perf_counter()
            end = time.perf_counter()
        finally:
            os.kill(pid, signal.SIGCONT)
        assert entered - start < 3
        assert end - left_at < 5
        until(lambda: not any(client.run(has_plugin).values()))
    (row,) = rows(prof.recording, "increment")
    assert row["thread_cpu"] == row["thread_cpu"]
    assert [text for text in prof.recording.notices if "to reach the workers" in text]


def has_plugin(dask_worker):
    return "dask_diag" in dask_worker.plugins


def test_a_client_that_is_closed_twice_in_the_block_is_left_once():
    before = dask.config.get("distributed.client.preload")
    with local_cluster(1) as local:
        client = Client(local)
        preloads = client.preloads
        with Profiler():
            assert client.preloads is not preloads
        assert client.preloads is preloads
        with Profiler() as prof:
            assert client.submit(increment, 1).result() == 2
            client.close()
            client.close()
            assert "dask_diag" not in local.scheduler.plugins
        client.close()
    assert len(rows(prof.recording, "increment")) == 1
    assert prof.recording.notices == ()
    assert dask.config.get("distributed.client.preload") == before


@pytest.mark.parametrize(
    "key", ["k" * 300_000, b"k" * 300_000, ("k", "x" * 200_000, (b"y" * 100_000, 1))]
)
def test_long_keys_count_to_what_the_scheduler_holds_at_most(key, monkeypatch):
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", 1_000_000)
    session = plugin_module.RecordedSession("client", {"tasks": True})
    for number in range(10):
        session.add_run((number, key, b"", (), [0] * 11), None, "")
    assert len(session.ended) == 3
    assert session.dropped == 7
    assert session.size >= 900_000


def test_what_is_not_packed_yet_is_counted_too(monkeypatch):
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", 1_000_000)
    driver = Driver()
    (session,) = driver.plugin.sessions.by_name.values()
    driver.run(0, 10)
    assert len(session.ended) == 10
    assert session.size == 10 * plugin_module.BYTES_PER_RUN
    driver.run(10, 1_000)
    assert len(session.ended) < plugin_module.PACKED_AT_ONCE
    assert session.size == 1_010 * plugin_module.BYTES_PER_RUN
    monkeypatch.setattr(Driver, "key", lambda driver, number: f"no_op-{'x' * 300_000}-{number}")
    driver.run(2_000, 5)
    assert session.dropped == 3
    driver.pull()
    assert len(driver.recording().tasks) == 1_012
    assert not driver.plugin.sessions.faults


def test_a_run_that_cannot_be_packed_takes_no_other_with_it():
    driver = Driver()
    (session,) = driver.plugin.sessions.by_name.values()
    driver.run(0, 3)
    *others, numbers = session.ended[1]
    session.ended[1] = (*others, ("never a time", *numbers[1:]))
    with pytest.raises(struct.error):
        session.pack()
    driver.run(3, 2)
    driver.pull()
    assert driver.recording().tasks.key.tolist() == [f"no_op-{n}" for n in (0, 2, 3, 4)]


def test_a_task_that_meters_often_takes_little_memory_before_it_is_done():
    metered = Metered()
    for _ in range(100_000):
        metered.add("events", 1, "events")
    assert len(metered.metrics) <= 1_000
    assert sums_of(metered.metrics)[0][:3] == ("events", "events", 100_000)
    for number in range(10_000):
        metered.add(f"label-{number}", 2, "bytes")
    sums = {label: value for label, _, value, _ in sums_of(metered.metrics)}
    assert sums == {"events": 100_000, **{f"label-{n}": 2 for n in range(10_000)}}


def test_a_run_is_there_where_its_details_have_no_room(monkeypatch):
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", 10_000)
    driver = Driver()
    (session,) = driver.plugin.sessions.by_name.values()
    metrics = [(str(number), "events", 1.0, NAN) for number in range(200)]
    row = WORKER_ROW.pack(*[NAN] * 5, 0, 0)
    run = (1, "key", row, (), [0] * 11)
    session.add_run(run, RunDetails("ValueError", metrics, "span"), "")
    assert session.batch.details == {1: RunDetails("ValueError", (), "span")}
    assert session.dropped == 0
    driver.pull()
    assert driver.log.notices() == [
        "metrics, waits and stacks of 1 task run are missing: the scheduler's buffer overflowed "
        "before the client pulled all rows"
    ]


def test_transfers_and_pauses_have_room_as_all_else_has(monkeypatch):
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", 50_000)
    driver = Driver(2)
    plugin, (one, other) = driver.plugin, driver.addresses
    (session,) = plugin.sessions.by_name.values()
    driver.run(0, 1)
    task = plugin.runs.tasks["key"] = RecordedTask(RecordedComputation(1, "c", "client", "", {}))
    task.computation.set_sessions([session])
    task.run = 1
    transfer = ("Received", "key", one, other, 1.0, 2.0, 5)
    for _ in range(1_000):
        plugin.log_event("dask_diag", [transfer])
    held = len(session.batch.transfers) // TRANSFER.size
    assert 400 <= held <= 500
    worker = plugin.workers.present[one]
    worker.paused_at = 1.0
    for _ in range(10):
        plugin.workers.record_pause(worker)
    assert not session.batch.events
    driver.pull()
    assert driver.log.notices() == [
        f"{1_010 - held} rows of transfers, results, samples or other tasks are missing: "
        "the scheduler's buffer overflowed before the client pulled all rows"
    ]
