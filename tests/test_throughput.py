"""Throughput: recordings whose answer is known, made by hand, on local schedulers, on clusters."""

from __future__ import annotations

import math
import time
from dataclasses import replace
from time import perf_counter

import dask
import numpy as np
import pytest

from dask_diag import DiagnosticError, Profiler, context_meter, save, throughput
from dask_diag.analysis.intervals import Intervals

from .recordings import NOTHING, columns_of, with_columns, with_tables
from .test_cli import diag as run_command
from .test_phases import Slow, nap

NAN = math.nan
SPAN = replace(NOTHING, start=0.0, stop=20.0)


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
    return with_tables(
        SPAN,
        computations=columns_of(
            "computation called start prepared stop workers scheduler cluster",
            ("c", 2.0, 2.0, 2.0, 12.0, 4, "distributed", "one"),
        ),
        workers=columns_of(
            "computation worker joined threads measured",
            ("one", "worker-0", 0.0, 2, 1),
            ("one", "worker-1", 8.0, 2, 1),
            ("one", "worker-2", 13.0, 8, 1),
        ),
        tasks=columns_of(
            "key function start stop thread_cpu worker computation outcome attempt",
            ("read-0", "read", 2.0, 6.0, 3.0, "worker-0/1", "c", "ok", 1),
            ("read-1", "read", 2.0, 6.0, 3.0, "worker-0/2", "c", "ok", 1),
            ("read-0", "read", 6.0, 10.0, 3.0, "worker-0/1", "c", "ok", 2),
            ("sum-0", "sum", 8.0, 12.0, 3.0, "worker-1/1", "c", "ok", 1),
            ("read-2", "read", 7.0, 8.0, 0.5, "worker-0/2", "c", "failed", 1),
        ),
        metrics=columns_of(
            "task activity unit value",
            *((n, "events", "events", value) for n, value in enumerate((100, 100, 100, 40, 77))),
            (1, "selected", "events", 9),
            (3, "written", "bytes", 800),
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


def test_threads_of_computations_of_one_call_count_once():
    """As dask-awkward computes the columns it needs, before what was asked for."""
    names = "computation called start prepared stop workers scheduler"
    one_call = [
        ("columns", 1.0, 2.0, 2.0, 3.0, 1, "synchronous"),
        ("events", 1.0, 4.0, 4.0, 11.0, 2, "threads"),
    ]
    # Of another call, it runs beside.
    beside = ("beside", 5.0, 5.0, 5.0, 8.0, 2, "threads")
    for rows, threads, peak in ((one_call, 2.0, 2), ([*one_call, beside], 2.6, 4)):
        recording = with_tables(SPAN, computations=columns_of(names, *rows))
        (row,) = throughput(recording).to_dicts()
        assert (row["wall"], row["threads"], row["peak_threads"]) == (
            10,
            pytest.approx(threads),
            peak,
        )


CLUSTER = "distributed", "one"
LOCAL = "threads", ""


@pytest.mark.parametrize(
    "calls, computations, wall, threads, peak",
    [
        # On a cluster a call has its workers until it returns, also while another call inside of it
        # or on another thread goes on.
        ([(2, 12)], [(3, 3, 9, 2, *CLUSTER)], 10, 2, 2),
        ([(2, 12), (2.5, 3)], [(4, 4, 9, 2, *CLUSTER)], 10, 2, 2),
        # What the client computes before has no threads beside those.
        ([(2, 12)], [(2, 3, 4, 1, *LOCAL), (5, 5, 9, 2, *CLUSTER)], 10, 2, 2),
        # Work of another thread for the cluster, and work that was persisted before, has.
        ([(2, 12)], [(2, 2, 12, 4, *LOCAL), (5, 5, 6, 2, *CLUSTER)], 10, 4.2, 6),
        ([(1, 1), (2, 12)], [(2, 4, 12, 4, *LOCAL), (3, 3, 4, 2, *CLUSTER)], 10, 4.2, 6),
        # It returned before it had computed, as `persist` does.
        ([(2, 3)], [(2.5, 2.5, 12, 2, *CLUSTER)], 10, 2, 2),
        ([], [(2, 3, 12, 2, *LOCAL)], 10, 2, 2),
    ],
)
def test_calls_have_their_workers_until_they_return(calls, computations, wall, threads, peak):
    rows = [
        (str(n), called, start, start, *row) for n, (called, start, *row) in enumerate(computations)
    ]
    recording = with_tables(
        SPAN,
        calls=columns_of("called returned", *calls) if calls else {},
        computations=columns_of(
            "computation called start prepared stop workers scheduler cluster", *rows
        ),
        workers=columns_of(
            "computation worker joined threads measured", ("one", "worker-0", 0.0, 2, 1)
        ),
    )
    (row,) = throughput(recording).to_dicts()
    assert (row["wall"], row["threads"], row["peak_threads"]) == (
        wall,
        pytest.approx(threads),
        peak,
    )


def test_a_result_that_is_computed_again_in_a_later_computation_counts_once():
    """As when a worker is lost long after; a task that was forgotten is another one."""
    recording = with_tables(
        SPAN,
        computations=columns_of(
            "computation start stop cluster",
            ("c", 0.0, 5.0, "one"),
            ("d", 9.0, 11.0, "one"),
            ("e", 11.0, 12.0, "one"),
            ("f", 0.0, 5.0, "another"),
        ),
        tasks=columns_of(
            "key computation submitted attempt outcome",
            ("lost", "c", 1.0, 1, "ok"),
            ("lost", "d", 9.0, 2, "ok"),
            ("forgotten", "c", 1.0, 1, "ok"),
            ("forgotten", "d", 9.0, 1, "failed"),
            ("forgotten", "d", 10.0, 2, "ok"),
            # Another client had it computed again, of which the rows come first.
            ("shared", "e", 11.0, 2, "ok"),
            ("shared", "c", 2.0, 1, "ok"),
            ("lost", "f", 2.0, 1, "ok"),
        ),
    )
    submitted = recording.tasks.submitted
    recording = with_columns(recording, "tasks", start=submitted, stop=submitted + 0.5)
    values = [1.0, 10.0, 100.0, 7.0, 1000.0, 10_000.0, 3.0, 100_000.0]
    rows = ((n, "events", "events", value) for n, value in enumerate(values))
    recording = with_tables(recording, metrics=columns_of("task activity unit value", *rows))
    (row,) = throughput(recording).to_dicts()
    assert row["events"] == 111_110
    assert row["tasks"] == 5


def test_by_function_and_by_worker(on_a_cluster):
    read, total = throughput(on_a_cluster, by="function").to_dicts()
    assert (read["function"], total["function"]) == ("read", "sum")
    assert (read["tasks"], read["wall"]) == (2, 8)
    assert (read["workers"], read["peak_workers"]) == (1, 1)
    assert (read["threads"], read["peak_threads"]) == (pytest.approx(13 / 8), 2)
    assert read["core_efficiency"] == pytest.approx(9.5 / 13)
    assert read["events_per_second"] == pytest.approx(200 / 8)
    assert (total["events"], read["bytes"]) == (40, 0)
    first, second = throughput(on_a_cluster, by="worker").to_dicts()
    assert (first["worker"], second["worker"]) == ("worker-0", "worker-1")
    assert (second["tasks"], second["wall"], second["threads"]) == (1, 4, 2)
    assert second["core_efficiency"] == pytest.approx(3 / 8)
    assert second["events_per_core"] == pytest.approx(40 / 8)


def test_totals_and_labels(on_a_cluster):
    (row,) = throughput(on_a_cluster, events=1000, bytes=2_000_000).to_dicts()
    assert (row["events_per_second"], row["bytes_per_second"]) == (100, 200_000)
    assert throughput(on_a_cluster, events=0)["events_per_second"].tolist() == [0]
    # Which function processed them is not known.
    assert np.isnan(throughput(on_a_cluster, events=1000, by="function")["events"]).all()
    assert throughput(on_a_cluster, events="selected")["events"].tolist() == [9]
    # Several labels of a unit of which none is the usual one are not added up.
    metrics = columns_of(
        "task activity unit value", (0, "read", "bytes", 1), (1, "written", "bytes", 2)
    )
    several = with_tables(on_a_cluster, metrics=metrics)
    assert np.isnan(throughput(several)["bytes"]).all()
    assert throughput(several, bytes="written")["bytes"].tolist() == [2]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"by": "key"}, "by: expected one of function, worker, dataset, found 'key'"),
        ({"events": -1}, "events: expected a total of 0 or more, or a label, found -1"),
        ({"bytes": NAN}, "bytes: expected a total of 0 or more, or a label, found nan"),
        ({"bytes": "readd"}, "bytes: expected a label that tasks metered, found 'readd'"),
    ],
)
def test_arguments(on_a_cluster, arguments, message):
    with pytest.raises(DiagnosticError, match=message):
        throughput(on_a_cluster, **arguments)


