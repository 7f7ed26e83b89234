"""Throughput: recordings whose answer is known, made by hand, on local schedulers, on clusters."""

from __future__ import annotations

import math
from dataclasses import replace

import dask
import numpy as np
import pytest

from dask_diag import DiagnosticError, Profiler, context_meter, save, throughput
from dask_diag.analysis.intervals import Intervals

from .recordings import NOTHING
from .tables import filled_table
from .test_cli import diag as run_command

NAN = math.nan


def row_of(table, **where):
    (row,) = [row for row in table.to_dicts() if all(row[n] == v for n, v in where.items())]
    return row


def test_intervals_cover_each_time_once():
    of = Intervals(np.array([5.0, 0.0, 1.0, 3.0, 9.0]), np.array([6.0, 2.0, 3.0, 4.0, 9.0]))
    covered = of.union()
    assert (covered.start.tolist(), covered.stop.tolist()) == ([0, 5], [4, 6])
    assert covered.seconds == 5
    span = Intervals(np.array([3.5]), np.array([5.5]))
    assert span.intersection(of).seconds == 1.0
    assert of.gaps(3.5, 7.5).seconds == 2.5
    assert Intervals.join([of, Intervals(np.array([1.5]), np.array([1.9])).repeat(3)]).peak == 5
    assert Intervals(np.array([0.0, 1.0]), np.array([1.0, 2.0])).peak == 1
    assert Intervals.join([]).union().seconds == Intervals.join([]).peak == 0


@pytest.fixture
def on_a_cluster():
    """10 s on workers of 2 threads; the second is there for the last 4 s only.

    3 tasks of 4 s that use 3 s of CPU each, and one that was done twice, as its result was lost.
    """
    return replace(
        NOTHING,
        start=0.0,
        stop=20.0,
        computations=filled_table(
            "computations",
            {
                "computation": ["c"],
                **{name: [2.0] for name in ("called", "start", "prepared")},
                "stop": [12.0],
                "workers": [4],
                "scheduler": ["distributed"],
                "cluster": ["one"],
            },
        ),
        workers=filled_table(
            "workers",
            {
                "computation": ["one", "one", "one"],
                "worker": ["worker-0", "worker-1", "worker-2"],
                "joined": [0.0, 8.0, 13.0],
                "threads": [2, 2, 8],
                "measured": [1, 1, 1],
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": ["read-0", "read-1", "read-0", "sum-0", "read-2"],
                "function": ["read", "read", "read", "sum", "read"],
                "start": [2.0, 2.0, 6.0, 8.0, 7.0],
                "stop": [6.0, 6.0, 10.0, 12.0, 8.0],
                "thread_cpu": [3.0, 3.0, 3.0, 3.0, 0.5],
                "worker": [
                    *("worker-0/1", "worker-0/2", "worker-0/1", "worker-1/1", "worker-0/2"),
                ],
                "computation": ["c"] * 5,
                "outcome": ["ok", "ok", "ok", "ok", "failed"],
                "attempt": [1, 1, 2, 1, 1],
            },
        ),
        metrics=filled_table(
            "metrics",
            {
                "task": [0, 1, 2, 3, 4, 1, 3],
                "activity": ["events"] * 5 + ["selected", "written"],
                "unit": ["events"] * 6 + ["bytes"],
                "value": [100, 100, 100, 40, 77, 9, 800],
            },
        ),
    )


def test_of_all_tasks(on_a_cluster):
    (row,) = throughput(on_a_cluster).to_dicts()
    assert row["tasks"] == 3
    assert row["wall"] == 10
    # The second worker was there in 4 of 10 s, the third joined too late.
    assert (row["workers"], row["peak_workers"]) == (pytest.approx(1.4), 2)
    assert (row["threads"], row["peak_threads"]) == (pytest.approx(2.8), 4)
    assert (row["cpu"], row["cpu_unknown"]) == (12.5, 0)
    assert row["core_efficiency"] == pytest.approx(12.5 / 28)
    # What was computed again counts once, what failed not at all.
    assert row["events"] == 240
    assert row["events_per_second"] == pytest.approx(24)
    assert row["events_per_core"] == pytest.approx(240 / 28)
    assert row["events_per_cpu_second"] == pytest.approx(240 / 12.5)
    assert row["bytes"] == 800


