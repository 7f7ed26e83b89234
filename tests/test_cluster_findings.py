"""Findings on clusters, on recordings that are written by hand: with the fault and without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.facts import Analysis

from .tables import filled_table, with_columns
from .test_cluster_occupancy import recording
from .test_finding_thresholds import by_code, numbers

pytestmark = pytest.mark.once

NAN = float("nan")


def addressed(made, **columns):
    """Its workers as those of a cluster, each at a host of its own."""
    names = made.workers.worker.tolist()
    columns = {"host": [f"host-{name}" for name in names], **columns}
    return with_columns(made, "workers", address=[f"tcp://{name}" for name in names], **columns)


def moved(task, start, stop, nbytes, source, destination):
    """The result of a task is on its way between two workers."""
    return {
        "task": [task],
        "activity": ["transfer"],
        "side": ["network"],
        "start": [start],
        "stop": [stop],
        "bytes": [nbytes],
        "source": [source],
        "destination": [destination],
    }


def moving(seconds, destination="b"):
    """One task needs a result of another worker, which is on its way for so long."""
    tasks = [("a/0", 0.0, 0.0, 2.0, 2.0), ("b/0", 2.0, 2.0 + seconds, 10.0, 10.0)]
    transfers = moved(0, 2.0, 2.0 + seconds, 3e6, "a", destination)
    return addressed(
        recording(tasks, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)], transfers=transfers)
    )


@pytest.mark.parametrize(
    ("seconds", "severity"), [(2.9, None), (3.1, "medium"), (5.9, "medium"), (6.1, "high")]
)
def test_transfer_bound(seconds, severity):
    finding = by_code(moving(seconds)).get("transfer-bound")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(seconds / 2)
        assert finding.kind == "at most"
        assert numbers(finding, "results", "moved", "median") == (1, 3e6, seconds)
        assert finding.where.workers == ("b",)
        assert finding.where.functions == ("f",)
        assert finding.where.intervals == ((2.0, pytest.approx(2.0 + seconds)),)
        assert "num_workers" not in finding.advice


def fan_in(transfer=4.0):
    """Two tasks of 1 s on two workers; one of 1 s needs both results, one of which must move."""
    tasks = [
        *(("a/0", 0.0, 0.0, 1.0, 1.0), ("b/0", 0.0, 0.0, 1.0, 1.0)),
        ("a/0", 1.0, 1.0 + transfer, 2.0 + transfer, 2.0 + transfer),
    ]
    made = recording(
        tasks,
        [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)],
        stop=2.0 + transfer,
        transfers=moved(1, 1.0, 1.0 + transfer, 1e9, "b", "a"),
        dependencies={"task": [2, 2], "depends_on": [0, 1]},
    )
    return addressed(with_columns(made, "tasks", nbytes=[1e9, 1e9, 0.0]))


def test_a_transfer_for_which_all_wait_costs_as_long_as_it_takes():
    """Without it the program takes 2 s; of the time of two threads it is half of what is lost."""
    finding = by_code(fan_in())["transfer-bound"]
    assert finding.kind == "about"
    assert finding.seconds_lost == pytest.approx(4.0, abs=0.05)


def test_of_data_that_no_task_made_the_loss_is_a_bound():
    made = with_columns(fan_in(), "transfers", task=[-1])
    finding = by_code(made)["transfer-bound"]
    assert finding.kind == "at most"
    assert finding.seconds_lost == pytest.approx(4.0 / 2)


def with_a_straggler():
    """On four workers, a task takes 9 s, nine others 1 s."""
    rows = [("a/0", 0.0, 0.0, 9.0, 9.0)]
    rows += [(f"{'bcd'[n % 3]}/0", 0.0, n // 3, n // 3 + 1.0, n // 3 + 1.0) for n in range(9)]
    workers = [(name, 1, 0.0, NAN) for name in "abcd"]
    return addressed(recording(rows, workers, stop=9.0))


def test_a_straggler_costs_what_the_simulator_says():
    """Shortened to what four workers take of it alone, 6 s from 3 s on, it ends after 4.5 s."""
    finding = by_code(with_a_straggler())["straggler"]
    assert finding.kind == "about"
    assert finding.seconds_lost == pytest.approx(4.5, abs=0.1)


def naps(names):
    """Tasks of one second that were ready at once, one after the other on their worker."""
    starts = [float(names[:n].count(name)) for n, name in enumerate(names)]
    rows = [(f"{name}/0", 0.0, n, n + 1.0, n + 1.0) for name, n in zip(names, starts, strict=True)]
    workers = [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)]
    return Analysis(addressed(recording(rows, workers, stop=max(starts) + 1.0)))


def test_what_is_not_as_it_is_replayed_is_not_predicted():
    """Tasks that only one of two workers may run take twice as long as a simulation knows."""
    assert naps("ab" * 4).seconds_saved(workers=4) == pytest.approx(2.0, abs=0.01)
    assert np.isnan(naps("a" * 8).seconds_saved(workers=4))


def test_what_other_programs_have_of_a_clusters_cpus_is_not_predicted():
    assert np.isnan(naps("ab" * 4).seconds_saved(idle_machine=True))


def test_the_worker_that_received_for_longest_is_named_first():
    tasks = [
        ("a/0", 0.0, 0.0, 2.0, 2.0),
        ("b/0", 2.0, 3.0, 10.0, 10.0),
        ("c/0", 2.0, 8.0, 10.0, 10.0),
    ]
    transfers = {
        "task": [0, 0],
        "activity": ["transfer"] * 2,
        "side": ["network"] * 2,
        "start": [2.0, 2.0],
        "stop": [3.0, 8.0],
        "bytes": [3e6, 3e6],
        "source": ["a", "a"],
        "destination": ["b", "c"],
    }
    workers = [(name, 1, 0.0, NAN) for name in "abc"]
    finding = by_code(addressed(recording(tasks, workers, transfers=transfers)))["transfer-bound"]
    assert finding.where.workers == ("c", "b")
    assert finding.seconds_lost == pytest.approx(7.0 / 3)


def test_what_arrives_where_nothing_waits_for_it_is_no_loss():
    assert "transfer-bound" not in by_code(moving(6.0, destination="a"))


def test_fewer_workers_are_advised_only_if_a_host_has_several():
    apart = by_code(moving(6.0))["transfer-bound"].advice
    together = by_code(addressed(moving(6.0), host=["one", "one"]))["transfer-bound"].advice
    assert "Client(" not in apart
    assert "Client(n_workers=..., threads_per_worker=...)" in together


def two_workers(waiting, at="a"):
    """While the only thread of a is busy, a second task waits that long; b is idle."""
    tasks = [("a/0", 0.0, 0.0, 10.0, 10.0), (f"{at}/0", 10.0 - waiting, 10.0, 10.0, 10.0)]
    return addressed(recording(tasks, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)]))


@pytest.mark.parametrize(
    ("waiting", "severity"), [(2.9, None), (3.1, "medium"), (5.9, "medium"), (6.1, "high")]
)
def test_unbalanced_workers(waiting, severity):
    finding = by_code(two_workers(waiting)).get("unbalanced-workers")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(waiting / 2)
        assert finding.kind == "at most"
        assert numbers(finding, "idle", "longest", "shortest") == (waiting, 10, 0)
        assert finding.where.workers == ("a",)


def test_a_task_that_waits_for_its_own_worker_is_none_of_balance():
    assert "unbalanced-workers" not in by_code(two_workers(8.0, at="b"))


def test_a_busy_cluster_is_not_unbalanced():
    tasks = [
        *((f"{name}/0", 0.0, 0.0, 5.0, 5.0) for name in "ab"),
        *((f"{name}/0", 0.0, 5.0, 10.0, 10.0) for name in "ab"),
    ]
    made = addressed(recording(tasks, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)]))
    assert "unbalanced-workers" not in by_code(made)


def lost(left_at=NAN, reason="handle-worker-cleanup", key="g", attempt=1):
    """At 4 s, a run at worker a has no result; afterwards a task runs at b."""
    tasks = [
        ("a/0", 0.0, 0.0, 2.0, 2.0),
        ("a/unknown", 2.0, NAN, NAN, 4.0),
        ("b/0", 5.0, 5.0, 8.0, 8.0),
    ]
    made = recording(tasks, [("a", 1, 0.0, left_at), ("b", 1, 0.0, NAN)])
    made = addressed(made, reason=[reason if left_at == left_at else "", ""])
    return with_columns(
        made,
        "tasks",
        key=["f", "u", key],
        outcome=["ok", "unfinished", "ok"],
        attempt=np.array([1, 1, attempt]),
    )


def test_a_worker_that_left_costs_the_runs_that_it_did_not_finish():
    finding = by_code(lost(left_at=4.0))["worker-lost"]
    # Its thread had that run from 2 to 4, at most; two threads, one of them for 4 seconds.
    assert finding.seconds_lost == pytest.approx(2.0 / 1.4)
    assert finding.kind == "at most"
    assert "needed: a (handle-worker-cleanup)" in finding.evidence
    assert numbers(finding, "workers", "cut_short", "seconds_cut", "again") == (1, 1, 2, 0)
    assert finding.where.workers == ("a",)


def test_and_the_results_that_had_to_be_made_again():
    finding = by_code(lost(left_at=4.0, key="f", attempt=2))["worker-lost"]
    assert finding.seconds_lost == pytest.approx(5.0 / 1.4)
    assert numbers(finding, "again", "seconds_again", "retried") == (1, 3, 1)


@pytest.mark.parametrize(
    "made",
    [
        lost(),
        lost(left_at=4.0, reason="retire-workers"),
        recording([("a/0", 0.0, 0.0, 4.0, 4.0)], [("a", 1, 0.0, 5.0), ("b", 1, 0.0, NAN)]),
    ],
    ids=["all stayed", "it was asked to leave", "it had nothing to do"],
)
def test_no_worker_is_lost_whom_no_task_missed(made):
    assert "worker-lost" not in by_code(made)


def events(event, stop, **columns):
    """For so long, something happened at the first of two workers with a thread each."""
    tasks = [("a/0", 0.0, 0.0, 10.0, 10.0), ("b/0", 0.0, 0.0, 10.0, 10.0)]
    rows = {
        "computation": ["s"],
        "worker": ["a"],
        "event": [event],
        "start": [0.0],
        "stop": [stop],
        "bytes": [7e6],
        **columns,
    }
    workers = [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)]
    return addressed(recording(tasks, workers, worker_events=rows))


@pytest.mark.parametrize(
    ("stop", "severity"), [(0.9, None), (1.1, "low"), (2.1, "medium"), (6.1, "high")]
)
@pytest.mark.parametrize(
    ("code", "event"), [("spilling", "disk-write"), ("memory-pressure", "paused")]
)
def test_memory_of_workers(code, event, stop, severity):
    all_found = by_code(events(event, stop))
    finding = all_found.get(code)
    assert (finding and finding.severity) == severity
    assert not {"spilling", "memory-pressure"} - {code} & set(all_found)
    if finding:
        assert finding.seconds_lost == pytest.approx(stop / 2)
        assert finding.kind == "at most"
        assert finding.where == replace(
            finding.where, workers=("a",), intervals=((0.0, stop),), functions=()
        )
        assert numbers(finding, "workers", "lasted") == (1, stop)
        if code == "spilling":
            assert numbers(finding, "written", "read", "waited") == (7e6, 0, 0)


@pytest.mark.parametrize(
    ("code", "event"), [("spilling", "disk-write"), ("memory-pressure", "paused")]
)
def test_the_worker_with_most_is_named_first(code, event):
    rows = {
        "computation": ["s", "s"],
        "worker": ["a", "b"],
        "event": [event, event],
        "start": [0.0, 0.0],
        "stop": [0.5, 3.0],
    }
    made = replace(events(event, 3.0), worker_events=filled_table("worker_events", rows))
    finding = by_code(made)[code]
    assert finding.where.workers == ("b", "a")
    assert finding.seconds_lost == pytest.approx(3.5 / 2)
    assert numbers(finding, "workers") == (2,)


@pytest.mark.parametrize(
    "columns", [{"start": [20.0]}, {"computation": ["another"]}], ids=["later", "elsewhere"]
)
def test_what_happens_while_nothing_is_computed_costs_nothing(columns):
    assert "spilling" not in by_code(events("disk-read", 28.0, **columns))


def uneven_end(submitted):
    """Two workers run four tasks each, then one a longer one; the other waits for its last."""
    tasks = [(f"{name}/0", n, n, n + 1, n + 1) for name in "ab" for n in range(4)]
    last = [("a/0", 4, 4, 6.5, 6.5), ("b/0", submitted, 6.5, 6.6, 6.6)]
    workers = [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)]
    return addressed(recording([*tasks, *last], workers, stop=6.6))


@pytest.mark.parametrize(("submitted", "is_found"), [(4.0, False), (6.5, True)])
def test_a_worker_whose_next_task_is_on_the_way_is_none_of_imbalance(submitted, is_found):
    made = uneven_end(submitted)
    idle = seconds_by_activity(made)["idle"]
    assert idle == pytest.approx(submitted - 4.0 + 0.1)
    finding = by_code(made).get("imbalance")
    assert bool(finding) == is_found
    if finding:
        assert finding.seconds_lost == pytest.approx(idle / 2)


def busy_scheduler(cpu, free, tasks=60):
    """One thread, that is free in that share of the time while the next task is on its way."""
    period = 10.0 / tasks
    rows = [
        (
            "a/0",
            n * period,
            (n + free) * period,
            (n + 1) * period,
            (n + 1) * period,
        )
        for n in range(tasks)
    ]
    made = addressed(recording(rows, [("a", 1, 0.0, NAN)]))
    return with_columns(made, "computations", scheduler_cpu=[cpu * 10.0])


@pytest.mark.parametrize(
    ("cpu", "free", "tasks", "is_found"),
    [
        (0.74, 0.5, 60, False),
        (0.76, 0.5, 60, True),
        (0.76, 0.29, 60, False),
        (0.76, 0.31, 60, True),
        (0.76, 0.5, 49, False),
        (NAN, 0.5, 60, False),
    ],
)
def test_a_scheduler_is_bound_if_it_computes_while_threads_are_free(cpu, free, tasks, is_found):
    finding = by_code(busy_scheduler(cpu, free, tasks)).get("scheduler-bound")
    assert bool(finding) == is_found
    if finding:
        assert finding.seconds_lost == pytest.approx(10.0 * free)
        assert finding.kind == "at most"
        assert numbers(finding, "busy", "tasks", "free") == (cpu, tasks, free)


def test_time_of_spilling_is_not_that_of_the_scheduler():
    tasks = [("a/0", 0.0, 4.0, 10.0, 10.0)]
    rows = {
        "computation": ["s"],
        "worker": ["a"],
        "event": ["disk-read"],
        "start": [1.0],
        "stop": [3.0],
    }
    made = recording(tasks, [("a", 1, 0.0, NAN)], worker_events=rows)
    assert {name: s for name, s in seconds_by_activity(made).items() if s} == {
        "thread-noncpu": 6.0,
        "overhead": 2.0,
        "spill": 2.0,
    }


def test_a_chain_costs_no_more_than_the_cpus_of_the_hosts_leave():
    """Two chained tasks of 5 s of CPU on 4 threads: with one CPU nothing is faster."""
    tasks = [("a/0", 0.0, 0.0, 5.0, 5.0), ("b/0", 5.0, 5.0, 10.0, 10.0)]
    made = addressed(
        recording(
            tasks,
            [("a", 2, 0.0, NAN), ("b", 2, 0.0, NAN)],
            dependencies={"task": [1], "depends_on": [0]},
        ),
        host=["one", "one"],
    )
    made = with_columns(made, "tasks", thread_cpu=[5.0, 5.0], thread_noncpu=[0.0, 0.0])
    for cpus, lost in ((0, 7.5), (4, 7.5), (2, 5.0), (1, None)):
        with_cpus = with_columns(made, "workers", cpus=np.array([cpus, cpus]))
        finding = by_code(with_cpus).get("serial-chain")
        assert (finding and finding.seconds_lost) == (lost and pytest.approx(lost))
