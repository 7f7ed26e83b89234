"""SamplingProfiler and waits on a client of distributed: lines whose seconds are known."""

from __future__ import annotations

import asyncio
import time

import dask
import pytest

pytest.importorskip("distributed")

from distributed import secede, wait

from dask_diag import Profiler, SamplingProfiler, activities, context_meter, load, record
from dask_diag.analysis.functions import by_function
from dask_diag.model.codes import Root
from dask_diag.sampling.sampler import running_tasks

from .clusters import GO_ON, cluster, spin, waits
from .clusters import client as client
from .clusters import events as events
from .clusters import two_workers as two_workers


def spin_until(stop):
    while time.perf_counter() < stop:
        pass


def two_lines(seconds):
    spin_until(time.perf_counter() + seconds)
    time.sleep(seconds)
    return seconds


async def in_steps(seconds):
    await asyncio.sleep(seconds)
    return seconds


FIRST = two_lines.__code__.co_firstlineno


def seconds_of(recording, samples, what):
    """Seconds in which each frame was on the stack, by what is asked of a frame."""
    parents, frames = recording.call_tree.parent, recording.call_tree.frame
    every, seconds = recording.frames.to_dicts(), {}
    for node, took in zip(samples.node.tolist(), samples.seconds.tolist(), strict=True):
        on_stack = set()
        while node >= 0:
            on_stack.add(what(every[frames[node]]))
            node = parents[node]
        for name in on_stack:
            seconds[name] = seconds.get(name, 0.0) + took
    return seconds


def seconds_of_lines(recording, worker):
    """Of two lines of this file."""
    samples = recording.samples.filter(recording.samples.worker.eq(worker))
    seconds = seconds_of(recording, samples, lambda frame: (frame["name"], frame["line"]))
    return {line - FIRST: took for (name, line), took in seconds.items() if name == "two_lines"}


def seconds_of_functions(recording, root):
    samples = recording.samples.filter(recording.samples.root.eq(root))
    return seconds_of(recording, samples, lambda frame: frame["name"])


def run_two_lines(client, workers, seconds=0.5):
    futures = [client.submit(two_lines, seconds, workers=[w], pure=False) for w in workers]
    client.gather(futures)


def test_lines_have_their_seconds_on_each_worker(retried):
    def measure():
        with cluster(processes=True) as client:
            workers = [worker.worker_address for worker in client.cluster.workers.values()]
            with SamplingProfiler() as sprof:
                # The second worker has two of them.
                run_two_lines(client, [*workers, workers[1]])
        recording = sprof.recording
        for worker, times in (("worker-0", 1), ("worker-1", 2)):
            lines = seconds_of_lines(recording, worker)
            assert lines[1] == pytest.approx(0.5 * times, rel=0.1)
            assert lines[2] == pytest.approx(0.5 * times, rel=0.1)
        assert {row["name"] for row in sprof.tree(root="tasks").to_dicts()} >= {"two_lines"}
        assert "spin_until" in str(sprof.summary())
        assert len(recording.tasks) == 0

    retried(measure)


def waits_for_others():
    spin(0.1)
    secede()
    time.sleep(0.5)
    spin(0.1)


def test_waiting_after_it_seceded_is_no_time_of_a_task(retried, client):
    def measure():
        with Profiler() as prof, SamplingProfiler() as sprof:
            client.gather([client.submit(waits_for_others, pure=False) for _ in range(4)])
        (row,) = by_function(prof.recording).to_dicts()
        tasks = prof.recording.tasks
        assert 0.75 < row["wall"] < (tasks.stop - tasks.start).sum() - 4 * 0.45
        assert row["longest"] < row["wall"] / 2
        assert row["thread_cpu"] + row["thread_noncpu"] == pytest.approx(row["wall"])
        seconds = seconds_of_functions(sprof.recording, Root.TASKS)
        assert seconds["waits_for_others"] == pytest.approx(row["wall"], rel=0.1)
        assert seconds["spin"] > 0.8 * row["wall"]

    retried(measure)


@pytest.mark.truth
@pytest.mark.leaves_files
def test_record_streams_stacks_and_waits(retried):
    def measure():
        with cluster() as client:
            with record("run.diag", overwrite=True) as run:
                client.submit(two_lines, 0.3).result()
            client.submit(spin, 0.01).result()
        in_memory, on_disk = run.recording, load("run.diag")
        for recording in (in_memory, on_disk):
            (task,) = recording.tasks.to_dicts()
            workers = set(recording.samples.worker.tolist()) - {""}
            (worker,) = workers
            assert task["worker"].startswith(worker)
            of_worker = recording.samples.filter(recording.samples.worker.eq(worker))
            assert of_worker.seconds.sum() == pytest.approx(task["stop"] - task["start"])
            waited = {row["activity"]: row["seconds"] for row in recording.waits.to_dicts()}
            assert waited.get("sleep") == pytest.approx(0.3, abs=0.1)
            assert "cpu-wait" in waited
        assert not any("counted once" in notice for notice in in_memory.notices)

    retried(measure)


