"""Findings on clusters that have a fault, and on some that have none."""

from __future__ import annotations

import re
import time

import dask
import dask.threaded
import pytest
from dask.base import DaskMethodsMixin

pytest.importorskip("distributed")

from distributed import SchedulerPlugin, wait

from dask_diag import Profiler, findings, load, record
from dask_diag.analysis.activities import seconds_by_activity

from .clusters import assert_adds_up, cluster, spin

pytestmark = pytest.mark.once


def codes(recording):
    return {one.code: one for one in findings(recording)}


@pytest.fixture
def processes():
    """A client of two workers, each a process that has one thread."""
    with cluster(processes=True) as client:
        yield client


def sleeps(seconds):
    time.sleep(seconds)
    return seconds


class SlowScheduler(SchedulerPlugin):
    """Takes so much CPU of the scheduler's thread for each task that is done."""

    def __init__(self, seconds):
        self.seconds = seconds
        self.took = self.number = 0

    def transition(self, key, start, finish, **kwargs):
        if finish == "memory":
            began = time.perf_counter()
            spin(self.seconds)
            self.took += time.perf_counter() - began
            self.number += 1


def test_a_scheduler_that_computes_binds_its_workers(processes, retried):
    scheduler = processes.cluster.scheduler
    processes.submit(sleeps, 0.0).result()

    def measure():
        slow = SlowScheduler(0.02)
        scheduler.add_plugin(slow, name="slow")
        try:
            with Profiler() as prof:
                seconds = [0.001 + n / 1e6 for n in range(60)]
                processes.gather(processes.map(sleeps, seconds, pure=False))
        finally:
            processes.sync(remove_plugin, scheduler, "slow")
        (computation,) = prof.recording.computations.to_dicts()
        planted = slow.number * slow.seconds
        assert computation["cpu_scheduler"] == pytest.approx(planted, abs=0.4, rel=0.1)
        assert computation["cpu_scheduler"] >= planted
        wall = computation["stop"] - computation["start"]
        # Where other programs take its CPU, the scheduler is not what computes.
        is_bound = computation["cpu_scheduler"] >= 0.75 * wall
        assert ("scheduler-bound" in codes(prof.recording)) == is_bound
        if slow.took < 1.2 * planted:
            finding = codes(prof.recording)["scheduler-bound"]
            assert 0.5 * planted < finding.potential_saving < wall

    retried(measure)


async def remove_plugin(scheduler, name):
    scheduler.remove_plugin(name=name)


def test_more_threads_help_tasks_that_sleep():
    """Of sixteen tasks one runs at a time: what is predicted of the advice is what it gains."""

    def took(threads):
        with cluster(workers=1, threads=threads) as client, Profiler(waits=True) as prof:
            client.gather(client.map(sleeps, [0.1 + n / 1e6 for n in range(16)]))
        (computation,) = prof.recording.computations.to_dicts()
        return computation["stop"] - computation["start"], codes(prof.recording)

    alone, by_code = took(1)
    finding = by_code["too-few-threads"]
    (threads,) = re.findall(r"threads_per_worker=(\d+)", finding.advice)
    assert int(threads) in (4, 8, 16)
    several, _ = took(int(threads))
    assert several <= alone - finding.potential_saving + 0.3
    assert finding.potential_saving == pytest.approx(alone * (1 - 1 / int(threads)), rel=0.1)


class SlowGraph(DaskMethodsMixin):
    """A collection of four tasks of 0.1 s, whose graph takes its time to be made."""

    __dask_scheduler__ = staticmethod(dask.threaded.get)

    def __init__(self, seconds):
        self._seconds = seconds
        self.building = 0.0

    def __dask_graph__(self):
        """Some versions of dask ask for it several times."""
        time.sleep(self._seconds)
        self.building += self._seconds
        return {(f"nap-{self._seconds}", n): (sleeps, 0.1) for n in range(4)}

    def __dask_keys__(self):
        return [(f"nap-{self._seconds}", n) for n in range(4)]

    def __dask_postcompute__(self):
        return len, ()


@pytest.mark.leaves_files
@pytest.mark.parametrize(("seconds", "is_found"), [(0.5, True), (0.0, False)])
def test_a_graph_that_takes_long_is_not_the_programs_start(seconds, is_found, tmp_path, retried):
    def measure():
        collection = SlowGraph(seconds)
        with cluster(workers=2) as client, record(tmp_path / "run.diag", overwrite=True):
            assert dask.compute(collection) == (4,)
            assert client.status == "running"
        by_code = codes(load(tmp_path / "run.diag"))
        assert ("graph-preparation" in by_code) == is_found
        assert "slow-start" not in by_code
        if is_found:
            finding = by_code["graph-preparation"]
            assert finding.potential_saving == pytest.approx(collection.building, abs=0.3)

    retried(measure)


def raises():
    raise ValueError("on purpose")


def test_a_task_that_failed_on_a_cluster_is_to_be_run_again_by_its_client(processes):
    with Profiler() as prof:
        future = processes.submit(raises)
        wait(future)
        with pytest.raises(ValueError, match="on purpose"):
            processes.recreate_error_locally(future)
    advice = codes(prof.recording)["failed-tasks"].advice
    assert "client.recreate_error_locally(future)" in advice
    assert "synchronous" not in advice


def stored(seconds, slept):
    time.sleep(seconds)
    return slept


@pytest.mark.parametrize(("annotated", "is_limited"), [("both", True), ("store", False)])
def test_a_resource_that_all_tasks_hold_leaves_threads_without_one(annotated, is_limited, retried):
    """One task at a time has the resource, though only a short part of the work needs it."""
    held = {"DB": 1}

    def measure():
        with cluster(workers=1, threads=2, resources=held) as client, Profiler() as prof:
            slept = client.map(
                sleeps,
                [0.1 + n / 1000 for n in range(12)],
                resources=held if annotated == "both" else None,
            )
            stores = [client.submit(stored, 0.005, one, resources=held) for one in slept]
            client.gather(stores)
        recording = prof.recording
        limits = {
            (row["function"], row["resource"], row["at_once"])
            for row in recording.resource_limits.to_dicts()
        }
        functions = ["sleeps", "stored"] if annotated == "both" else ["stored"]
        assert limits == {(name, "DB", 1) for name in functions}
        assert_adds_up(recording)
        idle, overhead = (seconds_by_activity(recording)[name] for name in ("idle", "overhead"))
        found = codes(recording).get("unbalanced-workers")
        assert (found is not None) is is_limited
        if is_limited:
            # One of two threads had nothing to run while the other one did.
            busy = sum(recording.tasks.stop - recording.tasks.start)
            assert idle == pytest.approx(busy, rel=0.2)
            assert overhead < 0.2 * idle
            assert found.numbers["idle"].value == pytest.approx(busy, rel=0.2)
            assert "DB" in found.evidence

    retried(measure)


def test_a_resource_without_limit_limits_nothing():
    held = {"X": 1}
    supply = {"X": float("inf")}
    with cluster(workers=1, threads=2, resources=supply) as client, Profiler() as prof:
        assert client.gather(client.map(abs, range(5), resources=held)) == list(range(5))
    assert len(prof.recording.tasks) == 5
    assert not len(prof.recording.resource_limits)
