"""What tuning expects of a setting before it is tried."""

from __future__ import annotations

import math

import pytest

from dask_diag import findings, simulate
from dask_diag.analysis.simulation.schedulers import POOL_START
from dask_diag.tuning.candidates import candidates
from dask_diag.tuning.predictions import Predictions
from dask_diag.tuning.settings import Setting

from .test_finding_thresholds import tasks_that_hold_the_gil
from .test_gil_bound import sized, waiting

pytestmark = pytest.mark.once

PROCESSES = Setting("scheduler=processes", config={"scheduler": "processes"}, reason="gil-bound")


def test_another_scheduler_is_predicted_by_the_simulator():
    """Not by the finding that advises it: without the GIL, 20 s take 10 s; processes also start."""
    recording = tasks_that_hold_the_gil(size=1000)
    gain = Predictions(recording, findings(recording)).gain(PROCESSES, 20.0)
    assert gain == pytest.approx(20 / simulate(recording, scheduler="processes").seconds)
    assert gain < 1.8


def test_what_passes_between_processes_must_be_known():
    recording = tasks_that_hold_the_gil()
    assert math.isnan(Predictions(recording, findings(recording)).gain(PROCESSES, 20.0))


def test_no_more_processes_are_tried_than_there_are_cpus():
    """Of sixteen threads on two CPUs: two processes start in an eighth of the time of sixteen."""
    recording = sized(waiting(1 / 16, 0.0, 15 / 16, 16), 8.0)
    chosen = candidates(recording, findings(recording))[0]
    assert (chosen.name, chosen.reason) == ("scheduler=processes, 2 workers", "gil-bound")
    assert chosen.config == {"scheduler": "processes", "num_workers": "2"}
    gain = Predictions(recording, findings(recording)).gain(chosen, 40.0)
    assert gain == pytest.approx(40 / (20 + POOL_START), rel=0.03)