def metered_nap(seconds):
    with context_meter.meter("nap"):
        time.sleep(seconds)


def test_waits_of_metered_code_have_its_label(client):
    with Profiler(waits=True) as prof:
        client.submit(metered_nap, 0.2).result()
    table = prof.recording.waits
    assert set(table.filter(table.activity.eq("sleep")).label.tolist()) == {"nap"}
    seconds = {row["activity"]: row["value"] for row in activities(prof.recording).to_dicts()}
    assert seconds["nap"] > 0.19
    assert seconds.get("sleep", 0.0) < 0.01


def test_coroutines_are_not_sampled_and_said_to_be_so(client):
    with SamplingProfiler() as sprof:
        assert client.submit(in_steps, 0.1).result() == 0.1
    recording = sprof.recording
    assert any(
        notice.startswith("1 run of a coroutine was not sampled") for notice in recording.notices
    )
    of_tasks = recording.samples.filter(recording.samples.root.eq("tasks"))
    assert of_tasks.node.tolist() == [-1]
    assert of_tasks.seconds.sum() == pytest.approx(0.1, abs=0.1)


async def blocks(seconds):
    time.sleep(seconds)
    spin(seconds)
    await asyncio.sleep(seconds)
    spin(seconds)


def test_coroutines_have_their_event_loop_while_they_do_not_await(client):
    with Profiler() as prof:
        client.submit(blocks, 0.1).result()
    (row,) = prof.recording.metrics.to_dicts()
    assert (row["activity"], row["unit"]) == ("event-loop", "seconds")
    # On a busy machine it computes for longer.
    tasks = prof.recording.tasks
    (took,) = tasks.stop - tasks.start
    assert 0.29 < row["value"] < took - 0.09
    assert row["cpu"] == pytest.approx(0.2, abs=0.05)
    # A task is divided as other tasks are.
    seconds = {row["activity"]: row["value"] for row in activities(prof.recording).to_dicts()}
    assert seconds["thread-cpu"] == pytest.approx(0.2, abs=0.05)


def test_what_still_runs_is_sampled_until_the_end(client):
    # Where a test before had the end of a task raise, that task is there.
    before = set(running_tasks)
    with SamplingProfiler() as sprof:
        future = client.submit(waits, 1)
        time.sleep(0.5)
    GO_ON.set()
    future.result()
    recording = sprof.recording
    of_task = recording.samples.filter(recording.samples.function.eq("waits"))
    assert of_task.seconds.sum() == pytest.approx(0.5, abs=0.2)
    assert of_task.node.max() >= 0
    assert set(running_tasks) <= before


def reads_inputs(seconds):
    time.sleep(seconds)


def keeps_books(seconds):
    time.sleep(seconds)


def assert_before_ends_with_the_first_graph(recording):
    samples = recording.samples
    cycle = float((samples.stop - samples.start).max())
    before, after = (seconds_of_functions(recording, r) for r in (Root.BEFORE, Root.BETWEEN))
    assert before["reads_inputs"] >= 0.4 - cycle
    assert after["keeps_books"] >= 0.4 - cycle
    assert before.get("keeps_books", 0.0) <= cycle
    assert after.get("reads_inputs", 0.0) <= cycle
    began = recording.computations.start.min() - recording.start
    assert samples.seconds[samples.root.eq(Root.BEFORE)].sum() <= began + 0.02


@pytest.mark.leaves_files
@pytest.mark.parametrize(
    "starts",
    [
        lambda client: [client.submit(time.sleep, 0.0)],
        lambda client: client.map(time.sleep, [0.0, 0.001]),
        lambda client: client.compute([dask.delayed(time.sleep)(0.0)]),
        lambda client: client.persist([dask.delayed(time.sleep)(0.0)]),
    ],
    ids=["submit", "map", "compute", "persist"],
)
def test_before_computations_ends_with_the_first_futures(starts, retried):
    def measure():
        with cluster() as client, record("run.diag", overwrite=True), SamplingProfiler() as sprof:
            # Data that is sent is no computation.
            client.scatter([1])
            reads_inputs(0.4)
            futures = starts(client)
            keeps_books(0.4)
            wait(futures)
        assert_before_ends_with_the_first_graph(load("run.diag"))
        assert_before_ends_with_the_first_graph(sprof.recording)

    retried(measure)
