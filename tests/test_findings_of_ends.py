"""Findings on uneven ends, of one computation and of several: who ran how long, and what it cost."""

import pytest

from dask_diag import FindingLocation
from dask_diag.analysis.facts import Analysis

from .recordings import (
    LEAF,
    MAIN,
    NAN,
    Task,
    assert_found,
    by_code,
    check,
    in_rounds,
    run,
    with_columns,
    with_stacks,
    with_tables,
    with_waits,
)

pytestmark = pytest.mark.once


def in_sequence(*computations, workers=2, **columns):
    """Computations of these tasks, each of which starts as the one before has stopped."""
    tasks, rows, names = [], [], []
    offset = 0.0
    for n, those in enumerate(computations):
        lasts = max(task.stop for task in those)
        rows.append((f"c{n}", offset, offset + lasts))
        names += [f"c{n}"] * len(those)
        tasks += [
            task._replace(start=task.start + offset, stop=task.stop + offset) for task in those
        ]
        offset += lasts
    recording = run(tasks, workers=workers, cpus=workers, **columns)
    times = dict(zip(("computation", "start", "stop"), map(list, zip(*rows)), strict=True))
    recording = with_columns(recording, "computations", len(rows), **times)
    return with_columns(recording, "tasks", computation=names)


def uneven(*pairs):
    """In each computation one worker runs a task for longer than the other, and not far longer."""
    return in_sequence(*([Task(0, longer), Task(0, less, worker=1)] for longer, less in pairs))


def idle_for(idle):
    # Of one second two workers could have shared what one of them does alone at the end.
    return run([Task(0, 0.38), Task(0.38, 1.0), Task(0, 1 - idle, worker=1)])


def one_after_the_other(workers, *ran):
    """Each worker runs tasks of these seconds, from 0 on."""
    tasks = [
        Task(sum(those[:n]), sum(those[: n + 1]), worker=worker)
        for worker, those in enumerate(ran)
        for n in range(len(those))
    ]
    return in_sequence(tasks, workers=workers)


def in_batches(*sizes, scheduler="processes"):
    """Tasks of a second, sent to a process each in batches of these sizes."""
    tasks = [
        Task(n, n + 1, 0.1, worker=worker, collected=size)
        for worker, size in enumerate(sizes)
        for n in range(size)
    ]
    recording = run(tasks, scheduler=scheduler)
    return with_columns(recording, "tasks", submitted=[0.0] * len(tasks))


def all_ready_at_once(scheduler):
    tasks = [Task(0, 0.1, worker=1), *(Task(n / 10, (n + 1) / 10) for n in range(10))]
    return run(tasks, scheduler=scheduler)


def ready_at(ready):
    """Worker 1 is free from 0.4 on; what worker 0 runs until 1.0 waits for a result, or does not."""
    begins = 0.72 if ready < 0.45 else 0.68
    last = Task(begins, 1.0, depends_on=(2,))
    return run([Task(0, 0.4), Task(0, 0.4, worker=1), Task(0.4, begins), last])


def test_batches_keep_tasks_from_idle_processes():
    cases = {
        (6, 2): (
            *("high", "estimate", 2.0, FindingLocation(((0.0, 6.0),), ("thread-0",), ("work",))),
            "6 tasks of work, 1.00 s each, were sent to one process in one batch, while 1 of 2 "
            "processes were idle",
        ),
        (3, 0): "3 tasks of work",
        # Five each take a sixth less, seven each an eighth.
        (6, 4): ("medium", 1.0),
        (8, 6): None,
        (2, 1): None,
        (4, 4): None,
        (1, 1): None,
    }
    check("batched-tasks", in_batches, cases)
    others = {(3, 0): None, (6, 2): None}
    for code in ("chunks-too-large", "too-few-threads", "pool-startup"):
        check(code, in_batches, others)
    in_threads = {(6, 2): None}
    check("batched-tasks", lambda *sizes: in_batches(*sizes, scheduler="threads"), in_threads)


