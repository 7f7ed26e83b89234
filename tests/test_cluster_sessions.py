"""Blocks that begin and end while others go on, on one cluster."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import nullcontext
from io import StringIO
from threading import Event

import pytest

pytest.importorskip("distributed")

from distributed import Client

from dask_diag import Profiler, ProgressBar, ResourceProfiler

from .clusters import (
    GO_ON,
    STARTED,
    assert_adds_up,
    cluster,
    local_cluster,
    rows,
    spin,
    until,
    waits,
)
from .clusters import client as client
from .clusters import events as events
from .clusters import two_workers as two_workers


def nowhere():
    return ProgressBar(out=StringIO())


@pytest.mark.parametrize("inner", [Profiler, nowhere, ResourceProfiler])
def test_a_block_that_ends_inside_another_adds_nothing_to_it(inner, client):
    with Profiler() as outer:
        future = client.submit(waits, 1)
        assert STARTED.wait(10)
        with inner() as ended:
            time.sleep(0.05)
        GO_ON.set()
        future.result()
    (row,) = rows(outer.recording, "waits")
    assert row["outcome"] == "ok"
    assert outer.recording.notices == ()
    assert_adds_up(outer.recording)
    if inner is Profiler:
        (row,) = rows(ended.recording, "waits")
        assert row["outcome"] == "unfinished"
        assert row["start"] < ended.recording.stop


def test_a_cancelled_run_is_a_row_of_each_block_that_ends(client):
    with Profiler() as outer:
        future = client.submit(waits, 2)
        assert STARTED.wait(10)
        with Profiler() as inner:
            future.cancel()
            time.sleep(0.1)
        GO_ON.set()
        client.gather(
            [client.submit(abs, 0, workers=[each], pure=False) for each in client.nthreads()]
        )
    both = [rows(prof.recording, "waits") for prof in (inner, outer)]
    assert [[row["outcome"] for row in found] for found in both] == [["cancelled"]] * 2
    # The inner one ended before the worker said how long it took.
    assert [found[0]["thread_cpu"] >= 0 for found in both] == [False, True]


def spins():
    STARTED.set()
    spin(0.2)
    GO_ON.wait(30)
    return 1


def hears_of_a_cancellation(client):
    """Set when the scheduler's word of it has come to the client."""
    heard, handlers = Event(), client._stream_handlers
    cancel = handlers["cancelled-keys"]

    def cancel_and_say_so(*args, **kwargs):
        cancel(*args, **kwargs)
        heard.set()

    handlers["cancelled-keys"] = cancel_and_say_so
    return heard


def test_a_task_cancelled_and_asked_for_again_while_it_runs_has_the_times_of_each_run():
    """The worker goes on with the run that it has; the scheduler refuses its result."""

    with cluster(workers=1) as client, Profiler() as prof:
        future = client.submit(spins, key="again")
        assert STARTED.wait(10)
        heard = hears_of_a_cancellation(client)
        future.cancel()
        until(lambda: not client.cluster.scheduler.tasks)
        # Else the scheduler's word would cancel what is submitted next under this key.
        assert heard.wait(10)
        (state,) = client.cluster.workers[0].state.tasks.values()
        first = state.run_id
        future = client.submit(spins, key="again")
        until(lambda: state.run_id != first)
        GO_ON.set()
        assert future.result() == 1
    attempts = {row["attempt"]: row for row in prof.recording.tasks.to_dicts()}
    assert [attempts[n]["outcome"] for n in (1, 2, 3)] == ["cancelled", "cancelled", "ok"]
    assert len(prof.recording.tasks) == 3
    assert attempts[1]["thread_cpu"] == pytest.approx(0.2, abs=0.03)
    # It never ran.
    assert not attempts[2]["start"] >= 0
    assert attempts[3]["thread_cpu"] == pytest.approx(0.2, abs=0.03)
    assert attempts[1]["stop"] <= attempts[3]["start"]
    assert prof.recording.notices == ()
    assert_adds_up(prof.recording)


@pytest.mark.parametrize("ends", ["client", "cluster"])
@pytest.mark.parametrize("progress", [False, True])
def test_a_cluster_that_is_shut_down_at_once_takes_no_row_with_it(ends, progress):
    out = StringIO()
    with Profiler() as prof, ProgressBar(out=out) if progress else nullcontext():
        local = local_cluster(1, 2)
        client = Client(local)
        client.gather(client.map(abs, range(100)))
        start = time.perf_counter()
        if ends == "client":
            client.shutdown()
        else:
            local.close()
            client.close()
        took = time.perf_counter() - start
    assert len(prof.recording.tasks) == 100
    assert prof.recording.notices == ()
    assert took < 5
    assert ("100%" in out.getvalue()) is progress
    assert_adds_up(prof.recording)


