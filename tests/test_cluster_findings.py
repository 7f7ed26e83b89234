"""Findings on clusters, on recordings that are written by hand: with the fault and without it."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from dask_diag.analysis.activities import seconds_by_activity
from dask_diag.analysis.facts import Analysis
from dask_diag.analysis.occupancy import occupancies

from .recordings import (
    LEAF,
    MAIN,
    by_code,
    columns_of,
    filled_table,
    numbers,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)
from .test_cluster_occupancy import EVENTS, NAN, ONE, moved, on_loop, recording

pytestmark = pytest.mark.once

PACKAGES = "/opt/env/lib/python3.11/site-packages"
CLIENT = f"{PACKAGES}/distributed/client.py"
MAKES = ("optimize", f"{PACKAGES}/dask/array/core.py", 7, 5)
WAITS = ("sync", f"{PACKAGES}/distributed/utils.py", 425, 400)
PICKLES = ("dumps", f"{PACKAGES}/distributed/protocol/pickle.py", 60, 40)


def addressed(made, **columns):
    """Its workers as those of a cluster, each at a host of its own."""
    names = made.workers.worker.tolist()
    columns = {"host": [f"host-{name}" for name in names], **columns}
    return with_columns(made, "workers", address=[f"tcp://{name}" for name in names], **columns)


def on_cluster(tasks, *args, **kwargs):
    return addressed(recording(tasks, *args, **kwargs))


def assert_found(found, code, severity, lost, kind="upper_bound", **where):
    """A finding and the seconds that it says, or none."""
    finding = found.get(code)
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.potential_saving == pytest.approx(lost, abs=0.01)
        assert finding.certainty == kind
        assert "num_workers" not in finding.advice
        assert {name: getattr(finding.where, name) for name in where} == where
    return finding


def moving(seconds, destination="b"):
    """One task needs a result of another worker, which is on its way for so long."""
    tasks = [("a/0", 0.0, 0.0, 2.0, 2.0), ("b/0", 2.0, 2.0 + seconds, 10.0, 10.0)]
    return on_cluster(tasks, transfers=moved((0, 2.0, 2.0 + seconds, 3e6, "a", destination)))


def two_workers(waiting, at="a"):
    """While the only thread of a is busy, a second task waits that long; b is idle."""
    tasks = [("a/0", 0.0, 0.0, 10.0, 10.0), (f"{at}/0", 10.0 - waiting, 10.0, 10.0, 10.0)]
    return on_cluster(tasks)


@pytest.mark.parametrize(
    ("seconds", "severity"), [(2.9, None), (3.1, "medium"), (5.9, "medium"), (6.1, "high")]
)
def test_transfer_bound_and_unbalanced_workers(seconds, severity):
    lost = seconds / 2
    where = {"functions": ("f",), "intervals": ((2.0, pytest.approx(2.0 + seconds)),)}
    found = by_code(moving(seconds))
    finding = assert_found(found, "transfer-bound", severity, lost, workers=("b",), **where)
    if finding:
        assert numbers(finding, "results", "moved", "median") == (1, 3e6, seconds)
    found = by_code(two_workers(seconds))
    finding = assert_found(found, "unbalanced-workers", severity, lost, workers=("a",))
    if finding:
        assert numbers(finding, "idle", "longest", "shortest") == (seconds, 10, 0)


def busy():
    return on_cluster([(f"{name}/0", n, n, n + 5.0, n + 5.0) for name in "ab" for n in (0.0, 5.0)])


@pytest.mark.parametrize(
    ("code", "made"),
    [
        # Results arrive where nothing waits for them; a task waits for its own worker.
        ("transfer-bound", moving(6.0, destination="a")),
        ("unbalanced-workers", two_workers(8.0, at="b")),
        ("unbalanced-workers", busy()),
    ],
)
def test_time_for_which_no_thread_waits_is_not_lost(code, made):
    assert code not in by_code(made)


def test_a_transfer_for_which_all_wait_costs_as_long_as_it_takes():
    """Of two tasks of 1 s on two workers, one of 1 s needs both: one result takes 4 s to it.

    Without it the program takes 2 s; of the time of two threads it is half of what is lost.
    """
    tasks = [("a/0", 0, 0, 1, 1), ("b/0", 0, 0, 1, 1), ("a/0", 1, 5, 6, 6)]
    made = on_cluster(
        tasks,
        stop=6.0,
        transfers=moved((1, 1.0, 5.0, 1e9, "b", "a")),
        dependencies={"task": [2, 2], "depends_on": [0, 1]},
    )
    made = with_columns(made, "tasks", nbytes=[1e9, 1e9, 0.0])
    finding = by_code(made)["transfer-bound"]
    assert finding.certainty == "estimate"
    assert finding.potential_saving == pytest.approx(4.0, abs=0.05)
    # Of data that no task made, it is a bound.
    of_no_task = by_code(with_columns(made, "transfers", task=[-1]))
    assert_found(of_no_task, "transfer-bound", "high", 4.0 / 2)


def test_a_bag_that_is_shuffled_between_workers_can_be_folded():
    for function, is_bag in (("shuffle-split", True), ("f", False)):
        made = moving(6.0)
        made = with_columns(made, "tasks", function=[function] * len(made.tasks))
        assert by_code(made)["transfer-bound"].advice.startswith("use foldby") == is_bag


def test_the_worker_that_received_for_longest_is_named_first():
    tasks = [("a/0", 0, 0, 2, 2), ("b/0", 2, 3, 10, 10), ("c/0", 2, 8, 10, 10)]
    transfers = moved((0, 2.0, 3.0, 3e6, "a", "b"), (0, 2.0, 8.0, 3e6, "a", "c"))
    made = on_cluster(tasks, [(name, 1, 0.0, NAN) for name in "abc"], transfers=transfers)
    finding = by_code(made)["transfer-bound"]
    assert finding.where.workers == ("c", "b")
    assert finding.potential_saving == pytest.approx(7.0 / 3)


def test_fewer_workers_are_advised_only_if_a_host_has_several():
    apart = by_code(moving(6.0))["transfer-bound"].advice
    large = with_columns(moving(6.0), "transfers", bytes=[3e9])
    together = by_code(addressed(large, host=["one", "one"]))["transfer-bound"].advice
    assert "Client(" not in apart
    assert "Client(n_workers=..., threads_per_worker=...)" in together


@pytest.mark.parametrize(
    ("threads", "cpu", "code"),
    [(2, 0.0, "busy-thread"), (1, 0.0, "io-bound"), (2, 0.6, None)],
    ids=["it blocks", "no other thread waits", "it computes"],
)
def test_a_coroutine_that_blocks_its_event_loop(threads, cpu, code):
    """A worker runs ten of one second, one at a time; the other threads wait."""
    tasks = [(f"a/{n % threads}", 0, n, n + 1, n + 1) for n in range(10)]
    metrics = on_loop(*((n, 1.0) for n in range(10)), cpu=cpu)
    made = on_cluster(tasks, [("a", threads, 0.0, NAN)], metrics=metrics)
    made = with_columns(made, "tasks", thread_cpu=[cpu] * 10, thread_noncpu=[1 - cpu] * 10)
    found = by_code(made)
    assert (found.keys() & {"busy-thread", "io-bound"}) == ({code} if code else set())
    if code:
        assert "plain functions (`def`)" in found[code].advice
    # The other thread waits but for the last task.
    assert_found(found, "busy-thread", "high" if code == "busy-thread" else None, 4.5)


def test_coroutines_that_await_have_no_such_finding():
    """Ten at a time of one second, of which each has the loop for a moment."""
    tasks = [(f"a/{n}", 0, 0, 1, 1) for n in range(10)]
    metrics = on_loop(*((n, 0.01) for n in range(10)))
    made = on_cluster(tasks, [("a", 10, 0.0, NAN)], stop=1.0, metrics=metrics)
    found = by_code(made)
    assert "busy-thread" not in found
    # They are not sampled: no way to record what they wait for is advised.
    assert "waits=True" not in found["io-bound"].advice
    assert "`def`" not in found["io-bound"].advice


def test_a_straggler_costs_what_the_simulator_says():
    """Of four workers one runs 9 s, three run 3 s.

    Shortened to what four workers take of it alone, 6 s from 3 s on, it ends after 4.5 s.
    """
    rows = [(f"{'bcd'[n % 3]}/0", 0.0, n // 3, n // 3 + 1.0, n // 3 + 1.0) for n in range(9)]
    workers = [(name, 1, 0.0, NAN) for name in "abcd"]
    made = on_cluster([("a/0", 0.0, 0.0, 9.0, 9.0), *rows], workers, stop=9.0)
    finding = by_code(made)["straggler"]
    assert finding.certainty == "estimate"
    assert finding.potential_saving == pytest.approx(4.5, abs=0.1)


def one_after_the_other(names):
    """Tasks of one second that were ready at once, one after the other on their worker."""
    starts = [float(names[:n].count(name)) for n, name in enumerate(names)]
    rows = [(f"{name}/0", 0.0, n, n + 1.0, n + 1.0) for name, n in zip(names, starts, strict=True)]
    return on_cluster(rows, stop=max(starts) + 1.0)


def test_what_is_not_as_it_is_replayed_is_not_predicted():
    """Tasks that only one of two workers may run take twice as long as a simulation knows."""
    balanced = Analysis(one_after_the_other("ab" * 4))
    assert balanced.seconds_saved(workers=4) == pytest.approx(2.0, abs=0.01)
    # What other programs have of a cluster's CPUs is not known either.
    assert np.isnan(balanced.seconds_saved(idle_machine=True))
    bound = one_after_the_other("a" * 8)
    assert np.isnan(Analysis(bound).seconds_saved(workers=4))
    assert "too-few-threads" not in by_code(with_waits(addressed(bound, cpus=[4, 4]), "sleep"))


def lost(left_at=4.0, reason="handle-worker-cleanup", key="g", attempt=1):
    """At 4 s, a run at worker a has no result; afterwards a task runs at b."""
    tasks = [("a/0", 0, 0, 2, 2), ("a/unknown", 2, NAN, NAN, 4), ("b/0", 5, 5, 8, 8)]
    made = on_cluster(tasks, [("a", 1, 0.0, left_at), ("b", 1, 0.0, NAN)])
    made = with_columns(made, "workers", reason=[reason if left_at == left_at else "", ""])
    outcomes = {"outcome": ["ok", "unfinished", "ok"], "attempt": [1, 1, attempt]}
    return with_columns(made, "tasks", key=["f", "u", key], **outcomes)


def test_a_worker_that_left_costs_the_runs_that_it_did_not_finish_and_results_made_again():
    # Its thread had that run from 2 to 4, at most; two threads, one of them for 4 seconds.
    finding = assert_found(by_code(lost()), "worker-lost", "medium", 2.0 / 1.4, workers=("a",))
    assert "needed results: a (handle-worker-cleanup)" in finding.evidence
    assert numbers(finding, "workers", "cut_short", "seconds_cut", "again") == (1, 1, 2, 0)
    finding = assert_found(by_code(lost(key="f", attempt=2)), "worker-lost", "high", 5.0 / 1.4)
    assert numbers(finding, "again", "seconds_again") == (1, 3)


@pytest.mark.parametrize(
    "made",
    [
        lost(left_at=NAN),
        lost(reason="retire-workers"),
        recording([("a/0", 0.0, 0.0, 4.0, 4.0)], [("a", 1, 0.0, 5.0), ("b", 1, 0.0, NAN)]),
    ],
    ids=["all stayed", "it was asked to leave", "it had nothing to do"],
)
def test_no_worker_is_lost_whom_no_task_missed(made):
    assert "worker-lost" not in by_code(made)


def with_events(*events):
    """Two workers with a busy thread each; an event is its worker, kind, start and stop."""
    tasks = [(f"{name}/0", 0.0, 0.0, 10.0, 10.0) for name in "ab"]
    rows = columns_of(EVENTS, *(("s", *event, 7e6) for event in events))
    return on_cluster(tasks, worker_events=rows)


@pytest.mark.parametrize(
    ("code", "event"), [("spilling", "disk-write"), ("memory-pressure", "paused")]
)
def test_memory_of_workers(code, event):
    for stop, severity in ((0.9, None), (1.1, "low"), (2.1, "medium"), (6.1, "high")):
        found = by_code(with_events(("a", event, 0.0, stop)))
        assert not {"spilling", "memory-pressure"} - {code} & set(found)
        where = {"workers": ("a",), "intervals": ((0.0, stop),), "functions": ()}
        finding = assert_found(found, code, severity, stop / 2, **where)
        if finding:
            assert numbers(finding, "workers", "lasted") == (1, stop)
            if code == "spilling":
                assert numbers(finding, "written", "read", "waited") == (7e6, 0, 0)
    found = by_code(with_events(("a", event, 0.0, 0.5), ("b", event, 0.0, 3.0)))
    assert_found(found, code, "medium", 3.5 / 2, workers=("b", "a"))
    assert numbers(found[code], "workers") == (2,)


@pytest.mark.parametrize("columns", [{"start": [20.0]}, {"computation": ["another"]}])
def test_what_happens_while_nothing_is_computed_costs_nothing(columns):
    made = with_events(("a", "disk-read", 0.0, 28.0))
    assert "spilling" not in by_code(with_columns(made, "worker_events", **columns))


@pytest.mark.parametrize(("submitted", "is_found"), [(4.0, False), (6.5, True)])
def test_a_worker_whose_next_task_is_on_the_way_is_none_of_imbalance(submitted, is_found):
    """Two workers run four tasks each, then one a longer one; the other waits for its last."""
    tasks = [(f"{name}/0", n, n, n + 1, n + 1) for name in "ab" for n in range(4)]
    last = [("a/0", 4, 4, 6.5, 6.5), ("b/0", submitted, 6.5, 6.6, 6.6)]
    made = on_cluster([*tasks, *last], stop=6.6)
    idle = seconds_by_activity(made)["idle"]
    assert idle == pytest.approx(submitted - 4.0 + 0.1)
    finding = by_code(made).get("imbalance")
    assert (finding and finding.potential_saving) == (pytest.approx(idle / 2) if is_found else None)


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
    """The only thread is free in that share of the time while the next task is on its way."""
    starts = [10.0 / tasks * n for n in range(tasks + 1)]
    rows = [("a/0", s, s + free * 10.0 / tasks, e, e) for s, e in zip(starts, starts[1:])]
    made = with_columns(on_cluster(rows, [ONE]), "computations", cpu_scheduler=[cpu * 10.0])
    finding = by_code(made).get("scheduler-bound")
    assert bool(finding) == is_found
    if finding:
        assert finding.potential_saving == pytest.approx(10.0 * free)
        assert finding.certainty == "upper_bound"
        assert numbers(finding, "busy", "tasks", "free") == (cpu, tasks, free)


def test_a_chain_costs_no_more_than_the_cpus_of_the_hosts_leave():
    """Two chained tasks of 5 s of CPU on 4 threads: with one CPU nothing is faster."""
    made = recording(
        [("a/0", 0.0, 0.0, 5.0, 5.0), ("b/0", 5.0, 5.0, 10.0, 10.0)],
        [("a", 2, 0.0, NAN), ("b", 2, 0.0, NAN)],
        dependencies={"task": [1], "depends_on": [0]},
    )
    made = with_columns(made, "tasks", thread_cpu=[5.0, 5.0], thread_noncpu=[0.0, 0.0])
    for cpus, seconds in ((0, 7.5), (4, 7.5), (2, 5.0), (1, None)):
        finding = by_code(addressed(made, host=["one"] * 2, cpus=[cpus] * 2)).get("serial-chain")
        assert (finding and finding.potential_saving) == (seconds and pytest.approx(seconds))


# Findings that local schedulers have, too.


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


def waiting(activity, count=16, workers="ab", **kwargs):
    return with_waits(tasks_of(count, workers, **kwargs), activity)


@pytest.mark.parametrize("activity", ["sleep", "io-wait", "device-wait"])
def test_too_few_threads(activity):
    """Of sixteen tasks of a second, two run at once on eight CPUs.

    Eight at once take two seconds: as many as gain most of what sixteen would.
    """
    found = by_code(waiting(activity))
    codes = ["too-few-threads", "io-bound"]
    # One cause is one finding: that of what they waited for.
    code, other = codes[::-1] if activity == "io-wait" else codes
    assert other not in found
    kind = "upper_bound" if activity == "io-wait" else "estimate"
    finding = assert_found(found, code, "high", pytest.approx(6.0, abs=0.2), kind)
    if code == "too-few-threads":
        assert numbers(finding, "share", "used", "cpus") == (1, 0, 8)
    assert "threads_per_worker=4 (dask worker --nthreads 4), 8 threads in all" in finding.advice
    advice = by_code(waiting(activity, 32, threads=2))[code].advice
    assert "threads_per_worker=8 (dask worker --nthreads 8), 16 threads in all" in advice


@pytest.mark.parametrize(
    "made",
    [
        tasks_of(16, "ab"),
        waiting("sleep", 2),
        waiting("sleep", cpu=0.61),
        waiting("lock-wait"),
        waiting("gil-wait"),
        waiting("sleep", cpus=0),
    ],
    ids=["waits not recorded", "no more tasks", "they compute", "locks", "GIL", "CPUs not known"],
)
def test_more_threads_are_not_advised_where_they_do_not_help(made):
    assert "too-few-threads" not in by_code(made)


def test_threads_gain_no_more_than_the_gil_and_the_cpus_leave():
    """Of 8.8 s of CPU, each of two processes has 4.4 s: no threads take less than these of 8 s."""
    made = waiting("sleep", cpu=0.55)
    assert Analysis(made).seconds_saved(workers=4) == pytest.approx(4.0, abs=0.1)
    assert by_code(made)["too-few-threads"].potential_saving == pytest.approx(3.6, abs=0.01)
    # Of two CPUs tasks use 1.1, so that no more than 45% of 8 s are gained.
    made = addressed(waiting("sleep", workers="abcd", cpu=0.275), cpus=[2] * 4, host=["one"] * 4)
    assert by_code(made)["too-few-threads"].potential_saving == pytest.approx(0.45 * 4, abs=0.01)


def test_io_bound():
    finding = by_code(waiting("io-wait"))["io-bound"]
    assert finding.potential_saving == pytest.approx(6.0, abs=0.2)
    assert numbers(finding, "lost", "share") == (16, 1)
    assert "threads_per_worker=4 (dask worker --nthreads 4), 8 threads in all; or" in finding.advice
    assert "num_workers" not in finding.advice
    assert "io-bound" not in by_code(waiting("io-wait", cpu=0.7))
    assert "io-bound" not in by_code(waiting("lock-wait"))
    # Waits that are not recorded can be on a cluster, too.
    finding = by_code(tasks_of(16, "ab"))["io-bound"]
    assert (finding.severity, finding.certainty) == ("medium", "upper_bound")
    assert finding.advice.startswith("record what tasks wait for with Profiler(waits=True)")


def test_gil_bound():
    """Two threads of each of two workers take turns: in processes of one thread they need not."""
    finding = by_code(waiting("gil-wait", threads=2, cpu=0.5))["gil-bound"]
    assert finding.potential_saving == pytest.approx(2.0, abs=0.2)
    assert numbers(finding, "waited", "share") == (8, 0.5)
    assert "Client(n_workers=..., threads_per_worker=1)" in finding.advice
    assert "scheduler='" not in finding.advice
    assert "gil-bound" not in by_code(waiting("gil-wait", threads=2, cpu=0.9))
    assert "gil-bound" not in by_code(waiting("sleep", threads=2, cpu=0.5))
    # Workers that have one thread are not advised to have fewer.
    advice = by_code(waiting("gil-wait", cpu=0.5))["gil-bound"].advice
    assert "threads_per_worker" not in advice
    assert "releases the GIL" in advice


@pytest.mark.parametrize(
    ("count", "work", "is_found"), [(200, 0.001, True), (200, 0.019, False), (99, 0.001, False)]
)
def test_tasks_too_small(count, work, is_found):
    """One after the other on a thread, each sent when the one before is done, and 3 ms on its way."""
    sent = [n * (work + 0.003) for n in range(count + 1)]
    rows = [("a/0", s, s + 0.003, e, e, s) for s, e in zip(sent, sent[1:])]
    finding = by_code(on_cluster(rows, [ONE], stop=sent[-1])).get("tasks-too-small")
    assert bool(finding) == is_found
    if finding:
        expected = (200, 0.001, 0.003, 0.75)
        assert numbers(finding, "tasks", "work", "overhead", "share") == expected
        # Workers are sent tasks before they need them: why these came so late is not simulated.
        assert (finding.potential_saving, finding.certainty) == (pytest.approx(0.6), "upper_bound")
        # Keys of futures are no tuples: there are no chunks.
        assert finding.advice.startswith("have each task process a list of about 58 inputs")


@pytest.mark.parametrize(("moving", "is_found"), [(False, True), (True, False)])
def test_tasks_in_tasks_are_small_and_data_on_the_way_is_no_overhead(moving, is_found):
    """A task that started 200 tasks of 1 ms, each 3 ms on its way, has seceded since."""
    sent = [0.001 + n * 0.004 for n in range(201)]
    rows = [("a/0", s, s + 0.003, e, e, s) for s, e in zip(sent, sent[1:])]
    started = ("a/1", 0.0, 0.0, sent[-1], sent[-1], 0.0, 0.001)
    way = moved(*((n, s, s + 0.003, 1e6, "b", "a") for n, s in enumerate(sent[:-1])))
    tables = {"transfers": way} if moving else {}
    made = on_cluster([started, *rows], [ONE], stop=sent[-1], **tables)
    finding = by_code(made).get("tasks-too-small")
    assert bool(finding) == is_found
    if finding:
        assert numbers(finding, "tasks", "work") == (201, 0.001)
        assert finding.advice.startswith("call these functions directly in the tasks")
    assert "201 tasks on 1 worker" in made.summary()


@pytest.mark.parametrize(("different", "again"), [(2, 6), (4, 4), (8, 0)])
def test_tasks_that_compute_on_their_own_cluster_run_the_same_again(different, again):
    inner = [("a/0", n, n, n + 1.0, n + 1.0) for n in range(8)]
    made = on_cluster([("a/1", 0.0, 0.0, 9.0, 9.0, 0.0, 0.1), *inner], [ONE], stop=9.0)
    keys = ["f-0", *(f"load-{n % different}" for n in range(8))]
    made = with_columns(made, "tasks", key=keys, function=["f", *["load"] * 8])
    computes = ("compute", f"{PACKAGES}/dask/base.py", 600, 590)
    made = with_stacks(made, [((0.0, 9.0), "f", [MAIN, computes, WAITS], 0.1, 0.1)])
    finding = by_code(made).get("nested-computations")
    assert bool(finding) == bool(again)
    if finding:
        assert finding.certainty == "upper_bound"
        assert finding.evidence == (
            "1 task of f computed with dask inside, at main (~/code/main.py:5), and waited for it: "
            f"{again} of 8 runs of load repeated earlier ones"
        )
        assert "compute it once" in finding.advice


def test_a_lock_of_the_cluster_is_named_by_the_line_that_asks_for_it():
    takes = [MAIN, ("Semaphore.__enter__", f"{PACKAGES}/distributed/semaphore.py", 400, 390), WAITS]
    waiting = [*takes, ("Event.wait", "/usr/lib/python3.12/threading.py", 629, 600)]
    # One of four at a time has it.
    one = with_waits(tasks_of(8, "abcd", cpu=0.25), "lock-wait")
    for path, is_found in ((waiting, True), ([MAIN, WAITS, waiting[-1]], False)):
        made = with_stacks(one, [((0.0, 2.0), "f", path, 8.0, 2.0)])
        finding = by_code(made).get("lock-bound")
        assert bool(finding) == is_found
        if finding:
            assert "in main (~/code/main.py:5)." in finding.evidence


@pytest.mark.parametrize("joined", [0.4, 6.0])
def test_a_cluster_without_workers_starts_up(joined):
    """A graph arrives at 0; its tasks of 4 s run from when the only worker joins."""
    made = on_cluster([("a/0", joined, joined, joined + 4, joined + 4)], [("a", 1, joined, NAN)])
    parts = {row["part"]: row["seconds"] for row in Analysis(made).wall_time.to_dicts()}
    assert parts["startup"] == pytest.approx(joined)
    assert parts.get("preparing", 0.0) == 0.0
    assert sum(parts.values()) == pytest.approx(10.0)
    # No worker had left: it starts once.
    assert "pool-startup" not in by_code(made)


@pytest.mark.parametrize(
    ("stays", "reason", "lost"),
    [(0, "retire-workers", 3.0), (1, "retire-workers", 1.5), (0, "closed", None), (2, "", None)],
    ids=["all leave", "one of two leaves", "it did not adapt", "none leaves"],
)
def test_workers_that_leave_between_computations_are_waited_for(stays, reason, lost):
    """Two workers compute until 2; from 4 on, the second computation has all of them after 7."""
    names = "abcd"[: 4 - stays]
    workers = [
        (name, 1, *((7.0, NAN) if n > 1 else (-5.0, NAN if n < stays else 3.0)))
        for n, name in enumerate(names)
    ]
    rows = [(f"{name}/0", 0, 0, 2, 2) for name in "ab"]
    rows += [(f"{name}/0", 4, 7, 9, 9) for name in (names * 2)[2:4]]
    made = on_cluster(rows, workers)
    columns = {name: made.computations[name].tolist() * 2 for name in made.computations.columns}
    starts = [0.0, 4.0]
    columns |= {"computation": ["c", "d"], "stop": [2.0, 9.0]}
    columns |= {"called": starts, "start": starts, "prepared": starts}
    made = replace(made, computations=filled_table("computations", columns))
    made = with_columns(made, "tasks", computation=["c", "c", "d", "d"])
    left = ["" if np.isnan(left) else reason for left in made.workers.left.tolist()]
    made = with_columns(made, "workers", reason=left)
    severity = lost and ("high" if lost > 2.1 else "medium")
    finding = assert_found(by_code(made), "pool-startup", severity, lost)
    if finding:
        number = 2 - stays
        assert numbers(finding, "left", "joined", "lost", "computing") == (number, number, lost, 7)
        assert finding.where.intervals == ((4.0, 7.0),)


GATHERS = [MAIN, ("Client.gather", CLIENT, 2538, 2500), WAITS]
SUBMITS = [MAIN, ("Client.submit", CLIENT, 2148, 2000), PICKLES]


def one_by_one(tasks=1, count=8, path=GATHERS, own=0.0, stop=None):
    """Computations of a second on two threads, a second from one to the next, if there is code."""
    step = 1.0 + own
    starts = [n * step for n in range(count)]
    rows = [(f"{'ab'[n]}/0", s, s, s + 1, s + 1) for s in starts for n in range(tasks)]
    stop = starts[-1] + step if stop is None else stop
    made = on_cluster(rows, stop=stop)
    names = [f"c{n}" for n in range(count)]
    columns = {name: made.computations[name].tolist() * count for name in made.computations.columns}
    columns |= {"computation": names, "stop": [s + 1 for s in starts]}
    columns |= dict.fromkeys(("called", "start", "prepared"), starts)
    made = replace(made, computations=filled_table("computations", columns))
    made = with_columns(made, "tasks", computation=[n for n in names for _ in range(tasks)])
    made = with_columns(made, "tasks", client=["x"] * len(rows), nbytes=[1e8] * len(rows))
    stacks = [((s, s + 1), "between computations", path, 1.0, 0.0) for s in starts]
    if own:
        later = [("note", "/home/someone/code/main.py", 20, 18)]
        stacks += [((s + 1, s + step), "between computations", later, own, own) for s in starts]
    return with_stacks(made, stacks)


def small_on_cluster(number=200, between=3e-3, work=2e-4, apart=0.0, moved=0.0):
    """Computations of 2 ms at the scheduler: graphs are made and results brought between them."""
    step = 2e-3 + between
    starts = [n * (step + apart) for n in range(number)]
    rows = [("a/0", s, s + 1e-3, s + 1e-3 + work, s + 2e-3) for s in starts]
    made = on_cluster(rows, stop=starts[-1] + step)
    names = [f"c{n}" for n in range(number)]
    columns = {
        name: made.computations[name].tolist() * number for name in made.computations.columns
    }
    columns |= {"computation": names, "stop": [s + 2e-3 for s in starts]}
    columns |= dict.fromkeys(("called", "start", "prepared"), starts)
    columns["graph_bytes"] = [moved] * number
    made = replace(made, computations=filled_table("computations", columns))
    made = with_columns(made, "tasks", computation=names, client=["x"] * number)
    ends = [s + 2e-3 for s in starts]
    stacks = [
        ((s, s + between), "between computations", path, share * between, 0.0)
        for s in ends
        for path, share in ((GATHERS, 2 / 3), (SUBMITS, 1 / 3))
    ]
    if apart:
        later = [("note", "/home/someone/code/main.py", 20, 18)]
        stacks += [((s, s + apart), "between computations", later, apart, apart) for s in ends]
    return with_stacks(made, stacks)


def test_small_computations_on_a_cluster_are_round_trips():
    found = by_code(small_on_cluster())
    # From the first graph to the last result, but for the seconds of tasks.
    assert_found(found, "small-computations", "high", 0.96)
    evidence = found["small-computations"].evidence
    assert evidence.startswith("200 computations of 1 task took 5.00 ms each, of which tasks ran")
    assert "for 200 µs. Called at main (~/code/main.py:5)" in evidence
    assert not found.keys() & {"serial-computations", "tasks-too-small", "large-results"}
    for others, is_found in (
        ({"number": 90}, False),
        ({"work": 9e-4, "between": 0.0}, True),
        # Large data takes the time, or the program does something else.
        ({"moved": 2e6}, False),
        ({"apart": 0.1}, False),
    ):
        made = small_on_cluster(**others)
        assert ("small-computations" in by_code(made)) == is_found, others


def test_computations_one_after_the_other():
    found = by_code(one_by_one())
    assert_found(found, "serial-computations", "high", 4.0)
    assert numbers(found["serial-computations"], "number", "tasks", "workers") == (8, 8, 2)
    assert "at main (~/code/main.py:5)" in found["serial-computations"].evidence
    # One cause is one finding.
    assert not found.keys() & {"chunks-too-large", "imbalance", "client-bound", "large-results"}
    # Few; with a task for each thread; without a line at which the program waited.
    for made in (one_by_one(count=4), one_by_one(tasks=2), one_by_one(path=[MAIN])):
        assert "serial-computations" not in by_code(made)


def test_the_programs_own_code_and_results_that_come_late():
    """Of each step of 2 s, the program is a second in code of its own, or waits for a result."""
    found = by_code(one_by_one(tasks=2, own=1.0))
    finding = assert_found(found, "client-bound", "high", 8.0)
    assert numbers(finding, "lost", "wall") == (8, 16)
    assert "note (~/code/main.py:20) 100%" in finding.evidence
    assert "client-bound" not in by_code(one_by_one(tasks=2, own=0.3))
    assert "ran its own code for 8.00 s" in finding.evidence
    asleep = one_by_one(tasks=2, own=1.0)
    asleep = with_columns(asleep, "samples", cpu_seconds=np.zeros(len(asleep.samples)))
    assert "slept or waited for 8.00 s" in by_code(asleep)["client-bound"].evidence
    # The last result of 100 MB is on its way for 4 s.
    made = one_by_one(tasks=2, stop=12.0)
    samples = [((8.0, 12.0), "graph", GATHERS, 4.0, 0.0)]
    finding = assert_found(by_code(with_stacks(made, samples)), "large-results", "high", 4.0)
    assert "at main (~/code/main.py:5)" in finding.evidence
    small = with_columns(made, "tasks", nbytes=[1e5] * 16)
    for other in (
        with_stacks(small, samples),
        with_stacks(made, [(*samples[0][:2], [MAIN], 4, 0)]),
    ):
        assert "large-results" not in by_code(other)


def test_clusters_that_start_again_are_no_code_of_the_program():
    """After each computation of a second a cluster closes, and another starts, for a second."""
    one = one_by_one(tasks=2, own=1.0)
    made = with_columns(one, "computations", cluster=[str(n) for n in range(8)])
    starts = [("run", "/home/someone/code/main.py", 20, 18), STARTS]
    rows = [
        ((2.0 * n + 1, 2.0 * n + 2), "between computations", starts, 1.0, 0.0) for n in range(8)
    ]
    found = by_code(with_stacks(made, rows))
    # The last one closes at the end.
    finding = assert_found(found, "pool-startup", "high", 7.0)
    assert "7.00 s of 16.0 s between computations, at run (~/code/main.py:20)" in finding.evidence
    assert "one cluster" in finding.advice
    assert "client-bound" not in found
    assert "pool-startup" not in by_code(with_stacks(made, rows[-2:]))
    # A single one may start between computations without a cluster.
    assert "pool-startup" not in by_code(with_stacks(one, rows))
    restarts = ("Client.restart", "/opt/env/site-packages/distributed/client.py", 3500, 3480)
    again = [(*row[:2], [starts[0], restarts], *row[3:]) for row in rows]
    finding = assert_found(by_code(with_stacks(one, again)), "pool-startup", "high", 7.0)
    assert "client.restart()" in finding.advice


STARTS = ("LocalCluster.__init__", "/opt/env/site-packages/distributed/deploy/local.py", 256, 130)


def test_who_waits_while_tasks_run_waits_for_them():
    """Of a cycle of 2 s tasks take a second, in which the program waits; then it computes."""
    made = one_by_one(tasks=2, own=1.0, count=20)
    later, starts = [("note", "/home/someone/code/main.py", 20, 18)], [2.0 * n for n in range(20)]
    rows = [
        ((s, s + 2.0), "between computations", path, 1.0, cpu)
        for s in starts
        for path, cpu in ((GATHERS, 0.0), (later, 1.0))
    ]
    found = by_code(with_stacks(made, rows))
    assert_found(found, "client-bound", "high", 20.0)
    assert "large-results" not in found


@pytest.mark.parametrize(("size", "is_found"), [(480e6, True), (1e6, False)])
def test_large_results_of_tasks_that_take_no_time(size, is_found):
    made = on_cluster([("a/0", 0.0, 0.0, 0.04, 0.04), ("b/0", 0.0, 0.0, 0.05, 0.05)], stop=1.0)
    made = with_columns(made, "computations", stop=[0.05])
    made = with_columns(made, "tasks", client=["x"] * 2, nbytes=[size / 2] * 2)
    samples = [((0.0, 1.0), "between computations", GATHERS, 1.0, 0.0)]
    assert ("large-results" in by_code(with_stacks(made, samples))) == is_found


@pytest.mark.parametrize(("tasks", "is_found"), [(2, True), (1, False)])
def test_small_results_that_are_brought_one_by_one(tasks, is_found):
    """Of 20 steps, or of 10; the last result is on its way for half of the time."""
    made = one_by_one(tasks=tasks, count=10, stop=20.0)
    made = with_columns(made, "tasks", nbytes=[1e3] * 10 * tasks)
    one = [MAIN, ("Future.result", CLIENT, 300, 290), WAITS]
    found = by_code(with_stacks(made, [((10.0, 20.0), "between computations", one, 10.0, 0.0)]))
    finding = assert_found(found, "large-results", "high" if is_found else None, 10.0)
    if finding:
        assert "came from the workers, 20 results one after the other, at main" in finding.evidence
        assert "client.gather(futures), in place of future.result()" in finding.advice


@pytest.mark.parametrize(("given", "is_found"), [(100e6, True), (10e6, False)])
def test_data_given_to_tasks(given, is_found):
    """Ten tasks of 0.1 s, one each second; the program takes 6 s to submit them."""
    rows = [("a/0", n, n + 0.9, n + 1.0, n + 1.0) for n in range(10)]
    made = with_columns(on_cluster(rows, [ONE]), "computations", graph_bytes=[given])
    stacks = [((0.0, 10.0), "between computations", SUBMITS, 3.0, 3.0)]
    stacks += [((-3.0, 0.0), "before computations", SUBMITS, 3.0, 3.0)]
    found = by_code(replace(with_stacks(made, stacks), start=-3.0))
    # Of 13 s, all but the second in which tasks run.
    finding = assert_found(found, "large-arguments", "high" if is_found else None, 12.0)
    if finding:
        assert numbers(finding, "given", "tasks", "each") == (100e6, 10, 10e6)
        assert "to 10 tasks of f, 10.0 MB each, at main (~/code/main.py:5)." in finding.evidence
        assert "graph-preparation" not in found


@pytest.mark.parametrize(("nbytes", "hosts"), [(3e6, "xx"), (300e6, "xx"), (3e6, "xy")])
def test_small_objects_move_slowly_within_a_host(nbytes, hosts):
    tasks = [("a/0", 0, 0, 1, 1), ("b/0", 1, 9, 10, 10)]
    made = on_cluster(tasks, transfers=moved((0, 1.0, 9.0, nbytes, "a", "b")))
    found = by_code(with_columns(made, "workers", host=list(hosts)))
    is_slow = (nbytes, hosts) == (3e6, "xx")
    codes = {"serialization-bound", "transfer-bound"}
    assert codes & set(found) == {"serialization-bound" if is_slow else "transfer-bound"}
    if is_slow:
        assert numbers(found["serialization-bound"], "rate", "results") == (375e3, 1)


def sampled(*rows, made=None):
    """Eight tasks, 3 s into their recording; a row of the client's stacks is root, path and times."""
    made = replace(tasks_of(8, "ab") if made is None else made, start=-3.0)
    stacks = [((start, stop), root, path, stop - start, 0.0) for root, path, start, stop in rows]
    return by_code(with_stacks(made, stacks))


