"""Findings on how tasks are handed out, and how many run at once, on recordings by hand."""

import numpy as np
import pytest

from dask_diag import FindingLocation, findings
from dask_diag.analysis.facts import Analysis

from .recordings import (
    LEAF,
    MAIN,
    Task,
    by_code,
    check,
    in_rounds,
    run,
    two_at_once,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)
from .test_finding_thresholds import chain, tasks_with_overhead, with_threads
from .test_findings_of_ends import straggling

pytestmark = pytest.mark.once


def waiting(share, tasks=100, scheduler="threads"):
    """Two workers in turn run tasks that are collected late: free ones wait in that share."""
    # Shorter tasks are too small: a finding of its own.
    period, work = 0.2, 0.2 * (1 - share)
    starts = [n // 2 * period for n in range(tasks)]
    rows = [
        Task(start, start + work, worker=n % 2, collected=start + period)
        for n, start in enumerate(starts)
    ]
    return run(rows, scheduler=scheduler)


def test_scheduler_bound():
    cases = {
        0.74: None,
        0.76: ("high", "upper_bound", {"workers": 2, "waited": 0.76, "tasks": 100}),
        (0.76, 50): {"tasks": 50},
        (0.76, 48): None,
        # One thread that runs tasks and scheduler is not bound by it.
        (0.9, 100, "synchronous"): None,
    }
    check("scheduler-bound", waiting, cases)
    assert 0 < by_code(waiting(0.76))["scheduler-bound"].potential_saving < 10
    check("tasks-too-small", tasks_with_overhead, {(120, 0.001, 0.009): True})
    # The same seconds are one finding.
    check("scheduler-bound", tasks_with_overhead, {(120, 0.001, 0.009): None})


def taking_turns(locked, count=4, workers=2):
    """Each worker waits for the lock in that share of the time of its tasks."""
    return with_waits(in_rounds(count, workers, 1 - locked), "lock-wait")


def test_what_cannot_be_simulated_is_at_most_what_was_waited(monkeypatch):
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)
    check("lock-bound", taking_turns, {0.5: ("upper_bound", 1.0)})
    check("scheduler-bound", waiting, {0.8: ("upper_bound", pytest.approx(8.0, rel=0.02))})


WAIT = ("wait", "/usr/lib/python3.12/threading.py", 320, 300)
IN_DASK = ("queue_get", "/lib/python3.12/site-packages/dask/local.py", 141, 140)


def with_lines(*rows):
    """Two tasks that wait for a lock half of their time, with stacks."""
    return with_stacks(taking_turns(0.5), [((0.0, 2.0), *row) for row in rows])


def beside_a_library(used, cpu=None):
    """Two tasks at once waited for half a second or less, while a library's threads computed."""
    recording = with_threads(used, 0.5 if cpu is None else 0.4, activity="lock-wait")
    if cpu is None:
        return recording
    recording = with_columns(recording, "tasks", thread_cpu=[cpu] * 2)
    return with_columns(recording, "threads", cpu_seconds=[2 * cpu, used])


def of_cpu(locked, cpu):
    return with_columns(taking_turns(locked, 8), "tasks", thread_cpu=[cpu] * 8)