def test_a_result_that_is_computed_again_in_a_later_computation_counts_once():
    """As when a worker is lost long after; a task that was forgotten is another one."""
    rows = [
        # Key, computation, when it was sent, attempt, outcome.
        ("lost", "c", 1.0, 1, "ok"),
        ("lost", "d", 9.0, 2, "ok"),
        ("forgotten", "c", 1.0, 1, "ok"),
        ("forgotten", "d", 9.0, 1, "failed"),
        ("forgotten", "d", 10.0, 2, "ok"),
        # Another client had it computed again, of which the rows come first.
        ("shared", "e", 11.0, 2, "ok"),
        ("shared", "c", 2.0, 1, "ok"),
        ("lost", "f", 2.0, 1, "ok"),
    ]
    keys, computations, submitted, attempts, outcomes = zip(*rows, strict=True)
    recording = replace(
        NOTHING,
        start=0.0,
        stop=20.0,
        computations=filled_table(
            "computations",
            {
                "computation": ["c", "d", "e", "f"],
                "start": [0.0, 9.0, 11.0, 0.0],
                "stop": [5.0, 11.0, 12.0, 5.0],
                "cluster": ["one", "one", "one", "another"],
            },
        ),
        tasks=filled_table(
            "tasks",
            {
                "key": list(keys),
                "function": ["read"] * len(rows),
                "computation": list(computations),
                "submitted": list(submitted),
                "start": list(submitted),
                "stop": [time + 0.5 for time in submitted],
                "outcome": list(outcomes),
                "attempt": list(attempts),
                "worker": ["worker-0/0"] * len(rows),
            },
        ),
        metrics=filled_table(
            "metrics",
            {
                "task": list(range(len(rows))),
                "activity": ["events"] * len(rows),
                "unit": ["events"] * len(rows),
                "value": [1.0, 10.0, 100.0, 7.0, 1000.0, 10_000.0, 3.0, 100_000.0],
            },
        ),
    )
    (row,) = throughput(recording).to_dicts()
    assert row["events"] == 111_110
    assert row["tasks"] == 5


def test_by_function(on_a_cluster):
    table = throughput(on_a_cluster, by="function")
    assert table["function"].tolist() == ["read", "sum"]
    read = row_of(table, function="read")
    assert (read["tasks"], read["wall"]) == (2, 8)
    assert (read["workers"], read["peak_workers"]) == (1, 1)
    assert (read["threads"], read["peak_threads"]) == (pytest.approx(13 / 8), 2)
    assert read["core_efficiency"] == pytest.approx(9.5 / 13)
    assert read["events_per_second"] == pytest.approx(200 / 8)
    assert (row_of(table, function="sum")["events"], read["bytes"]) == (40, 0)


def test_by_worker(on_a_cluster):
    table = throughput(on_a_cluster, by="worker")
    assert table["worker"].tolist() == ["worker-0", "worker-1"]
    second = row_of(table, worker="worker-1")
    assert (second["tasks"], second["wall"], second["threads"]) == (1, 4, 2)
    assert second["core_efficiency"] == pytest.approx(3 / 8)
    assert second["events_per_core"] == pytest.approx(40 / 8)


def test_totals_and_labels(on_a_cluster):
    (row,) = throughput(on_a_cluster, events=1000, bytes=2_000_000).to_dicts()
    assert (row["events_per_second"], row["bytes_per_second"]) == (100, 200_000)
    assert throughput(on_a_cluster, events=0)["events_per_second"].tolist() == [0]
    # Which function processed them is not known.
    assert np.isnan(throughput(on_a_cluster, events=1000, by="function")["events"]).all()
    (row,) = throughput(on_a_cluster, events="selected").to_dicts()
    assert row["events"] == 9


def test_several_labels_of_a_unit_of_which_none_is_the_usual_one_are_not_added_up(on_a_cluster):
    metrics = filled_table(
        "metrics",
        {
            "task": [0, 1],
            "activity": ["read", "written"],
            "unit": ["bytes", "bytes"],
            "value": [1.0, 2.0],
        },
    )
    on_a_cluster = replace(on_a_cluster, metrics=metrics)
    assert np.isnan(throughput(on_a_cluster)["bytes"]).all()
    assert throughput(on_a_cluster, bytes="written")["bytes"].tolist() == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "key"}, "by: expected one of function, worker, found 'key'"),
        ({"events": -1}, "events: expected how many, or a label, found -1"),
        ({"bytes": NAN}, "bytes: expected how many, or a label, found nan"),
        ({"bytes": "readd"}, "bytes: expected a label that tasks metered, found 'readd'"),
    ],
)
def test_arguments(on_a_cluster, arguments, message):
    with pytest.raises(DiagnosticError, match=message):
        throughput(on_a_cluster, **arguments)