def test_graph_preparation():
    """A call takes 3 s until its graph is at the cluster, and waits 4 s for it then."""
    found = sampled(
        ("graph", [MAIN, MAKES, LEAF], -3.0, 0.0), ("graph", [MAIN, MAKES, WAITS], 0.0, 4.0)
    )
    finding = found["graph-preparation"]
    assert "slow-start" not in found
    assert finding.potential_saving == pytest.approx(3.0)
    assert numbers(finding, "took", "wall", "tasks") == (3, 7, 8)
    assert "optimize (dask/array/core.py:7) 100%" in finding.evidence
    assert finding.where.intervals == ((-3.0, 0.0),)


@pytest.mark.parametrize(
    ("frames", "is_graph"),
    [
        ([("Client.submit", CLIENT, 2148, 2000), PICKLES], True),
        ([("map", CLIENT, 2148, 2000), PICKLES], True),
        ([("Client.__init__", CLIENT, 1100, 900), WAITS], False),
    ],
)
def test_a_call_that_makes_the_first_graph_is_no_slow_start(frames, is_graph):
    made = replace(tasks_of(8, "ab"), start=-6.0)
    stacks = [((-6.0, 0.0), "before computations", [MAIN, *frames], 6.0, 0.0)]
    found = by_code(with_stacks(made, stacks))
    assert ("graph-preparation" in found, "slow-start" in found) == (is_graph, not is_graph)
    if is_graph:
        assert found["graph-preparation"].potential_saving == pytest.approx(6.0)


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
    assert "graph-preparation" not in sampled(*rows)