@pytest.mark.parametrize(
    "made, cases",
    [
        # Idle for 0.5, 0.4, 0.6 and 0.1 s, of which two workers could have saved half: 0.8 of
        # 4.2 s. The most uneven is described, and all are added up.
        (
            uneven,
            {
                ((1.0, 0.5), (1.0, 0.6), (1.2, 0.6), (1.0, 0.9)): (
                    *({"longest": 1.2, "shortest": 0.6}, 0.8, "medium"),
                    FindingLocation(((0.5, 1.0), (1.6, 2.0), (2.6, 3.2), (4.1, 4.2))),
                ),
                # An even computation has no uneven end.
                ((1.0, 0.2), (0.3, 0.3)): (FindingLocation(((0.2, 1.0),)), 0.4),
                # Half of the idle time is 0.29 or 0.31 s of two seconds.
                ((2.0, 1.42),): None,
                ((2.0, 1.38),): True,
            },
        ),
        (
            idle_for,
            {
                0.29: None,
                0.31: ("medium", 0.31 / 2),
                0.59: ("medium", 0.59 / 2),
                0.61: ("high", 0.61 / 2),
            },
        ),
        # A worker that ran nothing is in no row.
        (
            one_after_the_other,
            {
                (3, (0.5, 0.5), (0.4, 0.4), (0.3, 0.1)): {"longest": 1.0, "shortest": 0.4},
                (3, (0.5, 0.5), (0.4, 0.4)): {"longest": 1.0, "shortest": 0.0},
            },
        ),
        # Of two and one, single tasks would be as uneven. Six and two are `batched-tasks`.
        (in_batches, {(2, 1): "upper_bound", (6, 2): None}),
        # Thread 1 could have had any task: the scheduler was slow. A process may have had them all
        # in one batch.
        (all_ready_at_once, {"threads": None, "processes": True}),
        # An end of tasks that were not ready before is no imbalance.
        (ready_at, {0.44: True, 0.46: None}),
    ],
)
def test_imbalance(made, cases):
    check("imbalance", made, cases)


@pytest.mark.parametrize("wait, saving", [("cpu-wait", None), ("sleep", 0.3)])
def test_a_free_worker_has_no_cpu_while_tasks_wait_for_one(wait, saving):
    tasks = run([Task(0.0, 1.0, worker=0), Task(0.0, 0.4, worker=1)])
    made = with_columns(tasks, "tasks", thread_cpu=[0.2, 0.4], thread_noncpu=[0.8, 0.0])
    found = by_code(with_waits(made, wait)).get("imbalance")
    assert (found and found.potential_saving) == (saving and pytest.approx(saving))


def straggling(seconds, others=3, usual=0.4):
    tasks = [Task(0, usual, worker=0) for _ in range(others)]
    return run([*tasks, Task(0, seconds, worker=1)], workers=1 + others)


@pytest.mark.parametrize(
    "seconds, others, code",
    [(1.25, 3, "straggler"), (1.15, 3, "imbalance"), (1.25, 2, "imbalance")],
)
def test_a_straggler_takes_three_times_the_median_of_three_others(seconds, others, code):
    found = by_code(straggling(seconds, others))
    assert set(found) & {"straggler", "imbalance"} == {code}
    assert_found(found[code], (seconds - 0.4) * others / (others + 1), "high")


def test_a_straggler_is_simulated_in_parts(monkeypatch):
    lost = 0.85 * 3 / 4
    where = FindingLocation(workers=("thread-1",))
    check("straggler", straggling, {1.25: ("estimate", where, lost, "; check this task's input")})
    # What is not simulated was measured: the idle time of others.
    monkeypatch.setattr("dask_diag.analysis.facts.MOST_SIMULATED", 3)
    check("straggler", straggling, {1.25: ("upper_bound", lost)})


def test_the_advice_on_a_straggler_is_of_its_kind():
    merged = straggling(1.25)
    merged = with_columns(merged, "tasks", function=["blockwisemerge"] * 4)
    assert "look for a key that many rows have" in by_code(merged)["straggler"].advice
    slept = with_columns(straggling(1.25), "tasks", thread_cpu=[0.0] * 4, thread_noncpu=[1.0] * 4)
    slept = with_waits(slept, "sleep")
    assert "fewer tasks at once may be refused less" in by_code(slept)["straggler"].advice
    assert "refused" not in by_code(with_waits(straggling(1.25), "sleep"))["straggler"].advice


