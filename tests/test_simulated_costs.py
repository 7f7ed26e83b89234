"""What scheduling costs is read from a recording: against dask's scheduler with known costs."""

from dataclasses import replace

import numpy as np
import pytest

from dask_diag import simulate
from dask_diag.analysis.simulation.calibrate import timestamps_of, works_of
from dask_diag.analysis.simulation.schedulers import COSTS as OF_SCHEDULERS
from dask_diag.analysis.simulation.simulate import Simulator
from dask_diag.analysis.simulation.work import STEPS

from .recordings import with_columns, with_tables
from .test_simulate import several
from .virtual_dask import Costs, run_with_costs

pytestmark = pytest.mark.once

COSTS = Costs(
    prepare=1e-3,
    submit=5e-4,
    wake=2e-4,
    gap=1e-4,
    deliver=1e-4,
    notice=3e-4,
    collect=4e-4,
    startup=(),
    graph=0.02,
    after=0.01,
)
IN_PROCESSES = replace(COSTS, startup=(0.5, 0.4, 0.3))
LONG, SHORT = 0.05, 0.0004


def run(lasted, workers, costs=COSTS, **scheduler):
    """Fifty tasks, and one after each; they last from so long to twice as long."""
    dsk = {("t", n): (int,) for n in range(50)} | {("u", n): (int, ("t", n)) for n in range(50)}
    seconds = dict(zip(dsk, lasted * (1 + np.random.default_rng(1).random(100)), strict=True))
    return run_with_costs(dsk, seconds, workers, costs, **scheduler)


@pytest.mark.parametrize("lasted", [LONG, SHORT])
def test_costs_of_processes_are_those_that_there_were(lasted):
    """Of short tasks, results wait for the scheduler; for long ones it waits."""
    processes = {"scheduler": "processes", "chunksize": 6}
    recording = run(lasted, 3, IN_PROCESSES, **processes)
    assert simulate(recording).seconds == pytest.approx(recording.stop, rel=1e-9)
    # Six start half as long again: each has two thirds of one of the four CPUs.
    for workers, startup in ((2, (0.5, 0.4)), (6, (0.75, 0.6, 0.45, 0.75, 0.75, 0.75))):
        costs = replace(IN_PROCESSES, startup=startup)
        truth = run(lasted, workers, costs, **processes).stop
        assert simulate(recording, workers=workers).seconds == pytest.approx(truth, rel=1e-3)
    work = works_of(recording)["c"]
    assert (work.batch, work.workers) == (6, 3)
    assert (work.graph, work.after) == pytest.approx((COSTS.graph, COSTS.after))
    assert work.startup == pytest.approx(IN_PROCESSES.startup, abs=0.001)
    np.testing.assert_allclose(np.median(work.prepare), COSTS.prepare)
    np.testing.assert_allclose(work.gap, COSTS.gap)
    np.testing.assert_allclose(work.collect, COSTS.collect)
    # Between these, no moment was recorded; results arrive a nanosecond apart.
    np.testing.assert_allclose(work.wake + work.submit, COSTS.wake + COSTS.submit)
    noticed = work.deliver + work.notice
    np.testing.assert_allclose(noticed, COSTS.deliver + COSTS.notice, atol=1e-7)


def test_later_batches_that_wait_for_data_do_not_hide_the_start_of_processes():
    """Each batch waits for 200 ms, the first ones for the start of their process only."""
    slow = replace(IN_PROCESSES, wake=0.2)
    recording = run(LONG, 3, slow, scheduler="processes", chunksize=6)
    assert works_of(recording)["c"].startup == pytest.approx(slow.startup, abs=0.02)
    names = np.array(recording.tasks.worker.tolist())
    starts = {name: recording.tasks.start[names == name].min() for name in set(names)}
    for before, startup in ((0.0, (0.7, 0.6, 0.5)), (0.3, slow.startup)):
        joined = {"pid": list(starts), "joined": [start - before for start in starts.values()]}
        known = with_tables(recording, workers={"computation": ["c"] * 3, **joined})
        known = with_columns(known, "tasks", pid=names.tolist())
        assert works_of(known)["c"].startup == pytest.approx(startup, abs=0.02)


def test_costs_of_threads_are_those_that_there_were():
    recording = run(LONG, 3)
    assert simulate(recording).seconds == pytest.approx(recording.stop, rel=1e-6)
    for workers in (1, 12):
        truth = run(LONG, workers).stop
        assert simulate(recording, workers=workers).seconds == pytest.approx(truth, rel=3e-3)
    work = works_of(recording)["c"]
    assert (work.batch, work.startup) == (1, ())
    np.testing.assert_allclose(np.median(work.prepare), COSTS.prepare)
    assert work.submit == pytest.approx(COSTS.submit, rel=0.2)
    assert np.median(work.wake) + work.submit == pytest.approx(COSTS.wake + COSTS.submit)
    np.testing.assert_allclose(np.median(work.deliver + work.notice), COSTS.deliver + COSTS.notice)
    steps = 99 * COSTS.prepare + 100 * (COSTS.collect + COSTS.submit)
    assert simulate(recording).scheduling == pytest.approx(steps, rel=0.1)
    assert simulate(recording).preparing == pytest.approx(0.02 + 0.001 + 0.01)
    without = simulate(recording, remove={"overhead", "graph"}).seconds
    assert without == pytest.approx(work.seconds.sum() / 3 + COSTS.after, rel=0.02)