LOST = {waited: pytest.approx(2 * waited, rel=0.05) for waited in (0.17, 0.29, 0.31)}


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            taking_turns,
            {
                0.14: None,
                0.17: (
                    *("medium", "estimate", LOST[0.17]),
                    FindingLocation(functions=("work",), workers=("thread-0", "thread-1")),
                ),
                0.29: ("medium", LOST[0.29]),
                0.31: ("high", LOST[0.31]),
                (0.63, 24): True,
                (0.91, 64, 8): True,
            },
        ),
        (two_at_once, {(1.0, 0.5): None}),
        (
            with_lines,
            {
                # Only what waits in these tasks is named, the line with most of it first; of the
                # standard library, no line.
                (
                    ("work", (MAIN, WAIT), 1.0, 0.0),
                    ("work", (LEAF, WAIT), 0.5, 0.0),
                    ("work", (("update", "/code/update.py", 9, 1), LEAF), 0.25, 0.0),
                    ("work", (("compute", "/code/compute.py", 2, 1),), 2.0, 2.0),
                    ("load", (("open", "/code/load.py", 3, 1), WAIT), 4.0, 0.0),
                    ("scheduler", (("get", "/code/get.py", 4, 1), WAIT), 4.0, 0.0),
                ): "in main (~/code/main.py:5) and update (/code/update.py:9). Mostly",
                # A task that waits for what it computes inside waits for no lock.
                (("work", (MAIN, IN_DASK), 0.9, 0.0), ("work", (MAIN,), 1.0, 0.0)): True,
                (("work", (MAIN, IN_DASK), 1.1, 0.0), ("work", (MAIN,), 1.0, 0.0)): None,
            },
        ),
        # Threads of a library that hardly compute are not waited for: a twentieth of 0.8 s says
        # nothing. Of those that do, 15% of all are 0.18 s.
        (beside_a_library, {(0.02, 0.01): True, (0.2, 0.01): None, 0.16: True, 0.19: None}),
        (
            of_cpu,
            {
                # They computed in turns, all the time: without the lock they may for the GIL.
                (0.5, 0.5): ("upper_bound", "GIL"),
                # They computed at once, though there was a lock.
                (0.4, 0.6): ("estimate", "not: GIL"),
                # Who holds the lock sleeps: that needs no GIL.
                (0.5, 0.1): ("estimate", "not: GIL"),
            },
        ),
    ],
)
def test_lock_bound(made, cases):
    check("lock-bound", made, cases)


def locked_in(file, count=16, scheduler="threads"):
    """So many tasks of a second that wait for a lock half of their time, in a file."""
    recording = with_waits(in_rounds(count, 2, 0.5, scheduler=scheduler), "lock-wait")
    path = [MAIN, ("read", file, 9, 1)]
    return with_stacks(recording, [((0.0, count / 2), "work", path, count, count / 2)])


def test_each_process_has_a_lock_of_its_own():
    library, own = "/opt/env/lib/python3.11/site-packages/h5py/_hl/dataset.py", "/code/mine.py"
    processes = (
        "in h5py: use scheduler='processes', chunksize=1, each process has a lock of its own"
    )
    kept = "hold the lock for a smaller part of the task"
    cases = {library: processes, own: (kept, 4.0)}
    # Processes that start take longer than that; on a cluster more of them are no setting. All
    # processes share the lock of a file.
    cases |= {(library, 2): kept, (library, 16, "distributed"): kept}
    cases |= {"/opt/env/lib/python3.11/site-packages/filelock/_api.py": kept}
    check("lock-bound", locked_in, cases)
    finding, made = by_code(locked_in(library))["lock-bound"], Analysis(locked_in(library))
    # Sixteen tasks of two processes would go to them in batches of six.
    changes = {"scheduler": "processes", "chunksize": 1, "remove": {"lock-wait"}}
    saved = made.seconds_saved(**changes, result_bytes=0.0)
    assert (finding.potential_saving, finding.certainty) == (pytest.approx(saved), "upper_bound")
    assert saved < 4.0


@pytest.mark.parametrize("waiting", ["sleep", "io-wait"])
def test_who_waits_with_a_lock_may_need_it(waiting):
    """One task at a time waits, as if it had a device, while the other waits for that."""

    def with_device(share):
        path = [MAIN, ("read", "/code/mine.py", 9, 1)]
        made = with_stacks(in_rounds(16, 2), [((0.0, 8.0), "work", path, 16.0, 0.0)])
        seconds = {"lock-wait": 1 - share, waiting: share, "cpu-wait": 0.0}
        rows = {"task": [*range(16)] * 3, "activity": [name for name in seconds for _ in range(16)]}
        rows |= {"seconds": [s for s in seconds.values() for _ in range(16)], "samples": [10] * 48}
        return with_tables(made, waits=rows)

    cases = {
        (0.5,): ("medium", "upper_bound", "none, if what it protects does one thing at a time"),
        (0.3,): ("high", "not: none, if what it protects does one thing at a time"),
    }
    check("lock-bound", with_device, cases)
    assert "io-bound" not in by_code(with_device(0.5))


