"""One cluster, and programs that do not know of each other: each has its own tasks and no others."""

from __future__ import annotations

import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

pytest.importorskip("distributed")

from distributed import Client, Worker, worker_client

from dask_diag import Profiler
from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.cluster.log import ClusterLog

from .clusters import GO_ON, STARTED, assert_adds_up, cluster, rows, waits
from .clusters import events as events

PROGRAM = """
import sys, time
from distributed import Client, worker_client

def wait(): sys.stdin.readline()
def say(text): print(text, flush=True)

def inner(n):
    time.sleep(0.02)
    return n

def outer(seconds, name):
    time.sleep(seconds)
    with worker_client() as client:
        return [client.submit(inner, n, key=f"{name}-inner-{n}").result() for n in range(5)]

if __name__ == "__main__":
    with Client(sys.argv[1]) as client:
"""


@contextmanager
def program(address, text):
    """Another program that uses a cluster; it is not recorded, and ends when its text does."""
    code = PROGRAM + "".join(f"        {line}\n" for line in text.splitlines())
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen([sys.executable, "-c", code, address], **pipes) as process:
        assert process.stdout.readline() == "ready\n"
        yield process
    assert process.returncode == 0


def go(process):
    process.stdin.write("\n")
    process.stdin.flush()


@pytest.fixture
def replies(monkeypatch):
    """What this process is sent."""
    texts, receive = [], ClusterLog.receive

    def note(log, reply):
        texts.append(repr(reply))
        receive(log, reply)

    monkeypatch.setattr(ClusterLog, "receive", note)
    return texts


WAITING = """
add = lambda *values: sum(map(bool, values))
slept = client.map(time.sleep, [0.05 + n / 1e6 for n in range(20)], key="secret")
futures = [client.submit(bool, each, key=f"secret-{n}") for n, each in enumerate(slept)]
last = client.submit(add, *futures, key="secret-sum")
say("ready")
last.result()
"""


def test_tasks_that_wait_as_a_block_begins_are_their_own_clients(replies):
    with cluster(1, 2, protocol="tcp") as client, program(client.scheduler.address, WAITING):
        time.sleep(0.1)
        with Profiler() as prof:
            client.gather(client.map(time.sleep, [0.02 + n / 1e6 for n in range(10)], key="solo"))
            client.submit(time.sleep, 1.5, key="solo-later").result()
    recording = prof.recording
    assert sorted({key[:4] for key in recording.tasks.key.tolist()}) == ["solo"]
    assert len(recording.tasks) == 11
    assert not any("secret" in reply for reply in replies)
    assert recording.notices == ()
    assert set(recording.tasks.client.tolist()) == {client.id}
    assert seconds_by_activity(recording)["other"] > 0.3
    assert_adds_up(recording)


@contextmanager
def without(monkeypatch, client):
    """A client is not joined, as one of another program."""
    import dask_diag.cluster.recorder as recorder

    def others():
        return [open_client for open_client in open_clients() if open_client is not client]

    with monkeypatch.context() as patch:
        open_clients = recorder.open_clients
        patch.setattr(recorder, "open_clients", others)
        yield


@pytest.mark.parametrize("starts", ["before", "in"])
@pytest.mark.parametrize("ends", ["in", "after"])
def test_time_of_others_is_other_whenever_their_tasks_start_and_end(starts, ends, monkeypatch):
    """One of two threads runs a task of another program while recorded ones run on the other one."""
    with (
        cluster(workers=1, threads=2) as one,
        Client(one.cluster, set_as_default=False) as two,
        without(monkeypatch, two),
    ):
        if starts == "before":
            other = two.submit(waits, 1, key="secret")
            assert STARTED.wait(10)
            # Workers say about twice a second what they run.
            time.sleep(0.8)
        with Profiler() as prof:
            if starts == "in":
                other = two.submit(waits, 1, key="secret")
                assert STARTED.wait(10)
            one.gather(one.map(time.sleep, [0.1 + n / 1e6 for n in range(8)], key="solo"))
            if ends == "in":
                GO_ON.set()
                other.result()
        GO_ON.set()
        other.result()
    recording = prof.recording
    assert [key[:4] for key in recording.tasks.key.tolist()] == ["solo"] * 8
    (row,) = recording.other_tasks.to_dicts()
    (computation,) = recording.computations.to_dicts()
    shared = min(row["stop"], computation["stop"]) - max(row["start"], computation["start"])
    assert shared > 0.15
    # All of it, but for what the worker takes to start its task.
    assert seconds_by_activity(recording)["other"] == pytest.approx(shared, rel=0.05, abs=0.02)
    if ends == "after":
        assert row["stop"] == pytest.approx(recording.stop, abs=0.2)
    assert row["worker"] == recording.workers.worker[0]
    assert_adds_up(recording)


