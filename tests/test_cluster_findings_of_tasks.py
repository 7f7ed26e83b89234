"""Findings that clusters and local schedulers have, on clusters: by hand, with the fault and without.

What only clusters have is in `test_cluster_findings`.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.facts import Analysis

from .stacks import LEAF, MAIN, with_stacks
from .test_cluster_findings import addressed, by_code, with_columns
from .test_cluster_occupancy import recording
from .test_finding_thresholds import numbers, with_waits

pytestmark = pytest.mark.once

NAN = float("nan")
DASK = "/opt/env/lib/python3.11/site-packages/dask/array/core.py"
SYNC = "/opt/env/lib/python3.11/site-packages/distributed/utils.py"


def tasks_of(count, workers, threads=1, seconds=1.0, cpu=0.0, cpus=4):
    """Tasks in rounds on all threads, each worker at a host of its own; later ones are queued."""
    lanes = [f"{name}/{thread}" for thread in range(threads) for name in workers]
    rows = []
    for n in range(count):
        start = n // len(lanes) * seconds
        # A worker is sent a task for each thread, and one more.
        sent = max(start - seconds, 0.0)
        rows.append((lanes[n % len(lanes)], sent, start, start + seconds, start + seconds, sent))
    made = recording(rows, [(name, threads, 0.0, NAN) for name in workers], stop=rows[-1][3])
    took = np.full(count, seconds)
    made = with_columns(made, "tasks", thread_cpu=cpu * took, thread_noncpu=(1 - cpu) * took)
    return addressed(made, cpus=np.full(len(workers), cpus))


@pytest.mark.parametrize("activity", ["sleep", "io-wait", "device-wait"])
def test_too_few_threads(activity):
    """Of sixteen tasks of a second, two run at once on eight CPUs."""
    finding = by_code(with_waits(tasks_of(16, "ab"), activity))["too-few-threads"]
    # Eight at once take two seconds: as many as gain most of what sixteen would.
    assert finding.seconds_lost == pytest.approx(6.0, abs=0.2)
    assert (finding.severity, finding.kind) == ("high", "about")
    assert numbers(finding, "share", "used", "cpus") == (1, 0, 8)
    assert "threads_per_worker=4 (dask worker --nthreads 4), 8 threads in all" in finding.advice
    assert "num_workers" not in finding.advice


def test_more_threads_for_each_worker_are_advised():
    finding = by_code(with_waits(tasks_of(32, "ab", threads=2), "sleep"))["too-few-threads"]
    assert "threads_per_worker=8 (dask worker --nthreads 8), 16 threads in all" in finding.advice


@pytest.mark.parametrize(
    "made",
    [
        tasks_of(16, "ab"),
        with_waits(tasks_of(2, "ab"), "sleep"),
        with_waits(tasks_of(16, "ab", cpu=0.61), "sleep"),
        with_waits(tasks_of(16, "ab"), "lock-wait"),
        with_waits(tasks_of(16, "ab"), "gil-wait"),
        with_waits(tasks_of(16, "ab", cpus=0), "sleep"),
    ],
    ids=["waits not recorded", "no more tasks", "they compute", "locks", "GIL", "CPUs not known"],
)
def test_more_threads_are_not_advised_where_they_do_not_help(made):
    assert "too-few-threads" not in by_code(made)


def test_what_tasks_compute_may_hold_the_gil_of_their_process():
    """Of 8.8 s of CPU, each of two processes has 4.4 s: no threads take less than these of 8 s."""
    made = with_waits(tasks_of(16, "ab", cpu=0.55), "sleep")
    assert Analysis(made).seconds_saved(workers=4) == pytest.approx(4.0, abs=0.1)
    assert by_code(made)["too-few-threads"].seconds_lost == pytest.approx(3.6, abs=0.01)


def test_cpus_that_tasks_use_are_not_idle():
    """Of two CPUs tasks use 1.1, so that no more than 45% of 8 s are gained."""
    made = with_waits(tasks_of(16, "abcd", cpu=0.275), "sleep")
    finding = by_code(with_columns(made, "workers", cpus=[2] * 4, host=["one"] * 4))
    assert finding["too-few-threads"].seconds_lost == pytest.approx(0.45 * 4, abs=0.01)


def test_tasks_that_only_some_workers_may_run_gain_nothing_from_threads_that_is_known():
    """All at one of two workers: the replay, which spreads them, is not what was measured."""
    rows = [("a/0", 0.0, float(n), n + 1.0, n + 1.0) for n in range(8)]
    made = addressed(
        recording(rows, [("a", 1, 0.0, NAN), ("b", 1, 0.0, NAN)], stop=8.0), cpus=[4, 4]
    )
    assert "too-few-threads" not in by_code(with_waits(made, "sleep"))


def test_io_bound():
    finding = by_code(with_waits(tasks_of(16, "ab"), "io-wait"))["io-bound"]
    assert finding.seconds_lost == pytest.approx(6.0, abs=0.2)
    assert numbers(finding, "lost", "share") == (16, 1)
    assert "8 threads in all, Client(n_workers=..., threads_per_worker=...)" in finding.advice
    assert "num_workers" not in finding.advice
    assert "io-bound" not in by_code(with_waits(tasks_of(16, "ab", cpu=0.7), "io-wait"))
    assert "io-bound" not in by_code(with_waits(tasks_of(16, "ab"), "lock-wait"))


def test_where_it_is_not_known_what_tasks_wait_for_it_can_be_recorded_on_a_cluster_too():
    finding = by_code(tasks_of(16, "ab"))["io-bound"]
    assert (finding.severity, finding.kind) == ("medium", "at most")
    assert finding.advice.startswith("record what tasks wait for with Profiler(waits=True)")


def test_gil_bound():
    """Two threads of each of two workers take turns: in processes of one thread they need not."""
    made = with_waits(tasks_of(16, "ab", threads=2, cpu=0.5), "gil-wait")
    finding = by_code(made)["gil-bound"]
    assert finding.seconds_lost == pytest.approx(2.0, abs=0.2)
    assert numbers(finding, "waited", "share") == (8, 0.5)
    assert "Client(n_workers=..., threads_per_worker=1)" in finding.advice
    assert "scheduler='" not in finding.advice
    assert "gil-bound" not in by_code(
        with_waits(tasks_of(16, "ab", threads=2, cpu=0.9), "gil-wait")
    )
    assert "gil-bound" not in by_code(with_waits(tasks_of(16, "ab", threads=2, cpu=0.5), "sleep"))


def test_fewer_threads_are_not_advised_to_workers_that_have_one():
    made = with_waits(tasks_of(16, "ab", cpu=0.5), "gil-wait")
    advice = by_code(made)["gil-bound"].advice
    assert "threads_per_worker" not in advice
    assert "releases the GIL" in advice


@pytest.mark.parametrize(("locked", "is_found"), [(0.1, False), (0.5, True)])
def test_lock_bound(locked, is_found):
    """One of two holds the lock while the other one waits."""
    made = with_waits(tasks_of(16, "a", threads=2, cpu=1 - locked), "lock-wait")
    results = by_code(made)
    assert ("lock-bound" in results) == is_found
    if is_found:
        finding = results["lock-bound"]
        assert finding.seconds_lost == pytest.approx(4.0, abs=0.2)
        assert numbers(finding, "waited", "share") == (8, 0.5)
    assert "too-few-threads" not in results


def small(count, work, overhead):
    """One after the other on a thread, each sent when the one before is done, and long on its way."""
    period = work + overhead
    rows = []
    for n in range(count):
        sent, stop = n * period, (n + 1) * period
        rows.append(("a/0", sent, sent + overhead, stop, stop, sent))
    return addressed(recording(rows, [("a", 1, 0.0, NAN)], stop=count * period))


def test_tasks_too_small():
    finding = by_code(small(200, 0.001, 0.003))["tasks-too-small"]
    assert numbers(finding, "tasks", "work", "overhead", "share") == (200, 0.001, 0.003, 0.75)
    # Workers are sent tasks before they need them: why these came so late is not simulated.
    assert (finding.seconds_lost, finding.kind) == (pytest.approx(0.6), "at most")
    assert "make chunks about" in finding.advice
    assert "num_workers" not in finding.advice
    assert "tasks-too-small" not in by_code(small(200, 0.019, 0.003))
    assert "tasks-too-small" not in by_code(small(99, 0.001, 0.003))


def with_samples(made, rows):
    """Its client's stacks; a row is root, path, start, stop."""
    stacks = [((start, stop), root, path, stop - start, 0.0) for root, path, start, stop in rows]
    return with_stacks(made, stacks)


