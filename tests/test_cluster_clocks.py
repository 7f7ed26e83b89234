"""Workers whose clocks are not the scheduler's: where their times are, and how sure that is."""

from __future__ import annotations

import asyncio
import time
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("distributed")

from dask_diag import Profiler
from dask_diag.cluster import clocks as clocks_module
from dask_diag.cluster import plugin as plugin_module
from dask_diag.cluster import worker as worker_module
from dask_diag.cluster.clocks import compare_clocks
from dask_diag.cluster.wire import RUN
from dask_diag.cluster.workers_table import error_of, readings_of, to_other_clock

from .clusters import assert_adds_up, cluster
from .test_cluster_many_tasks import Driver


class SkewedClock:
    """A clock that is off by 1,000 s and loses a fiftieth of the time, or as it is said."""

    def __init__(self, offset=1000.0, drift=-1 / 50):
        self.origin = time.perf_counter()
        self.offset, self.drift = offset, drift

    def __call__(self):
        now = time.perf_counter()
        return now + self.offset + self.drift * (now - self.origin)


READ = {}


def reads_the_clock(n):
    start = time.perf_counter()
    time.sleep(0.05)
    READ[n] = start, time.perf_counter()


def test_clocks_of_workers_are_mapped_within_the_bound(monkeypatch):
    monkeypatch.setattr(worker_module, "clock_of", lambda worker: SkewedClock())
    monkeypatch.setattr(clocks_module, "_SECONDS_BETWEEN_PINGS", 0.1)
    READ.clear()
    with cluster(workers=1) as client, Profiler() as prof:
        # Each waits on the worker while the one before runs: that does not hide a wrong clock.
        futures = client.map(reads_the_clock, range(20))
        client.gather(futures)
    recording = prof.recording
    (worker,) = recording.workers.to_dicts()
    assert worker["clock_offset"] == pytest.approx(-1000, abs=0.2)
    bound = worker["clock_error"]
    assert 0 < bound < 0.05
    tasks = {row["key"]: row for row in recording.tasks.to_dicts()}
    assert len(tasks) == 20
    for n, future in enumerate(futures):
        row, (start, stop) = tasks[future.key], READ[n]
        # The clock is read just before the task and just after it.
        assert start - bound - 0.02 <= row["start"] <= start + bound
        assert stop - bound <= row["stop"] <= stop + bound + 0.02
        assert row["submitted"] <= row["start"] <= row["stop"] <= row["collected"]
    assert_adds_up(recording)


def reads_the_clock_after(n, before):
    return reads_the_clock(n)


def test_no_task_of_a_chain_over_workers_whose_clocks_differ_starts_before_it_was_sent(monkeypatch):
    """Each runs as soon as the scheduler has heard of the one before, at the other worker.

    One clock is 1,000 s ahead and loses, the other 1,000 s behind and gains: were they not mapped,
    or by another reading than their own, the order of the tasks would be another one.
    """
    clocks = iter([SkewedClock(1000.0, -1 / 50), SkewedClock(-1000.0, 1 / 50)])
    monkeypatch.setattr(worker_module, "clock_of", lambda worker: next(clocks))
    READ.clear()
    with cluster(workers=2) as client, Profiler() as prof:
        addresses = list(client.nthreads())
        futures = []
        for n in range(16):
            where = {"workers": [addresses[n % 2]], "pure": False}
            before = futures[-1] if futures else None
            futures.append(client.submit(reads_the_clock_after, n, before, **where))
        client.gather(futures)
    recording, (log,) = prof.recording, prof.clusters.logs
    workers = {row["worker"]: row for row in recording.workers.to_dicts()}
    offsets = sorted(row["clock_offset"] for row in workers.values())
    assert offsets == pytest.approx([-1000, 1000], abs=0.2)
    bounds = {name: row["clock_error"] for name, row in workers.items()}
    assert all(0 < bound < 0.05 for bound in bounds.values())
    tasks = {row["key"]: row for row in recording.tasks.to_dicts()}
    chain = [tasks[future.key] for future in futures]
    for n, row in enumerate(chain):
        bound = bounds[row["worker"].split("/")[0]]
        # The clock is read just before the task and just after it.
        assert READ[n][0] - bound - 0.02 <= row["start"] <= READ[n][0] + bound
        assert abs(row["stop"] - READ[n][1]) <= bound + 0.02
        assert row["submitted"] <= row["start"] <= row["stop"] <= row["collected"]
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
    READ.clear()
    with cluster(workers=1) as client, Profiler() as prof:
        time.sleep(seconds)
        futures = client.map(reads_the_clock, range(10))
        client.gather(futures)
    (worker,) = prof.recording.workers.to_dicts()
    bound = worker["clock_error"]
    assert 0 < bound < 0.05
    tasks = {row["key"]: row for row in prof.recording.tasks.to_dicts()}
    for n, future in enumerate(futures):
        assert abs(tasks[future.key]["stop"] - READ[n][1]) <= bound + 0.002
    # It is seen to drift: by a fiftieth of the time.
    readings = next(iter(prof.clusters.logs[0].workers.values())).facts["clock"]
    assert len(readings) >= 2
    assert (readings[-1][1] - readings[0][1]) / (readings[-1][0] - readings[0][0]) == pytest.approx(
        1 / 49, rel=0.1
    )


