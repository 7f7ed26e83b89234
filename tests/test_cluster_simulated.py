"""What programs on clusters are predicted to take: by hand, and against clusters of other sizes."""

from __future__ import annotations

import time
from contextlib import contextmanager
from math import inf

import dask
import numpy as np
import psutil
import pytest

pytest.importorskip("distributed")

from dask_diag import DiagnosticError, Profiler, simulate, what_if
from dask_diag.views.what_if import what_if_summary

from .clusters import cluster
from .recordings import Busy, with_columns
from .test_cluster_occupancy import ONE, TWO, moved, recording

MB = 1_000_000
QUIET = 0.5
"""CPUs that other programs use, at most, while a truth is measured."""


def with_inputs(*edges):
    """Each a task and one that it needs."""
    task, depends_on = zip(*edges, strict=True)
    return {"task": task, "depends_on": depends_on}


def one_second_each(count=8):
    """One after the other on one thread; each waited in the queue before."""
    sent = [max(n - 1.0, 0.0) for n in range(count)]
    rows = [("a/0", sent[n], float(n), n + 1.0, n + 1.0, sent[n]) for n in range(count)]
    return recording(rows, [ONE], stop=float(count))


@pytest.mark.parametrize(("workers", "seconds"), [(1, 8), (2, 4), (3, 3), (4, 2), (8, 1), (inf, 1)])
def test_tasks_without_inputs_run_on_all_threads(workers, seconds):
    assert simulate(one_second_each(), threads=workers).seconds == pytest.approx(seconds)


def test_results_that_another_worker_needs_are_moved():
    """Two threads of one worker need no transfer; none was recorded: 0.25 GB a second, and 5 ms."""
    rows = [("a/0", 0, 0, 1, 1), ("a/1", 0, 0, 1, 1), ("a/0", 1, 1, 2, 2)]
    both = with_inputs((2, 0), (2, 1))
    together = recording(rows, [("a", 2, 0.0, np.nan)], stop=2.0, dependencies=both)
    together = with_columns(together, "tasks", nbytes=[250 * MB, 250 * MB, 0])
    assert simulate(together).seconds == pytest.approx(2)
    apart = with_columns(together, "workers", threads=[1])
    assert simulate(apart, threads=2).seconds == pytest.approx(2 + 1.005)
    # As fast as recorded: 2 s for 100 MB.
    rows = [("a/0", 0, 0, 1, 1), ("b/0", 0, 0, 1, 1), ("a/0", 1, 3, 4, 4)]
    transfers = moved((1, 1.0, 3.0, 100 * MB, "b", "a"))
    sent = recording(rows, stop=4.0, dependencies=both, transfers=transfers)
    sent = with_columns(sent, "tasks", nbytes=[100 * MB, 100 * MB, 0])
    assert simulate(sent).seconds == pytest.approx(4, abs=0.01)
    assert simulate(sent, remove={"transfer"}).seconds == pytest.approx(2)
    # Alone, a worker has both.
    assert simulate(sent, threads=1).seconds == pytest.approx(3)
    seconds = {(row["kind"], row["name"]): row["seconds"] for row in what_if(sent).to_dicts()}
    assert seconds["activity", "transfer"] == pytest.approx(2)
    larger = with_columns(sent, "tasks", nbytes=[400 * MB, 400 * MB, 0])
    assert simulate(larger).seconds == pytest.approx(2 + 8, abs=0.05)


def test_a_task_runs_where_its_inputs_are():
    """Two chains on two workers move nothing, in whatever order their tasks are ready."""
    rows = [(f"{name}/0", n, n, n + 1, n + 1) for n in (0, 1) for name in "ab"]
    chains = recording(rows, stop=2.0, dependencies=with_inputs((2, 0), (3, 1)))
    chains = with_columns(chains, "tasks", nbytes=[1000 * MB] * 4)
    assert simulate(chains).seconds == pytest.approx(2)
    assert simulate(chains, threads=1).seconds == pytest.approx(4)


@pytest.mark.parametrize(
    ("cpu", "changes", "seconds"),
    [
        (4.0, {}, 1 + 7 * 0.5),
        (4.0, {"merge_tasks": 4}, 4 + 0.5),
        # One that has little to do does what has nothing to do with tasks.
        (0.8, {}, 1 + 7 * 0.001),
    ],
)
def test_the_scheduler_takes_its_time_for_each_task(cpu, changes, seconds):
    made = with_columns(one_second_each(), "computations", cpu_scheduler=[cpu])
    assert simulate(made, threads=inf, **changes).seconds == pytest.approx(seconds)


