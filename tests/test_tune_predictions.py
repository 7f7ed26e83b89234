"""What tuning expects of a setting before it is tried."""

import math
from dataclasses import replace

import pytest

from dask_diag import Finding, findings, simulate
from dask_diag.analysis.simulation.schedulers import POOL_START
from dask_diag.tuning.candidates import Predictions, candidates
from dask_diag.tuning.settings import Setting

from .recordings import Task, run, with_columns
from .test_finding_thresholds import tasks_that_hold_the_gil, tasks_with_overhead
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


def test_what_a_cause_loses_is_no_prediction_of_another_scheduler():
    """Larger chunks gain nearly all of the overhead; one thread gains what is not known."""
    recording = tasks_with_overhead(1000, 1e-4, 1e-3)
    of_it = findings(recording)
    sync = next(
        setting for setting in candidates(recording, of_it) if setting.scheduler == "synchronous"
    )
    assert sync.reason == "tasks-too-small"
    assert math.isnan(Predictions(recording, of_it).gain(sync, recording.stop))
    # Nor is that of more workers, if it is not known how many.
    some = Setting("some", config={"num_workers": "some"}, reason=sync.reason)
    assert math.isnan(Predictions(recording, of_it).gain(some, recording.stop))


def test_what_a_setting_takes_out_is_what_its_finding_says():
    recording = tasks_that_hold_the_gil()
    pools = Finding("thread-oversubscription", "high", 5.0, "", "", certainty="estimate")
    single = Setting("one", {"OMP_NUM_THREADS": "1"}, reason=pools.code)
    assert Predictions(recording, [pools]).gain(single, 20.0) == pytest.approx(20 / 15)
    both = replace(single, config={"num_workers": "2"})
    assert math.isnan(Predictions(recording, [pools]).gain(both, 20.0))


def in_one_batch():
    """Six tasks of a second, which one of two worker processes was sent; two were for the other."""
    tasks = [Task(n, n + 1, worker=0) for n in range(6)]
    tasks += [Task(n, n + 1, worker=1) for n in range(2)]
    tasks = [task._replace(collected=2.0 if task.worker else 6.0) for task in tasks]
    recording = run(tasks, 6, scheduler="processes")
    return with_columns(recording, "tasks", submitted=[0.0] * 8)


def test_smaller_batches_are_tried_where_tasks_wait_in_batches():
    recording, uneven = (
        in_one_batch(),
        Finding("batched-tasks", "high", 2.0, "", "", certainty="estimate"),
    )
    smaller = candidates(recording, [uneven])[0]
    assert (smaller.config, smaller.reason) == ({"chunksize": "1"}, "batched-tasks")
    assert smaller.environment == {"DASK_CHUNKSIZE": "1"}
    assert not [setting for setting in candidates(recording, []) if "chunksize" in setting.config]
    # Four for each.
    gain = Predictions(recording, [uneven]).gain(smaller, 6.0)
    assert gain == pytest.approx(6 / 4, rel=1e-3)
    # Threads are sent one task at a time.
    threads = tasks_that_hold_the_gil()
    assert not [
        setting for setting in candidates(threads, [uneven]) if "chunksize" in setting.config
    ]
    assert math.isnan(Predictions(threads, [uneven]).gain(smaller, 20.0))
