"""What is true on workers that are threads of this process is so where they are processes."""

from __future__ import annotations

import time

import pytest

pytest.importorskip("distributed")

from distributed import Client, LocalCluster, secede

from dask_diag import Profiler, context_meter

from .clusters import assert_adds_up, rows, spin, spin_in_steps


@pytest.fixture(scope="module")
def client():
    with (
        LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None) as local,
        Client(local) as client,
    ):
        yield client


def sleeps_then_spins():
    with context_meter.meter("read"):
        time.sleep(0.5)
    spin(0.5)


def secedes():
    spin(0.1)
    secede()
    spin(0.2)


def fails_twice(path):
    with open(path, "a") as file:
        file.write("x")
        attempt = file.tell()
    if attempt < 3:
        raise ZeroDivisionError


def cpu_of(recording, function):
    return sorted(row["thread_cpu"] for row in rows(recording, function))


def test_cpu_of_tasks(client, tmp_path_factory):
    path = str(tmp_path_factory.mktemp("attempts") / "attempts")
    with Profiler() as prof:
        client.submit(spin, 0.3).result()
        client.submit(time.sleep, 0.3).result()
        client.submit(sleeps_then_spins).result()
        client.submit(secedes).result()
        first, _ = client.nthreads()
        client.gather([client.submit(spin_in_steps, n, workers=[first]) for n in (0.1, 0.2)])
        client.submit(fails_twice, path, retries=2).result()
    recording = prof.recording
    assert cpu_of(recording, "spin") == pytest.approx([0.3], abs=0.03)
    assert cpu_of(recording, "sleep") == pytest.approx([0.0], abs=0.03)
    assert cpu_of(recording, "sleeps_then_spins") == pytest.approx([0.5], abs=0.05)
    assert cpu_of(recording, "spin_in_steps") == pytest.approx([0.1, 0.2], abs=0.03)
    assert prof.metrics["execute", "sleeps_then_spins", "read", "seconds"] >= 0.5
    (seceded,) = rows(recording, "secedes")
    assert seceded["seceded_cpu"] == pytest.approx(0.2, abs=0.05)
    attempts = [(row["attempt"], row["outcome"]) for row in rows(recording, "fails_twice")]
    assert attempts == [(1, "failed"), (2, "failed"), (3, "ok")]
    assert len(set(recording.workers.pid.tolist())) == 2
    assert_adds_up(recording)


def test_results_needed_elsewhere_are_one_transfer_each(client):
    first, second = client.nthreads()
    with Profiler() as prof:
        ten = client.submit(bytes, 10_000_000, workers=[first])
        five = client.submit(bytes, 5_000_000, workers=[first])
        client.submit(lambda *parts: 0, ten, five, workers=[second]).result()
    recording = prof.recording
    transfers = recording.transfers.rows(recording.transfers.activity.where("transfer")).to_dicts()
    assert sorted(round(row["bytes"] / 1e6) for row in transfers) == [5, 10]
    address = {row["worker"]: row["address"] for row in recording.workers.to_dicts()}
    ways = {(address[row["source"]], address[row["destination"]]) for row in transfers}
    assert ways == {(first, second)}
    assert all(row["stop"] > row["start"] for row in transfers)
    assert_adds_up(recording)


def test_24_tasks_on_4_threads_are_queued(client):
    with Profiler() as prof:
        client.gather(client.map(time.sleep, [0.1 + n / 1e6 for n in range(24)]))
    queued = sorted(row["queued"] for row in rows(prof.recording, "sleep"))
    # Each worker has two threads and is sent three tasks at once.
    assert queued[:6] == [0.0] * 6
    assert all(queued[6 + n] >= 0.1 * (1 + n // 4) - 0.001 for n in range(18))
    assert_adds_up(prof.recording)