def test_a_straggler_is_as_severe_as_what_its_remedy_is_predicted_to_gain(monkeypatch):
    gain = 0.05 * Analysis(straggling(1.25)).wall
    monkeypatch.setattr(Analysis, "seconds_saved", lambda analysis, **changes: gain)
    check("straggler", straggling, {1.25: ("low", gain, "; no fix found")})


def sampled(rows, keys=(), counts=None):
    """A straggler, whose stacks and those of others are these: path, seconds, CPU, and a start."""
    rows = [((*at, 0.0)[0], path, seconds, cpu) for path, seconds, cpu, *at in rows]
    stacks = [((at, at + 1.25), "work", path, seconds, cpu) for at, path, seconds, cpu in rows]
    keys = ["('work', 3)"] * keys + [""] * (len(rows) - keys)
    made = with_stacks(straggling(1.25), stacks, keys)
    return with_columns(made, "samples", count=counts) if counts else made


LINES = [[("step", "/code/steps.py", line, 1)] for line in range(1, 13)]


@pytest.mark.parametrize(
    "made, cases",
    [
        # Ten samples of a straggler say in which line it was, and ten of others where these were.
        (
            lambda seen, others: sampled(
                [([MAIN, LEAF], 1.0, 1.0), ([MAIN], 0.25, 0.0), ([MAIN], 1.2, 1.0)],
                2,
                [seen - 1, 1, others],
            ),
            {
                (10, 10): (
                    {"in_line": 0.8, "others_in_line": 0},
                    "time in encode (json/encoder.py:7)",
                ),
                (9, 10): ({"in_line": None, "others_in_line": None}, "not: time in encode"),
                (10, 9): ({"in_line": 0.8, "others_in_line": None}, "time in encode"),
            },
        ),
        # The hottest line may be one of the coolest of other tasks.
        (
            lambda: sampled(
                [
                    ([LEAF], 1.25, 1.25),
                    *((line, 1.0, 1.0) for line in [*LINES[1:], *LINES[1:]]),
                    ([LEAF], 0.5, 0.5),
                ],
                1,
            ),
            {(): {"in_line": 1.0, "others_in_line": 0.5 / 22.5}},
        ),
        # Only the time in which the straggler ran counts.
        (lambda: sampled([([MAIN], 1.0, 1.0, 2.0)], 1), {(): {"in_line": None}}),
    ],
)
def test_the_hottest_line_of_a_straggler(made, cases):
    check("straggler", made, cases)


def one_for_long(others, seconds):
    tasks = [Task(0, stop, worker=worker) for worker, stop in enumerate(others)]
    return [*tasks, Task(0, seconds, worker=len(others))]


def alone_for(alone):
    # Four workers save three quarters of what it runs alone: 1.43 or 1.58 of 10 s.
    tasks = one_for_long([0.1] * 3, 10.0)
    tasks += [Task(0.1, 10 - alone, function=f"other-{n}", worker=n) for n in range(3)]
    return in_sequence(tasks, workers=4)


def two_beside_each_other(tail):
    """Two of four workers run slow tasks for 1.2 s: all four would take half of that."""
    others = [Task(0, 0.3, worker=n) for n in range(4)]
    slow = [Task(0.3, 1.5, worker=0), Task(0.3, 1.5 - tail, worker=1)]
    return run([*others, *slow], workers=4)


def two_at_other_times():
    """Three workers have enough to do beside the first of them, and nothing beside the second."""
    others = [Task(n * 0.4, n * 0.4 + 0.4, worker=m) for n in range(3) for m in range(1, 4)]
    return run([*others, Task(0, 1.2, worker=0), Task(1.2, 2.6, worker=1)], workers=4)


def before_the_last_step():
    total = Task(1.25, 1.35, function="sum", depends_on=(0, 1, 2, 3))
    report = Task(1.35, 1.4, function="report", depends_on=(4,))
    return run([*one_for_long([0.4] * 3, 1.25), total, report], workers=4)


