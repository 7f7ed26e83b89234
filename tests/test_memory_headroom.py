"""More tasks at once are advised where there is memory for them, and only there."""

import os
import sys
import time
from dataclasses import replace

import dask
import numpy as np
import psutil
import pytest

from dask_diag import findings, load, record, what_if
from dask_diag.analysis.memory import memory_headroom
from dask_diag.tuning.candidates import candidates, more_workers
from dask_diag.tuning.settings import Setting
from dask_diag.views.what_if import what_if_summary

from .recordings import (
    MB,
    Task,
    by_code,
    check,
    filled_table,
    in_rounds,
    run,
    with_columns,
    with_tables,
    with_waits,
)
from .test_cluster_findings import addressed, tasks_of

pytest.importorskip("distributed")

from .clusters import cluster

NOT_RECORDED = "memory was not recorded"


def with_memory(made, base, peak, limit, children=0.0):
    """The same on a machine; memory is read before tasks run, while they do, and when they have."""
    made = with_columns(made, "computations", memory_limit=[limit * MB])
    resources = {
        "time": [-0.5, 1.0, 2.0, made.stop],
        "memory": [base * MB, peak * MB, peak * MB, base * MB],
        "memory_children": [0.0, children * MB, 0.0, 0.0],
    }
    return replace(made, start=-1.0, resources=filled_table("resources", resources))


def on_workers(base=100, peak=300, limit=1000, first=-0.5, label="{}", activity="sleep", **tasks):
    """Memory of two workers of a cluster, whose tasks wait."""
    made = with_waits(tasks_of(16, "ab", **tasks), activity)
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


def waiting(limit, base=100, peak=300, activity="sleep", **columns):
    made = with_memory(with_waits(in_rounds(16), activity), base, peak, limit)
    return with_columns(made, "resources", **columns) if columns else made


def with_children(limit, scheduler, workers):
    """What grows to 400 MB in all, of 100 MB, is too much for twice as much in 480 MB."""
    tasks = with_waits(in_rounds(16, workers, scheduler=scheduler), "sleep")
    return with_memory(tasks, 100, 100, limit, children=300)


def read_while_tasks_ran():
    """Read first then, all of the memory may be of tasks."""
    made = waiting(1375, 850, 900)
    return replace(made, resources=made.resources.filter(made.resources.time > 0))


@pytest.mark.parametrize(
    "code, made, cases",
    [
        # Two tasks have 200 MB, and 100 MB were there before: eight need 900 MB, which is 80%.
        (
            "too-few-threads",
            waiting,
            {
                1130: ("num_workers=8; 2 workers needed 300 MB of 1.13 GB: at most 8 fit"),
                1120: "; run more tasks at once: num_workers=4; ",
                625: "num_workers=4; 2 workers needed 300 MB of 625 MB: at most 4 fit",
                **dict.fromkeys((620, 300, 100)),
                # Of 900 MB, 850 MB were there: four times the 50 MB fit into 1,100 MB.
                (1375, 850, 900): "num_workers=8",
            },
        ),
        ("too-few-threads", read_while_tasks_ran, {(): None}),
        (
            "too-few-threads",
            waiting,
            [
                ({"limit": 300, "time": [-0.5] * 4}, f"{NOT_RECORDED}: "),
                ({"limit": 300, "memory": [np.nan] * 4}, f"{NOT_RECORDED}: "),
            ],
        ),
        (
            "too-few-threads",
            with_children,
            {
                (limit, *scheduler): expected
                for scheduler in (("processes", 2), ("synchronous", 1))
                for limit, expected in {4000: "scheduler='threads'", 600: None}.items()
            },
        ),
        (
            "io-bound",
            lambda limit: waiting(limit, activity="io-wait"),
            {
                1200: ("num_workers=8; or", f"not: {NOT_RECORDED}"),
                1000: ("num_workers=4; or", f"not: {NOT_RECORDED}"),
                620: ("more tasks at once would not fit into memory", "not: num_workers"),
            },
        ),
        (
            "too-few-threads",
            lambda limit, label: on_workers(limit=limit, label=label),
            {
                (limit, label): advised
                and (f"threads_per_worker={advised} ", "a worker process needed 300 MB of")
                for label in ("{}", "client, scheduler, {}")
                for limit, advised in {1200: 4, 1000: 2, 620: None}.items()
            },
        ),
        # A worker that was read first while tasks ran may have had nothing before.
        (
            "too-few-threads",
            lambda first: on_workers(250, 300, 620, first),
            {0.5: None, -0.5: True},
        ),
        # More processes are advised against the GIL where there is memory.
        (
            "gil-bound",
            lambda peak: on_workers(100, peak, 1000, activity="gil-wait", threads=2, cpu=0.3),
            {110: "more worker processes", 900: "not: more worker processes"},
        ),
    ],
)
def test_more_tasks_at_once_are_advised_where_there_is_memory(code, made, cases):
    check(code, made, cases)


@pytest.mark.parametrize("limit, fits", [(2000, True), (1000, False)])
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


@pytest.mark.parametrize("event", ["paused", "disk-write", "disk-read"])
@pytest.mark.parametrize("activity", ["sleep", "io-wait"])
def test_nothing_more_at_once_is_advised_where_a_worker_was_short_of_memory(event, activity):
    """However short, and whatever was sampled of it."""
    made = on_workers(100, 110, 10_000, activity=activity)
    more = ("threads_per_worker", "run more", "more tasks at once: ")
    assert any(text in f.advice for f in by_code(made).values() for text in more)
    rows = {"computation": ["s"], "worker": ["a"], "event": [event], "bytes": [100.0]}
    rows |= {"start": [1.0], "stop": [1.001]}
    made = with_tables(made, worker_events=rows)
    results = by_code(made)
    assert "too-few-threads" not in results
    assert not any(text in f.advice for f in results.values() for text in more)


def names(made):
    return {setting.name for setting in candidates(made, list(findings(made)))}


def test_tune_tries_no_more_workers_than_fit():
    for limit, tried in ((1200, {"4 workers", "8 workers"}), (1000, {"4 workers"}), (600, set())):
        assert {"4 workers", "8 workers"} & names(waiting(limit)) == tried
    assert "1 worker" in names(waiting(600))
    best = Setting("4 workers", config={"num_workers": "4"})
    assert more_workers([best], [best], memory_headroom(waiting(1000)).most) is None
    assert more_workers([best], [best]).workers == 8


@pytest.mark.parametrize("limit, is_tried", [(2000, True), (600, False)])
def test_tune_tries_other_schedulers_with_more_at_once_where_they_fit(limit, is_tried):
    made = run([Task(n, n + 1.0) for n in range(8)], workers=1, cpus=4, scheduler="synchronous")
    tried = names(with_memory(made, 100, 300, limit))
    schedulers = {name.partition(",")[0] for name in tried}
    assert ({"scheduler=threads", "scheduler=processes"} <= schedulers) == is_tried
    assert bool({"scheduler=threads", "scheduler=processes"} & schedulers) == is_tried


@pytest.mark.parametrize(
    "limit, most, said",
    [
        (1200, 8, None),
        (1000, 7, "2 workers needed 300 MB of 1.00 GB: at most 7 fit"),
        (200, 2, "2 workers needed 300 MB of 200 MB: at most 2 fit"),
    ],
)
def test_what_if_says_how_many_workers_fit_into_memory(limit, most, said):
    made = with_memory(in_rounds(16), 100, 300, limit)
    assert memory_headroom(made).most == most
    text = " ".join(what_if_summary(what_if(made), made).split())
    assert ("recorded memory" in text) == (said is not None)
    assert said is None or said in text


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
