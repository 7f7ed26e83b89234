"""Many tasks on a cluster: every row arrives, and the scheduler holds none that was pulled.

The scheduler's plugin is driven as a scheduler would, which takes a hundredth of the time that a
cluster needs for so many tasks; ``python -m benchmarks.cluster million`` uses one.
"""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

pytest.importorskip("distributed")

from dask._task_spec import Task

from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.plugin import DaskDiagSchedulerPlugin
from dask_diag.cluster.tables import with_clusters
from dask_diag.cluster.tasks_table import tasks_of
from dask_diag.cluster.wire import CANCELLED, NAME, RUN, WORKER_ROW, Batch
from dask_diag.cluster.workers_table import Lanes
from dask_diag.model.tables import Tasks

from .recordings import NOTHING

NAN = float("nan")
THREAD = 123_456_789


SPEC = Task("no_op", abs, -1)


def state_of(key, worker, run=7):
    """What a scheduler has of a task that it has sent to a worker."""
    return SimpleNamespace(
        key=key,
        processing_on=worker,
        metadata=None,
        run_id=run,
        run_spec=SPEC,
        dependencies=(),
    )


class Driver:
    """Calls a plugin as a scheduler does for tasks that do nothing, and pulls for a client."""

    def __init__(self, workers=1):
        self.addresses = [f"tcp://{number}" for number in range(workers)]
        self.workers = {
            address: SimpleNamespace(name=address, host="h", nthreads=2, address=address)
            for address in self.addresses
        }
        self.scheduler = SimpleNamespace(
            id="Scheduler-1",
            address="tcp://here",
            total_nthreads=2 * workers,
            tasks={},
            workers=self.workers,
            handlers={},
            clients={},
            plugins={},
            worker_plugins={},
            get_events=lambda topic: (),
        )
        self.plugin = DaskDiagSchedulerPlugin()
        self.log = ClusterLog({"tasks": True})
        asyncio.run(self.plugin.start(self.scheduler))
        asyncio.run(self.plugin.handle_attach("session", "client", {"tasks": True}))

    def key(self, number):
        """The key of a task."""
        return f"no_op-{number}"

    def run(self, first, count):
        """Submit tasks, have them done one after the other, and forget them."""
        plugin, tasks = self.plugin, self.scheduler.tasks
        keys = [self.key(number) for number in range(first, first + count)]
        of_keys = [self.addresses[n % len(self.addresses)] for n in range(first, first + count)]
        for key, address in zip(keys, of_keys, strict=True):
            tasks[key] = state_of(key, self.workers[address])
        plugin.update_graph(self.scheduler, client="client", tasks=keys, annotations={})
        for key in keys:
            plugin.transition(key, "released", "waiting", stimulus_id="graph")
            plugin.transition(key, "waiting", "processing", stimulus_id="graph")
        for number, key in enumerate(keys, first):
            row = WORKER_ROW.pack(number, number + 0.5, 0.25, NAN, NAN, THREAD, 7)
            tasks[key].metadata = {"dask_diag": row}
            plugin.transition(
                key,
                "processing",
                "memory",
                stimulus_id=key,
                worker=of_keys[number - first],
                nbytes=number,
                startstops=(),
            )
        for key in keys:
            plugin.transition(key, "memory", "released", stimulus_id="release")
            plugin.transition(key, "released", "forgotten", stimulus_id="release")
            del tasks[key]

    def pull(self):
        reply = asyncio.run(self.plugin.handle_pull("session", self.log.received))
        assert reply["status"] == "OK"
        self.log.receive(reply)

    def held(self):
        """Bytes that the plugin has collected and not handed out."""
        (session,) = self.plugin.sessions.by_name.values()
        return session.size + session.sealed_size

    def recording(self):
        self.log.has_ended = True
        return with_clusters(NOTHING, [self.log])


def cancelled(driver, count, run=7):
    """Have tasks sent to workers and then cancelled; the workers say nothing of them."""
    plugin, tasks = driver.plugin, driver.scheduler.tasks
    keys = [f"cancelled-{run}-{number}" for number in range(count)]
    for key in keys:
        tasks[key] = state_of(key, driver.workers[driver.addresses[0]], run)
    plugin.update_graph(driver.scheduler, client="client", tasks=keys, annotations={})
    for key in keys:
        for start, finish in (
            ("released", "waiting"),
            ("waiting", "processing"),
            ("processing", "released"),
            ("released", "forgotten"),
        ):
            plugin.transition(key, start, finish, stimulus_id=key)
        del tasks[key]
    return keys


def end_of(key, run, start, worker):
    """What a worker says of a run that was cancelled as it ran."""
    row = WORKER_ROW.pack(start, start + 0.5, 0.25, NAN, NAN, THREAD, run)
    return ("RunEnded", key, run, worker, CANCELLED, (row,))