def in_a_decomposition(needs):
    """As in a QR decomposition: of each block, and then of what these give together."""
    parts = [Task(0.0, 0.4, worker=n, function="qr") for n in range(4)]
    stacked = Task(0.4, 0.45, function="stack", depends_on=(0, 1, 2, 3))
    return run([*parts, stacked, Task(0.45, 1.7, function="qr", depends_on=needs)], workers=4)


def after_one_that_loads_all():
    parts = [Task(2.0, 2.4, worker=n, depends_on=(0,)) for n in range(3)]
    slow = Task(2.0, 3.5, worker=3, depends_on=(0,))
    return run([Task(0, 2.0, function="load"), *parts, slow], workers=4)


def beside_busy_workers():
    others = [Task(n / 4, (n + 1) / 4, worker=w) for w in range(3) for n in range(5)]
    total = Task(1.25, 1.3, function="sum", depends_on=tuple(range(16)))
    return run([*others, Task(0, 1.25, worker=3), total], workers=4)


def beside_one_that_did_not_stop():
    unfinished = Task(1.25, NAN, worker=0, collected=1.25, outcome="unfinished")
    return run([*one_for_long([0.4] * 3, 1.25), unfinished], workers=4, stop=1.25)


@pytest.mark.parametrize(
    "made, cases",
    [
        # The worst is named, and all are added up: four workers that divide the work evenly take
        # 0.625, 0.95 and 0.6125 s.
        (
            lambda *others: in_sequence(*(one_for_long(*other) for other in others), workers=4),
            {
                (((0.4,) * 3, 1.3), ((0.4, 0.5, 0.9), 2.0), ((0.4,) * 3, 1.25)): (
                    "Task ('work', 7) took 2.00 s, the median task of work 500 ms; other "
                    "workers were idle until it finished; ",
                    4.55 - (0.625 + 0.95 + 0.6125),
                    *("high", "estimate"),
                    FindingLocation(((1.3, 3.3),)),
                ),
                # Another task takes about as long.
                (((0.4, 0.4, 1.2), 1.25),): (
                    "; no fix found: splitting this task is not predicted to help; ",
                    *(pytest.approx(0.05), "estimate"),
                ),
            },
        ),
        (alone_for, {1.9: None, 2.1: ("medium", 0.75 * 2.1)}),
        (beside_one_that_did_not_stop, {(): "('work', 3) took 1.25 s"}),
        # Two are idle for 1.2 s, and a third at the end.
        (
            two_beside_each_other,
            {
                tail: (
                    pytest.approx((2 * 1.2 + tail) / 4, rel=0.1),
                    *("1 other task ran beside it", "; check the input of these tasks"),
                    FindingLocation(workers=("thread-0", "thread-1")),
                )
                for tail in (0.0, 0.2)
            },
        ),
        (two_at_other_times, {(): ({"more": None}, pytest.approx(1.4 * 3 / 4, rel=0.02))}),
        # As if the last step was not there: 0.85 s, of which a quarter remains.
        (
            before_the_last_step,
            {
                (): (
                    "Task ('work', 3) took 1.25 s",
                    0.85 * 3 / 4,
                    FindingLocation(workers=("thread-3",)),
                )
            },
        ),
        # A later step of the same function is none, where it could not have run beside the others.
        (in_a_decomposition, [({"needs": (4,)}, None), ({"needs": ()}, True)]),
        # One task that loads all data hides none, and is none: there are no others of its function.
        (after_one_that_loads_all, {(): ("('work', 4) took 1.50 s", 1.1 * 3 / 4)}),
        (beside_busy_workers, {(): None}),
    ],
)
def test_straggler(made, cases):
    check("straggler", made, cases)


def test_a_straggler_before_the_last_step_is_no_imbalance():
    check("imbalance", before_the_last_step, {(): None})


