"""Findings on how tasks are handed out, and how many run at once, on recordings by hand."""

from __future__ import annotations

import numpy as np
import pytest

from dask_diag.analysis.facts import Analysis

from .stacks import LEAF, MAIN, with_stacks
from .tables import with_columns, with_tables
from .test_finding_thresholds import (
    Task,
    by_code,
    numbers,
    run,
    straggling,
    tasks_with_overhead,
    two_at_once,
    with_threads,
    with_waits,
)

pytestmark = pytest.mark.once


def waiting(share, tasks=100, workers=2):
    """Two workers in turn run tasks that are collected late: free ones wait in that share."""
    period, work = 0.01, 0.01 * (1 - share)
    rows = [
        Task(
            n // 2 * period,
            n // 2 * period + work,
            worker=n % 2,
            collected=(n // 2 + 1) * period,
        )
        for n in range(tasks)
    ]
    return run(rows, workers=workers)


@pytest.mark.parametrize(
    ("share", "tasks", "is_found"),
    [(0.74, 100, False), (0.76, 100, True), (0.76, 50, True), (0.76, 48, False)],
)
def test_scheduler_bound(share, tasks, is_found):
    finding = by_code(waiting(share, tasks)).get("scheduler-bound")
    assert bool(finding) == is_found
    if finding:
        assert finding.severity == "high"
        assert numbers(finding, "workers", "waited", "tasks") == (2, share, tasks)
        assert finding.kind == "at most"
        assert 0 < finding.seconds_lost < tasks / 2 * 0.01


def test_one_thread_that_runs_tasks_and_scheduler_is_not_scheduler_bound():
    recording = waiting(0.9)
    alone = with_columns(recording, "computations", scheduler=["synchronous"])
    assert "scheduler-bound" not in by_code(alone)
    assert "tasks-too-small" in by_code(tasks_with_overhead(120, 0.001, 0.009))


def taking_turns(locked, count=4):
    """Each worker waits for the lock in that share of the time of its tasks."""
    rows = [
        Task(n // 2, n // 2 + 1, 1 - locked, worker=n % 2, function="copy") for n in range(count)
    ]
    return with_waits(run(rows), "lock-wait")


@pytest.mark.parametrize(
    ("locked", "severity"), [(0.14, None), (0.17, "medium"), (0.29, "medium"), (0.31, "high")]
)
def test_lock_bound(locked, severity):
    finding = by_code(taking_turns(locked)).get("lock-bound")
    assert (finding and finding.severity) == severity
    if finding:
        assert finding.seconds_lost == pytest.approx(2 * locked, rel=0.05)
        assert finding.kind == "about"
        assert finding.where.functions == ("copy",)
        assert finding.where.workers == ("thread-0", "thread-1")


def test_what_cannot_be_simulated_is_at_most_what_was_waited(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    finding = by_code(taking_turns(0.5))["lock-bound"]
    assert (finding.kind, finding.seconds_lost) == ("at most", pytest.approx(1.0))
    finding = by_code(waiting(0.8))["scheduler-bound"]
    assert (finding.kind, finding.seconds_lost) == ("at most", pytest.approx(0.4, rel=0.02))


def test_lock_bound_names_the_line_outside_the_standard_library():
    recording = taking_turns(0.5)
    wait = ("wait", "/usr/lib/python3.12/threading.py", 320, 300)
    stacks = [
        ((0.0, 2.0), "copy", [MAIN, wait], 1.0, 0.0),
        ((0.0, 2.0), "copy", [LEAF, wait], 0.5, 0.0),
        ((0.0, 2.0), "copy", [("update", "/code/update.py", 9, 1), LEAF], 0.25, 0.0),
        ((0.0, 2.0), "copy", [("compute", "/code/compute.py", 2, 1)], 2.0, 2.0),
        ((0.0, 2.0), "load", [("open", "/code/load.py", 3, 1), wait], 4.0, 0.0),
        ((0.0, 2.0), "scheduler", [("get", "/code/get.py", 4, 1), wait], 4.0, 0.0),
    ]
    evidence = by_code(with_stacks(recording, stacks))["lock-bound"].evidence
    # Only what waits in these tasks is named, the line with most of it first; of the standard
    # library, no line.
    assert "in main (~/code/main.py:5) and update (/code/update.py:9). Mostly" in evidence


@pytest.mark.parametrize(("seconds", "is_found"), [(0.9, True), (1.1, False)])
def test_a_task_that_waits_for_what_it_computes_inside_waits_for_no_lock(seconds, is_found):
    in_dask = ("queue_get", "/lib/python3.12/site-packages/dask/local.py", 141, 140)
    stacks = [
        ((0.0, 2.0), "copy", [MAIN, in_dask], seconds, 0.0),
        ((0.0, 2.0), "copy", [MAIN], 1.0, 0.0),
    ]
    assert ("lock-bound" in by_code(with_stacks(taking_turns(0.5), stacks))) == is_found


@pytest.mark.parametrize(("waited", "code"), [(0.62, "lock-bound"), (0.63, "too-few-threads")])
def test_tasks_that_share_a_lock_do_not_all_wait_for_it(waited, code):
    # Of two tasks at a time one holds the lock: half of their time, and a quarter for the samples.
    recording = taking_turns(waited, count=24)
    results = by_code(recording)
    assert set(results) & {"lock-bound", "too-few-threads"} == {code}
    if code == "too-few-threads":
        assert "slept or waited for I/O or other threads" in results[code].evidence
        assert numbers(results[code], "share") == (waited,)


# Of eight, seven may wait for the one that holds it.
@pytest.mark.parametrize(("waited", "is_lock"), [(0.875, True), (0.9, True), (0.91, False)])
def test_many_tasks_that_share_a_lock_do_not_all_wait_for_it(waited, is_lock):
    rows = [Task(n // 8, n // 8 + 1, 1 - waited, worker=n % 8) for n in range(64)]
    recording = with_waits(run(rows, workers=8), "lock-wait")
    assert ("lock-bound" in by_code(recording)) == is_lock


def of_eight_at_once(lines, sampled=1.0):
    """They wait for three quarters of their time, in stacks that end so; that share is sampled.

    Of eight that share a lock one holds it. These hold the time of two, so it may be a lock.
    """
    rows = [Task(n // 8, n // 8 + 1, 0.25, worker=n % 8) for n in range(64)]
    recording = with_waits(run(rows, workers=8, cpus=8), "lock-wait")
    file = "/usr/lib/python3.12/"
    path = [MAIN, *((name, file + path, 9, 1) for name, path in lines)]
    stacks = [
        ((0.0, 8.0), "copy", path, 48.0 * sampled, 0.0),
        ((0.0, 8.0), "copy", [LEAF], 16.0 * sampled, 16.0 * sampled),
        ((0.0, 8.0), "copy", None, 64.0 * (1 - sampled), 16.0 * (1 - sampled)),
    ]
    return with_stacks(recording, stacks)


CONDITION = ("Condition.wait", "threading.py")


@pytest.mark.parametrize("sampled", [1.0, 0.5])
@pytest.mark.parametrize(
    ("lines", "code"),
    [
        ([("Future.result", "concurrent/futures/_base.py"), CONDITION], "too-few-threads"),
        ([("Event.wait", "threading.py"), CONDITION], "too-few-threads"),
        ([("Thread.join", "threading.py")], "too-few-threads"),
        # As Python 3.10 names them.
        ([("result", "concurrent/futures/_base.py"), ("wait", "threading.py")], "too-few-threads"),
        ([("Semaphore.acquire", "threading.py"), CONDITION], "lock-bound"),
        ([("Queue.get", "queue.py"), CONDITION], "lock-bound"),
        ([CONDITION], "lock-bound"),
        # The same name elsewhere is no evidence.
        ([("Thread.join", "paths.py")], "lock-bound"),
        ([], "lock-bound"),
    ],
)
def test_stacks_say_whether_tasks_wait_for_a_lock_or_for_other_threads(lines, code, sampled):
    codes = set(by_code(of_eight_at_once(lines, sampled)))
    assert codes & {"lock-bound", "too-few-threads"} == {code}


@pytest.mark.parametrize(("used", "is_lock"), [(0.02, True), (0.2, False)])
def test_threads_of_a_library_that_hardly_compute_are_not_waited_for(used, is_lock):
    """Two tasks at once waited for 0.8 s together: a twentieth of it says nothing."""
    recording = with_threads(used, 0.4, activity="lock-wait")
    recording = with_columns(recording, "tasks", thread_cpu=[0.01, 0.01])
    recording = with_columns(recording, "threads", cpu_seconds=[0.02, used])
    assert ("lock-bound" in by_code(recording)) == is_lock


@pytest.mark.parametrize(
    ("locked", "cpu", "kind"),
    [
        # They computed in turns, all the time: without the lock they may do so for the GIL.
        (0.5, 0.5, "at most"),
        # They computed at once, though there was a lock.
        (0.4, 0.6, "about"),
        # Who holds the lock sleeps: that needs no GIL.
        (0.5, 0.1, "about"),
    ],
)
def test_a_lock_may_hide_that_tasks_hold_the_gil(locked, cpu, kind):
    rows = [Task(n // 2, n // 2 + 1, 1 - locked, worker=n % 2) for n in range(8)]
    recording = with_waits(run(rows), "lock-wait")
    recording = with_columns(recording, "tasks", thread_cpu=[cpu] * len(rows))
    finding = by_code(recording)["lock-bound"]
    assert finding.kind == kind
    assert ("GIL" in finding.advice) == (kind == "at most")


@pytest.mark.parametrize(("used", "is_found"), [(0.16, True), (0.19, False)])
def test_waits_for_a_librarys_threads_are_no_lock(used, is_found):
    # Two tasks used a second together: 15% of all are 0.18 s.
    recording = with_threads(used, 0.5, activity="lock-wait")
    assert ("lock-bound" in by_code(recording)) == is_found


def test_nothing_is_said_of_locks_without_recorded_waits():
    assert "lock-bound" not in by_code(two_at_once(cpu=0.5))


def sleeping(count, workers=2, cpu=0.0, scheduler="threads"):
    rows = [
        Task(n // workers, n // workers + 1, cpu, worker=n % workers, function="pause")
        for n in range(count)
    ]
    return run(rows, workers=workers, scheduler=scheduler)


@pytest.mark.parametrize("activity", ["sleep", "io-wait", "device-wait"])
def test_too_few_threads(activity):
    finding = by_code(with_waits(sleeping(16), activity))["too-few-threads"]
    # Sixteen tasks took eight seconds; eight at once take two.
    assert "num_workers=8" in finding.advice
    assert finding.seconds_lost == pytest.approx(6.0, rel=0.02)
    assert (finding.severity, finding.kind) == ("high", "about")
    assert numbers(finding, "cpus", "idle") == (2, 1)


def test_the_fewest_threads_that_gain_most_are_advised():
    finding = by_code(with_waits(sleeping(64), "sleep"))["too-few-threads"]
    # Of 32 s, 8 threads gain 24 s, 32 threads 30 s: four fifths are 24 s.
    assert "num_workers=8" in finding.advice
    assert finding.seconds_lost == pytest.approx(24.0, rel=0.02)


@pytest.mark.parametrize(("cpu", "is_found"), [(0.59, True), (0.61, False)])
def test_too_few_threads_needs_tasks_that_mostly_wait(cpu, is_found):
    recording = with_waits(sleeping(16, workers=1, cpu=cpu), "sleep")
    assert ("too-few-threads" in by_code(recording)) == is_found


@pytest.mark.parametrize(
    "recording",
    [
        taking_turns(0.5, count=16),
        with_waits(sleeping(2), "sleep"),
        sleeping(16),
    ],
    ids=["locks", "no more tasks", "waits not recorded"],
)
def test_more_threads_are_not_advised_where_they_do_not_help(recording):
    assert "too-few-threads" not in by_code(recording)


def test_more_threads_that_are_predicted_to_take_longer_are_not_advised(monkeypatch):
    def longer(analysis, workers=None, **changes):
        return -0.001 * (workers or 0)

    monkeypatch.setattr(Analysis, "seconds_saved", longer)
    assert "too-few-threads" not in by_code(with_waits(sleeping(2), "sleep"))


@pytest.mark.parametrize(("last", "is_found"), [("finalize", False), ("sum", True)])
def test_what_makes_one_result_of_all_chunks_is_no_chunk(last, is_found):
    parts = [Task(0, 0.1, worker=n) for n in range(4)]
    result = Task(0.1, 5.1, function=last, depends_on=(0, 1, 2, 3))
    results = by_code(run([*parts, result], workers=4, cpus=4))
    assert ("chunks-too-large" in results) == is_found


def test_a_chunk_before_one_result_is_made_is_too_large():
    tasks = [Task(0, 1.0), Task(1.0, 1.2, function="finalize", depends_on=(0,))]
    finding = by_code(run(tasks, workers=4, cpus=4))["chunks-too-large"]
    assert finding.seconds_lost == pytest.approx(0.75)


def at_once(recording, times):
    """So many computations like the one of a recording, at the same time."""
    names = [f"c{n}" for n in range(times)]
    of_tasks = [name for name in names for _ in recording.tasks.key.tolist()]
    recording = with_columns(recording, "computations", times, computation=names)
    return with_columns(recording, "tasks", times, computation=of_tasks)


@pytest.mark.parametrize("times", [1, 3, 8])
def test_computations_at_once_gain_as_much_from_threads(times):
    recording = with_waits(at_once(sleeping(16), times), "sleep")
    finding = by_code(recording)["too-few-threads"]
    # Of eight seconds that pass, however many computations share them.
    assert finding.seconds_lost == pytest.approx(6.0, rel=0.02)
    assert finding.severity == "high"


@pytest.mark.parametrize("times", [1, 3, 8])
@pytest.mark.parametrize("simulated", [True, False])
def test_computations_at_once_lose_as_much_to_a_lock(times, simulated, monkeypatch):
    if not simulated:
        monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    # A lock each, and a second of eight is waited for it by each of two workers.
    rows = [Task(n // 2, n // 2 + 1, 0.0, worker=n % 2) for n in range(16)]
    recording = with_waits(at_once(run(rows), times), "lock-wait")
    recording = with_columns(recording, "waits", seconds=recording.waits.seconds * 0.4)
    finding = by_code(recording)["lock-bound"]
    assert finding.seconds_lost == pytest.approx(3.2, rel=0.02)


@pytest.mark.parametrize(
    ("percent", "lost"), [(None, 6.0), (100.0, 4.0), (160.0, 1.6), (180.0, None)]
)
def test_programs_that_tasks_start_use_cpus(percent, lost):
    # Tasks wait for these programs for eight seconds; two CPUs compute what they do in less.
    recording = with_waits(sleeping(16), "sleep")
    if percent is not None:
        # What is sampled outside computations does not count.
        samples = {"time": [-1.0, *np.arange(0.5, 8), 9.0], "cpu": [0.0, *[percent] * 8, 0.0]}
        recording = with_tables(recording, resources=samples)
    finding = by_code(recording).get("too-few-threads")
    assert (finding and finding.seconds_lost) == (lost and pytest.approx(lost, rel=0.02))
    if finding and percent:
        assert numbers(finding, "cpus", "idle") == (2, 1 - percent / 200)


def test_where_others_use_the_cpus_it_is_said_who_did():
    recording = with_waits(sleeping(16), "sleep")
    busy = with_columns(recording, "computations", others_cpu=[15.9])
    assert numbers(by_code(busy)["too-few-threads"], "others", "cpus") == (0.99, 2)


@pytest.mark.parametrize(("locked", "is_found"), [(0.09, True), (0.11, False)])
def test_more_threads_would_wait_for_the_same_lock(locked, is_found):
    recording = with_waits(sleeping(16), "sleep")
    columns = {name: recording.waits[name] for name in recording.waits.columns}
    is_sampled = columns["samples"] > 0
    count = int(is_sampled.sum())
    mixed = {
        "task": [*columns["task"], *columns["task"][is_sampled]],
        "activity": [*columns["activity"].tolist(), *["lock-wait"] * count],
        "seconds": [
            *np.where(is_sampled, columns["seconds"] * (1 - locked), columns["seconds"]),
            *(columns["seconds"][is_sampled] * locked),
        ],
        "samples": [*columns["samples"] * 100, *columns["samples"][is_sampled] * 100],
    }
    mixed["samples"] = [
        round(100 * seconds) if name != "cpu-wait" else 0
        for name, seconds in zip(mixed["activity"], mixed["seconds"], strict=True)
    ]
    other = with_tables(recording, waits=mixed)
    assert ("too-few-threads" in by_code(other)) == is_found


@pytest.mark.parametrize(
    ("other_seconds", "is_found"),
    # The one task has 89% or 91% of the work.
    [(0.124, False), (0.099, True)],
)
def test_chunks_too_large(other_seconds, is_found):
    tasks = [Task(0, 1, function="load"), Task(0, other_seconds, function="other", worker=1)]
    finding = by_code(run(tasks)).get("chunks-too-large")
    assert bool(finding) == is_found
    if finding:
        assert finding.seconds_lost == pytest.approx(1 - (1 + other_seconds) / 2)
        assert numbers(finding, "tasks", "workers", "longest") == (1, 2, 1)
        assert "imbalance" not in by_code(run(tasks))
        assert finding.where.intervals == ((0.0, 1.0),)


def in_a_loop(steps, computations=5):
    """Computations one after the other, each of a chain of tasks of these seconds."""
    names = [f"c{n}" for n in range(computations)]
    lasts = sum(steps)
    tasks = [
        Task(
            n * lasts + sum(steps[:step]),
            n * lasts + sum(steps[: step + 1]),
            function=f"step-{step}",
            depends_on=(n * len(steps) + step - 1,) if step else (),
        )
        for n in range(computations)
        for step in range(len(steps))
    ]
    recording = run(tasks)
    start = np.arange(computations) * lasts
    times = {"computation": names, "start": start, "stop": start + lasts}
    recording = with_columns(recording, "computations", computations, **times)
    return with_columns(recording, "tasks", computation=[name for name in names for _ in steps])


@pytest.mark.parametrize(
    ("steps", "code"),
    [
        ([0.1, 0.9], "chunks-too-large"),
        ([0.3, 0.7], "chunks-too-large"),
        ([0.3, 0.4, 0.3], "serial-chain"),
    ],
)
def test_results_that_are_computed_one_by_one_are_to_be_computed_together(steps, code):
    codes = {"chunks-too-large", "serial-chain"}
    several = by_code(in_a_loop(steps))
    assert codes & set(several) == {code}
    assert several[code].seconds_lost == pytest.approx(2.5)
    assert several[code].advice.startswith("compute results that do not depend on each other")
    single = by_code(in_a_loop(steps, computations=1))
    assert codes & set(single) == {code}
    assert "dask.compute" not in single[code].advice


def test_more_workers_than_cpus_do_not_compute_more():
    finding = by_code(run([Task(0, 1)], workers=8))["chunks-too-large"]
    assert finding.seconds_lost == pytest.approx(0.5)
    finding = by_code(run([Task(0, 1, cpu=0.0)], workers=8))["chunks-too-large"]
    assert finding.seconds_lost == pytest.approx(7 / 8)


@pytest.mark.parametrize(
    ("tasks", "stop", "said", "lost", "severity"),
    [
        (
            [Task(0, 2, function="load"), Task(0, 1.5, function="load", worker=1)],
            2.0,
            "2 tasks of load had 90% or more of the work of a computation with 4 workers: the "
            "others were idle. Longest: 2.00 s",
            # 3.5 s of four workers.
            2 - 3.5 / 4,
            "high",
        ),
        # Of ten seconds, in most of which no task ran.
        (
            [Task(0, 2.4)],
            10.0,
            "1 task of work had 90% or more of the work of a computation with 4 workers: the "
            "others were idle. Longest: 2.40 s",
            1.8,
            "medium",
        ),
    ],
)
def test_chunks_too_large_says_how_few_tasks_had_the_work(tasks, stop, said, lost, severity):
    finding = by_code(run(tasks, stop, workers=4, cpus=4))["chunks-too-large"]
    assert finding.evidence == said
    assert finding.seconds_lost == pytest.approx(lost)
    assert (finding.severity, finding.kind) == (severity, "at most")


@pytest.mark.parametrize(("stop", "is_found"), [(3.32, True), (3.35, False)])
def test_what_large_chunks_cost_must_be_worth_reporting(stop, is_found):
    recording = run([Task(0, 1.0)], stop=stop)
    assert ("chunks-too-large" in by_code(recording)) == is_found


def test_as_many_tasks_as_workers_are_enough():
    assert "chunks-too-large" not in by_code(two_at_once())
    assert "chunks-too-large" not in by_code(run([Task(0, 1)], workers=1))


def test_a_long_task_among_many_of_its_function_is_a_straggler():
    codes = set(by_code(straggling(20.0, others=3)))
    assert "straggler" in codes
    assert "chunks-too-large" not in codes


def test_tasks_that_wait_for_each_other_are_a_chain():
    tasks = [Task(n, n + 1, depends_on=(n - 1,) if n else ()) for n in range(3)]
    codes = set(by_code(run(tasks, workers=4)))
    assert "serial-chain" in codes
    assert "chunks-too-large" not in codes
    assert np.isfinite(by_code(run(tasks, workers=4))["serial-chain"].seconds_lost)


@pytest.mark.parametrize(("cpu", "lost"), [(0.0, 6.0), (0.4, 1.6), (0.5, None)])
def test_threads_are_advised_in_place_of_processes_that_sleep(cpu, lost):
    """In threads, what tasks compute may take turns for the GIL."""
    recording = with_waits(sleeping(16, scheduler="processes", cpu=cpu), "sleep")
    finding = by_code(recording).get("too-few-threads")
    assert (finding is not None) == (lost is not None)
    if finding:
        assert "scheduler='threads', num_workers=" in finding.advice
        assert finding.seconds_lost == pytest.approx(lost, rel=0.02)


@pytest.mark.parametrize(
    ("count", "workers", "seconds_lost"),
    [
        # Two rounds of two; four run them in one.
        (4, 4, 1.0),
        # Nine rounds: eight workers need three, sixteen two, 32 one, which gains most: 8 s.
        (17, 16, 7.0),
    ],
)
def test_as_many_threads_are_advised_as_gain_four_fifths(count, workers, seconds_lost):
    finding = by_code(with_waits(sleeping(count), "sleep"))["too-few-threads"]
    assert f"num_workers={workers}" in finding.advice
    assert finding.seconds_lost == pytest.approx(seconds_lost, rel=0.02)


def one_by_one(*seconds, scheduler="threads"):
    """Tasks that sleep, on one worker."""
    stops = np.cumsum(seconds)
    rows = [Task(stop - duration, stop, 0.0) for stop, duration in zip(stops, seconds, strict=True)]
    return run(rows, workers=1, scheduler=scheduler)


@pytest.mark.parametrize(
    ("recording", "said", "advised", "lost", "severity"),
    [
        # What tasks compute, a quarter, needs an eighth of the time of two CPUs.
        (
            sleeping(16, cpu=0.25),
            "75% of their time, while 2 CPUs were 75% idle",
            "num_workers=8",
            6.0,
            "high",
        ),
        (
            sleeping(16, cpu=0.59),
            "41% of their time, while 2 CPUs were 41% idle",
            "num_workers=4",
            3.28,
            "high",
        ),
        (
            one_by_one(1.0, 1.0),
            "100% of their time, while 2 CPUs were 100% idle",
            "num_workers=2",
            1.0,
            "high",
        ),
        (one_by_one(8.4, 1.6), "100% of their time", "num_workers=2", 1.6, "medium"),
        # Less than 15% of ten seconds.
        (one_by_one(8.6, 1.4), None, None, None, None),
        (
            one_by_one(0.2, 0.2, scheduler="synchronous"),
            "100% of their time",
            "scheduler='threads', num_workers=2",
            0.2,
            "high",
        ),
    ],
)
def test_too_few_threads_says_what_was_idle_and_how_many_to_have(
    recording, said, advised, lost, severity
):
    finding = by_code(with_waits(recording, "sleep")).get("too-few-threads")
    assert (finding is None) == (said is None)
    if finding:
        assert finding.evidence.startswith(f"Tasks slept or waited for I/O for {said}")
        memory = "each needs its memory, which was not recorded"
        assert finding.advice == f"run more tasks at once: {advised}; {memory}"
        assert finding.seconds_lost == pytest.approx(lost, rel=0.02)
        assert finding.severity == severity