def callbacks(seconds, file="/home/someone/code/main.py", below="dask/local.py", tasks=100):
    """Tasks one after the other; the scheduler's thread is in a function of a file for so long."""
    made = run([Task(n / 10, (n + 1) / 10) for n in range(tasks)], workers=2, cpus=2)
    called = ("Page.posttask", file, 12, 10)
    path = [MAIN, ("get_async", f"/opt/env/lib/python3.11/site-packages/{below}", 9, 1), called]
    stop = tasks / 10
    rows = [((0.0, stop), "scheduler", path, seconds, seconds)]
    return with_stacks(made, rows)


def test_callbacks_of_the_program_keep_the_scheduler():
    site = "/opt/env/lib/python3.11/site-packages/"
    said = "most of it at Page.posttask (~/code/main.py:12)"
    cases = {
        (6.0,): ("upper_bound", "high", 6.0, said, "write or draw", {"each": 0.06, "tasks": 100}),
        (1.4,): None,
        # A library's, such as a bar of progress.
        (6.0, f"{site}tqdm/dask.py"): "most of it at Page.posttask (tqdm/dask.py:12)",
        # Dask's own work, what it pickles, and the program around it.
        (6.0, f"{site}dask/order.py"): None,
        (6.0, f"{site}cloudpickle/cloudpickle.py"): None,
        (6.0, "/home/someone/code/main.py", "dask/base.py"): None,
    }
    check("scheduler-bound", callbacks, cases)


def test_the_lock_of_an_array_is_an_argument_and_that_of_a_compiler_a_first_call():
    getter = ("getter", "/opt/env/lib/python3.11/site-packages/dask/array/core.py", 110, 90)
    made = with_waits(in_rounds(16, 2, 0.5), "lock-wait")
    for path, advised in (([MAIN, getter], True), ([getter, MAIN], True), ([MAIN], False)):
        found = by_code(with_stacks(made, [((0.0, 8.0), "work", path, 16.0, 8.0)]))
        assert ("pass lock=False, if" in found["lock-bound"].advice) == advised
    # What is written to a chunk of the target in parts is lost without a lock.
    store = ("store_chunk", *getter[1:])
    advice = by_code(with_stacks(made, [((0.0, 8.0), "work", [MAIN, store], 16.0, 8.0)]))
    assert "x.rechunk(target.chunks)" in advice["lock-bound"].advice
    assert "pass lock=False, if what is read" not in advice["lock-bound"].advice
    # A queue of a cluster is no lock that could be held for a shorter time.
    queue = ("Queue.put", "/opt/env/lib/python3.11/site-packages/distributed/queues.py", 110, 90)
    found = by_code(with_stacks(made, [((0.0, 8.0), "work", [MAIN, queue], 16.0, 8.0)]))
    assert found["lock-bound"].advice.startswith("return from the task what it puts into the queue")
    # Of compilers it is waited for while functions are compiled, which is another finding.
    numba = "/opt/env/lib/python3.11/site-packages/numba/core/compiler_lock.py"
    assert "lock-bound" not in by_code(locked_in(numba))


def of_eight_at_once(lines, sampled=1.0):
    """They wait for three quarters of their time, in stacks that end so; that share is sampled.

    Of eight that share a lock one holds it. These hold the time of two, so it may be a lock.
    """
    recording = with_waits(in_rounds(64, 8, 0.25, cpus=8), "lock-wait")
    file = "/usr/lib/python3.12/"
    path = [MAIN, *((name, file + path, 9, 1) for name, path in lines)]
    stacks = [
        ((0.0, 8.0), "work", path, 48.0 * sampled, 0.0),
        ((0.0, 8.0), "work", [LEAF], 16.0 * sampled, 16.0 * sampled),
        ((0.0, 8.0), "work", None, 64.0 * (1 - sampled), 16.0 * (1 - sampled)),
    ]
    return with_stacks(recording, stacks)


CONDITION = ("Condition.wait", "threading.py")


