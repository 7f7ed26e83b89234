"""CacheProfiler on a client of distributed: results whose size and time in memory are known."""

from __future__ import annotations

import time

import numpy as np
import pytest

pytest.importorskip("distributed")

from cachey import nbytes

from dask_diag import CacheProfiler, Profiler, load, record

from .clusters import client as client
from .clusters import rows, until
from .clusters import two_workers as two_workers

MB = 1_000_000


def megabytes(n):
    return np.ones(n * MB // 8)


def total(*arrays):
    return sum(array.nbytes for array in arrays)


def run(client):
    """10 MB and 5 MB that are there until their sum is, and the sum until it is released."""
    ten, five = client.submit(megabytes, 10), client.submit(megabytes, 5)
    result = client.submit(total, ten, five)
    assert result.result() == 15 * MB
    time.sleep(0.2)
    del ten, five, result
    gone(client)


def gone(client):
    """Wait until the scheduler has heard that its results are not needed."""
    until(lambda: not client.cluster.scheduler.tasks)


def test_bytes_in_distributed_memory_by_function(client):
    with Profiler() as prof, CacheProfiler(metric=nbytes) as cprof:
        run(client)
        cached = client.submit(megabytes, 2)
        cached.result()
    recording = cprof.recording
    assert (recording.metric, recording.metric_unit) == ("nbytes", "bytes")
    results = recording.cached_results.to_dicts()
    sizes = {}
    for row in results:
        sizes.setdefault(row["function"], []).append(row["metric"])
    # Distributed counts a few hundred bytes of the object, too.
    assert sorted(sizes["megabytes"]) == pytest.approx([2 * MB, 5 * MB, 10 * MB], abs=1000)
    assert sizes["total"][0] < 1000
    tasks = {row["key"]: row for row in prof.recording.tasks.to_dicts()}
    for row in results:
        task = tasks[row["key"]]
        assert row["computation"] == task["computation"]
        assert row["start"] == pytest.approx(task["collected"], abs=0.02)
        assert row["stop"] > row["start"]
    held = [row["stop"] - row["start"] for row in results if row["function"] == "total"]
    assert held[0] > 0.2
    # What is there at the end was there until then.
    (last,) = [row for row in results if row["metric"] == pytest.approx(2 * MB, abs=1000)]
    assert last["stop"] == pytest.approx(cprof.end_time, abs=0.5)
    assert "megabytes" in str(cprof.summary())
    assert len(recording.tasks) == 0
    del cached


def test_a_result_belongs_to_the_computation_that_made_it(client):
    with Profiler() as prof, CacheProfiler() as cprof:
        five = client.submit(megabytes, 5)
        five.result()
        # It is known, so that this graph, of another computation, has it too.
        assert client.submit(total, five).result() == 5 * MB
    made = {row["key"]: row["computation"] for row in prof.recording.tasks.to_dicts()}
    held = {row["key"]: row["computation"] for row in cprof.recording.cached_results.to_dicts()}
    assert len(set(made.values())) == 2
    assert held == made


@pytest.mark.leaves_files
def test_record_streams_results_and_other_metrics_are_left_out(client):
    def length(result):
        return 1.0

    with (
        record("run.diag") as recorded,
        CacheProfiler() as counts,
        CacheProfiler(length) as lengths,
    ):
        run(client)
    assert counts.recording.cached_results.metric.tolist() == [1.0] * 3
    assert len(lengths.recording.cached_results) == 0
    assert any("length is not called there" in text for text in lengths.recording.notices)
    for recording in (recorded.recording, load("run.diag")):
        sizes = sorted(recording.cached_results.metric.tolist())
        assert sizes[1:] == pytest.approx([5 * MB, 10 * MB], abs=1000)
        assert len(rows(recording, "megabytes")) == 2
        assert not any("counted once" in notice for notice in recording.notices)


def test_results_are_listed_once_whenever_they_are_asked_for(client):
    with CacheProfiler(nbytes) as cprof, CacheProfiler() as counted:
        (one,) = client.map(bytes, [1_000_000], key="one")
        one.result()
        del one
        gone(client)
        (first,) = cprof.results
        two = client.submit(bytes, 2_000_000, key=("two", 2))
        two.result()
    names = [(row.key, row.task.func.__name__) for row in cprof.results]
    assert names == [(first.key, "one"), (("two", 2), "two")]
    assert [row.metric for row in cprof.results] == pytest.approx([1e6, 2e6], abs=1000)
    assert [row.metric for row in counted.results] == [1, 1]
    table = cprof.recording.cached_results
    assert [row.cache_time for row in cprof.results] == table.start.tolist()
    assert [row.free_time for row in cprof.results] == table.stop.tolist()