def test_cpu_that_is_not_known_is_said(on_a_cluster):
    recording = with_columns(on_a_cluster, "tasks", thread_cpu=[NAN, 3.0, 3.0, NAN, 0.5])
    (row,) = throughput(recording).to_dicts()
    assert (row["cpu"], row["cpu_unknown"]) == (6.5, 8)
    _, unknown = throughput(recording, by="function").to_dicts()
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
        began = perf_counter()
        dask.compute(*[dask.delayed(process)(100) for _ in range(7)], num_workers=3)
        ended = perf_counter()
    (row,) = throughput(prof.recording).to_dicts()
    assert (row["tasks"], row["events"], row["bytes"]) == (7, 700, 5600)
    assert (row["threads"], row["peak_threads"], row["workers"]) == (3, 3, 3)
    assert row["wall"] == pytest.approx(ended - began, abs=0.05)
    assert row["events_per_second"] == pytest.approx(700 / row["wall"])
    assert throughput(prof.recording, by="worker")["events"].sum() == 700
    assert "Throughput" in prof.summary()
    assert "events/s" in prof.summary()


class ComputesFirst(Slow):
    """A collection that computes before its graph is made, as dask-awkward does."""

    def __dask_graph__(self):
        dask.get({"columns": (time.sleep, 0.05)}, "columns")
        return super().__dask_graph__()

    def __dask_postcompute__(self):
        def join(results):
            time.sleep(0.2)
            return results

        return join, ()


