"""Profiler on a client of distributed: what is recorded of tasks whose answer is known."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from functools import partial
from importlib import import_module
from pathlib import Path

import dask
import pytest

pytest.importorskip("distributed")

from distributed import (
    Client,
    Reschedule,
    fire_and_forget,
    get_client,
    secede,
    wait,
    worker_client,
)
from distributed import span as distributed_span
from distributed.metrics import context_meter as meter_of_distributed

from dask_diag import (
    CacheProfiler,
    Profiler,
    activities,
    combine,
    context_meter,
    load,
    performance_report,
    record,
    save,
    span,
    what_if,
)
from dask_diag.analysis.activities import seconds_by_activity

from .clusters import (
    GO_ON,
    STARTED,
    assert_adds_up,
    asynchronous_client,
    cluster,
    local_cluster,
    naps,
    rows,
    spin,
    spin_in_steps,
    until,
    waits,
    workers_of,
)
from .clusters import client as client
from .clusters import events as events
from .clusters import two_workers as two_workers


@pytest.fixture(scope="module", params=["threads", "processes"])
def two_by_two(request):
    with local_cluster(2, 2, processes=request.param == "processes") as local:
        yield local


@pytest.fixture
def four_threads(two_by_two):
    """A client of two workers of two threads each, in this process or in processes."""
    with Client(two_by_two) as made:
        # What measures takes long to import where other programs have the CPUs.
        made.run(import_module, "dask_diag.cluster.worker")
        yield made


def sleeps_then_spins():
    with context_meter.meter("read"):
        time.sleep(0.2)
    spin(0.2)


def secedes():
    spin(0.1)
    secede()
    # The worker's event loop hears of it: a thread that spins would keep the GIL from it.
    time.sleep(0.05)
    spin(0.2)


def fails_twice(path):
    with open(path, "a") as file:
        file.write("x")
        attempt = file.tell()
    if attempt < 3:
        raise ZeroDivisionError


def cpu_of(recording, function):
    return sorted(row["thread_cpu"] for row in rows(recording, function))


def test_cpu_and_attempts_of_tasks(four_threads, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("attempts") / "attempts")
    with Profiler() as prof:
        for call in [(spin, 0.2), (time.sleep, 0.2), (sleeps_then_spins,), (secedes,)]:
            four_threads.submit(*call, pure=False).result()
        first, _ = four_threads.nthreads()
        steps = [four_threads.submit(spin_in_steps, n, workers=[first]) for n in (0.1, 0.2)]
        four_threads.gather(steps)
        four_threads.submit(fails_twice, path, retries=2).result()
    recording = prof.recording
    assert cpu_of(recording, "spin") == pytest.approx([0.2], abs=0.03)
    assert cpu_of(recording, "sleep") == pytest.approx([0.0], abs=0.02)
    assert cpu_of(recording, "sleeps_then_spins") == pytest.approx([0.2], abs=0.03)
    assert cpu_of(recording, "spin_in_steps") == pytest.approx([0.1, 0.2], abs=0.03)
    assert prof.metrics["execute", "sleeps_then_spins", "read", "seconds"] > 0.19
    assert prof.metrics["execute", "sleeps_then_spins", "thread-cpu", "seconds"] > 0.19
    (seceded,) = rows(recording, "secedes")
    assert seceded["thread_cpu"] == pytest.approx(0.3, abs=0.03)
    assert seceded["seceded_cpu"] == pytest.approx(0.2, abs=0.05)
    assert seceded["start"] + 0.1 <= seceded["seceded"] < seceded["stop"]
    assert seconds_by_activity(recording)["thread-cpu"] == pytest.approx(0.8, abs=0.1)
    attempts = rows(recording, "fails_twice")
    failed = "failed", "ZeroDivisionError"
    assert [(row["attempt"], row["outcome"], row["error"]) for row in attempts] == [
        *((1, *failed), (2, *failed), (3, "ok", "")),
    ]
    assert len({row["computation"] for row in attempts}) == 1
    pids = set(recording.workers.pid.tolist())
    assert pids == {os.getpid()} or len(pids - {os.getpid()}) == 2
    assert recording.notices == ()
    assert_adds_up(recording)


def test_results_needed_elsewhere_are_one_transfer_each(four_threads):
    first, second = four_threads.nthreads()
    with Profiler() as prof:
        ten = four_threads.submit(bytes, 10_000_000, workers=[first])
        five = four_threads.submit(bytes, 5_000_000, workers=[first])
        four_threads.submit(lambda *parts: 0, ten, five, workers=[second]).result()
    recording = prof.recording
    transfers = recording.transfers.filter(recording.transfers.activity.eq("transfer")).to_dicts()
    assert sorted(round(row["bytes"] / 1e6) for row in transfers) == [5, 10]
    address = {row["worker"]: row["address"] for row in recording.workers.to_dicts()}
    ways = {(address[row["source"]], address[row["destination"]]) for row in transfers}
    assert ways == {(first, second)}
    assert all(row["stop"] > row["start"] for row in transfers)
    assert {recording.tasks.function[row["task"]] for row in transfers} == {"bytes"}
    assert_adds_up(recording)


def test_queued_seconds_are_those_of_tasks_that_were_not_sent(four_threads):
    with Profiler() as prof:
        four_threads.gather(four_threads.map(time.sleep, naps(0.1, 24)))
    (start,) = prof.recording.computations.start
    sleeps = rows(prof.recording, "sleep")
    queued = sorted(row["queued"] for row in sleeps)
    # A worker with two threads is sent three tasks at once; thereafter each when another is done.
    assert queued[:6] == [0.0] * 6
    assert all(queued[6 + n] >= 0.1 * (1 + n // 4) - 0.001 for n in range(18))
    assert all(row["queued"] <= row["submitted"] - start for row in sleeps)
    assert all(row["start"] >= row["submitted"] for row in sleeps)
    assert_adds_up(prof.recording)


def metered(n):
    meter_of_distributed.digest_metric("read of others", 7, "rows")
    context_meter.digest_metric("events", n, "events")
    with context_meter.meter("wait"):
        time.sleep(0.05)


def test_what_tasks_meter_has_its_unit_and_the_name_of_its_span(client):
    with Profiler() as prof:
        with distributed_span("outer"), distributed_span("inner"):
            futures = client.map(metered, [1, 2])
        client.gather(futures)
    amounts = {key[2:]: value for key, value in prof.metrics.items()}
    assert (amounts["events", "events"], amounts["read of others", "rows"]) == (3, 14)
    assert amounts["wait", "seconds"] >= 0.1
    assert set(prof.recording.tasks.span.tolist()) == {"outer/inner"}


@pytest.mark.parametrize("submits", ["worker_client", "get_client"])
def test_tasks_of_tasks_have_rows(submits, client):
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

    with Profiler() as prof:
        client.submit(outer).result()
    assert prof.recording.tasks.function.tolist() == ["inner", "outer"]
    assert len(prof.recording.computations) == 1
    assert_adds_up(prof.recording)


class Later(Reschedule):
    """As distributed has it, a subclass asks for the same."""


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (KeyError, [("failed", "KeyError", 1)]),
        (Reschedule, [("rescheduled", "Reschedule", 1), ("ok", "", 2)]),
        (Later, [("rescheduled", "Later", 1), ("ok", "", 2)]),
        (None, [("ok", "", 1)]),
    ],
)
def test_a_task_that_raises_has_its_outcomes(error, expected, client):
    attempts = []

    def raises_once():
        attempts.append(1)
        if error and len(attempts) < 2:
            raise error

    with Profiler() as prof:
        future = client.submit(raises_once)
        wait(future)
        del future
    outcomes = [
        (row["outcome"], row["error"], row["attempt"]) for row in prof.recording.tasks.to_dicts()
    ]
    assert outcomes == expected


def test_a_task_that_is_cancelled_while_it_runs_or_before(client):
    worker, _ = workers_of(client)
    with Profiler() as prof:
        running, next_one = (client.submit(waits, n, workers=[worker.address]) for n in (0, 1))
        assert STARTED.wait(5)
        until(lambda: next_one.key in worker.state.tasks)
        next_one.cancel()
        until(lambda: next_one.key not in client.cluster.scheduler.tasks)
        running.cancel()
        until(lambda: worker.state.tasks[running.key].state == "cancelled")
        GO_ON.set()
        client.submit(spin, 0.0, workers=[worker.address], pure=False).result()
    outcomes = rows(prof.recording, "waits")
    assert [row["outcome"] for row in outcomes] == ["cancelled"] * 2
    assert [row["stop"] >= row["start"] for row in outcomes].count(True) == 1
    assert_adds_up(prof.recording)


def test_a_task_whose_key_has_no_name_has_the_name_of_its_function(client):
    """As on a local scheduler."""

    def score(x):
        if x < 0:
            raise ValueError(x)
        return x

    with Profiler() as prof, CacheProfiler() as cprof:
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


def test_a_key_has_a_row_each_time_that_it_is_computed(client):
    with Profiler() as prof:
        for _ in range(2):
            futures = [client.submit(spin, 0.01), client.submit(spin, 0.01)]
            client.gather(futures)
            del futures
            until(lambda: not client.cluster.scheduler.tasks)
    assert [row["attempt"] for row in rows(prof.recording, "spin")] == [1, 1]
    assert len(prof.recording.computations) == 2


def test_a_burst_of_submits_is_one_computation_with_its_dependencies(client):
    with Profiler() as prof:
        client.gather(client.map(time.sleep, naps(0.01, 20)))
        client.gather([client.submit(time.sleep, seconds) for seconds in naps(0.05, 20)])
        one, two = client.submit(spin, 0.1), client.submit(abs, 2)
        client.submit(lambda x, y: 0, one, two).result()
    recording = prof.recording
    assert len(recording.computations) == 3
    assert len(recording.tasks) == 43
    names = recording.tasks.function.tolist()
    edges = {
        (names[row["task"]], names[row["depends_on"]]) for row in recording.dependencies.to_dicts()
    }
    assert edges == {("lambda", "spin"), ("lambda", "abs")}
    assert_adds_up(recording)


@pytest.mark.leaves_files
def test_transfers_of_data_that_no_recorded_task_made_are_where_it_is_needed(client, tmp_path):
    first, second = client.nthreads()
    with Client(client.cluster, set_as_default=False):
        made_before = client.submit(bytes, 10_000_000, workers=[first])
        made_before.result()
        with Profiler() as prof:
            (scattered,) = client.scatter([b"x" * 5_000_000], workers=[first])
            for data in (made_before, scattered):
                client.submit(len, data, workers=[second]).result()
    recording = prof.recording
    transfers = recording.transfers
    assert transfers.task.tolist() == [-1, -1]
    assert transfers.bytes == pytest.approx([10_000_000, 5_000_000], rel=0.01)
    assert transfers.source.tolist() == ["worker-0"] * 2
    assert transfers.destination.tolist() == ["worker-1"] * 2
    assert (transfers.start < transfers.stop).all()
    assert recording.notices == ()
    assert_adds_up(recording)
    assert seconds_by_activity(recording)["transfer"] > 0
    # Of the other client's block none was needed.
    received = [any(batch.transfers for batch in log.batches) for log in prof.clusters.logs]
    assert sorted(received) == [False, True]
    assert len(combine([recording, recording]).transfers) == 2
    save(recording, tmp_path / "run.diag")
    assert load(tmp_path / "run.diag").transfers.task.tolist() == [-1, -1]
    assert prof.summary()
    assert len(what_if(recording))
    assert activities(recording, by="function", unit="bytes").to_dicts() == []


def test_results_that_are_released_as_soon_as_they_were_used_are_transfers_too(client):
    first, second = client.nthreads()
    with Profiler() as prof:
        for _ in range(6):
            result = client.submit(bytes, 1_000_000, workers=[first], pure=False)
            client.submit(len, result, workers=[second], pure=False).result()
            del result
    assert len(prof.recording.transfers) == 6
    assert prof.recording.notices == ()


def test_stolen_tasks_are_those_that_ran_elsewhere():
    with cluster() as client, Profiler() as prof:
        first, _ = client.nthreads()
        stealing = client.cluster.scheduler.extensions["stealing"]
        seconds = naps(0.1, 200)
        for start in range(0, 200, 20):
            where = {"workers": [first], "allow_other_workers": True}
            client.gather(client.map(time.sleep, seconds[start : start + 20], **where))
            if stealing.count:
                break
    workers = prof.recording.workers.to_dicts()
    addresses = {row["worker"]: row["address"] for row in workers}
    sleeps = rows(prof.recording, "sleep")
    assert {row["outcome"] for row in sleeps} == {"ok"}
    assert any(row["stolen"] for row in sleeps)
    for row in sleeps:
        elsewhere = addresses[row["worker"].rpartition("/")[0]] != first
        assert row["stolen"] == elsewhere


def test_workers_that_come_and_go_count_while_they_are_there():
    before = time.perf_counter()
    with cluster(workers=1) as client:
        started = time.perf_counter()
        time.sleep(0.05)
        with Profiler() as prof:
            futures = client.map(time.sleep, naps(0.05, 30))
            client.cluster.scale(3)
            client.wait_for_workers(3)
            client.gather(futures)
            client.retire_workers(list(client.nthreads())[:1])
            client.gather(client.map(time.sleep, naps(0.06, 10)))
    workers = prof.recording.workers.to_dicts()
    assert len(workers) == 3
    assert before < min(row["joined"] for row in workers) < started < prof.recording.start
    assert [row["reason"] for row in workers if row["left"] == row["left"]] == ["retire-workers"]
    assert_adds_up(prof.recording)


def test_adaptive_clusters_grow_and_shrink():
    with cluster(workers=1) as client, Profiler() as prof:
        client.cluster.adapt(
            minimum=1, maximum=3, interval="20ms", target_duration="50ms", wait_count=2
        )
        client.gather(client.map(time.sleep, naps(0.05, 60)))
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


def test_a_client_that_is_made_and_closed_in_the_block():
    with Profiler() as prof:
        with cluster() as client:
            client.gather(client.map(spin, naps(0.0, 10)))
        dask.delayed(spin)(0.001).compute(scheduler="threads")
    assert len(rows(prof.recording, "spin")) == len(prof.results) == 11
    assert sorted(prof.recording.computations.scheduler.tolist()) == ["distributed", "threads"]
    assert prof.recording.notices == ()


def test_what_runs_at_the_ends_of_a_block_is_in_it(client):
    worker, _ = workers_of(client)
    with Profiler() as prof:
        future = client.submit(waits, 0, workers=[worker.address])
        assert STARTED.wait(10)
        client.submit(spin, 0.0).result()
    with Profiler() as later:
        after = client.submit(abs, future)
        GO_ON.set()
        after.result()
    (row,) = rows(prof.recording, "waits")
    assert row["outcome"] == "unfinished"
    assert row["submitted"] <= row["start"] < prof.recording.stop
    assert any("1 task was still running" in notice for notice in prof.recording.notices)
    assert_adds_up(prof.recording)
    assert "ok" in [row["outcome"] for row in rows(later.recording, "waits")]


def test_tasks_that_were_submitted_before_the_block_are_adopted(client):
    def after(n):
        return n

    future = client.submit(after, client.submit(waits, 1))
    until(lambda: any(worker.state.executing_count for worker in workers_of(client)))
    with Profiler() as prof:
        GO_ON.set()
        future.result()
    assert len(rows(prof.recording, "after")) == 1
    assert len(prof.recording.computations) == 1


def test_two_clients_have_their_own_tasks_once_in_each_profiler(client):
    with (
        Client(client.cluster, set_as_default=False) as two,
        Profiler() as prof,
        Profiler() as other,
    ):
        for one, key in ((client, "one-1"), (two, "two-1")):
            one.submit(spin, 0.01, key=key).result()
        assert sorted(task.key for task in prof.results) == ["one-1", "two-1"]
        for one, key in ((client, "one-2"), (two, "two-2")):
            one.submit(abs, -2, key=key).result()
        assert sorted(task.key for task in prof.results[2:]) == ["one-2", "two-2"]
    assert sorted(task.key for task in prof.results) == ["one-1", "one-2", "two-1", "two-2"]
    tasks = {row["key"]: row for row in prof.recording.tasks.to_dicts()}
    assert (tasks["one-1"]["client"], tasks["two-1"]["client"]) == (client.id, two.id)
    assert tasks["one-1"]["computation"] != tasks["two-1"]["computation"]
    combined = combine([prof.recording, other.recording])
    assert len(prof.recording.tasks) == len(other.recording.tasks) == len(combined.tasks) == 4
    assert len(prof.recording.workers) == len(combined.workers) == 2


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
    # In the time in which both ran, each has one thread and sees the other on the other one.
    assert seconds_by_activity(prof.recording)["other"] > 2 * 0.19
    assert_adds_up(prof.recording)


@pytest.mark.leaves_files
def test_record_streams_what_it_pulls(client):
    with record("run.diag") as run:
        total = client.submit(sum, client.map(spin, naps(0.0, 50)))
        total.result()
        until(lambda: len(load("run.diag").tasks) == 51)
        fire_and_forget(client.submit(spin, 0.01))
        until(lambda: len(load("run.diag").tasks) == 52)
    written = load("run.diag")
    assert written.tasks.outcome.tolist() == ["ok"] * 52
    assert len(written.dependencies) == 50
    functions = written.tasks.function.tolist()
    assert {functions[row] for row in written.dependencies.depends_on.tolist()} == {"spin"}
    assert len(written.workers) == 2
    assert len(run.recording.tasks) == 52
    assert len(written.worker_events) == 0
    assert_adds_up(written)


@pytest.mark.parametrize("scheduler", ["cluster", "threads"])
def test_spans_are_those_of_the_program(scheduler, client):
    get = client.get if scheduler == "cluster" else "threads"
    with Profiler() as prof:
        with span("load"), span("parse"):
            dask.delayed(spin)(0.001).compute(scheduler=get)
        with distributed_span("fit"):
            dask.delayed(abs)(1).compute(scheduler=get)
        dask.delayed(max)(1, 2).compute(scheduler=get)
    tasks = prof.recording.tasks
    names = dict(zip(tasks.function.tolist(), tasks.span.tolist(), strict=True))
    assert (names["spin"], names["abs"]) == ("load/parse", "fit")
    assert names["max"] in ("", "default" if scheduler == "cluster" else "")


def test_spans_of_a_burst_are_those_in_which_each_task_was_submitted(client):
    """The scheduler itself has the first one for all tasks of a function, as long as one is there."""
    with Profiler() as prof:
        expected = {"": [client.submit(time.sleep, 0.01)]}
        with span("one"):
            expected["one"] = client.map(time.sleep, naps(0.02, 2))
        with distributed_span("two"), span("inner"):
            expected["two/inner"] = [client.submit(time.sleep, 0.03), client.submit(spin, 0.01)]
        expected[""] += [client.submit(time.sleep, 0.04), client.submit(abs, 1)]
        client.gather(sum(expected.values(), []))
    tasks = prof.recording.tasks
    spans = dict(zip(tasks.key.tolist(), tasks.span.tolist(), strict=True))
    assert spans == {future.key: name for name, futures in expected.items() for future in futures}
    assert len(prof.recording.computations) == 1


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
    async def ended(profiler):
        while not profiler.clusters.logs[0].has_ended:
            await asyncio.sleep(0.01)

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


def test_what_a_shuffle_moves_is_said_to_be_not_measured(client):
    pandas = pytest.importorskip("pandas")
    dataframe = pytest.importorskip("dask.dataframe", exc_type=ImportError)
    frame = pandas.DataFrame({"key": [n % 7 for n in range(1000)], "x": range(1000)})
    with Profiler() as prof:
        df = dataframe.from_pandas(frame, npartitions=6)
        shuffled = df.shuffle("key", shuffle_method="p2p").compute()
    assert sorted(shuffled.x) == list(range(1000))
    assert len(prof.recording.tasks) > 6
    assert set(prof.recording.tasks.outcome.tolist()) <= {"ok", "rescheduled"}
    (notice,) = prof.recording.notices
    assert notice.startswith("transfers between workers in 1 shuffle (p2p) are not measured")
    assert_adds_up(prof.recording)


def test_seconds_are_those_that_distributed_has_of_a_span_where_it_is_right(client):
    """That is of tasks on threads that meter nothing and return nothing large."""
    with Profiler() as prof, distributed_span("compared"):
        client.gather(client.map(spin, naps(0.2, 4)))
        client.gather(client.map(time.sleep, naps(0.2, 4)))
    spans = client.cluster.scheduler.extensions["spans"].spans.values()
    (span_there,) = (span for span in spans if span.name == ("compared",))
    for worker in workers_of(client):
        client.sync(worker.heartbeat)
    of_distributed = dict.fromkeys(("thread-cpu", "thread-noncpu"), 0.0)
    for (context, *_, label, unit), value in span_there.cumulative_worker_metrics.items():
        if (context, unit) == ("execute", "seconds") and label in of_distributed:
            of_distributed[label] += value
    recorded = seconds_by_activity(prof.recording)
    assert recorded["thread-cpu"] == pytest.approx(of_distributed["thread-cpu"], rel=0.01)
    both = sum(recorded[name] for name in of_distributed)
    assert both == pytest.approx(sum(of_distributed.values()), rel=0.01)


def test_a_client_that_was_closed_before_has_computed_nothing():
    with Client(processes=False, n_workers=1, threads_per_worker=1, dashboard_address=None):
        pass
    with CacheProfiler() as profiler:
        pass
    assert not profiler.recording.notices
