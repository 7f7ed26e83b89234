"""SamplingProfiler and waits on a client of distributed: lines whose seconds are known."""

from __future__ import annotations

import asyncio
import threading
import time

import dask
import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, wait

from dask_diag import Profiler, SamplingProfiler, activities, context_meter, load, record
from dask_diag.capture.task import Line
from dask_diag.cluster.wire import packed_stacks, unpacked_stacks
from dask_diag.model.codes import Root
from dask_diag.sampling.sampler import running_tasks

from .clusters import cluster, spin

GO_ON = threading.Event()


@pytest.fixture(autouse=True)
def events():
    GO_ON.clear()
    yield
    GO_ON.set()


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


def wait_for(n):
    GO_ON.wait(20)
    return n


FIRST = two_lines.__code__.co_firstlineno


def seconds_of_lines(recording, worker):
    """Of the functions of this file: the seconds in which each line was on the stack."""
    samples = recording.samples
    parents, frames = recording.call_tree.parent, recording.call_tree.frame
    seconds = {}
    for row in np.flatnonzero(samples.worker.where(worker)):
        node = samples.node[row]
        while node >= 0:
            frame = recording.frames.rows(slice(frames[node], frames[node] + 1)).to_dicts()[0]
            if frame["name"] == "two_lines":
                line = frame["line"] - FIRST
                seconds[line] = seconds.get(line, 0.0) + samples.seconds[row]
            node = parents[node]
    return seconds


def run_two_lines(client, workers, seconds=0.5):
    futures = [client.submit(two_lines, seconds, workers=[w], pure=False) for w in workers]
    client.gather(futures)


def test_lines_have_their_seconds_on_each_worker(retried):
    def measure():
        with (
            LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
            Client(local) as client,
        ):
            workers = [worker.worker_address for worker in local.workers.values()]
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
            of_worker = recording.samples.rows(recording.samples.worker.where(worker))
            assert of_worker.seconds.sum() == pytest.approx(task["stop"] - task["start"])
            waits = {row["activity"]: row["seconds"] for row in recording.waits.to_dicts()}
            assert waits.get("sleep") == pytest.approx(0.3, abs=0.1)
            assert "cpu-wait" in waits
        assert not any("counted once" in notice for notice in in_memory.notices)

    retried(measure)


def metered_nap(seconds):
    with context_meter.meter("nap"):
        time.sleep(seconds)


def test_waits_of_metered_code_have_its_label():
    with cluster(workers=1) as client, Profiler(waits=True) as prof:
        client.submit(metered_nap, 0.2).result()
    waits = prof.recording.waits.rows(prof.recording.waits.activity.where("sleep"))
    assert set(waits.label.tolist()) == {"nap"}
    seconds = {row["activity"]: row["value"] for row in activities(prof.recording).to_dicts()}
    assert seconds["nap"] > 0.19
    assert seconds.get("sleep", 0.0) < 0.01


def test_coroutines_are_not_sampled_and_said_to_be_so():
    with cluster() as client, SamplingProfiler() as sprof:
        assert client.submit(in_steps, 0.1).result() == 0.1
    recording = sprof.recording
    assert any(
        notice.startswith("1 run of a coroutine was not sampled") for notice in recording.notices
    )
    of_tasks = recording.samples.rows(recording.samples.root.where("tasks"))
    assert of_tasks.node.tolist() == [-1]
    assert of_tasks.seconds.sum() == pytest.approx(0.1, abs=0.1)


def test_what_still_runs_is_sampled_until_the_end():
    # Where a test before had the end of a task raise, that task is there.
    before = set(running_tasks)
    with cluster(workers=1) as client:
        with SamplingProfiler() as sprof:
            future = client.submit(wait_for, 1)
            time.sleep(0.5)
        GO_ON.set()
        future.result()
    recording = sprof.recording
    of_task = recording.samples.rows(recording.samples.function.where("wait_for"))
    assert of_task.seconds.sum() == pytest.approx(0.5, abs=0.2)
    assert of_task.node.max() >= 0
    assert set(running_tasks) <= before


def test_without_waits_and_stacks_nothing_is_sampled():
    with cluster() as client, Profiler() as prof:
        client.submit(two_lines, 0.05).result()
    assert len(prof.recording.waits) == 0


def test_stacks_are_unpacked_as_they_were():
    outer, inner = Line("f", "a.py", 3, 1), Line("g", "b.py", 7, 5)
    samples = [(1.5, (outer, inner), 0.2, 0.1, 3), (2.5, (), 0.1, 0.0, 0)]
    assert unpacked_stacks(packed_stacks(samples), Line) == samples
    assert unpacked_stacks(packed_stacks([]), Line) == []


def reads_inputs(seconds):
    time.sleep(seconds)


def keeps_books(seconds):
    time.sleep(seconds)


def by_submit(client):
    return [client.submit(time.sleep, 0.0)]


def by_map(client):
    return client.map(time.sleep, [0.0, 0.001])


def by_compute(client):
    return client.compute([dask.delayed(time.sleep)(0.0)])


def by_persist(client):
    return client.persist([dask.delayed(time.sleep)(0.0)])


def seconds_of_functions(recording, root):
    """In samples of a root, the seconds in which each function was on the stack."""
    samples = recording.samples.rows(recording.samples.root.where(root))
    names, parents = recording.frames.name, recording.call_tree.parent
    seconds = {}
    for node, took in zip(samples.node.tolist(), samples.seconds.tolist(), strict=True):
        on_stack = set()
        while node >= 0:
            on_stack.add(names[recording.call_tree.frame[node]])
            node = parents[node]
        for name in on_stack:
            seconds[name] = seconds.get(name, 0.0) + took
    return seconds


def assert_before_ends_with_the_first_graph(recording):
    samples = recording.samples
    cycle = float((samples.stop - samples.start).max())
    before, after = (seconds_of_functions(recording, r) for r in (Root.BEFORE, Root.BETWEEN))
    assert before["reads_inputs"] >= 0.4 - cycle
    assert after["keeps_books"] >= 0.4 - cycle
    assert before.get("keeps_books", 0.0) <= cycle
    assert after.get("reads_inputs", 0.0) <= cycle
    began = recording.computations.start.min() - recording.start
    assert samples.seconds[samples.root.where(Root.BEFORE)].sum() <= began + 0.02


@pytest.mark.leaves_files
@pytest.mark.parametrize("starts", [by_submit, by_map, by_compute, by_persist])
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
