"""Findings on clusters that have a fault, and on some that have none."""

from __future__ import annotations

import os
import re
import signal
import time

import dask
import dask.threaded
import numpy as np
import pytest
from dask.base import DaskMethodsMixin

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, SchedulerPlugin, wait

from dask_diag import Profiler, findings, load, record

from .clusters import assert_adds_up, cluster, rows, spin

pytestmark = pytest.mark.once

LARGE = 50_000_000


def codes(recording):
    return {one.code: one for one in findings(recording)}


def made_of(n, size):
    return bytes(size)


def length(data):
    return len(data)


@pytest.fixture
def processes():
    """A client of two workers, each a process that has one thread."""
    with (
        LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield client


def name_of(address, recording):
    workers = recording.workers
    (name,) = workers.worker[np.flatnonzero(workers.address.where(address))].tolist()
    return name


def exchanged(client, size):
    """Each of two workers needs what the other has made, four times."""
    addresses = list(client.nthreads())
    with Profiler() as prof:
        for n in range(4):
            made = [
                client.submit(made_of, n, size, workers=[address], pure=False)
                for address in addresses
            ]
            needed = [
                client.submit(length, result, workers=[address], pure=False)
                for result, address in zip(made, reversed(addresses), strict=True)
            ]
            assert client.gather(needed) == [size, size]
            del made, needed
    return prof.recording


def test_large_results_of_another_worker_bound_a_program(processes):
    recording = exchanged(processes, LARGE)
    finding = codes(recording)["transfer-bound"]
    assert finding.where.functions == ("made_of",)
    assert set(finding.where.workers) == {"worker-0", "worker-1"}
    moved = recording.transfers
    assert moved.bytes.sum() == pytest.approx(8 * LARGE, rel=0.01)
    assert 0 < finding.seconds_lost <= (moved.stop - moved.start).sum()
    assert_adds_up(recording)


def test_tasks_that_stay_where_their_inputs_are_are_not_bound(processes):
    with Profiler() as prof:
        made = processes.map(made_of, range(8), [LARGE] * 8, pure=False)
        processes.gather(processes.map(length, made, pure=False))
    assert "transfer-bound" not in codes(prof.recording)


def end_of_process(path):
    """Ends the worker's process at first, and later not."""
    if not os.path.exists(path):
        open(path, "w").close()
        time.sleep(0.5)
        os.kill(os.getpid(), signal.SIGKILL)
    return spin(0.01)


def sleeps(seconds):
    time.sleep(seconds)
    return seconds


@pytest.mark.leaves_files
def test_a_worker_that_is_killed_costs_its_run_and_its_results(processes, tmp_path):
    doomed, _ = processes.nthreads()
    where = {"workers": [doomed], "allow_other_workers": True}
    with Profiler() as prof:
        had = processes.map(sleeps, [0.1 + n / 1e6 for n in range(3)], **where)
        wait(had)
        # No other worker has them, and they are asked for later.
        assert processes.submit(end_of_process, str(tmp_path / "once"), **where).result()
        assert len(processes.gather(had)) == 3
    recording = prof.recording
    finding = codes(recording)["worker-lost"]
    assert finding.kind == "at most"
    assert "1 worker left while needed" in finding.evidence
    assert "1 run had no result" in finding.evidence
    lost_results = [row for row in rows(recording, "sleeps") if row["attempt"] > 1]
    assert f"{len(lost_results)} tasks ran again" in finding.evidence
    seconds = sum(row["stop"] - row["start"] for row in lost_results)
    # It ran for half a second until it was killed.
    assert 0.5 + seconds <= finding.seconds_lost * 2 <= 1.5 + seconds


def test_workers_that_are_asked_to_leave_are_not_lost():
    with cluster(workers=2) as client, Profiler() as prof:
        client.gather(client.map(sleeps, [0.05 + n / 1e6 for n in range(8)]))
        client.retire_workers(list(client.nthreads())[:1])
        client.gather(client.map(sleeps, [0.05 + n / 1e6 for n in range(100, 108)]))
    assert "worker-lost" not in codes(prof.recording)


def slept(bound):
    with cluster(workers=2) as client, Profiler() as prof:
        first, _ = client.nthreads()
        where = {"workers": [first]} if bound else {}
        seconds = [0.05 + n / 1e6 for n in range(12)]
        client.gather(client.map(sleeps, seconds, **where))
    return codes(prof.recording), name_of(first, prof.recording)


def test_tasks_that_are_bound_to_one_worker_leave_the_other_idle(retried):
    def measure():
        by_code, first = slept(bound=True)
        finding = by_code["unbalanced-workers"]
        assert finding.where.workers == (first,)
        assert 0.15 < finding.seconds_lost < 0.5

    retried(measure)


def test_tasks_that_run_anywhere_do_not():
    by_code, _ = slept(bound=False)
    assert "unbalanced-workers" not in by_code


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
        assert computation["scheduler_cpu"] == pytest.approx(planted, abs=0.4, rel=0.1)
        assert computation["scheduler_cpu"] >= planted
        wall = computation["stop"] - computation["start"]
        # Where other programs take its CPU, the scheduler is not what computes.
        is_bound = computation["scheduler_cpu"] >= 0.75 * wall
        assert ("scheduler-bound" in codes(prof.recording)) == is_bound
        if slow.took < 1.2 * planted:
            finding = codes(prof.recording)["scheduler-bound"]
            assert 0.5 * planted < finding.seconds_lost < wall

    retried(measure)


async def remove_plugin(scheduler, name):
    scheduler.remove_plugin(name=name)


def test_workers_with_little_memory_spill_and_pause():
    """Of 1 GB: results beyond 50 MB go to disk; a process of more than 700 MB starts no task."""
    memory = "distributed.worker.memory."
    settings = {
        **{memory + name: False for name in ("spill", "terminate", "spill-compression")},
        memory + "target": 0.05,
        memory + "pause": 0.7,
        memory + "monitor-interval": "20ms",
    }
    with (
        dask.config.set(settings),
        LocalCluster(
            n_workers=1, threads_per_worker=1, dashboard_address=None, memory_limit="1GB"
        ) as local,
        Client(local) as client,
    ):
        client.submit(sleeps, 0.0).result()
        with Profiler() as spilled:
            results = client.map(made_at_random, range(10), [20_000_000] * 10)
            wait(results)
        del results
        with Profiler() as paused:
            held = client.submit(hold, 700_000_000)
            client.gather(client.map(sleeps, [0.05 + n / 1e6 for n in range(4)]))
            assert held.result() == 700_000_000
    finding = codes(spilled.recording)["spilling"]
    assert finding.where.workers == ("worker-0",)
    events = spilled.recording.worker_events
    written = events.bytes[events.event.where("disk-write")].sum()
    # Two of ten fit.
    assert written == pytest.approx(160_000_000, abs=21_000_000)
    assert "memory-pressure" not in codes(spilled.recording)
    finding = codes(paused.recording)["memory-pressure"]
    assert finding.where.workers == ("worker-0",)
    assert_adds_up(spilled.recording)
    assert_adds_up(paused.recording)


def made_at_random(n, size):
    return os.urandom(size)


def hold(size):
    """Have so many bytes until it returns."""
    data = bytearray(size)
    data[::4096] = b"x" * len(data[::4096])
    time.sleep(0.5)
    return len(data)


def test_advice_on_clusters_names_no_settings_of_local_schedulers():
    with cluster(workers=2) as client, Profiler() as prof:
        client.gather(client.map(sleeps, [0.05 + n / 1e6 for n in range(40)]))
    recording = prof.recording
    for finding in findings(recording):
        text = finding.advice
        assert "num_workers" not in text, finding
        assert "scheduler='" not in text, finding
        assert "predicted" not in finding.evidence + text, finding
        assert finding.kind != "about", finding
    finding = codes(recording)["io-bound"]
    assert "Client(n_workers=..., threads_per_worker=...)" in finding.advice


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
    assert several <= alone - finding.seconds_lost + 0.3
    assert finding.seconds_lost == pytest.approx(alone * (1 - 1 / int(threads)), rel=0.1)


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
            assert finding.seconds_lost == pytest.approx(collection.building, abs=0.3)

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
