"""Findings on clusters that have a fault, and on some that have none."""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, wait

from dask_diag import Profiler, findings

from .clusters import assert_adds_up, cluster, rows, spin

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
    addresses = list(client.scheduler_info()["workers"])
    with Profiler() as prof:
        for n in range(4):
            made = [
                client.submit(made_of, n, size, workers=[each], pure=False) for each in addresses
            ]
            needed = [
                client.submit(length, result, workers=[each], pure=False)
                for result, each in zip(made, reversed(addresses), strict=True)
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
    doomed, _ = processes.scheduler_info()["workers"]
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
        client.retire_workers(list(client.scheduler_info()["workers"])[:1])
        client.gather(client.map(sleeps, [0.05 + n / 1e6 for n in range(100, 108)]))
    assert "worker-lost" not in codes(prof.recording)


def slept(bound):
    with cluster(workers=2) as client, Profiler() as prof:
        first, _ = client.scheduler_info()["workers"]
        where = {"workers": [first]} if bound else {}
        seconds = [0.05 + n / 1e6 for n in range(12)]
        client.gather(client.map(sleeps, seconds, **where))
    return codes(prof.recording), name_of(first, prof.recording)


def test_tasks_that_are_bound_to_one_worker_leave_the_other_idle(retried):
    def measure():
        found, first = slept(bound=True)
        finding = found["unbalanced-workers"]
        assert finding.where.workers == (first,)
        assert 0.15 < finding.seconds_lost < 0.5

    retried(measure)


def test_tasks_that_run_anywhere_do_not():
    found, _ = slept(bound=False)
    assert "unbalanced-workers" not in found


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
