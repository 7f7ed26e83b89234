"""More tasks at once are advised where there is memory for them, and only there."""

from __future__ import annotations

import os
import sys
import time
from dataclasses import replace

import dask
import numpy as np
import psutil
import pytest

from dask_diag import findings, load, record
from dask_diag.analysis.memory import workers_that_fit
from dask_diag.analysis.what_if import what_if
from dask_diag.tuning.candidates import candidates, more_workers
from dask_diag.tuning.settings import Setting
from dask_diag.views.what_if import what_if_summary

from .tables import filled_table, with_tables
from .test_cluster_findings import addressed, by_code, tasks_of, with_columns
from .test_finding_thresholds import Task, run, with_waits
from .test_findings_of_workers import sleeping

pytest.importorskip("distributed")

from .clusters import cluster

MB = 1e6
NOT_RECORDED = "which was not recorded"


def with_memory(made, base, peak, limit, children=0.0):
    """The same on a machine; memory is read before tasks run, while they do, and when they have."""
    made = with_columns(made, "computations", memory_limit=[limit * MB])
    resources = {
        "time": [-0.5, 1.0, 2.0, made.stop],
        "memory": [base * MB, peak * MB, peak * MB, base * MB],
        "memory_children": [0.0, children * MB, 0.0, 0.0],
    }
    return replace(made, start=-1.0, resources=filled_table("resources", resources))


def on_workers(made, base, peak, limit, first=-0.5, label="{}"):
    """The same of each worker of a cluster."""
    names = made.workers.worker.tolist()
    made = with_columns(addressed(made, cpus=[4] * len(names)), "workers")
    made = with_columns(made, "workers", memory_limit=[limit * MB] * len(names))
    processes = {
        "time": [first, 1.0, 2.0] * len(names),
        "pid": np.repeat(np.arange(len(names)) + 100, 3),
        "is_child": [1] * 3 * len(names),
        "memory": [base * MB, peak * MB, base * MB] * len(names),
        "worker": [label.format(name) for name in names for _ in range(3)],
    }
    return replace(made, start=-1.0, processes=filled_table("processes", processes))


@pytest.mark.parametrize(
    ("limit", "advised"),
    [
        # Two tasks have 200 MB, and 100 MB were there before: eight need 900 MB, which is 80%.
        (1130, "num_workers=8"),
        (1120, "num_workers=4"),
        (625, "num_workers=4"),
        (620, None),
        (300, None),
        (100, None),
    ],
)
def test_threads_are_advised_for_whose_tasks_there_is_memory(limit, advised):
    made = with_memory(with_waits(sleeping(16), "sleep"), 100, 300, limit)
    finding = by_code(made).get("too-few-threads")
    assert (finding and finding.advice) == (advised and f"run more tasks at once: {advised}")


@pytest.mark.parametrize(("scheduler", "workers"), [("processes", 2), ("synchronous", 1)])
@pytest.mark.parametrize(("limit", "is_found"), [(4000, True), (600, False)])
def test_the_memory_of_worker_processes_counts(scheduler, workers, limit, is_found):
    """What grows to 400 MB in all, of 100 MB, is too much for twice as much in 480 MB."""
    tasks = with_waits(sleeping(16, workers=workers, scheduler=scheduler), "sleep")
    made = with_memory(tasks, 100, 100, limit, children=300)
    finding = by_code(made).get("too-few-threads")
    assert (finding is not None) == is_found
    assert not finding or "scheduler='threads'" in finding.advice


def test_what_was_held_before_is_no_memory_of_tasks():
    """Of 900 MB, 850 MB were there: four times the 50 MB fit in the 1,100 MB that may be used."""
    made = with_memory(with_waits(sleeping(16), "sleep"), 850, 900, 1375)
    assert "num_workers=8" in by_code(made)["too-few-threads"].advice
    # Read first while tasks ran, all of it may be of tasks.
    rows = made.resources.rows(made.resources.time > 0)
    assert "too-few-threads" not in by_code(replace(made, resources=rows))


@pytest.mark.parametrize("columns", [{"time": [-0.5] * 4}, {"memory": [np.nan] * 4}])
def test_it_is_said_that_memory_is_not_known(columns):
    made = with_memory(with_waits(sleeping(16), "sleep"), 100, 300, 300)
    finding = by_code(with_columns(made, "resources", **columns))["too-few-threads"]
    assert finding.advice.endswith(NOT_RECORDED)


@pytest.mark.parametrize(
    ("limit", "advised"),
    [
        (1200, "num_workers=8 could save"),
        (1000, "num_workers=6 could save"),
        (620, "more tasks at once would not fit into memory"),
    ],
)
def test_io_bound_advises_as_many_as_fit(limit, advised):
    finding = by_code(with_memory(with_waits(sleeping(16), "io-wait"), 100, 300, limit))["io-bound"]
    assert advised in finding.advice
    assert ("num_workers" in finding.advice) == (limit > 620)
    assert NOT_RECORDED not in finding.advice


@pytest.mark.parametrize(("limit", "fits"), [(2000, True), (1000, False)])
def test_results_are_computed_together_where_they_fit(limit, fits):
    """One task of four workers at a time: four at once need 900 MB."""
    made = run([Task(0, 10.0)], workers=4, cpus=4)
    twice = {"computation": ["c", "d"], "start": [0.0, 10.0], "stop": [10.0, 20.0]}
    limits = [limit * MB] * 2
    made = with_columns(made, "computations", 2, memory_limit=limits, **twice)
    times = {"submitted": twice["start"], "collected": twice["stop"], **twice}
    made = replace(with_columns(made, "tasks", 2, **times), stop=20.0)
    resources = {
        "time": [-0.5, 1.0, 11.0],
        "memory": [100 * MB, 300 * MB, 300 * MB],
        "memory_children": [0.0] * 3,
    }
    made = replace(made, start=-1.0, resources=filled_table("resources", resources))
    advice = by_code(made)["chunks-too-large"].advice
    assert ("together" in advice) == fits
    assert "make chunks smaller" in advice