LATER = recording(
    [("a/0", 0, 0, 1, 1), ("a/0", 5, 5, 6, 6), ("a/0", 6.5, 6.5, 7, 7)],
    [ONE],
    stop=7.0,
    dependencies=with_inputs((2, 1)),
)
"""What a client submits later is there later."""
QUEUED = recording([("a/0", n, n, n + 1, n + 1, n) for n in range(4)], [ONE], stop=4.0)
LATE_WORKER = recording(
    [*(("a/0", n, n, n + 1, n + 1, n) for n in range(3)), ("b/0", 2, 2, 3, 3, 2)],
    [ONE, ("b", 1, 2.0, np.nan)],
    stop=3.0,
)
ALONE = with_columns(
    recording(
        [("a/0", 5 + n, 5 + n, 6 + n, 6 + n, n) for n in range(4)],
        [("a", 1, 5.0, np.nan)],
        stop=9.0,
    ),
    "tasks",
    function=["f"] * 4,
)
"""The scheduler has the graph at 0 and its only worker at 5."""
LONG = recording([("a/0", 0, 0, 9, 9), *(("b/0", 0, n, n + 1, n + 1) for n in range(5))], stop=9.0)
"""One of the four others was sent ahead to wait for the long one, and is sent on."""


@pytest.mark.parametrize(
    ("recorded", "changes", "seconds"),
    [
        (LATER, {}, 7),
        (LATER, {"threads": 8}, 7),
        (LATER, {"speedup": {"f-1": 2.0}}, 6.5),
        (QUEUED, {"threads": 4}, 1),
        (LATE_WORKER, {}, 3),
        (LATE_WORKER, {"threads": 4}, 3),
        (LATE_WORKER, {"remove": {"startup"}}, 2),
        (ALONE, {}, 9),
        (ALONE, {"merge_tasks": 2}, 9),
        (ALONE, {"threads": 4}, 6),
        (ALONE, {"remove": {"overhead"}}, 9),
        (ALONE, {"remove": {"startup"}}, 4),
        (LONG, {}, 9),
        (LONG, {"speedup": {"f-0": 4.0}}, 4),
    ],
)
def test_what_waited_for_its_submission_a_thread_or_a_worker(recorded, changes, seconds):
    assert simulate(recorded, **changes).seconds == pytest.approx(seconds, abs=0.01)


def test_a_run_whose_worker_was_lost_ends_there():
    rows = [("a/0", 0, 0, np.nan, 1), ("b/0", 1, 1, 2, 2), ("b/0", 2, np.nan, np.nan, np.nan)]
    recorded = recording(rows, [("a", 1, 0.0, 1.0), TWO], stop=2.0)
    recorded = with_columns(recorded, "tasks", outcome=["unfinished", "ok", "cancelled"])
    simulated = simulate(recorded)
    assert (simulated.seconds, simulated.work) == (pytest.approx(2), pytest.approx(2))


def test_tasks_that_need_a_cpu_share_those_of_the_hosts():
    cpu = {"thread_cpu": np.ones(8), "thread_noncpu": np.zeros(8)}
    one_host = with_columns(one_second_each(), "tasks", **cpu)
    one_host = with_columns(one_host, "workers", cpus=[2], host=["here"])
    assert simulate(one_host, threads=8).seconds == pytest.approx(4)
    rows = [(f"{w}/0", n, float(n), n + 1.0, n + 1.0, n) for n in range(4) for w in "ab"]
    both = with_columns(recording(rows, stop=4.0), "tasks", **cpu)
    both = with_columns(both, "workers", cpus=[1, 1], host=["here", "there"])
    # More workers are on more hosts.
    assert simulate(both, threads=8).seconds == pytest.approx(1)


def test_what_is_not_simulated_is_said():
    with pytest.raises(DiagnosticError, match="scheduler: expected a recording of local"):
        simulate(one_second_each(), scheduler="threads")
    text = what_if_summary(what_if(one_second_each(), threads=8), one_second_each())
    assert "Threads are those of all workers" in text
    assert max(map(len, text.splitlines())) <= 80


