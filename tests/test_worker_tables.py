"""Tables of workers and of threads, from what was captured: a known answer for each kind."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from dask_diag._version import __version__
from dask_diag.capture.computation import Facts
from dask_diag.capture.stacks_table import joined_stacks
from dask_diag.capture.task import RemoteWorker, pack_row
from dask_diag.capture.workers_table import (
    TaskThreads,
    task_threads,
    this_host,
    threads_table,
    worker_codes,
    worker_names,
    workers_table,
)
from dask_diag.cluster import tasks_table
from dask_diag.cluster.log import ClusterLog
from dask_diag.cluster.wire import OUTCOMES, RUN, Batch, RunDetails
from dask_diag.cluster.workers_table import Lanes
from dask_diag.model.table import Table
from dask_diag.model.tables import Tasks
from dask_diag.system.threads import ThreadCpu

from .recordings import columns_of

pytestmark = pytest.mark.once

NAN = float("nan")
PID, CALLER = 100, 1


def info(scheduler="threads", workers=2, threads=(), remote=None, name="c"):
    facts = Facts(PID, CALLER, "", workers, "", scheduler)
    facts = facts._replace(threads=threads, remote_workers=remote or {})
    return SimpleNamespace(name=name, facts=facts)


def of_workers(computation, ran_on, start=None):
    """The name, the process and the thread of what ran each task."""
    workers = {}
    start = np.arange(len(ran_on)) if start is None else start
    codes = worker_codes(
        [computation],
        np.zeros(len(ran_on), int),
        np.array(ran_on, float),
        np.array(start, float),
        workers,
    )
    names, facts = worker_names(workers), list(workers)
    return [(names[code], *facts[code][:2]) for code in codes.tolist()]


@pytest.mark.parametrize(
    ("computation", "ran_on", "expected"),
    [
        (info(), [7, 9, 7], [("thread-0", PID, 7), ("thread-1", PID, 9), ("thread-0", PID, 7)]),
        # What ran it is not known: it did not start, say.
        (info(), [7, NAN], [("thread-0", PID, 7), ("unknown", 0, 0)]),
        # A pool of one thread, and the thread that called, which has no number there.
        (info("synchronous", 1), [0, CALLER], [("caller", PID, CALLER)] * 2),
        (info("synchronous", 1), [7], [("thread-0", PID, 7)]),
        (info("threads", 1), [7, 0], [("thread-0", PID, 7), ("unknown", 0, 0)]),
        # An executor of the user's that says it has four, and runs tasks in the thread that called.
        (info("synchronous", 4), [CALLER, 0], [("caller", PID, CALLER), ("unknown", 0, 0)]),
        (
            info("processes", remote={50: RemoteWorker(5, 0.5), 60: RemoteWorker(6, 0.25)}),
            [60, 50, 60],
            [("process-0", 60, 6), ("process-1", 50, 5), ("process-0", 60, 6)],
        ),
    ],
)
def test_workers_are_named_in_the_order_in_which_they_first_ran_a_task(
    computation, ran_on, expected
):
    assert of_workers(computation, ran_on) == expected


def test_the_first_worker_is_the_one_whose_task_started_first():
    names = [name for name, *_ in of_workers(info(), [7, 9, 9], [2, 3, 1])]
    assert names == ["thread-1", "thread-0", "thread-0"]
    # Of one it is not known when it started.
    assert [name for name, *_ in of_workers(info(), [7, 9], [NAN, 3])] == ["thread-1", "thread-0"]
    # Threads that compute themselves are numbered from the second on.
    callers = [(PID, CALLER, "caller"), (PID, 7, "thread"), (PID, 2, "caller")]
    assert worker_names(callers) == ["caller", "thread-0", "caller-1"]


def test_each_worker_process_has_a_row():
    processes = info("processes", remote={50: RemoteWorker(5, 0.5), 60: RemoteWorker(6, 0.25)})
    rows = workers_table([info(), processes, info("processes", remote={70: RemoteWorker(7, NAN)})])
    assert rows.computation.tolist() == ["c"] * 3
    assert rows.pid.tolist() == [50, 60, 70]
    np.testing.assert_array_equal(rows.joined, [0.5, 0.25, NAN])
    assert (rows.threads.tolist(), rows.measured.tolist()) == ([1] * 3, [1] * 3)
    assert np.isnan(rows.left).all()
    assert set(rows.host.tolist()) == {this_host()}
    assert set(rows.version.tolist()) == {__version__}
    assert set(rows.worker.tolist()) == set(rows.reason.tolist()) == {""}
    assert rows.clock_offset.tolist() == rows.clock_error.tolist() == [0.0] * 3
    assert len(workers_table([info()])) == 0


def cpu_of(computation, tasks):
    return [
        (row["kind"], row["name"], row["threads"], row["cpu_seconds"])
        for row in threads_table([(computation, tasks)]).to_dicts()
    ]


THREADS = (
    ThreadCpu("native", "openblas", 0, 4.0),
    ThreadCpu("native", "openblas", 0, 3.0),
    ThreadCpu("python", "MainThread", CALLER, 2.0),
    ThreadCpu("python", "ThreadPoolExecutor-0_1", 7, 1.0),
    ThreadCpu("python", "ThreadPoolExecutor-0_2", 9, 0.5),
    ThreadCpu("python", "zarr_io_3", 11, 0.25),
    ThreadCpu("python", "Thread-7 (work)", 13, 0.125),
    ThreadCpu("ended", "", 0, 0.0625),
)


def test_threads_of_one_name_are_a_group():
    assert cpu_of(info(threads=THREADS), TaskThreads(frozenset({7, 9}), 10**9)) == [
        ("tasks", "ThreadPoolExecutor-0", 2, 1.5),
        ("scheduler", "MainThread", 1, 2.0),
        ("python", "Thread (work)", 1, 0.125),
        ("python", "zarr_io", 1, 0.25),
        ("native", "openblas", 2, 7.0),
        # How many they were is not known.
        ("ended", "", 0, 0.0625),
    ]
    assert cpu_of(info(), TaskThreads(frozenset({7}), 10**9)) == []


@pytest.mark.parametrize(("of_tasks", "tasks", "other"), [(1.5, 1.5, 0.5), (2.5, 2.0, 0.0)])
def test_a_thread_that_runs_tasks_and_the_scheduler_is_divided(of_tasks, tasks, other):
    own = THREADS[2:3]
    assert cpu_of(info("synchronous", 1, own), TaskThreads(frozenset(), int(of_tasks * 10**9))) == [
        ("tasks", "MainThread", 1, tasks),
        ("scheduler", "MainThread", 1, other),
    ]


def test_in_processes_no_thread_of_this_one_runs_tasks():
    """Their threads may have the same numbers."""
    groups = cpu_of(info("processes", threads=THREADS[2:4]), TaskThreads(frozenset({7}), 10**9))
    assert groups == [
        ("scheduler", "MainThread", 1, 2.0),
        ("python", "ThreadPoolExecutor-0", 1, 1.0),
    ]


def test_threads_of_worker_processes_have_rows_of_their_own():
    """Of each process a row per group, after those of the computing process."""
    workers = {
        60: RemoteWorker(
            6, 0.25, (*THREADS[:2], ThreadCpu("dask_diag", "dask_diag-sampler", 9, 0.5))
        ),
        50: RemoteWorker(5, 0.5, (THREADS[0],)),
        70: RemoteWorker(7, 0.5),
    }
    computation = info("processes", threads=THREADS[2:3], remote=workers)
    table = threads_table([(computation, TaskThreads(frozenset(), 0))])
    rows = [
        tuple(row[name] for name in table.columns if name != "computation")
        for row in table.to_dicts()
    ]
    assert rows == [
        (PID, 0, "scheduler", "MainThread", 1, 2.0),
        (50, 1, "native", "openblas", 1, 4.0),
        (60, 1, "dask_diag", "dask_diag-sampler", 1, 0.5),
        (60, 1, "native", "openblas", 2, 7.0),
    ]


def test_threads_of_tasks_and_their_cpu_are_read_from_rows():
    rows = [(0, 1, 2, 0.25, 7, 2), (0, 1, 2, 0.5, 9, 2), (0, 1, 2, NAN, 7, 2), (0,) + (NAN,) * 5]
    threads = task_threads(b"".join(pack_row(*row) for row in [*rows, (0, 1, 2, 0.125, 0, 2)]))
    assert threads == TaskThreads(frozenset({7, 9}), 875_000_000)
    both = threads.plus(TaskThreads(frozenset({1}), 125_000_000))
    assert (both.idents, both.cpu) == ({1, 7, 9}, 1.0)
    # Nanoseconds are whole ones, however a float has them.
    assert task_threads(pack_row(0, 1, 2, 6.5e-05, 7, 2)).nanoseconds == 65000
    assert task_threads(b"") == TaskThreads(frozenset(), 0)


def test_stacks_of_several_workers_refer_to_their_own_frames():
    def part(count, node):
        tree = {"parent": np.arange(count) - 1, "frame": np.arange(count)}
        return {
            "frames": Table({"line": np.arange(count)}),
            "io_calls": Table({"frame": np.array([count - 1])}),
            "call_tree": Table(tree),
            "samples": Table({"node": np.array(node)}),
        }

    joined = joined_stacks([part(2, [1, -1]), part(3, [0, 2])])
    assert joined["frames"]["line"].tolist() == [0, 1, 0, 1, 2]
    assert joined["io_calls"]["frame"].tolist() == [1, 4]
    assert joined["call_tree"]["parent"].tolist() == [-1, 0, -1, 2, 3]
    assert joined["call_tree"]["frame"].tolist() == [0, 1, 2, 3, 4]
    # -1 is no stack: it was not sampled.
    assert joined["samples"]["node"].tolist() == [1, -1, 2, 4]


def pulled(log, keys, details=None, **columns):
    """The tasks of runs as they were pulled, without those columns that are not known."""
    runs = np.zeros(len(keys), RUN.dtype)
    for name, values in columns.items():
        runs[name] = values
    batch = Batch(ids=np.arange(len(keys)), rows=runs.tobytes(), keys=keys, details=details or {})
    tasks = Tasks.of(tasks_table.tasks_of(batch, log, Lanes()))
    return {name: tasks[name].tolist() for name in tasks.columns}


def test_tasks_of_a_cluster_are_as_they_were_pulled():
    """The scheduler's clock is ten seconds ahead; one run failed, of one no start is known."""
    log = ClusterLog({"tasks": True})
    log.offset, log.clients, log.labels = 10.0, ["me", "other"], {5: "worker-5"}
    log.computations = {2: SimpleNamespace(name="c", span="all")}
    runs = columns_of(
        "submitted start stop collected cpu seceded seceded_cpu thread worker computation attempt client "
        "stolen outcome nbytes",
        (12, 13, 15, 16, 1, 14, 0.25, 7, 5, 2, 1, 0, 0, OUTCOMES.index("ok"), 80),
        (14, 15, 18, 19, 0.5, NAN, NAN, 7, 5, 2, 2, 1, 1, OUTCOMES.index("failed"), 99),
        (15, NAN, NAN, 20, NAN, NAN, NAN, 0, 6, 3, 1, 0, 0, OUTCOMES.index("cancelled"), 99),
    )
    details = {1: RunDetails("ValueError", span="loading")}
    tasks = pulled(log, ["f-1", ("g-2", 0), "h-3"], details, queued=0.5, measured=1, **runs)
    expected = columns_of(
        "key function submitted start stop collected thread_cpu thread_noncpu seceded seceded_cpu queued "
        "nbytes outcome error computation span attempt stolen client thread pid host worker",
        # Only what was done has a result.
        (
            "f-1",
            "f",
            2,
            3,
            5,
            6,
            1,
            1,
            4,
            0.25,
            0.5,
            80,
            "ok",
            "",
            "c",
            "all",
            1,
            0,
            "me",
            7,
            0,
            "",
            "worker-5/0",
        ),
        (
            "('g-2', 0)",
            "g",
            4,
            5,
            8,
            9,
            0.5,
            2.5,
            NAN,
            NAN,
            0.5,
            NAN,
            "failed",
            "ValueError",
            "c",
            "loading",
            2,
            1,
            "other",
            7,
            0,
            "",
            "worker-5/0",
        ),
        (
            "h-3",
            "h",
            5,
            NAN,
            NAN,
            10,
            NAN,
            NAN,
            NAN,
            NAN,
            0.5,
            NAN,
            "cancelled",
            "",
            "",
            "",
            1,
            0,
            "me",
            0,
            0,
            "",
            "unknown/unknown",
        ),
    )
    for name, values in expected.items():
        np.testing.assert_array_equal(tasks[name], values, name)