def test_the_wall_is_that_of_a_stopwatch_on_each_scheduler():
    """A call lasts until it returns, and has its workers all the time."""
    pytest.importorskip("distributed")
    from .clusters import cluster

    def measure(**kwargs):
        with Profiler() as prof:
            began = perf_counter()
            ComputesFirst(0.1, nap).compute(**kwargs)
            ended = perf_counter()
        (row,) = throughput(prof.recording).to_dicts()
        assert row["wall"] == pytest.approx(ended - began, abs=0.05)
        return row["threads"]

    assert measure(scheduler="sync") == 1
    assert measure(scheduler="threads", num_workers=3) == 3
    # The pool ends after the last task.
    assert measure(scheduler="processes", num_workers=2) == 2
    with cluster(workers=2, threads=2):
        assert measure() == pytest.approx(4)


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
def test_the_command_says_how_to_meter_where_nothing_was(on_a_cluster):
    save(replace(on_a_cluster, metrics=type(on_a_cluster.metrics).empty()), "run.diag")
    output = run_command("throughput", "run.diag").stdout
    assert output.splitlines()[2].split()[-1] == "efficiency"
    assert 'context_meter.digest_metric("events", len(part), "events")' in " ".join(output.split())


@pytest.mark.leaves_files
def test_the_command(on_a_cluster):
    save(on_a_cluster, "run.diag")
    output = run_command("throughput", "run.diag").stdout
    assert "3 tasks done in 10.0 s" in output
    wall = "Wall 10.0 s in calls of dask and computations, 10.0 s in computations alone"
    assert wall in " ".join(output.split())
    assert "1.40 on average, peak 2" in output
    assert "24 events/s" in output
    assert "worker-1" in run_command("throughput", "run.diag", "--by", "worker").stdout
    assert "digest_metric" not in output
    given = run_command("throughput", "run.diag", "--events", "1000").stdout
    assert "100 events/s" in given
    # The total is that of no function: a column would be empty.
    assert "events/s" not in given.splitlines()[2]
    failed = run_command("throughput", "run.diag", "--events", "cows")
    assert failed.returncode == 2
    assert "expected a label that tasks metered, found 'cows'" in failed.stderr