def test_cpu_that_is_not_known_is_said(on_a_cluster):
    columns = {name: on_a_cluster.tasks[name] for name in on_a_cluster.tasks.columns}
    columns["thread_cpu"] = np.array([NAN, 3.0, 3.0, NAN, 0.5])
    recording = replace(on_a_cluster, tasks=type(on_a_cluster.tasks)(columns))
    (row,) = throughput(recording).to_dicts()
    assert (row["cpu"], row["cpu_unknown"]) == (6.5, 8)
    unknown = row_of(throughput(recording, by="function"), function="sum")
    assert np.isnan([unknown["cpu"], unknown["core_efficiency"]]).all()
    assert unknown["cpu_unknown"] == 4


def test_of_nothing():
    (row,) = throughput(NOTHING).to_dicts()
    assert (row["tasks"], row["wall"], row["peak_workers"]) == (0, 0, 0)
    assert np.isnan([row["workers"], row["core_efficiency"], row["events_per_second"]]).all()
    assert len(throughput(NOTHING, by="function")) == 0


def process(n):
    context_meter.digest_metric("events", n, "events")
    context_meter.digest_metric("bytesread", 8 * n, "bytes")
    return n


def test_what_tasks_meter_on_a_local_scheduler():
    with Profiler() as prof:
        dask.compute(*[dask.delayed(process)(100) for _ in range(7)], num_workers=3)
    (row,) = throughput(prof.recording).to_dicts()
    assert (row["tasks"], row["events"], row["bytes"]) == (7, 700, 5600)
    assert (row["threads"], row["peak_threads"], row["workers"]) == (3, 3, 3)
    (computation,) = prof.recording.computations.to_dicts()
    assert row["wall"] == pytest.approx(computation["stop"] - computation["called"])
    assert row["events_per_second"] == pytest.approx(700 / row["wall"])
    assert throughput(prof.recording, by="worker")["events"].sum() == 700
    assert "Throughput" in prof.summary()
    assert "events/s" in prof.summary()


def test_what_tasks_meter_on_a_cluster():
    pytest.importorskip("distributed")
    from .clusters import cluster, spin, thread_seconds

    def spins(n):
        context_meter.digest_metric("events", n, "events")
        spin(0.1)
        return n

    with cluster(workers=2, threads=2) as client, Profiler() as prof:
        client.gather(client.map(spins, [10, 20, 30, 40]))
    (row,) = throughput(prof.recording).to_dicts()
    assert row["events"] == 100
    assert (row["workers"], row["peak_workers"]) == (pytest.approx(2), 2)
    assert (row["threads"], row["peak_threads"]) == (pytest.approx(4), 4)
    assert row["cpu"] == pytest.approx(0.4, abs=0.05)
    assert row["core_efficiency"] == pytest.approx(row["cpu"] / thread_seconds(prof.recording))
    assert row["events_per_cpu_second"] == pytest.approx(100 / row["cpu"])
    by_worker = throughput(prof.recording, by="worker")
    assert by_worker["worker"].tolist() == ["worker-0", "worker-1"]
    assert by_worker["events"].sum() == 100


@pytest.mark.leaves_files
def test_the_command(on_a_cluster):
    save(on_a_cluster, "run.diag")
    output = run_command("throughput", "run.diag").stdout
    assert "3 tasks done in 10.0 s" in output
    wall = "Wall 10.0 s of computations and the preparation of their graphs, 10.0 s without it"
    assert wall in " ".join(output.split())
    assert "1.40 on average, peak 2" in output
    assert "24 events/s" in output
    assert "worker-1" in run_command("throughput", "run.diag", "--by", "worker").stdout
    assert "100 events/s" in run_command("throughput", "run.diag", "--events", "1000").stdout
    failed = run_command("throughput", "run.diag", "--events", "cows")
    assert failed.returncode == 2
    assert "expected a label that tasks metered, found 'cows'" in failed.stderr