def test_where_the_scheduler_is_always_busy_more_workers_gain_nothing():
    recording = run(SHORT, 6)
    assert simulate(recording).seconds == pytest.approx(recording.stop, rel=1e-6)
    of_a_task = COSTS.prepare + COSTS.submit + COSTS.collect
    for workers in (6, 50):
        predicted = simulate(recording, workers=workers).seconds
        assert predicted == pytest.approx(run(SHORT, workers).stop, rel=0.01)
        assert predicted > 100 * of_a_task


@pytest.fixture(scope="module")
def in_processes():
    return run(SHORT, 3, IN_PROCESSES, scheduler="processes", chunksize=6)


def test_what_could_be_removed_is_what_there_was(in_processes):
    simulator = Simulator(in_processes)
    of_a_task = sum(getattr(COSTS, name) for name in STEPS)
    assert simulator.seconds_of("overhead") == pytest.approx(100 * of_a_task, abs=1e-5)
    assert simulator.seconds_of("graph") == pytest.approx(0.02)
    assert simulator.seconds_of("startup") == pytest.approx(0.5 + 0.4 + 0.3)
    assert simulator.seconds_of("thread-noncpu") == pytest.approx(
        (in_processes.tasks.stop - in_processes.tasks.start).sum()
    )
    assert simulator.seconds_of("gil-wait") == 0.0


def test_when_tasks_occupied_their_workers_follows_from_what_is_known():
    """A task that was moved; one of a thread; one that did not start, and one that did not stop."""
    nan = np.nan
    recording = several([0.0], [10.0], 10.0)
    tasks = {
        "computation": ["c0"] * 5,
        "outcome": ["ok", "ok", "failed", "unfinished", "ok"],
        "submitted": [1, 1, 2, nan, 4],
        "start": [3, 2, nan, 3, 3.5],
        "stop": [4, 5, nan, nan, 5],
        "collected": [7, 6, 2.5, nan, 4.5],
    }
    transfers = {
        "task": [0] * 4,
        "side": ["scheduler", "worker", "worker", "scheduler"],
        "activity": ["serialize", "deserialize", "serialize", "deserialize"],
        "start": [1.0, 2.5, 4.0, 6.0],
        "stop": [1.5, 3.0, 5.5, 6.5],
        "bytes": [8] * 4,
    }
    timestamps = timestamps_of(with_tables(recording, tasks=tasks, transfers=transfers))
    # With its transfers; never before it was submitted; until the end, if it did not stop.
    for name, expected in {
        "submitted": [1.5, 1, 2, 3, 4],
        "start": [2.5, 2, 2, 3, 4],
        "stop": [5.5, 5, 10, 10, 5],
        "received": [6, nan, nan, nan, nan],
        "collected": [7, 6, 10, 10, 5],
    }.items():
        np.testing.assert_array_equal(getattr(timestamps, name), expected)


def test_computations_may_be_listed_in_any_order_and_start_long_after_they_were_called():
    """One is called at 1 and runs from 3 to 5; the other, called at 6, from 6 to 8."""
    recording = several([3.0, 6.0], [5.0, 8.0], 9.0)
    times = {"called": [1.0, np.nan], "prepared": [3.0, np.nan]}
    called = with_columns(recording, "computations", **times)
    reverse = called.computations.filter(np.array([1, 0]))
    for listed in (called, replace(called, computations=reverse)):
        assert simulate(listed).seconds == pytest.approx(9)
        assert simulate(listed).outside == pytest.approx(1 + 1 + 1)
        assert simulate(listed, remove={"graph"}).seconds == pytest.approx(7)
        assert simulate(listed, speedup={"c0": 2, "c1": 2}).seconds == pytest.approx(7)
        assert sorted(simulate(listed).computations["seconds"]) == pytest.approx([2, 4])


@pytest.mark.parametrize("share", [0.4, 0.02])
def test_the_scheduler_waits_for_the_gil_in_the_share_of_time_in_which_tasks_hold_it(share):
    """Against dask's scheduler without a part of its costs, and shorter tasks."""
    recording = run(LONG, 3)
    took = recording.tasks.stop - recording.tasks.start
    recording = with_columns(recording, "tasks", thread_cpu=took / 3, thread_noncpu=took * 2 / 3)
    rows = np.arange(len(took))
    kinds = {"gil-wait": share, "sleep": 2 / 3 - share, "cpu-wait": 0.0}
    waits = {
        "task": np.tile(rows, 3),
        "activity": np.repeat([*kinds], len(rows)).tolist(),
        "seconds": np.concatenate([took * part for part in kinds.values()]),
        "samples": np.repeat([round(10_000 * part) for part in kinds.values()], len(rows)),
    }
    simulator = Simulator(with_tables(recording, waits=waits))
    # Of three tasks that always hold it, each waits for it in two thirds of its time.
    held = took.sum() / 3 * np.sqrt(share * 3 / 2) / recording.stop
    assert simulator.gil_held(simulator.works["c"]) == pytest.approx(held, rel=0.02)
    without = simulator.simulate(remove={"gil-wait"}).seconds
    steps = {
        name: least + (1 - held) * (getattr(COSTS, name) - least)
        for name in ("prepare", "submit", "wake", "deliver", "notice", "collect")
        for least in [getattr(OF_SCHEDULERS["threads"], name)]
    }
    truth = run(LONG * (1 - share), 3, replace(COSTS, **steps)).stop
    assert without == pytest.approx(truth, rel=2e-3)
    assert simulator.simulate().seconds == pytest.approx(recording.stop, rel=1e-6)