def test_cancelled_runs_of_which_no_end_is_heard_are_bounded_and_each_has_its_row(monkeypatch):
    monkeypatch.setattr(plugin_module, "MOST_ORPHANS", 100)
    driver = Driver()
    (worker,) = driver.addresses
    keys = cancelled(driver, 250)
    assert len(driver.plugin.runs.orphans) == 100
    # Of one that is awaited still, and of one that is not.
    for key in (keys[-1], keys[0]):
        driver.plugin.log_event(NAME, [end_of(key, 7, 1.0, worker)])
    assert len(driver.plugin.runs.orphans) == 99
    driver.log.receive(asyncio.run(driver.plugin.handle_detach("session", 0)))
    assert not driver.plugin.runs.orphans
    recording = driver.recording()
    tasks = recording.tasks
    assert sorted(tasks["key"].tolist()) == sorted(keys)
    assert set(tasks["outcome"].tolist()) == {"cancelled"}
    started = ~np.isnan(tasks.start)
    assert tasks["key"][started].tolist() == [keys[-1]]
    notice = "150 cancelled runs have no times: their workers did not report in time how they ended"
    assert notice in driver.log.notices()


def test_cancelled_runs_of_a_client_that_has_gone_are_forgotten():
    driver = Driver()
    asyncio.run(driver.plugin.handle_attach("other", "another client", {"tasks": True}))
    cancelled(driver, 10)
    assert len(driver.plugin.runs.orphans) == 10

    async def goes():
        driver.plugin.remove_client(driver.scheduler, client="client")
        await driver.plugin._change

    asyncio.run(goes())
    assert not driver.plugin.runs.orphans
    assert not driver.plugin.sessions.faults


def test_cancelled_runs_that_no_one_records_are_not_awaited():
    driver = Driver()
    (session,) = driver.plugin.sessions.by_name.values()
    session.wants = {"progress": True}
    driver.plugin.refresh()
    cancelled(driver, 10)
    assert not driver.plugin.runs.orphans


def test_every_task_has_its_row_and_nothing_of_it_stays():
    # Ten batches and a task; a million are no other ones, and take five times as long.
    driver, count, at_once = Driver(), 200_001, 20_000
    for first in range(0, count, at_once):
        driver.run(first, min(at_once, count - first))
        assert 0 < driver.held() < 10_000_000
        driver.pull()
    # The last batch is there until the next pull says that it has come.
    driver.pull()
    plugin = driver.plugin
    assert driver.held() == 0
    assert not plugin.runs.tasks
    assert not plugin.runs.orphans
    assert not plugin.sessions.faults
    recording = driver.recording()
    tasks = recording.tasks
    assert len(tasks) == count
    assert (tasks.nbytes == np.arange(count)).all()
    assert np.isclose(tasks.thread_cpu, 0.25).all()
    assert tasks.outcome.tolist() == ["ok"] * count
    assert tasks.key[0] == "no_op-0"
    assert tasks.key[count - 1] == f"no_op-{count - 1}"
    assert driver.log.notices() == []


def test_times_of_the_scheduler_are_whole_microseconds_and_no_earlier_or_later_than_they_were():
    driver = Driver()
    driver.run(0, 1_000)
    driver.pull()
    (batch,) = driver.log.batches
    exact, tasks = np.frombuffer(batch.rows, RUN.dtype), driver.recording().tasks
    for times, was, direction in (
        (tasks.submitted, exact["submitted"], -1),
        (tasks.collected, exact["collected"], 1),
    ):
        assert (np.rint(times * 1e6) / 1e6 == times).all()
        moved = direction * (times - was)
        assert (moved > -1e-11).all()
        assert (moved < 1e-6 + 1e-11).all()