def test_no_task_of_a_cluster_starts_before_it_was_sent_or_ends_after_it_was_known_to_have():
    """The worker's clock is three seconds behind the scheduler's, and not quite right."""
    log, clock = ClusterLog({"tasks": True}), [(0.0, 3.0, 0.5)]
    log.offset, log.clients, log.labels = 10.0, ["me"], {5: "worker-5"}
    log.workers = {5: SimpleNamespace(host="h", facts={"pid": 42, "clock": clock})}
    runs = columns_of(
        "start stop seceded collected measured",
        # In time; a second early; a second late; and by the scheduler's own clock.
        (10, 12, 11, 20, 1),
        (8, 10, 9, 20, 1),
        (12, 15, 13, 17, 1),
        (13, 15, 14, 20, 0),
    )
    tasks = pulled(log, ["f-1", "f-2", "f-3", "f-4"], submitted=12, worker=5, cpu=0.5, **runs)
    # What it took is as it was measured.
    np.testing.assert_allclose(tasks["start"], [3, 2, 4, 3])
    np.testing.assert_allclose(tasks["stop"], [5, 4, 7, 5])
    np.testing.assert_allclose(tasks["seceded"], [4, 3, 5, 4])
    assert (tasks["pid"], tasks["host"]) == ([42] * 4, ["h"] * 4)
