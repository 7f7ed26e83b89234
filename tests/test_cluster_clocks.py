"""Workers whose clocks are not the scheduler's: where their times are, and how sure that is."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import numpy as np
import pytest

pytest.importorskip("distributed")

from dask_diag import Profiler
from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster import worker as worker_module
from dask_diag.cluster.clocks import compare_clocks
from dask_diag.cluster.wire import RUN
from dask_diag.cluster.workers_table import readings_of, to_other_clock

from .clusters import assert_adds_up, cluster
from .test_cluster_many_tasks import Driver

READ = {}


class SkewedClock:
    """A clock that is off by 1,000 s and loses a fiftieth of the time, or as it is said."""

    def __init__(self, offset=1000.0, drift=-1 / 50):
        self.origin = time.perf_counter()
        self.offset, self.drift = offset, drift

    def __call__(self):
        now = time.perf_counter()
        return now + self.offset + self.drift * (now - self.origin)


def reads_the_clock(n, before=None):
    start = time.perf_counter()
    time.sleep(0.05)
    READ[n] = start, time.perf_counter()


def assert_times_are_within(bounds, tasks):
    """Of each task its number, row and worker's bound: the clock is read just around it."""
    for n, row in enumerate(tasks):
        bound = bounds[row["worker"].split("/")[0]]
        assert READ[n][0] - bound - 0.02 <= row["start"] <= READ[n][0] + bound
        assert READ[n][1] - bound <= row["stop"] <= READ[n][1] + bound + 0.02
        assert row["submitted"] <= row["start"] <= row["stop"] <= row["collected"]


def test_no_task_of_a_chain_over_workers_whose_clocks_differ_starts_before_it_was_sent(monkeypatch):
    """Each runs as soon as the scheduler has heard of the one before, at the other worker.

    One clock is 1,000 s ahead and loses, the other 1,000 s behind and gains: were they not mapped,
    or by another reading than their own, the order of the tasks would be another one.
    """
    clocks = iter([SkewedClock(1000.0, -1 / 50), SkewedClock(-1000.0, 1 / 50)])
    monkeypatch.setattr(worker_module, "clock_of", lambda worker: next(clocks))
    with cluster() as client, Profiler() as prof:
        addresses = list(client.nthreads())
        futures = [None]
        for n in range(16):
            where = {"workers": [addresses[n % 2]], "pure": False}
            futures.append(client.submit(reads_the_clock, n, futures[-1], **where))
        client.gather(futures[1:])
    recording, (log,) = prof.recording, prof.clusters.logs
    workers = {row["worker"]: row for row in recording.workers.to_dicts()}
    offsets = sorted(row["clock_offset"] for row in workers.values())
    assert offsets == pytest.approx([-1000, 1000], abs=0.2)
    bounds = {name: row["clock_error"] for name, row in workers.items()}
    assert all(0 < bound < 0.05 for bound in bounds.values())
    tasks = {row["key"]: row for row in recording.tasks.to_dicts()}
    chain = [tasks[future.key] for future in futures[1:]]
    assert_times_are_within(bounds, chain)
    for before, after in pairwise(chain):
        assert before["worker"] != after["worker"]
        # One message: the whole microseconds before it and after it.
        assert before["collected"] == pytest.approx(after["submitted"], abs=2e-6)
    # Nor does any by the clocks alone, whose error tables take away where it can be seen.
    for batch in log.batches:
        for run in np.frombuffer(batch.rows, RUN.dtype):
            bound = bounds[log.labels[run["worker"]]]
            readings = readings_of(log.workers[run["worker"]])
            (start, stop) = to_other_clock(np.array([run["start"], run["stop"]]), readings)
            assert run["submitted"] - bound <= start < stop <= run["collected"] + bound
    assert_adds_up(recording)


@pytest.mark.parametrize("seconds", [0.1, 1.2])
def test_a_clock_that_drifts_is_mapped_within_the_bound_in_short_blocks(seconds, monkeypatch):
    """With the comparisons as they are: at the start, when some time has passed, and at the end."""
    monkeypatch.setattr(worker_module, "clock_of", lambda worker: SkewedClock())
    with cluster(workers=1) as client, Profiler() as prof:
        time.sleep(seconds)
        # Each waits on the worker while the one before runs: that does not hide a wrong clock.
        futures = client.map(reads_the_clock, range(10))
        client.gather(futures)
    (worker,) = prof.recording.workers.to_dicts()
    assert 0 < worker["clock_error"] < 0.05
    tasks = {row["key"]: row for row in prof.recording.tasks.to_dicts()}
    bounds = {worker["worker"]: worker["clock_error"]}
    assert_times_are_within(bounds, [tasks[future.key] for future in futures])
    # It is seen to drift: by a fiftieth of the time.
    (log,) = prof.clusters.logs
    (first, *_, last) = readings_of(*log.workers.values())
    assert (last[1] - first[1]) / (last[0] - first[0]) == pytest.approx(1 / 49, rel=0.1)


def test_readings_of_a_clock_are_few_however_long_a_block_is():
    """Eight hours of them: each client is sent all with every new one."""
    driver, count = Driver(1), 8 * 720
    for number in range(count):
        reading = [5.0 * number, 100.0 + 1e-6 * number, 1e-4]
        facts = {"clock": [reading], "measured": 1}
        asyncio.run(driver.plugin.handle_worker(driver.addresses[0], facts))
    driver.pull()
    readings = readings_of(driver.log.workers[0])
    assert 16 <= len(readings) <= plugin_module.MOST_READINGS
    assert readings[0][0] == 0.0
    assert [time for time, _, _ in readings][-16:] == [5.0 * n for n in range(count - 16, count)]
    times = np.linspace(0, 5 * count, 1000)
    assert np.allclose(to_other_clock(times, readings), times + 100 + times * 1e-6 / 5)


def test_the_quickest_of_several_answers_is_the_best():
    """The other clock is 100 s ahead; answers take 2, 0.5 and 3 s, all of it on the way back."""
    now = 0.0
    delays = iter([2.0, 0.5, 3.0])

    async def ask():
        nonlocal now
        other = now + 100.0
        now += next(delays)
        return other

    reading = asyncio.run(compare_clocks(ask, lambda: now, 3))
    assert reading.error == 0.25
    assert abs(reading.offset - 100.0) <= reading.error
