"""The table of workers, and their lanes, of what several clients know of them."""

from __future__ import annotations

import socket
import time

import numpy as np
import pytest

pytest.importorskip("distributed")

from distributed import Client

from dask_diag import Profiler
from dask_diag.cluster.log import ClusterLog, WorkerNames
from dask_diag.cluster.workers_table import Lanes, cluster_workers_table

from .clusters import assert_adds_up, cluster, spin, thread_seconds

FACTS = {"pid": 7, "measured": 1}


def log_of(names, scheduler, workers, start=0.0, stop=float("inf")):
    """What one client pulled of workers: number, name, id, joined, left, reason, facts."""
    log = ClusterLog({}, names)
    log.scheduler = scheduler
    described = [
        (
            number,
            f"{scheduler}-{worker}",
            name,
            "tcp://host:1",
            "host",
            1,
            joined,
            left,
            reason,
            facts,
        )
        for number, name, worker, joined, left, reason, facts in workers
    ]
    log.receive({"batches": [{"number": 1, "rows": {}, "computations": [], "workers": described}]})
    log.start, log.stop = start, stop
    return log


def test_what_the_client_knows_that_stayed_longest_is_in_the_table():
    names = WorkerNames()
    stays = log_of(names, "s", [(0, "0", 1, 5.0, 9.0, "killed", FACTS)])
    leaves = log_of(names, "s", [(0, "0", 1, 4.0, None, "", FACTS)], stop=7.0)
    for logs in ([stays, leaves], [leaves, stays]):
        (worker,) = cluster_workers_table(logs).to_dicts()
        assert (worker["joined"], worker["left"], worker["reason"]) == (4.0, 9.0, "killed")


def test_a_worker_that_a_later_client_does_not_know_left_before_it():
    names = WorkerNames()
    first = log_of(names, "s", [(0, "0", 1, 1.0, None, "", FACTS)], stop=3.0)
    second = log_of(names, "s", [(0, "0", 2, 4.0, None, "", FACTS)], start=5.0)
    left, joined = cluster_workers_table([first, second]).to_dicts()
    assert (left["worker"], left["left"]) == ("worker-0", 3.0)
    assert joined["worker"] == "worker-0 (2)"
    assert np.isnan(joined["left"])


def test_a_worker_has_one_name_for_all_clients_and_no_other_has_it():
    """Also at the address of an earlier one, and to a client that came when that was gone."""
    names = WorkerNames()
    old, new = (0, "0", 1, 1.0, 2.0, "", FACTS), (1, "0", 2, 3.0, None, "", FACTS)
    first = log_of(names, "s", [old, new])
    second = log_of(names, "s", [(0, "0", 2, 3.0, None, "", FACTS)])
    elsewhere = log_of(names, "another", [(0, "0", 1, 1.0, None, "", FACTS)])
    assert first.labels == {0: "worker-0", 1: "worker-0 (2)"}
    assert second.labels == {0: "worker-0 (2)"}
    assert elsewhere.labels == {0: "worker-0 (3)"}
    table = cluster_workers_table([first, second, elsewhere])
    assert sorted(table.worker.tolist()) == ["worker-0", "worker-0 (2)", "worker-0 (3)"]


def test_the_time_of_a_worker_that_is_restarted_at_its_address_counts():
    port = unused_port()
    with (
        cluster(1, 2, processes=True, worker_port=port) as client,
        Profiler() as prof,
    ):
        client.submit(time.sleep, 0.1, pure=False).result()
        client.restart()
        before = time.perf_counter()
        client.submit(time.sleep, 0.2, pure=False).result()
        after = time.perf_counter()
        with Profiler() as later:
            client.submit(time.sleep, 0.1, pure=False).result()
    one, other = prof.recording.workers.to_dicts()
    assert one["address"] == other["address"]
    assert one["pid"] != other["pid"]
    assert one["left"] < other["joined"] < before
    assert np.isnan(other["left"])
    _, second, _ = prof.recording.computations.to_dicts()
    assert second["stop"] - second["start"] >= 0.2
    assert before <= second["start"] <= second["stop"] <= after
    assert_adds_up(prof.recording)
    # Two threads were there for as long as computations were.
    computations = prof.recording.computations
    assert (
        abs(thread_seconds(prof.recording) - 2 * sum(computations.stop - computations.start)) < 1e-6
    )
    (restarted,) = later.recording.workers.to_dicts()
    assert abs(restarted["joined"] - other["joined"]) < 0.1


def unused_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def test_threads_of_a_worker_have_one_lane_each_for_all_clients():
    with cluster(workers=1, threads=2) as one, Client(one.cluster, set_as_default=False) as two:
        with Profiler() as prof:
            slept = one.map(time.sleep, [0.2, 0.2001])
            one.gather(slept)
            spun = [two.submit(spin, 0.01 + n / 1e6) for n in range(8)]
            two.gather(spun)
    tasks = prof.recording.tasks
    lanes = dict(zip(tasks.thread.tolist(), tasks.worker.tolist(), strict=True))
    assert len(lanes) == len(set(lanes.values())) == 2
    assert all(lanes[row["thread"]] == row["worker"] for row in tasks.to_dicts())


def test_clusters_one_after_the_other_have_workers_of_their_own():
    with Profiler() as prof:
        for _ in range(2):
            with cluster(workers=1) as client:
                client.submit(spin, 0.01).result()
    assert sorted(prof.recording.workers.worker.tolist()) == ["worker-0", "worker-0 (2)"]
    assert sorted(prof.recording.tasks.worker.tolist()) == ["worker-0 (2)/0", "worker-0/0"]
    assert_adds_up(prof.recording)


def test_lanes_are_numbered_in_the_order_of_their_first_task():
    lanes = Lanes()
    threads = np.array([8, 5, 8, 0])
    first = lanes.of(["a"], np.zeros(4, np.int64), threads)
    assert first.tolist() == ["a/0", "a/1", "a/0", "a/unknown"]
    assert lanes.of(["a"], np.zeros(1, np.int64), np.array([5])).tolist() == ["a/1"]
