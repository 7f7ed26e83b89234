"""What the hooks cost on a cluster, in calls of functions: times would depend on the machine."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from dask._task_spec import Task
from distributed.metrics import context_meter

from dask_diag import Profiler
from dask_diag.capture import metrics as metrics_module
from dask_diag.cluster import task as task_module
from dask_diag.cluster import worker as worker_module

from .clusters import client as client
from .clusters import cluster
from .clusters import two_workers as two_workers
from .test_cluster_many_tasks import Driver

TASKS = 100
CAPTURE = "/dask_diag/"


def calls_of(function, *args):
    """How many functions, of Python or built in, were called by this package in a call."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        is_capture = CAPTURE in frame.f_code.co_filename.replace("\\", "/")
        count += is_capture and event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(profile)
    try:
        function(*args)
    finally:
        sys.setprofile(before)
    return count


def test_the_scheduler_calls_few_functions_for_a_task():
    driver = Driver()
    driver.run(0, TASKS)
    driver.pull()
    (session,) = driver.plugin.sessions.by_name.values()
    # Between messages, and many at once: there each call takes a fifth of the time.
    between, at_once = calls_of(driver.run, TASKS, TASKS), calls_of(session.pack)
    assert 0 < between / TASKS <= 29
    assert 0 < between / TASKS + at_once / TASKS <= 33
    driver.pull()
    assert len(driver.recording().tasks) == 2 * TASKS
    assert not driver.plugin.sessions.faults


def test_with_more_workers_a_task_costs_the_scheduler_no_more():
    calls = {}
    for workers in (2, 16, 64):
        driver = Driver(workers)
        driver.run(0, TASKS)
        calls[workers] = calls_of(driver.run, TASKS, TASKS)
        driver.pull()
        tasks = driver.recording().tasks
        assert len(set(tasks.worker.tolist())) == workers
    assert calls[2] == calls[16] == calls[64] > 0


class Results(dict):
    """A worker's results in its memory, which counts what it reads and writes."""

    cumulative_metrics = defaultdict(float, {("memory-read", "count"): 1.0})


@pytest.fixture
def worker():
    with ThreadPoolExecutor(1) as executor:
        yield SimpleNamespace(
            data=Results(),
            executors={"default": executor},
            state=SimpleNamespace(tasks={}, actors={}),
            address="tcp://here",
            log_event=None,
        )


def test_a_worker_calls_few_functions_for_a_task(worker):
    side, tasks = worker_module.WorkerSide(worker), worker.state.tasks
    for key in range(TASKS):
        task = Task(key, abs, -key)
        tasks[key] = SimpleNamespace(
            key=key, run_spec=task, annotations=None, run_id=7, metadata={}, state="memory"
        )
    states = ("released", "waiting", "ready", "executing", "memory", "released", "forgotten")

    def run():
        for key in range(TASKS):
            for start, finish in zip(states, states[1:], strict=False):
                side.transition(key, start, finish)
                if finish == "executing":
                    tasks[key].run_spec()

    calls = calls_of(run)
    assert all(task.metadata["dask_diag"] for task in tasks.values())
    assert 0 < calls / TASKS <= 36


def labels_heard(monkeypatch):
    """The labels that distributed's meter has given to this package from now on."""
    heard, hear = [], metrics_module._hear
    monkeypatch.setattr(
        metrics_module, "_hear", lambda label, *args: (heard.append(label), hear(label, *args))
    )
    return heard


def test_what_a_worker_meters_itself_is_not_heard(monkeypatch):
    heard = labels_heard(monkeypatch)
    with (
        cluster(1, protocol="tcp") as client,
        Profiler() as prof,
    ):
        assert client.gather(client.map(abs, range(-5, 0))) == [5, 4, 3, 2, 1]
        assert not heard
        client.submit(meters_once).result()
        assert heard == ["events"]
    metrics = prof.recording.metrics
    assert metrics.activity.tolist() == ["events"]
    assert not metrics_module.listening
    assert not metrics_module.hearing


def test_a_task_whose_metering_cannot_be_heard_runs_all_the_same(client, monkeypatch):
    def fails():
        raise ValueError("no meter")

    monkeypatch.setattr(task_module, "hear_this_task", fails)
    with (
        cluster(1) as client,
        Profiler() as prof,
    ):
        assert client.submit(abs, -1).result() == 1
    recording = prof.recording
    assert len(recording.tasks) == 1
    assert any("ValueError: no meter" in notice for notice in recording.notices)


def meters_once():
    context_meter.digest_metric("events", 2, "events")


async def meters_for_distributed(steps):
    for _ in range(steps):
        context_meter.digest_metric("events", 2, "events")
        await asyncio.sleep(0)
    return steps


def test_what_coroutines_give_to_distributeds_meter_is_not_counted(client):
    with (
        cluster(1) as client,
        Profiler() as prof,
    ):
        assert client.submit(meters_for_distributed, 5).result() == 5
    metrics = prof.recording.metrics
    metrics = metrics.filter(~metrics.activity.eq("event-loop"))
    # Five times two, added up by label.
    assert metrics.activity.tolist() == ["events"]
    assert metrics.value.tolist() == [10.0]