@pytest.mark.parametrize("ends", ["in", "after"])
def test_time_of_others_counts_once_where_a_block_has_two_clients(ends, monkeypatch):
    with (
        cluster(workers=1, threads=3) as one,
        Client(one.cluster, set_as_default=False),
        Client(one.cluster, set_as_default=False) as other,
        without(monkeypatch, other),
    ):
        with Profiler() as prof:
            future = other.submit(time.sleep, 0.5 if ends == "in" else 1.5)
            time.sleep(0.1)
            one.submit(time.sleep, 0.6).result()
        future.result()
    recording = prof.recording
    (row,) = recording.other_tasks.to_dicts()
    (computation,) = recording.computations.to_dicts()
    shared = min(row["stop"], computation["stop"]) - computation["start"]
    assert seconds_by_activity(recording)["other"] == pytest.approx(shared, rel=0.05)
    assert_adds_up(recording)


def test_a_task_that_no_worker_can_run_is_not_queued():
    with cluster(workers=1) as client, Profiler() as prof:
        future = client.submit(time.sleep, 0.1, resources={"GPU": 1})
        time.sleep(0.5)

        async def add():
            address = client.cluster.scheduler.address
            return await Worker(address, nthreads=1, resources={"GPU": 1}, name="gpu")

        worker = client.sync(add)
        future.result()
        client.sync(worker.close)
    (row,) = rows(prof.recording, "sleep")
    assert row["queued"] == 0
    seconds = seconds_by_activity(prof.recording)
    # The thread that was there could not take it. How long a busy machine takes to start a worker
    # and to send it the task is overhead.
    assert seconds["idle"] > 0.45
    assert seconds["overhead"] < seconds["idle"]
    assert_adds_up(prof.recording)


def inner(n):
    time.sleep(0.02)
    return n


def outer(seconds):
    time.sleep(seconds)
    with worker_client() as client:
        return [client.submit(inner, n).result() for n in range(5)]


ONE_TASK = """
say("ready")
wait()
client.submit(time.sleep, 2.0, key="secret").result()
"""
NESTED = """
say("ready")
wait()
future = client.submit(outer, 0.5, "secret", key="secret-outer")
while not any(client.processing().values()):
    time.sleep(0.01)
say("runs")
future.result()
say("done")
"""
ONLY_IDLE = """
say("ready")
wait()
"""


@pytest.mark.parametrize("text", [ONE_TASK, ONLY_IDLE])
def test_tasks_of_tasks_are_of_their_program_though_another_computes(text, replies):
    """Its computation starts after that of the task that submits."""
    with (
        cluster(2, 2, processes=True) as client,
        program(client.scheduler.address, text) as other,
        Profiler() as prof,
    ):
        future = client.submit(outer, 1.0, pure=False)
        time.sleep(0.2)
        go(other)
        assert future.result() == list(range(5))
    recording = prof.recording
    assert recording.tasks.function.tolist() == ["inner"] * 5 + ["outer"]
    assert recording.notices == ()
    assert not any("secret" in reply for reply in replies)
    assert_adds_up(recording)


def until_there_is(path):
    while not Path(path).exists():
        time.sleep(0.02)


def test_where_two_programs_may_have_submitted_a_task_neither_is_sent_it(replies, tmp_path_factory):
    """Both have a task at the only worker, and that of the other program submits five."""
    done = tmp_path_factory.mktemp("two") / "done"
    with (
        cluster(1, 2, processes=True) as client,
        program(client.scheduler.address, NESTED) as other,
        Profiler() as prof,
    ):
        go(other)
        assert other.stdout.readline() == "runs\n"
        future = client.submit(until_there_is, str(done), key="solo")
        assert other.stdout.readline() == "done\n"
        done.touch()
        future.result()
    recording = prof.recording
    assert recording.tasks.key.tolist() == ["solo"]
    assert not any("secret" in reply for reply in replies)
    (notice,) = recording.notices
    assert notice.startswith("5 tasks submitted by other tasks are left out")
    assert len(recording.other_tasks) == 6
    assert_adds_up(recording)