def test_of_several_graphs_only_the_first_is_known():
    """Between computations a call may as well collect results."""
    twice = {name: [0.0, 6.0] for name in ("called", "start", "prepared")}
    twice |= {"computation": ["c", "d"], "stop": [4.0, 10.0]}
    made = with_columns(replace(tasks_of(8, "ab"), stop=10.0), "computations", 2, **twice)
    rows = [("graph", [MAIN, MAKES], -3.0, 0.0), ("graph", [MAIN, MAKES], 4.0, 6.0)]
    finding = sampled(*rows, made=made)["graph-preparation"]
    assert finding.potential_saving == pytest.approx(3.0)
    assert "the first graph took 3.00 s" in finding.evidence


def limited(threads=2, seconds=1.0, at_once=1, needs=("f",), late=0.0):
    """Each worker runs so many of twenty tasks at a time; the others wait there.

    Clocks let the next task start so much before the last one stops.
    """
    rows = []
    for n in range(20):
        turn, place = divmod(n, 2 * max(at_once, 1))
        start = turn * seconds
        thread = (turn + place // 2) % threads
        rows.append((f"{'ab'[place % 2]}/{thread}", 0.0, start, start + seconds + late))
    limits = columns_of(
        "computation function resource at_once", *(("c", name, "GPU", at_once) for name in needs)
    )
    made = on_cluster(
        [(*row, row[-1]) for row in rows],
        [(name, threads, -1.0, NAN) for name in "ab"],
        stop=rows[-1][-1],
        resource_limits=limits,
    )
    return with_waits(made, "sleep")


def test_resources_limit_how_many_tasks_run():
    """Two workers of two threads each run one task of a second at a time; the others wait there."""
    found = by_code(limited())
    where = {"functions": ("f",), "intervals": ((0.0, pytest.approx(9.0)),)}
    finding = assert_found(found, "unbalanced-workers", "high", 4.5, **where)
    assert numbers(finding, "idle", "share", "at_once") == (18.0, 0.45, 1)
    assert "for the resource GPU: a worker has enough of it for 1 task at once" in finding.evidence
    assert "too-few-threads" not in found
    # It is no overhead of the scheduler, but after the last task of each worker.
    (occupancy,) = occupancies(limited())
    assert occupancy.seconds(occupancy.limited) == 18.0
    assert occupancy.seconds(occupancy.idle) == 20.0
    assert occupancy.seconds(occupancy.overhead) == 0.0
    assert "unbalanced-workers" in by_code(limited(seconds=0.05))
    assert (
        by_code(limited(threads=3, at_once=2))["unbalanced-workers"].numbers["at_once"].value == 2
    )


def test_the_resource_is_named_that_tasks_wait_for_and_not_the_scarcest():
    made = limited()
    gpu = made.resource_limits
    both = columns_of(
        "computation function resource at_once", ("c", "f", "GPU", 1), ("c", "g", "DB", 1)
    )
    assert gpu.at_once.tolist() == [1]
    finding = by_code(with_tables(made, resource_limits=both))["unbalanced-workers"]
    assert "for the resource GPU" in finding.evidence


@pytest.mark.parametrize(("needs", "is_found"), [(("f",), False), (("f", "g"), True)])
def test_a_resource_that_one_of_several_functions_needs_is_a_choice(needs, is_found):
    """A camera takes one picture at a time; the tasks that look at pictures do not need it."""
    made = limited(needs=needs)
    made = with_columns(made, "tasks", function=["g"] + ["f"] * 19)
    found = by_code(made)
    assert ("unbalanced-workers" in found) == is_found
    assert "too-few-threads" not in found


def test_if_more_run_at_once_than_have_the_resource_some_do_not_need_it():
    """Of the tasks of a function, only one may need it; the others wait for the scheduler."""
    made = limited(at_once=2, threads=3)
    limits = columns_of("computation function resource at_once", ("c", "f", "GPU", 1))
    (occupancy,) = occupancies(with_tables(made, resource_limits=limits))
    assert occupancy.seconds(occupancy.limited) == 0.0
    assert occupancy.seconds(occupancy.overhead) > 0.0


def test_clocks_may_differ_a_little():
    (occupancy,) = occupancies(limited(late=0.0009))
    assert occupancy.seconds(occupancy.limited) == pytest.approx(18.0, rel=0.01)


@pytest.mark.parametrize(
    "made",
    [
        lambda: limited(threads=1),
        lambda: limited(at_once=2),
        # They ran at the same time, so not all need it.
        lambda: limited(late=0.0011),
        # It is not known how many may run, or these tasks need none.
        lambda: limited(at_once=0),
        lambda: limited(needs=("other",)),
        lambda: limited(needs=()),
    ],
)
def test_no_resource_is_said_to_limit_tasks(made):
    made = made()
    (occupancy,) = occupancies(made)
    assert occupancy.seconds(occupancy.limited) == 0.0
    assert "unbalanced-workers" not in by_code(made)


def test_calls_of_actors_are_waited_for():
    made = one_by_one(tasks=1, count=1, own=9.0)
    path = [
        ("run", "/home/someone/code/main.py", 20, 18),
        ("ActorFuture.result", "/opt/env/site-packages/distributed/actor.py", 263, 255),
        WAITS,
    ]
    found = by_code(with_stacks(made, [((1.0, 10.0), "between computations", path, 9.0, 0.0)]))
    finding = assert_found(found, "client-bound", "high", 9.0)
    assert "waited for calls of actors for 9.00 s of 10.0 s" in finding.evidence
    assert "run (~/code/main.py:20) 100%" in finding.evidence
    assert "many items" in finding.advice


@pytest.mark.parametrize(("percent", "lost"), [((100, 0), 4.5), ((95, 95), None), ((5, 5), 8.55)])
def test_workers_compute_in_calls_of_actors(percent, lost):
    """Their processes use CPUs while no task runs: only the rest is lost."""
    made = one_by_one(tasks=1, count=1, own=9.0)
    calls = ("ActorFuture.result", "/opt/env/site-packages/distributed/actor.py", 263, 255)
    path = [("run", "/home/someone/code/main.py", 20, 18), calls, WAITS]
    made = with_stacks(made, [((1.0, 10.0), "between computations", path, 9.0, 0.0)])
    made = with_columns(made, "workers", pid=[11, 12])
    rows = [(t, 11 + n, 1, percent[n]) for t in range(2, 10) for n in range(2)]
    made = with_tables(made, processes=columns_of("time pid is_child cpu", *rows))
    finding = by_code(made).get("client-bound")
    assert (finding is None) == (lost is None)
    if finding is not None:
        assert finding.potential_saving == pytest.approx(lost)
        assert finding.numbers["used"].value == pytest.approx(sum(percent) / 100)


def test_calls_of_queues_are_waited_for():
    made = one_by_one(tasks=1, count=1, own=9.0)
    queue = ("Queue.get", "/opt/env/site-packages/distributed/queues.py", 263, 255)
    path = [("run", "/home/someone/code/main.py", 20, 18), queue, WAITS]
    found = by_code(with_stacks(made, [((1.0, 10.0), "between computations", path, 9.0, 0.0)]))
    assert (
        "waited for calls of a queue, one at a time, for 9.00 s" in found["client-bound"].evidence
    )
    assert "client.gather(futures)" in found["client-bound"].advice


def test_results_that_are_slow_to_unpickle_are_large_enough():
    made = with_columns(one_by_one(tasks=2, stop=12.0), "tasks", nbytes=[2e4] * 16)
    found = by_code(with_stacks(made, [((8.0, 12.0), "graph", GATHERS, 4.0, 0.0)]))
    finding = assert_found(found, "large-results", "high", 4.0)
    assert "at 80.0 kB/s: pickling took the time" in finding.evidence
    assert "arrays or tables in place of lists" in finding.advice


def test_who_waits_for_threads_of_the_program_or_ends_a_pool_runs_no_code():
    """The program's main thread waits for others, which compute, or for Dask's processes."""
    result = ("Future.result", "/usr/lib/python3.12/concurrent/futures/_base.py", 451, 430)
    wait = ("Condition.wait", "/usr/lib/python3.12/threading.py", 355, 320)
    made = one_by_one(tasks=2, own=1.0)
    main = ("run", "/home/someone/code/main.py", 20, 18)

    def waiting(*path):
        rows = [((2.0 * n + 1, 2.0 * n + 2), "between computations", path, 1, 0) for n in range(8)]
        return by_code(with_stacks(made, rows))

    get = ("get", "/opt/env/site-packages/dask/multiprocessing.py", 250, 150)
    join = ("Process.join", "/usr/lib/python3.12/multiprocessing/process.py", 149, 142)
    assert "client-bound" not in waiting(main, result, wait)
    assert "client-bound" not in waiting(main, get, join)
    # A pool of the program's own.
    assert "client-bound" in waiting(main, join)
    assert "client-bound" in waiting(main, ("sleep", "/opt/env/site-packages/other.py", 1, 1))
