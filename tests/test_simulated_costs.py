"""What scheduling costs is read from a recording: against dask's scheduler with known costs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag import simulate
from dask_diag.analysis.simulation.calibration import works_of

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
    for workers in (2, 6):
        costs = replace(IN_PROCESSES, startup=IN_PROCESSES.startup[:workers])
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
    without = simulate(recording, remove={"overhead", "graph"}).seconds
    assert without == pytest.approx(work.seconds.sum() / 3 + COSTS.after, rel=0.02)


def test_where_the_scheduler_is_always_busy_more_workers_gain_nothing():
    recording = run(SHORT, 6)
    assert simulate(recording).seconds == pytest.approx(recording.stop, rel=1e-6)
    each = COSTS.prepare + COSTS.submit + COSTS.collect
    for workers in (6, 50):
        predicted = simulate(recording, workers=workers).seconds
        assert predicted == pytest.approx(run(SHORT, workers).stop, rel=0.01)
        assert predicted > 100 * each
