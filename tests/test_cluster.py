"""Profiler on a client of distributed: what is recorded of tasks whose answer is known."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import dask
import pytest

pytest.importorskip("distributed")

from distributed import (
    Client,
    LocalCluster,
    Reschedule,
    fire_and_forget,
    get_client,
    secede,
    wait,
    worker_client,
)
from distributed import span as distributed_span
from distributed.metrics import context_meter as meter_of_distributed

import dask_diag
from dask_diag import (
    CacheProfiler,
    Profiler,
    combine,
    context_meter,
    load,
    performance_report,
    record,
    save,
    what_if,
)
from dask_diag.analysis.activities import activities, seconds_by_activity
from dask_diag.views.what_if import what_if_summary

from .clusters import GO_ON, STARTED, assert_adds_up, cluster, rows, spin, spin_in_steps, waits
from .clusters import events as events


def test_cpu_of_spins_sleeps_and_metered_tasks():
    def sleeps_then_spins():
        with context_meter.meter("read"):
            time.sleep(0.2)
        spin(0.2)

    with cluster() as client, Profiler() as prof:
        client.submit(spin, 0.2).result()
        client.submit(time.sleep, 0.2).result()
        client.submit(sleeps_then_spins).result()
    recording = prof.recording
    (spun,), (slept,) = rows(recording, "spin"), rows(recording, "sleep")
    (metered,) = rows(recording, "sleeps_then_spins")
    assert spun["thread_cpu"] == pytest.approx(0.2, abs=0.02)
    assert slept["thread_cpu"] < 0.02 <= 0.2 <= slept["thread_noncpu"]
    assert metered["thread_cpu"] == pytest.approx(0.2, abs=0.02)
    assert prof.metrics["execute", "sleeps_then_spins", "read", "seconds"] > 0.19
    assert prof.metrics["execute", "sleeps_then_spins", "thread-cpu", "seconds"] > 0.19
    assert_adds_up(recording)


def test_what_tasks_give_to_distributeds_meter_is_recorded():
    def metered():
        meter_of_distributed.digest_metric("events", 7, "events")

    with cluster() as client, Profiler() as prof:
        client.submit(metered).result()
    assert prof.metrics["execute", "metered", "events", "events"] == 7


def test_what_tasks_meter_has_its_unit_and_the_name_of_its_span():
    def metered(n):
        context_meter.digest_metric("events", n, "events")
        context_meter.digest_metric("read", 10 * n, "bytes")
        with context_meter.meter("wait"):
            time.sleep(0.05)

    with cluster() as client, Profiler() as prof:
        with distributed_span("outer"), distributed_span("inner"):
            futures = client.map(metered, [1, 2])
        client.gather(futures)
    recording = prof.recording
    amounts = {(row["activity"], row["unit"]): 0.0 for row in recording.metrics.to_dicts()}
    for row in recording.metrics.to_dicts():
        amounts[row["activity"], row["unit"]] += row["value"]
    assert amounts["events", "events"] == 3
    assert amounts["read", "bytes"] == 30
    assert amounts["wait", "seconds"] >= 0.1
    assert set(recording.tasks.span.tolist()) == {"outer/inner"}


def test_coroutines_that_take_turns_have_their_own_cpu():
    with cluster(workers=1, threads=2) as client, Profiler() as prof:
        client.gather([client.submit(spin_in_steps, 0.1), client.submit(spin_in_steps, 0.2)])
    cpu = sorted(row["thread_cpu"] for row in rows(prof.recording, "spin_in_steps"))
    assert cpu == pytest.approx([0.1, 0.2], abs=0.03)


def test_seconds_after_seceding_are_not_the_workers():
    def secedes():
        spin(0.1)
        secede()
        spin(0.2)

    with cluster(workers=1) as client, Profiler() as prof:
        client.submit(secedes).result()
    (row,) = rows(prof.recording, "secedes")
    assert row["thread_cpu"] == pytest.approx(0.3, abs=0.03)
    assert row["seceded_cpu"] == pytest.approx(0.2, abs=0.05)
    assert row["start"] + 0.1 <= row["seceded"] < row["stop"]
    assert_adds_up(prof.recording)
    assert seconds_by_activity(prof.recording)["thread-cpu"] == pytest.approx(0.1, abs=0.05)


@pytest.mark.parametrize("submits", ["worker_client", "get_client"])
def test_tasks_of_tasks_have_rows(submits):
    def inner(x):
        return x + 1

    def outer():
        if submits == "worker_client":
            with worker_client() as client:
                return client.submit(inner, 1).result()
        client = get_client()
        future = client.submit(inner, 2)
        secede()
        return future.result()

    with cluster(workers=1) as client, Profiler() as prof:
        client.submit(outer).result()
    (one,), (other,) = rows(prof.recording, "inner"), rows(prof.recording, "outer")
    assert one["computation"] == other["computation"]
    assert len(prof.recording.computations) == 1
    assert_adds_up(prof.recording)


def test_each_attempt_is_a_row():
    attempts = []

    def fails_twice():
        attempts.append(1)
        if len(attempts) < 3:
            raise ZeroDivisionError

    with cluster() as client, Profiler() as prof:
        client.submit(fails_twice, retries=2).result()
    runs = rows(prof.recording, "fails_twice")
    assert [row["attempt"] for row in runs] == [1, 2, 3]
    assert [row["outcome"] for row in runs] == ["failed", "failed", "ok"]
    assert [row["error"] for row in runs] == ["ZeroDivisionError", "ZeroDivisionError", ""]
    assert len(prof.recording.computations) == 1
    assert_adds_up(prof.recording)


def test_a_task_that_fails_for_good_has_one_row():
    def fails():
        raise KeyError("x")

    with cluster() as client, Profiler() as prof:
        with pytest.raises(KeyError):
            client.submit(fails).result()
    (row,) = rows(prof.recording, "fails")
    assert (row["outcome"], row["error"], row["attempt"]) == ("failed", "KeyError", 1)


def test_a_task_cancelled_while_it_runs():
    with cluster(workers=1) as client, Profiler() as prof:
        future = client.submit(waits, 0)
        STARTED.wait(5)
        future.cancel()
        while client.cluster.workers[0].state.tasks[future.key].state != "cancelled":
            time.sleep(0.01)
        GO_ON.set()
        client.submit(spin, 0.0).result()
    (row,) = rows(prof.recording, "waits")
    assert row["outcome"] == "cancelled"
    assert row["stop"] >= row["start"]
    assert_adds_up(prof.recording)


def test_a_task_cancelled_before_it_runs():
    with cluster(workers=1) as client, Profiler() as prof:
        first = client.submit(waits, 0)
        STARTED.wait(5)
        second = client.submit(waits, 1)
        while second.key not in client.cluster.workers[0].state.tasks:
            time.sleep(0.01)
        second.cancel()
        while second.key in client.cluster.scheduler.tasks:
            time.sleep(0.01)
        GO_ON.set()
        first.result()
    outcomes = [row["outcome"] for row in rows(prof.recording, "waits")]
    assert sorted(outcomes) == ["cancelled", "ok"]
    assert_adds_up(prof.recording)


class Later(Reschedule):
    """As distributed has it, a subclass asks for the same."""


@pytest.mark.parametrize("kind", [Reschedule, Later])
def test_a_task_that_asks_to_be_rescheduled(kind):
    attempts = []

    def asks_once():
        attempts.append(1)
        if len(attempts) < 2:
            raise kind

    with cluster() as client, Profiler() as prof:
        client.submit(asks_once).result()
    runs = rows(prof.recording, "asks_once")
    assert [(row["outcome"], row["attempt"]) for row in runs] == [("rescheduled", 1), ("ok", 2)]


def test_a_task_whose_key_has_no_name_has_the_name_of_its_function():
    """As on a local scheduler."""

    def score(x):
        if x < 0:
            raise ValueError(x)
        return x

    with cluster() as client, Profiler() as prof, CacheProfiler() as cprof:
        futures = [client.submit(score, n, key=f"file{n}") for n in range(3)]
        futures += [client.submit(score, 9, key=7), client.submit(score, 10, key=("a", 1))]
        futures.append(client.submit(partial(score), x=11, key="partial"))
        client.gather(futures)
        wait(client.submit(score, -1, key="fails"))
        del futures
    functions = {row["key"]: row["function"] for row in prof.recording.tasks.to_dicts()}
    expected = dict.fromkeys(["file0", "file1", "file2", "7", "partial", "fails"], "score")
    assert functions == {**expected, "('a', 1)": "a"}
    cached = {row["key"]: row["function"] for row in cprof.recording.cached_results.to_dicts()}
    assert cached == {key: name for key, name in functions.items() if key != "fails"}
    with Profiler() as local:
        dask.get({"file0": (score, 1), 7: (score, 2)}, ["file0", 7])
    assert local.recording.tasks.function.tolist() == ["score", "score"]


def test_what_is_asked_for_twice_runs_once():
    with cluster() as client, Profiler() as prof:
        futures = [client.submit(spin, 0.01), client.submit(spin, 0.01)]
        client.gather(futures)
    assert len(rows(prof.recording, "spin")) == 1


def test_a_key_that_is_computed_again_has_another_row():
    with cluster() as client, Profiler() as prof:
        for _ in range(2):
            future = client.submit(spin, 0.01)
            future.result()
            key = future.key
            del future
            while key in client.cluster.scheduler.tasks:
                time.sleep(0.01)
    assert [row["attempt"] for row in rows(prof.recording, "spin")] == [1, 1]
    assert len(prof.recording.computations) == 2


def test_dependencies_are_those_of_the_graph():
    def add(x, y):
        return x + y

    with cluster() as client, Profiler() as prof:
        one, two = client.submit(spin, 0.0), client.submit(abs, 2)
        client.submit(add, one, two).result()
    recording = prof.recording
    functions = recording.tasks.function.tolist()
    edges = {
        (functions[row["task"]], functions[row["depends_on"]])
        for row in recording.dependencies.to_dicts()
    }
    assert edges == {("add", "spin"), ("add", "abs")}


def test_a_burst_of_submits_is_one_computation():
    with cluster() as client, Profiler() as prof:
        client.gather(client.map(time.sleep, [0.01 + n / 1e6 for n in range(20)]))
        client.gather([client.submit(time.sleep, 0.05 + n / 1e6) for n in range(20)])
    assert len(prof.recording.computations) == 2
    assert len(prof.recording.tasks) == 40
    assert_adds_up(prof.recording)


def test_queued_seconds_are_those_of_tasks_that_were_not_sent():
    # 4 threads hold 5 tasks: one waits on the worker for a thread, as distributed has it.
    with cluster(workers=1, threads=4) as client, Profiler() as prof:
        client.gather(client.map(time.sleep, [0.1 + n / 1e6 for n in range(24)]))
    (start,) = prof.recording.computations.start
    sleeps = rows(prof.recording, "sleep")
    queued = sorted(row["queued"] for row in sleeps)
    assert queued[:5] == [0.0] * 5
    # Thereafter each is sent when another is done: four in each round.
    assert all(queued[5 + n] >= 0.1 * (1 + n // 4) for n in range(19))
    assert all(row["queued"] <= row["submitted"] - start for row in sleeps)
    assert all(row["start"] >= row["submitted"] for row in sleeps)
    assert_adds_up(prof.recording)


def test_results_needed_elsewhere_are_one_transfer_each():
    with cluster() as client, Profiler() as prof:
        first, second = (worker.address for worker in client.cluster.workers.values())
        ten = client.submit(bytes, 10_000_000, workers=[first])
        five = client.submit(bytes, 5_000_000, workers=[first])
        client.submit(lambda *parts: 0, ten, five, workers=[second]).result()
    recording = prof.recording
    transfers = recording.transfers.to_dicts()
    assert sorted(round(row["bytes"] / 1e6) for row in transfers) == [5, 10]
    addresses = dict(
        zip(*(recording.workers[n].tolist() for n in ("worker", "address")), strict=True)
    )
    assert {(addresses[row["source"]], addresses[row["destination"]]) for row in transfers} == {
        (first, second)
    }
    assert all(row["stop"] > row["start"] for row in transfers)
    assert {recording.tasks.function[row["task"]] for row in transfers} == {"bytes"}
    assert_adds_up(recording)


def test_results_that_are_released_as_soon_as_they_were_used_are_transfers_too():
    with cluster() as client, Profiler() as prof:
        first, second = (worker.address for worker in client.cluster.workers.values())
        for _ in range(6):
            result = client.submit(bytes, 1_000_000, workers=[first], pure=False)
            client.submit(len, result, workers=[second], pure=False).result()
            del result
    assert len(prof.recording.transfers) == 6
    assert prof.recording.notices == ()


@pytest.mark.leaves_files
def test_transfers_of_data_that_no_recorded_task_made_are_where_it_is_needed(tmp_path):
    with cluster() as client, Client(client.cluster, set_as_default=False):
        first, second = (worker.address for worker in client.cluster.workers.values())
        made_before = client.submit(bytes, 10_000_000, workers=[first])
        made_before.result()
        with Profiler() as prof:
            (scattered,) = client.scatter([b"x" * 5_000_000], workers=[first])
            for data in (made_before, scattered):
                client.submit(len, data, workers=[second]).result()
    transfers = prof.recording.transfers
    assert transfers.task.tolist() == [-1, -1]
    assert transfers.bytes == pytest.approx([10_000_000, 5_000_000], rel=0.01)
    assert transfers.source.tolist() == ["worker-0"] * 2
    assert transfers.destination.tolist() == ["worker-1"] * 2
    assert (transfers.start < transfers.stop).all()
    assert prof.recording.notices == ()
    assert_adds_up(prof.recording)
    assert seconds_by_activity(prof.recording)["transfer"] > 0
    # Of the other client's block none was needed.
    of_clients = [any(b.transfers for b in log.batches) for log in prof.clusters.logs]
    assert sorted(of_clients) == [False, True]
    assert len(prof.recording.transfers) == 2
    together = combine([prof.recording, prof.recording])
    assert len(together.transfers) == 2
    path = tmp_path / "run.diag"
    save(prof.recording, path)
    assert load(path).transfers.task.tolist() == [-1, -1]
    for text in (prof.summary(), what_if_summary(what_if(prof.recording), prof.recording)):
        assert text
    assert activities(prof.recording, by="function", unit="bytes").to_dicts() == []


def test_stolen_tasks_are_those_that_ran_elsewhere():
    with cluster() as client, Profiler() as prof:
        first, _ = (worker.address for worker in client.cluster.workers.values())
        stealing = client.cluster.scheduler.extensions["stealing"]
        for start in range(0, 200, 20):
            futures = client.map(
                time.sleep,
                [0.1 + n / 1e6 for n in range(start, start + 20)],
                workers=[first],
                allow_other_workers=True,
            )
            client.gather(futures)
            if stealing.count:
                break
    recording = prof.recording
    addresses = dict(
        zip(*(recording.workers[n].tolist() for n in ("worker", "address")), strict=True)
    )
    sleeps = rows(recording, "sleep")
    assert {row["outcome"] for row in sleeps} == {"ok"}
    assert any(row["stolen"] for row in sleeps)
    for row in sleeps:
        elsewhere = addresses[row["worker"].rpartition("/")[0]] != first
        assert row["stolen"] == elsewhere


def test_workers_that_come_and_go_count_while_they_are_there():
    with cluster(workers=1) as client, Profiler() as prof:
        futures = client.map(time.sleep, [0.05 + n / 1e6 for n in range(30)])
        client.cluster.scale(3)
        client.wait_for_workers(3)
        client.gather(futures)
        names = list(client.nthreads())
        client.retire_workers(names[:1])
        client.gather(client.map(time.sleep, [0.05 + n / 1e6 for n in range(100, 110)]))
    workers = prof.recording.workers.to_dicts()
    assert len(workers) == 3
    assert [row["reason"] for row in workers if row["left"] == row["left"]] == ["retire-workers"]
    assert_adds_up(prof.recording)


def test_workers_that_were_there_before_the_block_joined_before_it():
    before = time.perf_counter()
    with cluster(workers=2) as client:
        started = time.perf_counter()
        time.sleep(0.05)
        with Profiler() as prof:
            client.submit(spin, 0.0).result()
    for worker in prof.recording.workers.to_dicts():
        assert before < worker["joined"] < started < prof.recording.start


def test_a_client_that_is_made_and_closed_in_the_block():
    with Profiler() as prof:
        with cluster() as client:
            client.gather(client.map(spin, [n / 1e6 for n in range(10)]))
        dask.delayed(spin)(0.001).compute(scheduler="threads")
    assert len(rows(prof.recording, "spin")) == 11
    assert sorted(prof.recording.computations.scheduler.tolist()) == ["distributed", "threads"]
    assert len(prof.results) == 11
    assert prof.recording.notices == ()


def test_what_still_runs_at_the_end_is_said():
    with cluster() as client:
        with Profiler() as prof:
            future = client.submit(waits, 0)
            client.submit(spin, 0.0).result()
        GO_ON.set()
        future.result()
    (row,) = rows(prof.recording, "waits")
    assert row["outcome"] == "unfinished"
    assert row["submitted"] <= row["start"] < prof.recording.stop
    assert any("1 task still running" in notice for notice in prof.recording.notices)
    assert_adds_up(prof.recording)


def test_tasks_that_ran_before_the_block_are_adopted():
    def after(n):
        return n

    with cluster(workers=1) as client:
        future = client.submit(after, client.submit(waits, 1))
        while not client.cluster.workers[0].state.executing_count:
            time.sleep(0.01)
        with Profiler() as prof:
            GO_ON.set()
            future.result()
    assert len(rows(prof.recording, "after")) == 1
    assert len(prof.recording.computations) == 1


def test_results_of_two_clients_are_listed_once_each():
    with cluster() as one, Client(one.cluster, set_as_default=False) as two, Profiler() as prof:
        for client, key in ((one, "one-1"), (two, "two-1")):
            client.submit(abs, -1, key=key).result()
        assert sorted(task.key for task in prof.results) == ["one-1", "two-1"]
        for client, key in ((one, "one-2"), (two, "two-2")):
            client.submit(abs, -2, key=key).result()
        assert sorted(task.key for task in prof.results[2:]) == ["one-2", "two-2"]
    assert sorted(task.key for task in prof.results) == ["one-1", "one-2", "two-1", "two-2"]


def test_two_clients_have_their_own_tasks():
    with (
        cluster() as one,
        Client(one.cluster, set_as_default=False) as two,
        Profiler() as prof,
    ):
        one.submit(spin, 0.01).result()
        two.submit(time.sleep, 0.01).result()
    (spun,), (slept,) = rows(prof.recording, "spin"), rows(prof.recording, "sleep")
    assert (spun["client"], slept["client"]) == (one.id, two.id)
    assert spun["computation"] != slept["computation"]
    assert len(prof.recording.workers) == 2


def test_time_of_other_clients_is_other():
    """A client that is not recorded, as one of another process, takes one of two threads."""
    with cluster(workers=1, threads=2) as one, Profiler() as prof:
        with Client(one.cluster, set_as_default=False) as two:
            (session,) = [
                one_session for one_session in prof.clusters.sessions if one_session.client is two
            ]
            two.sync(session.finish)
            key = "secret-key"
            slept = two.submit(time.sleep, 0.5, key=key)
            one.gather(one.map(time.sleep, [0.05 + n / 1e6 for n in range(10)]))
            slept.result()
    recording = prof.recording
    assert key not in recording.tasks.key.tolist()
    (other,) = recording.other_tasks.to_dicts()
    assert other["stop"] - other["start"] >= 0.5
    (computation,) = recording.computations.to_dicts()
    shared = min(other["stop"], computation["stop"]) - max(other["start"], computation["start"])
    assert seconds_by_activity(recording)["other"] == pytest.approx(shared, rel=0.05)
    assert_adds_up(recording)


def test_time_of_another_recorded_client_is_other():
    with (
        cluster(workers=1, threads=2) as one,
        Client(one.cluster, set_as_default=False) as two,
        Profiler() as prof,
    ):
        waiting = two.submit(waits, 1)
        assert STARTED.wait(10)
        one.submit(time.sleep, 0.2).result()
        GO_ON.set()
        waiting.result()
    recording = prof.recording
    # In the time in which both ran, each has one thread and sees the other on the other one.
    assert seconds_by_activity(recording)["other"] > 2 * 0.19
    assert_adds_up(recording)


def test_two_profilers_record_the_same_once():
    with cluster() as client, Profiler() as one, Profiler() as two:
        client.submit(spin, 0.01).result()
    combined = dask_diag.combine([one.recording, two.recording])
    assert len(one.recording.tasks) == len(two.recording.tasks) == len(combined.tasks) == 1
    assert len(combined.workers) == 2


@pytest.mark.leaves_files
def test_record_streams_what_it_pulls():
    with cluster() as client, record("run.diag") as run:
        futures = client.map(spin, [n / 1e6 for n in range(50)])
        total = client.submit(sum, futures)
        total.result()
        deadline = time.monotonic() + 10
        while len(load("run.diag").tasks) < 51 and time.monotonic() < deadline:
            time.sleep(0.1)
        streamed = load("run.diag")
        client.submit(spin, 0.01).result()
    assert len(streamed.tasks) == 51
    written = load("run.diag")
    assert len(written.tasks) == 52
    assert len(written.dependencies) == 50
    functions = written.tasks.function.tolist()
    assert {functions[row] for row in written.dependencies.depends_on.tolist()} == {"spin"}
    assert len(written.workers) == 2
    assert len(run.recording.tasks) == 52
    assert_adds_up(written)


@pytest.mark.parametrize("scheduler", ["cluster", "threads"])
def test_spans_are_those_of_the_program(scheduler):
    with cluster() as client, Profiler() as prof:
        get = client.get if scheduler == "cluster" else "threads"
        with dask_diag.span("load"), dask_diag.span("parse"):
            dask.delayed(spin)(0.001).compute(scheduler=get)
        with distributed_span("fit"):
            dask.delayed(abs)(1).compute(scheduler=get)
        dask.delayed(max)(1, 2).compute(scheduler=get)
    recording = prof.recording
    names = dict(zip(recording.tasks.function.tolist(), recording.tasks.span.tolist(), strict=True))
    default = "default" if scheduler == "cluster" else ""
    assert (names["spin"], names["abs"]) == ("load/parse", "fit")
    assert names["max"] in ("", default)


def test_spans_of_one_burst_are_those_of_their_tasks():
    with cluster() as client, Profiler() as prof:
        with dask_diag.span("one"):
            first = client.submit(time.sleep, 0.05)
        with dask_diag.span("two"):
            second = client.submit(spin, 0.01)
        third = client.submit(abs, 1)
        client.gather([first, second, third])
    recording = prof.recording
    names = dict(zip(recording.tasks.function.tolist(), recording.tasks.span.tolist(), strict=True))
    assert names == {"sleep": "one", "spin": "two", "abs": ""}
    assert len(recording.computations) == 1


def test_spans_of_one_function_are_those_in_which_it_was_submitted():
    """The scheduler itself has the first one for all tasks of a function, as long as one is there."""
    with cluster() as client, Profiler() as prof:
        with dask_diag.span("one"):
            first = client.map(time.sleep, [0.01, 0.0101])
        with distributed_span("two"), dask_diag.span("inner"):
            second = client.submit(time.sleep, 0.02)
            third = client.submit(time.sleep, 0.021)
        fourth = client.submit(time.sleep, 0.03)
        client.gather([*first, second, third, fourth])
    recording = prof.recording
    names = dict(zip(recording.tasks.key.tolist(), recording.tasks.span.tolist(), strict=True))
    assert [names[future.key] for future in first] == ["one", "one"]
    assert [names[future.key] for future in (second, third)] == ["two/inner"] * 2
    assert names[fourth.key] == ""


def test_spans_after_the_same_function_ran_in_none():
    with cluster() as client, Profiler() as prof:
        before = client.submit(time.sleep, 0.01)
        with dask_diag.span("one"):
            after = client.submit(time.sleep, 0.02)
        client.gather([before, after])
    recording = prof.recording
    names = dict(zip(recording.tasks.key.tolist(), recording.tasks.span.tolist(), strict=True))
    assert (names[before.key], names[after.key]) == ("", "one")


def test_views_show_what_ran():
    with cluster() as client, Profiler() as prof:
        client.gather(client.map(spin, [0.001 + n / 1e6 for n in range(10)]))
    assert "spin" in str(prof.summary())
    assert prof.visualize(show=False, save=False) is not None
    assert "worker-0" in " ".join(activities(prof.recording, by="worker")["worker"].tolist())


@asynccontextmanager
async def asynchronous_client():
    async with (
        LocalCluster(
            n_workers=1, processes=False, dashboard_address=None, asynchronous=True
        ) as local,
        Client(local, asynchronous=True) as client,
    ):
        yield client


@pytest.mark.leaves_files
def test_asynchronous_clients():
    async def main():
        async with asynchronous_client() as client:
            async with Profiler() as prof:
                await client.submit(spin, 0.01)
            async with record("run.diag") as recorded:
                await client.submit(spin, 0.02)
            async with performance_report("page.html") as page:
                await client.submit(spin, 0.03)
            assert "dask_diag" not in client.cluster.scheduler.plugins
        return prof, recorded, page

    for block in asyncio.run(main()):
        assert len(rows(block.recording, "spin")) == 1
        assert not block.recording.notices
    assert len(rows(load("run.diag"), "spin")) == 1
    assert "spin" in Path("page.html").read_text()


@pytest.mark.leaves_files
def test_a_block_that_does_not_wait_for_an_asynchronous_client_says_so():
    async def main():
        async with asynchronous_client() as client:
            with record("run.diag") as recorded:
                await client.submit(spin, 0.01)
            await ended(recorded.tasks)
            with Profiler() as prof:
                await client.submit(spin, 0.02)
            early = prof.recording
            await ended(prof)
        return early, prof.recording

    async def ended(profiler):
        while not profiler.clusters.logs[0].has_ended:
            await asyncio.sleep(0.01)

    early, later = asyncio.run(main())
    for recording in (load("run.diag"), early):
        (notice,) = recording.notices
        assert "the last rows of a cluster are missing" in notice
        assert "async with" in notice
    # They have come meanwhile.
    assert len(rows(later, "spin")) == 1
    assert later.notices == ()


@pytest.mark.leaves_files
def test_a_program_that_leaves_an_asynchronous_client_open_has_a_notice():
    Path("program.py").write_text(
        "import asyncio\n"
        "from distributed import Client, LocalCluster\n"
        "async def main():\n"
        "    local = await LocalCluster(\n"
        "        n_workers=1, processes=False, dashboard_address=None, asynchronous=True\n"
        "    )\n"
        "    client = await Client(local, asynchronous=True)\n"
        "    print(await client.submit(abs, -7))\n"
        "asyncio.run(main())\n"
    )
    command = [sys.executable, "-m", "dask_diag", "run", "-o", "run.diag", "program.py"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.startswith("7")
    (notice,) = [text for text in load("run.diag").notices if "cluster" in text]
    assert "the last rows of a cluster are missing" in notice


def test_the_scheduler_remembers_nothing_that_was_pulled_and_forgotten():
    with cluster() as client, Profiler() as prof:
        futures = client.map(spin, [n / 1e6 for n in range(100)])
        client.gather(futures)
        scheduler = client.cluster.scheduler
        plugin = scheduler.plugins["dask_diag"]
        assert len(plugin.runs.tasks) == 100
        del futures
        while scheduler.tasks:
            time.sleep(0.01)
        prof.clusters.pull()
        prof.clusters.pull()
        assert not plugin.runs.tasks
        assert not plugin.runs.orphans
        for session in plugin.sessions.by_name.values():
            assert sum(len(batch["rows"]["rows"]) for _, batch in session.sealed) == 0
    assert len(prof.recording.tasks) == 100


def test_tasks_that_no_one_waits_for():
    with cluster() as client, Profiler() as prof:
        fire_and_forget(client.submit(spin, 0.01))
        deadline = time.monotonic() + 10
        while not len(prof.recording.tasks) and time.monotonic() < deadline:
            time.sleep(0.01)
    assert [row["outcome"] for row in rows(prof.recording, "spin")] == ["ok"]


def test_a_shuffle_between_workers_is_as_it_was():
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    frame = pandas.DataFrame({"key": [n % 7 for n in range(1000)], "x": range(1000)})
    with cluster() as client, Profiler() as prof:
        df = dataframe.from_pandas(frame, npartitions=6)
        shuffled = df.shuffle("key", shuffle_method="p2p").compute()
        assert client.cluster.scheduler is not None
    assert sorted(shuffled.x) == list(range(1000))
    assert len(prof.recording.tasks) > 6
    assert set(prof.recording.tasks.outcome.tolist()) <= {"ok", "rescheduled"}
    assert prof.recording.notices == (
        "what workers sent each other in 1 shuffle (p2p) is not measured: its tasks are",
    )
    assert_adds_up(prof.recording)


def test_adaptive_clusters():
    with cluster(workers=1) as client, Profiler() as prof:
        client.cluster.adapt(minimum=1, maximum=3, interval="50ms", target_duration="100ms")
        client.gather(client.map(time.sleep, [0.05 + n / 1e6 for n in range(40)]))
    assert len(prof.recording.workers) > 1
    assert prof.recording.tasks.outcome.tolist().count("ok") == 40
    assert_adds_up(prof.recording)


def test_adaptive_clusters_grow_and_shrink():
    with cluster(workers=1) as client, Profiler() as prof:
        client.cluster.adapt(
            minimum=1, maximum=3, interval="20ms", target_duration="50ms", wait_count=2
        )
        client.gather(client.map(time.sleep, [0.05 + n / 1e6 for n in range(60)]))
        deadline = time.monotonic() + 20
        # One task at a time needs one worker.
        while len(client.nthreads()) > 1 and time.monotonic() < deadline:
            client.submit(time.sleep, 0.02, pure=False).result()
    workers = prof.recording.workers.to_dicts()
    present = [row for row in workers if row["left"] != row["left"]]
    assert len(workers) >= 3
    assert len(present) == 1
    # At some time there were three.
    joined = sorted(row["joined"] for row in workers)
    assert sum(row["left"] != row["left"] or row["left"] > joined[2] for row in workers[:3]) == 3
    assert_adds_up(prof.recording)


def test_seconds_are_those_that_distributed_has_of_a_span_where_it_is_right():
    """That is of tasks on threads that meter nothing and return nothing large."""
    with cluster(workers=2) as client:
        spans = client.cluster.scheduler.extensions["spans"]
        with Profiler() as prof, distributed_span("compared"):
            client.gather(client.map(spin, [0.2 + n / 1e6 for n in range(4)]))
            client.gather(client.map(time.sleep, [0.2 + n / 1e6 for n in range(4)]))
        (span_there,) = (span for span in spans.spans.values() if span.name == ("compared",))

        for worker in client.cluster.workers.values():
            client.sync(worker.heartbeat)
        of_distributed = {
            activity: sum(
                value
                for (
                    context,
                    *_,
                    label,
                    unit,
                ), value in span_there.cumulative_worker_metrics.items()
                if (context, label, unit) == ("execute", activity, "seconds")
            )
            for activity in ("thread-cpu", "thread-noncpu")
        }
    recorded = seconds_by_activity(prof.recording)
    assert recorded["thread-cpu"] == pytest.approx(of_distributed["thread-cpu"], rel=0.01)
    assert sum(recorded[name] for name in of_distributed) == pytest.approx(
        sum(of_distributed.values()), rel=0.01
    )