@pytest.mark.parametrize("scheduler", ["threads", "processes", "distributed"])
@pytest.mark.parametrize("with_pool", [False, True])
@pytest.mark.parametrize("collected", [1.0, NAN])
def test_without_known_times_no_share_of_them_is_lost(scheduler, with_pool, collected):
    start = collected - 1
    tasks = [Task(start, NAN, None, "work", n, (), collected, "failed") for n in range(2)]
    recording = run(tasks, stop=1.0, scheduler=scheduler)
    if with_pool:
        pool = {"computation": ["c"], "kind": ["native"], "name": ["openblas"], "threads": [2]}
        recording = with_tables(recording, threads={**pool, "cpu_seconds": [1.0]})
    assert set(by_code(recording)) == {"failed-tasks"}


@pytest.mark.parametrize(
    "error, said",
    [
        ("ZeroDivisionError", "ended 1 computation, raised by Dask's scheduler: no task failed"),
        ("KeyboardInterrupt", None),
        ("", None),
    ],
)
def test_an_error_of_the_scheduler_is_a_failure_without_a_failed_task(error, said):
    """And what its tasks waited for is no reason for more threads."""
    recording = with_waits(in_rounds(40, 2), "sleep")
    found = by_code(with_columns(recording, "computations", error=[error]))
    assert said is None or said in found["failed-tasks"].evidence
    assert ("failed-tasks" in found) == (said is not None)
    assert ("too-few-threads" in found) == (error == "")


@pytest.mark.parametrize("times, is_said", [(2, False), (3, True), (11, True)])
def test_tasks_that_fail_again_and_again_are_said_to(times, is_said):
    """Two tasks fail each time that they run."""
    tasks = [Task(n, n + 1.0, outcome="failed", error="ValueError") for n in range(2 * times)]
    keys = [f"parse-{n % 2}" for n in range(2 * times)]
    found = by_code(with_columns(run(tasks), "tasks", key=keys))["failed-tasks"]
    assert (f"2 tasks failed again and again, {times} times each" in found.evidence) == is_said
    assert ("retries=" in found.advice) == is_said


@pytest.mark.parametrize("seconds, severity", [(2.0, "high"), (1.0, "medium"), (0.2, "low")])
def test_tasks_that_end_well_when_they_are_run_again_cost_the_time_before(seconds, severity):
    """Two of two fail after so long each, and take four seconds then."""
    again = 4.0 + seconds
    tasks = [Task(0, seconds, worker=n, outcome="failed", error="HTTPError") for n in range(2)]
    tasks += [Task(seconds, again, worker=n) for n in range(2)]
    made = run(tasks, workers=2, cpus=2)
    found = by_code(with_columns(made, "tasks", key=["a", "b", "a", "b"]))
    said = "Run again, 2 tasks ended well", "in a task of its own"
    assert_found(found["failed-tasks"], severity, "upper_bound", pytest.approx(seconds), *said)
    # One of them does not.
    one = with_columns(made, "tasks", key=["a", "b", "a", "c"])
    assert_found(by_code(one)["failed-tasks"], "high", "not: ended well")


def test_a_task_that_fails_in_each_of_several_computations_is_not_run_again():
    """The same key is another task in each computation."""
    names = ["c", "d", "e"]
    tasks = [Task(n, n + 1.0, outcome="failed", error="ValueError") for n in range(3)]
    made = with_columns(run(tasks), "tasks", key=["parse-1"] * 3, computation=names)
    columns = {name: made.computations[name].tolist() * 3 for name in made.computations.columns}
    made = with_tables(made, computations={**columns, "computation": names})
    found = by_code(made)["failed-tasks"]
    assert "again and again" not in found.evidence
    assert "retries=" not in found.advice


@pytest.mark.parametrize("behind, is_found", [(0.1, True), (2.0, False)])
def test_a_straggler_is_one_whatever_little_waits_in_its_batch(behind, is_found):
    """The other process ends soon; tasks that were submitted before wait behind the long one."""
    tasks = [Task(0.1 * n, 0.1 * (n + 1), worker=0) for n in range(5)]
    tasks += [Task(0.0, 4.0, worker=1), Task(4.0, 4.0 + behind, function="last", worker=1)]
    made = with_columns(run(tasks, scheduler="processes"), "tasks", submitted=[0.0] * 7)
    assert ("straggler" in by_code(made)) == is_found
