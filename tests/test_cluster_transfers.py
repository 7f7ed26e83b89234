"""Results that workers send each other: each is one row, as in the worker's own log of them."""

from __future__ import annotations

import asyncio
import time
from threading import Event

import pytest

pytest.importorskip("distributed")

from dask_diag import Profiler
from dask_diag.analysis.activities import seconds_by_activity

from .clusters import assert_adds_up, cluster, until, workers_of

SIZE = 1_000_000


class Answer:
    """How a worker answers one request for data: held until the test says `go`.

    Then with the data, or as one that is busy, that has it not, or that is gone.
    """

    def __init__(self, way="sends"):
        self.way = way
        self.asked, self.go = Event(), Event()
        self.answered = None

    async def give(self, get_data, comm, keys, **kwargs):
        self.asked.set()
        if self.way == "sends":
            return await get_data(_Held(comm, self), keys=keys, **kwargs)
        await self.wait()
        if self.way == "is busy":
            return {"status": "busy"}
        if self.way == "has not":
            return await get_data(comm, keys=[], **kwargs)
        comm.abort()
        raise OSError("gone")

    async def wait(self):
        while not self.go.is_set():
            await asyncio.sleep(0.001)
        self.answered = time.perf_counter()


class _Held:
    """A connection on which the answer, already made, goes when the test says so."""

    def __init__(self, comm, answer):
        self._comm, self._answer = comm, answer

    def __getattr__(self, name):
        return getattr(self._comm, name)

    async def write(self, *args, **kwargs):
        await self._answer.wait()
        return await self._comm.write(*args, **kwargs)


@pytest.fixture(autouse=True)
def all_go_on():
    """No worker is left waiting for a test that has failed."""
    yield
    while _answers:
        _answers.pop().go.set()


_answers = []


def answers(client, *ways):
    """How the next requests for data are answered, whichever worker gets them."""
    made = [Answer(way) for way in ways]
    _answers.extend(made)
    turns = iter(made)

    def replace(get_data):
        async def answer(comm, keys, **kwargs):
            turn = next(turns, None)
            if turn is None:
                return await get_data(comm, keys=keys, **kwargs)
            return await turn.give(get_data, comm, keys, **kwargs)

        return answer

    for worker in client.cluster.workers.values():
        worker.handlers["get_data"] = replace(worker.handlers["get_data"])
    return made


def state_of(worker, key):
    state = worker.state.tasks.get(key)
    return "" if state is None else state.state


def as_logged(client):
    """What came to each worker by its own log: its address, where from, and the bytes."""
    return sorted(
        (worker.address, entry["who"], size)
        for worker in workers_of(client)
        for entry in worker.transfer_incoming_log
        for size in entry["keys"].values()
    )


def moved(recording):
    names = (recording.workers[name].tolist() for name in ("worker", "address"))
    address = dict(zip(*names, strict=True))
    return sorted(
        (address[row["destination"]], address[row["source"]], int(row["bytes"]))
        for row in recording.transfers.to_dicts()
    )


def test_a_result_that_several_tasks_of_a_worker_need_is_one_transfer():
    with cluster() as client, Profiler() as prof:
        first, second = workers_of(client)
        (answer,) = answers(client, "sends")
        sizes = (10 * SIZE, 5 * SIZE)
        x, y = (client.submit(bytes, size, workers=[first.address]) for size in sizes)
        users = [client.submit(lambda *p: 0, x, y, n, workers=[second.address]) for n in range(3)]
        until(lambda: [state_of(second, user.key) for user in users] == ["waiting"] * 3)
        answer.go.set()
        client.gather(users)
        logged = as_logged(client)
    assert [size // SIZE for *_, size in logged] == [5, 10]
    assert moved(prof.recording) == logged
    assert seconds_by_activity(prof.recording)["transfer"] > 0
    assert_adds_up(prof.recording)


@pytest.mark.parametrize("way", ["is busy", "has not", "is gone"])
def test_a_result_that_is_asked_for_again_is_one_transfer_that_begins_then(way):
    with cluster(workers=3) as client, Profiler() as prof:
        *holders, last = workers_of(client)
        x = client.submit(bytes, SIZE, workers=[holders[0].address])
        client.submit(len, x, workers=[holders[1].address]).result()
        refused, answer = answers(client, way, "sends")
        users = [client.submit(lambda *p: 0, x, n, workers=[last.address]) for n in range(2)]
        until(lambda: [state_of(last, user.key) for user in users] == ["waiting"] * 2)
        refused.go.set()
        until(answer.asked.is_set)
        answer.go.set()
        client.gather(users)
        logged = as_logged(client)
    assert len(logged) == 2
    assert moved(prof.recording) == logged
    assert max(prof.recording.transfers.start) >= refused.answered


@pytest.mark.parametrize("wanted_again", [True, False])
def test_a_result_whose_only_user_was_cancelled_while_it_was_in_flight(wanted_again):
    with cluster() as client, Profiler() as prof:
        first, second = workers_of(client)
        (answer,) = answers(client, "sends")
        x = client.submit(bytes, SIZE, workers=[first.address])
        user = client.submit(len, x, workers=[second.address])
        until(answer.asked.is_set)
        client.cancel(user)
        until(lambda: state_of(second, x.key) == "cancelled")
        if wanted_again:
            user = client.submit(hash, x, workers=[second.address])
            until(lambda: state_of(second, x.key) == "flight")
        answer.go.set()
        until(lambda: state_of(second, x.key) == ("memory" if wanted_again else ""))
        # What the worker said is at the scheduler when this is.
        client.submit(int, workers=[second.address]).result()
        logged = as_logged(client)
    assert len(logged) == 1
    assert moved(prof.recording) == logged


def test_a_result_that_arrives_where_it_is_to_be_computed_now():
    with cluster() as client, Profiler() as prof:
        first, second = workers_of(client)
        (answer,) = answers(client, "sends")
        x = client.submit(bytes, SIZE, key="x", workers=[first.address])
        user = client.submit(len, x, key="user", workers=[second.address])
        until(answer.asked.is_set)
        client.cancel(x)
        until(lambda: state_of(second, "x") == "cancelled")
        until(lambda: "x" not in client.cluster.scheduler.tasks)
        del user
        x = client.submit(bytes, SIZE, key="x", workers=[second.address])
        until(lambda: state_of(second, "x") == "resumed")
        answer.go.set()
        assert len(x.result()) == SIZE
        logged = as_logged(client)
    assert len(logged) == 1
    assert moved(prof.recording) == logged