def after(seconds, made):
    """The same, that much later in its recording."""
    return replace(made, start=-seconds)


MAKES = ("optimize", DASK, 7, 5)
WAITS = ("sync", SYNC, 425, 400)


def test_graph_preparation():
    """A call takes 3 s until its graph is at the cluster, and waits 4 s for it then."""
    rows = [
        ("graph", [MAIN, MAKES, LEAF], -3.0, 0.0),
        ("graph", [MAIN, MAKES, WAITS], 0.0, 4.0),
    ]
    made = with_samples(after(3.0, tasks_of(8, "ab")), rows)
    results = by_code(made)
    finding = results["graph-preparation"]
    assert "slow-start" not in results
    assert finding.seconds_lost == pytest.approx(3.0)
    assert numbers(finding, "took", "wall", "tasks") == (3, 7, 8)
    assert "optimize (dask/array/core.py:7) 100%" in finding.evidence
    assert finding.where.intervals == ((-3.0, 0.0),)


CLIENT = "/opt/env/lib/python3.11/site-packages/distributed/client.py"
PICKLES = ("dumps", "/opt/env/lib/python3.11/site-packages/distributed/protocol/pickle.py", 60, 40)


@pytest.mark.parametrize("name", ["Client.submit", "map"])
def test_the_call_of_a_client_that_makes_the_first_graph_is_no_slow_start(name):
    rows = [("before computations", [MAIN, (name, CLIENT, 2148, 2000), PICKLES], -3.0, 0.0)]
    results = by_code(with_samples(after(3.0, tasks_of(8, "ab")), rows))
    assert results["graph-preparation"].seconds_lost == pytest.approx(3.0)
    assert "slow-start" not in results