@pytest.mark.parametrize("sampled", [1.0, 0.5])
@pytest.mark.parametrize(
    "lines, code",
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


def resting(count=16, workers=2, cpu=0.0, activity="sleep", scheduler="threads", **columns):
    made = in_rounds(count, workers, cpu, scheduler=scheduler, **columns)
    return with_waits(made, activity) if activity else made


def one_by_one(*seconds, scheduler="threads"):
    """Tasks that sleep, on one worker."""
    stops = np.cumsum(seconds)
    rows = [Task(stop - duration, stop, 0.0) for stop, duration in zip(stops, seconds, strict=True)]
    return with_waits(run(rows, workers=1, scheduler=scheduler), "sleep")


def at_once(recording, times):
    """So many computations like the one of a recording, at the same time."""
    names = [f"c{n}" for n in range(times)]
    of_tasks = [name for name in names for _ in recording.tasks.key.tolist()]
    recording = with_columns(recording, "computations", times, computation=names)
    return with_columns(recording, "tasks", times, computation=of_tasks)


def with_programs(percent):
    """Programs that tasks wait for use the CPUs; what is sampled outside does not count."""
    samples = {"time": [-1.0, *np.arange(0.5, 8), 9.0], "cpu": [0.0, *[percent] * 8, 0.0]}
    return with_tables(resting(), resources=samples)


def with_locks(locked):
    """Tasks wait for a lock in that share of the time in which they sleep."""
    shares = {"cpu-wait": (0.0, 0), "sleep": (1 - locked, 100), "lock-wait": (locked, 100)}
    rows = [
        (task, activity, share, round(samples * share))
        for activity, (share, samples) in shares.items()
        for task in range(16)
    ]
    columns = zip(("task", "activity", "seconds", "samples"), zip(*rows, strict=True), strict=True)
    return with_tables(resting(), waits=dict(columns))


IDLE = "Tasks slept or waited for I/O for {}% of their time, while 2 CPUs were {}% idle"
MORE = "; run more tasks at once: {}; memory was not recorded: check that more tasks fit; "


def told(idle, advised, lost, severity="high"):
    return IDLE.format(idle, idle), MORE.format(advised), lost, severity, "estimate"


@pytest.mark.parametrize(
    "made, cases",
    [
        (
            resting,
            {
                # Sixteen tasks took eight seconds; eight at once take two.
                **{
                    (16, 2, 0.0, activity): ("high", "estimate", 6.0, "num_workers=8")
                    for activity in ("sleep", "device-wait")
                },
                # One cause is one finding: these wait for files.
                (16, 2, 0.0, "io-wait"): None,
                16: ({"cpus": 2, "idle": 1}, *told(100, "num_workers=8", 6.0)),
                # What tasks compute, a quarter, needs an eighth of the time of two CPUs.
                (16, 2, 0.25): told(75, "num_workers=8", 6.0),
                (16, 2, 0.59): told(41, "num_workers=4", 3.28),
                # Of 32 s, 8 threads gain 24 s, 32 threads 30 s: four fifths are 24 s.
                64: ("num_workers=8", 24.0),
                # Two rounds of two; four run them in one. Nine rounds: eight workers need three,
                # sixteen two, 32 one, which gains most: 8 s.
                4: ("num_workers=4", 1.0),
                17: ("num_workers=16", 7.0),
                # Tasks must mostly wait, and there must be more of them; waits must be recorded.
                (16, 1, 0.59): True,
                # Or they compute, and there are more CPUs than workers.
                (16, 1, 0.61): (
                    *("upper_bound", "high", {"cpu": 0.61, "tasks": 1, "cpus": 2, "idle": 0.695}),
                    *(8.0, "compute on all CPUs: scheduler='threads', num_workers=2, if these"),
                ),
                (16, 1, 1.0): (8.0, "or scheduler='processes', num_workers=2"),
                (16, 2, 1.0): None,
                2: None,
                (16, 2, 0.0, None): None,
                # In threads, what tasks of processes compute may take turns for the GIL.
                (16, 2, 0.0, "sleep", "processes"): (
                    pytest.approx(6.0, rel=0.02),
                    "scheduler='threads', num_workers=",
                ),
                (16, 2, 0.4, "sleep", "processes"): (
                    pytest.approx(1.6, rel=0.02),
                    "scheduler='threads', num_workers=",
                ),
                (16, 2, 0.5, "sleep", "processes"): None,
            },
        ),
        (
            one_by_one,
            {
                (1.0, 1.0): told(100, "num_workers=2", 1.0),
                # Less than 15% of ten seconds.
                (8.4, 1.6): ("num_workers=2", 1.6, "medium"),
                (8.6, 1.4): None,
            },
        ),
        (
            lambda scheduler: one_by_one(0.2, 0.2, scheduler=scheduler),
            {"synchronous": told(100, "scheduler='threads', num_workers=2", 0.2)},
        ),
        (
            taking_turns,
            {
                (0.5, 16): None,
                (0.63, 24): None,
            },
        ),
        (
            lambda: with_waits(in_rounds(24, 2, 0.37), "thread-wait"),
            {(): ("slept or waited for I/O or other threads", {"share": 0.63})},
        ),
        # Of eight seconds that pass, however many computations share them.
        (
            lambda times: with_waits(at_once(in_rounds(16), times), "sleep"),
            dict.fromkeys((1, 3, 8), (6.0, "high")),
        ),
        # Tasks wait for programs for eight seconds; two CPUs compute what these do in less.
        (
            with_programs,
            {
                100.0: (4.0, {"idle": 0.5, "cpus": 2}),
                160.0: (1.6, {"idle": 0.2, "cpus": 2}),
                180.0: None,
            },
        ),
        # Where others use the CPUs it is said who did.
        (lambda cpu: resting(cpu_other_processes=cpu), {15.9: {"others": 0.99, "cpus": 2}}),
        # More threads would wait for the same lock.
        (with_locks, {0.09: True, 0.11: None}),
    ],
)
def test_too_few_threads(made, cases):
    check("too-few-threads", made, cases)


def served(workers=4, one=0.1, count=40, at_once=1, jitter=0.0, latency=0.0, activity="io-wait"):
    """Tasks whose calls a server answers in order, so many at once, each after so many seconds.

    Answers are so long on their way.
    """
    answered, free = [0.0] * at_once, [0.0] * workers
    rows = []
    for n in range(count):
        worker, place = free.index(min(free)), answered.index(min(answered))
        start = free[worker] + 1e-4 * (worker + 1)
        took = one * (1 + jitter * (-1) ** (n // 2))
        answered[place] = max(answered[place], start) + took
        free[worker] = answered[place] + latency
        rows.append(Task(start, free[worker], 0.0, worker=worker))
    return with_waits(run(rows, workers=workers), activity)


@pytest.mark.parametrize("activity", ["io-wait", "sleep"])
def test_tasks_that_end_one_at_a_time_need_no_threads(activity):
    said = ({"pace": 0.1}, "every 100 ms", "unknown", "high", "more tasks at once cannot help")
    cases = {
        (4, 0.1, 40): said,
        (2, 0.1, 40): said,
        (8, 0.1, 40, 1, 0.1): said[4],
        (4, 0.1, 40, 2): ("They ended 2 at a time, every 100 ms", said[4]),
        # Most of the time of the first tasks is the way of the answer.
        (8, 0.05, 130, 1, 0.0, 0.18): ("They ended one at a time, every 50.0 ms", said[4]),
        # Too few to tell.
        (8, 0.1, 20): "not: every",
    }
    # Three of four at a time may be chance.
    independent = [(4, 0.1, 40, 4), (4, 0.1, 40, 3), (2, 0.1, 40, 2), (4, 0.1, 40, 1, 0.7), (1,)]
    for case in independent:
        found = by_code(served(*case, activity=activity))
        assert "at a time" not in " ".join(one.evidence for one in found.values()), case
        assert ("too-few-threads" if activity == "sleep" else "io-bound") in found
    if activity == "sleep":
        del cases[8, 0.1, 20]
    check("io-bound", lambda *case: served(*case, activity=activity), cases)
    assert "too-few-threads" not in by_code(served(activity=activity))


def test_a_chain_ends_one_at_a_time_without_a_server():
    """Its first tasks are shorter, as the first of those that wait for their turn."""
    ends = np.cumsum([0.08] * 4 + [0.1] * 36)
    tasks = [
        Task(*(end - 0.1 + 0.02 * (n < 4), end, 0.0), worker=n % 2, depends_on=(n - 1,)[:n])
        for n, end in enumerate(ends.tolist())
    ]
    made = with_waits(run(tasks, workers=2), "sleep")
    assert "io-bound" not in by_code(made)


def starting(count=40, waits=0.9, one=0.1, idle=0.0):
    """Tasks on two workers that wait for programs, which leave this share of the CPUs idle."""
    tasks = [
        Task(n // 2 * one, (n // 2 + 1) * one, (1 - waits) * one, worker=n % 2)
        for n in range(count)
    ]
    wall = count / 2 * one
    return with_waits(run(tasks, cpu_children=(waits - idle) * 2 * wall), "child-wait")


def test_short_programs():
    cases = {
        (): (
            *("high", "upper_bound", 1.8, "give each call many inputs"),
            {"tasks": 40, "waited": 3.6, "share": 0.9, "each": 0.09},
        ),
        (40, 0.41): ("high", 0.82),
        # Most of the time is the tasks' own, the programs are long, or they are few.
        (40, 0.39): None,
        (40, 0.9, 0.12): None,
        (18,): None,
        # More programs could run at once.
        (40, 0.9, 0.1, 0.5): None,
    }
    check("short-programs", starting, cases)
    assert "too-few-threads" in by_code(starting(idle=0.5))


def test_more_threads_that_are_predicted_to_take_longer_are_not_advised(monkeypatch):
    def longer(analysis, workers=None, **changes):
        return -0.001 * (workers or 0)

    monkeypatch.setattr(Analysis, "seconds_saved", longer)
    check("too-few-threads", resting, {2: None})


@pytest.mark.parametrize("simulated", [True, False])
def test_computations_at_once_lose_as_much_to_a_lock(simulated, monkeypatch):
    if not simulated:
        monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 1)

    def locked(times):
        """A lock each, and a second of eight is waited for it by each of two workers."""
        recording = with_waits(at_once(in_rounds(16), times), "lock-wait")
        return with_columns(recording, "waits", seconds=recording.waits.seconds * 0.4)

    check("lock-bound", locked, dict.fromkeys((1, 3, 8), pytest.approx(3.2, rel=0.02)))


def two_tasks(others, first=1.0, stop=None, **kwargs):
    """One task, and another that takes so long."""
    tasks = [Task(0, first, function="load"), Task(0, others, function="other", worker=1)]
    return run(tasks[: 1 + (others > 0)], stop, **kwargs)


def made_one(seconds, function):
    """Of four tasks one result is made."""
    parts = [Task(0, 0.1, worker=n) for n in range(4)]
    result = Task(0.1, 0.1 + seconds, function=function, depends_on=(0, 1, 2, 3))
    return run([*parts, result], workers=4, cpus=4)


def of_loads(*seconds, stop=None):
    tasks = [Task(0, took, function="load", worker=n) for n, took in enumerate(seconds)]
    return run(tasks, stop, workers=4, cpus=4)


def through(first):
    """Two tasks of load, and a step between them; the first takes hardly any time, or as long."""
    return run(
        [
            Task(0, first, function="load"),
            Task(first, first + 0.01, function="split", depends_on=(0,)),
            Task(first + 0.01, first + 1.0, function="load", depends_on=(1,)),
        ]
    )


ONE = (
    "1 task of load did at least 90% of the work of a computation with 4 workers; the other "
    "workers were idle, because all chunks or groups are in one task. The longest task took 2.40 s"
)
FEW = (
    "did at least 90% of the work of a computation with 4 workers; the other workers were idle. The "
    "longest task took "
)


def joined(lasts, cpu, count=6):
    """Tasks of a second on two workers, whose results one task joins."""
    parts = [Task(n // 2, n // 2 + 1, 1.0, worker=n % 2, function="load") for n in range(count)]
    end, needed = count // 2, tuple(range(count))
    return run([*parts, Task(end, end + lasts, cpu, function="combine", depends_on=needed)])


def after_one_input(count, splits=0):
    """An input that takes two seconds, and tasks of a second that need it, or parts of it."""
    parts = [Task(2, 2, function="split", depends_on=(0,)) for _ in range(splits)]
    others = [
        Task(
            *(2 + n // 2, 3 + n // 2, 1.0),
            worker=n % 2,
            function="load",
            depends_on=(1 + n % splits if splits else 0,),
        )
        for n in range(count)
    ]
    return run([Task(0, 2, 0.1, function="input"), *parts, *others])


@pytest.mark.parametrize(
    "made, cases",
    [
        # The one task has 89% or 91% of the work.
        (
            two_tasks,
            {
                0.124: None,
                0.099: (
                    *(1 - 1.099 / 2, FindingLocation(((0.0, 1.0),))),
                    {"tasks": 1, "workers": 2, "longest": 1},
                ),
                # What it costs must be worth reporting.
                (0, 1.0, 3.32): True,
                (0, 1.0, 3.35): None,
            },
        ),
        (
            lambda workers, cpu=1.0: run([Task(0, 1, cpu)], workers=workers),
            # More workers than CPUs do not compute more.
            {8: 0.5, (8, 0.0): 7 / 8, 1: None},
        ),
        (
            of_loads,
            # 3.5 s of four workers.
            {(2, 1.5): (f"2 tasks of load {FEW}2.00 s; ", 2 - 3.5 / 4, "high", "upper_bound")},
        ),
        # Of ten seconds, in most of which no task ran.
        (
            lambda stop: of_loads(2.4, stop=stop),
            {10.0: (ONE, 1.8, "medium", "upper_bound")},
        ),
        # As many tasks as workers are enough.
        (two_at_once, {1.0: None}),
        # What makes one result of all chunks is no chunk; one before it is made is.
        (made_one, {(5, "finalize"): None, (5, "sum"): True}),
        (
            lambda function: run(
                [Task(0, 1.0), Task(1.0, 1.2, function=function, depends_on=(0,))],
                workers=4,
                cpus=4,
            ),
            {"finalize": 0.75},
        ),
        # One waits for the other through a step between them, as `apply` after a shuffle.
        (through, {0.005: (0.5025, "1 task of load"), 0.015: "2 tasks of load"}),
        # A long task among many of its function is a straggler; dependent ones are a chain.
        (straggling, {20.0: None}),
        (lambda count: run(chain(count), workers=4), {3: None}),
        # All need one input: the others are enough for all workers. Of one other they are not.
        (after_one_input, {6: None, (6, 6): None, 1: True, (1, 1): True}),
        # One task joins all results: seconds of one of two workers. What waits cannot be divided.
        (
            joined,
            {
                (2.0, 2.0): (1.0, "1 task of combine ran alone", "or combine results in several"),
                (2.0, 0.5): None,
                (0.5, 0.5): None,
                (2.0, 2.0, 2): None,
            },
        ),
    ],
)
def test_chunks_too_large(made, cases):
    check("chunks-too-large", made, cases)


def test_work_that_need_not_be_done_again_is_no_large_chunk():
    token = "0123456789abcdef0123456789abcdef"
    made = in_a_loop([1.0])
    for again in (False, True):
        keys = [f"('load-{token[:-1]}{n * (not again)}', 0)" for n in range(5)]
        of_one = with_columns(made, "computations", computation=[f"run-{n}" for n in range(5)])
        of_one = with_columns(of_one, "tasks", key=keys, computation=[f"run-{n}" for n in range(5)])
        found = by_code(of_one)
        assert {"repeated-work", "chunks-too-large"} & set(found) == (
            {"repeated-work"} if again else {"chunks-too-large"}
        )


def test_the_advice_on_one_task_is_of_its_kind():
    one = run([Task(0, 1.0)], workers=4, cpus=4)
    keys = {"('f-1', 0)": "make chunks smaller", "f-1": "divide this function into several"}
    for key, advice in keys.items():
        assert advice in by_code(with_columns(one, "tasks", key=[key]))["chunks-too-large"].advice
    # Fused steps of a collection.
    fused = with_columns(one, "tasks", key=["f-1"], function=["array-sqrt-var"])
    assert "make chunks smaller" in by_code(fused)["chunks-too-large"].advice
    # The last step of a dataframe joins its parts.
    last = run([Task(0, 1.0), Task(1.0, 3.0, function="repartitiontofewer", depends_on=(0,))])
    assert by_code(last)["chunks-too-large"].numbers["longest"].value == 1.0
    path = [MAIN, ("GzipFile.read", "/usr/lib/python3.12/gzip.py", 301, 295)]
    for seconds, is_compressed in ((0.2, True), (0.05, False)):
        rows = [((0, 1), "work", path, seconds, 0), ((0, 1), "work", [MAIN], 1 - seconds, 0)]
        advice = by_code(with_stacks(one, rows))["chunks-too-large"].advice
        assert ("a compressed file is read by one task" in advice) == is_compressed


def test_what_is_no_large_chunk_is_something_else():
    assert "imbalance" not in by_code(two_tasks(0.099))
    check("straggler", straggling, {20.0: True})
    lost = 3 * 0.25 * (1 - 1 / 2)
    check("serial-chain", lambda count: run(chain(count), workers=4), {3: lost})


def in_a_loop(steps, computations=5):
    """Computations one after the other, each of a chain of tasks of these seconds."""
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
    names = [f"c{n}" for n in range(computations)]
    start = np.arange(computations) * lasts
    times = {"computation": names, "start": start, "stop": start + lasts}
    recording = with_columns(run(tasks), "computations", computations, **times)
    return with_columns(recording, "tasks", computation=[name for name in names for _ in steps])


def test_only_a_chain_that_combines_results_can_be_a_tree():
    for leaf, is_tree in (((), False), ((0,), True)):
        tasks = [Task(0.0, 0.01), *(Task(n, n + 1.0, depends_on=(n, *leaf)) for n in range(5))]
        finding = by_code(run(tasks, workers=4))["serial-chain"]
        assert ("combine results in a tree" in finding.advice) == is_tree


TOGETHER = "; compute independent results together with dask.compute(a, b), so that their tasks run"


@pytest.mark.parametrize(
    "steps, code, advice",
    [
        ([0.1, 0.9], "chunks-too-large", "make chunks smaller, for several tasks per worker"),
        ([0.3, 0.7], "chunks-too-large", "make chunks smaller, for several tasks per worker"),
        ([0.3, 0.4, 0.3], "serial-chain", "make its tasks faster"),
    ],
)
def test_results_that_are_computed_one_by_one_are_to_be_computed_together(steps, code, advice):
    cases = {1: (f"; {advice}", "not: dask.compute"), 5: (2.5, TOGETHER, f"in parallel; {advice}")}
    check(code, lambda times: in_a_loop(steps, times), cases)
    for times in cases:
        found = by_code(in_a_loop(steps, times))
        assert {"chunks-too-large", "serial-chain"} & set(found) == {code}


def test_where_waits_were_not_recorded_it_is_said_how_to_record_them():
    (finding,) = [found for found in findings(in_rounds(16)) if "waits" in found.advice]
    how = "record what tasks wait for with Profiler(waits=True) (dask-diag run --waits); "
    assert finding.advice.startswith(how)


@pytest.mark.parametrize(("share", "is_found"), [(0.4, True), (0.9, False)])
def test_what_mostly_runs_in_a_slow_call_is_not_to_run_in_more_threads(share, is_found):
    made = resting(16, 1, 1.0)
    slow = ("deepcopy", "/usr/lib/python3.11/copy.py", 128, 128)
    rows = [
        ((0.0, 16.0), "work", [MAIN, slow], 16 * share, 16 * share),
        ((0.0, 16.0), "work", [MAIN], 16 * (1 - share), 16 * (1 - share)),
    ]
    found = by_code(with_stacks(made, rows))
    assert "slow-call" in found
    assert ("too-few-threads" in found) == is_found
