"""What the hooks cost on a cluster, in calls of functions: times would depend on the machine."""

from __future__ import annotations

import asyncio
import sys
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from threading import get_ident
from types import SimpleNamespace

import pytest

pytest.importorskip("distributed")

from dask._task_spec import Task
from distributed import Client, LocalCluster
from distributed.metrics import context_meter

from dask_diag import Profiler, load, record
from dask_diag.capture.cluster import worker_side
from dask_diag.capture.running import start_listening, stop_listening
from dask_diag.capture.tasks import metering

from .test_cluster_many_tasks import Driver

TASKS = 100
OURS = "dask_diag/capture"


def calls_of(function, *args):
    """How many functions, of Python or built in, were called by this package in a call."""
    count = 0

    def profile(frame, event, arg):
        nonlocal count
        is_ours = OURS in frame.f_code.co_filename.replace("\\", "/")
        count += is_ours and event in ("call", "c_call")

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
    calls = calls_of(driver.run, TASKS, TASKS)
    assert 0 < calls / TASKS <= 33
    assert len(driver.plugin.sessions["session"].keys) == 2 * TASKS
    assert not driver.plugin.faults


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
    side, tasks = worker_side.WorkerSide(worker), worker.state.tasks
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


@pytest.fixture
def walks(monkeypatch):
    """The stacks that were searched for a task."""
    found = []
    search = metering._current_task
    monkeypatch.setattr(metering, "_current_task", lambda: found.append(search()))
    return found


def test_what_a_worker_meters_on_its_event_loop_is_searched_for_no_task(walks):
    listener, other = object(), object()
    start_listening(listener, get_ident())
    try:
        metering._hear("serialize", 1.0, "seconds")
        assert not walks
        # Local computations may run their tasks on this thread, too.
        start_listening(other)
        metering._hear("serialize", 1.0, "seconds")
        assert len(walks) == 1
        stop_listening(other)
        with ThreadPoolExecutor(1) as executor:
            executor.submit(metering._hear, "serialize", 1.0, "seconds").result()
        assert len(walks) == 2
    finally:
        stop_listening(other)
        stop_listening(listener)
    assert not metering.loops
    assert not metering.idle_loops


def test_an_event_loop_is_quiet_until_its_last_worker_leaves():
    first, second = object(), object()
    for listener in (first, second):
        start_listening(listener, 1)
    stop_listening(first)
    assert metering.idle_loops == {1}
    stop_listening(second)
    assert not metering.idle_loops


async def meters_for_distributed(steps):
    for _ in range(steps):
        context_meter.digest_metric("events", 2, "events")
        await asyncio.sleep(0)
    return steps


def test_what_coroutines_give_to_distributeds_meter_is_theirs():
    with (
        LocalCluster(1, processes=False, dashboard_address=None, protocol="inproc") as cluster,
        Client(cluster) as client,
        Profiler() as prof,
    ):
        assert client.submit(meters_for_distributed, 5).result() == 5
        assert metering.idle_loops
    metrics = prof.recording.metrics
    assert metrics.activity.tolist() == ["events"] * 5
    assert metrics.value.tolist() == [2.0] * 5
    assert not metering.idle_loops


@pytest.mark.leaves_files
def test_record_has_one_session_on_a_cluster_and_every_table(tmp_path):
    def doubled(number):
        return 2 * number

    with (
        LocalCluster(1, processes=False, dashboard_address=None, protocol="inproc") as cluster,
        Client(cluster) as client,
    ):
        with record(tmp_path / "run.diag", interval=0.05):
            (session,) = cluster.scheduler.plugins["dask_diag"].sessions.values()
            assert session.wants.keys() >= {"tasks", "waits", "results", "processes", "stacks"}
            assert client.gather(client.map(doubled, range(10))) == list(range(0, 20, 2))
        assert "dask_diag" not in cluster.scheduler.plugins
    recording = load(tmp_path / "run.diag")
    assert recording.notices == ()
    assert len(recording.tasks) == len(recording.cached_results) == 10
    assert len(set(recording.tasks.key.tolist())) == 10
    assert len(recording.workers) == 1
    assert len(recording.computations) == 1
    assert len(recording.processes) >= 2
    assert recording.stop >= recording.tasks.stop.max()