@pytest.mark.parametrize("label", ["{}", "client, scheduler, {}"])
@pytest.mark.parametrize(("limit", "threads"), [(1200, 4), (1000, 2), (620, None)])
def test_threads_of_workers_are_advised_for_whose_tasks_there_is_memory(limit, threads, label):
    made = on_workers(with_waits(tasks_of(16, "ab"), "sleep"), 100, 300, limit, label=label)
    finding = by_code(made).get("too-few-threads")
    assert (finding is not None) == (threads is not None)
    assert not finding or f"threads_per_worker={threads} " in finding.advice
    assert not finding or NOT_RECORDED not in finding.advice


def test_a_worker_that_was_read_first_while_tasks_ran_may_have_had_nothing_before():
    made = on_workers(with_waits(tasks_of(16, "ab"), "sleep"), 250, 300, 620, first=0.5)
    assert "too-few-threads" not in by_code(made)
    made = on_workers(with_waits(tasks_of(16, "ab"), "sleep"), 250, 300, 620)
    assert "too-few-threads" in by_code(made)


@pytest.mark.parametrize("event", ["paused", "disk-write", "disk-read"])
@pytest.mark.parametrize("activity", ["sleep", "io-wait"])
def test_nothing_more_at_once_is_advised_where_a_worker_was_short_of_memory(event, activity):
    """However short, and whatever was sampled of it."""
    made = on_workers(with_waits(tasks_of(16, "ab"), activity), 100, 110, 10_000)
    more = ("threads_per_worker", "run more", "more tasks at once: ")
    assert any(text in f.advice for f in by_code(made).values() for text in more)
    rows = {"computation": ["s"], "worker": ["a"], "event": [event], "bytes": [100.0]}
    rows |= {"start": [1.0], "stop": [1.001]}
    made = with_tables(made, worker_events=rows)
    results = by_code(made)
    assert "too-few-threads" not in results
    assert not any(text in f.advice for f in results.values() for text in more)


def test_more_processes_are_advised_against_the_gil_where_there_is_memory():
    made = with_waits(tasks_of(16, "ab", threads=2, cpu=0.3), "gil-wait")
    assert "more worker processes" in by_code(on_workers(made, 100, 110, 1000))["gil-bound"].advice
    finding = by_code(on_workers(made, 100, 900, 1000))["gil-bound"]
    assert "more worker processes" not in finding.advice


def names(made):
    return {setting.name for setting in candidates(made, list(findings(made)))}


def test_tune_tries_no_more_workers_than_fit():
    made = with_waits(sleeping(16), "sleep")
    assert {"4 workers", "8 workers"} <= names(with_memory(made, 100, 300, 1200))
    assert {"4 workers", "8 workers"} & names(with_memory(made, 100, 300, 1000)) == {"4 workers"}
    assert not {"4 workers", "8 workers"} & names(with_memory(made, 100, 300, 600))
    assert "1 worker" in names(with_memory(made, 100, 300, 600))
    best = Setting("4 workers", config={"num_workers": "4"})
    most = workers_that_fit(with_memory(made, 100, 300, 1000))
    assert more_workers([best], [best], most) is None
    assert more_workers([best], [best]).workers == 8


@pytest.mark.parametrize(("limit", "is_tried"), [(2000, True), (600, False)])
def test_tune_tries_other_schedulers_with_more_at_once_where_they_fit(limit, is_tried):
    made = run([Task(n, n + 1.0) for n in range(8)], workers=1, cpus=4, scheduler="synchronous")
    tried = names(with_memory(made, 100, 300, limit))
    schedulers = {name.partition(",")[0] for name in tried}
    assert ({"scheduler=threads", "scheduler=processes"} <= schedulers) == is_tried
    assert bool({"scheduler=threads", "scheduler=processes"} & schedulers) == is_tried


@pytest.mark.parametrize(("limit", "said"), [(1200, None), (1000, "7 workers"), (200, "2 workers")])
def test_what_if_says_for_how_many_workers_there_is_memory(limit, said):
    made = with_memory(sleeping(16), 100, 300, limit)
    text = " ".join(what_if_summary(what_if(made), made).split())
    assert ("there is memory for the tasks of" in text) == (said is not None)
    assert said is None or f"the tasks of {said} at most" in text


def holds(megabytes, seconds):
    held = np.ones(megabytes * 125_000)
    time.sleep(seconds)
    return float(held[0])


@pytest.mark.leaves_files
@pytest.mark.skipif(sys.platform != "linux", reason="waits are recorded on Linux")
@pytest.mark.parametrize("fits", [True, False])
def test_on_a_cluster_threads_are_advised_where_tasks_fit(fits, retried):
    """Two tasks at once need 100 MB; a third would, too."""
    used = psutil.Process(os.getpid()).memory_info().rss
    limit = used * 10 + 2_000 * MB if fits else (used + 150 * MB) / 0.8

    def measure():
        with (
            dask.config.set({"distributed.worker.memory.spill": False}),
            cluster(workers=1, threads=2, memory_limit=int(limit)) as client,
        ):
            with record("run.diag", overwrite=True, waits=True):
                client.gather([client.submit(holds, 50, 0.3, pure=False) for _ in range(6)])
        advice = {finding.code: finding.advice for finding in findings(load("run.diag"))}
        assert ("too-few-threads" in advice) == fits
        assert fits == ("threads_per_worker" in " ".join(advice.values()))

    retried(measure)