def test_the_simulator_takes_seconds_for_many_tasks():
    rows = [("a/0", 0.0, n * 1e-3, (n + 1) * 1e-3, (n + 1) * 1e-3) for n in range(20_000)]
    needed = with_inputs(*((n, n - 10_000) for n in range(10_000, 20_000)))
    many = recording(rows, [ONE], stop=20.0, dependencies=needed)
    start = time.process_time()
    assert simulate(many, threads=inf).seconds < simulate(many, threads=8).seconds < 20
    assert time.process_time() - start < 5


def nap(seconds, *inputs):
    time.sleep(seconds)


def nothing(_):
    pass


def took(recorded):
    return float((recorded.computations.stop - recorded.computations.start).sum())


def predicted(recorded, **changes):
    """Seconds of the computations, without what the program does before and after."""
    return float(simulate(recorded, **changes).computations["seconds"].sum())


def measured(client, function, *arguments):
    with Profiler() as prof:
        client.gather(client.map(function, *arguments, pure=False))
    return prof.recording


@contextmanager
def on_quiet_cpus():
    """What is measured while other programs compute is not known in advance."""

    def of_others():
        machine, own = psutil.cpu_times(), time.process_time()
        return machine.user + machine.nice + machine.system - own

    before, start = of_others(), time.perf_counter()
    try:
        yield
    finally:
        used = (of_others() - before) / (time.perf_counter() - start)
        if used > QUIET:
            raise Busy(f"other programs used {used:.1f} CPUs")


def naps_in_two_steps(client, seconds):
    """Naps on four workers, and one that needs them all."""
    with Profiler() as prof:
        first = client.map(nap, seconds, pure=False)
        client.submit(nap, 0.2, first, pure=False).result()
    return prof.recording


def grown(client, workers):
    client.cluster.scale(workers)
    client.wait_for_workers(workers)
    client.gather(client.map(nothing, range(4 * workers)))


def more_workers():
    with on_quiet_cpus(), cluster(workers=1) as client:
        grown(client, 1)
        one = measured(client, nap, [0.2] * 16)
        assert predicted(one) == pytest.approx(took(one), rel=0.05)
        for workers in (2, 4, 8):
            grown(client, workers)
            truth = took(measured(client, nap, [0.2] * 16))
            assert predicted(one, threads=workers) == pytest.approx(truth, rel=0.1)


def a_straggler_that_is_halved():
    with on_quiet_cpus(), cluster(workers=4) as client:
        grown(client, 4)
        slow = naps_in_two_steps(client, [1.0, 0.2, 0.3, 0.4])
        assert predicted(slow) == pytest.approx(took(slow), rel=0.05)
        quick = naps_in_two_steps(client, [0.5, 0.2, 0.3, 0.4])
        tasks = slow.tasks
        key = tasks.key.tolist()[int(np.argmax(tasks.stop - tasks.start))]
        assert predicted(slow, speedup={key: 2.0}) == pytest.approx(took(quick), rel=0.1)


def larger_chunks_of_tiny_tasks():
    """What the scheduler and the messages take; a task of nothing is still one of nothing."""
    with on_quiet_cpus(), cluster(workers=2) as client:
        grown(client, 2)
        tiny = measured(client, nothing, range(2000))
        assert predicted(tiny) == pytest.approx(took(tiny), rel=0.2)
        truth = took(measured(client, nothing, range(200)))
        assert truth / 2 < predicted(tiny, merge_tasks=10) < 2 * truth < took(tiny)


def local_schedulers_and_clusters():
    with on_quiet_cpus(), cluster(workers=1) as client, Profiler() as prof:
        tasks = [dask.delayed(nap)(0.2) for _ in range(4)]
        dask.compute(tasks, scheduler="threads", num_workers=1)
        client.gather(client.map(nap, [0.2] * 4, pure=False))
    recorded = prof.recording
    assert recorded.computations.scheduler.tolist() == ["threads", "distributed"]
    assert simulate(recorded).seconds == pytest.approx(recorded.stop - recorded.start, rel=0.05)
    rows = simulate(recorded, threads=4).computations
    assert rows["workers"].tolist() == [4, 4]
    assert rows["seconds"] == pytest.approx([0.2, 0.2], rel=0.2)


@pytest.mark.parametrize(
    "truth",
    [
        more_workers,
        a_straggler_that_is_halved,
        larger_chunks_of_tiny_tasks,
        local_schedulers_and_clusters,
    ],
)
def test_predictions_are_what_is_measured(truth, retried):
    retried(truth)