def test_a_client_that_starts_makes_no_graph():
    start = ("Client.__init__", CLIENT, 1100, 900)
    rows = [("before computations", [MAIN, start, WAITS], -3.0, 0.0)]
    results = by_code(with_samples(after(3.0, tasks_of(8, "ab")), rows))
    assert "graph-preparation" not in results
    assert "slow-start" in results


@pytest.mark.parametrize(
    "rows",
    [
        # It waits for the cluster, or the program does something else before.
        [("graph", [MAIN, MAKES, WAITS], 0.0, 4.0)],
        [("before computations", [MAIN, LEAF], -3.0, 0.0)],
        [("graph", [MAIN, MAKES], -0.5, 0.0), ("before computations", [MAIN, LEAF], -3.0, -0.5)],
    ],
)
def test_graphs_that_take_little_are_none(rows):
    assert "graph-preparation" not in by_code(with_samples(after(3.0, tasks_of(8, "ab")), rows))


def test_of_several_graphs_only_the_first_is_known():
    """Between computations a call may as well collect results."""
    made = tasks_of(8, "ab")
    twice = {name: [0.0, 6.0] for name in ("called", "start", "prepared")}
    twice |= {"computation": ["c", "d"], "stop": [4.0, 10.0]}
    made = with_columns(replace(made, stop=10.0), "computations", 2, **twice)
    rows = [
        ("graph", [MAIN, MAKES], -3.0, 0.0),
        ("graph", [MAIN, MAKES], 4.0, 6.0),
    ]
    finding = by_code(with_samples(after(3.0, made), rows))["graph-preparation"]
    assert finding.seconds_lost == pytest.approx(3.0)
    assert "the first graph took 3.00 s" in finding.evidence