def test_a_scheduler_process_that_is_shut_down_at_once_takes_no_row_with_it():
    def run(*words):
        command = [sys.executable, "-m", *words, "--no-dashboard"]
        return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

    with run("distributed.cli.dask_scheduler", "--port", "0") as scheduler:
        address = next(line.split()[-1] for line in scheduler.stderr if "Scheduler at:" in line)
        with run("distributed.cli.dask_worker", address, "--no-nanny") as worker:
            with Profiler() as prof:
                client = Client(address)
                client.wait_for_workers(1)
                client.gather(client.map(abs, range(100)))
                client.shutdown()
            for process in (scheduler, worker):
                process.stderr.read()
    assert len(prof.recording.tasks) == 100
    assert prof.recording.notices == ()


@pytest.mark.parametrize("others", [False, True])
def test_a_client_that_is_connected_again_goes_on_being_recorded(others):
    """Its connection broke: the scheduler took it for gone, and its session with it."""
    with local_cluster(1, 2, protocol="tcp") as local, Client(local) as client:
        with Profiler() as prof, nullcontext() if not others else Client(local):
            client.gather(client.map(abs, range(5)))
            prof.clusters.pull()
            first = prof.clusters.sessions[0]
            client.loop.add_callback(client.scheduler_comm.comm.abort)
            until(lambda: first.log.has_ended)
            until(lambda: any(session.client is client for session in prof.clusters.sessions))
            # What is computed while it joins is recorded, and not measured.
            client.sync(prof.clusters.joined)
            (worker,) = local.workers.values()
            until(lambda: "dask_diag" in worker.plugins)
            assert client.gather(client.map(abs, range(-10, -5))) == [10, 9, 8, 7, 6]
        assert "dask_diag" not in local.scheduler.plugins
        assert "dask_diag" not in local.scheduler.worker_plugins
    recording = prof.recording
    assert len(recording.tasks) == 10
    assert (recording.tasks.thread_cpu >= 0).all()
    (notice,) = recording.notices
    assert "the connection broke; the last rows before that are missing" in notice
    assert len(recording.workers) == 1
    assert_adds_up(recording)


def test_a_session_that_comes_while_the_last_one_goes_is_measured():
    """The workers are asked to measure no more, and then by another client to measure."""
    joined = []
    with (
        local_cluster(1, 2, protocol="tcp") as local,
        Client(local) as client,
        Client(local) as other,
    ):
        (worker,) = local.workers.values()
        remove = worker.handlers["plugin-remove"]

        async def late(**message):
            if not joined:
                session = recorder._new_session(other)
                joined.append(asyncio.ensure_future(session.attach()))
                await asyncio.sleep(0.3)
            return await remove(**message)

        prof = Profiler()
        recorder = prof.clusters
        recorder._wants = {"tasks": True}
        worker.handlers["plugin-remove"] = late
        client.sync(both_come_and_go, recorder, client, other, joined)
        assert "dask_diag" not in local.scheduler.plugins
        assert "dask_diag" not in worker.plugins
    recording = prof.recording
    assert recording.tasks.key.tolist() == ["one", "two"]
    assert (recording.tasks.thread_cpu >= 0).all()
    assert recording.notices == ()


async def both_come_and_go(recorder, client, other, joined):
    session = recorder._new_session(client)
    await session.attach()
    await client.submit(abs, -1, key="one")
    await session.finish()
    while not joined:
        await asyncio.sleep(0.01)
    await joined[0]
    await other.submit(abs, -2, key="two")
    (session,) = [one_session for one_session in recorder.sessions if one_session.client is other]
    await session.finish()


def test_a_session_that_comes_while_another_begins_is_measured():
    """The workers are asked to measure already, and do not yet."""
    with (
        local_cluster(1, 2, protocol="tcp") as local,
        Client(local) as client,
        Client(local) as other,
    ):
        (worker,) = local.workers.values()
        add = worker.handlers["plugin-add"]

        async def late(**message):
            await asyncio.sleep(0.3)
            return await add(**message)

        prof = Profiler()
        prof.clusters._wants = {"tasks": True}
        worker.handlers["plugin-add"] = late
        client.sync(both_begin, prof.clusters, client, other, local.scheduler)
        assert "dask_diag" not in worker.plugins
    recording = prof.recording
    assert recording.tasks.key.tolist() == ["two"]
    assert (recording.tasks.thread_cpu >= 0).all()
    assert recording.notices == ()


async def both_begin(recorder, client, other, scheduler):
    sessions = [recorder._new_session(one_client) for one_client in (client, other)]
    first = asyncio.ensure_future(sessions[0].attach())
    while "dask_diag" not in scheduler.worker_plugins:
        await asyncio.sleep(0.001)
    await sessions[1].attach()
    await other.submit(abs, -2, key="two")
    await first
    for session in sessions:
        await session.finish()