@given(
    st.lists(st.tuples(st.floats(0.1, 10), st.floats(-1e-3, 1e-3)), min_size=2, max_size=20),
    st.floats(0, 5),
)
def test_times_are_within_the_error_whenever_they_are_mapped(stretches, after):
    """From one reading to the next the other clock drifts in another way."""
    lengths, drifts = np.array(stretches).T
    at = np.concatenate([[0.0], np.cumsum(lengths)])
    offsets = np.concatenate([[7.0], 7.0 + np.cumsum(lengths * drifts)])
    readings = [(time, offset, 1e-4) for time, offset in zip(at, offsets, strict=True)]
    bound = error_of(readings, at[-1])
    assert bound >= 1e-4
    for count in range(1, len(readings)):
        # The last time that is mapped before the next reading comes.
        (mapped,) = to_other_clock(np.array([at[count]]), readings[:count])
        assert abs(mapped - at[count] - offsets[count]) <= bound
    drift = (offsets[-1] - offsets[0]) / at[-1]
    assert error_of(readings, at[-1] + after) == pytest.approx(bound + abs(drift) * after)


def test_the_error_of_one_reading_grows_as_clocks_do_that_are_set():
    assert error_of([], 100.0) == 0.0
    assert error_of([(10.0, 5.0, 0.1)], 5.0) == 0.1
    assert error_of([(10.0, 5.0, 0.1)], 20.0) == pytest.approx(0.1 + 10 * 5e-4)


def test_readings_of_a_clock_are_few_however_long_a_block_is():
    """Eight hours of them: each client is sent all with every new one."""
    driver = Driver(1)
    (address,) = driver.addresses
    plugin = driver.plugin
    for number in range(8 * 720):
        reading = [5.0 * number, 100.0 + 1e-6 * number, 1e-4]
        facts = {"clock": [reading], "measured": 1}
        asyncio.run(plugin.handle_worker(address, facts))
    driver.pull()
    readings = driver.log.workers[0].facts["clock"]
    assert 16 <= len(readings) <= plugin_module.MOST_READINGS
    assert readings[0][0] == 0.0
    assert [time for time, _, _ in readings][-16:] == [
        5.0 * n for n in range(8 * 720 - 16, 8 * 720)
    ]
    times = np.linspace(0, 8 * 3600, 1000)
    assert np.allclose(to_other_clock(times, readings), times + 100 + times * 1e-6 / 5)


@given(st.floats(-1e4, 1e4), st.floats(-0.1, 0.1), st.lists(st.floats(0, 100), min_size=2))
def test_a_clock_that_drifts_evenly_is_mapped_exactly(offset, drift, at):
    def offset_at(times):
        return offset + drift * times

    at = np.array([0.0, *at, 101.0])
    readings = [(time, offset_at(time), 0.0) for time in at]
    times = np.linspace(-10, 200, 50)
    expected = times + offset_at(times)
    assert np.allclose(to_other_clock(times, readings), expected, atol=1e-6)


def test_one_reading_is_an_offset_and_none_is_the_same_clock():
    times = np.array([1.0, 2.0])
    assert to_other_clock(times, [(0.0, 5.0, 0.1)]).tolist() == [6.0, 7.0]
    assert to_other_clock(times, []).tolist() == [1.0, 2.0]


def test_the_quickest_of_several_answers_is_the_best():
    """The other clock is 100 s ahead; answers take 2, 0.5 and 3 s, all of it on the way back."""
    now = 0.0
    delays = iter([2.0, 0.5, 3.0])

    async def ask():
        nonlocal now
        other = now + 100.0
        now += next(delays)
        return other

    coroutine = compare_clocks(ask, lambda: now, 3)
    with pytest.raises(StopIteration) as stopped:
        coroutine.send(None)
    reading = stopped.value.value
    assert reading.error == 0.25
    assert abs(reading.offset - 100.0) <= reading.error