def test_times_of_workers_are_whole_microseconds_in_the_time_that_the_scheduler_saw():
    rng = np.random.default_rng(3)
    runs = np.zeros(5_000, RUN.dtype)
    runs["submitted"] = np.cumsum(rng.integers(1, 10**6, len(runs))) / 1e9 + 50_000
    # Of many, the whole time between being sent and being known to be done; some by a clock that
    # is wrong by more than that.
    lasted = rng.integers(0, 3_000, len(runs)) / 1e9
    runs["collected"] = runs["submitted"] + lasted + rng.integers(0, 2, len(runs)) * 5e-6
    runs["start"] = runs["submitted"] + rng.integers(-1, 2, len(runs)) * 2e-6
    runs["stop"] = runs["start"] + lasted
    runs["cpu"] = lasted * rng.random(len(runs))
    runs["seceded"] = np.where(rng.random(len(runs)) < 0.5, runs["start"] + lasted / 2, np.nan)
    runs["start"][:100] = runs["stop"][:100] = runs["cpu"][:100] = np.nan
    batch = Batch(ids=np.arange(len(runs)), rows=runs.tobytes(), keys=range(len(runs)))
    tasks = Tasks.of(tasks_of(batch, ClusterLog({"tasks": True}), Lanes()))
    for times in (tasks.start, tasks.stop, tasks.seceded, tasks.thread_cpu):
        measured = times[~np.isnan(times)]
        assert len(measured)
        assert (np.rint(measured * 1e6) / 1e6 == measured).all()
    assert np.isnan(tasks.start[:100]).all()
    assert np.isnan(tasks.stop[:100]).all()
    assert np.isnan(tasks.thread_noncpu[:100]).all()
    ran = tasks.filter(slice(100, None))
    assert (ran.submitted <= ran.start).all()
    assert (ran.start <= ran.stop).all()
    assert (ran.stop <= ran.collected).all()
    assert not (ran.seceded < ran.start).any()
    assert not (ran.seceded > ran.stop).any()
    assert (ran.thread_noncpu > -1e-9).all()
    assert np.abs((ran.stop - ran.start) - lasted[100:]).max() < 0.51e-6
    assert abs((ran.stop - ran.start).sum() - lasted[100:].sum()) < 1e-4


@pytest.mark.once
def test_a_client_that_does_not_pull_costs_64_mb_and_no_more(monkeypatch):
    assert plugin_module.LIMIT_BYTES == 64_000_000
    # An eighth, which takes an eighth of the time.
    limit = 8_000_000
    monkeypatch.setattr(plugin_module, "LIMIT_BYTES", limit)
    driver, at_once = Driver(), 10_000
    fits = limit // (RUN.size + plugin_module.BYTES_PER_KEY)
    count = (fits // at_once + 1) * at_once
    for first in range(0, count, at_once):
        driver.run(first, at_once)
    assert limit - 1000 < driver.held() <= limit
    driver.pull()
    assert len(driver.recording().tasks) == fits
    assert f"{count - fits:,} task runs are missing" in " ".join(driver.log.notices())
    # What is done later is recorded again.
    driver.pull()
    driver.run(count, 10)
    driver.pull()
    assert len(driver.recording().tasks) == fits + 10


@pytest.mark.parametrize("is_next_done", [True, False])
def test_computations_of_a_client_do_not_overlap_where_a_result_is_lost(is_next_done):
    """Soon after its computation was done, while the next one runs or after it was done, too."""
    driver = Driver()
    plugin, scheduler = driver.plugin, driver.scheduler
    worker = driver.workers[driver.addresses[0]]

    def change(key, *states):
        for start, finish in pairwise(states):
            facts = {"worker": worker.address, "nbytes": 5, "startstops": ()}
            plugin.transition(key, start, finish, stimulus_id=f"{key} {finish}", **facts)
        time.sleep(0.01)

    for key in ("lost", "next"):
        scheduler.tasks[key] = state_of(key, worker)
        plugin.update_graph(scheduler, client="client", tasks=[key], annotations={})
        change(key, "released", "waiting", "processing")
        if key == "lost" or is_next_done:
            change(key, "processing", "memory")
    change("lost", "memory", "released", "waiting", "processing")
    if not is_next_done:
        change("next", "processing", "memory")
    change("lost", "processing", "memory")
    driver.pull()
    computations, tasks = driver.recording().computations, driver.recording().tasks
    assert (computations.stop[:-1] <= computations.start[1:]).all()
    names = computations.computation.tolist()
    of = [names.index(computation) for computation in tasks.computation.tolist()]
    keys = tasks.key.tolist()
    # It belongs to what runs, or is one of its own.
    expected = [("lost", 0), ("next", 1), ("lost", 2 if is_next_done else 1)]
    assert list(zip(keys, of, strict=True)) == expected
    assert not plugin.sessions.faults


def test_a_worker_that_joins_while_tasks_run_counts_until_they_are_done():
    driver = Driver()
    plugin, scheduler = driver.plugin, driver.scheduler
    driver.run(0, 1)
    before = plugin.runs.computations.open["client"]
    plugin.update_graph(scheduler, client="client", tasks=["waits"], annotations={})
    plugin.transition("waits", "released", "waiting", stimulus_id="graph")
    running = plugin.runs.computations.open["client"]
    late = SimpleNamespace(name="late", host="h", nthreads=2, address="tcp://late")
    driver.workers[late.address] = late
    scheduler.total_nthreads = 4
    plugin.add_worker(scheduler, late.address)
    scheduler.total_nthreads = 2
    plugin.remove_worker(scheduler, late.address)
    plugin.transition("waits", "waiting", "released", stimulus_id="cancelled")
    assert (before.workers, running.workers) == (2, 4)
    assert not plugin.sessions.faults
